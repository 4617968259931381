//! What the compiler does not check: files open with their purpose, and nothing but the command line prints.
//!
//! Reads the sources as text. Comments do not count, nor do the tests of a module (`mod tests`, `tests.rs`).

use lab_data::experiment::Experiment;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where nothing is excepted.
const NO_FOLDER: &str = "\n";

/// What no file may contain, but those in the folder named.
const NOWHERE: &[(&str, &str)] = &[
    ("println!(", NO_FOLDER),
    ("print!(", NO_FOLDER),
    ("io::stdout()", "crates/weir/"),
    ("io::stderr()", "crates/weir/"),
    ("process::exit", NO_FOLDER),
    ("process::abort", NO_FOLDER),
    ("unsafe", NO_FOLDER),
];

/// Where the sources are, seen from the folder that tests run in.
const CRATES: &str = "../../crates";

/// Longest file, in lines; those that may be longer, and why.
const LINES_MAX: usize = 650;
const LONG: &[(&str, &str)] =
    &[("../../crates/weir/tests/it/serve.rs", "one subject, and a table of wrong requests")];

struct Source {
    /// As in `src/lab/report/mod.rs`.
    path: String,
    text: String,
    /// The text without comments and tests.
    code: String,
}

fn sources(folder: &str) -> Vec<Source> {
    let mut paths = Vec::new();
    walk(Path::new(folder), &mut paths);
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    assert!(!paths.is_empty());
    paths.iter().map(|path| source(path)).collect()
}

fn source(path: &Path) -> Source {
    let text = fs::read_to_string(path).unwrap();
    let tests = text.match_indices("#[cfg(test)]\n").find(|(at, found)| {
        let item = text[at + found.len()..].lines().next().unwrap_or_default();
        item.ends_with("mod tests {")
    });
    let code = &text[..tests.map_or(text.len(), |(at, _)| at)];
    let code = if path.ends_with("tests.rs") { "" } else { code };
    let code = code.lines().map(|line| match line.trim_start().starts_with("//") {
        true => "",
        false => line.split(" // ").next().unwrap_or_default(),
    });
    Source { path: path.to_str().unwrap().to_owned(), code: code.collect::<Vec<_>>().join("\n"), text }
}

/// Files below `folder`, in order; what git ignores is left out.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    let ignored = fs::read_to_string("../../.gitignore").unwrap();
    let ignored: BTreeSet<&str> = ignored.lines().map(|line| line.trim_matches('/')).collect();
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        match path.is_dir() {
            _ if ignored.contains(name.as_str()) || name == ".git" || name == "target" => {}
            true => walk(&path, files),
            false => files.push(path.strip_prefix("./").map_or(path.clone(), Path::to_path_buf)),
        }
    }
}

#[test]
fn nothing_prints_or_ends_the_process_but_the_command_line() {
    let mut wrong = Vec::new();
    for source in sources(CRATES).iter().filter(|source| source.path.contains("/src/")) {
        let is_here = |(what, but): &&(&str, &str)| source.code.contains(what) && !source.path.contains(but);
        for (what, _) in NOWHERE.iter().filter(is_here) {
            wrong.push(format!("{}: `{what}`", source.path));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_opens_with_its_purpose_and_is_no_longer_than_it_may() {
    let mut wrong = Vec::new();
    for source in sources(CRATES) {
        let lines = source.text.lines().count();
        if !source.text.starts_with("//! ") {
            wrong.push(format!("{} does not open with //!", source.path));
        }
        if lines > LINES_MAX && !LONG.iter().any(|(path, _)| *path == source.path) {
            wrong.push(format!("{} has {lines} lines; {LINES_MAX} are the most", source.path));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_experiment_is_one() {
    let mut files = Vec::new();
    walk(Path::new("../../experiments"), &mut files);
    // Published tables lie beside the experiments that name them.
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    assert!(!files.is_empty());
    for path in files {
        let experiment = Experiment::parse(&fs::read_to_string(&path).unwrap());
        let experiment = experiment.unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        experiment.check().unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    }
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    // Spelled in two parts: this file is read, too.
    let machine = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let mut files = Vec::new();
    walk(Path::new("../.."), &mut files);
    assert!(files.iter().any(|path| path.ends_with("Cargo.lock")));
    let mut wrong = Vec::new();
    for path in &files {
        // What is not text has no paths that anybody wrote.
        let Ok(text) = fs::read_to_string(path) else { continue };
        for (number, line) in text.lines().enumerate() {
            if machine.iter().any(|part| line.contains(part)) {
                wrong.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
            let index = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
            if path.ends_with("Cargo.lock") && line.starts_with("source = ") && line != index {
                wrong.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
        if path.starts_with("../../.cargo") && ["[source", "[registr"].iter().any(|key| text.contains(key)) {
            wrong.push(format!("{}: where crates come from is each machine's own matter", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
