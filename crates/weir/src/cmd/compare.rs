//! `weir compare`: two sets of results beside each other, or all targets of one run.
//!
//! Finds the results and writes what is said of them; what that is, is decided in the analysis.

use super::{report, say, say_document};
use kv::Error;
use lab_analysis::{Comparison, compare};
use lab_data::results::Results;
use lab_report::compare::{render, text};
use std::path::{Path, PathBuf};

/// Compare results: goodput, processor time and latency, their ratios, and which differences are significant.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Results of `weir lab`: a directory or its results.json. Without OTHER, the targets of this run are compared with each other
    first: PathBuf,
    /// Results to compare with the first
    other: Option<PathBuf>,
    /// Also write compare.html, compare.md and compare.svg there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print the comparison as one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    let comparison = match &args.other {
        Some(other) => compare(&[&report::read(&args.first)?, &report::read(other)?])?,
        None => of_run(&args.first)?,
    };
    let page = args.out.as_deref().map(|out| write(&comparison, out)).transpose()?;
    if args.json {
        return say_document(&comparison);
    }
    say(text(&comparison));
    if let Some(page) = page {
        say(format_args!("\ncomparison: {}", page.display()));
    }
    Ok(())
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
