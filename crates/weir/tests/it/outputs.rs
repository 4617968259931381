//! What `weir load` shows and writes besides its report: the view on a terminal, lines elsewhere, files, the schema.
//!
//! The terminal is a real pseudo terminal, made by `script`; what it would show at the end is worked out here. The schema is
//! applied by a few lines of our own, which know the keywords that stand in it and no others.

use super::load::{Reply, Server};
use super::support::weir;
use kv::proto::{LoadEvent, LoadReport, SecondReport};
use serde_json::{Map, Value};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;

/// Short runs of one client at a server that has every value.
const BRIEFLY: [&str; 4] = ["--clients=1", "--no-preload", "--keys=10", "--warmup=0s"];

fn load(server: &Server, flags: &[&str]) -> Command {
    let mut command = weir();
    command.args(["load", &format!("http://{}", server.address)]).args(flags);
    command
}

fn done(command: &mut Command) -> (String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(status.success(), "{stdout}{stderr}");
    (stdout, stderr)
}

fn report(server: &Server, flags: &[&str]) -> (String, LoadReport) {
    let (text, _) = done(load(server, &BRIEFLY).args(flags).arg("--json"));
    let report = serde_json::from_str(&text).unwrap();
    (text, report)
}

/// What a terminal of so many columns shows after `text`: its lines, without what was taken off again.
///
/// Knows what the view is made of: returns, line feeds, moves up and down, and erasing a line.
fn screen(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0, 0);
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        match sign {
            '\r' => column = 0,
            '\n' => row += 1,
            '\u{1b}' => {
                assert_eq!(signs.next(), Some('['), "an escape of another kind in {text:?}");
                let mut number = String::new();
                let end = loop {
                    match signs.next().unwrap() {
                        digit if digit.is_ascii_digit() || digit == '?' => number.push(digit),
                        end => break end,
                    }
                };
                let times = number.parse().unwrap_or(1);
                match end {
                    'A' => row -= times,
                    'B' => row += times,
                    'K' => lines[row].truncate(if number == "2" { 0 } else { column }),
                    'J' => lines.truncate(row + 1),
                    _ => panic!("ESC [ {number} {end} in {text:?}"),
                }
            }
            _ => {
                // A full line is left only by what comes behind it.
                if column == columns {
                    (row, column) = (row + 1, 0);
                    lines.resize(lines.len().max(row + 1), Vec::new());
                }
                while lines[row].len() <= column {
                    lines[row].push(' ');
                }
                lines[row][column] = sign;
                column += 1;
            }
        }
        while lines.len() <= row {
            lines.push(Vec::new());
        }
    }
    lines.iter().map(|line| line.iter().collect::<String>().trim_end().to_owned()).collect()
}

#[test]
fn the_view_on_a_terminal_fits_it_and_leaves_the_report_alone() {
    let server = Server::start(|_| Reply::Value);
    let (program, target) = (env!("CARGO_BIN_EXE_weir"), format!("http://{}", server.address));
    for columns in [60, 120] {
        let line = format!(
            "stty cols {columns} rows 24; exec '{program}' load {target} --clients 1 --no-preload --keys 10 --warmup 1s --window 3s"
        );
        let mut terminal = Command::new("script");
        terminal.env("TERM", "xterm").env("SHELL", "/bin/sh").args(["-qec", &line, "/dev/null"]);
        let (text, _) = done(&mut terminal);
        // It was there: phases, figures and a curve, each in no more than a line of the terminal.
        for part in ["warm-up    1s of 1s", "window     2s of 3s", " req/s  p50 ", "  p99 ", "█"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert_eq!(text.contains("  0 errors"), columns == 120, "{text}");
        let (view, _) = text.split_once("workload  ").unwrap();
        for line in view.split(['\r', '\n']) {
            // Blanks fill the last line; they reach the edge and not beyond.
            let line = line.rsplit(['A', 'B', 'K']).next().unwrap();
            assert!(line.chars().count() <= columns, "{line:?}");
        }
        // And it is gone.
        let screen = screen(&text, columns);
        let shown: Vec<&String> = screen.iter().filter(|line| !line.is_empty()).collect();
        assert!(shown[0].starts_with("workload    get_popular on http://"), "{screen:#?}");
        assert!(!screen.iter().any(|line| line.contains('█') || line.contains("s of 3s")), "{screen:#?}");
    }
}

#[test]
fn elsewhere_there_is_a_line_for_each_interval_unless_it_is_unwanted() {
    let server = Server::start(|_| Reply::Value);
    let flags = ["--clients=1", "--no-preload", "--keys=10", "--warmup=1s", "--window=2s"];
    let (_, lines) = done(load(&server, &flags).arg("--interval=1s"));
    let begins: Vec<&str> = lines.lines().map(|line| &line[..19]).collect();
    assert_eq!(begins, ["warm-up    1s of 1s", "window     1s of 2s", "window     2s of 2s"], "{lines}");
    assert!(
        lines.lines().all(|line| line.contains(" req/s  p50 ") && line.ends_with("  0 errors")),
        "{lines}"
    );
    for silence in [&["--quiet", "--interval=1s"][..], &["--interval=0s"], &["--events"], &[]] {
        let (stdout, stderr) = done(load(&server, &BRIEFLY).arg("--window=1s").args(silence));
        assert!(!stdout.is_empty() && stderr.is_empty(), "{silence:?}: {stderr}");
    }
}

#[test]
fn percentile_distributions_and_seconds_hold_what_the_report_does() {
    let server = Server::start(|_| Reply::Value);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (prefix, seconds) = (path("run"), path("seconds.csv"));
    let (text, report) = report(
        &server,
        &[
            "--rate=200",
            "--window=1500ms",
            "--hdr",
            prefix.to_str().unwrap(),
            "--seconds",
            seconds.to_str().unwrap(),
        ],
    );
    assert!(!text.contains("histograms"), "only --histogram adds them to the report: {text}");
    let latencies = [
        ("run.hgrm", &report.latency),
        ("run-get.hgrm", &report.operations[0].latency),
        ("run-service.hgrm", report.service.as_ref().unwrap()),
    ];
    for (name, latency) in latencies {
        let (counts, median_ms, max_ms) = distribution(&path(name));
        assert_eq!(counts, latency.count, "{name}");
        // Rows have the end of a bucket, the report its middle: a thousandth apart, and what three decimals leave.
        let close = |ms: f64, us: f64| (ms * 1e3 - us).abs() <= us * 0.002 + 1.0;
        assert!(close(max_ms, latency.us_max), "{name}: {max_ms} ms, {} µs", latency.us_max);
        assert!(close(median_ms, latency.us_p50), "{name}: {median_ms} ms, {} µs", latency.us_p50);
    }
    let table = fs::read_to_string(&seconds).unwrap();
    let rows: Vec<&str> = table.lines().skip(1).collect();
    assert_eq!(rows.len(), 1, "one whole second: {table}");
    let second = report.seconds[0];
    let begins = format!("0,{},{},0,{},", second.attempts, second.successes, second.successes);
    assert!(rows[0].starts_with(&begins), "{table}");
}

/// Samples, median and maximum in milliseconds, as a plotter reads them: four numbers a line, and what begins with # aside.
fn distribution(path: &Path) -> (u64, f64, f64) {
    let text = fs::read_to_string(path).unwrap();
    let rows: Vec<Vec<f64>> = (text.lines().filter(|line| !line.starts_with('#')).skip(2))
        .map(|line| line.split_whitespace().map(|cell| cell.parse().unwrap()).collect())
        .collect();
    assert!(rows.iter().all(|row| row.len() == 4), "{text}");
    for pair in rows.windows(2) {
        assert!(pair[0].iter().zip(&pair[1]).all(|(before, after)| before <= after), "{text}");
    }
    let median = rows.iter().find(|row| row[1] == 0.5).unwrap();
    let last = rows.last().unwrap();
    assert!(last[1] == 1.0 && last[3].is_infinite(), "{text}");
    (last[2] as u64, median[0], last[0])
}

#[test]
fn a_file_that_cannot_be_written_is_said_before_anything_is_asked_of_the_server() {
    let server = Server::start(|_| Reply::Value);
    for flags in [["--seconds", "absent/seconds.csv"], ["--hdr", "absent/run"], ["--hdr", "absent/"]] {
        let output = load(&server, &BRIEFLY).args(flags).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{told}");
        assert!(told.starts_with("error: ") && told.contains("absent/") && told.contains("hint: "), "{told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
    assert!(server.streams(1).is_empty());
}

#[test]
fn each_of_the_files_is_asked_for_before_the_run() {
    let server = Server::start(|_| Reply::Value);
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("run");
    let run =
        |flags: &[&str]| load(&server, &BRIEFLY).args(flags).arg("--hdr").arg(&prefix).output().unwrap();
    for name in ["run.hgrm", "run-get.hgrm", "run-service.hgrm", "run-send_lag.hgrm"] {
        fs::create_dir(folder.path().join(name)).unwrap();
        let output = run(&["--rate=200", "--window=100ms"]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{told}");
        assert!(told.contains(&format!("{name}: Is a directory")), "{told}");
        fs::remove_dir(folder.path().join(name)).unwrap();
    }
    assert!(server.streams(1).is_empty());
    // A closed loop has no send lag, so nothing is in its way.
    fs::create_dir(folder.path().join("run-send_lag.hgrm")).unwrap();
    assert!(run(&["--window=1s"]).status.success());
}

#[test]
fn a_run_whose_starter_holds_its_input_ends_with_it() {
    let server = Server::start(|_| Reply::Value);
    let mut command = load(&server, &BRIEFLY);
    command.args(["--window=1h", "--quiet", "--until-stdin-ends"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // As the kernel does with what a killed process held.
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert_eq!(told, "error: the process that started weir load has ended\n");
}

#[test]
fn a_run_that_is_told_to_ends_its_window_and_reports_what_was_measured() {
    let server = Server::start(|_| Reply::Value);
    for pacing in [
        &["--clients=4"][..],
        &["--rate=200", "--clients=5", "--threads=2"],
        &["--think=30ms", "--clients=3", "--bin=250ms"],
    ] {
        let mut command = load(&server, &BRIEFLY[1..]);
        command.args(pacing).args(["--window=1h", "--events", "--until-stdin-ends"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let (mut seconds, mut bins, mut edges, mut report) = (Vec::new(), Vec::new(), 0, None);
        for line in lines {
            match serde_json::from_str(&line).unwrap() {
                LoadEvent::Second { second, report, .. } => {
                    assert_eq!(second, seconds.len() as i64, "{line}");
                    seconds.push(report);
                    if second == 0 {
                        input.write_all(b"what is this?\nend\nend\n").unwrap();
                    }
                }
                LoadEvent::Bin { bin, report } => {
                    assert_eq!(bin, bins.len() as i64, "{line}");
                    bins.push(report);
                }
                LoadEvent::WindowStart | LoadEvent::WindowEnd => edges += 1,
                LoadEvent::Report(said) => report = Some(said),
                LoadEvent::Preloading { .. } | LoadEvent::Preloaded { .. } => {}
            }
        }
        assert!(child.wait().unwrap().success());
        let report = report.unwrap();
        assert_eq!((edges, &seconds), (2, &report.seconds), "{pacing:?}");
        if let Some(told) = &report.bins {
            assert_eq!((told.secs, &told.list), (0.25, &bins));
            let of_second = |bins: &[SecondReport]| bins.iter().map(|bin| bin.attempts).sum::<u64>();
            let summed: Vec<u64> = bins.chunks_exact(4).map(of_second).collect();
            assert_eq!(summed, seconds.iter().map(|second| second.attempts).collect::<Vec<_>>());
        }
        assert_eq!(report.bins.is_some(), pacing.contains(&"--bin=250ms"));
        let window = report.window_secs;
        assert!(window >= seconds.len() as f64 && window < seconds.len() as f64 + 1.0, "{window}");
        assert!(report.little_residual().unwrap().abs() < 1e-6, "{pacing:?}: {report:?}");
        assert!((report.goodput_rps * window - report.successes as f64).abs() < 1e-6);
        if let Some(schedule) = &report.schedule {
            let due = 200.0 * window;
            assert!((schedule.due as f64 - due).abs() <= 4.0, "{} due in {window} s", schedule.due);
        }
    }
}

#[test]
fn a_report_is_what_the_schema_says() {
    let server = Server::start(|number| if number % 5 == 4 { Reply::Status(500) } else { Reply::Value });
    let (schema, _) = done(weir().args(["load", "--schema"]));
    let schema: Value = serde_json::from_str(&schema).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    for flags in [
        &["--window=1s"][..],
        &["--window=1200ms", "--histogram"],
        &["--window=1s", "--histogram", "--rate=500", "--arrivals=poisson"],
        &["--window=1s", "--think=1ms", "--bin=50ms"],
    ] {
        let (text, _) = report(&server, flags);
        let document = serde_json::from_str(&text).unwrap();
        let wrong = violations(&schema, &schema, &document, "report");
        assert!(wrong.is_empty(), "{flags:?}: {}", wrong.join("; "));
    }
}

#[test]
fn what_is_not_as_the_schema_says_is_named() {
    let (schema, _) = done(weir().args(["load", "--schema"]));
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let report =
        LoadReport { histograms: [("all".to_owned(), vec![[1, 2, 3]])].into(), ..LoadReport::default() };
    let check = |change: &dyn Fn(&mut Map<String, Value>), wrong: &[&str]| {
        let mut document = serde_json::to_value(&report).unwrap();
        change(document.as_object_mut().unwrap());
        assert_eq!(violations(&schema, &schema, &document, "report"), wrong);
    };
    let set = |name: &'static str, value: Value| {
        move |object: &mut Map<String, Value>| {
            object.insert(name.to_owned(), value.clone());
        }
    };
    check(&|_| {}, &[]);
    check(&set("unheard_of", 1.into()), &["report.unheard_of is not described"]);
    check(&set("clients", "many".into()), &["report.clients is no integer"]);
    check(&set("clients", (-1).into()), &["report.clients is below 0"]);
    check(&set("errors", serde_json::json!({"reset": 0.5})), &["report.errors.reset is no integer"]);
    check(
        &set("histograms", serde_json::json!({"all": [[1, 2]]})),
        &["report.histograms.all.0 is too short"],
    );
    check(&|object| drop(object.remove("seed")), &["report.seed is missing"]);
}

/// Where `value` is not what `schema`, a part of `root`, says. What the schema has no word for is one of these, too: a published
/// schema is to describe all there is.
fn violations(root: &Value, schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let properties = schema["properties"].as_object();
    for (keyword, says) in schema.as_object().unwrap() {
        let count = value.as_array().map(|items| items.len() as u64);
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" | "format" => {}
            "$ref" => {
                let name = says.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
                wrong.extend(violations(root, &root["$defs"][name], value, path));
            }
            "anyOf" | "oneOf" => {
                let fits = |part: &&Value| violations(root, part, value, path).is_empty();
                let fitting = says.as_array().unwrap().iter().filter(fits).count();
                if fitting == 0 || keyword == "oneOf" && fitting > 1 {
                    wrong.push(format!("{path} fits {fitting} of several shapes"));
                }
            }
            "const" if says != value => wrong.push(format!("{path} is not {says}")),
            "enum" if !says.as_array().unwrap().contains(value) => {
                wrong.push(format!("{path} is none of {says}"));
            }
            "const" | "enum" => {}
            "type" => {
                let is = |name: &Value| match name.as_str().unwrap() {
                    "null" => value.is_null(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "string" => value.is_string(),
                    "array" => value.is_array(),
                    "object" => value.is_object(),
                    other => panic!("{other} is no type"),
                };
                if !says.as_array().map_or_else(|| is(says), |names| names.iter().any(is)) {
                    let names = says.as_str().map_or_else(|| says.to_string(), str::to_owned);
                    wrong.push(format!("{path} is no {names}"));
                }
            }
            "minimum" if value.as_f64().is_some_and(|value| value < says.as_f64().unwrap()) => {
                wrong.push(format!("{path} is below {says}"));
            }
            "maximum" if value.as_f64().is_some_and(|value| value > says.as_f64().unwrap()) => {
                wrong.push(format!("{path} is above {says}"));
            }
            "minItems" if count.is_some_and(|count| count < says.as_u64().unwrap()) => {
                wrong.push(format!("{path} is too short"));
            }
            "maxItems" if count.is_some_and(|count| count > says.as_u64().unwrap()) => {
                wrong.push(format!("{path} is too long"));
            }
            "minimum" | "maximum" | "minItems" | "maxItems" => {}
            "required" => {
                let names = says.as_array().unwrap().iter().map(|name| name.as_str().unwrap());
                let missing = names.filter(|name| value.is_object() && value.get(name).is_none());
                wrong.extend(missing.map(|name| format!("{path}.{name} is missing")));
            }
            "items" => {
                for (place, item) in value.as_array().into_iter().flatten().enumerate() {
                    wrong.extend(violations(root, says, item, &format!("{path}.{place}")));
                }
            }
            "properties" | "additionalProperties" => {
                for (name, member) in value.as_object().into_iter().flatten() {
                    let known = properties.and_then(|properties| properties.get(name));
                    let path = format!("{path}.{name}");
                    match (keyword.as_str(), known, schema.get("additionalProperties")) {
                        ("properties", Some(known), _) => {
                            wrong.extend(violations(root, known, member, &path));
                        }
                        ("properties", None, None | Some(Value::Bool(_))) => {
                            wrong.push(format!("{path} is not described"));
                        }
                        ("additionalProperties", None, Some(others @ Value::Object(_))) => {
                            wrong.extend(violations(root, others, member, &path));
                        }
                        _ => {}
                    }
                }
            }
            other => panic!("the schema has a keyword that nothing here knows: {other}"),
        }
    }
    wrong
}

/// A collector that answers one request so; gives its head and its body.
fn collector(status: &'static str, answer: &'static str) -> (String, JoinHandle<(String, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let received = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut lines = BufReader::new(&stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
        }
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        lines.read_exact(&mut body).unwrap();
        let length = answer.len();
        write!(&stream, "HTTP/1.0 {status}\r\nContent-Length: {length}\r\n\r\n{answer}").unwrap();
        (head, serde_json::from_slice(&body).unwrap())
    });
    (url, received)
}

/// The JSON of protocol buffers has 64-bit numbers as strings.
fn number(value: &Value) -> u64 {
    value.as_str().unwrap_or_else(|| panic!("{value} is no string")).parse().unwrap()
}

#[test]
fn a_collector_gets_the_figures_as_otlp_says() {
    let server = Server::start(|_| Reply::Value);
    let (url, received) = collector("200 OK", "{\"partialSuccess\":{}}");
    let (_, report) = report(&server, &["--rate=200", "--window=1s", "--otlp", &url]);
    let (head, body) = received.join().unwrap();
    assert!(head.starts_with("POST /v1/metrics HTTP/1."), "{head}");
    assert!(head.contains("Content-Type: application/json\r\n"), "{head}");
    let of = &body["resourceMetrics"][0];
    let service = &of["resource"]["attributes"][0];
    assert_eq!(
        (&service["key"], &service["value"]["stringValue"]),
        (&"service.name".into(), &"weir-load".into())
    );
    let scope = &of["scopeMetrics"][0];
    assert_eq!(scope["scope"]["name"], "weir");
    let metrics = scope["metrics"].as_array().unwrap();
    let metric =
        |name: &str| metrics.iter().find(|of| of["name"] == name).unwrap_or_else(|| panic!("{name}: {body}"));
    for of in metrics {
        // One kind of data each, and points with times in their order.
        let kinds = ["gauge", "sum", "histogram", "summary"].map(|kind| &of[kind]["dataPoints"]);
        let mut points = kinds.iter().filter_map(|points| points.as_array());
        let (points, None) = (points.next().unwrap(), points.next()) else { panic!("{of}") };
        assert!(!points.is_empty() && of["unit"].is_string() && of["description"].is_string(), "{of}");
        for point in points {
            let lasted_ns = number(&point["timeUnixNano"]) - number(&point["startTimeUnixNano"]);
            assert_eq!(lasted_ns / 1_000_000, (report.window_secs * 1e3) as u64, "{of}");
            assert!(point["attributes"].is_array(), "{of}");
        }
    }
    let gauge = |name: &str| metric(name)["gauge"]["dataPoints"][0].clone();
    assert_eq!(gauge("weir_load_requests")["asDouble"].as_f64(), Some(report.attempts as f64));
    let answers = gauge("weir_load_responses");
    assert_eq!(answers["asDouble"].as_f64(), Some(report.statuses["200"] as f64));
    assert_eq!(answers["attributes"][0]["key"], "status");
    assert_eq!(answers["attributes"][0]["value"]["stringValue"], "200");
    let latency = &metric("weir_load_latency_seconds")["summary"]["dataPoints"][0];
    assert_eq!(number(&latency["count"]), report.latency.count);
    let median = latency["quantileValues"].as_array().unwrap().iter().find(|of| of["quantile"] == 0.5);
    assert_eq!(median.unwrap()["value"].as_f64(), Some(report.latency.us_p50 / 1e6));
}

#[test]
fn a_collector_that_takes_nothing_is_said_after_the_report() {
    let server = Server::start(|_| Reply::Value);
    let partly = "{\"partialSuccess\":{\"rejectedDataPoints\":\"3\",\"errorMessage\":\"too old\"}}";
    for (status, answer, why) in [
        ("400 Bad Request", "no metrics", "it answered 400: no metrics"),
        ("200 OK", partly, "it rejected 3 of them: too old"),
    ] {
        let (url, received) = collector(status, answer);
        let output = load(&server, &BRIEFLY).args(["--window=1s", "--otlp", &url]).output().unwrap();
        received.join().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(&format!("cannot send metrics to {url}: {why}; hint: ")), "{stderr}");
        assert!(String::from_utf8(output.stdout).unwrap().contains("goodput"), "the report is there");
    }
}
