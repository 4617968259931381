//! TLS to the server under load: its flags, and what a failed handshake means.

use ::tls::{CURL, Check, Identity, Trusted};
use kv::Error;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// What the protocol is called in a handshake.
pub(super) const HTTP2: &[u8] = b"h2";
/// What is so of a server without it.
pub(super) const NO_HTTP2: &str = "the server does not speak HTTP/2";

/// The flags of https.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Connections")]
pub struct Tls {
    /// CA certificates to trust (PEM) [default: those this machine trusts]
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,

    /// Accept any certificate of the server
    #[arg(long, short = 'k', conflicts_with = "cacert")]
    pub insecure: bool,

    /// Client certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,

    /// PEM file with its private key
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
}

impl Tls {
    /// A flag that is given, if there is one.
    pub(super) fn first_flag(&self) -> Option<&'static str> {
        let given = [
            ("--cacert", self.cacert.is_some()),
            ("--insecure", self.insecure),
            ("--cert", self.cert.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
    }

    /// What a client does in a handshake. Only one that `resumes` takes up the session of an earlier connection.
    pub(super) fn config(&self, http2: bool, resumes: bool) -> Result<Arc<ClientConfig>, Error> {
        let check = if self.insecure { Check::Nothing } else { Check::ChainAndName };
        let trusted = self.cacert.clone().map_or(Trusted::System, Trusted::File);
        let own = self.cert.clone().zip(self.key.clone());
        let own = own.map(|(certificate, key)| Identity { certificate, key });
        let mut config = ::tls::config(&CURL, check, &trusted, own.as_ref()).map_err(Error::input)?;
        if !resumes {
            config.resumption = Resumption::disabled();
        }
        config.alpn_protocols = vec![if http2 { HTTP2.to_vec() } else { b"http/1.1".to_vec() }];
        Ok(Arc::new(config))
    }
}

/// The name in a server's certificate.
pub(super) fn server_name(host: &str) -> Result<ServerName<'static>, Error> {
    ServerName::try_from(host.to_owned()).map_err(|_| {
        Error::input(format_args!("{host} is no name of a host, so no certificate can be for it"))
            .hint("give the host as a name or an address")
    })
}

/// What the failure of a handshake means, and what to do; `None` if it is another failure.
pub(super) fn failure(error: &io::Error) -> Option<String> {
    let failure = ::tls::failure_in(error)?;
    Some(match failure {
        rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol) => {
            format!("{NO_HTTP2}; leave --http2 out")
        }
        failure => ::tls::explain(&CURL, failure),
    })
}
