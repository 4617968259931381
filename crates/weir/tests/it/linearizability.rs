//! `weir load --check linearizability`: servers that are killed in the middle of a run, and servers that lie.

use super::load::{Reply, Server as TestServer, plan, run_until, weir_load};
use crate::support::{Server, postgres, tried};
use kv::proto::{LinearizabilityReport, LoadReport};
use load::{Check, Plan};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Requests before each kill and after the last.
const REQUESTS: u64 = 600;
const KILLS: u64 = 2;
const MIXED: &str = "get=30,put=20,delete=10,put_if_absent=10,compare_and_put=20,compare_and_delete=10";

/// Passes connections on to where the server is now, so that clients find one that was started anew.
struct Forwarder {
    address: SocketAddr,
    server: Arc<Mutex<SocketAddr>>,
}

impl Forwarder {
    fn start(server: SocketAddr) -> Forwarder {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let forwarder =
            Forwarder { address: listener.local_addr().unwrap(), server: Arc::new(Mutex::new(server)) };
        let server = Arc::clone(&forwarder.server);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let address = *server.lock().unwrap();
                // Without a server the connection just ends.
                let Ok(server) = TcpStream::connect(address) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        // Which end broke is the same to the other.
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                    });
                }
            }
        });
        forwarder
    }
}

/// What the check says of a server over `store` that is killed and started again in the middle.
fn check_killed(store: &str, mix: &str) -> LinearizabilityReport {
    let start = || Server::start(store, &[]);
    let mut server = Some(start());
    let forwarder = Forwarder::start(server.as_ref().unwrap().address);
    let plan = Plan {
        clients: 16,
        keys: Some(8),
        mix: Some(mix.parse().unwrap()),
        check_for: Some(Check::Linearizability),
        ..plan(forwarder.address, "mixed")
    };
    let (mut kills, mut enough) = (0, REQUESTS);
    let report = run_until(&plan, |over| {
        let is_due = over >= enough;
        if is_due && kills < KILLS {
            server.take().unwrap().kill();
            let again = server.insert(start());
            *forwarder.server.lock().unwrap() = again.address;
            (kills, enough) = (kills + 1, over + REQUESTS);
            return false;
        }
        is_due
    });
    assert_eq!(kills, KILLS, "{report:?}");
    let checked = report.linearizability.unwrap();
    assert!(checked.operations >= report.attempts && checked.keys == 8, "{checked:?}");
    assert_eq!(mix == MIXED, checked.precondition_failed > 0, "{checked:?}");
    checked
}

#[test]
fn an_embedded_server_that_is_killed_is_linearizable() {
    let directory = tempfile::tempdir().unwrap();
    let checked = check_killed(&format!("file:{}", directory.path().join("store").display()), MIXED);
    assert_eq!((checked.violations, checked.not_decided), (0, 0), "{:#?}", checked.history);
}

#[test]
fn a_server_over_postgres_that_is_killed_is_linearizable() {
    let postgres = postgres();
    let checked = check_killed(&postgres.url(), MIXED);
    assert_eq!((checked.violations, checked.not_decided), (0, 0), "{:#?}", checked.history);
}

#[test]
fn a_server_that_loses_what_it_had_is_found() {
    // Without deletes of unknown outcome, which explain that a key is absent.
    let checked = check_killed("memory:", "get=1,put=1");
    assert!(checked.violations > 0 && !checked.history.is_empty(), "{checked:?}");
}

#[test]
fn a_server_that_answers_old_values_is_found_and_the_command_fails() {
    tried(check_old_values);
}

fn check_old_values() {
    let server = TestServer::start(|_| Reply::Older);
    let url = format!("http://{}", server.address);
    let flags =
        "--workload mixed --keys 4 --clients 4 --warmup 0s --window 1s --no-preload --check linearizability";
    let arguments: Vec<&str> = [url.as_str()].into_iter().chain(flags.split(' ')).collect();
    let (output, stdout, stderr) = weir_load(&arguments);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    assert!(stderr.contains("error: linearizability is violated on "), "{stderr}");
    for part in [
        "linearizability: ",
        " operations on ",
        ": violated on ",
        "No order of these",
        " get: ",
        " put value ",
    ] {
        assert!(stdout.contains(part), "{part} is missing in\n{stdout}");
    }
    let (output, stdout, _) = weir_load(&[&arguments[..], &["--json"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let report: LoadReport = serde_json::from_str(&stdout).unwrap();
    let checked = report.linearizability.unwrap();
    assert!(
        checked.violations > 0 && checked.key.unwrap().starts_with("mixed_") && checked.history.len() > 1
    );
}

#[test]
fn a_server_that_does_as_it_should_passes() {
    let server = Server::start("memory:", &[]);
    let url = format!("http://{}", server.address);
    let flags = "--workload mixed --keys 4 --warmup 0s --window 1s --check linearizability";
    let arguments: Vec<&str> = [url.as_str()].into_iter().chain(flags.split(' ')).collect();
    let (output, stdout, stderr) = weir_load(&arguments);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains(": no violation\n"), "{stdout}");
}

#[test]
fn several_processes_are_judged_together() {
    let server = Server::start("memory:", &[]);
    let url = format!("http://{}", server.address);
    let worker = format!("{} load-worker", env!("CARGO_BIN_EXE_weir"));
    let flags =
        format!("--workload mixed --keys 4 --warmup 0s --window 1s --check linearizability --mix {MIXED}");
    let arguments: Vec<&str> = [url.as_str(), "--worker", &worker, "--worker", &worker, "--json"]
        .into_iter()
        .chain(flags.split(' '))
        .collect();
    let (output, stdout, stderr) = weir_load(&arguments);
    assert!(output.status.success(), "{stdout}{stderr}");
    let report: LoadReport = serde_json::from_str(&stdout).unwrap();
    let checked = report.linearizability.unwrap();
    assert_eq!((checked.violations, checked.not_decided, report.workers.len()), (0, 0, 2), "{checked:?}");
    assert!(checked.operations >= report.attempts && checked.precondition_failed > 0, "{checked:?}");
    assert!(!report.errors.contains_key("stale_value"), "{:?}", report.errors);
}

#[test]
fn a_server_that_forgets_conditions_is_found() {
    let server = Server::start("memory:", &[]);
    let directory = tempfile::tempdir().unwrap();
    let dialect = directory.path().join("forgetful.toml");
    // As if the server did not look at If-Match.
    let section = "path = \"/kv/{key}\"\nbody = \"{value}\"\n";
    let text = format!(
        "[get]\npath = \"/kv/{{key}}\"\nversion_header = \"ETag\"\n[put]\n{section}[put_if_match]\n{section}"
    );
    std::fs::write(&dialect, text).unwrap();
    let plan = Plan {
        clients: 16,
        keys: Some(4),
        mix: Some("put=1,compare_and_put=9".parse().unwrap()),
        dialect: dialect.to_str().unwrap().parse().unwrap(),
        check_for: Some(Check::Linearizability),
        ..plan(server.address, "mixed")
    };
    let checked = run_until(&plan, |over| over >= REQUESTS).linearizability.unwrap();
    assert!(
        checked.violations > 0 && checked.history.iter().any(|line| line.contains(" if value ")),
        "{checked:?}"
    );
}

#[test]
fn what_cannot_be_checked_is_wrong_input() {
    let server = TestServer::start(|_| Reply::Store);
    let url = format!("http://{}", server.address);
    for (flags, why) in [
        ("--value-size 20", "values of less than "),
        ("--dialect fixed", "dialect fixed reads no values of keys"),
    ] {
        let arguments: Vec<&str> =
            [url.as_str(), "--check", "linearizability"].into_iter().chain(flags.split(' ')).collect();
        let (output, _, stderr) = weir_load(&arguments);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(why), "{stderr}");
    }
}
