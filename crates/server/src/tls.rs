//! TLS for clients: certificates from files, and the handshake.

use super::reload::Reloadable;
use super::timeouts::End;
use super::wire::{Stream, Wire};
use super::{Worker, reply};
use kv::Error;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{CipherSuite, HandshakeKind, InconsistentKeys, RootCertStore, ServerConfig};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How a TLS handshake ended: of a new session, of one that the client had a ticket of, without a connection.
#[derive(Clone, Copy, Debug)]
enum Handshake {
    Full,
    Resumed,
    Failed,
}

/// Their names.
pub(super) const HANDSHAKES: [&str; 3] = ["full", "resumed", "failed"];

/// What a TLS connection begins with: a record of a handshake.
const HANDSHAKE: u8 = 22;
/// Room for the record that ends a connection.
const LAST_RECORD_BYTES_MAX: usize = 64;

/// Certificate and key of a server, read again when their files change.
#[derive(Debug)]
pub struct Tls(pub(super) Reloadable<Identity>);

/// What the files had.
pub(super) struct Identity {
    config: Arc<ServerConfig>,
    /// When the first of its certificates ends.
    pub(super) end: Option<SystemTime>,
}

impl Tls {
    /// Reads a certificate chain, its key, and the certificates that those of clients have to be signed by, where clients need one;
    /// all PEM.
    pub fn new(certificate: &Path, key: &Path, client_ca: Option<&Path>) -> Result<Tls, Error> {
        let files = [certificate, key].into_iter().chain(client_ca).map(Path::to_owned).collect();
        Reloadable::new("tls", files, identity).map(Tls)
    }
}

/// A new one has new keys for tickets: a session does not outlive the certificates that it was made under.
fn identity(files: &[PathBuf], _before: Option<&Identity>) -> Result<Identity, Error> {
    let [certificate, key, client_ca @ ..] = files else { unreachable!("a certificate has a key") };
    let chain = certificates(certificate)?;
    let now = SystemTime::now();
    let mut ends = chain.iter().map(|certificate| ::tls::certificate_end(certificate));
    let own_end = ends.next().flatten();
    let (past, others): (Vec<_>, Vec<_>) = ends.flatten().partition(|end| *end < now);
    // One that has ended may be there for old clients, or for nobody.
    let end = own_end.into_iter().chain(others).min();
    let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| {
        let hint = "it has to be a private key in PEM, not encrypted, that this process may read";
        unreadable(key, "key", &error, hint)
    })?;
    let mut provider = ring::default_provider();
    // The shorter key is as good, and costs the server a quarter less for each record.
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    let provider = Arc::new(provider);
    let wrong = |file: &Path, error: &dyn std::fmt::Display| {
        Error::input(format_args!("cannot use {}: {error}", file.display()))
    };
    let versions =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let versions = versions.map_err(|error| wrong(certificate, &error))?;
    let clients = match client_ca {
        [file, ..] => {
            let mut roots = RootCertStore::empty();
            for root in certificates(file)? {
                roots.add(root).map_err(|error| wrong(file, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            versions.with_client_cert_verifier(verifier.map_err(|error| wrong(file, &error))?)
        }
        [] => versions.with_no_client_auth(),
    };
    let mut config = clients.with_single_cert(chain, key_der).map_err(|error| match error {
        rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
            let (key, certificate) = (key.display(), certificate.display());
            let what = format!("the key in {key} is not that of the first certificate in {certificate}");
            Error::input(what).hint("give both files of one certificate, the server's own first")
        }
        error if error.to_string().contains("UnsupportedCertVersion") => {
            let what =
                format!("cannot use {}: it is a certificate of X.509 version 1", certificate.display());
            Error::input(what).hint("make one of version 3, as `openssl req -x509` does")
        }
        error => wrong(certificate, &error),
    })?;
    let file = certificate.display();
    if let Some(end) = own_end.filter(|end| *end < now) {
        let end = humantime::format_rfc3339_seconds(end);
        log::warn!("the certificate in {file} expired at {end}, and clients refuse it; renew it");
    }
    for end in past {
        let end = humantime::format_rfc3339_seconds(end);
        log::warn!(
            "a certificate behind the first in {file} expired at {end}; if clients need it, they refuse both: replace it, or take it out"
        );
    }
    config.ignore_client_order = true;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer = ring::Ticketer::new().map_err(|error| wrong(certificate, &error))?;
    // The tickets have the sessions.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Identity { config: Arc::new(config), end })
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let hint = "it has to be a certificate in PEM that this process may read";
    ::tls::certificates(file).map_err(|error| unreadable(file, "certificate", &error, hint))
}

/// Nothing of the file is shown: it may be a key.
fn unreadable(file: &Path, what: &str, error: &pem::Error, hint: &str) -> Error {
    let why = match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => format!("it has no {what}"),
        _ => "its PEM is broken".to_owned(),
    };
    Error::input(format_args!("cannot read {}: {why}", file.display())).hint(hint)
}

/// A socket that sends one buffer as such: there is nearly always one record, and to gather buffers makes a cached GET cost 1.05 times as
/// much processor time.
pub(super) struct Socket(TcpStream);

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match bufs {
            [buf] => Pin::new(&mut self.0).poll_write(cx, buf),
            _ => Pin::new(&mut self.0).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A connection whose handshake is done.
pub(super) type TlsConnection = Box<TlsStream<Socket>>;

impl Stream for TlsConnection {
    fn client(&self) -> String {
        self.get_ref().0.0.client()
    }

    fn end(&mut self) {
        let (socket, session) = self.get_mut();
        session.send_close_notify();
        let mut record = Vec::with_capacity(LAST_RECORD_BYTES_MAX);
        while session.wants_write() && session.write_tls(&mut record).is_ok() {}
        if !record.is_empty() {
            let _ = socket.0.try_write(&record);
        }
    }
}

/// Makes the handshake, in as much time as a head has. `None`: it failed, and the connection is closed.
pub(super) async fn accept(worker: &Rc<Worker>, tls: &Tls, stream: TcpStream) -> Option<TlsConnection> {
    let timeout = worker.timeouts.register();
    let until = Instant::now() + worker.shared.options.head_timeout;
    let mut first = [0];
    match timeout.wait(until, true, stream.peek(&mut first)).await {
        Ok(Ok(1)) if first[0] == HANDSHAKE => {}
        Ok(Ok(1)) if first[0].is_ascii_alphabetic() => {
            refuse_plain(worker, stream).await;
            return None;
        }
        // Nothing was said: no handshake has failed.
        Ok(Ok(0) | Err(_)) | Err(_) => return None,
        Ok(Ok(_)) => {
            failed(worker, &"the client does not speak TLS");
            return None;
        }
    }
    let acceptor = TlsAcceptor::from(Arc::clone(&tls.0.current().config));
    match timeout.wait(until, true, acceptor.accept(Socket(stream))).await {
        Ok(Ok(stream)) => {
            let is_resumed = stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
            ended(worker, if is_resumed { Handshake::Resumed } else { Handshake::Full });
            return Some(Box::new(stream));
        }
        Ok(Err(error)) => failed(worker, &error),
        Err(End::Draining) => {}
        Err(_) => failed(worker, &"it took longer than --head-timeout"),
    }
    None
}

fn ended(worker: &Worker, how: Handshake) {
    worker.metrics.handshakes[how as usize].add(1);
}

fn failed(worker: &Worker, error: &dyn std::fmt::Display) {
    ended(worker, Handshake::Failed);
    if let Some(count) = worker.shared.handshake_failures.lock().count(Instant::now()) {
        log::warn!("TLS handshakes that failed since this was last said: {count}; the last one: {error}");
    }
}

/// Answers a request that came without TLS.
async fn refuse_plain(worker: &Rc<Worker>, stream: TcpStream) {
    ended(worker, Handshake::Failed);
    worker.metrics.counted(None, 400);
    let mut wire = Wire::new(stream, Rc::clone(worker), Duration::ZERO, reply::write_failure);
    reply::write_without_tls(&mut wire.output);
    // The client may have left.
    let _ = wire.close().await;
}
