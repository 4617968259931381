//! The reference and the code name the same things: what one has and the other lacks is an error.

use crate::support::weir;
use cache::policy::POLICIES;
use kv::faults::FAULTS;
use lab_analysis::{CAUSES, CHECKS, FIGURES, MEASURES, RULES, WAITS};
use lab_data::experiment::INTERVENTIONS;
use lab_data::results::Limit;
use lab_report::{COLUMNS, FILES, PLOTS};
use lab_run::sampler::SAMPLERS;
use load::{DIALECTS, DISTRIBUTIONS, DistributionRow, MIX_ENTRIES, WORKLOADS};
use load_accuracy::CHECKS as ACCURACY;
use load_accuracy::responder::ANSWERS;
use server::COMPAT_APIS;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use store::SCHEMES;

type Names = BTreeSet<String>;

fn text(path: &str) -> String {
    fs::read_to_string(Path::new("../..").join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// What stands under a heading of the reference, up to the next one.
fn section<'t>(text: &'t str, heading: &str) -> &'t str {
    let at = text.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("there is no {heading:?}"));
    let body = &text[at + heading.len() + 2..];
    body.find("\n#").map_or(body, |end| &body[..end])
}

/// Words in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The names in one column of the tables of a section, without labels and arguments.
fn listed(section: &str, column: usize) -> Names {
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let cells = rows.filter_map(|row| row.split(" | ").nth(column));
    let names = cells.flat_map(quoted).map(|name| name.split('{').next().unwrap_or(name));
    names.map(str::to_owned).collect()
}

/// What differs, in words.
fn differences(place: &str, written: &Names, known: &Names) -> Vec<String> {
    let lacks = known.difference(written).map(|name| format!("{place} lacks `{name}`"));
    let surplus =
        written.difference(known).map(|name| format!("{place} has `{name}`, which is not in the code"));
    lacks.chain(surplus).collect()
}

fn names<'n>(names: impl IntoIterator<Item = &'n str>) -> Names {
    names.into_iter().map(str::to_owned).collect()
}

#[test]
fn the_tables_of_the_reference_are_those_of_the_code() {
    let reference = text("docs/reference.md");
    let tables = [
        ("## Policies", names(POLICIES.iter().map(|row| row.name))),
        ("## Compatibility APIs", names(COMPAT_APIS.iter().map(|row| row.name))),
        ("## Fault injection", names(FAULTS)),
        // Cassandra is a crate of its own, which not every build has.
        ("## Stores", names(SCHEMES.iter().map(|row| row.prefix).chain(["cassandra://"]))),
        ("## Workloads", names(WORKLOADS.iter().map(|row| row.name.as_str()))),
        ("### Mixes", names(MIX_ENTRIES.iter().map(|(name, _)| *name))),
        ("## Dialects", names(DIALECTS.iter().map(|row| row.name.as_str()))),
        ("### Distributions", names(DISTRIBUTIONS.iter().map(DistributionRow::name))),
        ("### Interventions", names(INTERVENTIONS.iter().map(|(name, ..)| *name))),
        ("## Samplers", names(SAMPLERS.iter().map(|(name, _)| *name))),
        ("### Counters", names(SAMPLERS.iter().map(|(name, _)| *name))),
        ("## Checks", names(CHECKS.iter().map(|row| row.id))),
        ("## Causes", names(CAUSES.iter().map(|row| row.name))),
        ("### Classes of waits", names(WAITS.iter().map(|row| row.name))),
        ("### Names of limits", names(Limit::ALL.iter().map(|limit| limit.name()))),
        ("## Figures", names(FIGURES.iter().map(|row| row.name))),
        ("## Rules", names(RULES.iter().map(|row| row.name))),
        ("## Plots", names(PLOTS.iter().map(|row| row.name))),
        ("## Columns", names(COLUMNS.iter().map(|row| row.name))),
    ];
    let mut wrong = Vec::new();
    for (heading, known) in &tables {
        wrong.extend(differences(heading, &listed(section(&reference, heading), 0), known));
    }
    let checks = section(&reference, "## Checks");
    let reworded = CHECKS.iter().filter(|row| !checks.contains(&format!("| {} |", row.about)));
    wrong.extend(
        reworded.map(|row| format!("## Checks has another rule for `{}` than: {}", row.id, row.about)),
    );
    // Their tables stand beside others.
    for (heading, known) in [
        ("## weir selftest", names(ACCURACY.iter().map(|row| row.name))),
        ("## weir selftest", names(ANSWERS.iter().map(|row| row.name))),
        // A writer may write several files.
        ("## Report formats", names(FILES.iter().copied())),
        ("## weir compare", names(MEASURES.iter().map(|row| row.name))),
    ] {
        let written = listed(section(&reference, heading), 0);
        wrong.extend(known.difference(&written).map(|name| format!("{heading} lacks `{name}`")));
    }
    assert!(wrong.is_empty(), "docs/reference.md:\n{}", wrong.join("\n"));
}

/// What `weir ARGS --help` lists: sub-commands, and flags.
fn help(args: &[&str]) -> (Names, Names) {
    let output = weir().args(args).arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let commands =
        text.split("\nCommands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
    let commands = commands.lines().filter_map(|line| line.split_whitespace().next());
    let flags = text.lines().map(str::trim_start).filter_map(|line| {
        let long = line.strip_prefix("-").filter(|short| !short.starts_with('-'));
        let long = long.and_then(|short| short.split_once(", ")).map_or(line, |(_, long)| long);
        long.starts_with("--").then(|| long.split([' ', '=', '[']).next().unwrap_or(long))
    });
    let is_own = |name: &&str| !["help", "--help", "--version"].contains(name);
    (names(commands.filter(is_own)), names(flags.filter(is_own)))
}

#[test]
fn sub_commands_and_flags_of_the_reference_are_those_of_the_help() {
    let reference = text("docs/reference.md");
    let (commands, _) = help(&[]);
    let headings = reference.lines().filter_map(|line| line.strip_prefix("## weir "));
    let mut wrong = differences("docs/reference.md", &names(headings), &commands);
    for command in &commands {
        let heading = format!("## weir {command}");
        let section = section(&reference, &heading);
        // `weir replica` has its flags one level below.
        let (below, mut flags) = help(&[command]);
        below.iter().for_each(|below| flags.extend(help(&[command, below]).1));
        let bare = |name: String| name.split([' ', '=', '[']).next().unwrap_or_default().to_owned();
        let mentioned: Names = quoted(section)
            .flat_map(str::split_whitespace)
            .map(|name| bare(name.trim_matches(['[', ']', ',']).to_owned()))
            .collect();
        let tabled = listed(section, 0).into_iter().map(bare).filter(|name| name.starts_with("--"));
        wrong.extend(flags.difference(&mentioned).map(|flag| format!("{heading} lacks `{flag}`")));
        let surplus = tabled.filter(|flag| !flags.contains(flag));
        wrong.extend(surplus.map(|flag| format!("{heading} has `{flag}`, which is no flag")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The words between quotes in the sources of the server that `is_one` takes for a name.
fn literals(is_one: impl Fn(&str) -> bool) -> Names {
    let mut found = Names::new();
    for entry in fs::read_dir("../server/src").unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default().to_owned();
            found.extend(code.split('"').filter(|text| is_one(text)).map(str::to_owned));
        }
    }
    found
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[test]
fn the_metrics_of_the_reference_are_those_of_the_server() {
    let metrics = literals(|text| is_word(text) && text.starts_with("weir_"));
    let wrong =
        differences("## Metrics", &listed(section(&text("docs/reference.md"), "## Metrics"), 0), &metrics);
    assert!(wrong.is_empty(), "docs/reference.md:\n{}", wrong.join("\n"));
}

#[test]
fn the_codes_of_the_http_api_are_those_of_the_server() {
    let api = text("docs/http-api.md");
    let table = api.split("\n| status | code |").nth(1).unwrap().split("\n\n").next().unwrap();
    let written = listed(table, 1);
    let words = literals(is_word);
    let lacking: Vec<&String> = written.difference(&words).collect();
    assert!(lacking.is_empty(), "docs/http-api.md has codes that the server does not: {lacking:?}");
    let mut wrong = Vec::new();
    for entry in fs::read_dir("../server/src").unwrap() {
        let path = entry.unwrap().path();
        let code = fs::read_to_string(&path).unwrap_or_default();
        for made in code.split("Failure::new(").skip(1) {
            let code = made.split('"').nth(1).unwrap_or_default();
            if made.starts_with(|digit: char| digit.is_ascii_digit())
                && is_word(code)
                && !written.contains(code)
            {
                wrong.push(format!("{}: {code}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "docs/http-api.md lacks codes:\n{}", wrong.join("\n"));
}
