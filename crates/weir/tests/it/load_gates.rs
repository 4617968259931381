//! What `weir load` ends with: conditions, runs without success, servers that go away, Ctrl-C, and an example of what failed.

use super::any_url::Service;
use super::load::{Reply, Server, status, weir_load};
use super::support::{free_address, until, weir};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const SHORT: [&str; 3] = ["--clients=2", "--warmup=0s", "--window=1s"];

#[test]
fn a_condition_that_holds_ends_with_three_and_one_line() {
    let service = Service::start();
    let url = service.url("/slow/30");
    for (fail_if, code, told) in [
        ("p99>10s,errors>0.1%,rate<0.1/s", 0, ""),
        ("p50>10ms", 3, "error: --fail-if: p50 is "),
        ("errors>50%, rate<100k/s", 3, "error: --fail-if: rate is "),
        ("p50>10ms,max>20ms", 3, "; max is "),
        ("p97>1s", 2, "unknown figure `p97`; hint: expected one of: p50, p90, p95, p99"),
        ("errors>5", 2, "`5` would be 500 %; hint: write 5%"),
    ] {
        let (output, stdout, stderr) = weir_load(&[&SHORT[..], &[&url, "--fail-if", fail_if]].concat());
        assert_eq!(output.status.code(), Some(code), "{fail_if}: {stderr}");
        assert!(stderr.contains(told) && stderr.lines().count() <= 1, "{fail_if}: {stderr}");
        // The figures are there also when they are bad.
        assert_eq!(stdout.contains("goodput"), code != 2, "{fail_if}: {stdout}");
    }
}

#[test]
fn nothing_succeeded_is_a_failure_that_shows_an_example() {
    let service = Service::start();
    let flags = ["-d", "{\"a\":1}", "--bearer", "s3cret-token"];
    let url = service.url("/status/404");
    let (output, stdout, stderr) = weir_load(&[&SHORT[..], &[&url], &flags[..]].concat());
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(
        stderr.starts_with("error: none of ")
            && stderr.contains("(http_4xx, status 404); hint: correct the path"),
        "{stderr}"
    );
    let (_, example) = stdout.split_once("\nexample of http_4xx: ").unwrap_or_else(|| panic!("{stdout}"));
    for part in [
        "expected status 200-399, received status 404\n",
        "  > POST /status/404 HTTP/1.1\n",
        "  > Authorization: …\n",
        "  > {\"a\":1}\n",
        "  < HTTP/1.1 404 Not Found\n",
        "  < {\"method\": \"POST\"",
    ] {
        assert!(example.contains(part), "{part} is not in\n{stdout}");
    }
    // The service repeats what it was sent.
    assert!(!stdout.split("  < ").next().unwrap().contains("s3cret"), "{stdout}");
    let pattern = ["--expect-body", "no such thing", &service.url("/x")];
    let (output, stdout, _) = weir_load(&[&SHORT[..], &pattern].concat());
    assert_eq!(output.status.code(), Some(3));
    let told =
        "example of unexpected_body: expected a body that matches no such thing, received status 200\n";
    assert!(stdout.contains(told), "{stdout}");
}

/// A load that runs, with its standard error.
fn start(flags: &[&str]) -> Child {
    let mut command = weir();
    command.arg("load").args(flags).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Its exit code and all that it still prints.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    (status.code(), text)
}

/// Reads lines of its standard error until one begins so.
fn wait_for(child: &mut Child, begin: &str) {
    let mut lines = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    until(begin, || lines.next().unwrap().unwrap().starts_with(begin));
}

#[test]
fn an_interrupt_ends_the_window_and_prints_the_report_so_far() {
    let service = Service::start();
    let url = service.url("/x");
    let mut load = start(&[&url, "--clients=2", "--warmup=0s", "--window=1h", "--interval=1s"]);
    wait_for(&mut load, "window ");
    kill_process(Pid::from_child(&load), Signal::INT).unwrap();
    // As `timeout` sends it, to the process and to its group: still the first one, if it has not ended.
    thread::sleep(Duration::from_millis(20));
    let _ = kill_process(Pid::from_child(&load), Signal::INT);
    let (code, text) = ended(load);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains(" s of 3600s after 0s of warm-up") && text.contains("statuses    200 × "),
        "{text}"
    );
}

#[test]
fn a_machine_that_can_send_no_more_ends_the_window_and_the_report_is_printed() {
    let service = Service::start();
    // The first clients start at once, and for those behind them there are no files.
    let script = "ulimit -n 150; exec \"$0\" load \"$@\"";
    let flags = ["--clients=300", "--warmup=0s", "--window=1h", &service.url("/x")];
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_weir")]).args(flags);
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stdout}{stderr}");
    assert!(stdout.contains(" s of 3600s after 0s of warm-up"), "{stdout}{stderr}");
    let last = stderr.lines().last().unwrap();
    assert!(last.starts_with("error: cannot run the clients: too many open files; hint: "), "{stderr}");
}

#[test]
fn a_second_interrupt_ends_the_process_also_after_the_window() {
    let service = Service::start();
    // The report finds its pipe full, and nobody reads it.
    let (_unread, mut pipe) = std::io::pipe().unwrap();
    let flags = fcntl_getfl(&pipe).unwrap();
    fcntl_setfl(&pipe, flags | OFlags::NONBLOCK).unwrap();
    while pipe.write(&[0; 4096]).is_ok() {}
    fcntl_setfl(&pipe, flags).unwrap();
    let mut command = weir();
    command.args(["load", &service.url("/x"), "--clients=2", "--warmup=0s", "--window=1h", "--interval=1s"]);
    let mut load = command.stdout(pipe).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&mut load, "window ");
    kill_process(Pid::from_child(&load), Signal::INT).unwrap();
    // Those that come at once are the first one; a moment later the window is over.
    until("the end", || {
        let _ = kill_process(Pid::from_child(&load), Signal::INT);
        load.try_wait().unwrap().is_some()
    });
    assert_eq!(load.wait().unwrap().code(), Some(130));
}

#[test]
fn a_server_that_goes_away_is_a_failure() {
    let stays = Service::start();
    let other = stays.url("/x");
    for others in [&[][..], &[other.as_str()]] {
        let service = Service::start();
        let url = service.url("/x");
        let flags = [&url, "--clients=2", "--warmup=0s", "--window=5s", "--interval=1s"];
        let mut load = start(&[others, &flags].concat());
        wait_for(&mut load, "window ");
        drop(service);
        let (code, text) = ended(load);
        assert_eq!(code, Some(3), "{text}");
        let told = format!("error: {url} went away: nothing succeeded in the last ");
        assert!(text.contains(&told), "{text}");
    }
}

/// Reads of keys that were never there made four failures of one.
#[test]
fn a_refused_insert_is_the_only_failure_of_it() {
    const PRELOAD: usize = 2 * 50;
    let server = Server::start(|number| match number >= PRELOAD && number % 10 == 0 {
        true => Reply::Status(503),
        false => Reply::Store,
    });
    let url = format!("http://{}", server.address);
    let flags = ["--mix=get=1,put=1", "--distribution=latest", "--keys=50", "--json", &url];
    let (output, stdout, stderr) = weir_load(&[&SHORT[..], &flags].concat());
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let report: kv::proto::LoadReport = serde_json::from_str(&stdout).unwrap();
    assert_eq!(report.errors.keys().collect::<Vec<_>>(), ["http_5xx"], "{stderr}");
}

/// Answers that many requests at once and the others never. Connections stay open.
fn stops_after(requests: usize) -> String {
    let answer = move |number| if number < requests { Reply::Status(200) } else { Reply::Silence };
    format!("http://{}/kv/x", Server::start(answer).address)
}

#[test]
fn a_server_that_stops_answering_before_the_end_is_a_failure() {
    let window = |window: &'static str| ["--clients=2", "--warmup=0s", "--timeout=20s", "--window", window];
    // In a closed loop two requests never end: none of the percentiles could say so.
    let url = stops_after(200);
    let (output, stdout, stderr) = weir_load(&[&window("3s")[..], &[&url]].concat());
    assert_eq!(output.status.code(), Some(3), "{stdout}{stderr}");
    let told = format!("error: {url} stopped answering: 2 requests in flight had no answer in the last ");
    assert!(stderr.contains(&told), "{stderr}");
    // Of two servers the one that stops is named.
    let (service, url) = (Service::start(), stops_after(200));
    let (output, stdout, stderr) = weir_load(&[&window("3s")[..], &[&service.url("/x"), &url]].concat());
    assert_eq!(output.status.code(), Some(3), "{stdout}{stderr}");
    let told = format!("error: {url} stopped answering: 1 requests in flight had no answer in the last ");
    assert!(stderr.contains(&told), "{stderr}");
    // An open loop knows of all that was due: half a second is enough for the percentiles.
    let url = stops_after(1000);
    let open = [&url, "--rate=1000", "--fail-if", "p99>300ms,errors>0.1%"];
    let (output, stdout, stderr) = weir_load(&[&window("1500ms")[..], &open].concat());
    assert_eq!(output.status.code(), Some(3), "{stdout}{stderr}");
    assert!(stderr.contains("error: --fail-if: p99 is "), "{stderr}");
    assert!(stdout.contains(" requests were due and had not ended when the window did"), "{stdout}");
    // A long request is no silence: at any time one is in flight, and each is answered after a while.
    let slow = [&service.url("/slow/1200"), "--clients=1", "--warmup=0s", "--window=3500ms"];
    let (output, stdout, stderr) = weir_load(&slow);
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
}

/// Answers `most` requests of a connection at once, and no other.
fn answers(stream: &TcpStream, most: usize) {
    let lines = BufReader::new(stream).lines().map_while(Result::ok);
    for (count, _) in lines.filter(String::is_empty).enumerate() {
        // The client may have gone.
        if count < most && (&*stream).write_all(&status(200)).is_err() {
            return;
        }
    }
}

/// Serves the next connection when the last one has ended.
fn serves_one_connection() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(|stream| answers(&stream.unwrap(), usize::MAX)));
    format!("http://{address}/")
}

/// Stops to answer on three of four connections.
fn stops_in_part() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (place, stream) in listener.incoming().enumerate() {
            thread::spawn(move || answers(&stream.unwrap(), if place % 4 == 0 { usize::MAX } else { 20 }));
        }
    });
    format!("http://{address}/")
}

#[test]
fn no_condition_is_judged_by_figures_that_leave_something_out() {
    let folder = tempfile::tempdir().unwrap();
    let junit = folder.path().join("load.xml").to_str().unwrap().to_owned();
    let fail_if = ["--timeout=20s", "--fail-if=errors>1%", "--junit", &junit];
    let service = Service::start();
    let (of_four, of_eight) =
        ("3 of 4 clients were left without an answer", "6 of 8 clients were left without an answer");
    let short = ["--warmup=200ms", "--window=1s"];
    for (url, flags, left_out) in [
        (serves_one_connection(), &["--clients=4", short[0], short[1]][..], of_four),
        // After answers in the window.
        (stops_in_part(), &["--clients=8", "--warmup=0s", "--window=4s"], of_eight),
        (
            service.url("/slow/30"),
            &["--clients=1", "--rate=1000", short[0], short[1]],
            " requests due in the window were sent",
        ),
    ] {
        let (output, stdout, stderr) = weir_load(&[&[url.as_str()], &fail_if[..], flags].concat());
        assert_eq!(output.status.code(), Some(3), "{stdout}{stderr}");
        let (told, hint) = stderr.split_once("; hint: ").unwrap();
        assert!(told.starts_with("error: --fail-if cannot be judged: "), "{stderr}");
        assert!(told.contains(left_out) && hint.contains("--clients"), "{stderr}");
        let xml = std::fs::read_to_string(&junit).unwrap();
        assert!(xml.contains("tests=\"2\" failures=\"1\"") && xml.contains(left_out), "{xml}");
        // Without a condition nothing is to be judged.
        let (output, stdout, stderr) = weir_load(&[&[url.as_str()], &fail_if[..1], flags].concat());
        assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    }
}

/// What `--find-rate` says of a server that answers so as soon as more than a hundred have asked in the last quarter of a second.
fn rates_of_a_server_that_then(reply: Reply, wanted: &str) -> (serde_json::Value, String) {
    let recent: Arc<Mutex<VecDeque<Instant>>> = Arc::default();
    let server = Server::start(move |_| {
        let mut recent = recent.lock().unwrap();
        let now = Instant::now();
        recent.push_back(now);
        while recent.front().is_some_and(|at| now - *at > Duration::from_millis(250)) {
            recent.pop_front();
        }
        if recent.len() > 100 { reply } else { Reply::Status(200) }
    });
    let url = format!("http://{}/kv/x", server.address);
    let flags = [&url, "--clients=8", "--warmup=0s", "--find-rate", wanted, "--within=30s", "--json"];
    let (_, stdout, stderr) = weir_load(&flags);
    (serde_json::from_str(&stdout).unwrap(), stdout + &stderr)
}

#[test]
fn a_rate_at_which_the_server_deadlocks_does_not_hold() {
    let (found, text) = rates_of_a_server_that_then(Reply::Silence, "p99<1s,errors<1%");
    let rates = found["rates"].as_array().unwrap();
    let held = rates.iter().filter(|rate| rate["passed"].as_u64() > rate["failed"].as_u64());
    let most = held.map(|rate| rate["rate_rps"].as_f64().unwrap()).fold(0.0, f64::max);
    assert!(most <= 450.0 && found["holds_rps"].as_f64().is_none_or(|rps| rps <= 450.0), "{text}");
    assert!(text.contains("  breaks\n"), "{text}");
}

#[test]
fn a_server_that_refuses_what_is_too_much_is_the_limit_and_not_the_generator() {
    // Refusals are so quick that the generator's lateness is most of their latency, and that the 99th percentile allows any rate.
    let (found, text) = rates_of_a_server_that_then(Reply::Status(503), "p99<1s");
    assert!(found["holds_rps"].as_f64().is_none_or(|rps| rps <= 450.0), "{text}");
    assert_eq!(found["conditions"], "p99 < 1.00 s, errors < 1.00 %");
    let rates = found["rates"].as_array().unwrap();
    // The limit is near 400. A stall of this machine may make the generator late in one try.
    let mut high = rates.iter().filter(|rate| rate["rate_rps"].as_f64() >= Some(400.0)).peekable();
    let is_limit =
        |rate: &serde_json::Value| rate["failed"].as_u64().unwrap() > rate["spoiled"].as_u64().unwrap();
    assert!(high.peek().is_some() && high.all(is_limit), "{text}");
    assert!(text.contains("  breaks\n"), "{text}");
}

#[test]
fn the_highest_rate_under_conditions_is_found_between_two_bounds() {
    let service = Service::start();
    // Four connections, each for 5 ms and more: no more than 800 requests in a second.
    let (url, wanted) = (service.url("/slow/5"), "--find-rate=p50<60ms,errors<1%");
    let flags = [&url, "--clients=4", wanted, "--within=30s", "--json"];
    let (output, stdout, stderr) = weir_load(&flags);
    let found: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let (holds, breaks) = (found["holds_rps"].as_f64(), found["breaks_rps"].as_f64());
    // On a busy machine the time may be over before enough tries agree.
    assert_eq!(output.status.code(), Some(if holds.is_some() { 0 } else { 3 }), "{stdout}{stderr}");
    assert!(
        holds.is_none_or(|holds| holds <= 815.0 && breaks.is_none_or(|breaks| breaks > holds)),
        "{stdout}"
    );
    let rates = found["rates"].as_array().unwrap().iter();
    let held: Vec<f64> = rates
        .filter(|rate| rate["passed"].as_u64() > rate["failed"].as_u64())
        .map(|rate| rate["rate_rps"].as_f64().unwrap())
        .collect();
    assert!(!held.is_empty() && held.iter().all(|rate| *rate <= 830.0), "{stdout}{stderr}");
    assert!(stderr.starts_with("unlimited ") && stderr.contains("  holds\n"), "{stderr}");

    let (output, _, stderr) = weir_load(&[&url, "--find-rate=p99>20ms"]);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.ends_with("hint: write what has to hold: p99<20ms\n"), "{stderr}");

    // A stall of the machine delays requests by less.
    let url = service.url("/slow/50");
    let (output, stdout, stderr) = weir_load(&[&url, "--find-rate=p50<40ms", "--within=8s", "-q"]);
    assert_eq!(output.status.code(), Some(3), "{stdout}{stderr}");
    assert!(
        stderr.starts_with("error: at no rate did enough tries show that the conditions hold: at ")
            && stderr.contains(" req/s p50 is "),
        "{stderr}"
    );
}

/// The lines of all requests, over all connections.
fn lines_of(server: &Server) -> Vec<String> {
    server.state.lock().unwrap().lines.concat()
}

#[test]
fn the_tries_of_a_search_do_not_repeat_each_others_requests() {
    for search in [&["--find-rate=p50<10s", "--within=4s"][..], &["--find-capacity", "--within=9s"]] {
        let server = Server::start(|_| Reply::Status(200));
        let url = format!("http://{}/kv/{{{{uuid}}}}", server.address);
        // How the search ends depends on the machine.
        let (.., stderr) = weir_load(&[&[&url, "--clients=2"], search].concat());
        let mut lines = lines_of(&server);
        let count = lines.len();
        assert!(count > 100, "{stderr}");
        lines.sort();
        lines.dedup();
        assert_eq!(lines.len(), count, "{search:?}: {stderr}");
    }
}

#[test]
fn the_highest_throughput_is_found_over_numbers_of_clients() {
    let service = Service::start();
    let (output, stdout, stderr) =
        weir_load(&[&service.url("/slow/20"), "--find-capacity", "--within=18s", "--clients=4", "--json"]);
    assert!(output.status.success(), "{stdout}{stderr}");
    let found: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let levels = found["levels"].as_array().unwrap();
    assert!(levels.len() > 2 && levels[0]["clients"] == 1 && levels[1]["clients"] == 2, "{stdout}");
    // --clients is the most, also below the usual 256: once it was not.
    assert!(levels.iter().all(|level| level["clients"].as_u64().unwrap() <= 4), "{stdout}");
    // One client sends no more than 50 requests of 20 ms in a second.
    assert!(
        levels[0]["goodput_rps"].as_array().unwrap().iter().all(|rate| rate.as_f64().unwrap() <= 55.0),
        "{stdout}"
    );
    // Four clients do not wait for each other: more would get more.
    assert!(found["capacity_rps"].as_f64().unwrap() > 60.0 && found["knee_clients"].is_null(), "{stdout}");
    // One request is served at a time: a second client only waits.
    let one_at_a_time = Server::start(|_| {
        thread::sleep(Duration::from_millis(2));
        Reply::Status(200)
    });
    let url = format!("http://{}/kv/x", one_at_a_time.address);
    let flags = [&url, "--find-capacity", "--within=9s", "--clients=4", "--json"];
    let (output, stdout, stderr) = weir_load(&flags);
    assert!(output.status.success(), "{stdout}{stderr}");
    let found: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    // Where something disturbs the first levels, the last one may seem to rise: then there is no knee.
    assert!(found["knee_clients"].as_f64().is_none_or(|knee| knee < 2.0), "{stdout}");
}

#[test]
fn connections_that_end_after_an_answer_are_a_reason_for_one_each() {
    // The end comes when the next request is on its way.
    let server = Server::start(|number| if number % 2 == 0 { Reply::Value } else { Reply::Close });
    let url = format!("http://{}/kv/x", server.address);
    let hint = "failed; if the server ends connections after an answer, use --connect each\n";
    let (.., stdout, stderr) = weir_load(&[&SHORT[..], &[&url]].concat());
    assert!(stdout.contains("\nreset ") && stdout.contains(hint), "{stdout}{stderr}");
    let server = Server::start(|_| Reply::ValueThenVanish);
    let url = format!("http://{}/kv/x", server.address);
    let (output, stdout, stderr) = weir_load(&[&SHORT[..], &[&url, "--connect=each"]].concat());
    assert!(output.status.success() && !stdout.contains("\nreset "), "{stdout}{stderr}");
}

#[test]
fn https_where_http_is_spoken_and_the_other_way_round_is_said() {
    // The kernel takes the connection, and nobody reads.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/", silent.local_addr().unwrap());
    let (output, _, stderr) = weir_load(&[&url, "--timeout=300ms", "--insecure"]);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let told = "no answer in 300ms; hint: is this the port for https? Try http://";
    assert!(stderr.contains(told), "{stderr}");
    let resets = Server::start(|_| Reply::Reset);
    let url = format!("http://{}/kv/x", resets.address);
    let (output, _, stderr) = weir_load(&[&SHORT[..], &[&url]].concat());
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("(reset); hint: ") && stderr.contains(" Try https://"), "{stderr}");
}

#[test]
fn a_run_without_a_report_is_an_error_in_the_file_for_junit() {
    let folder = tempfile::tempdir().unwrap();
    let junit = folder.path().join("load.xml").to_str().unwrap().to_owned();
    std::fs::write(&junit, "what the last run wrote").unwrap();
    let (output, _, stderr) = weir_load(&[&format!("http://{}/", free_address()), "--junit", &junit]);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let xml = std::fs::read_to_string(&junit).unwrap();
    for part in [
        "<?xml version=",
        "tests=\"1\" failures=\"0\" errors=\"1\"",
        "name=\"requests succeed\">\n      <error message=\"cannot reach http://",
        "</testsuites>\n",
    ] {
        assert!(xml.contains(part), "{part} is not in {xml}");
    }
    assert!(!xml.contains("last run"), "{xml}");
}

#[test]
fn numbers_of_clients_count_if_all_have_answers_and_hardly_a_request_fails() {
    let capacity = |url: &str| {
        let flags = [url, "--find-capacity", "--within=6s", "--clients=4", "--timeout=20s", "--json"];
        let (output, stdout, stderr) = weir_load(&flags);
        let found: serde_json::Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stderr}"));
        (output.status.code(), found, stderr)
    };
    let (code, found, stderr) = capacity(&serves_one_connection());
    assert_eq!(code, Some(0), "{stderr}");
    let unanswered = found["levels"].as_array().unwrap().iter().map(|level| level["unanswered"].as_u64());
    assert_eq!(unanswered.collect::<Vec<_>>(), [Some(0), Some(1), Some(3)], "{found}");
    assert!(found["clients"] == 1 && found["capacity_rps"].as_f64() > Some(0.0), "{found}");
    // Nothing says that more clients would only wait.
    assert!(found["knee_clients"].is_null(), "{found}");

    let refuses_half = Server::start(|number| Reply::Status(if number % 2 == 0 { 200 } else { 429 }));
    let (code, found, stderr) = capacity(&format!("http://{}/kv/x", refuses_half.address));
    assert_eq!(code, Some(3), "{found}{stderr}");
    let told = stderr.lines().last().unwrap();
    assert!(told.starts_with("error: no number of clients counts: with one client "), "{stderr}");
    assert!(found["capacity_rps"].is_null() && found["knee_clients"].is_null(), "{found}");
    assert!(found["levels"][0]["goodput_rps"][0].as_f64() > Some(0.0), "{found}");
}

#[test]
fn a_search_whose_server_goes_away_prints_what_it_found() {
    for (search, begin, result) in [
        (&["--find-capacity", "--within=30s"][..], "round 1 of 3      2 clients", "capacity "),
        (&["--find-rate=p99<10s", "--within=30s"], "tried ", "holds at "),
    ] {
        let service = Service::start();
        let url = service.url("/x");
        let mut load = start(&[&[url.as_str(), "--clients=2"], search].concat());
        wait_for(&mut load, begin);
        drop(service);
        let (code, text) = ended(load);
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains(result), "{text}");
        assert!(
            text.contains(&format!("error: {url} went away: it cannot be reached any more; hint: ")),
            "{text}"
        );

        let is_frozen = Arc::new(AtomicBool::new(false));
        let freezes = Arc::clone(&is_frozen);
        let server = Server::start(move |_| match freezes.load(Ordering::SeqCst) {
            true => Reply::Silence,
            false => Reply::Status(200),
        });
        let url = format!("http://{}/kv/x", server.address);
        let mut load = start(&[&[url.as_str(), "--clients=2", "--timeout=20s"], search].concat());
        wait_for(&mut load, begin);
        is_frozen.store(true, Ordering::SeqCst);
        let (code, text) = ended(load);
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains(result), "{text}");
        assert!(text.contains(&format!("error: {url} stopped answering: a single client had no ")), "{text}");
    }
}

#[test]
fn other_tools_get_files_in_their_formats() {
    let service = Service::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (junit, k6, prometheus) = (path("a.xml"), path("a.json"), path("a.prom"));
    let files = ["--junit", &junit, "--k6-summary", &k6, "--prometheus", &prometheus];
    let fail_if = ["--fail-if", "p50>10s,rate<100k/s", "--json"];
    let (output, stdout, _) =
        weir_load(&[&SHORT[..], &[&service.url("/status/200?a=<b>")], &files, &fail_if].concat());
    assert_eq!(output.status.code(), Some(3));
    let report: kv::proto::LoadReport = serde_json::from_str(&stdout).unwrap();
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    let xml = read(&junit);
    for part in [
        "<testsuite name=\"weir load http://",
        "?a=&lt;b&gt;\" tests=\"3\" failures=\"1\"",
        "name=\"requests succeed\"/>",
        "name=\"p50 &gt; 10.0 s\"/>",
        "name=\"rate &lt; 100k/s\">\n      <failure message=\"rate is ",
    ] {
        assert!(xml.contains(part), "{part} is not in {xml}");
    }
    let summary: serde_json::Value = serde_json::from_str(&read(&k6)).unwrap();
    assert_eq!(summary["metrics"]["http_reqs"]["count"], report.attempts);
    assert_eq!(summary["metrics"]["http_req_duration"]["p(95)"], report.latency.us_p95 / 1e3);
    assert_eq!(summary["metrics"]["http_req_failed"]["value"], 0.0);
    let text = read(&prometheus);
    assert!(text.contains(&format!("weir_load_responses{{status=\"200\"}} {}\n", report.attempts)), "{text}");
    assert!(text.contains("weir_load_latency_seconds{quantile=\"0.99\"} ") && text.ends_with('\n'), "{text}");
}
