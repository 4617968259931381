//! The page for the terminal: plain text, tables aligned, drawings left out.

use crate::page::{Block, Table};
use std::fmt::Write;

/// As wide as sentences become.
const WIDTH: usize = 110;

/// As wide as tables become, by folding their cells of words; what is only figures stays as wide as it is.
const TABLE_WIDTH: usize = 120;

/// Between columns.
const GAP: &str = "  ";

/// No column of words becomes narrower than this.
const NARROWEST: usize = 10;

/// The blocks as text, without a line end behind the last.
pub(crate) fn spell(page: &[Block]) -> String {
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
            // On the front of a report only.
            Block::Lead(_) => Ok(()),
            Block::Section { title, .. } | Block::Workload { title, .. } | Block::Part(title) => {
                write!(text, "{title}\n{}\n", "─".repeat(title.chars().count()))
            }
            Block::Text(paragraph) | Block::Warning(paragraph) => {
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
    let mut widths: Vec<usize> = (0..table.head.len()).map(width).collect();
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
    while total(&widths) > TABLE_WIDTH {
        let foldable = (0..widths.len()).filter(|i| table.words[*i] && widths[*i] > NARROWEST);
        let Some(widest) = foldable.max_by_key(|i| widths[*i]) else { break };
        widths[widest] -= 1;
    }
    let mut text = String::new();
    for cells in lines {
        let folded: Vec<Vec<String>> =
            cells.iter().zip(&widths).map(|(cell, width)| folded(cell, *width)).collect();
        for i in 0..folded.iter().map(Vec::len).max().unwrap_or(0) {
            let cell = |(column, lines): (usize, &Vec<String>)| {
                let (part, width) = (lines.get(i).map_or("", String::as_str), widths[column]);
                match table.words[column] {
                    true => format!("{part:<width$}"),
                    false => format!("{part:>width$}"),
                }
            };
            let line: Vec<String> = folded.iter().enumerate().map(cell).collect();
            text.push_str(line.join(GAP).trim_end());
            text.push('\n');
        }
    }
    text
}

/// A cell in lines of at most `width`, broken at blanks where there are any.
fn folded(cell: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    if cell.chars().count() <= width {
        return vec![cell.to_owned()];
    }
    for word in cell.split(' ') {
        let letters: Vec<char> = word.chars().collect();
        for (i, part) in letters.chunks(width.max(1)).enumerate() {
            let last = lines.last_mut().expect("there is always a line");
            let used = last.chars().count();
            if used == 0 || i == 0 && used + 1 + part.len() <= width {
                last.extend((used > 0).then_some(' ').iter().chain(part));
            } else {
                lines.push(part.iter().collect());
            }
        }
    }
    lines
}
