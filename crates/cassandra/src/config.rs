//! What the URL of the store says.

use kv::named;
use scylla::statement::Consistency;
use std::sync::Arc;
use store::{Error, Kind, Place, StoreUrl, TLS_PARAMETERS, cluster_tls, redacted};

/// The port of Cassandra's native protocol.
const PORT: u16 = 9042;

pub(crate) struct Config {
    /// With their ports.
    pub(crate) hosts: Vec<String>,
    pub(crate) login: Option<(String, String)>,
    pub(crate) keyspace: String,
    /// Whose nodes are asked first.
    pub(crate) datacenter: Option<String>,
    pub(crate) reads: Reads,
    pub(crate) tls: Option<Arc<rustls::ClientConfig>>,
    /// For messages, without the password.
    pub(crate) shown: Arc<str>,
}

/// The consistency of reads that decide nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    Serial,
    Quorum,
    One,
}

const READS: [(&str, Reads); 3] = [("serial", Reads::Serial), ("quorum", Reads::Quorum), ("one", Reads::One)];

impl Reads {
    pub(crate) fn consistency(self) -> Consistency {
        match self {
            Reads::Serial => Consistency::Serial,
            Reads::Quorum => Consistency::Quorum,
            Reads::One => Consistency::One,
        }
    }

    /// What answers say, unless reads are linearizable.
    pub(crate) fn name(self) -> Option<&'static str> {
        READS.iter().find(|(_, reads)| *reads == self && self != Reads::Serial).map(|(name, _)| *name)
    }
}

impl Config {
    pub(crate) fn of(text: &str) -> Result<Config, Error> {
        // A password may have a question mark in it.
        let shown = redacted(text);
        let shown = shown.split('?').next().unwrap_or_default();
        let wrong =
            |why: String| Error::new(Kind::Config, format!("the URL of the store {shown} is wrong: {why}"));
        let mut url = StoreUrl::parse(text).map_err(wrong)?;
        let tls = cluster_tls(&mut url).map_err(wrong)?;
        let reads = match url.take("read_consistency") {
            None => Reads::Serial,
            Some(word) => {
                let found = named(&READS, |(name, _)| name, &word).map(|(_, reads)| *reads);
                let what = |known| format!("read_consistency={word} is not known; known are {known}");
                found.map_err(what).map_err(wrong)?
            }
        };
        let datacenter = url.take("dc");
        let known: Vec<&str> = ["dc", "read_consistency"].into_iter().chain(TLS_PARAMETERS).collect();
        url.finish(&known).map_err(wrong)?;
        let is_name = |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let keyspace = url.database.filter(is_name);
        let none = || {
            wrong("it names no keyspace; write cassandra://HOST/KEYSPACE, of letters, digits and _".into())
        };
        let host = |Place { host, port }: Place| {
            let host = host.ok_or("a host has no name; write HOST or HOST:PORT")?;
            let port = port.unwrap_or(PORT);
            Ok(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
        };
        let hosts: Result<_, String> = url.places.into_iter().map(host).collect();
        Ok(Config {
            hosts: hosts.map_err(wrong)?,
            login: url.user.map(|user| (user, url.password.unwrap_or_default())),
            keyspace: keyspace.ok_or_else(none)?,
            datacenter,
            reads,
            tls: tls.map(Arc::new),
            shown: shown.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_understood_or_refused_in_one_line() {
        let config = Config::of("cassandra://u:s%2Cecret@a,b:9043,[::1]/app?dc=north&read_consistency=one")
            .ok()
            .unwrap();
        assert_eq!(config.login, Some(("u".into(), "s,ecret".into())));
        assert_eq!(config.hosts, ["a:9042", "b:9043", "[::1]:9042"]);
        assert_eq!((config.keyspace.as_str(), config.datacenter.as_deref()), ("app", Some("north")));
        assert_eq!((config.reads.name(), &*config.shown), (Some("one"), "cassandra://u@a,b:9043,[::1]/app"));
        assert_eq!(Config::of("cassandra://a/k").ok().unwrap().reads.name(), None);
        for (url, why) in [
            ("cassandra://u:secret@a", "names no keyspace"),
            ("cassandra://u:12?secret@a/k", "cassandra://"),
            ("cassandra://a/my-app", "of letters, digits and _"),
            ("cassandra://u:secret@a/k?read_consistency=all", "known are serial, quorum, one"),
            ("cassandra://a/k?ttl=3", "`ttl` is not known; known are dc, read_consistency, sslmode"),
            ("cassandra:///k", "a host has no name"),
            ("cassandra://a,,b/k", "no name"),
            ("cassandra://a:x/k", "is none"),
        ] {
            let said = Config::of(url).err().unwrap().to_string();
            assert!(
                said.contains(why)
                    && !said.contains("secret")
                    && !said.contains(":12")
                    && !said.contains('\n'),
                "{said}"
            );
        }
    }
}
