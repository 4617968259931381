//! A page as Markdown: for a repository or a merge request, with its drawings as files.

use super::document::{Answer, Block, Card, Column, Document, Figure, Table, TableColumn, column};

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
    let mut columns: Vec<Column<Card>> = vec![column("<workload", |card: &Card| Some(card.name.clone()))];
    let longest = cards.iter().max_by_key(|card| card.answers.len());
    for (i, answer) in longest.iter().flat_map(|card| &card.answers).enumerate() {
        columns.push(column(format!("<{}", answer.label), move |card: &Card| {
            let Answer { said, details, .. } = card.answers.get(i)?;
            Some(details.iter().fold(said.clone(), |text, detail| text + "; " + detail))
        }));
    }
    table(&Table::of(cards, &columns, |_| false))
}

fn table(table: &Table) -> String {
    let heading = |of: &TableColumn| match of.unit.as_str() {
        "" => escape(&of.heading),
        unit => format!("{}, {}", escape(&of.heading), escape(unit)),
    };
    let alignment = |of: &TableColumn| if of.is_words { ":--" } else { "--:" }.to_owned();
    let heads = [table.columns.iter().map(heading).collect(), table.columns.iter().map(alignment).collect()];
    let rows = table.rows.iter().map(|row| row.cells.iter().map(|cell| escape(cell)).collect());
    lines(heads.into_iter().chain(rows).map(|cells: Vec<String>| format!("| {} |", cells.join(" | "))))
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
