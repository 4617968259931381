//! The report: what was found in a run of an experiment, as files and as text.
//!
//! A pure function: the same results give the same bytes. Findings become sentences in `sentences` and `answers`, and a
//! document in `page`. All formats write this document.

#![allow(clippy::type_complexity, reason = "a column of a table is a heading and a function")]

mod accuracy;
mod answers;
mod checks;
mod columns;
pub mod compare;
mod csv;
mod document;
mod evidence;
mod faults;
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
pub use faults::faults;
pub use plots::{PLOTS, Panel, Scale, WIDE, XAxis, stacked};
pub use series::{Kind, Point, Series};
pub use svg::{Colour, Svg};

use document::Document;
use lab_analysis::{Findings, findings};
use lab_data::results::Results;

/// The files of a report, or patterns of their names. `results.json` is not among them: they are made from it.
pub const FILES: &[&str] = &[
    // The whole report in one file, without scripts; prints well.
    "report.html",
    // The same, with links to the plots.
    "report.md",
    // Goodput and latency by clients; .resources and .seconds are its other plots.
    "plots/WORKLOAD.svg",
    // One line for each trial, with the figures of its level over all repetitions.
    "results.csv",
];

/// The files of the report.
pub fn render(results: &Results) -> Vec<File> {
    rendered(results, &findings(results))
}

/// The files of the report with these findings.
fn rendered(results: &Results, findings: &Findings) -> Vec<File> {
    let mut files = files("report", &page::document(results, findings));
    files.push(File { name: "results.csv".to_owned(), text: csv::write(results, findings) });
    files
}

/// A page called `name` in all formats, and its drawings.
fn files(name: &str, page: &Document) -> Vec<File> {
    let html = File { name: format!("{name}.html"), text: html::write(page) };
    let markdown = File { name: format!("{name}.md"), text: markdown::write(page) };
    [html, markdown].into_iter().chain(document::drawings(&page.blocks)).collect()
}

/// The answers as plain text: at most four lines for each workload, none longer than 100 columns.
pub fn headline(results: &Results) -> String {
    text::headline(accuracy::warning(results), &page::cards(&findings(results)))
}

#[cfg(test)]
mod tests;
