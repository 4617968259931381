//! `cargo xtask score`: how often the lab's verdicts are right on targets with an imposed limit.

mod judge;
mod page;
mod truth;

use crate::files_below;
use judge::{Run, judge, shortcomings};
use kv::Error;
use lab_data::results::Results;
use std::fs;
use std::path::PathBuf;

/// Score the lab's verdicts on targets with an imposed limit: how many are right, and how many by the highest utilization alone
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where results of `weir lab` are, at any depth; those of experiments without [[truth.case]] are skipped
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Also write the score there, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let mut found = Vec::new();
    for dir in &args.dirs {
        found.extend(files_below(dir).map_err(|error| {
            Error::input(format_args!("cannot read {}: {error}", dir.display()))
                .hint("name directories that `weir lab --out` wrote into")
        })?);
    }
    found.retain(|path| path.ends_with("results.json"));
    found.sort();
    found.dedup();
    let runs = runs(&found)?;
    if runs.is_empty() {
        let dirs: Vec<String> = args.dirs.iter().map(|dir| dir.display().to_string()).collect();
        return Err(Error::input(format_args!("no results with a known limit below {}", dirs.join(", ")))
            .hint("measure some first: weir lab experiments/truth/server-cpu.toml --out weir-results/truth/server-cpu"));
    }
    let cases = judge(&runs);
    let page = page::page(&cases);
    if let Some(path) = &args.markdown {
        fs::write(path, &page)
            .map_err(|error| Error::new(format_args!("cannot write {}: {error}", path.display())))?;
    }
    print!("{page}");
    match shortcomings(&cases) {
        none if none.is_empty() => Ok(()),
        shortcomings => Err(Error::new(shortcomings.join("; "))),
    }
}

/// The results in `paths` that have cases, those of one run together, in the order of the paths.
fn runs(paths: &[PathBuf]) -> Result<Vec<Run>, Error> {
    let mut runs: Vec<Run> = Vec::new();
    for path in paths {
        let unreadable = |why: String| Error::input(format_args!("cannot read {}: {why}", path.display()));
        let text = fs::read(path).map_err(|error| unreadable(error.to_string()))?;
        let results: Results =
            serde_json::from_slice(&text).map_err(|error| unreadable(error.to_string()))?;
        let cases = truth::cases(&results.experiment_toml).map_err(|why| why.at(path.display()))?;
        if cases.is_empty() {
            continue;
        }
        match runs.iter_mut().find(|run| of_one_run(&run.results[0], &results)) {
            Some(run) => run.results.push(results),
            None => runs.push(Run { name: results.name.clone(), cases, results: vec![results] }),
        }
    }
    Ok(runs)
}

/// Whether both are targets that one command measured.
fn of_one_run(a: &Results, b: &Results) -> bool {
    let run = |of: &Results| (of.started.clone(), of.command.clone(), of.experiment_toml.clone());
    a.measured.is_some() && run(a) == run(b)
}

#[cfg(test)]
mod tests;
