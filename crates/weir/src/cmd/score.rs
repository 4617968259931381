//! `weir score`: how often the lab's verdicts are right on targets whose limit was imposed.
//!
//! Finds the results and reads which cases they are; what is right is decided in the analysis.

use super::{report, say};
use kv::Error;
use kv::proto::FORMAT;
use lab_analysis::score::{Class, Imposed, Run, Score, Split, score};
use lab_data::experiment::{self, Expected, Experiment};
use lab_data::results::Results;
use lab_report::score::{markdown, text};
use lab_run::harness::RESULTS_FILE;
use serde::Serialize;
use std::fs;
use std::path::{Path, PathBuf};

/// Score the lab's verdicts on targets whose limit was imposed: how many are right, and how many by the highest utilization alone.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where results of `weir lab` are, at any depth; those of experiments without [[truth.case]] are passed over
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Also write the score there, as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Print the score as one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    let mut found = Vec::new();
    for dir in &args.dirs {
        let cannot = |error| {
            Error::input(format_args!("cannot read {}: {error}", dir.display()))
                .hint("name directories that `weir lab --out` wrote into")
        };
        below(dir, &mut found).map_err(cannot)?;
    }
    found.sort();
    found.dedup();
    let runs = runs(&found)?;
    if runs.is_empty() {
        let dirs: Vec<String> = args.dirs.iter().map(|dir| dir.display().to_string()).collect();
        return Err(Error::input(format_args!("no results with a known limit below {}", dirs.join(", ")))
            .hint("measure some first: weir lab experiments/truth/server-cpu.toml --out weir-results/truth/server-cpu"));
    }
    let score = score(&runs);
    if let Some(path) = &args.markdown {
        fs::write(path, markdown(&score)).map_err(|error| {
            Error::new(format_args!("cannot write {}: {error}", path.display()))
                .hint("name a file in a directory where files may be written")
        })?;
    }
    match args.json {
        true => say(json(&score)?),
        false => say(text(&score)),
    }
    match score.shortcomings() {
        none if none.is_empty() => Ok(()),
        shortcomings => Err(Error::new(shortcomings.join("; "))),
    }
}

/// Every results.json below `dir`, appended to `found`.
fn below(dir: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()? {
            kind if kind.is_dir() => below(&entry.path(), found)?,
            kind if kind.is_file() && entry.file_name() == RESULTS_FILE => found.push(entry.path()),
            _ => {}
        }
    }
    Ok(())
}

/// The results in `paths` that have cases, those of one run together, in the order of the paths.
fn runs(paths: &[PathBuf]) -> Result<Vec<Run>, Error> {
    let mut runs: Vec<Run> = Vec::new();
    for path in paths {
        let results = report::read_file(path)?;
        let cases =
            cases(&results.experiment_toml).map_err(|why| why.at(format_args!("{}", path.display())))?;
        if cases.is_empty() {
            continue;
        }
        let is_same = |run: &&mut Run| run.results.first().is_some_and(|first| of_one_run(first, &results));
        match runs.iter_mut().find(is_same) {
            Some(run) => run.results.push(results),
            None => runs.push(Run { name: results.name.clone(), cases, results: vec![results] }),
        }
    }
    Ok(runs)
}

/// The cases of an experiment file; none where it has none.
fn cases(toml: &str) -> Result<Vec<Imposed>, Error> {
    // What else is in a file without cases may be of another version.
    if !toml.parse::<toml::Table>().is_ok_and(|file| file.contains_key("truth")) {
        return Ok(Vec::new());
    }
    let truth = Experiment::parse(toml)?.truth.unwrap_or_default();
    let imposed = |case: experiment::Case| {
        Ok(Imposed {
            expect: match Expected::parse(&case.expect)? {
                Expected::Nothing => Class::None,
                Expected::FastFail => Class::FastFail,
                Expected::Limits(limits) => Class::of_limits(limits),
            },
            split: match case.split {
                experiment::Split::Tune => Split::Tune,
                experiment::Split::HeldOut => Split::HeldOut,
            },
            target: case.target,
            workload: case.workload,
            severity: case.severity,
            reference: case.reference,
        })
    };
    truth.cases.into_iter().map(imposed).collect()
}

/// Whether both are targets that one command measured.
fn of_one_run(a: &Results, b: &Results) -> bool {
    let run = |of: &Results| (of.started.clone(), of.command.clone(), of.experiment_toml.clone());
    a.measured.is_some() && run(a) == run(b)
}

/// The document for programs.
#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    #[serde(flatten)]
    score: &'a Score,
}

fn json(score: &Score) -> Result<String, Error> {
    serde_json::to_string(&Document { format: FORMAT, score })
        .map_err(|error| Error::new(format_args!("cannot write the score as JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::results::Measured;
    use lab_data::simulated::tests::{model, sweep};

    const FILE: &str = r#"
name = "models"
title = "Two models"
levels = [1, 2, 4, 8, 16, 32]
repetitions = 1
warmup = "500ms"
window = "2s"
[[workload]]
name = "w"
[[target]]
name = "free"
kind = "simulated"
[[target.station]]
name = "cpu"
servers = 1
demand = "1ms"
[[target]]
name = "slow"
kind = "simulated"
[[target.station]]
name = "cpu"
servers = 1
demand = "4ms"
[[truth.case]]
target = "slow"
expect = "other"
severity = "4ms"
split = "held-out"
reference = "free"
"#;

    fn save(dir: &Path, name: &str, stations: &str, toml: &str) {
        let mut results = sweep(&model(stations), &["w"], &[1, 2, 4, 8, 16, 32], 1, "2s");
        results.experiment_toml = toml.to_owned();
        results.measured =
            Some(Measured { target: name.into(), durability: String::new(), among: Vec::new() });
        let dir = dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(RESULTS_FILE), serde_json::to_vec(&results).unwrap()).unwrap();
    }

    fn args(dir: &Path) -> Args {
        Args { dirs: vec![dir.to_owned()], markdown: Some(dir.join("score.md")), json: false }
    }

    #[test]
    fn results_of_one_run_are_found_at_any_depth_and_scored_together() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("truth/models");
        save(&run_dir, "free", "cpu 1 =1ms, net 0 =2ms", FILE);
        save(&run_dir, "slow", "cpu 1 =4ms, net 0 =2ms", FILE);
        let without = FILE.split("[[truth.case]]").next().unwrap();
        let older = format!("no_longer_known = 1\n{without}");
        save(&dir.path().join("others"), "slow", "cpu 1 =4ms", without);
        save(&dir.path().join("older"), "slow", "cpu 1 =4ms", &older);
        run(args(dir.path())).unwrap();
        let told = fs::read_to_string(dir.path().join("score.md")).unwrap();
        assert!(told.contains("| held-out | the lab | 1 | 1 |"), "{told}");
    }

    #[test]
    fn too_few_right_ones_fail_and_no_cases_are_the_callers_mistake() {
        let dir = tempfile::tempdir().unwrap();
        save(dir.path(), "free", "cpu 1 =1ms, net 0 =2ms", &FILE.replace("\"other\"", "\"commit path\""));
        save(dir.path(), "slow", "cpu 1 =4ms, net 0 =2ms", &FILE.replace("\"other\"", "\"commit path\""));
        let failure = run(args(dir.path())).unwrap_err();
        assert_eq!(
            (failure.is_input(), failure.to_string().as_str()),
            (false, "0 of 1 held-out cases right, fewer than 90 %")
        );
        let empty = tempfile::tempdir().unwrap();
        let failure = run(args(empty.path())).unwrap_err();
        assert!(failure.is_input() && failure.to_string().starts_with("no results with a known limit below"));
    }
}
