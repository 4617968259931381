//! Where the load goes: the URL of a server and of what is asked there, as a person writes it.
//!
//! Knows names and addresses; does not connect.

use super::variables;
use http::uri::PathAndQuery;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

/// A server, and what is asked of it: `http://host:port/path?query`, the same with https, or `unix:/socket:/path`.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// As it was written, with its password.
    url: String,
    place: Place,
    /// With the query; empty where the URL has none.
    path: String,
    /// `user:password`, where the URL has them.
    pub(super) credentials: Option<String>,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Tcp { is_tls: bool, host: String, port: u16 },
    Unix(PathBuf),
}

/// An address that can be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Of a host.
    Tcp(SocketAddr),
    /// Of a socket in the file system.
    Unix(PathBuf),
}

impl Target {
    /// What the `Host` field says: without a port that is the usual one.
    pub fn authority(&self) -> String {
        match &self.place {
            Place::Tcp { is_tls, host, port } if *port == default_port(*is_tls) => host.clone(),
            Place::Tcp { host, port, .. } => format!("{host}:{port}"),
            Place::Unix(_) => "localhost".to_owned(),
        }
    }

    /// Path and query; `None` where the URL names a server alone.
    pub fn path(&self) -> Option<&str> {
        Some(self.path.as_str()).filter(|path| !path.is_empty())
    }

    /// Of https, the host without brackets: the name in its certificate.
    pub fn tls_host(&self) -> Option<&str> {
        match &self.place {
            Place::Tcp { is_tls: true, host, .. } => Some(host.trim_matches(['[', ']'])),
            _ => None,
        }
    }

    /// Whether it says who asks.
    pub fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    /// What `connect` gives for the first of its addresses, in the order of the resolver, at which it does not fail.
    pub fn first_of<T>(&self, connect: impl Fn(Address) -> io::Result<T>) -> io::Result<T> {
        match &self.place {
            Place::Unix(path) => connect(Address::Unix(path.clone())),
            Place::Tcp { host, port, .. } => {
                let none = Err(io::Error::other("the name has no address"));
                let addresses = (host.trim_matches(['[', ']']), *port).to_socket_addrs()?;
                addresses.fold(none, |first, address| first.or_else(|_| connect(Address::Tcp(address))))
            }
        }
    }

    /// Scheme, host and port: two URLs with the same are of one server.
    pub(super) fn origin(&self) -> String {
        match &self.place {
            Place::Tcp { is_tls, host, port } => {
                format!("{}://{host}:{port}", if *is_tls { "https" } else { "http" }).to_ascii_lowercase()
            }
            Place::Unix(path) => format!("unix:{}", path.display()),
        }
    }
}

fn default_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(url: &str) -> Result<Target, String> {
        const FORM: &str = "write http://HOST:PORT/PATH, as in http://127.0.0.1:8080/orders/1";
        let fail = |what: &str| Err(format!("{what}; hint: {FORM}"));
        if let Some(rest) = url.strip_prefix("unix:") {
            let (socket, path) = rest
                .split_once(":/")
                .map_or((rest, String::new()), |(socket, path)| (socket, format!("/{path}")));
            let socket = socket.strip_prefix("//").unwrap_or(socket);
            if socket.is_empty() {
                return Err("the URL has no path of a socket; hint: write unix:/run/app.sock, or unix:/run/app.sock:/orders/1".into());
            }
            check_path(&path)?;
            return Ok(Target {
                url: url.to_owned(),
                place: Place::Unix(socket.into()),
                path,
                credentials: None,
            });
        }
        let Some((scheme, rest)) = url.split_once("://") else {
            return Err(format!("the URL does not begin with http:// or https://; hint: write http://{url}"));
        };
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return fail(&format!("only http and https are spoken, not {scheme}")),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        // A fragment is not sent.
        let path = path.split('#').next().unwrap_or_default();
        let path = if path.starts_with('?') { format!("/{path}") } else { path.to_owned() };
        check_path(&path)?;
        let (credentials, authority) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some((user, authority)) => {
                let decoded = percent_decode_str(user).decode_utf8();
                let decoded = decoded
                    .map_err(|_| format!("user and password of the URL are no UTF-8; hint: {FORM}"))?;
                let colon = if decoded.contains(':') { "" } else { ":" };
                (Some(format!("{decoded}{colon}")), authority)
            }
        };
        if authority.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return fail("the host has a space or a control character");
        }
        // A colon inside the brackets of an IPv6 address is not the port's.
        let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
            Some((host, port)) => match port.parse() {
                Ok(port @ 1..=u16::MAX) => (host, port),
                _ if host.contains(':') && !host.starts_with('[') => {
                    return fail("an IPv6 address is written in brackets, as in http://[::1]:8080");
                }
                _ => return fail(&format!("the port `{port}` is not a number from 1 to 65535")),
            },
            None => (authority, default_port(is_tls)),
        };
        if host.is_empty() {
            return fail("the URL has no host");
        }
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']')) {
            return fail("an IPv6 address is written in brackets, as in http://[::1]:8080");
        }
        let place = Place::Tcp { is_tls, host: host.to_owned(), port };
        Ok(Target { url: url.to_owned(), place, path, credentials })
    }
}

/// Whether a request can have this path and query.
pub(super) fn check_path(path: &str) -> Result<(), String> {
    match variables::without(path).chars().find(|c| !matches!(c, '\x21'..='\x7e')) {
        None => Ok(()),
        Some(' ') => {
            Err("the path has a space; hint: write %20 for it, and quote the URL for the shell".into())
        }
        Some(other) => Err(format!(
            "the path has {}, which must be percent-encoded; hint: write %XX for each byte",
            other.escape_default()
        )),
    }
}

/// Whether a request of HTTP/2 can have this path and query, which [`check_path`] lets pass: the library takes fewer signs there.
pub(super) fn check_http2_path(path: &str) -> Result<(), String> {
    let is_taken = |path: &str| PathAndQuery::try_from(path).is_ok();
    let wrong = path.char_indices().find(|(at, _)| !is_taken(&path[..=*at])).filter(|_| !is_taken(path));
    wrong.map_or(Ok(()), |(_, sign)| {
        Err(format!(
            "the path has {sign}, which cannot be sent over HTTP/2; hint: write %{:02X} for it",
            u32::from(sign)
        ))
    })
}

/// Without user and password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp { is_tls, .. } => {
                let scheme = if *is_tls { "https" } else { "http" };
                write!(f, "{scheme}://{}{}", self.authority(), self.path)
            }
            Place::Unix(socket) if self.path.is_empty() => write!(f, "unix:{}", socket.display()),
            Place::Unix(socket) => write!(f, "unix:{}:{}", socket.display(), self.path),
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// In messages to workers, with user and password.
impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.url)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Target, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_servers_and_what_is_asked_there() {
        for (url, shown, host, path) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080", "127.0.0.1:8080", None),
            ("http://localhost:1/", "http://localhost:1/", "localhost:1", Some("/")),
            ("http://[::1]:8080", "http://[::1]:8080", "[::1]:8080", None),
            ("http://[::1]/x", "http://[::1]/x", "[::1]", Some("/x")),
            ("http://a:80/kv/x?y=1#z", "http://a/kv/x?y=1", "a", Some("/kv/x?y=1")),
            ("http://a?y=1", "http://a/?y=1", "a", Some("/?y=1")),
            ("https://a:80", "https://a:80", "a:80", None),
            ("HTTPS://a/{{id}}", "https://a/{{id}}", "a", Some("/{{id}}")),
            ("http://me:pass@a:8080/", "http://a:8080/", "a:8080", Some("/")),
            ("unix:/run/app.sock", "unix:/run/app.sock", "localhost", None),
            ("unix:///run/app.sock", "unix:/run/app.sock", "localhost", None),
            ("unix:app.sock:/a?b", "unix:app.sock:/a?b", "localhost", Some("/a?b")),
        ] {
            let target: Target = url.parse().unwrap_or_else(|why| panic!("{url}: {why}"));
            assert_eq!(
                (target.to_string().as_str(), target.authority().as_str(), target.path()),
                (shown, host, path)
            );
            let again: Target = serde_json::from_str(&serde_json::to_string(&target).unwrap()).unwrap();
            assert_eq!(again, target);
        }
        let target: Target = "http://me:p%40ss@a".parse().unwrap();
        assert_eq!(target.credentials.as_deref(), Some("me:p@ss"));
        assert!(!format!("{target} {target:?}").contains("p@ss"));
        assert_eq!("http://me@a".parse::<Target>().unwrap().credentials.as_deref(), Some("me:"));
    }

    #[test]
    fn a_sign_that_http2_does_not_take_is_named() {
        for (path, told) in [("/search?q=a<b", "the path has <, which"), ("/a/b`c?d", "write %60 for it")] {
            assert!(check_path(path).is_ok());
            let error = check_http2_path(path).unwrap_err();
            assert!(error.contains(told), "{path}: {error}");
        }
        for path in ["/", "/a/{{uuid}}?b=%3C&c={{int:1..9}}", "/a|b^c;d,e~f!$'()*[]"] {
            check_http2_path(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        }
    }

    #[test]
    fn what_is_no_target_says_why() {
        for (url, why) in [
            ("ftp://127.0.0.1:8080", "not ftp"),
            ("127.0.0.1:8080/x", "hint: write http://127.0.0.1:8080/x"),
            ("http://::1:x", "brackets"),
            ("http://::1:80", "brackets"),
            ("http://:80", "no host"),
            ("http://", "no host"),
            ("http://a:0", "1 to 65535"),
            ("http://a:65536", "1 to 65535"),
            ("http://a:b", "1 to 65535"),
            ("http://a/b c", "%20"),
            ("http://a/ü", "percent-encoded"),
            ("http://a b/", "has a space"),
            ("unix:", "no path of a socket"),
            ("", "does not begin"),
        ] {
            let error = url.parse::<Target>().expect_err(url);
            assert!(error.contains(why) && !error.contains('\n'), "{url}: {error}");
        }
    }
}
