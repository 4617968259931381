//! A page as HTML: one file without scripts, for the screen, light or dark, and for paper.

use super::document::{Block, Card, Document, Drawing, Table, Tone};
use super::format::escape;
use super::svg;
use std::fmt::{Result, Write};

/// Writes the page.
pub(super) fn write(document: &Document) -> String {
    let (above, title) = (prose(&document.above), prose(&document.title));
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>{title}</h1>\n<p class=\"above\">{above}</p>\n</header>\n",
        escape(&document.title),
        include_str!("style.css"),
        svg::style()
    );
    write_blocks(&mut html, &document.blocks).expect("writing into a string does not fail");
    html + "</main>\n</body>\n</html>\n"
}

fn write_blocks(html: &mut String, blocks: &[Block]) -> Result {
    blocks.iter().try_for_each(|block| write_block(html, block))
}

fn write_block(html: &mut String, block: &Block) -> Result {
    match block {
        Block::Warning(text) => writeln!(html, "<p class=\"warning\">{}</p>", prose(text)),
        Block::Front { cards, drawings, caption } => {
            writeln!(html, "<div class=\"front of-{}\">", cards.len().min(3))?;
            html.push_str("<div class=\"cards\">\n");
            cards.iter().try_for_each(|card| write_card(html, card))?;
            html.push_str("</div>\n");
            if !drawings.is_empty() {
                write_figure(html, drawings.iter(), caption)?;
            }
            html.push_str("</div>\n");
            Ok(())
        }
        Block::Fold { title, anchor, blocks } => {
            let (anchor, title) = (escape(anchor), prose(title));
            writeln!(html, "<details id=\"{anchor}\">\n<summary><h2>{title}</h2></summary>")?;
            write_blocks(html, blocks)?;
            html.push_str("</details>\n");
            Ok(())
        }
        Block::Section { title, anchor } => {
            writeln!(html, "<h2 id=\"{}\">{}</h2>", escape(anchor), prose(title))
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
        Block::Figure { drawing, caption } => write_figure(html, [drawing].into_iter(), caption),
        Block::Verbatim(text) => writeln!(html, "<pre>{}</pre>", escape(text.trim_end())),
    }
}

fn write_card(html: &mut String, card: &Card) -> Result {
    let (anchor, name) = (escape(&card.anchor), escape(&card.name));
    writeln!(html, "<section class=\"card\">\n<h2><a href=\"#{anchor}\">{name}</a></h2>\n<dl>")?;
    for answer in &card.answers {
        let class = match answer.tone {
            Tone::Plain => "",
            Tone::Care => " class=\"care\"",
            Tone::Stop => " class=\"stop\"",
        };
        let (label, said, details) = (answer.label, prose(&answer.said), prose(&answer.details.join("; ")));
        writeln!(html, "<div{class}><dt>{label}</dt><dd>{said}</dd><dd>{details}</dd></div>")?;
    }
    writeln!(html, "</dl>\n</section>")
}

fn write_figure<'a>(html: &mut String, drawings: impl Iterator<Item = &'a Drawing>, caption: &str) -> Result {
    html.push_str("<figure>\n<div class=\"drawings\">\n");
    drawings.for_each(|drawing| html.push_str(&drawing.svg.element(&drawing.label)));
    writeln!(html, "</div>\n<figcaption>{}</figcaption>\n</figure>", prose(caption))
}

fn write_table(html: &mut String, table: &Table) -> Result {
    let class = |is_words: bool| if is_words { " class=\"words\"" } else { "" };
    html.push_str("<div class=\"wide\"><table>\n<thead><tr>");
    for column in &table.columns {
        write!(html, "<th{}>{}", class(column.is_words), prose(&column.heading))?;
        if !column.unit.is_empty() {
            write!(html, "<small>{}</small>", prose(&column.unit))?;
        }
        html.push_str("</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        html.push_str(if row.is_grey { "<tr class=\"grey\">" } else { "<tr>" });
        for (cell, column) in row.cells.iter().zip(&table.columns) {
            write!(html, "<td{}>{}</td>", class(column.is_words), prose(cell))?;
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
