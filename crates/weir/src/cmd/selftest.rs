//! `weir selftest`: checks the accuracy of the load generator on this machine, and prints a line per check as it is done.

use super::{say, say_json};
use kv::Error;
use kv::proto::{AccuracyCheck, CheckOutcome};
use lab_data::distinct;
use load_accuracy::{CHECKS, Cores, Options};
use std::fmt::Write;
use std::path::PathBuf;

/// Check the accuracy of the load generator on this machine.
///
/// A test server adds known delays, a stall and faults; `weir load` must report them. Takes about a minute. Exits with 1 if a check fails.
#[derive(clap::Args)]
#[command(after_help = checks_help())]
pub(crate) struct Args {
    /// Shorter: 5 to 15 s
    #[arg(long)]
    short: bool,

    /// Over TLS
    #[arg(long)]
    tls: bool,

    /// Over HTTP/2 instead of HTTP/1.1
    #[arg(long)]
    http2: bool,

    /// Only these checks, as in delay,faults
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = CHECKS.iter().map(|row| row.name).collect::<Vec<_>>())]
    checks: Vec<String>,

    /// The cores of load generator and test server, as in 1,0 [default: the two with the highest numbers]
    #[arg(long, value_name = "GENERATOR,SERVER", value_parser = cores)]
    cores: Option<Cores>,

    /// Print the report as one JSON document
    #[arg(long)]
    json: bool,

    /// Another load generator to check, with the same flags and the same report
    #[arg(long, value_name = "PROGRAM", hide = true)]
    load: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    let weir = std::env::current_exe()
        .map_err(|error| Error::new(format_args!("cannot find this program's own file: {error}")))?;
    let options = Options {
        load: args.load.unwrap_or(weir),
        cores: args.cores.or_else(Cores::usual),
        short: args.short,
        tls: args.tls,
        http2: args.http2,
        checks: args.checks,
    };
    let report = load_accuracy::run(&options, &mut |check| {
        if !args.json {
            say(line(check));
        }
    });
    if args.json {
        say_json(&report)?;
    } else {
        let passed = report.with(CheckOutcome::Pass).len();
        say(format_args!("{passed} of {} checks passed in {:.1} s", report.checks.len(), report.secs));
    }
    let outcomes = [(CheckOutcome::Fail, "checks that fail"), (CheckOutcome::NotChecked, "not checked")];
    let wrong = outcomes.map(|(outcome, text)| (report.with(outcome).join(", "), text)).into_iter();
    let wrong = wrong.filter(|(names, _)| !names.is_empty()).map(|(names, text)| format!("{text}: {names}"));
    let wrong: Vec<String> = wrong.collect();
    if wrong.is_empty() {
        return Ok(());
    }
    let remedies = report.checks.iter().map(load_accuracy::remedy).filter(|remedy| !remedy.is_empty());
    Err(Error::new(wrong.join("; ")).hint(distinct(remedies).join("; ")))
}

fn line(check: &AccuracyCheck) -> String {
    let AccuracyCheck { name, outcome, measured, bound, .. } = check;
    format!("{name:<6} {}{}: {measured}; bound: {bound}", outcome.name(), check.at_try())
}

fn cores(text: &str) -> Result<Cores, String> {
    let parsed = text
        .split_once(',')
        .and_then(|(generator, responder)| Some((generator.parse().ok()?, responder.parse().ok()?)));
    let (generator, responder): (usize, usize) = parsed.ok_or("write two numbers of cores, as in 1,0")?;
    let there = kv::cores::available().unwrap_or_default();
    if let Some(none) = [generator, responder].iter().find(|core| !there.contains(core)) {
        let there: Vec<String> = there.iter().map(usize::to_string).collect();
        return Err(format!("this process may not run on core {none}, only on {}", there.join(", ")));
    }
    Ok(Cores { generator, responder })
}

fn checks_help() -> String {
    let mut text = String::from("Checks:");
    for row in CHECKS {
        let _ = write!(text, "\n  {:<6} {}", row.name, row.about);
    }
    text
}
