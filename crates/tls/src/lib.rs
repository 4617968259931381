//! TLS of clients: whom to trust, what to show, and what a failed handshake means; and what certificates say.
//!
//! Files in, a configuration of rustls out: no sockets.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, InvalidMessage, RootCertStore,
    SignatureScheme,
};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What the parameters or flags of a client are called.
#[derive(Debug)]
pub struct Names {
    /// The file of who may sign a server's certificate.
    pub ca: &'static str,
    /// The file of the own certificate; empty if none can be shown.
    pub certificate: &'static str,
    /// The file of its key.
    pub key: &'static str,
    /// Whether a key that others can use is refused.
    pub key_is_private: bool,
    /// What stands between one of them and its value.
    pub sign: char,
    /// What does without the host's name; empty if nothing does.
    pub without_name: &'static str,
    /// What does without any check; empty if nothing does that should be advised.
    pub without_check: &'static str,
}

/// What a server's certificate is checked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Nothing: whoever answers is believed.
    Nothing,
    /// That somebody trusted signed it.
    Chain,
    /// That and the host's name.
    ChainAndName,
}

/// Who may sign a server's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trusted {
    /// Whom this machine trusts.
    System,
    /// Those in a PEM file.
    File(PathBuf),
}

/// Our own certificate and its key: PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Ours, then those that lead to its signer.
    pub certificate: PathBuf,
    /// Without a password.
    pub key: PathBuf,
}

/// What libpq calls them.
pub const LIBPQ: Names = Names {
    ca: "sslrootcert",
    certificate: "sslcert",
    key: "sslkey",
    key_is_private: true,
    sign: '=',
    without_name: "sslmode=verify-ca",
    without_check: "",
};

/// What curl calls them.
pub const CURL: Names = Names {
    ca: "--cacert",
    certificate: "--cert",
    key: "--key",
    key_is_private: false,
    sign: ' ',
    without_name: "--insecure",
    without_check: "--insecure",
};

/// The one flag of a client of HTTPS that always checks the name, and shows no certificate.
pub const CACERT: Names = Names { certificate: "", key: "", without_name: "", without_check: "", ..CURL };

impl Names {
    fn named(&self, name: &str, path: &Path) -> String {
        format!("{name}{}{}", self.sign, path.display())
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificates of a PEM file; at least one.
pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    let read: Vec<_> = CertificateDer::pem_file_iter(file).and_then(Iterator::collect)?;
    if read.is_empty() { Err(pem::Error::NoItemsFound) } else { Ok(read) }
}

/// The same, with what to do about a failure.
fn named_certificates(
    names: &Names,
    name: &str,
    file: &Path,
) -> Result<Vec<CertificateDer<'static>>, String> {
    certificates(file).map_err(|why| match why {
        pem::Error::NoItemsFound => {
            format!("{} has no certificate; give a PEM file", names.named(name, file))
        }
        why => format!("cannot read {}: {why}", names.named(name, file)),
    })
}

/// The certificates that are trusted. Error: why there are none.
pub fn trusted(names: &Names, whom: &Trusted) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = match whom {
        Trusted::System => {
            let found = rustls_native_certs::load_native_certs();
            if let (true, Some(why)) = (found.certs.is_empty(), found.errors.first()) {
                return Err(format!(
                    "cannot read the certificates that this machine trusts: {why}; correct SSL_CERT_FILE or SSL_CERT_DIR if they are \
                     set, or give {}{}FILE",
                    names.ca, names.sign
                ));
            }
            found.certs
        }
        Trusted::File(path) => named_certificates(names, names.ca, path)?,
    };
    match found.is_empty() {
        true => Err(format!(
            "this machine trusts no certificates; install ca-certificates or give {}{}FILE",
            names.ca, names.sign
        )),
        false => Ok(found),
    }
}

/// Our certificate with those that lead to its signer, and its key.
pub fn identity(
    names: &Names,
    Identity { certificate, key }: &Identity,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let chain = named_certificates(names, names.certificate, certificate)?;
    let named = names.named(names.key, key);
    let meta = fs::metadata(key).map_err(|why| format!("cannot read {named}: {why}"))?;
    // As libpq: of root it may be readable for a group.
    let others = if meta.uid() == 0 { 0o037 } else { 0o077 };
    if names.key_is_private && meta.mode() & others != 0 {
        return Err(format!("{named} can be used by others than its owner; run chmod 0600 on it"));
    }
    let key = PrivateKeyDer::from_pem_file(key).map_err(|why| {
        format!("{named} has no key that can be used: {why}; give a PEM file without a password")
    })?;
    Ok((chain, key))
}

/// What a client does in a handshake.
pub fn config(
    names: &Names,
    check: Check,
    whom: &Trusted,
    own: Option<&Identity>,
) -> Result<ClientConfig, String> {
    let provider = provider();
    let roots = if check == Check::Nothing { Vec::new() } else { trusted(names, whom)? };
    let mut store = RootCertStore::empty();
    // A system has some that are odd; of a file at least one has to do.
    let (added, _) = store.add_parsable_certificates(roots.iter().cloned());
    let chain = match check {
        Check::Nothing => None,
        _ if added == 0 => return Err(format!("no certificate of {} can be used", names.ca)),
        _ => {
            let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(store), Arc::clone(&provider));
            Some(builder.build().map_err(|why| why.to_string())?)
        }
    };
    let verifier =
        Verifier { chain, roots, with_name: check == Check::ChainAndName, provider: Arc::clone(&provider) };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|why| why.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    match own.map(|own| identity(names, own)).transpose()? {
        None => Ok(builder.with_no_client_auth()),
        Some((chain, key)) => builder
            .with_client_auth_cert(chain, key)
            .map_err(|why| format!("{} and {} do not go together: {why}", names.certificate, names.key)),
    }
}

#[derive(Debug)]
struct Verifier {
    /// `None`: whoever answers is believed.
    chain: Option<Arc<WebPkiServerVerifier>>,
    roots: Vec<CertificateDer<'static>>,
    with_name: bool,
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
            check_time(certificate, now)?;
            if self.with_name {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            }
            return Ok(ServerCertVerified::assertion());
        }
        match chain.verify_server_cert(certificate, others, name, ocsp, now) {
            // The name comes last: all the rest is in order.
            Err(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { .. }))
                if !self.with_name =>
            {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
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

/// Whether a certificate is valid now.
fn check_time(certificate: &[u8], now: UnixTime) -> Result<(), rustls::Error> {
    let bad = || rustls::Error::InvalidCertificate(CertificateError::BadEncoding);
    let (from, until) = validity(certificate).ok_or_else(bad)?;
    let now = humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs()));
    let now: String = now.to_string().chars().filter(char::is_ascii_digit).collect();
    match () {
        _ if now < from => Err(rustls::Error::InvalidCertificate(CertificateError::NotValidYet)),
        _ if now > until => Err(rustls::Error::InvalidCertificate(CertificateError::Expired)),
        _ => Ok(()),
    }
}

/// When a certificate ends; `None` if that cannot be read.
pub fn certificate_end(certificate: &[u8]) -> Option<SystemTime> {
    let (_, until) = validity(certificate)?;
    let part = |range: std::ops::Range<usize>| until.get(range);
    let date = format!("{}-{}-{}", part(0..4)?, part(4..6)?, part(6..8)?);
    let instant = format!("{date}T{}:{}:{}Z", part(8..10)?, part(10..12)?, part(12..14)?);
    humantime::parse_rfc3339(&instant).ok()
}

/// From when and until when a certificate is valid, as `YYYYMMDDHHMMSS`.
fn validity(certificate: &[u8]) -> Option<(String, String)> {
    let (_, content, _) = element(certificate)?;
    let (_, mut signed, _) = element(content)?;
    // An optional version, the serial number, the algorithm, the signer.
    let fields_before = if signed.first() == Some(&0xA0) { 4 } else { 3 };
    for _ in 0..fields_before {
        signed = element(signed)?.2;
    }
    let (_, times, _) = element(signed)?;
    let (from_kind, from, rest) = element(times)?;
    let (until_kind, until, _) = element(rest)?;
    let digits = |kind, time: &[u8]| {
        let digits: String = time.iter().map(|byte| char::from(*byte)).filter(char::is_ascii_digit).collect();
        // UTCTime has two digits of the year.
        let century = if digits.as_str() < "50" { "20" } else { "19" };
        if kind == 0x17 { format!("{century}{digits}") } else { digits }
    };
    Some((digits(from_kind, from), digits(until_kind, until)))
}

/// The kind and the content of the first element of DER, and what is behind it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&kind, rest) = der.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7F => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((kind, content, rest))
}

/// The object identifier of the algorithm that a certificate is signed with, as it stands there.
pub fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (_, content, _) = element(certificate)?;
    let (_, _, algorithm) = element(content)?;
    let (_, algorithm, _) = element(algorithm)?;
    element(algorithm).map(|(_, name, _)| name)
}

/// The failure of a handshake within `error`, if that is what it is.
pub fn failure_in<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e rustls::Error> {
    if let Some(failure) = error.downcast_ref() {
        return Some(failure);
    }
    // An I/O error hides what it wraps from `source`.
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    match wrapped {
        Some(wrapped) => failure_in(wrapped),
        None => failure_in(error.source()?),
    }
}

/// The hosts that the certificate names which is in order but for the host's name.
pub fn hosts_in(failure: &rustls::Error) -> Option<Vec<&str>> {
    match failure {
        rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) => {
            Some(hosts(presented))
        }
        _ => None,
    }
}

/// The names within `DnsName("a.example")` and `IpAddress(127.0.0.1)`; others, as of an e-mail address, are of no host.
fn hosts(presented: &[String]) -> Vec<&str> {
    let quoted = presented.iter().filter_map(|name| {
        let of_host = name.strip_prefix("DnsName(").or(name.strip_prefix("IpAddress("));
        of_host?.strip_suffix(')')
    });
    quoted.map(|name| name.trim_matches('"')).collect()
}

/// What a failed handshake means and what to do, on one line.
pub fn explain(names: &Names, failure: &rustls::Error) -> String {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForNameContext, NotValidYet, NotValidYetContext, UnknownIssuer,
    };
    let Names { ca, certificate, key, without_name, without_check, .. } = names;
    let or = |other: &str| if other.is_empty() { String::new() } else { format!(", or {other}") };
    let or_without = or(without_name);
    match failure {
        rustls::Error::InvalidCertificate(why) => match why {
            UnknownIssuer => format!(
                "the server's certificate is signed by none of those trusted; name the file of its signer with {ca}{}",
                or(without_check)
            ),
            NotValidForNameContext { expected, presented } if hosts(presented).is_empty() => format!(
                "the server's certificate names no host as subjectAltName (a common name is not enough), so it cannot be that of {}; \
                 make one that does{or_without}",
                expected.to_str()
            ),
            NotValidForNameContext { expected, presented } => format!(
                "the server's certificate is for {}, not for {}; write a name of it as the host{or_without}",
                hosts(presented).join(", "),
                expected.to_str()
            ),
            Expired | ExpiredContext { .. } => "the server's certificate has expired; renew it there".into(),
            NotValidYet | NotValidYetContext { .. } => {
                "the server's certificate is not valid yet; compare the clocks of both machines".into()
            }
            // As openssl makes one, unless it is told otherwise.
            CertificateError::Other(why) if why.to_string().contains("CaUsedAsEndEntity") => format!(
                "the server's certificate is self-signed or that of a CA, and is not trusted here; name its file with {ca}{}",
                or(without_check)
            ),
            other => format!("the server's certificate cannot be used: {other}; make another one for it"),
        },
        rustls::Error::AlertReceived(
            alert @ (AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::AccessDenied),
        ) => match *certificate {
            "" => format!(
                "the server wants a certificate of its clients ({alert:?}), and none can be given here; use another address of it"
            ),
            certificate => format!(
                "the server does not accept the certificate that it was shown ({alert:?}); give one that it trusts with {certificate} and {key}"
            ),
        },
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not speak TLS at this port; use the port that does, or connect without TLS"
                .to_owned()
        }
        other => format!("the TLS handshake failed: {other}; the server has to offer TLS 1.2 or 1.3"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    fn certificate(until: i32) -> rcgen::Certificate {
        let mut params = CertificateParams::new(vec!["db.example".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2001, 2, 3);
        params.not_after = date_time_ymd(until, 12, 31);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn the_fields_of_a_certificate_are_found() {
        for (until, expected) in [(2049, "20491231000000"), (2051, "20511231000000")] {
            let made = certificate(until);
            let (from, until) = validity(made.der()).unwrap();
            assert_eq!((from.as_str(), until.as_str()), ("20010203000000", expected));
            let end = certificate_end(made.der()).map(|end| humantime::format_rfc3339(end).to_string());
            assert_eq!(end, Some(format!("{}-12-31T00:00:00Z", &expected[..4])));
            // ECDSA with SHA-256, 1.2.840.10045.4.3.2.
            let algorithm = signature_algorithm(made.der()).unwrap();
            assert_eq!(algorithm, [0x2A, 0x86, 0x48, 0xCE, 0x3D, 4, 3, 2]);
        }
        let made = certificate(2049);
        for length in 0..made.der().len() {
            assert_eq!(signature_algorithm(&made.der()[..length]), None, "{length}");
        }
    }

    #[test]
    fn a_certificate_that_signed_itself_is_to_be_named_and_plain_http_is_known() {
        let mut params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let own = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let mut store = RootCertStore::empty();
        store.add(certificate(2049).der().clone()).unwrap();
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider()).build().unwrap();
        let name = ServerName::try_from("a.example").unwrap();
        let failure = chain.verify_server_cert(own.der(), &[], &name, &[], UnixTime::now()).unwrap_err();
        let said = explain(&CURL, &failure);
        assert!(said.ends_with("is not trusted here; name its file with --cacert, or --insecure"), "{said}");
        let said = explain(&CACERT, &rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert!(said.starts_with("the server does not speak TLS at this port"), "{said}");
    }

    #[test]
    fn what_cannot_be_used_is_named_as_it_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let [good, empty] = ["good.pem", "empty.pem"].map(|name| dir.path().join(name));
        fs::write(&good, certificate(2049).pem()).unwrap();
        fs::write(&empty, "").unwrap();
        let own =
            |certificate: &Path, key: &Path| Identity { certificate: certificate.into(), key: key.into() };
        let failure = |names, own| identity(names, &own).err().unwrap();
        let nowhere = Path::new("/nowhere");
        let why = trusted(&CURL, &Trusted::File(nowhere.into())).unwrap_err();
        assert!(why.starts_with("cannot read --cacert /nowhere: "), "{why}");
        let why = trusted(&LIBPQ, &Trusted::File(empty.clone())).unwrap_err();
        assert!(why.contains("empty.pem has no certificate; give a PEM file"), "{why}");
        let why = failure(&CURL, own(nowhere, nowhere));
        assert!(why.starts_with("cannot read --cert /nowhere: "), "{why}");
        let why = failure(&LIBPQ, own(&good, nowhere));
        assert!(why.starts_with("cannot read sslkey=/nowhere: "), "{why}");
        let why = failure(&CURL, own(&good, &good));
        assert!(why.starts_with("--key ") && why.contains("has no key that can be used"), "{why}");
    }

    #[test]
    fn a_certificate_that_is_trusted_itself_is_checked_for_time_and_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("root.crt");
        let name = |name: &str| ServerName::try_from(name.to_owned()).unwrap();
        let at = |year: u64| UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 365 * 86_400));
        let made = certificate(2030);
        fs::write(&path, made.pem()).unwrap();
        let roots = trusted(&LIBPQ, &Trusted::File(path)).unwrap();
        let mut store = RootCertStore::empty();
        store.add(roots[0].clone()).unwrap();
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider()).build().unwrap();
        let verifier = Verifier { chain: Some(chain), roots, with_name: true, provider: provider() };
        let verify =
            |host: &str, year| verifier.verify_server_cert(made.der(), &[], &name(host), &[], at(year));
        assert!(verify("db.example", 2026).is_ok());
        for (host, year, why) in [
            ("db.example", 2032, "has expired"),
            ("db.example", 1999, "not valid yet"),
            ("other.example", 2026, "is for db.example, not for other.example"),
        ] {
            let said = explain(&LIBPQ, &verify(host, year).unwrap_err());
            assert!(said.contains(why), "{said}");
        }
    }
}
