//! Which names a listener answers to. A page whose name was bound to a loopback address (DNS rebinding) asks for its own name.

use super::error::Failure;
use super::head::absolute;
use super::listen::Address;
use http1::request::Head;
use std::net::IpAddr;

/// Names and addresses that `Host` and `Origin` may have, without ports.
#[derive(Debug)]
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    /// Those of a listener; `None` for all. Only on loopback, and where names are `given`, not all are answered. No page reaches a
    /// Unix socket. `name` is how the address was written.
    pub(super) fn of(address: &Address, name: Option<&str>, given: &[String]) -> Option<Hosts> {
        let ip = match address {
            Address::Tcp(address) => Some(address.ip()),
            Address::Unix(_) => None,
        };
        if given.is_empty() && !ip.is_some_and(|ip| ip.is_loopback()) {
            return None;
        }
        let own = ip.map(|ip| match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        });
        let mut names = ["127.0.0.1", "localhost", "[::1]"].map(str::to_owned).to_vec();
        names.extend(own);
        names.extend(name.map(str::to_owned));
        names.extend_from_slice(given);
        Some(Hosts(names))
    }

    /// Refuses a request for another host, and one that a page of another host sends. A client of HTTP/1.0 may ask for none.
    pub(super) fn admit(&self, head: &Head<'_, '_>) -> Result<(), Failure> {
        if let Some(host) = asked_for(head)
            && !self.has(host)
        {
            let host = String::from_utf8_lossy(host);
            let what = format!(
                "this server does not answer for the host {host:?}; use localhost, or start it with --host {}",
                without_port(host.as_bytes()).escape_ascii()
            );
            return Err(Failure::new(403, "foreign_host", what));
        }
        if let Some(origin) = head.origin
            && !absolute(origin).is_some_and(|(host, _)| self.has(host))
        {
            let origin = String::from_utf8_lossy(origin);
            let what = format!(
                "pages of {origin:?} may not use this server; start it with --host and the name of their host"
            );
            return Err(Failure::new(403, "foreign_origin", what));
        }
        Ok(())
    }

    fn has(&self, host: &[u8]) -> bool {
        let name = without_port(host);
        self.0.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// The host of an absolute target, else that of `Host` (RFC 9112, 3.2.2).
fn asked_for<'b>(head: &Head<'_, 'b>) -> Option<&'b [u8]> {
    if head.target.starts_with(b"/") {
        return head.host;
    }
    absolute(head.target).map(|(host, _)| host).or(head.host)
}

fn without_port(host: &[u8]) -> &[u8] {
    match memchr::memrchr(b':', host) {
        Some(colon) if !host.ends_with(b"]") => &host[..colon],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http1::{Limits, Slots, request};

    /// The status of the refusal of a request with this target and these fields; 0 for none.
    fn check(listen: &str, given: &[&str], target: &str, fields: &str, expected: u16) {
        let given: Vec<String> = given.iter().map(|name| (*name).to_owned()).collect();
        let hosts = Hosts::of(&Address::Tcp(listen.parse().unwrap()), None, &given);
        let version = if fields.contains("Host:") { "1.1" } else { "1.0" };
        let text = format!("GET {target} HTTP/{version}\r\n{fields}\r\n");
        let mut slots = Slots::default();
        let head = request::parse(text.as_bytes(), &Limits::USUAL, &mut slots).unwrap().unwrap();
        let refused = hosts.and_then(|hosts| hosts.admit(&head).err());
        assert_eq!(refused.map_or(0, |failure| failure.status), expected, "{listen} {given:?} {text}");
    }

    #[test]
    fn on_loopback_only_its_names_are_answered() {
        for (listen, host, expected) in [
            ("127.0.0.1:80", "localhost", 0),
            ("127.0.0.1:80", "LocalHost:8080", 0),
            ("127.0.0.1:80", "127.0.0.1:1", 0),
            ("127.0.0.1:80", "127.0.0.1:", 0),
            ("127.0.0.1:80", "[::1]", 0),
            ("127.0.0.1:80", "[::1]:80", 0),
            ("127.0.0.2:80", "127.0.0.2", 0),
            ("[::1]:80", "[::1]:80", 0),
            ("127.0.0.1:80", "127.0.0.2", 403),
            ("127.0.0.1:80", "attacker.example", 403),
            ("127.0.0.1:80", "localhost.attacker.example", 403),
            ("127.0.0.1:80", "127.0.0.1.attacker.example:80", 403),
            ("127.0.0.1:80", "[::2]:80", 403),
            ("127.0.0.1:80", "", 403),
            ("0.0.0.0:80", "attacker.example", 0),
        ] {
            check(listen, &[], "/", &format!("Host: {host}\r\n"), expected);
        }
        check("127.0.0.1:80", &[], "/", "", 0);
    }

    #[test]
    fn the_name_of_the_address_is_answered_and_at_a_unix_socket_any() {
        let names = |address: &str, name| Hosts::of(&Address::Tcp(address.parse().unwrap()), name, &[]);
        assert!(names("127.0.1.1:80", Some("box.example")).unwrap().has(b"box.example:80"));
        assert!(names("192.0.2.1:80", Some("box.example")).is_none());
        let unix = Address::Unix("/run/weir.sock".into());
        assert!(Hosts::of(&unix, None, &[]).is_none());
        let given = Hosts::of(&unix, None, &["weir.example".to_owned()]).unwrap();
        assert!(given.has(b"weir.example") && !given.has(b"attacker.example"));
    }

    #[test]
    fn an_absolute_target_has_the_host() {
        check("127.0.0.1:80", &[], "http://localhost:80/a", "Host: attacker.example\r\n", 0);
        check("127.0.0.1:80", &[], "http://attacker.example/a", "Host: localhost\r\n", 403);
        check("127.0.0.1:80", &[], "http://attacker.example?localhost", "", 403);
    }

    #[test]
    fn given_names_are_answered_and_elsewhere_no_others() {
        for (listen, host, expected) in [
            ("127.0.0.1:80", "weir.example:80", 0),
            ("127.0.0.1:80", "localhost", 0),
            ("127.0.0.1:80", "b.example", 0),
            ("127.0.0.1:80", "c.example", 403),
            ("0.0.0.0:80", "WEIR.example", 0),
            ("0.0.0.0:80", "c.example", 403),
        ] {
            check(listen, &["weir.example", "b.example"], "/", &format!("Host: {host}\r\n"), expected);
        }
    }

    #[test]
    fn pages_of_other_hosts_are_refused() {
        for (origin, expected) in [
            ("http://localhost:3000", 0),
            ("https://weir.example", 0),
            ("http://attacker.example", 403),
            ("http://localhost.attacker.example", 403),
            ("null", 403),
            ("", 403),
            ("localhost", 403),
        ] {
            let fields = format!("Host: localhost\r\nOrigin: {origin}\r\n");
            check("127.0.0.1:80", &["weir.example"], "/", &fields, expected);
        }
        check("0.0.0.0:80", &[], "/", "Host: h\r\nOrigin: http://attacker.example\r\n", 0);
    }
}
