//! A page as HTML: one file without scripts, for the screen, light or dark, and for paper.

use super::document::{Answer, Block, Card, Document, Figure, Table, TableRow};
use super::format::slug;
use super::svg;
use kv::escaped;

/// Writes the page.
pub(super) fn write(document: &Document) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n<main>\n\
         <header>\n<h1>{}</h1>\n<p class=\"above\">{}</p>\n</header>\n{}</main>\n</body>\n</html>\n",
        escaped(&document.title),
        include_str!("style.css"),
        svg::style(),
        prose(&document.title),
        prose(&document.above),
        each(&document.blocks, block),
    )
}

fn each<T>(all: &[T], write: impl Fn(&T) -> String) -> String {
    all.iter().map(write).collect()
}

fn block(of: &Block) -> String {
    match of {
        _ if of.is_empty() => String::new(),
        Block::Warning(text) => format!("<p class=\"warning\">{}</p>\n", prose(text)),
        Block::Front { cards, figure } => format!(
            "<div class=\"front of-{}\">\n<div class=\"cards\">\n{}</div>\n{}</div>\n",
            cards.len().min(3),
            each(cards, card),
            self::figure(figure)
        ),
        Block::Section(title, blocks) => format!(
            "<details id=\"{}\">\n<summary><h2>{}</h2></summary>\n{}</details>\n",
            slug(title),
            prose(title),
            each(blocks, block)
        ),
        Block::Part(title) => format!("<h3>{}</h3>\n", prose(title)),
        Block::Text(text) => format!("<p>{}</p>\n", prose(text)),
        Block::Notes(notes) => {
            let notes = each(notes, |note| format!("<li>{}</li>\n", prose(note)));
            format!("<ul class=\"notes\">\n{notes}</ul>\n")
        }
        Block::Table(table) => self::table(table),
        Block::Figure(figure) => self::figure(figure),
        Block::Verbatim(text) => format!("<pre>{}</pre>\n", escaped(text.trim_end())),
    }
}

fn card(card: &Card) -> String {
    let answer = |Answer { label, said, details, class }: &Answer| {
        let (said, details) = (prose(said), prose(&details.join("; ")));
        format!("<div class=\"{class}\"><dt>{label}</dt><dd>{said}</dd><dd>{details}</dd></div>\n")
    };
    let (anchor, name, answers) = (slug(&card.name), escaped(&card.name), each(&card.answers, answer));
    format!(
        "<section class=\"card\">\n<h2><a href=\"#{anchor}\">{name}</a></h2>\n<dl>\n{answers}</dl>\n</section>\n"
    )
}

fn figure(figure: &Figure) -> String {
    let drawings = each(&figure.drawings, |drawing| drawing.svg.element(&drawing.label));
    let caption = prose(&figure.caption);
    format!(
        "<figure>\n<div class=\"drawings\">\n{drawings}</div>\n<figcaption>{caption}</figcaption>\n</figure>\n"
    )
}

fn table(table: &Table) -> String {
    let class = |is_words: bool| if is_words { " class=\"words\"" } else { "" };
    let heads = each(&table.columns, |of| {
        let unit =
            if of.unit.is_empty() { String::new() } else { format!("<small>{}</small>", prose(&of.unit)) };
        format!("<th{}>{}{unit}</th>", class(of.is_words), prose(&of.heading))
    });
    let rows = each(&table.rows, |TableRow { cells, is_grey }| {
        let cells = cells.iter().zip(&table.columns);
        let cells = cells.map(|(cell, of)| format!("<td{}>{}</td>", class(of.is_words), prose(cell)));
        let grey = if *is_grey { " class=\"grey\"" } else { "" };
        format!("<tr{grey}>{}</tr>\n", cells.collect::<String>())
    });
    format!(
        "<div class=\"wide\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table></div>\n"
    )
}

/// Escaped, and with a figure tied to its unit so that no line breaks between them.
fn prose(text: &str) -> String {
    const TIES: &[&str] =
        &[" %", " µs", " ms", " s,", " ± ", "≥ ", "≤ ", " req/s", " client", " run", "p50 ", "p99 "];
    TIES.iter().fold(escaped(text), |text, tie| text.replace(tie, &tie.replace(' ', "\u{a0}")))
}
