//! The URL of a cluster, for drivers in crates of their own: several hosts, and TLS by the parameters of libpq.

use crate::store_url::{Place, StoreUrl};
use rustls::ClientConfig;
use tls::{Check, Identity, LIBPQ, Trusted, config, explain, failure_in};

/// `SCHEME://[USER[:PASSWORD]@]HOST[:PORT][,…]/DATABASE[?NAME=VALUE[&…]]`, decoded. Never shown: it has the password.
pub struct ClusterUrl {
    url: StoreUrl,
    hosts: Vec<(String, Option<u16>)>,
}

/// The parameters that [`ClusterUrl::tls`] takes.
pub const TLS_PARAMETERS: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

impl ClusterUrl {
    /// Error: why `url` makes no sense.
    pub fn parse(url: &str) -> Result<ClusterUrl, String> {
        let mut url = StoreUrl::parse(url)?;
        let host = |place: Place| Some((place.host?, place.port));
        let hosts: Option<Vec<_>> = std::mem::take(&mut url.places).into_iter().map(host).collect();
        Ok(ClusterUrl { url, hosts: hosts.ok_or("a host has no name; write HOST or HOST:PORT")? })
    }

    /// Where nodes are; there is at least one.
    pub fn hosts(&self) -> &[(String, Option<u16>)] {
        &self.hosts
    }

    /// User and password.
    pub fn login(&self) -> Option<(&str, &str)> {
        Some((self.url.user.as_deref()?, self.url.password.as_deref().unwrap_or_default()))
    }

    /// What stands behind the hosts.
    pub fn database(&self) -> Option<&str> {
        self.url.database.as_deref()
    }

    /// The value of a parameter, which is no longer in it.
    pub fn take(&mut self, name: &str) -> Option<String> {
        self.url.take(name)
    }

    /// Says that all parameters were taken; else which one is not among `known`.
    pub fn finish(&self, known: &[&str]) -> Result<(), String> {
        self.url.finish(known)
    }

    /// What a client does in a handshake, by [`TLS_PARAMETERS`]; `None`: no TLS, which is so unless they ask for it. A cluster
    /// speaks TLS or not, so there is nothing to prefer.
    pub fn tls(&mut self) -> Result<Option<ClientConfig>, String> {
        let [mode, root, certificate, key] = TLS_PARAMETERS.map(|name| self.take(name));
        let check = match mode.as_deref() {
            None | Some("disable") if root.is_none() && certificate.is_none() && key.is_none() => {
                return Ok(None);
            }
            None | Some("disable") => {
                return Err("it has parameters of TLS but no sslmode; add sslmode=verify-full".into());
            }
            Some("require") if root.is_none() => Check::Nothing,
            // As libpq: who names a root certificate wants it to be used.
            Some("require" | "verify-ca") => Check::Chain,
            Some("verify-full") => Check::ChainAndName,
            Some(other) => {
                let known = "disable, require, verify-ca, verify-full";
                return Err(format!("sslmode={other} is not known; known are {known}"));
            }
        };
        let trusted = match root {
            Some(path) if path != "system" => Trusted::File(path.into()),
            _ => Trusted::System,
        };
        let own = match (certificate, key) {
            (Some(certificate), Some(key)) => {
                Some(Identity { certificate: certificate.into(), key: key.into() })
            }
            (None, None) => None,
            _ => return Err("it has one of sslcert and sslkey; give both or none".into()),
        };
        config(&LIBPQ, check, &trusted, own.as_ref()).map(Some)
    }

    /// What a failed handshake by such a configuration means and what to do; `None` if it is another failure.
    pub fn tls_failure(error: &(dyn std::error::Error + 'static)) -> Option<String> {
        failure_in(error).map(|failure| explain(&LIBPQ, failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_several_hosts() {
        let url = ClusterUrl::parse("cassandra://u:p%2Cw@a,b:9043,[::1]:1/k?dc=x").ok().unwrap();
        let hosts: Vec<(&str, Option<u16>)> =
            url.hosts().iter().map(|(host, port)| (&**host, *port)).collect();
        assert_eq!(hosts, [("a", None), ("b", Some(9043)), ("::1", Some(1))]);
        assert_eq!((url.login(), url.database()), (Some(("u", "p,w")), Some("k")));
        for (url, why) in [
            ("cassandra:///k", "a host has no name"),
            ("cassandra://a,,b/k", "no name"),
            ("cassandra://a:x/k", "is none"),
        ] {
            assert!(ClusterUrl::parse(url).err().unwrap().contains(why), "{url}");
        }
    }

    #[test]
    fn tls_is_used_where_it_is_asked_for() {
        let tls = |query: &str| ClusterUrl::parse(&format!("cassandra://h/k?{query}")).ok().unwrap().tls();
        assert!(tls("sslmode=disable").unwrap().is_none() && tls("").unwrap().is_none());
        assert!(tls("sslmode=require").unwrap().is_some());
        for (query, why) in [
            ("sslmode=maybe", "sslmode=maybe is not known; known are disable, require"),
            ("sslrootcert=/nowhere", "add sslmode=verify-full"),
            ("sslmode=verify-full&sslrootcert=/nowhere", "cannot read sslrootcert=/nowhere"),
            ("sslmode=require&sslcert=/nowhere", "give both or none"),
        ] {
            let said = tls(query).err().unwrap();
            assert!(said.contains(why), "{said}");
        }
    }
}
