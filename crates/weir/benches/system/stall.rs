//! One server that freezes for two of twenty seconds, seen three ways: the picture in docs/method.md.
//!
//! The server is the test responder, which answers after a millisecond but for the stall. What ten connections say that send
//! when they have their answer; what they say when requests are due at a constant rate, counted from when each was sent; and
//! counted from when each was due, which is what whoever asked has lived through.

use crate::plot::{self, Line, Picture, panel};
use crate::support::{LOAD_CORE, SERVER_CORE, load, on_core, weir};
use kv::proto::{Bucket, LoadReport};
use lab_report::{Point, Scale};
use load_accuracy::responder::{Options, Responder};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

const RUN_SECS: f64 = 20.0;
const STALL_SECS: f64 = 2.0;
const RATE: f64 = 1000.0;
const CLIENTS: &str = "10";

/// Where along the axis, and what is written there: as many nines as the number says.
const NINES: &[(f64, &str)] =
    &[(0.301, "50 %"), (1.0, "90 %"), (2.0, "99 %"), (3.0, "99.9 %"), (4.0, "99.99 %"), (5.0, "99.999 %")];
/// Between them the curves are looked at so often.
const STEP: f64 = 0.125;

/// Prints what each of the three says, and writes the picture.
pub(crate) fn run() {
    let paced = against_a_stall(&["--rate", &RATE.to_string()]);
    let closed = against_a_stall(&[]);
    let sides = [
        ("closed loop", &closed.histograms["all"]),
        ("open, from the send", &paced.histograms["service"]),
        ("open, from when due", &paced.histograms["all"]),
    ];
    println!(
        "a server frozen for {STALL_SECS} of {RUN_SECS} s; {CLIENTS} connections, {RATE} requests per second where paced"
    );
    println!("| seen as | requests | over 100 ms | p50 | p90 | p99 | p99.9 |");
    for (name, buckets) in sides {
        let count: u64 = buckets.iter().map(|[.., count]| count).sum();
        let late: u64 =
            buckets.iter().filter(|[from, ..]| *from > 100_000_000).map(|[.., count]| count).sum();
        let at = |nines: f64| ms(at_quantile(buckets, nines));
        println!("| {name} | {count} | {late} | {} | {} | {} | {} |", at(0.301), at(1.0), at(2.0), at(3.0));
    }
    let expected = RATE * (STALL_SECS - 0.1);
    println!("requests due in the stall more than 100 ms before its end: {expected:.0}");
    let picture = picture(&sides);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/method/stall.svg");
    let written = fs::create_dir_all(path.parent().expect("it has one"))
        .and_then(|()| fs::write(&path, plot::svg(picture)));
    written.expect("docs/ can be written");
    println!("written: docs/method/stall.svg");
    memory();
}

/// What `weir load` says of a server that freezes.
fn against_a_stall(args: &[&str]) -> LoadReport {
    let stall = [(RUN_SECS - STALL_SECS) / 2.0, STALL_SECS].map(Duration::from_secs_f64);
    let options = Options { delay: Duration::from_millis(1), stall: Some(stall), ..Options::default() };
    let (responder, url) = responder(options);
    let window = format!("{RUN_SECS}s");
    let usual = ["--clients", CLIENTS, "--warmup", "0s", "--window", &window, "--no-preload", "--histogram"];
    let report = load(&url, &[&usual[..], args].concat());
    responder.stop().expect("it says what it did");
    report
}

fn responder(options: Options) -> (Responder, String) {
    let responder = Responder::start(options, Some(SERVER_CORE)).expect("the responder starts");
    let url = format!("http://{}", responder.address);
    (responder, url)
}

/// The latency in nanoseconds that all but one of 10^`nines` requests stayed below.
fn at_quantile(buckets: &[Bucket], nines: f64) -> f64 {
    let count: u64 = buckets.iter().map(|[.., count]| count).sum();
    let wanted = (count as f64 * (1.0 - 10f64.powf(-nines))).ceil().max(1.0) as u64;
    let mut below = 0;
    for [from, to, count] in buckets {
        below += count;
        if below >= wanted {
            return (*from as f64 + *to as f64) / 2.0;
        }
    }
    0.0
}

fn picture(sides: &[(&'static str, &Vec<Bucket>)]) -> Picture {
    let line = |&(label, buckets): &(&'static str, &Vec<Bucket>)| -> Line {
        let count: u64 = buckets.iter().map(|[.., count]| count).sum();
        // Beyond one request of all there is nothing to see.
        let most = (count as f64).log10().min(5.0);
        let places = (0..).map(|step| NINES[0].0 + f64::from(step) * STEP).take_while(|nines| *nines <= most);
        let point = |nines| Point::new(10f64.powf(nines), at_quantile(buckets, nines) / 1e6);
        (label, places.map(point).collect())
    };
    Picture {
        name: "stall",
        about: "Latency by percentile of a server that froze for 2 of 20 seconds, seen by a closed loop, by an open loop \
                from the send, and by an open loop from when each request was due",
        axis: "percentile",
        levels: NINES.iter().map(|(nines, label)| (10f64.powf(*nines), (*label).to_owned())).collect(),
        panels: vec![panel(
            format!("latency in ms of a server frozen for {STALL_SECS} of {RUN_SECS} s"),
            Scale::Log,
            |value| value.to_string(),
            sides.iter().map(line).collect(),
        )],
    }
}

fn ms(ns: f64) -> String {
    format!("{:.2} ms", ns / 1e6)
}

/// Prints how much memory a run needs, and one ten times as long.
fn memory() {
    let (responder, url) = responder(Options::default());
    let peaks: Vec<String> = [2, 20].iter().map(|secs| peak(&url, *secs)).collect();
    responder.stop().expect("it says what it did");
    println!("memory of weir load: {}", peaks.join("; "));
}

/// The most memory a closed loop of so many seconds had, in words.
fn peak(url: &str, secs: u32) -> String {
    let mut command = on_core(LOAD_CORE, weir());
    let window = format!("{secs}s");
    command.args([
        "load",
        url,
        "--clients",
        "64",
        "--warmup",
        "0s",
        "--window",
        &window,
        "--no-preload",
        "--json",
    ]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the load generator starts");
    let status = format!("/proc/{}/status", child.id());
    let mut kib = 0;
    while child.try_wait().expect("it can be waited for").is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(kib);
        thread::sleep(Duration::from_millis(5));
    }
    let report: LoadReport =
        serde_json::from_reader(child.stdout.take().expect("a pipe was asked for")).expect("it reports");
    format!("{kib} KiB at most in {secs} s and {} requests", report.attempts)
}
