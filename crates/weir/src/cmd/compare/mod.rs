//! `weir compare`: two sets of results beside each other, all targets of one run, or two services in turns.
//!
//! Finds the results and writes what is said of them; what that is, is decided in the analysis.

mod pairs;

use super::{check_writable, complain, report, say, say_document, write_file};
use kv::units::short;
use kv::{Error, escaped};
use lab_analysis::compare::{Gate, gate};
use lab_analysis::{Comparison, compare};
use lab_data::results::Results;
use lab_report::compare::{gate_headline, gate_junit, gate_markdown, gate_remedy, gate_text, render, text};
use pairs::Pairs;
use std::path::{Path, PathBuf};

/// A loss that is looked for where the flags name none.
const MARGIN: f64 = 0.05;

/// Compare two runs, or measure two services in turns, and say which is slower.
#[derive(clap::Args)]
#[command(
    override_usage = "weir compare [OPTIONS] BASE [NEW]\n       weir compare [OPTIONS] --command BASE --command NEW [-- FLAGS]\n       \
                            weir compare [OPTIONS] --url BASE --url NEW [-- FLAGS]"
)]
pub(crate) struct Args {
    /// Results of `weir lab`: a directory or its results.json. Without NEW, the targets of this run are compared
    #[arg(conflicts_with_all = ["time", "clients", "warmup", "window", "flags"])]
    base: Option<PathBuf>,
    /// Results to compare with the first
    new: Option<PathBuf>,
    /// Exit with 3 if NEW is slower: the whole 95 % interval of the loss is above 0, and its upper end is at least this share. With 5%, the interval 1–6 % exits
    /// with 3, and 1–4 % does not. A loss is lower goodput, more CPU per request, or a higher p50 or p99 latency. Exit with 3 also if significantly more requests to NEW fail
    #[arg(long, value_name = "SHARE", value_parser = share)]
    fail_if_slower: Option<f64>,
    /// Write the verdicts in JUnit's XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the verdicts as Markdown, for a pull request
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the report of the comparison there [default with two services: weir-results/compare-DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the comparison as one JSON document
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pairs: Pairs,
}

/// The comparison, and the verdicts where they were asked for.
#[derive(serde::Serialize)]
struct Judged<'c> {
    #[serde(flatten)]
    comparison: &'c Comparison,
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<&'c Gate>,
}

fn share(text: &str) -> Result<f64, Error> {
    let number = text
        .trim()
        .strip_suffix('%')
        .map_or(text.parse(), |percent| percent.trim().parse().map(|percent: f64| percent / 100.0));
    match number {
        Ok(share) if share >= 1.0 && share.is_finite() && !text.contains('%') => {
            Err(Error::input(format_args!("`{text}` would be {} %", short(share * 100.0)))
                .hint(format_args!("write {}%", text.trim())))
        }
        Ok(share) if share > 0.0 && share < 10.0 => Ok(share),
        _ => Err(Error::input(format_args!("`{text}` is no share")).hint("write it as in 5% or 0.05")),
    }
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    let margin = args.fail_if_slower.unwrap_or(MARGIN);
    // What cannot be written is told before anything is measured.
    [&args.junit, &args.markdown].into_iter().flatten().try_for_each(|path| check_writable(path))?;
    let write_asked =
        |path: &Option<PathBuf>, text: String| path.iter().try_for_each(|path| write_file(path, &text));
    let (comparison, dir) = compared(&args, margin).inspect_err(|why| {
        // What a run before wrote would be taken for its outcome.
        let written = write_asked(&args.junit, junit_of_error(why));
        let all = [written, write_asked(&args.markdown, format!("{why}\n"))];
        all.iter().filter_map(|written| written.as_ref().err()).for_each(complain);
    })?;
    // If it cannot be written, the verdicts are, before that ends the run.
    let page = dir.as_deref().map(|out| write(&comparison, out)).transpose();
    let is_judged = args.fail_if_slower.is_some()
        || args.junit.is_some()
        || args.markdown.is_some()
        || args.pairs.is_asked();
    let gate = is_judged.then(|| gate(&comparison, margin));
    if let Some(gate) = &gate {
        write_asked(&args.junit, gate_junit(&comparison, gate))?;
        write_asked(&args.markdown, gate_markdown(&comparison, gate))?;
    }
    let page = page?;
    match &gate {
        _ if args.json => say_document(&Judged { comparison: &comparison, gate: gate.as_ref() })?,
        Some(gate) => say(gate_text(&comparison, gate)),
        None => say(text(&comparison)),
    }
    if let Some(page) = page.filter(|_| !args.json) {
        say(format_args!("\ncomparison: {}", page.display()));
    }
    match gate {
        Some(gate) if args.fail_if_slower.is_some() && gate.regressions().next().is_some() => {
            Err(Error::unmet(gate_headline(&gate)))
        }
        // A gate that compares nothing must not look green.
        Some(gate)
            if !gate.says_something() || args.fail_if_slower.is_some() && !gate.not_compared.is_empty() =>
        {
            Err(Error::new(gate_headline(&gate)).hint(gate_remedy(&gate)))
        }
        _ => Ok(()),
    }
}

/// What is asked for, compared, and where its report goes.
fn compared(args: &Args, margin: f64) -> Result<(Comparison, Option<PathBuf>), Error> {
    Ok(match (&args.base, &args.new) {
        (Some(_), _) if args.pairs.is_asked() => {
            return Err(Error::input("BASE and --command or --url are given; both say what to compare")
                .hint("name results, or services to be measured"));
        }
        (None, _) if args.pairs.is_asked() => {
            args.pairs.run(args.out.as_ref(), margin).map(|(comparison, dir)| (comparison, Some(dir)))?
        }
        (None, _) => {
            return Err(Error::input("there is nothing to compare")
                .hint("name two results directories, or two services: weir compare --url URL --url URL"));
        }
        (Some(base), _) if base.to_string_lossy().contains("://") => {
            return Err(Error::input(format_args!("{} is a URL, no results directory", base.display()))
                .hint("name services with flags: weir compare --url URL --url URL"));
        }
        (Some(base), Some(new)) => (compare(&[&report::read(base)?, &report::read(new)?])?, args.out.clone()),
        (Some(base), None) => (of_run(base)?, args.out.clone()),
    })
}

/// A comparison that failed, in the XML of JUnit.
fn junit_of_error(why: &Error) -> String {
    let counts = "tests=\"1\" failures=\"0\" errors=\"1\"";
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"weir compare\" {counts}>\n    \
         <testcase classname=\"weir compare\" name=\"comparison\"><error message=\"{}\"/></testcase>\n  </testsuite>\n</testsuites>\n",
        // In colours it is no XML.
        escaped(&why.to_string().replace(char::is_control, " "))
    )
}

/// Compares all targets of the run in `dir`, one directory each, with the first of them.
pub(crate) fn of_run(dir: &Path) -> Result<Comparison, Error> {
    const REMEDY: &str = "name the directory of a run of several targets, or two results directories";
    let shown = dir.display();
    let cannot = |error| Error::input(format_args!("cannot read {shown}: {error}")).hint(REMEDY);
    if dir.is_file() || dir.join("results.json").is_file() {
        // A file that holds no results at all has another fault.
        report::read(dir)?;
        return Err(Error::input(format_args!("{shown} holds the results of one target alone"))
            .hint("name a second results directory to compare it with"));
    }
    let below = report::below(dir).map_err(cannot)?;
    let mut all: Vec<Results> = below.iter().map(|path| report::read_file(path)).collect::<Result<_, _>>()?;
    let run = |of: &Results| (of.measured.as_ref().map(|of| of.among.clone()), of.started.clone());
    let strange = (all.iter().zip(&below)).find(|(of, _)| of.measured.is_none() || run(of) != run(&all[0]));
    if let Some((_, path)) = strange {
        let why = format!("{} is not of one run with the others in {shown}", path.display());
        return Err(Error::input(why).hint("compare results of different runs by two: weir compare A B"));
    }
    if all.len() < 2 {
        let what = if all.is_empty() { "no results" } else { "the results of one target alone" };
        return Err(Error::input(format_args!("{shown} holds {what}")).hint(REMEDY));
    }
    let among = run(&all[0]).0.unwrap_or_default();
    let is_of = |of: &Results, name: &String| of.measured.as_ref().is_some_and(|of| of.target == *name);
    all.sort_by_key(|of| among.iter().position(|name| is_of(of, name)));
    let mut comparison = compare(&all.iter().collect::<Vec<_>>())?;
    comparison.absent = among;
    comparison.absent.retain(|name| !all.iter().any(|of| is_of(of, name)));
    Ok(comparison)
}

/// Writes the files of a comparison into `dir`, which is made if it is not there; gives the path of `compare.html`.
pub(crate) fn write(comparison: &Comparison, dir: &Path) -> Result<PathBuf, Error> {
    report::write_files(dir, &render(comparison))?;
    Ok(dir.join("compare.html"))
}
