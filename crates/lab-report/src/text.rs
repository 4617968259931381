//! A page as plain text for the terminal: tables are aligned, drawings are left out.

use super::document::{Block, Card, Document, Table};
use super::format::shortened;

/// No line is wider, but for tables with many columns.
const WIDTH: usize = 110;

/// No line of the answers is wider.
const ANSWER_WIDTH: usize = 100;

/// A longer word in a table may be broken.
const WORD_MAX: usize = 30;

/// Between columns.
const GAP: &str = "  ";

/// The page, without a line end behind its last line.
pub(super) fn write(document: &Document) -> String {
    let mut text = format!("{}\n{}\n\n", document.title, document.above);
    write_blocks(&mut text, &document.blocks);
    text.trim_end().to_owned()
}

fn write_blocks(text: &mut String, blocks: &[Block]) {
    for block in blocks {
        let written = match block {
            Block::Warning(words) | Block::Text(words) => wrapped(words, 0),
            Block::Front { cards, .. } => self::cards(cards),
            Block::Fold { title, blocks, .. } => {
                text.push_str(&underlined(title));
                write_blocks(text, blocks);
                continue;
            }
            Block::Section { title, .. } | Block::Part(title) => {
                text.push_str(&underlined(title));
                continue;
            }
            Block::Notes(notes) => notes.iter().map(|note| wrapped(&format!("- {note}"), 2)).collect(),
            Block::Table(table) => aligned(table),
            Block::Figure { .. } => continue,
            Block::Verbatim(verbatim) => format!("{}\n", verbatim.trim_end()),
        };
        if !written.is_empty() {
            text.push_str(&written);
            text.push('\n');
        }
    }
}

fn underlined(title: &str) -> String {
    format!("{title}\n{}\n", "─".repeat(title.chars().count()))
}

/// The answers below a warning, without a line end behind the last line.
pub(super) fn headline(warning: Option<String>, answers: &[Card]) -> String {
    let mut lines = warning.map_or_else(Vec::new, |warning| folded(&warning, ANSWER_WIDTH));
    lines.push(cards(answers));
    lines.join("\n").trim_end().to_owned()
}

/// A line for each answer of each workload. Details without room on it are left out.
fn cards(cards: &[Card]) -> String {
    const NAME_MAX: usize = 24;
    let names: Vec<String> = cards.iter().map(|card| shortened(&card.name, NAME_MAX)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let labels = cards.iter().flat_map(|card| &card.answers).map(|answer| answer.label.len());
    let label_width = labels.max().unwrap_or(0);
    let mut text = String::new();
    for (card, name) in cards.iter().zip(&names) {
        for (i, answer) in card.answers.iter().enumerate() {
            let name = if i == 0 { name } else { "" };
            let mut line = format!("{name:width$}{GAP}{:label_width$}{GAP}{}", answer.label, answer.said);
            for detail in &answer.details {
                if line.chars().count() + 2 + detail.chars().count() > ANSWER_WIDTH {
                    break;
                }
                line = format!("{line}; {detail}");
            }
            text.push_str(&shortened(&line, ANSWER_WIDTH));
            text.push('\n');
        }
    }
    text
}

/// Lines of at most [`WIDTH`], those behind the first indented.
fn wrapped(text: &str, indent: usize) -> String {
    let lines = folded(text, WIDTH - indent);
    lines.join(&format!("\n{:indent$}", "")) + "\n"
}

fn aligned(table: &Table) -> String {
    let heading = table.columns.iter().map(|of| of.heading.clone()).collect();
    let units: Vec<String> = table.columns.iter().map(|of| of.unit.clone()).collect();
    let mut lines: Vec<Vec<String>> = vec![heading];
    lines.extend(Some(units).filter(|units| units.iter().any(|unit| !unit.is_empty())));
    lines.extend(table.rows.iter().map(|row| row.cells.clone()));
    let width = |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or(0);
    let mut widths: Vec<usize> = (0..table.columns.len()).map(width).collect();
    let total = |widths: &[usize]| widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1);
    // A column of words can be as narrow as its longest word.
    let longest_word = |column: usize| {
        let words = lines.iter().flat_map(|cells| cells[column].split(' '));
        words.map(|word| word.chars().count()).max().unwrap_or(0).min(WORD_MAX)
    };
    while total(&widths) > WIDTH {
        let is_foldable = |i: &usize| table.columns[*i].is_words && widths[*i] > longest_word(*i);
        let Some(widest) = (0..widths.len()).filter(is_foldable).max_by_key(|i| widths[*i]) else { break };
        widths[widest] -= 1;
    }
    let mut text = String::new();
    for cells in lines {
        let folded: Vec<Vec<String>> =
            cells.iter().zip(&widths).map(|(cell, width)| folded(cell, *width)).collect();
        for i in 0..folded.iter().map(Vec::len).max().unwrap_or(0) {
            let cell = |(column, lines): (usize, &Vec<String>)| {
                let (part, width) = (lines.get(i).map_or("", String::as_str), widths[column]);
                match table.columns[column].is_words {
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

/// Text in lines of at most `width`, broken at blanks, and within words that are longer.
fn folded(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
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
