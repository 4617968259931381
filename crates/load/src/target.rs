//! Where the load goes: the URL of a server, as a person writes it.
//!
//! Knows names and addresses; does not connect.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// A server, as `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    authority: String,
}

impl Target {
    /// `host:port`, as the `Host` field says it.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Its addresses, in the order of the resolver.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        Ok(self.authority.to_socket_addrs()?.collect())
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(url: &str) -> Result<Target, String> {
        let fail =
            |what: &str| Err(format!("{what}; hint: write http://host:port, as in http://127.0.0.1:8080"));
        let Some(rest) = url.strip_prefix("http://") else {
            return match url.split_once("://") {
                Some((scheme, _)) => fail(&format!("only http is spoken, not {scheme}")),
                None => fail("the URL does not begin with http://"),
            };
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            return fail("the URL has a path, but where keys live is the dialect's matter");
        }
        if authority.contains(|c: char| c == '@' || c.is_whitespace() || c.is_control()) {
            return fail("the URL has more than a host and a port");
        }
        // A colon inside the brackets of an IPv6 address is not the port's.
        let Some((host, port)) = authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) else {
            return fail("the URL has no port");
        };
        if host.is_empty() {
            return fail("the URL has no host");
        }
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return fail("an IPv6 address is written in brackets, as in http://[::1]:8080");
        }
        match port.parse() {
            Ok(1..=u16::MAX) => Ok(Target { authority: authority.to_owned() }),
            _ => fail("the port is not a number from 1 to 65535"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_and_a_port_are_a_target() {
        for (url, shown) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://localhost:1/", "http://localhost:1"),
            ("http://[::1]:8080", "http://[::1]:8080"),
        ] {
            assert_eq!(url.parse::<Target>().map(|target| target.to_string()).as_deref(), Ok(shown));
        }
    }

    #[test]
    fn what_is_no_target_says_why() {
        for (url, why) in [
            ("https://127.0.0.1:8080", "not https"),
            ("127.0.0.1:8080", "does not begin with http://"),
            ("http://127.0.0.1", "no port"),
            ("http://[::1]", "no port"),
            ("http://::1:80", "brackets"),
            ("http://:80", "no host"),
            ("http://a:0", "1 to 65535"),
            ("http://a:65536", "1 to 65535"),
            ("http://a:b", "1 to 65535"),
            ("http://a:80/kv/x", "has a path"),
            ("http://me@a:80", "more than a host"),
            ("", "does not begin"),
        ] {
            let error = url.parse::<Target>().expect_err(url);
            assert!(error.contains(why) && !error.contains('\n'), "{url}: {error}");
        }
    }
}
