//! `weir compare` as a gate: its verdicts, its exit code, its files; and two services measured in turns.

use crate::compare::measured;
use crate::support::{Server, python};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn compare(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).arg("compare").args(args).output().unwrap()
}

/// Standard output and standard error.
fn said(output: &Output) -> [String; 2] {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Measures a simulated server of this demand, with this seed.
fn results(dir: &Path, demand: &str, seed: &str) -> PathBuf {
    let dir = dir.join(seed);
    fs::create_dir_all(&dir).unwrap();
    measured(&dir, demand, seed);
    dir.join(demand)
}

/// What Python's reader of XML finds in a file: attributes of the root, then for each case its name and what is in it.
fn cases(junit: &Path) -> String {
    const SCRIPT: &str = "import sys, xml.etree.ElementTree as tree\nroot = tree.parse(sys.argv[1]).getroot()\n\
        print(root.tag, root.get('tests'), root.get('failures'), root.get('skipped'))\n\
        for case in root.iter('testcase'): print(case.get('classname'), case.get('name'), [part.tag for part in case])";
    let output = Command::new(python("python3")).args(["-c", SCRIPT]).arg(junit).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_slower_build_is_a_regression_for_people_and_for_ci_servers() {
    let dir = tempfile::tempdir().unwrap();
    let (base, new) = (results(dir.path(), "1ms", "1"), results(dir.path(), "1.5ms", "2"));
    let (base, new) = (base.to_str().unwrap(), new.to_str().unwrap());
    let [junit, markdown] = ["junit.xml", "pull.md"].map(|name| dir.path().join(name));
    let files = ["--junit", junit.to_str().unwrap(), "--markdown", markdown.to_str().unwrap()];
    let output = compare(&[&[base, new, "--fail-if-slower", "5%"], &files[..]].concat());
    let [text, error] = said(&output);
    assert_eq!(output.status.code(), Some(3), "{error}");
    assert!(error.starts_with("error: regression: goodput: ") && error.lines().count() == 1, "{error}");
    assert!(text.starts_with("Regression: goodput: 3") && text.contains("regression: "), "{text}");
    let seen = cases(&junit);
    assert!(seen.starts_with("testsuites 4 ") && seen.contains("B.mixed goodput ['failure']"), "{seen}");
    let table = fs::read_to_string(&markdown).unwrap();
    assert!(
        table.starts_with("# Regression: goodput: ") && table.contains("| mixed | goodput | "),
        "{table}"
    );
    // The same without a demand, and the other way round.
    assert_eq!(compare(&[base, new, "--junit", junit.to_str().unwrap()]).status.code(), Some(0));
    let output = compare(&[new, base, "--fail-if-slower", "0.05"]);
    assert_eq!(output.status.code(), Some(0), "{:?}", said(&output));
    assert!(said(&output)[0].contains("better: "), "{:?}", said(&output));
}

#[test]
fn programs_get_the_verdicts_as_json() {
    let dir = tempfile::tempdir().unwrap();
    let (base, new) = (results(dir.path(), "1ms", "1"), results(dir.path(), "1.5ms", "2"));
    let output =
        compare(&[base.to_str().unwrap(), new.to_str().unwrap(), "--fail-if-slower", "5%", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let goodput = &json["gate"]["verdicts"][0];
    assert_eq!((&goodput["figure"], &goodput["standing"]), (&"goodput_rps".into(), &"regression".into()));
    assert_eq!((output.status.code(), &json["gate"]["margin"]), (Some(3), &0.05.into()));
    assert!(goodput["quotient"]["ratio"].as_f64().unwrap() < 0.8, "{goodput}");
}

#[test]
fn two_commands_are_measured_in_turns_until_the_slower_one_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let weir = env!("CARGO_BIN_EXE_weir");
    let command = |delay: &str| {
        format!("{weir} serve --store memory: --listen 127.0.0.1:{{port}} --lab --inject delay={delay}")
    };
    let (base, new, out) = (command("1ms"), command("100ms"), dir.path().join("run"));
    let length = ["--for", "3m", "--clients", "2", "--warmup", "50ms", "--window", "400ms"];
    let commands = ["--command", &base, "--command", &new, "--out", out.to_str().unwrap()];
    let flags = ["--fail-if-slower", "5%", "--", "--keys", "50"];
    let output = compare(&[&commands[..], &length, &flags].concat());
    let [text, error] = said(&output);
    assert_eq!(output.status.code(), Some(3), "{text}{error}");
    let regression = "error: regression: ";
    assert!(text.starts_with("Regression: ") && error.contains(regression), "{text}{error}");
    // Five pairs are the fewest that can show anything.
    let pairs = error.lines().filter(|line| line.starts_with("pair ")).count();
    assert!((5..40).contains(&pairs), "{error}");
    // The same is said of the results, whose intervals hold although the run ended early.
    let again = compare(&[out.to_str().unwrap(), "--fail-if-slower", "5%"]);
    assert_eq!(
        (again.status.code(), &said(&again)[0] as &str),
        (Some(3), text.split("\ncomparison: ").next().unwrap())
    );
}

#[test]
fn a_command_may_be_what_a_shell_takes_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let (weir, out, log) = (env!("CARGO_BIN_EXE_weir"), dir.path().join("run"), dir.path().join("access"));
    let serve =
        format!("{weir} serve --store memory: --listen 127.0.0.1:{{port}} --access-log {}", log.display());
    // It has the environment that it has without the lab.
    let check = r#"sh -c '[ "$PGSOMETHING$A" = xyx ] && exec "$@"' -"#;
    let (base, new) = (format!("A=y$PGSOMETHING {check} {serve}"), format!("cd / && {serve}; true"));
    let length = ["--for", "1s", "--clients", "1", "--warmup", "50ms", "--window", "200ms"];
    let commands =
        ["--command", &base, "--command", &new, "--url", "/healthz", "--out", out.to_str().unwrap()];
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.arg("compare").args(commands).args(length).env("PGSOMETHING", "x").output().unwrap();
    let [text, error] = said(&output);
    for side in ["base", "new"] {
        let results = fs::read(out.join(side).join("results.json")).expect(&error);
        let results: serde_json::Value = serde_json::from_slice(&results).unwrap();
        let trial = &results["trials"][0];
        assert!(trial["failure"].is_null() && trial["load"].is_object(), "{side}: {text}{error}");
    }
    // The shell of the second one ends before what it started.
    let lines = fs::read_dir("/proc").unwrap().flatten();
    let lines = lines.filter_map(|of| fs::read_to_string(of.path().join("cmdline")).ok());
    let left = lines.filter(|line| line.contains(log.to_str().unwrap()));
    assert_eq!(left.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn two_urls_are_measured_until_the_time_is_over() {
    let server = Server::start("memory:", &[]);
    let dir = tempfile::tempdir().unwrap();
    let (url, out) = (format!("http://{}/healthz", server.address), dir.path().join("run"));
    let length = ["--for", "2s", "--clients", "1", "--warmup", "10ms", "--window", "1s"];
    let urls = ["--url", &url, "--url", &url, "--out", out.to_str().unwrap()];
    let output = compare(&[&urls[..], &length].concat());
    let [text, error] = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{error}");
    assert!(text.contains("\nrequests  ") && !text.contains("CPU per request"), "{text}");
    assert!(out.join("base/results.json").is_file() && out.join("compare.html").is_file());
}

#[test]
fn a_service_that_fails_is_a_regression_and_a_base_that_fails_compares_nothing() {
    let servers = [Server::start("memory:", &[]), Server::start("memory:", &[])];
    let dir = tempfile::tempdir().unwrap();
    servers[0].client().put("/kv/here", b"value");
    let [good, bad] = [0, 1].map(|of: usize| format!("http://{}/kv/here", servers[of].address));
    let length =
        ["--for", "60s", "--clients", "1", "--warmup", "10ms", "--window", "200ms", "--fail-if-slower", "5%"];
    let run = |base: &str, new: &str, name: &str| {
        let out = dir.path().join(name);
        let urls = ["--url", base, "--url", new, "--out", out.to_str().unwrap()];
        compare(&[&urls[..], &length].concat())
    };
    let output = run(&good, &bad, "new");
    let expected = "error: regression: failed requests at 1 client: 100.00 % of the requests failed; ";
    assert!(output.status.code() == Some(3) && said(&output)[1].contains(expected), "{:?}", said(&output));
    let output = run(&bad, &good, "base");
    let expected = "error: not comparable: no level counts on both sides (base: more than 0.1 % of the requests failed, or none was completed); hint: find out why requests fail";
    assert!(output.status.code() == Some(1) && said(&output)[1].contains(expected), "{:?}", said(&output));
}

#[test]
fn a_service_that_dies_under_load_is_a_regression_as_soon_as_it_is_known() {
    const SERVICE: &str = "import os, sys, http.server as http\n\
        class Handler(http.BaseHTTPRequestHandler):\n    protocol_version = 'HTTP/1.1'\n    left = int(sys.argv[2])\n\
        \x20   def log_message(self, *_): pass\n\
        \x20   def do_GET(self):\n        Handler.left -= 1\n        Handler.left or os._exit(1)\n\
        \x20       self.send_response(200), self.send_header('Content-Length', '0'), self.end_headers()\n\
        http.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()\n";
    let dir = tempfile::tempdir().unwrap();
    let (service, junit) = (dir.path().join("service.py"), dir.path().join("junit.xml"));
    fs::write(&service, SERVICE).unwrap();
    let command =
        |requests: u32| format!("{} {} {{port}} {requests}", python("python3").display(), service.display());
    let (base, new, out) = (command(0), command(20), dir.path().join("run"));
    let commands = ["--command", &base, "--command", &new, "--url", "/", "--out", out.to_str().unwrap()];
    let length = ["--for", "5m", "--clients", "2", "--warmup", "50ms", "--window", "1s"];
    let flags = ["--fail-if-slower", "5%", "--junit", junit.to_str().unwrap()];
    let output = compare(&[&commands[..], &length, &flags].concat());
    let [text, error] = said(&output);
    assert_eq!(output.status.code(), Some(3), "{text}{error}");
    assert_eq!(error.lines().filter(|line| line.starts_with("pair ")).count(), 3, "{error}");
    // Whether it ends before the window or in it is chance.
    assert!(error.contains("error: regression: failed ") && error.contains("3 of 3 trials"), "{error}");
    let seen = cases(&junit);
    assert!(seen.contains(" at 2 clients ['failure']"), "{seen}");
}

/// It was green for a build that was five times slower.
#[test]
fn of_one_repetition_the_gate_is_not_green() {
    let dir = tempfile::tempdir().unwrap();
    let (base, new) = (results(dir.path(), "1ms", "1"), results(dir.path(), "5ms", "2"));
    for side in [&base, &new] {
        let file = side.join("results.json");
        let mut results: lab_data::results::Results =
            serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        results.repetitions = 1;
        results.trials.retain(|trial| trial.repetition == 0);
        fs::write(&file, serde_json::to_vec(&results).unwrap()).unwrap();
    }
    let (base, new) = (base.to_str().unwrap(), new.to_str().unwrap());
    let [junit, markdown] = ["junit.xml", "pull.md"].map(|name| dir.path().join(name));
    let files = ["--junit", junit.to_str().unwrap(), "--markdown", markdown.to_str().unwrap()];
    let output = compare(&[&[base, new, "--fail-if-slower", "5%"], &files[..]].concat());
    let error = &said(&output)[1];
    let expected = "error: undecided: too few repetitions; hint: measure each level three times or more, with --repetitions of weir lab\n";
    assert_eq!((output.status.code(), error.as_str()), (Some(1), expected));
    let seen = cases(&junit);
    assert!(
        seen.starts_with("testsuites 5 0 4\n") && seen.contains("B.mixed comparison ['error']"),
        "{seen}"
    );
    let said = fs::read_to_string(&markdown).unwrap();
    assert!(
        said.starts_with("# Undecided: too few repetitions")
            && said.contains("- Undecided: too few repetitions. Measure each level three times or more"),
        "{said}"
    );
    assert_eq!(compare(&[&[base, new], &files[..]].concat()).status.code(), Some(0), "nothing is asked");
}

/// It was green for a service that answered nothing any more, if there was no time for pairs enough.
#[test]
fn a_service_that_answers_some_clients_only_is_not_green_and_then_a_regression() {
    const SERVICE: &str = "import sys, threading, http.server as http\n\
        class Handler(http.BaseHTTPRequestHandler):\n    protocol_version = 'HTTP/1.1'\n    accepted = 0\n\
        \x20   def setup(self):\n        super().setup()\n        Handler.accepted += 1\n        self.number = Handler.accepted\n\
        \x20   def log_message(self, *_): pass\n\
        \x20   def do_GET(self):\n        if self.number % 2 and sys.argv[2] == 'half': threading.Event().wait()\n\
        \x20       self.send_response(200), self.send_header('Content-Length', '0'), self.end_headers()\n\
        http.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()\n";
    let dir = tempfile::tempdir().unwrap();
    let service = dir.path().join("service.py");
    fs::write(&service, SERVICE).unwrap();
    let command =
        |which: &str| format!("{} {} {{port}} {which}", python("python3").display(), service.display());
    let (base, new) = (command("all"), command("half"));
    let run = |time: &str, name: &str| {
        let out = dir.path().join(name);
        let commands = ["--command", &base, "--command", &new, "--url", "/", "--out", out.to_str().unwrap()];
        let length = ["--for", time, "--clients", "4", "--warmup", "1s", "--window", "500ms"];
        compare(&[&commands[..], &length, &["--fail-if-slower", "5%"]].concat())
    };
    let output = run("1ms", "short");
    assert_eq!(output.status.code(), Some(1), "{:?}", said(&output));
    let output = run("5m", "long");
    let expected = "error: regression: trials with clients without an answer at 4 clients: clients were left without an answer in ";
    assert!(output.status.code() == Some(3) && said(&output)[1].contains(expected), "{:?}", said(&output));
}

#[test]
fn what_is_asked_wrongly_is_told_in_one_line_with_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent/file").to_str().unwrap().to_owned();
    let url = "http://127.0.0.1:1";
    let before = dir.path().join("before.xml");
    fs::write(&before, "of yesterday").unwrap();
    // The run that was to make them may have failed.
    let failed = compare(&["a", "b", "--junit", before.to_str().unwrap()]);
    let written = fs::read_to_string(&before).unwrap();
    assert!(failed.status.code() == Some(2) && written.contains("errors=\"1\""), "{written}");
    let failed = compare(&["--url", url, "--url", url, "--junit", before.to_str().unwrap()]);
    let written = fs::read_to_string(&before).unwrap();
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert!(written.contains("errors=\"1\"") && written.contains("cannot reach"), "{written}");
    for (args, complaint) in [
        (vec!["a", "b", "--fail-if-slower", "fast"], "`fast` is no share; hint: write it as in 5% or 0.05"),
        (vec!["a", "b", "--fail-if-slower", "0%"], "`0%` is no share; hint: "),
        // A gate of 500 % would pass whatever is measured.
        (vec!["a", "b", "--fail-if-slower", "5"], "`5` would be 500 %; hint: write 5%"),
        (vec!["a", "b", "--fail-if-slower", "1"], "`1` would be 100 %; hint: write 1%"),
        (vec![], "there is nothing to compare; hint: name two results directories"),
        (vec!["a", "b", "--clients", "4"], "cannot be used with"),
        (vec!["--url", url], "--url is given once; two services are compared; hint: give the flag twice"),
        (vec!["a", "--url", url, "--url", url], "both say what to compare; hint: "),
        (vec!["--url", "here", "--url", url], "--url here is not http://HOST:PORT"),
        (vec!["--command", "true", "--command", "true"], "has no {port}; hint: write {port} where"),
        (
            vec!["--command", "a {port}", "--command", "b {port}", "--url", url],
            "is no path; hint: the command gets",
        ),
        (vec!["--command", "a {port}"], "--command is given once; two services are compared"),
        (vec!["a", "b", "--junit", &absent], "absent/file: No such file or directory"),
        (vec!["--url", url, "--url", url, "--", "--workload", "none"], "none"),
        (vec!["--url", url, "--url", url, "--", "--clients", "3"], "--clients"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("compare")
            .args(&args)
            .current_dir(dir.path())
            .output();
        let output = output.unwrap();
        let [text, error] = said(&output);
        assert_eq!((output.status.code(), text.as_str()), (Some(2), ""), "{args:?}: {error}");
        assert!(
            error.contains(complaint) && error.lines().count() == 1 && error.contains("; hint: "),
            "{args:?}: {error}"
        );
    }
}
