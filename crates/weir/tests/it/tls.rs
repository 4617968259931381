//! TLS for clients: versions, client certificates, sessions, certificates that change, and clients that do not speak it.

use crate::load::run_for;
use crate::support::{Client, PATIENCE, Server, until, weir};
use rustix::process::Signal;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore, StreamOwned};
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use tempfile::TempDir;

/// Certificates of an authority of its own, in a private directory.
pub(crate) struct Authority {
    directory: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let directory = tempfile::tempdir().unwrap();
        let settings = "[req]\ndistinguished_name=d\nprompt=no\n[d]\nCN=weir\n\
                        [ca]\nbasicConstraints=critical,CA:TRUE\nkeyUsage=keyCertSign\n\
                        [leaf]\nbasicConstraints=critical,CA:FALSE\nsubjectAltName=DNS:localhost,IP:127.0.0.1\n";
        fs::write(directory.path().join("settings"), settings).unwrap();
        let authority = Authority { directory };
        authority.openssl(&["-extensions", "ca", "-days", "2"], "ca");
        authority
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes `NAME.pem` and `NAME.key`, signed by the authority.
    pub(crate) fn issue(&self, name: &str) -> (PathBuf, PathBuf) {
        self.issue_for(name, 2)
    }

    /// The same for so many days.
    fn issue_for(&self, name: &str, days: u32) -> (PathBuf, PathBuf) {
        let days = days.to_string();
        self.openssl(&["-extensions", "leaf", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", &days], name);
        (self.file(&format!("{name}.pem")), self.file(&format!("{name}.key")))
    }

    fn openssl(&self, how: &[&str], name: &str) {
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let made = Command::new("openssl")
            .args(["req", "-x509", "-config", "settings", "-out", &certificate, "-keyout", &key])
            .args(curve)
            .args(how)
            .current_dir(self.directory.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// Flags of a server with the certificate `name`.
    pub(crate) fn flags(&self, name: &str) -> Vec<String> {
        let (certificate, key) = self.issue(name);
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        vec!["--tls-cert".to_owned(), text(certificate), "--tls-key".to_owned(), text(key)]
    }

    /// Settings of a client that trusts the authority, with a certificate of its own if it is named.
    fn client(&self, own: Option<&str>) -> ClientConfig {
        self.client_of_versions(own, rustls::ALL_VERSIONS)
    }

    fn client_of_versions(
        &self,
        own: Option<&str>,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.file("ca.pem")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let config = config.with_root_certificates(roots);
        let mut config = match own {
            None => config.with_no_client_auth(),
            Some(name) => {
                let certificate = CertificateDer::from_pem_file(self.file(&format!("{name}.pem"))).unwrap();
                let key = PrivateKeyDer::from_pem_file(self.file(&format!("{name}.key"))).unwrap();
                config.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }
}

type TlsClient = Client<StreamOwned<ClientConnection, TcpStream>>;

fn connect(config: &Arc<ClientConfig>, address: SocketAddr) -> io::Result<TlsClient> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_nodelay(true)?;
    let name = ServerName::try_from("localhost").unwrap();
    let mut session = ClientConnection::new(Arc::clone(config), name).unwrap();
    while session.is_handshaking() {
        session.complete_io(&mut socket)?;
    }
    Ok(Client::over(StreamOwned::new(session, socket)))
}

/// A server with TLS that logs, and the settings of a client that trusts it.
fn start(flags: &[&str]) -> (Authority, Server, Arc<ClientConfig>) {
    let authority = Authority::new();
    let own = authority.flags("server");
    let flags: Vec<&str> = own.iter().map(String::as_str).chain(flags.iter().copied()).collect();
    let server = Server::start("memory:", &flags);
    let config = Arc::new(authority.client(None));
    (authority, server, config)
}

/// One figure of `/stats`.
fn count<S: Read + Write>(client: &mut Client<S>, name: &str) -> f64 {
    client.stats()[name].as_f64().unwrap_or_else(|| panic!("there is no {name}"))
}

#[test]
fn both_versions_carry_requests_and_a_unix_socket_stays_plain() {
    let authority = Authority::new();
    let path = authority.file("weir.sock");
    let mut flags = authority.flags("server");
    flags.extend(["--listen".to_owned(), format!("unix:{}", path.display())]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let server = Server::start("memory:", &flags);
    let large: Vec<u8> = (0..5 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
    for (versions, expected) in [
        (&[&rustls::version::TLS12][..], ProtocolVersion::TLSv1_2),
        (&[&rustls::version::TLS13], ProtocolVersion::TLSv1_3),
    ] {
        let config = Arc::new(authority.client_of_versions(None, versions));
        let mut client = connect(&config, server.address).unwrap();
        let session = &client.stream().conn;
        assert_eq!(session.protocol_version(), Some(expected));
        assert_eq!(session.alpn_protocol(), Some(&b"http/1.1"[..]));
        client.put("/kv/a", b"value");
        assert_eq!(client.get("/kv/a").text(), "value");
        client.put("/kv/large", &large);
        assert!(client.get("/kv/large").body == large, "other bytes than were sent");
        assert_eq!(client.exchange(b"GET /kv/a HTTP/1.0\r\nHost: localhost\r\n\r\n").text(), "value");
        assert!(client.is_closed());
    }
    let mut local = Client::over(UnixStream::connect(&path).unwrap());
    assert_eq!(local.get("/kv/a").text(), "value");
    assert_eq!(count(&mut local, "weir_tls_handshakes_total{result=\"full\"}"), 2.0);
}

/// A client that sends all of a body before it reads must not find the connection reset meanwhile: over TLS it then reads nothing.
#[test]
fn a_large_body_that_is_refused_is_answered() {
    let (_authority, server, config) = start(&[]);
    let mut client = connect(&config, server.address).unwrap();
    let answer = client.ask("PUT", "/kv/a", &[], &vec![b'x'; 40 << 20]).unwrap();
    assert_eq!(answer.status, 413);
    assert!(client.is_closed());
}

#[test]
fn a_request_without_tls_is_told_so_in_plain_text() {
    let (_authority, server, config) = start(&[]);
    let mut client = server.client();
    let answer = client.ask("PUT", "/kv/a", &[], b"value").unwrap();
    assert_eq!((answer.status, answer.header("content-type")), (400, Some("text/plain")));
    assert_eq!(answer.header("weir-outcome"), Some("not-applied"));
    assert!(answer.text().contains("https://"), "{}", answer.text());
    assert!(client.is_closed());
    let mut garbage = server.client();
    garbage.send(b"\x00\x01\x02").unwrap();
    assert!(garbage.is_closed());
    let mut client = connect(&config, server.address).unwrap();
    assert_eq!(client.get("/kv/a").status, 404, "nothing was stored");
    assert_eq!(count(&mut client, "weir_tls_handshakes_total{result=\"failed\"}"), 2.0);
}

#[test]
fn a_client_needs_a_certificate_of_the_authority_where_one_is_given() {
    let (other, clients) = (Authority::new(), Authority::new());
    other.issue("client");
    clients.issue("client");
    let ca = clients.file("ca.pem");
    let (authority, server, _) = start(&["--tls-client-ca", ca.to_str().unwrap()]);
    for (name, from, is_accepted) in
        [(None, &authority, false), (Some("client"), &other, false), (Some("client"), &clients, true)]
    {
        for extension in ["pem", "key"] {
            let file = format!("client.{extension}");
            if from.file(&file).exists() {
                fs::copy(from.file(&file), authority.file(&file)).unwrap();
            }
        }
        let config = Arc::new(authority.client(name));
        // With TLS 1.3 a client learns only from the answer that it was refused.
        let answer =
            connect(&config, server.address).and_then(|mut client| client.ask("GET", "/healthz", &[], b""));
        assert_eq!(answer.is_ok_and(|answer| answer.status == 200), is_accepted, "{name:?}");
    }
}

#[test]
fn a_session_is_resumed_until_the_certificate_changes() {
    for version in rustls::ALL_VERSIONS {
        let (authority, server, _) = start(&[]);
        let config = Arc::new(authority.client_of_versions(None, &[*version]));
        let check = |expected| {
            let mut client = connect(&config, server.address).unwrap();
            // Tickets of TLS 1.3 come with what is read.
            assert_eq!(client.get("/healthz").status, 200);
            assert_eq!(client.stream().conn.handshake_kind(), Some(expected), "{version:?}");
            client
        };
        check(HandshakeKind::Full);
        check(HandshakeKind::Resumed);
        let mut client = check(HandshakeKind::Resumed);
        server.signal(Signal::HUP);
        until("files were read again", || count(&mut client, "weir_reloads_total{files=\"tls\"}") == 1.0);
        check(HandshakeKind::Full);
        assert_eq!(count(&mut client, "weir_tls_handshakes_total{result=\"resumed\"}"), 2.0);
    }
}

#[test]
fn a_load_that_connects_for_each_request_makes_full_handshakes() {
    let (_authority, server, config) = start(&[]);
    let url = format!("https://{}/readyz", server.address);
    let report = run_for(20, &clap::Parser::parse_from(["load", &url, "--insecure", "--connect", "each"]));
    assert!(report.connects == report.attempts && report.errors.is_empty(), "{report:?}");
    let mut client = connect(&config, server.address).unwrap();
    assert_eq!(count(&mut client, "weir_tls_handshakes_total{result=\"resumed\"}"), 0.0);
}

/// The certificate that the server shows to a new client.
fn shown(config: &Arc<ClientConfig>, address: SocketAddr) -> CertificateDer<'static> {
    let client = connect(config, address).unwrap();
    client.stream().conn.peer_certificates().unwrap()[0].clone().into_owned()
}

#[test]
fn a_new_certificate_is_used_without_a_failed_request() {
    let (authority, server, config) = start(&[]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let load = [false, true].map(|each_connects| {
            let (config, is_over, address) = (&config, &is_over, server.address);
            scope.spawn(move || {
                let mut client = connect(config, address).unwrap();
                let mut answered = 0_u64;
                while !is_over.load(Relaxed) {
                    if each_connects {
                        client = connect(config, address).unwrap();
                    }
                    assert_eq!(client.put("/kv/a", b"value").status / 100, 2);
                    answered += 1;
                }
                answered
            })
        });
        let _end = End(&is_over);
        let first = shown(&config, server.address);
        let (certificate, key) = authority.issue("next");
        let second = CertificateDer::from_pem_file(&certificate).unwrap();
        let (own_certificate, own_key) = (authority.file("server.pem"), authority.file("server.key"));
        let mut client = connect(&config, server.address).unwrap();
        let mut failed = || count(&mut client, "weir_reload_failed{files=\"tls\"}");
        // Half of a file, then a pair that is none: the old one stays.
        let (old, whole) = (fs::read(&own_certificate).unwrap(), fs::read(&certificate).unwrap());
        fs::write(&own_certificate, &whole[..whole.len() / 2]).unwrap();
        until("half a file is noticed", || failed() == 1.0);
        assert_eq!(shown(&config, server.address), first);
        fs::write(&own_certificate, &old).unwrap();
        server.signal(Signal::HUP);
        until("the old pair is read again", || failed() == 0.0);
        // Without a key of its own it cannot be used.
        fs::write(&own_certificate, &whole).unwrap();
        server.signal(Signal::HUP);
        until("the mismatched pair is noticed", || failed() == 1.0);
        assert_eq!(shown(&config, server.address), first);
        // As most tools do it: a new file in place of the old one.
        fs::rename(key, &own_key).unwrap();
        until("the new certificate is shown", || shown(&config, server.address) == second);
        assert_eq!(failed(), 0.0);
        is_over.store(true, Relaxed);
        for thread in load {
            assert!(thread.join().unwrap() > 0);
        }
    });
}

/// Ends the load also if the test fails.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn the_end_of_the_certificate_in_use_is_a_metric() {
    let (authority, server, config) = start(&[]);
    let end = |name: &str| {
        let file = authority.file(&format!("{name}.pem"));
        let mut asked = Command::new("openssl");
        asked.args(["x509", "-noout", "-enddate", "-dateopt", "iso_8601", "-in"]);
        let told = String::from_utf8(asked.arg(file).output().unwrap().stdout).unwrap();
        let at = told.trim().strip_prefix("notAfter=").unwrap().replace(' ', "T");
        let since = humantime::parse_rfc3339(&at).unwrap().duration_since(std::time::UNIX_EPOCH);
        since.unwrap().as_secs_f64()
    };
    let mut client = connect(&config, server.address).unwrap();
    let mut shown = || count(&mut client, "weir_tls_certificate_expiry_timestamp_seconds");
    assert_eq!(shown(), end("server"));
    authority.issue_for("next", 100);
    let mut past = rcgen::CertificateParams::new(vec!["a root".to_owned()]).unwrap();
    past.not_after = rcgen::date_time_ymd(2020, 1, 31);
    let past = past.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
    for (extension, behind) in [("key", ""), ("pem", &past)] {
        let file = |name: &str| authority.file(&format!("{name}.{extension}"));
        fs::write(file("server"), fs::read_to_string(file("next")).unwrap() + behind).unwrap();
    }
    server.signal(Signal::HUP);
    let next = end("next");
    until("the new end, and not that of an old root that no client needs", || shown() == next);
}

#[test]
fn a_handshake_has_a_time_and_counts_as_a_connection() {
    let (_authority, server, config) = start(&["--head-timeout", "300ms", "--connections", "1"]);
    let mut silent = server.client();
    until("the limit is reached", || {
        // Another one each time: on a busy machine its time may be over before anybody else comes.
        silent = server.client();
        // The first bytes of a handshake, and no more.
        let is_sent = silent.send(&[22, 3, 1, 2, 0]).is_ok();
        let answer =
            connect(&config, server.address).and_then(|mut client| client.ask("GET", "/healthz", &[], b""));
        // It may have been refused itself, beside the one before it.
        is_sent && answer.is_err() && !silent.has_answer()
    });
    assert!(silent.is_closed());
    until("there is room again", || {
        connect(&config, server.address)
            .and_then(|mut client| client.ask("GET", "/healthz", &[], b""))
            .is_ok_and(|answer| answer.status == 200)
    });
}

#[test]
fn files_that_cannot_be_used_are_named_and_not_shown() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("server");
    let (_, other_key) = authority.issue("other");
    let (empty, broken) = (authority.file("empty"), authority.file("broken"));
    fs::write(&empty, "").unwrap();
    let secret = fs::read_to_string(&key).unwrap();
    fs::write(&broken, secret.replace("-----END", "----- END")).unwrap();
    let nowhere = Path::new("/nowhere.pem");
    for (certificate, key, part) in [
        (certificate.as_path(), None, "there is no --tls-key; hint: TLS needs --tls-cert and --tls-key"),
        (nowhere, Some(key.as_path()), "cannot read /nowhere.pem: No such file"),
        (&certificate, Some(nowhere), "cannot read /nowhere.pem: No such file"),
        (&empty, Some(&key), "empty: it has no certificate"),
        (
            &certificate,
            Some(&certificate),
            "server.pem: it has no key; hint: it has to be a private key in PEM, not encrypted",
        ),
        (&certificate, Some(&broken), "broken: its PEM is broken"),
        (&certificate, Some(&other_key), "is not that of the first certificate in"),
    ] {
        let mut command = weir();
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--tls-cert"])
            .arg(certificate);
        if let Some(key) = key {
            command.arg("--tls-key").arg(key);
        }
        let refused = command.output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains(part) && said.lines().count() == 1 && said.contains("; hint: "), "{said}");
        let lines = secret.lines().filter(|line| !line.starts_with("-----"));
        assert!(lines.into_iter().all(|line| !said.contains(line)), "{said}");
    }
}

/// The one was served without a word, and of the other debug text was shown.
/// As `openssl x509 -req` makes one up to OpenSSL 3.1.
const OF_VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBFDCBuwIUJHW5/fiXMSW6z5JYxa17OB4+QVQwCgYIKoZIzj0EAwIwDDEKMAgG\n\
A1UEAwwBYTAgFw0yNjExMjYxOTE2NDVaGA8yMTI2MTEwMjE5MTY0NVowDDEKMAgG\n\
A1UEAwwBYTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABKxW6jiavCRFY2PwC5Ib\n\
OglqZCzrtlZS279k2aDcIsvwZhPqbROSghxar00KIqHxMGvQW4ggcn0djEDPxwSt\n\
eZEwCgYIKoZIzj0EAwIDSAAwRQIgZFfFu9e0lcDrl7DvTgqfMazOL2xM2qLZ29Oc\n\
HZjvB4ECIQCX16WSqyqrKZW8jafnQgXJ33b1uId09BfEJShMWANGsA==\n\
-----END CERTIFICATE-----\n";

#[test]
fn a_certificate_that_has_expired_is_told_and_one_of_version_1_is_refused_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2020, 1, 31);
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(directory.path().join("key"), key.serialize_pem()).unwrap();
    fs::write(directory.path().join("expired"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(directory.path().join("old"), OF_VERSION_1).unwrap();
    for (file, told) in [
        ("expired", "warn: the certificate in expired expired at 2020-01-31T00:00:00Z"),
        ("old", "old: it is a certificate of X.509 version 1; hint: make one of version 3"),
    ] {
        // It ends: the store is wrong.
        let mut command = weir();
        command.args(["serve", "--store", "file:", "--tls-key", "key", "--tls-cert", file]);
        let output = command.current_dir(directory.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(told), "{said}");
    }
}
