//! Why requests fail, by class.

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No connection could be made.
    Refused,
    /// The connection was reset, or ended before the first byte of an answer.
    Reset,
    /// The connection ended in order, but inside an answer.
    ClosedEarly,
    /// An answer brought more than it had said, or said two things about its length.
    WrongLength,
    /// The head of an answer came in time, its body did not.
    SlowBody,
    /// No complete head in time.
    Timeout,
    /// What came is no HTTP answer to the request, or none that the dialect knows.
    Malformed,
    /// A read brought something else than was written.
    WrongValue,
    /// A read brought what was written, but something newer had to be there.
    StaleValue,
    /// Status 4xx but 429.
    Http4xx,
    /// Status 429: the server asks for less.
    Http429,
    /// Status 5xx but 504, and but a 503 that says its outcome.
    Http5xx,
    /// Status 503, and the answer says that the request was not carried out.
    Http503NotApplied,
    /// Status 503, and the answer says that it is unknown whether the request was carried out.
    Http503Unknown,
    /// Status 504: whether it happened is unknown.
    Http504,
    /// Another status than those of a success, below 400.
    UnexpectedStatus,
    /// The body lacks what it should have.
    UnexpectedBody,
    /// No TLS session could be made, or it broke.
    Tls,
    /// HTTP/2: the server reset the stream of the request.
    StreamReset,
    /// HTTP/2: the server ends the connection, and twice did not begin with the request.
    GoAway,
}

impl Fault {
    /// Whether it tells of a server that is gone or silent, and not of one that says no.
    pub(super) fn is_of_connection(self) -> bool {
        matches!(
            self,
            Fault::Refused
                | Fault::Reset
                | Fault::ClosedEarly
                | Fault::Timeout
                | Fault::SlowBody
                | Fault::Tls
        )
    }

    /// All of them with their names in reports; a fault's place here is `fault as usize`.
    pub const ALL: [(Fault, &str); 20] = [
        (Fault::Refused, "refused"),
        (Fault::Reset, "reset"),
        (Fault::ClosedEarly, "closed_early"),
        (Fault::WrongLength, "wrong_length"),
        (Fault::SlowBody, "slow_body"),
        (Fault::Timeout, "timeout"),
        (Fault::Malformed, "malformed"),
        (Fault::WrongValue, "wrong_value"),
        (Fault::StaleValue, "stale_value"),
        (Fault::Http4xx, "http_4xx"),
        (Fault::Http429, "http_429"),
        (Fault::Http5xx, "http_5xx"),
        (Fault::Http503NotApplied, "http_503_not_applied"),
        (Fault::Http503Unknown, "http_503_unknown"),
        (Fault::Http504, "http_504"),
        (Fault::UnexpectedStatus, "unexpected_status"),
        (Fault::UnexpectedBody, "unexpected_body"),
        (Fault::Tls, "tls"),
        (Fault::StreamReset, "stream_reset"),
        (Fault::GoAway, "goaway"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_faults_place_among_all_is_its_number() {
        for (place, (fault, name)) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, place);
            assert!(Fault::ALL[..place].iter().all(|(_, other)| *other != name));
        }
    }
}
