//! `report.md`: the page for a repository or a merge request, with its plots beside it.

use super::front::{Answer, Lead};
use super::page::{Block, Table, page};
use super::{File, Report};
use std::fmt::Write;

/// Writes the page.
pub(super) fn write(report: &Report) -> Vec<File> {
    let named = |end: &'static str| {
        let workloads = report.findings.workloads.iter().zip(&report.slugs);
        workloads.map(move |(found, slug)| (found.name.clone(), format!("plots/{slug}.{end}")))
    };
    let figures: Vec<(String, String)> =
        named("svg").chain(named("course.svg")).chain(named("effects.svg")).collect();
    let text = document(page(report), &figures);
    vec![File { name: "report.md".into(), bytes: text.into_bytes() }]
}

/// A page as text: `figures` are name and file of the drawings its blocks name by index.
pub(super) fn document(page: Vec<Block>, figures: &[(String, String)]) -> String {
    let mut text = String::new();
    for block in page {
        // Writing into a string does not fail.
        let _ = match block {
            Block::Title { above, title } => write!(text, "# {}\n\n{}\n\n", escape(&title), escape(&above)),
            Block::Lead(leads) => {
                leads.iter().for_each(|lead| write_lead(&mut text, lead));
                Ok(())
            }
            Block::Front(sentences) => sentences
                .iter()
                .try_for_each(|(name, _, sentence)| {
                    writeln!(text, "- **{}**: {}", escape(name), escape(sentence))
                })
                .and_then(|()| writeln!(text)),
            Block::Warning(warning) => write!(text, "> **{}**\n\n", escape(&warning)),
            Block::Section { title, .. } | Block::Workload { title, .. } => {
                write!(text, "## {}\n\n", escape(&title))
            }
            Block::Part(title) => write!(text, "### {}\n\n", escape(&title)),
            Block::Text(paragraph) => write!(text, "{}\n\n", escape(&paragraph)),
            Block::Notes(notes) if notes.is_empty() => Ok(()),
            Block::Notes(notes) => notes
                .iter()
                .try_for_each(|note| writeln!(text, "- {}", escape(note)))
                .and_then(|()| writeln!(text)),
            Block::Table(table) => {
                write_table(&mut text, &table);
                Ok(())
            }
            Block::Figure { index, caption } => {
                let (name, file) = &figures[index];
                write!(text, "![{}]({file})\n\n{}\n\n", escape(name), escape(&caption))
            }
            Block::Verbatim(verbatim) => {
                // A fence longer than any in the text, so that the text cannot end it.
                let longest = verbatim.split(|c| c != '`').map(str::len).max().unwrap_or(0);
                let fence = "`".repeat(longest.max(2) + 1);
                write!(text, "{fence}\n{}\n{fence}\n\n", verbatim.trim_end())
            }
        };
    }
    text.trim_end().to_owned() + "\n"
}

/// The answers as a table of one row, and the sentence below it.
fn write_lead(text: &mut String, lead: &Lead) {
    let column = |cell: fn(&Answer) -> String| -> String {
        lead.answers.iter().map(|answer| format!(" {} |", cell(answer))).collect()
    };
    let questions = column(|answer| escape(answer.question));
    let said = column(|answer| format!("**{}**, {}", escape(&answer.said), escape(&answer.below)));
    let rule = column(|_| ":--".to_owned());
    let (name, sentence) = (escape(&lead.name), escape(&lead.sentence));
    // Writing into a string does not fail.
    let _ = write!(text, "|{questions}\n|{rule}\n|{said}\n\n**{name}**: {sentence}\n\n");
}

fn write_table(text: &mut String, table: &Table) {
    let mut line = |cells: Vec<String>| {
        text.push_str("| ");
        text.push_str(&cells.join(" | "));
        text.push_str(" |\n");
    };
    line(
        (table.head.iter())
            .map(|(heading, unit)| match (heading.as_str(), unit.as_str()) {
                (heading, "") => escape(heading),
                (heading, unit) => format!("{}, {}", escape(heading), escape(unit)),
            })
            .collect(),
    );
    line(table.words.iter().map(|words| if *words { ":--" } else { "--:" }.to_owned()).collect());
    for (cells, _) in &table.rows {
        line(cells.iter().map(|cell| escape(cell)).collect());
    }
    text.push('\n');
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
