//! Real Cassandra nodes as the store, under one server and under two.
//!
//! The tests share one node, each with a keyspace of its own; those that break nodes have a cluster for themselves.

use crate::load::plan;
use crate::store_tls::Certificates;
use crate::support::{Answer, Client, Server, block_on, count, is_long, until};
use kv::proto::{LoadEvent, LoadReport};
use kv::{Attributes, Change, Key, Row, Timestamp, Version, Write};
use lab_run::harness::{CassandraCluster, DatabaseOptions};
use load::{Check, EarlyEnd, Plan};
use std::fs;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;
use store::{Error, Found, Kind, Part, Store, contract};

pub(crate) const MIXED: &str =
    "get=30,put=20,delete=10,put_if_absent=10,compare_and_put=20,compare_and_delete=10";

/// The node that all share: with logins, and with TLS for who wants it and has a certificate. It ends with this process.
struct Node {
    cluster: CassandraCluster,
    /// Who signed its certificate and those of its clients.
    authority: String,
    /// A client's certificate and key.
    client: [String; 2],
}

fn node() -> &'static Node {
    static NODE: OnceLock<Node> = OnceLock::new();
    NODE.get_or_init(|| {
        let certificates = Certificates::new();
        let read = |name: &str| fs::read_to_string(certificates.path(name)).unwrap();
        let (pem, authority) = (read("127.0.0.1.key") + &read("127.0.0.1.crt"), read("ca.crt"));
        let client = ["weir.crt", "weir.key"].map(read);
        let settings = [
            ("authenticator", "PasswordAuthenticator".to_owned()),
            (
                "client_encryption_options",
                format!(
                    "{{enabled: true, optional: true, require_client_auth: true, ssl_context_factory: {{\
                     class_name: org.apache.cassandra.security.PEMBasedSslContextFactory, \
                     parameters: {{private_key: {pem:?}, trusted_certificates: {authority:?}}}}}}}"
                ),
            ),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value)).into();
        let options = DatabaseOptions { settings, ..DatabaseOptions::default() };
        let cluster = CassandraCluster::start(1, options).unwrap();
        let version = cluster.query(0, "SELECT release_version FROM system.local").unwrap();
        count("Cassandra", &version[0][0]);
        Node { cluster, authority, client }
    })
}

/// The URL of a new keyspace on it.
pub(crate) fn keyspace() -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let url = node().cluster.keyspace(&format!("test_{}", COUNT.fetch_add(1, Relaxed))).unwrap();
    as_user(&url, "cassandra:cassandra")
}

/// The URL with this login.
fn as_user(url: &str, login: &str) -> String {
    let rest = url.rsplit_once('@').map_or_else(|| url.split_once("//").unwrap().1, |(_, rest)| rest);
    format!("cassandra://{login}@{rest}")
}

fn open(url: &str) -> Box<dyn Store> {
    store::open_with(url, &[cassandra::SCHEME]).unwrap()
}

fn etag(answer: &Answer) -> String {
    answer.header("etag").unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

fn version(answer: &Answer) -> u64 {
    etag(answer).trim_matches('"').parse().unwrap()
}

#[test]
fn cassandra_keeps_the_contract() {
    let url = keyspace();
    block_on(contract::all(open(&url).as_ref()));
    let url = keyspace();
    block_on(contract::remembers_its_part(|| open(&url)));
}

#[test]
fn what_cannot_be_is_told_in_one_line() {
    let url = keyspace();
    let (place, _) = url.rsplit_once('/').unwrap();
    for (url, kind, why) in [
        (
            format!("{place}/nowhere"),
            Kind::Config,
            "has no keyspace nowhere; make it, with: CREATE KEYSPACE \"nowhere\"",
        ),
        (
            "cassandra://127.0.0.1:1/k".to_owned(),
            Kind::Unavailable,
            "cannot reach store cassandra://127.0.0.1:1/k",
        ),
        (format!("{url}?dc=nowhere"), Kind::Config, "has no data center nowhere; there are datacenter1"),
    ] {
        check_refused(&url, kind, why);
    }
}

fn check_refused(url: &str, kind: Kind, why: &str) {
    let (found, said) = refusal(url);
    assert!(found == kind && said.contains(why), "{found:?}: {said}");
    let (_, remedy) = said.split_once("; ").unwrap_or_default();
    assert!(!remedy.contains("connection"), "no remedy: {said}");
}

/// Why a store cannot be acquired, on one line and without its password.
fn refusal(url: &str) -> (Kind, String) {
    let error: Error = block_on(open(url).acquire(Part::WHOLE)).err().unwrap_or_else(|| panic!("{url}"));
    let said = error.to_string();
    assert!(!said.contains('\n') && !said.contains("s%2Fcret") && !said.contains("s/cret"), "{said}");
    (error.kind(), said)
}

#[test]
fn a_login_and_tls_are_what_the_url_says() {
    let (url, cluster) = (keyspace(), &node().cluster);
    let (dir, other) = (tempfile::tempdir().unwrap(), Certificates::new());
    let file = |name: &str, text: &String| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let [certificate, key] = &node().client;
    let authority = file("ca.crt", &node().authority);
    let client = format!("sslcert={}&sslkey={}", file("weir.crt", certificate), file("weir.key", key));
    let stranger = format!("sslcert={}&sslkey={}", other.shown("stranger.crt"), other.shown("stranger.key"));
    let other = other.shown("other-ca.crt");
    for (user, parameters, has_tls) in [
        ("plain", "dc=datacenter1".to_owned(), false),
        ("unchecked", format!("sslmode=require&{client}"), true),
        ("signed", format!("sslmode=verify-ca&sslrootcert={authority}&{client}"), true),
        ("named", format!("sslmode=verify-full&sslrootcert={authority}&{client}"), true),
    ] {
        cluster.query(0, &format!("CREATE ROLE {user} WITH PASSWORD = 's/cret' AND LOGIN = true")).unwrap();
        let server =
            Server::start(&format!("{}?{parameters}", as_user(&url, &format!("{user}:s%2Fcret"))), &[]);
        let mut client = server.client();
        client.put(&format!("/kv/{user}"), b"1");
        assert_eq!(client.get(&format!("/kv/{user}")).text(), "1", "{parameters}");
        let sessions = cluster.query(0, "SELECT username, ssl_protocol FROM system_views.clients").unwrap();
        let own: Vec<bool> =
            sessions.iter().filter(|row| row[0] == user).map(|row| !row[1].is_empty()).collect();
        assert!(!own.is_empty() && own.iter().all(|tls| *tls == has_tls), "{user}: {own:?}");
    }
    let (named, nobody) = (as_user(&url, "named:s%2Fcret"), url.replace("cassandra:cassandra@", ""));
    for (url, why) in [
        (nobody, "it asks for a login; write cassandra://USER:PASSWORD@HOST"),
        (as_user(&url, "named:wrong"), "it refuses the user named with this password"),
        (
            format!("{named}?sslmode=verify-full&sslrootcert={other}&{client}"),
            "signed by none of those trusted",
        ),
    ] {
        check_refused(&url, Kind::Config, why);
    }
    // The node may close the connection before its alert is read.
    let certificate = "give one that it trusts with sslcert and sslkey";
    for (parameters, why) in [("", certificate), (&format!("&{stranger}"), "the TLS handshake failed")] {
        let (_, said) = refusal(&format!("{named}?sslmode=require{parameters}"));
        assert!(said.contains(why) || said.contains(certificate), "{said}");
    }
}

#[test]
fn a_server_over_cassandra_answers_as_over_any_store() {
    let server = Server::start(&keyspace(), &[]);
    let mut client = server.client();
    assert_eq!(client.get("/kv/a").status, 404);
    assert_eq!(client.ask("DELETE", "/kv/a", &[], b"").unwrap().status, 204);
    let made = client.ask("PUT", "/kv/a", &[("Content-Type", "a/b")], b"1").unwrap();
    assert_eq!(made.status, 201);
    let read = client.get("/kv/a");
    assert_eq!((read.text().as_str(), read.header("content-type")), ("1", Some("a/b")));
    assert_eq!((etag(&read), read.header("cache-status")), (etag(&made), Some("weir; fwd=miss")));
    let replaced = client.put("/kv/a", b"2");
    assert!(replaced.status == 204 && version(&replaced) > version(&made));
    for (name, value, status) in [
        ("If-Match", etag(&made), 412),
        ("If-None-Match", "*".to_owned(), 412),
        ("If-Match", etag(&replaced), 204),
    ] {
        let answer = client.ask("PUT", "/kv/a", &[(name, &value)], b"3").unwrap();
        assert_eq!(answer.status, status, "{name}: {value}");
        assert_eq!(answer.header("weir-outcome"), (status == 412).then_some("not-applied"));
    }
    let now = etag(&client.get("/kv/a"));
    assert_eq!(client.ask("DELETE", "/kv/a", &[("If-Match", &now)], b"").unwrap().status, 204);
    assert_eq!(client.get("/kv/a").status, 404);
    assert_eq!(client.ask("PUT", "/kv/a", &[("If-Match", &now)], b"4").unwrap().status, 412);
    assert_eq!(client.ask("PUT", "/kv/a", &[("If-None-Match", "*")], b"4").unwrap().status, 201);
    let lines = b"{\"op\":\"put\",\"key\":\"b\",\"value\":\"x\"}\n{\"op\":\"get\",\"key\":\"b\"}\n";
    let batch = client.ask("POST", "/batch", &[], lines).unwrap().text();
    assert!(batch.contains("\"value\":\"x\"") && batch.ends_with("{\"done\":2,\"failed\":0}\n"), "{batch}");
    for (method, path, body, why) in [
        ("GET", "/kv?prefix=a", &b""[..], "has no list of keys"),
        ("POST", "/batch?atomic=true", lines, "send the batch without atomic=true"),
        ("GET", "/watch", b"", "does not see all writes of its store"),
    ] {
        let answer = client.ask(method, path, &[], body).unwrap();
        assert_eq!(answer.status, 501, "{path}");
        let said = answer.problem()["detail"].to_string();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_lifetime_ends_by_itself_and_can_be_changed() {
    let url = keyspace();
    let (server, other) = (Server::start(&url, &[]), Server::start(&url, &[]));
    let (mut client, mut second) = (server.client(), other.client());
    let made = client.ask("PUT", "/kv/short", &[("TTL", "1")], b"x").unwrap();
    until("a value is touched before it ends", || {
        client.ask("PUT", "/kv/longer", &[("TTL", "1")], b"y").unwrap();
        client.ask("POST", "/kv/longer?touch", &[("TTL", "600")], b"").unwrap().status == 204
    });
    // Each ends it by the clock that a node set when it connected, which may be a little apart.
    until("the value ends", || second.get("/kv/short").status == 404);
    until("it ends for the other server", || client.get("/kv/short").status == 404);
    let read = second.get("/kv/longer");
    assert!(read.text() == "y" && read.header("expires").is_some(), "{read:?}");
    // What has expired is no row to a condition, and its version is not given again.
    let again = second.ask("PUT", "/kv/short", &[("If-None-Match", "*")], b"z").unwrap();
    assert!(again.status == 201 && version(&again) > version(&made), "{again:?}");
    // One that ends is replaced by one that does not.
    assert_eq!(second.put("/kv/longer", b"w").status, 204);
    assert_eq!(client.get("/kv/longer").header("expires"), None);
}

/// A server whose clock is an hour ahead has written a key and removed it: the next version is still greater.
#[test]
fn versions_do_not_go_back_after_a_server_whose_clock_is_ahead() {
    let url = keyspace();
    let key = Key::new(b"k").unwrap();
    let ahead = Version((Timestamp::of_this_machine().0 + 3_600_000) << 22);
    let server = Server::start(&url, &[]);
    let mut client = server.client();
    for (index, is_removed) in [false, true].into_iter().enumerate() {
        let ahead = Version(ahead.0 + 1_000_000 * index as u64);
        block_on(async {
            let store = open(&url);
            let lease = store.acquire(Part::WHOLE).await.unwrap();
            let mut session = store.connect(lease.epoch).await.unwrap();
            let row = Row::with(&key, Attributes::default(), b"ahead", ahead);
            session
                .write(&[Write { key: key.clone(), version: ahead, change: Change::Put(row) }])
                .await
                .unwrap();
            if is_removed {
                let version = Version(ahead.0 + 1);
                let gone = Write { key: key.clone(), version, change: Change::Delete };
                assert_eq!(session.write(std::slice::from_ref(&gone)).await.unwrap(), [Found::Present]);
                // The same version does not replace what has it.
                let row = Row::with(&key, Attributes::default(), b"again", version);
                let again = Write { change: Change::Put(row), ..gone };
                assert_eq!(session.write(&[again]).await.unwrap(), [Found::Newer]);
            }
        });
        let next = client.put("/kv/k", b"here");
        assert_eq!(next.status, if is_removed { 201 } else { 204 });
        assert!(version(&next) > ahead.0 + u64::from(is_removed), "{next:?}");
        assert_eq!(client.ask("DELETE", "/kv/k", &[], b"").unwrap().status, 204);
        let created = client.ask("PUT", "/kv/k", &[("If-None-Match", "*")], b"new").unwrap();
        assert!(created.status == 201 && version(&created) > version(&next), "{created:?}");
    }
}

#[test]
fn weak_reads_say_so() {
    let url = keyspace();
    for consistency in ["quorum", "one"] {
        let server = Server::start(&format!("{url}?read_consistency={consistency}"), &[]);
        let mut client = server.client();
        let expected = format!("weir; fwd=miss; detail=read-{consistency}");
        assert_eq!(client.get("/kv/a").header("cache-status"), Some(expected.as_str()), "absent");
        client.put("/kv/a", b"1");
        let read = client.get("/kv/a");
        assert_eq!((read.status, read.header("cache-status")), (200, Some(expected.as_str())));
        let lines = "{\"op\":\"get\",\"key\":\"a\"}\n{\"op\":\"get\",\"key\":\"none\"}\n";
        let batch = client.ask("POST", "/batch", &[], lines.as_bytes()).unwrap().text();
        let said: Vec<serde_json::Value> =
            batch.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!([&said[0]["cache_status"], &said[1]["cache_status"]], [&expected, &expected], "{batch}");
        assert_eq!(client.ask("DELETE", "/kv/a", &[], b"").unwrap().status, 204);
    }
}

/// Passes connections on until it is cut; while it holds, no bytes come back.
struct Forwarder {
    address: SocketAddr,
    holds: Arc<AtomicBool>,
    is_cut: Arc<AtomicBool>,
}

impl Forwarder {
    fn start(place: SocketAddr) -> Forwarder {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (holds, is_cut) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let forwarder = Forwarder {
            address: listener.local_addr().unwrap(),
            holds: Arc::clone(&holds),
            is_cut: Arc::clone(&is_cut),
        };
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if is_cut.load(Relaxed) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(place) else { continue };
                for (from, to, back) in [(&client, &server, false), (&server, &client, true)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (holds, is_cut) = (Arc::clone(&holds), Arc::clone(&is_cut));
                    thread::spawn(move || {
                        pass(from, to, || back && holds.load(Relaxed), || is_cut.load(Relaxed));
                    });
                }
            }
        });
        forwarder
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, holds: impl Fn() -> bool, is_cut: impl Fn() -> bool) {
    use std::io::{ErrorKind, Read, Write};
    from.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut buffer = [0; 16_384];
    while !is_cut() {
        if holds() {
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        match from.read(&mut buffer) {
            Ok(0) => break,
            // What came just before it began to hold is held, too.
            Ok(count) => {
                while holds() && !is_cut() {
                    thread::sleep(Duration::from_millis(1));
                }
                if to.write_all(&buffer[..count]).is_err() {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn place_of(url: &str) -> SocketAddr {
    url.split(['/', '@']).nth(3).unwrap().parse().unwrap()
}

#[test]
fn a_write_that_was_sent_is_unknown_and_one_that_was_not_is_not_applied() {
    let url = keyspace();
    let node = Forwarder::start(place_of(&url));
    let through = url.replace(&place_of(&url).to_string(), &node.address.to_string());
    let server = Server::start(&through, &["--store-timeout", "4s"]);
    let mut client = server.client();
    until("a value is written", || client.put("/kv/k", b"before").status < 300);
    node.holds.store(true, Relaxed);
    let answer = client.put("/kv/k", b"sent");
    assert_eq!((answer.status, answer.header("weir-outcome")), (504, Some("unknown")), "{}", answer.text());
    node.holds.store(false, Relaxed);
    // Nobody has to settle it: the store says what is so, whichever of the two that is.
    let mut read = client.get("/kv/k");
    until("the store answers again", || {
        read = client.get("/kv/k");
        read.status == 200
    });
    assert!(["before", "sent"].contains(&read.text().as_str()), "{read:?}");
    node.is_cut.store(true, Relaxed);
    until("the server knows that there is no store", || client.get("/readyz").status == 503);
    let answer = client.put("/kv/k", b"not sent");
    assert_eq!(
        (answer.status, answer.header("weir-outcome")),
        (503, Some("not-applied")),
        "{}",
        answer.text()
    );
    node.is_cut.store(false, Relaxed);
    until("the server finds the store again", || client.put("/kv/k", b"after").status == 204);
    assert_eq!(client.get("/kv/k").text(), "after");
}

/// Clients of several servers on one keyspace, until `is_enough` operations are over.
pub(crate) fn check_until(
    servers: &[Server],
    mix: &str,
    clients: u32,
    keys: u64,
    is_enough: impl FnMut(u64) -> bool,
) -> LoadReport {
    let addresses: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    let report = check_at(&addresses, mix, clients, keys, is_enough);
    servers.iter().for_each(|server| assert!(writes_of(server) > 0.0, "each server has its share"));
    report
}

/// What a server wrote to its store.
pub(crate) fn writes_of(server: &Server) -> f64 {
    let sum = server.client().stats()["weir_store_batch_size_sum{operation=\"write\"}"].clone();
    sum.as_f64().unwrap_or_default()
}

/// The same of clients of these addresses.
pub(crate) fn check_at(
    addresses: &[SocketAddr],
    mix: &str,
    clients: u32,
    keys: u64,
    mut is_enough: impl FnMut(u64) -> bool,
) -> LoadReport {
    let plan = Plan {
        urls: addresses.iter().map(|address| format!("http://{address}").parse().unwrap()).collect(),
        clients,
        keys: Some(keys),
        mix: Some(mix.parse().unwrap()),
        check_for: Some(Check::Linearizability),
        window: Duration::from_secs(7200),
        bin: Duration::from_millis(100),
        ..plan(addresses[0], "mixed")
    };
    let (early_end, mut over) = (EarlyEnd::default(), 0);
    let report = load::run_until(&plan, &early_end, &mut |event| {
        if let LoadEvent::Bin { bin: 0.., report } = event {
            // Not those that are refused at once, because no node is there.
            over += report.successes;
            if is_enough(over) {
                early_end.request();
            }
        }
    });
    report.unwrap()
}

#[test]
fn two_servers_on_one_keyspace_are_linearizable() {
    let url = keyspace();
    let servers = [Server::start(&url, &[]), Server::start(&url, &[])];
    let enough = if is_long() { 20_000 } else { 1500 };
    let report = check_until(&servers, MIXED, 8, 4, |over| over >= enough);
    assert!(report.errors.is_empty(), "{:?}", report.errors);
    let checked = report.linearizability.unwrap();
    assert!(checked.operations >= enough && checked.precondition_failed > 0, "{checked:?}");
    assert_eq!((checked.violations, checked.not_decided), (0, 0), "{:#?}", checked.history);
}

/// Two servers add to one number: none of the additions is lost.
#[test]
fn no_update_is_lost_between_two_servers() {
    const EACH: usize = 40;
    let url = keyspace();
    let servers = [Server::start(&url, &[]), Server::start(&url, &[])];
    servers[0].client().put("/kv/n", b"0");
    let add = |client: &mut Client| loop {
        let now = client.get("/kv/n");
        let next: usize = now.text().parse::<usize>().unwrap() + 1;
        let answer = client.ask("PUT", "/kv/n", &[("If-Match", &etag(&now))], next.to_string().as_bytes());
        match answer.unwrap().status {
            204 => return,
            status => assert_eq!(status, 412),
        }
    };
    thread::scope(|scope| {
        for server in servers.iter().chain(&servers) {
            scope.spawn(move || {
                let mut client = server.client();
                (0..EACH).for_each(|_| add(&mut client));
            });
        }
    });
    assert_eq!(servers[1].client().get("/kv/n").text(), (4 * EACH).to_string());
}

/// A touch keeps the version. So a write that was decided by an end that had passed replaced a value whose end another server had
/// changed meanwhile, and had acknowledged.
#[test]
fn a_write_that_an_expired_row_decided_replaced_one_that_was_touched() {
    let key = Key::new(b"a").unwrap();
    let keys = std::slice::from_ref(&key);
    let write = |change, version| [Write { key: key.clone(), version: Version(version), change }];
    let put = |expires: Option<u64>, version| {
        let of = Attributes { expires: expires.map(Timestamp), ..Attributes::default() };
        write(Change::Put(Row::with(&key, of, b"value", Version(version))), version)
    };
    block_on(async {
        let store = open(&keyspace());
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let mut here = store.connect(lease.epoch).await.unwrap();
        let mut there = store.connect(lease.epoch).await.unwrap();
        let (version, mut end) = (lease.now.0 << 20, lease.now.0 + 3_600_000);
        // What is there has expired, ends later, or never.
        for (first, version) in [Some(1), Some(end), None].into_iter().zip(1 + version..) {
            there.begin_decision(false, keys);
            there.read(keys).await.unwrap();
            there.write(&put(first, version)).await.unwrap();
            let decided =
                [put(None, version + 9), put(Some(end), version + 9), write(Change::Delete, version + 9)];
            for decided in decided {
                here.begin_decision(false, keys);
                assert_eq!(here.read(keys).await.unwrap()[0].as_ref().unwrap().version(), Version(version));
                end += 1;
                there.begin_decision(false, keys);
                there.read(keys).await.unwrap();
                assert_eq!(there.write(&put(Some(end), version)).await.unwrap(), [Found::Present]);
                let overtaken = here.write(&decided).await.unwrap_err();
                assert_eq!(overtaken.kind(), Kind::Retry, "{overtaken}");
            }
        }
    });
}
