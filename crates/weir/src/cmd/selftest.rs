//! `weir selftest`: tests on this machine what the load generator claims of itself, a line per claim as it is known.

use super::{Failure, say};
use kv::proto::Claim;
use load_accuracy::{CLAIMS, Cores, Options, Programs};
use std::fmt::Write;
use std::path::PathBuf;

/// Test on this machine what the load generator claims of itself, against a responder that keeps account of its own.
///
/// Imposes delays, a stall and faults at known counts, and compares them with what `weir load` reports. Takes less than a minute; ends with 1
/// if a claim does not hold.
#[derive(clap::Args)]
#[command(after_help = claims_help())]
pub(crate) struct Args {
    /// Fewer and shorter runs, a few seconds in all
    #[arg(long)]
    short: bool,

    /// Only these claims, as in T2,T5
    #[arg(long, value_name = "ID,…", value_delimiter = ',', value_parser = claim)]
    claims: Vec<String>,

    /// The cores of load generator and responder, as in 1,0 [default: the last and the last but one there are]
    #[arg(long, value_name = "GENERATOR,RESPONDER", value_parser = cores)]
    cores: Option<Cores>,

    /// Print what was found as one JSON document
    #[arg(long)]
    json: bool,

    /// Another load generator to test, with the same flags and the same report
    #[arg(long, value_name = "PROGRAM", hide = true)]
    load: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let weir = std::env::current_exe()
        .map_err(|error| Failure::run(format_args!("cannot find this program's own file: {error}")))?;
    let options = Options {
        programs: Programs {
            load: args.load.unwrap_or_else(|| weir.clone()),
            weir,
            cores: args.cores.or_else(Cores::usual),
        },
        short: args.short,
        claims: args.claims,
    };
    let report = load_accuracy::run(&options, &mut |claim| {
        if !args.json {
            say(line(claim));
        }
    });
    if args.json {
        let text = serde_json::to_string(&report)
            .map_err(|error| Failure::run(format_args!("cannot write the report as JSON: {error}")))?;
        say(text);
    } else {
        let held = report.claims.iter().filter(|claim| claim.passed).count();
        say(format_args!("{held} of {} claims hold here; {:.1} s", report.claims.len(), report.secs));
    }
    let failed: Vec<&str> =
        report.claims.iter().filter(|claim| !claim.passed).map(|claim| claim.id.as_str()).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let remedies = report.claims.iter().filter(|claim| !claim.passed).map(load_accuracy::remedy);
    // Each once, in the order of the claims.
    let mut hints: Vec<&str> = Vec::new();
    for remedy in remedies {
        if !hints.contains(&remedy) {
            hints.push(remedy);
        }
    }
    let message = format_args!("the load generator's {} does not hold here", failed.join(", ")).to_string();
    Err(Failure::run(message).hint(hints.join("; ")))
}

fn line(claim: &Claim) -> String {
    let Claim { id, name, measured, bound, .. } = claim;
    let tries = match claim.figures.get("tries") {
        Some(tries) if *tries > 1.0 => format!(" at try {tries}"),
        _ => String::new(),
    };
    let verdict = if claim.passed { "ok" } else { "FAILED" };
    format!("{id} {name:<8} {verdict}{tries}: {measured}; bound: {bound}")
}

fn claim(text: &str) -> Result<String, String> {
    let known: Vec<&str> = CLAIMS.iter().map(|row| row.id).collect();
    known
        .iter()
        .find(|id| id.eq_ignore_ascii_case(text))
        .map(|id| (*id).to_owned())
        .ok_or_else(|| format!("known are {}", known.join(", ")))
}

fn cores(text: &str) -> Result<Cores, String> {
    let parsed = text
        .split_once(',')
        .and_then(|(generator, responder)| Some((generator.parse().ok()?, responder.parse().ok()?)));
    let (generator, responder): (usize, usize) = parsed.ok_or("write two numbers of cores, as in 1,0")?;
    let there = Cores::available();
    if let Some(none) = [generator, responder].iter().find(|core| !there.contains(core)) {
        let there: Vec<String> = there.iter().map(usize::to_string).collect();
        return Err(format!("this process may not run on core {none}, only on {}", there.join(", ")));
    }
    Ok(Cores { generator, responder })
}

fn claims_help() -> String {
    let mut text = String::from("Claims:");
    for row in CLAIMS {
        let _ = write!(text, "\n  {} {:<8} {}", row.id, row.name, row.about);
    }
    text
}
