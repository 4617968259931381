//! A page as plain text for the terminal: tables are aligned, drawings are left out.

use super::document::{Block, Card, Document, Table};
use super::format::shortened;

/// No line is wider, but for tables with many columns.
const WIDTH: usize = 110;

/// No line of the answers is wider.
const ANSWER_WIDTH: usize = 100;

/// No column of words is made narrower.
const WORDS_MIN: usize = 12;

/// Between columns.
const GAP: &str = "  ";

/// The page, without a line end behind its last line.
pub(super) fn write(document: &Document) -> String {
    let text = format!("{}\n{}\n\n{}", document.title, document.above, blocks(&document.blocks));
    text.trim_end().to_owned()
}

fn blocks(all: &[Block]) -> String {
    all.iter().map(block).collect()
}

fn block(of: &Block) -> String {
    match of {
        _ if of.is_empty() => String::new(),
        Block::Warning(words) | Block::Text(words) => wrapped(words, 0) + "\n",
        Block::Front { cards, .. } => self::cards(cards) + "\n",
        Block::Section(title, blocks) => underlined(title) + &self::blocks(blocks),
        Block::Part(title) => underlined(title),
        Block::Notes(notes) => {
            notes.iter().map(|note| wrapped(&format!("- {note}"), 2)).collect::<String>() + "\n"
        }
        Block::Table(table) => aligned(table) + "\n",
        Block::Figure(_) => String::new(),
        Block::Verbatim(verbatim) => format!("{}\n\n", verbatim.trim_end()),
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

/// A line for each of the first answers of each workload. Details without room on it are left out; of failed checks their number
/// is told.
fn cards(cards: &[Card]) -> String {
    const NAME_MAX: usize = 24;
    const ANSWERS_MAX: usize = 4;
    const LABEL_WIDTH: usize = "throughput".len();
    let name = |card: &Card| shortened(&card.name, NAME_MAX);
    let width = cards.iter().map(|card| name(card).chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for card in cards {
        let mut name = name(card);
        for answer in card.answers.iter().take(ANSWERS_MAX) {
            let mut line = format!("{name:width$}{GAP}{:LABEL_WIDTH$}{GAP}{}", answer.label, answer.said);
            for (at, detail) in answer.details.iter().enumerate() {
                let left = answer.details.len() - at;
                let more = match answer.label {
                    "confidence" => format!("; and {left} more"),
                    _ => String::new(),
                };
                let room = ANSWER_WIDTH - if left > 1 { more.len() } else { 0 };
                if line.chars().count() + 2 + detail.chars().count() > room {
                    line += &more;
                    break;
                }
                line += &format!("; {detail}");
            }
            text += &(shortened(&line, ANSWER_WIDTH) + "\n");
            name.clear();
        }
    }
    text
}

/// Lines of at most [`WIDTH`], those behind the first indented.
fn wrapped(text: &str, indent: usize) -> String {
    folded(text, WIDTH - indent).join(&format!("\n{:indent$}", "")) + "\n"
}

fn aligned(table: &Table) -> String {
    let mut lines: Vec<Vec<&str>> = vec![table.columns.iter().map(|of| of.heading.as_str()).collect()];
    if table.columns.iter().any(|of| !of.unit.is_empty()) {
        lines.push(table.columns.iter().map(|of| of.unit.as_str()).collect());
    }
    lines.extend(table.rows.iter().map(|row| row.cells.iter().map(String::as_str).collect()));
    let columns = 0..table.columns.len();
    let width = |i: usize| lines.iter().map(|cells| cells[i].chars().count()).max().unwrap_or(0);
    let mut widths: Vec<usize> = columns.clone().map(width).collect();
    while widths.iter().sum::<usize>() + GAP.len() * widths.len().saturating_sub(1) > WIDTH {
        let is_foldable = |i: &usize| table.columns[*i].is_words && widths[*i] > WORDS_MIN;
        let Some(widest) = columns.clone().filter(is_foldable).max_by_key(|i| widths[*i]) else { break };
        widths[widest] -= 1;
    }
    let mut text = String::new();
    for cells in &lines {
        let folded: Vec<Vec<String>> =
            cells.iter().zip(&widths).map(|(cell, width)| folded(cell, *width)).collect();
        for i in 0..folded.iter().map(Vec::len).max().unwrap_or(0) {
            let cell = |column: usize| {
                let (part, width) = (folded[column].get(i).map_or("", String::as_str), widths[column]);
                let is_words = table.columns[column].is_words;
                if is_words { format!("{part:<width$}") } else { format!("{part:>width$}") }
            };
            let line: Vec<String> = columns.clone().map(cell).collect();
            text += &(line.join(GAP).trim_end().to_owned() + "\n");
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
