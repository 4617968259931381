//! The page for the terminal: plain text, tables aligned, drawings left out.

use crate::lab::report::page::{Block, Table};
use std::fmt::Write;

/// As wide as sentences become; tables are as wide as they are.
const WIDTH: usize = 110;

/// The blocks as text, without a line end behind the last.
pub(super) fn spell(page: &[Block]) -> String {
    let mut text = String::new();
    for block in page {
        // Writing into a string does not fail.
        let _ = match block {
            Block::Title { above, title } => write!(text, "{title}\n{above}\n\n"),
            Block::Front(sentences) => {
                let width = sentences.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
                sentences.iter().for_each(|(name, _, said)| {
                    text.push_str(&wrapped(&format!("{name:width$}  {said}"), width + 2));
                });
                text.push('\n');
                Ok(())
            }
            Block::Section { title, .. } | Block::Workload { title, .. } | Block::Part(title) => {
                write!(text, "{title}\n{}\n", "─".repeat(title.chars().count()))
            }
            Block::Text(paragraph) => {
                text.push_str(&wrapped(paragraph, 0));
                text.push('\n');
                Ok(())
            }
            Block::Notes(notes) => {
                notes.iter().for_each(|note| text.push_str(&wrapped(&format!("- {note}"), 2)));
                if !notes.is_empty() {
                    text.push('\n');
                }
                Ok(())
            }
            Block::Table(table) => {
                text.push_str(&aligned(table));
                text.push('\n');
                Ok(())
            }
            Block::Figure { .. } => Ok(()),
            Block::Verbatim(verbatim) => write!(text, "{}\n\n", verbatim.trim_end()),
        };
    }
    text.trim_end().to_owned()
}

/// Lines of at most [`WIDTH`], those behind the first set in by `indent`.
fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = vec![String::new()];
    // Runs of blanks align what begins the first line; they stay.
    for (i, word) in text.split(' ').enumerate() {
        let last = lines.last_mut().expect("there is always a line");
        if last.chars().count() + 1 + word.chars().count() > WIDTH && !last.trim().is_empty() {
            lines.push(format!("{:indent$}{word}", ""));
        } else {
            if i > 0 {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}

fn aligned(table: &Table) -> String {
    let (headings, units): (Vec<String>, Vec<String>) = table.head.iter().cloned().unzip();
    let with_units = units.iter().any(|unit| !unit.is_empty());
    let head = std::iter::once(&headings).chain(with_units.then_some(&units));
    let lines: Vec<&Vec<String>> = head.chain(table.rows.iter().map(|(cells, _)| cells)).collect();
    let width = |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.head.len()).map(width).collect();
    let mut text = String::new();
    for cells in lines {
        let cell = |(i, cell): (usize, &String)| match table.words[i] {
            true => format!("{cell:<0$}", widths[i]),
            false => format!("{cell:>0$}", widths[i]),
        };
        let line: Vec<String> = cells.iter().enumerate().map(cell).collect();
        text.push_str(line.join("  ").trim_end());
        text.push('\n');
    }
    text
}
