//! The report: what was found in a run of an experiment, as files and as text.
//!
//! A pure function: the same results give the same bytes. Findings become sentences in `sentences` and `answers`, and a
//! document in `page`. The formats, [`WRITERS`], all write this document.

#![allow(clippy::type_complexity, reason = "a column of a table is a heading and a function")]

mod accuracy;
mod answers;
mod checks;
mod columns;
pub mod compare;
mod csv;
mod document;
mod evidence;
mod format;
mod html;
mod markdown;
mod page;
mod plots;
mod published;
mod resources;
mod search;
mod sentences;
mod series;
mod svg;
mod text;

pub use accuracy::selftest_lines;
pub use columns::COLUMNS;
pub use document::File;
pub use plots::{PLOTS, Panel, Scale, WIDE, XAxis, stacked};
pub use series::{Kind, Point, Series};
pub use svg::{Colour, Svg};

use document::Document;
use lab_analysis::{Findings, findings};
use lab_data::results::Results;

/// A format of the report.
pub struct Writer {
    /// What it writes: a file's name, or a pattern of names.
    pub name: &'static str,
    write: fn(&Report) -> Vec<File>,
}

/// The formats. `results.json` is not among them: they are made from it.
pub const WRITERS: &[Writer] = &[
    // The whole report in one file, without scripts; prints well.
    writer("report.html", |report| vec![File::text("report.html", html::write(&report.document))]),
    // The same, with links to the plots.
    writer("report.md", |report| vec![File::text("report.md", markdown::write(&report.document))]),
    // Goodput and latency by clients; .resources and .seconds are its other plots.
    writer("plots/WORKLOAD.svg", |report| report.document.drawings()),
    // One line for each trial, with the figures of its level over all runs.
    writer("results.csv", |report| {
        vec![File::text("results.csv", csv::write(report.results, report.findings))]
    }),
];

const fn writer(name: &'static str, write: fn(&Report) -> Vec<File>) -> Writer {
    Writer { name, write }
}

/// What the formats are written from.
struct Report<'a> {
    results: &'a Results,
    findings: &'a Findings,
    document: Document,
}

/// The files of the report.
pub fn render(results: &Results) -> Vec<File> {
    rendered(results, &findings(results))
}

/// The files of the report with these findings.
fn rendered(results: &Results, findings: &Findings) -> Vec<File> {
    let report = Report { results, findings, document: page::document(results, findings) };
    WRITERS.iter().flat_map(|writer| (writer.write)(&report)).collect()
}

/// The answers as plain text: at most four lines for each workload, none longer than 100 columns.
pub fn headline(results: &Results) -> String {
    text::headline(accuracy::warning(results), &page::cards(&findings(results)))
}

#[cfg(test)]
mod tests;
