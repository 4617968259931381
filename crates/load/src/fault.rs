//! Why requests fail, by class.

kv::named_enum! {
    /// Why an attempt failed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// No connection could be made.
        Refused = "refused",
        /// The connection was reset, or ended before the first byte of an answer.
        Reset = "reset",
        /// The connection ended in order, but inside an answer.
        ClosedEarly = "closed_early",
        /// An answer brought more than it had said, or said two things about its length.
        WrongLength = "wrong_length",
        /// The head of an answer came in time, its body did not.
        SlowBody = "slow_body",
        /// No complete head in time.
        Timeout = "timeout",
        /// What came is no HTTP answer to the request, or none that the dialect knows.
        Malformed = "malformed",
        /// A read brought something else than was written.
        WrongValue = "wrong_value",
        /// A read brought what was written, but something newer had to be there.
        StaleValue = "stale_value",
        /// Status 4xx but 429.
        Http4xx = "http_4xx",
        /// Status 429: the server asks for less.
        Http429 = "http_429",
        /// Status 5xx but 504, and but a 503 that says its outcome.
        Http5xx = "http_5xx",
        /// Status 503, and the answer says that the request was not carried out.
        Http503NotApplied = "http_503_not_applied",
        /// Status 503, and the answer says that it is unknown whether the request was carried out.
        Http503Unknown = "http_503_unknown",
        /// Status 504: whether it happened is unknown.
        Http504 = "http_504",
        /// Another status than those of a success, below 400.
        UnexpectedStatus = "unexpected_status",
        /// The body lacks what it should have.
        UnexpectedBody = "unexpected_body",
        /// No TLS session could be made, or it broke.
        Tls = "tls",
        /// HTTP/2: the server reset the stream of the request.
        StreamReset = "stream_reset",
        /// HTTP/2: the server ends the connection, and twice did not begin with the request.
        GoAway = "goaway",
    }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_method_explains_each_class() {
        let method = include_str!("../../../docs/method.md");
        let missing = Fault::ALL.into_iter().find(|fault| !method.contains(&format!("`{}`", fault.name())));
        assert_eq!(missing, None);
    }

    #[test]
    fn a_faults_place_among_all_is_its_number() {
        for (place, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, place);
            assert!(Fault::ALL[..place].iter().all(|other| other.name() != fault.name()));
        }
    }
}
