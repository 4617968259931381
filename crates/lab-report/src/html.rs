//! `report.html`: the page in one file without scripts, for the screen, light or dark, and for paper.

use super::front::{Answer, Lead, Tone};
use super::page::{Block, Table, page};
use super::{File, Report, plots};
use std::fmt::{self, Write};

/// Writes the page.
pub(super) fn write(report: &Report) -> Vec<File> {
    let drawings = report.plots.iter().chain(&report.courses).chain(&report.effects);
    let figures: Vec<_> = drawings.map(|drawing| Some(drawing.as_ref()?.element.clone())).collect();
    let html = document(&report.results.title, &page(report), &figures);
    vec![File { name: "report.html".into(), bytes: html.into_bytes() }]
}

/// A page as one file: `figures` are the drawings its blocks name by index.
pub(super) fn document(title: &str, page: &[Block], figures: &[Option<String>]) -> String {
    let mut html = String::new();
    // Writing into a string does not fail.
    let _ = write_page(&mut html, title, page, figures);
    html
}

fn write_page(html: &mut String, title: &str, page: &[Block], figures: &[Option<String>]) -> fmt::Result {
    write!(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n<main>\n",
        escape(title),
        include_str!("style.css"),
        plots::style()
    )?;
    for block in page {
        write_block(html, block, figures)?;
    }
    html.push_str("</main>\n</body>\n</html>\n");
    Ok(())
}

fn write_block(html: &mut String, block: &Block, figures: &[Option<String>]) -> fmt::Result {
    match block {
        Block::Title { above, title } => {
            writeln!(
                html,
                "<header>\n<p class=\"above\">{}</p>\n<h1>{}</h1>\n</header>",
                prose(above),
                prose(title)
            )
        }
        Block::Front(sentences) => {
            html.push_str("<dl class=\"front\">\n");
            let mut above = None;
            for (name, anchor, sentence) in sentences {
                // Of several sentences on one thing only the first has its name above it.
                if above.replace(name) != Some(name) {
                    writeln!(html, "<dt><a href=\"#{}\">{}</a></dt>", escape(anchor), escape(name))?;
                }
                writeln!(html, "<dd>{}</dd>", prose(sentence))?;
            }
            html.push_str("</dl>\n");
            Ok(())
        }
        Block::Lead(leads) => leads.iter().try_for_each(|lead| write_lead(html, lead)),
        Block::Warning(text) => writeln!(html, "<p class=\"warning\">{}</p>", prose(text)),
        Block::Section { title, anchor } => {
            writeln!(html, "<h2 id=\"{}\">{}</h2>", escape(anchor), prose(title))
        }
        Block::Workload { title, anchor } => {
            writeln!(html, "<h2 class=\"workload\" id=\"{}\">{}</h2>", escape(anchor), prose(title))
        }
        Block::Part(title) => writeln!(html, "<h3>{}</h3>", prose(title)),
        Block::Text(text) => writeln!(html, "<p>{}</p>", prose(text)),
        Block::Notes(notes) if notes.is_empty() => Ok(()),
        Block::Notes(notes) => {
            html.push_str("<ul class=\"notes\">\n");
            notes.iter().try_for_each(|note| writeln!(html, "<li>{}</li>", prose(note)))?;
            html.push_str("</ul>\n");
            Ok(())
        }
        Block::Table(table) => write_table(html, table),
        Block::Figure { index, caption } => {
            let svg = figures.get(*index).and_then(Option::as_deref).unwrap_or_default();
            writeln!(
                html,
                "<figure>\n<div class=\"wide\">\n{svg}</div>\n<figcaption>{}</figcaption>\n</figure>",
                prose(caption)
            )
        }
        Block::Verbatim(text) => writeln!(html, "<pre>{}</pre>", escape(text.trim_end())),
    }
}

fn write_lead(html: &mut String, lead: &Lead) -> fmt::Result {
    let Lead { name, anchor, answers, sentence } = lead;
    writeln!(
        html,
        "<section class=\"lead\">\n<h2><a href=\"#{}\">{}</a></h2>\n<dl>",
        escape(anchor),
        escape(name)
    )?;
    for Answer { question, said, below, tone } in answers {
        let class = match tone {
            Tone::Plain => "",
            Tone::Care => " class=\"care\"",
            Tone::Stop => " class=\"stop\"",
        };
        writeln!(
            html,
            "<div{class}><dt>{}</dt><dd>{}</dd><dd>{}</dd></div>",
            prose(question),
            prose(said),
            prose(below)
        )?;
    }
    writeln!(html, "</dl>\n<p>{}</p>\n</section>", prose(sentence))
}

fn write_table(html: &mut String, table: &Table) -> fmt::Result {
    let class = |words: bool| if words { " class=\"words\"" } else { "" };
    html.push_str("<div class=\"wide\"><table>\n<thead><tr>");
    for ((heading, unit), words) in table.head.iter().zip(&table.words) {
        write!(html, "<th{}>{}", class(*words), prose(heading))?;
        if !unit.is_empty() {
            write!(html, "<small>{}</small>", prose(unit))?;
        }
        html.push_str("</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for (cells, set_back) in &table.rows {
        html.push_str(if *set_back { "<tr class=\"invalid\">" } else { "<tr>" });
        for (cell, words) in cells.iter().zip(&table.words) {
            write!(html, "<td{}>{}</td>", class(*words), prose(cell))?;
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table></div>\n");
    Ok(())
}

/// Escaped, and with a figure tied to its unit so that no line breaks between them.
fn prose(text: &str) -> String {
    const TIES: &[&str] =
        &[" %", " µs", " ms", " s,", " ± ", "≥ ", "≤ ", " req/s", " client", " run", "p50 ", "p99 "];
    TIES.iter().fold(escape(text), |text, tie| text.replace(tie, &tie.replace(' ', "\u{a0}")))
}

/// Text as text, in elements and in quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(c),
        }
    }
    safe
}
