//! TLS to the server under load: whom to trust, what to show, and what a failed handshake means.

use kv::Error;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The flags of https.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Connections")]
pub struct Tls {
    /// PEM file of who may sign the server's certificate [default: whom this machine trusts]
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,

    /// Accept any certificate of the server
    #[arg(long, short = 'k', conflicts_with = "cacert")]
    pub insecure: bool,

    /// PEM file with a certificate that is shown to the server
    #[arg(long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,

    /// PEM file with its private key
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
}

impl Tls {
    /// What a client does in a handshake.
    pub(super) fn config(&self) -> Result<Arc<ClientConfig>, Error> {
        let provider = Arc::new(ring::default_provider());
        let roots = match &self.cacert {
            _ if self.insecure => Vec::new(),
            Some(path) => certificates(path, "--cacert")?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let mut store = RootCertStore::empty();
        // A machine may have some that are odd.
        let (added, _) = store.add_parsable_certificates(roots.iter().cloned());
        let chain = match self.insecure {
            true => None,
            false if added == 0 => {
                let what = match &self.cacert {
                    Some(path) => format!("no certificate of --cacert {} can be used", path.display()),
                    None => "this machine trusts no certificates".to_owned(),
                };
                return Err(Error::input(what).hint(
                    "install ca-certificates, name a PEM file with --cacert, or accept any with --insecure",
                ));
            }
            false => {
                let builder =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(&provider));
                Some(builder.build().map_err(Error::new)?)
            }
        };
        let verifier = Verifier { chain, roots, provider: Arc::clone(&provider) };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(Error::new)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let chain = certificates(cert, "--cert")?;
                let own = PrivateKeyDer::from_pem_file(key).map_err(|why| {
                    Error::input(format_args!("--key {} has no key that can be used: {why}", key.display()))
                        .hint("give a PEM file without a password")
                })?;
                builder.with_client_auth_cert(chain, own).map_err(|why| {
                    Error::input(format_args!(
                        "--cert {} and --key {} do not go together: {why}",
                        cert.display(),
                        key.display()
                    ))
                })?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn certificates(path: &Path, flag: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|why| {
        Error::input(format_args!("cannot read {flag} {}: {why}", path.display())).hint("give a PEM file")
    })?;
    match found.is_empty() {
        true => Err(Error::input(format_args!("{flag} {} has no certificate", path.display()))
            .hint("give a PEM file")),
        false => Ok(found),
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
pub(super) fn failure(error: &io::Error) -> Option<(String, &'static str)> {
    let failure = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    let hint = match failure {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "name the PEM file of its signer with --cacert, or accept any certificate with --insecure"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "use the name of the host that is in the certificate, or accept any with --insecure",
        rustls::Error::InvalidMessage(_) => "is this the port for https? Try http://",
        rustls::Error::AlertReceived(_) => {
            "the server refuses the client; does it ask for a certificate? See --cert"
        }
        _ => "accept any certificate with --insecure, or see the server's log",
    };
    Some((failure.to_string(), hint))
}

#[derive(Debug)]
struct Verifier {
    /// `None`: whoever answers is believed.
    chain: Option<Arc<WebPkiServerVerifier>>,
    roots: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else { return Ok(ServerCertVerified::assertion()) };
        // A server's own certificate may be given as the one that is trusted, which is no chain.
        if self.roots.contains(certificate) {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        chain.verify_server_cert(certificate, others, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
