//! The report: what a run of an experiment says, as files.
//!
//! A pure function: the same results give the same bytes. Which files there are is the table [`WRITERS`]; what stands
//! on the page is decided once, in `page`, and spelled as HTML and as Markdown.

mod beside;
mod columns;
pub mod compare;
mod course;
mod csv;
mod evidence;
mod front;
mod html;
mod limit;
mod markdown;
mod page;
mod plots;
mod proof;
mod resources;
pub mod score;
mod series;
mod words;

pub use columns::{COLUMNS, Cell, Column, Read};
pub use plots::{Over, PLOTS, Plot, Scale, apart};
pub use proof::selftest_lines;
pub use series::{Colour, Fill, Kind, Point, Series};

use lab_analysis::{Findings, findings};
use lab_data::results::Results;
use plots::Drawing;

/// A file of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Where it goes, below the directory of the run: `report.html`, `plots/get_popular.svg`.
    pub name: String,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// A format of the report.
pub struct Writer {
    /// What it writes: a file's name, or a pattern of names.
    pub name: &'static str,
    /// What that is good for.
    pub about: &'static str,
    write: fn(&Report) -> Vec<File>,
}

/// The formats. `results.json` is not among them: it is what they are made from.
pub const WRITERS: &[Writer] = &[
    Writer {
        name: "report.html",
        about: "The whole report in one file, without scripts; prints well.",
        write: html::write,
    },
    Writer {
        name: "report.md",
        about: "The same as Markdown, with links to the plots.",
        write: markdown::write,
    },
    Writer {
        name: "plots/WORKLOAD.svg",
        about: "Goodput, latency, what the resources did and where the clients were, of each workload by clients.",
        write: |report| {
            (report.slugs.iter().zip(&report.plots))
                .filter_map(|(slug, figure)| Some((slug, figure.as_ref()?)))
                .map(|(slug, figure)| File {
                    name: format!("plots/{slug}.svg"),
                    bytes: figure.file().into_bytes(),
                })
                .collect()
        },
    },
    Writer {
        name: "plots/WORKLOAD.course.svg",
        about: "Goodput and latency of a run near the knee in its window, second by second or in shorter bins.",
        write: |report| {
            (report.slugs.iter().zip(&report.courses))
                .filter_map(|(slug, figure)| Some((slug, figure.as_ref()?)))
                .map(|(slug, figure)| File {
                    name: format!("plots/{slug}.course.svg"),
                    bytes: figure.file().into_bytes(),
                })
                .collect()
        },
    },
    Writer {
        name: "plots/WORKLOAD.effects.svg",
        about: "What became of goodput when single resources were made slower on purpose.",
        write: |report| {
            (report.slugs.iter().zip(&report.effects))
                .filter_map(|(slug, figure)| Some((slug, figure.as_ref()?)))
                .map(|(slug, figure)| File {
                    name: format!("plots/{slug}.effects.svg"),
                    bytes: figure.file().into_bytes(),
                })
                .collect()
        },
    },
    Writer {
        name: "results.csv",
        about: "One line for each trial, beside it what its level says over all runs.",
        write: csv::write,
    },
];

/// What the writers share.
struct Report<'a> {
    results: &'a Results,
    findings: Findings,
    /// The name of every workload in links and file names.
    slugs: Vec<String>,
    /// The figure of every workload; `None` where nothing was measured.
    plots: Vec<Option<Drawing>>,
    /// How a run of every workload went; `None` where none was long enough.
    courses: Vec<Option<Drawing>>,
    /// What interventions did to every workload; `None` where there were none.
    effects: Vec<Option<Drawing>>,
}

/// The files of the report.
pub fn render(results: &Results) -> Vec<File> {
    rendered(results, findings(results))
}

/// The files of the report with these findings.
fn rendered(results: &Results, findings: Findings) -> Vec<File> {
    let mut slugs: Vec<String> = Vec::new();
    for found in &findings.workloads {
        let slug = slug(&found.name);
        // Two names may differ only in what a file name cannot hold.
        let slug = if slugs.contains(&slug) { format!("{slug}-{}", slugs.len() + 1) } else { slug };
        slugs.push(slug);
    }
    let plots = findings.workloads.iter().map(plots::figure).collect();
    let courses = findings.workloads.iter().map(course::figure).collect();
    let effects = findings.workloads.iter().map(plots::effects::figure).collect();
    let report = Report { results, findings, slugs, plots, courses, effects };
    WRITERS.iter().flat_map(|writer| (writer.write)(&report)).collect()
}

/// What was found, in one line of plain text for each workload; above them what speaks against believing it.
pub fn headline(results: &Results) -> String {
    let found = words::headline(&findings(results));
    proof::warning(results).into_iter().chain([found]).collect::<Vec<_>>().join("\n")
}

/// A name as it may stand in a link, a file name or a column: letters, digits, `-` and `_`.
fn slug(name: &str) -> String {
    let safe = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' };
    let slug: String = name.chars().map(safe).collect();
    if slug.is_empty() { "_".to_owned() } else { slug }
}

#[cfg(test)]
mod tests;
