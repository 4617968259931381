//! Answers of the compatibility APIs as bytes: the head that the library behind those systems writes, in its order.
//!
//! No `Date`, no `Server`. Head and body go out in one piece; there they are two, which costs a delayed acknowledgement.

use super::CompatApi;
use crate::error::{Failure, PROBLEM};
use http1::response;
use kv::Row;
use std::borrow::Cow;

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// `None` where there is no body by intention; an empty value has a type.
    content_type: Option<&'static str>,
    body: Vec<u8>,
    /// What a handler there threw: the only word of it, in a header.
    exception: Option<Cow<'static, str>>,
}

impl Reply {
    /// No more than a status.
    pub(super) fn empty(status: u16) -> Reply {
        Reply { status, content_type: None, body: Vec::new(), exception: None }
    }

    /// Text that may hold any bytes.
    pub(super) fn text(status: u16, text: impl Into<Vec<u8>>) -> Reply {
        Reply { content_type: Some("text/plain"), body: text.into(), ..Reply::empty(status) }
    }

    /// A row's value, after `words`.
    pub(super) fn value(words: &str, row: &Row) -> Reply {
        Reply::text(200, [words.as_bytes(), row.value()].concat())
    }

    pub(super) fn json(status: u16, text: String) -> Reply {
        Reply { content_type: Some("application/json"), ..Reply::text(status, text) }
    }

    /// A refusal that says what to do, which the library has no answer for.
    pub(super) fn problem(failure: &Failure) -> Reply {
        Reply { content_type: Some(PROBLEM), ..Reply::text(failure.status, failure.body()) }
    }

    /// 500 as where a handler threw.
    pub(super) fn exception(what: Cow<'static, str>) -> Reply {
        Reply { exception: Some(what), ..Reply::empty(500) }
    }

    /// Appends it.
    pub(super) fn write(&self, output: &mut Vec<u8>, api: &CompatApi, keep_alive: bool, is_head: bool) {
        let (name, said) = match keep_alive {
            true => ("Keep-Alive", api.keep_alive.as_bytes()),
            false => ("Connection", &b"close"[..]),
        };
        let length = self.body.len() as u64;
        let mut writer = response::write(output, self.status);
        if is_head {
            writer = writer.field("Accept-Ranges", b"bytes");
        }
        // The library keeps fields in a hash map and so has them in the reverse of the order they were set in: the
        // length of an empty body is set last.
        writer = match self.body.is_empty() && self.exception.is_none() {
            true => writer.field_number("Content-Length", length).field(name, said),
            false => writer.field(name, said).field_number("Content-Length", length),
        };
        if let Some(content_type) = self.content_type {
            writer = writer.field("Content-Type", content_type.as_bytes());
        }
        if let Some(what) = &self.exception {
            writer = writer.field("EXCEPTION_WHAT", what.as_bytes());
        }
        writer.end();
        if !is_head {
            output.extend_from_slice(&self.body);
        }
    }
}

/// The answer to a connection too many.
pub(crate) fn refuse_connection(output: &mut Vec<u8>) {
    Reply::empty(503).write(output, &super::COMPAT_APIS[0], false, false);
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::{Key, Version};

    /// Seen on the wire of cpp-httplib, at the commit that the systems were built with (after 0.27.0).
    #[test]
    fn heads_have_the_order_of_the_library() {
        let row = |value: &[u8]| Row::new(&Key::new(b"k").unwrap(), "", value, Version(1));
        let close = "Connection: close\r\n";
        let alive = "Keep-Alive: timeout=5, max=100\r\n";
        for (reply, keep_alive, is_head, expected) in [
            (
                Reply::value("DB HIT: ", &row(b"a")),
                true,
                false,
                format!("200 OK\r\n{alive}Content-Length: 9\r\nContent-Type: text/plain\r\n\r\nDB HIT: a"),
            ),
            (
                Reply::value("DB HIT: ", &row(b"a")),
                false,
                false,
                format!("200 OK\r\n{close}Content-Length: 9\r\nContent-Type: text/plain\r\n\r\nDB HIT: a"),
            ),
            (
                Reply::value("DB HIT: ", &row(b"a")),
                true,
                true,
                format!(
                    "200 OK\r\nAccept-Ranges: bytes\r\n{alive}Content-Length: 9\r\nContent-Type: text/plain\r\n\r\n"
                ),
            ),
            (
                Reply::value("", &row(b"")),
                true,
                false,
                format!("200 OK\r\nContent-Length: 0\r\n{alive}Content-Type: text/plain\r\n\r\n"),
            ),
            (
                Reply::text(404, "Not found"),
                false,
                false,
                format!(
                    "404 Not Found\r\n{close}Content-Length: 9\r\nContent-Type: text/plain\r\n\r\nNot found"
                ),
            ),
            (Reply::empty(404), false, false, format!("404 Not Found\r\nContent-Length: 0\r\n{close}\r\n")),
            (
                Reply::exception("boom it".into()),
                false,
                false,
                format!(
                    "500 Internal Server Error\r\n{close}Content-Length: 0\r\nEXCEPTION_WHAT: boom it\r\n\r\n"
                ),
            ),
        ] {
            let mut output = Vec::new();
            reply.write(&mut output, &super::super::COMPAT_APIS[0], keep_alive, is_head);
            assert_eq!(String::from_utf8(output).unwrap(), format!("HTTP/1.1 {expected}"));
        }
    }
}
