//! A comparison as files and as text: `compare.html`, `compare.md`, `compare.svg`.
//!
//! A pure function, as the report is: the same comparison gives the same bytes. `page` makes a document
//! that all formats write.

mod verdicts;
mod page;
mod plot;
mod sentences;

use super::document::File;
use super::{files, text};
use lab_analysis::Comparison;
pub use verdicts::{gate_headline, gate_junit, gate_markdown, gate_remedy, gate_text};

/// The files of a comparison. The drawing is missing where no processor time was read.
pub fn render(comparison: &Comparison) -> Vec<File> {
    files("compare", &page::page(comparison))
}

/// The whole comparison as plain text, without the drawing.
pub fn text(comparison: &Comparison) -> String {
    text::write(&page::page(comparison))
}

/// What the comparison says, in one line of plain text for each workload and other side.
pub fn headline(comparison: &Comparison) -> String {
    let front = sentences::front(comparison);
    let width = front.iter().map(|[workload, _]| workload.chars().count()).max().unwrap_or(0);
    let lines = front.iter().map(|[workload, said]| format!("{workload:width$}  {said}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
