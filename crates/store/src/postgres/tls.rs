//! TLS to PostgreSQL: the parameters of a URL, as libpq understands them, and the handshake for the driver.

use crate::store_url::StoreUrl;
use ::tls::{self, Check, Identity, LIBPQ, Trusted};
use kv::{named, named_enum};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use sha2::{Digest, Sha256, Sha384, Sha512};
use std::env;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

/// Each parameter here, and the environment variable that has its value where the URL has none.
pub(super) const PARAMETERS: [(&str, &str); 4] = [
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
];

/// What [`Tls::explain`] begins with if the server has no TLS.
pub(super) const OFFERS_NONE: &str = "the server offers no TLS";

named_enum! {
    /// When TLS is used, and what for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Mode {
        Disable = "disable",
        Allow = "allow",
        Prefer = "prefer",
        Require = "require",
        VerifyCa = "verify-ca",
        VerifyFull = "verify-full",
    }
}

/// How the sessions of a store use TLS.
#[derive(Debug)]
pub(super) struct Tls {
    mode: Mode,
    trusted: Option<Trusted>,
    own: Option<Identity>,
    /// The parameters that the URL itself has.
    pub(super) given: Vec<(&'static str, String)>,
}

impl Tls {
    /// What the parameters of `url` say, which are no longer in it. `is_local`: its host is a socket of this machine.
    pub(super) fn of(url: &mut StoreUrl, is_local: bool) -> Result<Tls, String> {
        let mut given = Vec::new();
        let [mode, root, certificate, key] = PARAMETERS.map(|(name, variable)| {
            let value = url.take(name);
            given.extend(value.clone().filter(|value| !value.is_empty()).map(|value| (name, value)));
            value.or_else(|| env::var(variable).ok()).filter(|value| !value.is_empty())
        });
        let default = |name: &str| env::home_dir().map(|home| home.join(".postgresql").join(name));
        let existing = |name: &str| default(name).filter(|path| path.exists());
        let trusted = match root.as_deref() {
            Some("system") => Some(Trusted::System),
            Some(path) => Some(Trusted::File(path.into())),
            None => existing("root.crt").map(Trusted::File),
        };
        let mode = match mode.as_deref() {
            None if trusted == Some(Trusted::System) => Mode::VerifyFull,
            None => Mode::Prefer,
            Some(word) => {
                let found = named(&Mode::ALL, |mode| mode.name(), word).copied();
                found.map_err(|known| format!("sslmode={word} is not known; known are {known}"))?
            }
        };
        if trusted == Some(Trusted::System) && mode != Mode::VerifyFull {
            return Err(
                "sslrootcert=system proves nothing without the name: write sslmode=verify-full".into()
            );
        }
        let mode = match mode {
            // A server's own sockets have none.
            _ if is_local => Mode::Disable,
            // As libpq: who has a root certificate wants it to be used.
            Mode::Require if trusted.is_some() => Mode::VerifyCa,
            mode => mode,
        };
        if matches!(mode, Mode::VerifyCa | Mode::VerifyFull) && trusted.is_none() {
            let file = default("root.crt").unwrap_or_else(|| PathBuf::from("~/.postgresql/root.crt"));
            return Err(format!(
                "it demands a check of the server's certificate, but {} does not exist; name a file with sslrootcert=FILE, or \
                 write sslrootcert=system for those that this machine trusts",
                file.display()
            ));
        }
        let certificate = certificate.map(PathBuf::from).or_else(|| existing("postgresql.crt"));
        let key = key.map(PathBuf::from).or_else(|| default("postgresql.key"));
        let own = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (Some(_), None) => return Err("it has sslcert but no sslkey; name the file of the key".into()),
            (None, _) => None,
        };
        Ok(Tls { mode, trusted, own, given })
    }

    /// What to try, one after the other.
    pub(super) fn tries(&self) -> &'static [SslMode] {
        match self.mode {
            Mode::Disable => &[SslMode::Disable],
            Mode::Allow => &[SslMode::Disable, SslMode::Require],
            Mode::Prefer => &[SslMode::Prefer, SslMode::Disable],
            _ => &[SslMode::Require],
        }
    }

    /// What makes connections; its files are read now, so that they can be renewed while the server runs.
    pub(super) fn connector(&self) -> Result<Connector, String> {
        let check = match self.mode {
            Mode::Disable => return Ok(Connector::default()),
            Mode::Allow | Mode::Prefer | Mode::Require => Check::Nothing,
            Mode::VerifyCa => Check::Chain,
            Mode::VerifyFull => Check::ChainAndName,
        };
        let whom = self.trusted.as_ref().unwrap_or(&Trusted::System);
        let mut config = tls::config(&LIBPQ, check, whom, self.own.as_ref())?;
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Connector { config: Some(Arc::new(config)), ..Connector::default() })
    }

    /// What TLS has to do with a failure, if it has.
    pub(super) fn explain(&self, error: &tokio_postgres::Error) -> Option<String> {
        if let Some(failure) = tls::failure_in(error) {
            return Some(tls::explain(&LIBPQ, failure));
        }
        if let Some(refusal) = error.as_db_error() {
            // "no pg_hba.conf entry for host …, no encryption"; before PostgreSQL 14 "SSL off".
            let is_plain = ["no encryption", "SSL off"].iter().any(|word| refusal.message().contains(word));
            let is_login = refusal.code() == &SqlState::INVALID_AUTHORIZATION_SPECIFICATION;
            return (is_plain && is_login && self.mode == Mode::Disable).then(|| {
                format!(
                    "{} ({}); if it takes TLS only, write sslmode=require",
                    refusal.message(),
                    refusal.code().code()
                )
            });
        }
        let cause = std::error::Error::source(error)?.to_string();
        if cause.contains("does not support TLS") {
            return Some(format!(
                "{OFFERS_NONE}, which sslmode={} demands; set ssl = on there, or write sslmode=disable if nobody can listen in between",
                self.mode.name()
            ));
        }
        if cause == "password missing" {
            let ways = "PGPASSWORD, ~/.pgpass or password-file=FILE";
            return Some(format!("the server asks for a password; give it one with {ways}"));
        }
        if cause.contains("channel binding") {
            let needs = "the server has to offer TLS and ask for the password by scram-sha-256";
            return Some(format!("{cause}, which channel_binding=require demands; {needs}"));
        }
        cause
            .contains("tls handshake eof")
            .then(|| "the server ended the connection within the TLS handshake; its log says why".to_owned())
    }
}

/// Makes the handshakes of one store, or, with the name, of one of its hosts.
#[derive(Clone, Default)]
pub(super) struct Connector {
    /// `None`: there are none.
    config: Option<Arc<ClientConfig>>,
    host: String,
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = Connector;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Connector> {
        Ok(Connector { host: host.to_owned(), ..self.clone() })
    }
}

impl TlsConnect<Socket> for Connector {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move {
            let config = self.config.ok_or_else(|| io::Error::other("TLS is switched off"))?;
            let name = ServerName::try_from(self.host)
                .map_err(|_| io::Error::other("the host's name cannot stand in a certificate"))?;
            Ok(Stream(TlsConnector::from(config).connect(name, socket).await?))
        })
    }
}

/// A connection with TLS.
pub(super) struct Stream(tokio_rustls::client::TlsStream<Socket>);

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        let (_, connection) = self.0.get_ref();
        let certificate = connection.peer_certificates().and_then(|chain| chain.first());
        match certificate.and_then(|certificate| end_point(certificate)) {
            Some(hash) => ChannelBinding::tls_server_end_point(hash),
            None => ChannelBinding::none(),
        }
    }
}

/// The hash of a server's certificate that a password is bound to: that of its signature, but SHA-256 where that is MD5 or SHA-1
/// (RFC 5929, section 4.1). `None`: there is no rule for this signature.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    const RSA: [u8; 8] = [0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1];
    const ECDSA: [u8; 6] = [0x2A, 0x86, 0x48, 0xCE, 0x3D, 4];
    let algorithm = tls::signature_algorithm(certificate)?;
    let hash = match (algorithm.strip_prefix(&RSA), algorithm.strip_prefix(&ECDSA)) {
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => Sha256::digest(certificate).to_vec(),
        (Some([12]), _) | (_, Some([3, 3])) => Sha384::digest(certificate).to_vec(),
        (Some([13]), _) | (_, Some([3, 4])) => Sha512::digest(certificate).to_vec(),
        _ => return None,
    };
    Some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tls(parameters: &str) -> Result<Tls, String> {
        Tls::of(&mut StoreUrl::parse(&format!("postgres://u@h/d?{parameters}"))?, false)
    }

    #[test]
    fn the_mode_says_what_is_tried_and_checked() {
        for (parameters, mode) in [
            ("sslmode=disable", Mode::Disable),
            ("sslmode=allow", Mode::Allow),
            ("", Mode::Prefer),
            ("sslmode=require", Mode::Require),
            ("sslmode=require&sslrootcert=/ca", Mode::VerifyCa),
            ("sslmode=verify-ca&sslrootcert=/ca", Mode::VerifyCa),
            ("sslmode=verify-full&sslrootcert=/ca", Mode::VerifyFull),
            ("sslrootcert=system", Mode::VerifyFull),
        ] {
            assert_eq!(tls(parameters).unwrap().mode, mode, "{parameters}");
        }
        for (parameters, why) in [
            ("sslmode=on", "sslmode=on is not known; known are disable, allow, prefer"),
            ("sslmode=verify-full", "sslrootcert=system"),
            ("sslmode=require&sslrootcert=system", "write sslmode=verify-full"),
        ] {
            assert!(tls(parameters).unwrap_err().contains(why), "{parameters}");
        }
    }

    #[test]
    fn a_missing_file_is_named_with_its_parameter() {
        for (parameters, what) in [
            ("sslmode=verify-ca&sslrootcert=/nowhere/ca", "cannot read sslrootcert=/nowhere/ca: "),
            ("sslmode=require&sslcert=/nowhere/c&sslkey=/nowhere/k", "cannot read sslcert=/nowhere/c: "),
            ("sslcert=/dev/null&sslkey=/nowhere/k", "sslcert=/dev/null has no certificate"),
        ] {
            let why = tls(parameters).unwrap().connector().err().unwrap();
            assert!(why.starts_with(what), "{why}");
        }
    }
}
