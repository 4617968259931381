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
use lab_analysis::Comparison;
use lab_analysis::compare::{ComparedWorkload, SideOfLevel};

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
    let width = front.iter().map(|(workload, _)| workload.chars().count()).max().unwrap_or(0);
    let lines = front.iter().map(|(workload, said)| format!("{workload:width$}  {said}"));
    lines.collect::<Vec<_>>().join("\n")
}

/// A side at a level of a workload.
#[derive(Clone, Copy)]
struct Line<'a> {
    comparison: &'a Comparison,
    workload: &'a ComparedWorkload,
    clients: u32,
    side: usize,
    of: &'a SideOfLevel,
}

/// Every side at every level.
fn lines<'a>(comparison: &'a Comparison, workload: &'a ComparedWorkload) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for level in &workload.levels {
        let sides = level.sides.iter().enumerate().filter_map(|(side, of)| Some((side, of.as_ref()?)));
        lines.extend(sides.map(|(side, of)| Line { comparison, workload, clients: level.clients, side, of }));
    }
    lines
}

impl Line<'_> {
    fn target(&self) -> String {
        self.comparison.sides[self.side].name.clone()
    }
}

#[cfg(test)]
mod tests;
