//! One request that failed, as it is shown: what was sent, what was expected, and what arrived.

use super::answer::Answer;
use super::client::RECEIVED_BYTES_MAX;
use super::fault::Fault;
use super::request::Request;
use kv::proto::FailureExample;

/// How much of a request is shown, in bytes.
const SHOWN_BYTES_MAX: usize = 1 << 10;

/// What `request` shows, and the beginning of what arrived. Its class is for the caller to say.
pub(super) fn example(fault: Fault, request: &Request, answer: &Answer, received: &[u8]) -> FailureExample {
    let sent = &request.bytes[..request.bytes.len().min(SHOWN_BYTES_MAX)];
    FailureExample {
        class: String::new(),
        request: without_secrets(&String::from_utf8_lossy(sent)),
        status: if answer.is_complete { answer.status } else { 0 },
        expected: expected(fault, request, answer.refusal),
        received: String::from_utf8_lossy(&received[..received.len().min(RECEIVED_BYTES_MAX)]).into_owned(),
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

fn expected(fault: Fault, request: &Request, refusal: Option<&str>) -> String {
    let form = request.form;
    let text = String::from_utf8_lossy(&request.expected[..request.expected.len().min(SHOWN_BYTES_MAX)]);
    if let Some(why) = refusal {
        return format!("a valid HTTP answer (refused: {why})");
    }
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
        Fault::WrongLength => "nothing behind the end of an answer".to_owned(),
        Fault::ClosedEarly | Fault::SlowBody => "a complete answer".to_owned(),
        Fault::Malformed => "an HTTP answer to this request".to_owned(),
        // The others are each of a status.
        _ => format!("status {}", form.ok),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Operation;

    #[test]
    fn an_invalid_answer_is_shown_with_what_is_wrong_with_it() {
        let form = crate::dialect::DIALECTS[0].form(Operation::Get).unwrap();
        let request = Request { operation: Operation::Get, form, ..Request::default() };
        for (wire, expected) in [
            ("HTTP/1.1 999 No\r\n\r\n", "a valid HTTP answer (refused: status out of range)"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\n",
                "a valid HTTP answer (refused: Content-Length is not a number)",
            ),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
                "a valid HTTP answer (refused: malformed chunk size)",
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n1234567", "nothing behind the end of an answer"),
        ] {
            let mut answer = Answer::default();
            let fault = answer.take(wire.as_bytes(), &request).unwrap_err();
            assert_eq!(example(fault, &request, &answer, wire.as_bytes()).expected, expected);
            answer.reset();
            assert_eq!(answer.refusal, None);
        }
    }

    #[test]
    fn who_the_client_is_is_not_shown() {
        let text = "GET / HTTP/1.1\r\nHost: a\r\nauthorization: Bearer abc\r\nX-Y: 1\r\n\r\nbody: x";
        let shown = "GET / HTTP/1.1\r\nHost: a\r\nauthorization: …\r\nX-Y: 1\r\n\r\nbody: x";
        assert_eq!(without_secrets(text), shown);
    }
}
