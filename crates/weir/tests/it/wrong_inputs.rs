//! What newcomers type wrong: each is one line that says what is wrong and what to do, with the exit code of its kind.

use crate::support::{free_address, weir};
use std::fs;

/// A URL at which nobody listens.
fn nowhere() -> String {
    format!("http://{}/", free_address())
}

#[test]
fn what_newcomers_type_wrong_is_one_line_with_what_to_do() {
    const SERVICE: &str = "app {port}";
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    file("ids.csv", "a,b\n1,2\n");
    file("requests.txt", "GET\n");
    file("units.csv", "connections;rps;Average\n1;2;3\n");
    file("words.csv", "clients,rps,latency_ms\n1,fast,3\n");
    file("cells.csv", "clients,rps,latency_ms\n1,2\n");
    file("oha.txt", "Summary:\n  Success rate: 100.00%\n  Average: 0.1 secs\n  Requests/sec: 20\n");
    file("full/old", "");
    let nowhere = nowhere();
    let load = |flags: &[&'static str]| [&["load", "http://127.0.0.1:1"], flags].concat();
    let lab = |flags: &[&'static str]| [&["lab", "--command", SERVICE, "--url", "/"], flags].concat();
    let cases: Vec<(Vec<&str>, i32, &str, &str)> = vec![
        (vec!["load", "ftp://host/"], 2, "only http and https are spoken, not ftp", "write http://HOST"),
        (load(&["--rate", "10/min"]), 2, "'10/min'", "write it as in 500 or 20k"),
        (load(&["-X", "GE T"]), 2, "'GE T'", "capital letters, as in POST"),
        (load(&["--expect", "99"]), 2, "`99` is no status", "write 200, 2xx or 200-299"),
        (load(&["--fail-if", "p99"]), 2, "`p99` has no < or >", "and a limit such as 20ms"),
        (load(&["--fail-if", "p97>1s"]), 2, "unknown figure `p97`", "expected one of: p50"),
        (load(&["--find-rate", "x<1"]), 2, "unknown figure `x`", "expected one of: p50"),
        (
            load(&["--find-rate", "p99<1s", "--junit", "x.xml"]),
            2,
            "cannot be used with",
            "`weir load --help`",
        ),
        (
            load(&["--find-rate", "p99<1s", "--k6-summary", "x"]),
            2,
            "cannot be used with",
            "`weir load --help`",
        ),
        (
            load(&["--find-rate", "p99<1s", "--prometheus", "x"]),
            2,
            "cannot be used with",
            "`weir load --help`",
        ),
        (load(&["--within", "10s"]), 2, "--find-rate <CONDITIONS>|--find-capacity", "write `weir load"),
        (load(&["--histogram"]), 2, "--histogram adds to --json or --events", "add --json"),
        (load(&["--bin", "100ms"]), 2, "--bin adds to --json or --events", "add --json"),
        (load(&["--find-capacity", "--histogram"]), 2, "cannot be used with", "`weir load --help`"),
        (load(&["--find-capacity", "--bin", "100ms"]), 2, "cannot be used with", "`weir load --help`"),
        (load(&["-d", "{{id}}", "--values", "ids.csv"]), 2, "unknown variable {{id}}", "{{a}}, {{b}}"),
        (load(&["--targets", "requests.txt"]), 2, "line 1: `GET` is no request", "as GET /orders/1"),
        (load(&["--window", "5"]), 2, "a duration is a number with", "write it as in 500ms"),
        (load(&["--hdr", "/nowhere/x"]), 2, "cannot write /nowhere/x", "a folder that is there"),
        (load(&["--cacert", "ids.csv"]), 2, "--cacert is only for https", "leave --cacert out"),
        (load(&["--insecure"]), 2, "--insecure is only for https, and http://127.0.0.1:1", "write https://"),
        (load(&["--cert", "a", "--key", "b"]), 2, "--cert is only for https", "leave --cert out"),
        (vec!["load", "http://127.0.0.1:1/s?q=a<b", "--http2"], 2, "the path has <", "write %3C for it"),
        (load(&["--otlp", "127.0.0.1:4318"]), 2, "does not begin with http://", "as in http://127.0.0.1"),
        (load(&["--prometheus-listen", "9100"]), 2, "'9100'", "`weir load --help`"),
        (vec!["load", &nowhere], 1, "connection refused", "start the server, or correct the port"),
        (vec!["lab", "--command", "app", "--url", "/"], 2, "has no {port}", "write {port} where"),
        (vec!["lab", "--command", SERVICE, "--url", "http://x/"], 2, "is no path", "as in --url /api"),
        (vec!["lab", "--url", "localhost"], 2, "--url localhost is not http://", "write the port"),
        (
            vec!["lab", "--quota", "0.5", "a.toml"],
            2,
            "'--quota <CORES>' cannot be used with",
            "`weir lab --help`",
        ),
        (lab(&["--quota", "0"]), 2, "target.quota.server 0", "write server = 0.5"),
        (lab(&["--levels", "4,2"]), 2, "must ascend", "write levels = [1, 2, 4, 8]"),
        (lab(&["--repetitions", "0"]), 2, "nothing would be measured", "use at least 1"),
        (lab(&["--out", "full"]), 2, "full is not empty", "name a new directory"),
        (lab(&["--workloads", "w"]), 2, "`w` is unknown", "use one of requests"),
        (lab(&["--levels", "200000"]), 2, "200000 clients; the most are 100000", "write fewer"),
        (lab(&["--", "--clients", "3"]), 2, "the flags behind -- have --clients", "write --levels before --"),
        (lab(&["--", "--colour"]), 2, "unexpected argument '--colour'", "`weir load --help` lists"),
        (vec!["compare"], 2, "there is nothing to compare", "name two results directories"),
        (vec!["compare", "nodir"], 2, "cannot read nodir", "two results directories"),
        (vec!["compare", &nowhere, &nowhere], 2, "is a URL", "--url URL --url URL"),
        (vec!["compare", "--command", SERVICE], 2, "--command is given once", "give the flag twice"),
        (vec!["compare", "a", "b", "--fail-if-slower", "x%"], 2, "`x%` is no share", "as in 5% or 0.05"),
        (vec!["compare", "a", "b", "--margin", "5"], 2, "unexpected argument '--margin'", "similar argument"),
        (vec!["audit", "nofile"], 2, "cannot read the table nofile", "name a CSV file"),
        (vec!["audit", "units.csv"], 2, "column latency_ms: `3` has no unit", "--columns 'latency_ms=NAME'"),
        (vec!["audit", "units.csv", "--columns", "latency_ms=Mean"], 2, "no column `Mean`", "it has:"),
        (vec!["audit", "units.csv", "--columns", "speed=rps"], 2, "no `speed`", "expected one of: report"),
        (vec!["audit", "units.csv", "--columns", "rps"], 2, "NAME=COLUMN", "as in clients=Users"),
        (vec!["audit", "words.csv"], 2, "line 2, column throughput_rps: `fast`", "write a plain number"),
        (vec!["audit", "cells.csv"], 2, "line 2: it has 2 cells and the head has 3", "give every column"),
        (vec!["audit", "oha.txt"], 2, "does not say how many clients", "name them with --clients"),
    ];
    assert!(cases.len() >= 30);
    for (words, code, wrong, remedy) in cases {
        let output = weir().current_dir(dir.path()).args(&words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(
            (output.status.code(), output.stdout.len(), lines.len()),
            (Some(code), 0, 1),
            "{words:?}: {said}"
        );
        let (what, hint) = lines[0].split_once("; hint: ").unwrap_or_else(|| panic!("{words:?}: {said}"));
        assert!(
            what.starts_with("error: ") && what.contains(wrong) && hint.contains(remedy),
            "{words:?}: {said}"
        );
    }
}

#[test]
fn what_the_types_of_an_experiment_do_not_tell_is_told_with_its_key() {
    let dir = tempfile::tempdir().unwrap();
    for (from, to, complaint) in [
        ("lru", "lfu", "error: wrong.toml: target.args: invalid value 'lfu' for '--cache-policy <NAME>'"),
        ("get_popular", "get_poplar", "error: wrong.toml: get_poplar: invalid value 'get_poplar'"),
        ("server = [0]", "server = [4000]", "error: cores.server: there is no core 4000 here"),
        (
            "name = \"get_popular\"\n",
            "name = \"get_popular\"\nargs = [\"--dialect\", \"webdis\", \"--check\", \"linearizability\", \"--value-size\", \"1\"]\n",
            "error: wrong.toml: get_popular: values of less than ",
        ),
    ] {
        let text = "name = \"a\"\ntitle = \"A\"\nlevels = [1]\nrepetitions = 1\nwarmup = \"1s\"\nwindow = \"1s\"\n\
            [cores]\nserver = [0]\n[target]\nkind = \"weir\"\nstore = \"memory:\"\nargs = [\"--cache-policy\", \"lru\"]\n\
            [[workload]]\nname = \"get_popular\"\n";
        fs::write(dir.path().join("wrong.toml"), text.replace(from, to)).unwrap();
        let output =
            weir().current_dir(dir.path()).args(["lab", "wrong.toml", "--out", "out"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.lines().last().unwrap().starts_with(complaint), "{said}");
    }
}

#[test]
fn a_wrong_path_of_a_service_is_told_at_the_end_of_the_run() {
    let dir = tempfile::tempdir().unwrap();
    let command = format!("{} serve --listen 127.0.0.1:{{port}} --store memory:", env!("CARGO_BIN_EXE_weir"));
    let lab = ["lab", "--command", &command, "--url", "/nope", "--levels", "1,2", "--repetitions", "1"];
    let short = ["--window", "300ms", "--no-selftest", "--no-headroom", "--out", "out"];
    let output = weir().current_dir(dir.path()).args(lab).args(short).output().unwrap();
    let (page, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{page}{said}");
    assert!(page.contains("unknown; up to 100 % of the attempts failed, most with http_4xx"), "{page}");
    assert!(said.contains("(http_4xx, status 404); hint: correct the path"), "{said}");
}
