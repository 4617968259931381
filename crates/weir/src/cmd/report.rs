//! `weir report`: renders the report of a run again, without measuring.

use super::say;
use kv::Error;
use kv::proto::FORMAT;
use lab_data::results::Results;
use lab_report::{File, faults, render};
use serde_json::Value;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The report of a run with faults.
const FAULTS_FILE: &str = "faults.md";

/// Render the report of a lab run again from its results.json.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Directory of the run, or the results.json in it
    dir: PathBuf,
    /// Write the files there instead of beside results.json
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    let results = read(&args.dir)?;
    let dir = if args.dir.is_file() { args.dir.parent().unwrap_or(Path::new("")) } else { &args.dir };
    let page = write(args.out.as_deref().unwrap_or(dir), &results)?;
    say(page.display());
    Ok(())
}

/// Writes the files of the report into `dir`, which is made if it is not there; gives the path of the page to read.
pub(crate) fn write(dir: &Path, results: &Results) -> Result<PathBuf, Error> {
    // What a broken server can do is no bottleneck.
    if let Some(text) = faults(results) {
        write_files(dir, &[File { name: FAULTS_FILE.to_owned(), text }])?;
        return Ok(dir.join(FAULTS_FILE));
    }
    write_files(dir, &render(results))?;
    Ok(dir.join("report.html"))
}

/// Writes `files` into `dir`; it and what is below it is made where it is not there.
pub(crate) fn write_files(dir: &Path, files: &[File]) -> Result<(), Error> {
    const REMEDY: &str = "name a directory with --out, or a new one, where files may be written";
    let cannot = |what: &str, path: &Path, error: io::Error| {
        Error::new(format_args!("cannot {what} {}: {error}", path.display())).hint(REMEDY)
    };
    for file in files {
        let path = dir.join(&file.name);
        let parent = path.parent().unwrap_or(dir);
        fs::create_dir_all(parent).map_err(|error| cannot("make", parent, error))?;
        fs::write(&path, &file.text).map_err(|error| cannot("write", &path, error))?;
    }
    Ok(())
}

/// Reads the results of a run: from its directory, or the file in it.
pub(crate) fn read(path: &Path) -> Result<Results, Error> {
    if path.is_file() {
        return read_file(path);
    }
    let file = path.join("results.json");
    let targets = if file.exists() { Vec::new() } else { below(path).unwrap_or_default() };
    let Some(target) = targets.first().and_then(|target| target.parent()) else { return read_file(&file) };
    let (shown, target) = (path.display(), target.display());
    Err(Error::input(format_args!("the results in {shown} are in directories below it")).hint(format_args!(
        "name one, as {target}; `weir compare` takes two, or {shown} if all are of one run"
    )))
}

/// The results of each target of the run in `dir`, by name.
pub(super) fn below(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(dir)?.map(|entry| Ok(entry?.path().join("results.json")));
    let mut below: Vec<PathBuf> = paths.collect::<io::Result<_>>()?;
    below.retain(|path| path.is_file());
    below.sort();
    Ok(below)
}

/// Reads the results of a run from a file.
pub(crate) fn read_file(path: &Path) -> Result<Results, Error> {
    const REMEDY: &str = "name the directory that `weir lab` wrote";
    let shown = path.display();
    let bytes = fs::read(path).map_err(|error| {
        let failure = Error::input(format_args!("cannot read {shown}: {error}"));
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => failure.hint(REMEDY),
            _ => failure,
        }
    })?;
    let wrong = |what: String, hint: &str| Error::input(format_args!("{shown} {what}")).hint(hint);
    let json: Value = serde_json::from_slice(&bytes).map_err(|error| match error.is_eof() {
        true => wrong("ends in the middle".to_owned(), "measure again: it was cut off"),
        false => wrong(format!("is not JSON: {error}"), REMEDY),
    })?;
    // Ask for the version before the shape: a newer file may well have another one.
    match json.get("format").and_then(Value::as_u64) {
        Some(format) if format > u64::from(FORMAT) => {
            let what = format!("has format {format}, and this weir knows formats up to {FORMAT}");
            Err(wrong(what, "use the weir that measured, or a newer one"))
        }
        _ => serde_json::from_value(json)
            .map_err(|error| wrong(format!("does not hold the results of a lab run: {error}"), REMEDY)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(content: Option<&str>) -> String {
        let dir = tempfile::tempdir().unwrap();
        if let Some(content) = content {
            fs::write(dir.path().join("results.json"), content).unwrap();
        }
        let failure = read(dir.path()).unwrap_err();
        let message = failure.to_string();
        assert!(!message.contains('\n') && message.contains("results.json"));
        message
    }

    #[test]
    fn a_run_is_rendered_from_its_results_alone() {
        let model = lab_data::simulated::tests::model("cpu 1 =1ms");
        let results = lab_data::simulated::tests::sweep(&model, &["get"], &[1, 2], 1, "100ms");
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("results.json"), serde_json::to_vec(&results).unwrap()).unwrap();
        let out = dir.path().join("made/on/the/way");
        let page = write(&out, &read(dir.path()).unwrap()).unwrap();
        assert!(page.is_file() && out.join("plots/get.svg").is_file());
    }

    /// It was rendered as if nothing had been broken.
    #[test]
    fn a_run_with_faults_has_the_report_of_its_faults_and_no_other() {
        let model = lab_data::simulated::tests::model("cpu 1 =1ms");
        let mut results = lab_data::simulated::tests::sweep(&model, &["get"], &[1, 2], 1, "100ms");
        results.trials[0].faults.push(lab_data::results::FaultRecord::default());
        let dir = tempfile::tempdir().unwrap();
        let page = write(dir.path(), &results).unwrap();
        assert_eq!(page, dir.path().join("faults.md"));
        assert!(page.is_file() && !dir.path().join("report.html").exists());
    }

    #[test]
    fn what_cannot_be_read_is_one_line() {
        for (content, said) in [
            (None, "`weir lab`"),
            (Some("{"), "ends in the middle"),
            (Some("}"), "is not JSON"),
            (Some("[]"), "does not hold the results"),
            (Some("{\"format\": 1}"), "missing field"),
            (Some("{\"format\": 99, \"new\": {}}"), "has format 99"),
        ] {
            let message = refused(content);
            assert!(message.contains(said), "{message}");
        }
    }
}
