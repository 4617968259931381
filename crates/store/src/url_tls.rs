//! TLS by the parameters of a URL: what the kinds of stores have in common, and all of it for clusters, whose drivers are in crates of
//! their own.

use crate::store_url::StoreUrl;
use rustls::ClientConfig;
use tls::{Check, Identity, LIBPQ, Names, Trusted, config, explain, failure_in};

/// The parameters that [`cluster_tls`] takes.
pub const TLS_PARAMETERS: [&str; 4] = ["sslmode", LIBPQ.ca, LIBPQ.certificate, LIBPQ.key];

/// What a client of a cluster does in a handshake, by [`TLS_PARAMETERS`], which are no longer in `url`; `None`: no TLS, which is so
/// unless they ask for it. A cluster speaks TLS or not, so there is nothing to prefer.
pub fn cluster_tls(url: &mut StoreUrl) -> Result<Option<ClientConfig>, String> {
    let [mode, root, certificate, key] = TLS_PARAMETERS.map(|name| url.take(name));
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
    let own = identity(&LIBPQ, certificate, key)?;
    config(&LIBPQ, check, &trusted(root), own.as_ref()).map(Some)
}

/// What a failed handshake of such a client means and what to do; `None` if it is another failure.
pub fn cluster_tls_failure(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    failure_in(error).map(|failure| explain(&LIBPQ, failure))
}

/// Who is trusted, by the parameter that names a file, or `system`.
pub(super) fn trusted(root: Option<String>) -> Trusted {
    root.filter(|path| path != "system").map_or(Trusted::System, |path| Trusted::File(path.into()))
}

/// The own certificate, by the parameters that name its files.
pub(super) fn identity(
    names: &Names,
    certificate: Option<String>,
    key: Option<String>,
) -> Result<Option<Identity>, String> {
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            Ok(Some(Identity { certificate: certificate.into(), key: key.into() }))
        }
        (None, None) => Ok(None),
        _ => Err(format!("it has one of {} and {}; give both or none", names.certificate, names.key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_is_used_where_it_is_asked_for() {
        let tls =
            |query: &str| cluster_tls(&mut StoreUrl::parse(&format!("cassandra://h/k?{query}")).unwrap());
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
