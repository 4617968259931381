//! A comparison as files and as text: `compare.html`, `compare.md`, `compare.svg`, `compare.csv`.
//!
//! A pure function, as the report is: the same comparison gives the same bytes. `page` makes a document
//! that all formats write.

mod csv;
mod page;
mod plot;
mod sentences;

use super::document::File;
use super::{files, text};
use lab_analysis::compare::{ComparedLevel, ComparedWorkload, Figure, Ratio};
use lab_analysis::{Comparison, Row};

/// The files of a comparison. The drawing is missing where no processor time was read.
pub fn render(comparison: &Comparison) -> Vec<File> {
    let table = File::text("compare.csv", csv::table(comparison));
    files("compare", &page::page(comparison), table)
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

/// A measure of a side at a level of a workload.
struct Line<'a> {
    comparison: &'a Comparison,
    workload: &'a ComparedWorkload,
    /// Its index in [`lab_analysis::MEASURES`].
    measure: usize,
    clients: u32,
    side: usize,
    row: &'a Row,
    figure: Option<&'a Figure>,
    ratio: Option<&'a Ratio>,
}

/// A line for every side at every level.
fn lines<'a>(comparison: &'a Comparison, workload: &'a ComparedWorkload, measure: usize) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for ComparedLevel { clients, sides } in &workload.levels {
        for (side, of) in sides.iter().enumerate() {
            let Some(of) = of else { continue };
            let (row, figure, ratio) = (&of.row, of.figures[measure].as_ref(), of.ratios[measure].as_ref());
            lines.push(Line { comparison, workload, measure, clients: *clients, side, row, figure, ratio });
        }
    }
    lines
}

impl Line<'_> {
    fn target(&self) -> Option<String> {
        Some(self.comparison.sides[self.side].name.clone())
    }

    fn conclusion(&self) -> Option<String> {
        Some(sentences::conclusion(self.comparison, self.side, self.ratio?))
    }
}

#[cfg(test)]
mod tests;
