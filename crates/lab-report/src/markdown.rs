//! A page as Markdown: for a repository or a merge request, with its drawings as files.

use super::document::{Block, Card, Document, Drawing, Table};
use std::fmt::Write;

/// Writes the page.
pub(super) fn write(document: &Document) -> String {
    let mut text = format!("# {}\n\n{}\n\n", escape(&document.title), escape(&document.above));
    write_blocks(&mut text, &document.blocks);
    text.trim_end().to_owned() + "\n"
}

fn write_blocks(text: &mut String, blocks: &[Block]) {
    for block in blocks {
        match block {
            Block::Warning(warning) => paragraph(text, &format!("> **{}**", escape(warning))),
            Block::Front { cards, drawings, caption } => {
                write_cards(text, cards);
                drawings.iter().for_each(|drawing| write_drawing(text, drawing));
                paragraph(text, &escape(caption));
            }
            Block::Fold { title, blocks, .. } => {
                paragraph(text, &format!("## {}", escape(title)));
                write_blocks(text, blocks);
            }
            Block::Section { title, .. } => paragraph(text, &format!("## {}", escape(title))),
            Block::Part(title) => paragraph(text, &format!("### {}", escape(title))),
            Block::Text(words) => paragraph(text, &escape(words)),
            Block::Notes(notes) => {
                let notes: Vec<String> = notes.iter().map(|note| format!("- {}", escape(note))).collect();
                paragraph(text, &notes.join("\n"));
            }
            Block::Table(table) => write_table(text, table),
            Block::Figure { drawing, caption } => {
                write_drawing(text, drawing);
                paragraph(text, &escape(caption));
            }
            Block::Verbatim(verbatim) => {
                // A fence longer than any in the text, so that the text cannot end it.
                let longest = verbatim.split(|c| c != '`').map(str::len).max().unwrap_or(0);
                let fence = "`".repeat(longest.max(2) + 1);
                paragraph(text, &format!("{fence}\n{}\n{fence}", verbatim.trim_end()));
            }
        }
    }
}

fn paragraph(text: &mut String, words: &str) {
    if !words.is_empty() {
        text.push_str(words);
        text.push_str("\n\n");
    }
}

fn write_drawing(text: &mut String, drawing: &Drawing) {
    paragraph(text, &format!("![{}]({})", escape(&drawing.label), drawing.file));
}

/// The answers: a row for each workload.
fn write_cards(text: &mut String, cards: &[Card]) {
    let Some(first) = cards.first() else { return };
    let labels = first.answers.iter().map(|answer| answer.label.to_owned());
    row(text, std::iter::once("workload".to_owned()).chain(labels));
    row(text, (0..=first.answers.len()).map(|_| ":--".to_owned()));
    for card in cards {
        let answers = card.answers.iter().map(|answer| {
            let details: String =
                answer.details.iter().map(|detail| format!("; {}", escape(detail))).collect();
            format!("**{}**{details}", escape(&answer.said))
        });
        row(text, std::iter::once(escape(&card.name)).chain(answers));
    }
    text.push('\n');
}

fn write_table(text: &mut String, table: &Table) {
    let heading = |heading: &str, unit: &str| match unit {
        "" => escape(heading),
        unit => format!("{}, {}", escape(heading), escape(unit)),
    };
    row(text, table.columns.iter().map(|column| heading(&column.heading, &column.unit)));
    row(text, table.columns.iter().map(|of| if of.is_words { ":--" } else { "--:" }.to_owned()));
    for of in &table.rows {
        row(text, of.cells.iter().map(|cell| escape(cell)));
    }
    text.push('\n');
}

fn row(text: &mut String, cells: impl Iterator<Item = String>) {
    // Writing into a string does not fail.
    let _ = writeln!(text, "| {} |", cells.collect::<Vec<_>>().join(" | "));
}

/// Keeps names from being read as markup, and every line in its place.
fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => safe.push(' '),
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' => {
                safe.push('\\');
                safe.push(c);
            }
            _ => safe.push(c),
        }
    }
    safe
}
