//! The rules of the house, held: who may import whom, what each room never knows, what is written where.
//!
//! Reads the sources as text. Comments do not count, nor do the tests of a module (`mod tests`, `tests.rs`): they may
//! look where they like.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use weir::cache::policy::POLICIES;
use weir::lab::analysis::{CAUSES, CHECKS, FIGURES, MEASURES, RULES, WAITS};
use weir::lab::experiment::{Experiment, KNOBS};
use weir::lab::report::{COLUMNS, PLOTS, WRITERS};
use weir::lab::sampler::SAMPLERS;
use weir::load::{DIALECTS, DISTRIBUTIONS, TURNS, WORKLOADS};
use weir::responder::KINDS;
use weir::selftest::CLAIMS;
use weir::server::FRONTS;
use weir::store::SCHEMES;
use weir::strain::STRAINS;

/// The floor plan: a room, and which others it may import. A room within a room has a row of its own where it may do
/// less than the one around it. `cmd` and `main` stand above all.
const ROOMS: &[(&str, &[&str])] = &[
    ("kv", &[]),
    ("units", &[]),
    ("counters", &[]),
    ("station", &[]),
    ("strain", &["units"]),
    ("proto", &["kv", "units"]),
    ("http1", &[]),
    ("cache", &["kv"]),
    ("store", &["kv", "units", "counters", "station", "strain"]),
    ("tiered", &["kv", "counters", "cache", "store"]),
    ("server", &["kv", "proto", "http1", "tiered", "counters", "station", "strain"]),
    ("load", &["kv", "proto", "http1", "units"]),
    (
        "lab",
        &["proto", "units", "lab::printed", "lab::results", "lab::analysis", "lab::report", "lab::simulated"],
    ),
    ("link", &["proto"]),
    ("responder", &["proto"]),
    ("selftest", &["proto", "units"]),
    ("lab::printed", &[]),
    ("lab::results", &["proto", "units", "lab::printed"]),
    ("lab::analysis", &["proto", "units", "lab::printed", "lab::results"]),
    ("lab::report", &["proto", "units", "lab::printed", "lab::results", "lab::analysis"]),
    ("lab::simulated", &["proto", "units", "lab::results"]),
    (
        "cmd",
        &[
            "kv",
            "units",
            "counters",
            "station",
            "strain",
            "proto",
            "http1",
            "cache",
            "store",
            "tiered",
            "server",
            "load",
            "link",
            "responder",
            "selftest",
            "lab",
            "lab::printed",
            "lab::results",
            "lab::analysis",
            "lab::report",
            "lab::simulated",
        ],
    ),
];

/// What has effects, or a clock: pure rooms mention none of it.
const EFFECTS: &[&str] = &[
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::thread",
    "SystemTime",
    "Instant",
    "tokio",
    ".await",
];

/// What a room never knows, beyond the rooms it does not import.
const ABSENCES: &[(&str, &[&str])] = &[
    ("kv", EFFECTS),
    ("units", EFFECTS),
    ("counters", EFFECTS),
    ("proto", EFFECTS),
    ("http1", EFFECTS),
    ("http1", &["std::io"]),
    ("cache", EFFECTS),
    ("store", &["http"]),
    ("tiered", &["http", "fjall", "postgres", "mysql"]),
    ("server", &["fjall", "postgres", "mysql"]),
    ("link", &["mio", "httparse", "tokio", "http"]),
    ("responder", &["mio", "httparse", "tokio"]),
    ("selftest", &["mio", "httparse", "tokio"]),
    ("lab::printed", EFFECTS),
    ("lab::results", EFFECTS),
    ("lab::analysis", EFFECTS),
    ("lab::report", EFFECTS),
    ("lab::simulated", EFFECTS),
];

/// Where nothing is excepted.
const NO_FOLDER: &str = "/";

/// What no file may contain, but those in the folder named.
const NOWHERE: &[(&str, &str)] = &[
    ("println!(", NO_FOLDER),
    ("print!(", NO_FOLDER),
    ("io::stdout()", "src/cmd/"),
    ("io::stderr()", "src/cmd/"),
    ("process::exit", NO_FOLDER),
    ("process::abort", NO_FOLDER),
    ("unsafe", NO_FOLDER),
];

/// Longest file, in lines; those that may be longer, and why.
const LINES_MAX: usize = 650;
const LONG: &[(&str, &str)] = &[("tests/it/serve.rs", "one subject, and a table of wrong requests")];

struct Source {
    /// As in `src/lab/report/mod.rs`.
    path: String,
    text: String,
    /// The text without comments and tests.
    code: String,
    /// As in `lab::report`; empty for `lib.rs` and `main.rs`.
    module: Vec<String>,
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
    let mut module: Vec<String> =
        path.with_extension("").iter().skip(1).map(|part| part.to_str().unwrap().to_owned()).collect();
    module.pop_if(|last| matches!(last.as_str(), "mod" | "lib" | "main"));
    Source {
        path: path.to_str().unwrap().to_owned(),
        code: code.collect::<Vec<_>>().join("\n"),
        text,
        module,
    }
}

/// Files below `folder`, in order; what git ignores is left out.
fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    let ignored = fs::read_to_string(".gitignore").unwrap();
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

/// The row of the floor plan that a module belongs to: the innermost.
fn room(module: &[String]) -> Option<&'static str> {
    let is_in = |room: &str| {
        let parts: Vec<&str> = room.split("::").collect();
        parts.len() <= module.len() && parts.iter().zip(module).all(|(part, name)| part == name)
    };
    ROOMS.iter().map(|(room, _)| *room).filter(|room| is_in(room)).max_by_key(|room| room.len())
}

/// What stands behind every `crate::` and `super::` of a file, as full module paths.
fn imports(source: &Source) -> Vec<Vec<String>> {
    let names = |path: &str| -> Vec<String> {
        let end = path.find(|sign: char| !(sign.is_alphanumeric() || matches!(sign, '_' | ':')));
        path[..end.unwrap_or(path.len())]
            .split("::")
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let mut found: Vec<Vec<String>> = source.code.split("crate::").skip(1).map(names).collect();
    let mut rest = source.code.as_str();
    while let Some(at) = rest.find("super::") {
        rest = &rest[at..];
        let mut levels = 0;
        while let Some(behind) = rest.strip_prefix("super::") {
            rest = behind;
            levels += 1;
        }
        let above = source.module.len().saturating_sub(levels);
        found.push([source.module[..above].to_vec(), names(rest)].concat());
    }
    found
}

#[test]
fn every_room_imports_only_what_the_floor_plan_allows() {
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for source in sources("src").iter().filter(|source| !source.module.is_empty()) {
        let path = &source.path;
        let Some(own) = room(&source.module) else {
            wrong.push(format!("{path} is in no room of the floor plan"));
            continue;
        };
        let (_, allowed) = ROOMS.iter().find(|(room, _)| *room == own).unwrap();
        for import in imports(source) {
            let Some(other) = room(&import) else {
                wrong.push(format!("{path}: `{}` names no room; one `use` for each", import.join("::")));
                continue;
            };
            used.insert((own, other));
            if other != own && !allowed.contains(&other) {
                wrong.push(format!("{path}: {own} may not import {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The reader of the sources can see: these are there.
    for known in [("server", "tiered"), ("lab::report", "lab::analysis"), ("tiered", "store")] {
        assert!(used.contains(&known), "{known:?}");
    }
    let main = source(Path::new("src/main.rs"));
    assert_eq!(
        main.code.matches("weir::").count(),
        main.code.matches("weir::cmd").count(),
        "main knows only cmd"
    );
}

#[test]
fn no_room_knows_what_it_should_not() {
    let mut wrong = Vec::new();
    for source in sources("src") {
        let own = room(&source.module);
        for (_, absent) in ABSENCES.iter().filter(|(room, _)| Some(*room) == own) {
            for what in absent.iter().filter(|what| source.code.contains(**what)) {
                wrong.push(format!("{}: {} never knows `{what}`", source.path, own.unwrap_or_default()));
            }
        }
        let is_here =
            |(what, but): &&(&str, &str)| source.code.contains(what) && !source.path.starts_with(but);
        for (what, _) in NOWHERE.iter().filter(is_here) {
            wrong.push(format!("{}: `{what}`", source.path));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_opens_with_its_purpose_and_is_no_longer_than_it_may() {
    let mut wrong = Vec::new();
    for source in ["src", "tests"].into_iter().flat_map(sources) {
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

/// A file without a `mod` row is not compiled, and so not tested.
#[test]
fn every_file_has_its_row() {
    let mut wrong = Vec::new();
    for (folder, top) in [("src", "src/lib.rs"), ("tests/it", "tests/it/main.rs")] {
        for source in sources(folder).iter().filter(|source| !matches!(&*source.path, "src/main.rs")) {
            let path = Path::new(&source.path);
            let (name, above) = match path.file_stem().unwrap().to_str().unwrap() {
                "mod" => (
                    path.parent().unwrap().file_name().unwrap().to_str().unwrap(),
                    path.parent().unwrap().parent(),
                ),
                name => (name, path.parent()),
            };
            let above = above.unwrap();
            let parent = if above == Path::new(folder) { PathBuf::from(top) } else { above.join("mod.rs") };
            if path == parent {
                continue;
            }
            let rows = fs::read_to_string(&parent).unwrap_or_default();
            let row = format!("mod {name};");
            if !rows.lines().any(|line| {
                line.strip_suffix(&row).is_some_and(|front| front.is_empty() || front.ends_with(' '))
            }) {
                wrong.push(format!("{} has no `{row}` in {}", source.path, parent.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_experiment_is_one() {
    let mut files = Vec::new();
    walk(Path::new("experiments"), &mut files);
    // Tables of printed rows lie beside the experiments that name them.
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    assert!(!files.is_empty());
    for path in files {
        let experiment = Experiment::parse(&fs::read_to_string(&path).unwrap());
        let experiment = experiment.unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        experiment.check().unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    }
}

#[test]
fn every_row_of_every_table_stands_in_the_reference() {
    let tables: &[(&str, Vec<&str>)] = &[
        ("POLICIES", POLICIES.iter().map(|row| row.name).collect()),
        ("FRONTS", FRONTS.iter().map(|row| row.name).collect()),
        ("STRAINS", STRAINS.iter().map(|row| row.name).collect()),
        ("SCHEMES", SCHEMES.iter().map(|row| row.prefix).collect()),
        ("WORKLOADS", WORKLOADS.iter().map(|row| row.name).collect()),
        ("TURNS", TURNS.iter().map(|(name, _)| *name).collect()),
        ("DIALECTS", DIALECTS.iter().map(|row| row.name).collect()),
        ("DISTRIBUTIONS", DISTRIBUTIONS.iter().map(|row| row.name).collect()),
        ("CLAIMS", CLAIMS.iter().flat_map(|row| [row.id, row.name]).collect()),
        ("KINDS", KINDS.iter().map(|row| row.name).collect()),
        ("KNOBS", KNOBS.iter().map(|row| row.name).collect()),
        ("SAMPLERS", SAMPLERS.iter().map(|row| row.name).collect()),
        ("CHECKS", CHECKS.iter().flat_map(|row| [row.id, row.name]).collect()),
        ("CAUSES", CAUSES.iter().map(|row| row.name).collect()),
        ("WAITS", WAITS.iter().map(|row| row.name).collect()),
        ("FIGURES", FIGURES.iter().map(|row| row.name).collect()),
        ("MEASURES", MEASURES.iter().map(|row| row.name).collect()),
        ("RULES", RULES.iter().map(|row| row.name).collect()),
        ("PLOTS", PLOTS.iter().map(|row| row.name).collect()),
        ("COLUMNS", COLUMNS.iter().map(|row| row.name).collect()),
        ("WRITERS", WRITERS.iter().map(|row| row.name).collect()),
    ];
    for (table, names) in tables {
        assert!(!names.is_empty() && names.iter().all(|name| !name.is_empty()), "{table}");
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{table} has a name twice");
    }
    let path = Path::new("docs/reference.md");
    let reference = fs::read_to_string(path).expect("docs/reference.md lists the rows of every table");
    let missing: Vec<String> = (tables.iter())
        .flat_map(|(table, names)| names.iter().map(move |name| (table, *name)))
        .filter(|(_, name)| !reference.contains(name))
        .map(|(table, name)| format!("{name} ({table})"))
        .collect();
    assert!(missing.is_empty(), "docs/reference.md lacks {}", missing.join(", "));
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    // Spelled in two parts: this file is read, too.
    let machine = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
    let mut files = Vec::new();
    walk(Path::new("."), &mut files);
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
        if path.starts_with(".cargo") {
            wrong.push(format!("{}: where crates come from is each machine's own matter", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
