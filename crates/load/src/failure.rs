//! One request that failed, as it is shown: what was sent, what was expected, and what arrived.

use super::fault::Fault;
use super::request::Request;
use kv::proto::FailureExample;

/// How much of a request is shown, in bytes.
const SHOWN_BYTES_MAX: usize = 1 << 10;

/// What `request` shows, and the beginning of what arrived. Its class is for the caller to say.
pub(super) fn example(fault: Fault, request: &Request, status: u16, received: &[u8]) -> FailureExample {
    let sent = &request.bytes[..request.bytes.len().min(SHOWN_BYTES_MAX)];
    FailureExample {
        class: String::new(),
        request: without_secrets(&String::from_utf8_lossy(sent)),
        status,
        expected: expected(fault, request),
        received: String::from_utf8_lossy(received).into_owned(),
    }
}

/// The text of a request with `…` for what shows who the client is.
fn without_secrets(text: &str) -> String {
    let line = |line: &str| match line.split_once(':') {
        Some((name, _)) if ["authorization", "cookie"].contains(&name.to_ascii_lowercase().as_str()) => {
            format!("{name}: …\r\n")
        }
        _ => line.to_owned(),
    };
    text.split_inclusive('\n').map(line).collect()
}

fn expected(fault: Fault, request: &Request) -> String {
    let form = request.form;
    let text = String::from_utf8_lossy(&request.expected[..request.expected.len().min(SHOWN_BYTES_MAX)]);
    match fault {
        Fault::UnexpectedBody => match &form.body_pattern {
            Some(pattern) => format!("a body that matches {}", pattern.as_str()),
            None => "another body".to_owned(),
        },
        Fault::WrongValue if form.anywhere => format!("a body that has {text}"),
        Fault::WrongValue if request.exact => format!("the body {text}"),
        Fault::WrongValue => format!("a body that begins with {text}"),
        Fault::StaleValue => "the value that was written last, or a later one".to_owned(),
        Fault::Refused | Fault::Tls => "a connection".to_owned(),
        Fault::Reset | Fault::Timeout | Fault::StreamReset | Fault::GoAway => "an answer".to_owned(),
        Fault::ClosedEarly | Fault::WrongLength | Fault::SlowBody => "a complete answer".to_owned(),
        Fault::Malformed => "an HTTP answer to this request".to_owned(),
        // The others are each of a status.
        _ => format!("status {}", form.ok),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_the_client_is_is_not_shown() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\nauthorization: Bearer abc\r\nX-Y: 1\r\n\r\nbody: x";
        let shown = "GET / HTTP/1.1\r\nHost: a\r\nauthorization: …\r\nX-Y: 1\r\n\r\nbody: x";
        assert_eq!(without_secrets(text), shown);
    }
}
