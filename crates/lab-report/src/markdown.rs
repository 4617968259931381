//! A page as Markdown: for a repository or a merge request, with its drawings as files.

use super::document::{Block, Card, Document, Figure, Table};

/// Writes the page.
pub(super) fn write(document: &Document) -> String {
    let head = format!("# {}\n\n{}\n\n", escape(&document.title), escape(&document.above));
    (head + &blocks(&document.blocks)).trim_end().to_owned() + "\n"
}

fn blocks(all: &[Block]) -> String {
    let paragraphs = all.iter().map(block).filter(|text| !text.is_empty());
    paragraphs.map(|text| text + "\n\n").collect()
}

fn block(of: &Block) -> String {
    match of {
        _ if of.is_empty() => String::new(),
        Block::Warning(warning) => format!("> **{}**", escape(warning)),
        Block::Front { cards, figure } => self::cards(cards) + "\n\n" + &self::figure(figure),
        Block::Section(title, blocks) => {
            format!("## {}\n\n{}", escape(title), self::blocks(blocks).trim_end())
        }
        Block::Part(title) => format!("### {}", escape(title)),
        Block::Text(words) => escape(words),
        Block::Notes(notes) => lines(notes.iter().map(|note| format!("- {}", escape(note)))),
        Block::Table(table) => self::table(table),
        Block::Figure(figure) => self::figure(figure),
        Block::Verbatim(verbatim) => {
            // A fence longer than any in the text, so that the text cannot end it.
            let longest = verbatim.split(|c| c != '`').map(str::len).max().unwrap_or(0);
            let fence = "`".repeat(longest.max(2) + 1);
            format!("{fence}\n{}\n{fence}", verbatim.trim_end())
        }
    }
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.collect::<Vec<_>>().join("\n")
}

fn figure(figure: &Figure) -> String {
    let drawings = figure.drawings.iter().map(|of| format!("![{}]({})\n\n", escape(&of.label), of.file));
    drawings.collect::<String>() + &escape(&figure.caption)
}

/// The answers: a row for each workload.
fn cards(cards: &[Card]) -> String {
    let longest = cards.iter().max_by_key(|card| card.answers.len());
    let answers = longest.map_or(&[][..], |card| &card.answers);
    let labels = std::iter::once("workload").chain(answers.iter().map(|answer| answer.label));
    let heads = labels.map(|label| (label.to_owned(), true)).collect();
    let row = |card: &Card| {
        let answers = card.answers.iter().map(|answer| {
            let details = answer.details.iter().map(|detail| format!("; {}", escape(detail)));
            format!("**{}**{}", escape(&answer.said), details.collect::<String>())
        });
        std::iter::once(escape(&card.name)).chain(answers).collect()
    };
    aligned(heads, cards.iter().map(row))
}

fn table(table: &Table) -> String {
    let heads = table.columns.iter().map(|of| {
        let unit = if of.unit.is_empty() { String::new() } else { format!(", {}", escape(&of.unit)) };
        (escape(&of.heading) + &unit, of.is_words)
    });
    aligned(heads.collect(), table.rows.iter().map(|row| row.cells.iter().map(|cell| escape(cell)).collect()))
}

/// Headings, each with whether its column is one of words, and rows.
fn aligned(heads: Vec<(String, bool)>, rows: impl Iterator<Item = Vec<String>>) -> String {
    let alignments = heads.iter().map(|(_, is_words)| if *is_words { ":--" } else { "--:" }.to_owned());
    let alignments = alignments.collect();
    let heads = heads.into_iter().map(|(heading, _)| heading).collect();
    lines([heads, alignments].into_iter().chain(rows).map(|cells| format!("| {} |", cells.join(" | "))))
}

/// Keeps names from being read as markup, and every line in its place.
fn escape(text: &str) -> String {
    let escaped = |c: char| match c {
        '\n' | '\r' => " ".to_owned(),
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' => format!("\\{c}"),
        _ => c.to_string(),
    };
    text.chars().map(escaped).collect()
}
