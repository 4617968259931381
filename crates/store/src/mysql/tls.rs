//! TLS to MySQL and MariaDB: the parameters of a URL, called as the options of their clients, and what a handshake failed of.

use super::cause;
use crate::store_url::StoreUrl;
use crate::url_tls::{identity, trusted};
use ::tls::{self, Identity, LIBPQ, Names, Trusted};
use kv::{named, named_enum};
use mysql_async::{ClientIdentity, DriverError, SslOpts};

const NAMES: Names = Names {
    ca: "ssl-ca",
    certificate: "ssl-cert",
    key: "ssl-key",
    without_name: "ssl-mode=VERIFY_CA",
    ..LIBPQ
};

pub(super) const PARAMETERS: [&str; 4] = ["ssl-mode", NAMES.ca, NAMES.certificate, NAMES.key];

named_enum! {
    /// When TLS is used, and what for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mode {
        Disabled = "DISABLED",
        Preferred = "PREFERRED",
        Required = "REQUIRED",
        VerifyCa = "VERIFY_CA",
        VerifyIdentity = "VERIFY_IDENTITY",
    }
}

/// How the sessions of a store use TLS.
#[derive(Debug)]
pub(super) struct Tls {
    mode: Mode,
    trusted: Trusted,
    own: Option<Identity>,
}

impl Tls {
    /// What the parameters of `url` say, which are no longer in it. `is_local`: it names a socket of this machine.
    pub(super) fn of(url: &mut StoreUrl, is_local: bool) -> Result<Tls, String> {
        let [mode, ca, certificate, key] = PARAMETERS.map(|name| url.take(name));
        let mode = match mode {
            // As MySQL's client: who names a signer wants it to be used.
            None if ca.is_some() => Mode::VerifyCa,
            None => Mode::Preferred,
            Some(word) => {
                let found = named(&Mode::ALL, |mode| mode.name(), &word.to_ascii_uppercase()).copied();
                found.map_err(|known| format!("ssl-mode={word} is not known; known are {known}"))?
            }
        };
        let (trusted, own) = (trusted(ca), identity(&NAMES, certificate, key)?);
        Ok(Tls { mode: if is_local { Mode::Disabled } else { mode }, trusted, own })
    }

    /// What to try, one after the other; `None`: without TLS. The files are read now, so that they can be renewed while the server
    /// runs.
    pub(super) fn tries(&self) -> Result<Vec<Option<SslOpts>>, String> {
        if self.mode == Mode::Disabled {
            return Ok(vec![None]);
        }
        // The driver takes the process's provider, which is not clear where another driver brings a second one. An error: there is
        // one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let is_checked = matches!(self.mode, Mode::VerifyCa | Mode::VerifyIdentity);
        let mut options = SslOpts::default();
        if is_checked {
            let roots = tls::trusted(&NAMES, &self.trusted)?;
            let roots = roots.iter().map(|root| root.to_vec().into()).collect();
            options = options.with_root_certs(roots).with_disable_built_in_roots(true);
        }
        if let Some(own) = &self.own {
            // The driver reads the same files, but would not say which one is wrong.
            tls::identity(&NAMES, own)?;
            let identity = ClientIdentity::new(own.certificate.clone().into(), own.key.clone().into());
            options = options.with_client_identity(Some(identity));
        }
        let options = options.with_danger_accept_invalid_certs(!is_checked);
        let mut tries = vec![Some(options)];
        tries.extend((self.mode == Mode::Preferred).then_some(None));
        Ok(tries)
    }

    /// VERIFY_CA: how to try again with a name that the certificate has. The driver's own switch for this does not know how rustls
    /// words the failure today; and a name that the certificate itself gives proves nothing but the chain, as it should.
    pub(super) fn with_name_of(&self, options: SslOpts, error: &mysql_async::Error) -> Option<SslOpts> {
        let is_first = self.mode == Mode::VerifyCa && options.tls_hostname_override().is_none();
        let hosts = tls::hosts_in(tls::failure_in(error)?).filter(|_| is_first)?;
        Some(options.with_danger_tls_hostname_override(Some(hosts.first()?.replace('*', "any"))))
    }

    /// What TLS has to do with a failure, if it has.
    pub(super) fn explain(&self, error: &mysql_async::Error) -> Option<String> {
        let mode = self.mode.name();
        match error {
            mysql_async::Error::Driver(DriverError::NoClientSslFlagFromServer) => Some(format!(
                "the server offers no TLS, which ssl-mode={mode} demands; give it a certificate there (ssl_cert, ssl_key), or write \
                 ssl-mode=DISABLED if nobody can listen in between"
            )),
            // require_secure_transport
            mysql_async::Error::Server(refusal) if matches!(refusal.code, 3159 | 4151) => {
                Some(format!("{}; write ssl-mode=REQUIRED instead of {mode}", cause(error)))
            }
            // Also how MariaDB before 11 words it, and for users with REQUIRE SSL.
            mysql_async::Error::Server(refusal) if refusal.code == 1045 && self.mode == Mode::Disabled => {
                Some(format!("{}; if it takes TLS only, write ssl-mode=REQUIRED", cause(error)))
            }
            error
                if tls::failure_in(error)
                    .and_then(tls::hosts_in)
                    .is_some_and(|hosts| hosts.is_empty() || self.mode == Mode::VerifyCa) =>
            {
                Some(format!(
                    "the server's certificate names no host as subjectAltName, which ssl-mode={mode} needs here; make one that does"
                ))
            }
            error => tls::failure_in(error).map(|failure| tls::explain(&NAMES, failure)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(parameters: &str) -> Result<Tls, String> {
        Tls::of(&mut StoreUrl::parse(&format!("mysql://u@h/d?{parameters}"))?, false)
    }

    #[test]
    fn the_mode_says_what_is_tried_and_checked() {
        for (parameters, mode) in [
            ("", Mode::Preferred),
            ("ssl-mode=disabled", Mode::Disabled),
            ("ssl-mode=REQUIRED", Mode::Required),
            ("ssl-ca=/ca", Mode::VerifyCa),
            ("ssl-mode=VERIFY_IDENTITY&ssl-ca=/ca", Mode::VerifyIdentity),
        ] {
            assert_eq!(tls(parameters).unwrap().mode, mode, "{parameters}");
        }
        for (parameters, why) in
            [("ssl-mode=on", "known are DISABLED, PREFERRED"), ("ssl-cert=/c", "give both or none")]
        {
            assert!(tls(parameters).unwrap_err().contains(why), "{parameters}");
        }
        for (parameters, what) in [
            ("ssl-ca=/nowhere/ca", "cannot read ssl-ca=/nowhere/ca: "),
            ("ssl-cert=/nowhere/c&ssl-key=/nowhere/k", "cannot read ssl-cert=/nowhere/c: "),
        ] {
            let why = tls(parameters).unwrap().tries().unwrap_err();
            assert!(why.starts_with(what), "{why}");
        }
    }
}
