//! `weir load --check linearizability`: servers that are killed in the middle of a run, and servers that lie.

use super::load::{Reply, Server as TestServer, plan, run_until, weir_load};
use crate::support::{Server, postgres, weir};
use kv::proto::{LinearizabilityReport, LoadReport};
use load::{Check, Plan};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

const REQUESTS: u64 = 600;
/// What each server answers before it is killed, and the last one before the run ends.
const PUTS: f64 = 200.0;
const KILLS: u64 = 2;
const MIXED: &str = "get=30,put=20,delete=10,put_if_absent=10,compare_and_put=20,compare_and_delete=10";

/// Passes connections on to where the server is now, so that clients find one that was started anew.
pub(super) struct Forwarder {
    pub(super) address: SocketAddr,
    pub(super) server: Arc<Mutex<SocketAddr>>,
}

impl Forwarder {
    pub(super) fn start(server: SocketAddr) -> Forwarder {
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

fn puts_answered(server: &Server) -> f64 {
    let stats = server.client().stats();
    let puts = stats.as_object().unwrap().iter();
    let puts = puts.filter(|(name, _)| name.starts_with("weir_http_requests_total{method=\"PUT\""));
    puts.filter_map(|(_, count)| count.as_f64()).sum()
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
    let mut kills = 0;
    let report = run_until(&plan, |_| {
        // What the load generator tells of may be of the time before a kill; this server tells of itself.
        let is_due = puts_answered(server.as_ref().unwrap()) >= PUTS;
        if is_due && kills < KILLS {
            server.take().unwrap().kill();
            let again = server.insert(start());
            *forwarder.server.lock().unwrap() = again.address;
            kills += 1;
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
    // It weighs more than a condition that holds.
    let directory = tempfile::tempdir().unwrap();
    let junit = directory.path().join("load.xml");
    let gates = ["--fail-if", "rate<500k/s", "--junit", junit.to_str().unwrap()];
    let (output, stdout, stderr) = weir_load(&[&arguments[..], &gates].concat());
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    assert!(stderr.contains("--fail-if: rate is "), "{stderr}");
    assert!(stderr.lines().last().unwrap().starts_with("error: linearizability is violated"), "{stderr}");
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(xml.contains("tests=\"3\" failures=\"2\""), "{xml}");
    assert!(
        xml.contains("name=\"linearizability\">\n      <failure message=\"linearizability is violated"),
        "{xml}"
    );
}

/// What the check prints of a load with these flags to a server of these answers; whether it succeeded.
fn check_writes(flags: &str, reply: impl Fn(usize) -> Reply + Clone + Send + 'static) -> (bool, String) {
    let server = TestServer::start(reply);
    let url = format!("http://{}", server.address);
    let flags = format!("--warmup 0s --check linearizability {flags}");
    let (output, stdout, _) =
        weir_load(&[url.as_str()].into_iter().chain(flags.split(' ')).collect::<Vec<_>>());
    (output.status.success(), stdout)
}

#[test]
fn a_lost_write_is_found_though_no_client_reads() {
    // Also by one client that wrote more keys than a thousand in each second that it may take.
    for flags in ["--workload put_all --window 1s", "--workload put_only --clients 1 --window 3s"] {
        let (is_good, said) = check_writes(flags, |_| Reply::Store);
        assert!(is_good && said.contains(": no violation\n"), "{said}");
    }
    let lost = |request| if request < 20 { Reply::Status(201) } else { Reply::Store };
    let (is_good, said) = check_writes("--workload put_all --window 1s", lost);
    assert!(!is_good && said.contains(": violated on ") && said.contains(" get: absent"), "{said}");
    // Without an answer nothing is known, and that is said, whichever threads wrote the key.
    let gone = |request| if request < 20 { Reply::Store } else { Reply::Close };
    let (is_good, said) = check_writes("--workload put_key_1 --threads 4 --window 1s", gone);
    assert!(!is_good && said.contains(": no violation; 1 key not read at the end\n"), "{said}");
}

#[test]
fn a_server_that_does_as_it_should_passes() {
    let server = Server::start("memory:", &[]);
    let url = format!("http://{}", server.address);
    let flags = "--workload mixed --keys 4 --warmup 0s --window 1s --check linearizability";
    let arguments: Vec<&str> = [url.as_str()].into_iter().chain(flags.split(' ')).collect();
    let directory = tempfile::tempdir().unwrap();
    let junit = directory.path().join("load.xml");
    let (output, stdout, stderr) =
        weir_load(&[&arguments[..], &["--junit", junit.to_str().unwrap()]].concat());
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains(": no violation\n"), "{stdout}");
    assert!(std::fs::read_to_string(junit).unwrap().contains("name=\"linearizability\"/>"));
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
    assert_eq!(report.verify, "all");
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
        dialect: Some(dialect.to_str().unwrap().parse().unwrap()),
        check_for: Some(Check::Linearizability),
        ..plan(server.address, "mixed")
    };
    let checked = run_until(&plan, |over| over >= REQUESTS).linearizability.unwrap();
    assert!(
        checked.violations > 0 && checked.history.iter().any(|line| line.contains(" if value ")),
        "{checked:?}"
    );
}

/// Runs a lab with faults over `store`: its process, what it said, and its report.
fn lab_with_faults(store: &str, faults: &str) -> (std::process::Output, String, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("faults.toml");
    let text = format!(
        "name = \"faults\"\ntitle = \"f\"\nlevels = [8]\nrepetitions = 1\nwarmup = \"100ms\"\nwindow = \"4s\"\n\
         selftest = false\nheadroom = false\n[target]\nkind = \"weir\"\nstore = \"{store}\"\n[[workload]]\nname = \"mixed\"\n\
         args = [\"--keys\", \"8\", \"--mix\", \"get=1,put=1\"]\n{faults}"
    );
    std::fs::write(&file, text).unwrap();
    let out = dir.path().join("out");
    let output = weir().arg("lab").arg(&file).arg("--out").arg(&out).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said, std::fs::read_to_string(out.join("faults.md")).unwrap_or_default())
}

fn fault(kind: &str, at: &str, length: &str) -> String {
    format!("[[fault]]\nkind = \"{kind}\"\nat = \"{at}\"\nfor = \"{length}\"\n")
}

#[test]
fn a_lab_breaks_a_server_and_judges_what_it_answered() {
    let faults = [
        fault("kill", "100ms", "100ms"),
        fault("restart", "800ms", "0s"),
        fault("pause", "1400ms", "200ms"),
        fault("slow", "1800ms", "200ms"),
        fault("partition", "2200ms", "200ms"),
        fault("disk_full", "2600ms", "200ms"),
        fault("flush_fails", "3200ms", "200ms"),
    ];
    let (output, said, report) = lab_with_faults("file", &faults.concat());
    assert!(output.status.success(), "{said}\n{report}");
    for kind in lab_data::experiment::FaultKind::ALL {
        assert!(report.contains(&format!("| {} | server | 1 | ", kind.name())), "{report}");
    }
    assert!(report.contains(": no violation of linearizability. "), "{report}");
}

#[test]
fn a_lab_fails_where_an_acknowledged_write_is_lost() {
    let (output, said, report) = lab_with_faults("memory:", &fault("kill", "1s", "0s"));
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("error: linearizability is violated on "), "{said}");
    assert!(report.contains("\n        ") || report.contains(" get: absent"), "{report}");
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
