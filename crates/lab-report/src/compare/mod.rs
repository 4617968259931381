//! A comparison as files and as text: `compare.html`, `compare.md`, `compare.svg`, `compare.csv`.
//!
//! A pure function, as the report is: the same comparison gives the same bytes. What stands on the page is decided once,
//! in `page`; here it is also spelled for the terminal.

mod capacity;
mod csv;
mod page;
mod plot;
mod text;

pub(super) use text::spell;

use super::{File, html, markdown};
use lab_analysis::Comparison;

/// The files of a comparison. The drawing is missing where no processor time was read.
pub fn render(comparison: &Comparison) -> Vec<File> {
    let (title, page) = (page::title(comparison), page::page(comparison));
    let figure = plot::figure(comparison);
    let html = html::document(&title, &page, &[figure.as_ref().map(|of| of.element.clone())]);
    let markdown = markdown::document(page, &[(plot::TITLE.to_owned(), "compare.svg".to_owned())]);
    let mut files =
        vec![("compare.html", html), ("compare.md", markdown), ("compare.csv", csv::table(comparison))];
    files.extend(figure.map(|of| ("compare.svg", of.file())));
    let file = |(name, text): (&str, String)| File { name: name.to_owned(), bytes: text.into_bytes() };
    files.into_iter().map(file).collect()
}

/// The whole comparison as plain text, without the drawing.
pub fn text(comparison: &Comparison) -> String {
    spell(&page::page(comparison))
}

/// What the comparison says, in one line of plain text for each workload and other side.
pub fn headline(comparison: &Comparison) -> String {
    let front = page::front(comparison);
    let width = front.iter().map(|(workload, ..)| workload.chars().count()).max().unwrap_or(0);
    let lines = front.iter().map(|(workload, _, said)| format!("{workload:width$}  {said}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests;
