//! A page before it is written as HTML, Markdown or plain text. All text in it is plain: a writer escapes it.

use super::format::UNKNOWN;
use super::svg::Svg;

/// A file of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path below the directory of the run: `report.html`, `plots/get_popular.svg`.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// A page.
pub(super) struct Document {
    /// Its title.
    pub(super) title: String,
    /// The line above the title: what was run, and when.
    pub(super) above: String,
    /// From top to bottom.
    pub(super) blocks: Vec<Block>,
}

/// A piece of a page.
pub(super) enum Block {
    /// A reason not to believe the page.
    Warning(String),
    /// The answers for each workload, and their drawings beside each other.
    Front { cards: Vec<Card>, figure: Figure },
    /// A section that opens on demand, and on paper is open: its title and what is in it.
    Section(String, Vec<Block>),
    /// A heading within a section.
    Part(String),
    /// A paragraph.
    Text(String),
    /// Lines that explain the table above them.
    Notes(Vec<String>),
    /// A table.
    Table(Table),
    /// Drawings and how to read them.
    Figure(Figure),
    /// Text to be kept as it is.
    Verbatim(String),
}

/// The answers for one workload.
pub(super) struct Card {
    /// The workload, and the title of its section.
    pub(super) name: String,
    /// In the order in which readers ask.
    pub(super) answers: Vec<Answer>,
}

/// An answer.
pub(super) struct Answer {
    /// What it is about, in one word: `knee`.
    pub(super) label: &'static str,
    /// In a few words: `31.9k ± 0.2k req/s`.
    pub(super) said: String,
    /// What belongs to it, the most important first.
    pub(super) details: Vec<String>,
    /// Whether it needs care: a class of the style sheet, empty where it does not.
    pub(super) class: &'static str,
}

/// Drawings beside each other, and how to read them.
pub(super) struct Figure {
    pub(super) drawings: Vec<Drawing>,
    pub(super) caption: String,
}

/// A drawing and its file.
pub(super) struct Drawing {
    /// The file's path below the directory of the run.
    pub(super) file: String,
    /// For those who cannot see it.
    pub(super) label: String,
    /// The drawing itself.
    pub(super) svg: Svg,
}

impl Block {
    /// Whether there is nothing to be written.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Block::Notes(notes) => notes.is_empty(),
            Block::Table(table) => table.rows.is_empty(),
            _ => false,
        }
    }

    /// One drawing.
    pub(super) fn figure(drawing: Drawing, caption: impl Into<String>) -> Block {
        Block::Figure(Figure { drawings: vec![drawing], caption: caption.into() })
    }
}

/// A table. Every row has a cell for every column.
pub(super) struct Table {
    pub(super) columns: Vec<TableColumn>,
    pub(super) rows: Vec<TableRow>,
}

/// The head of a column.
pub(super) struct TableColumn {
    pub(super) heading: String,
    /// The unit, below the heading.
    pub(super) unit: String,
    /// Whether its cells are words, aligned to the left, instead of figures.
    pub(super) is_words: bool,
}

/// The cells of a row.
pub(super) struct TableRow {
    pub(super) cells: Vec<String>,
    /// Whether it is printed in grey: it is not valid, or less important.
    pub(super) is_grey: bool,
}

/// A column of a table about `R`: its heading as in [`Table::of`], and the cell of a row.
pub(super) type Column<'a, R> = (String, Box<dyn Fn(&R) -> Option<String> + 'a>);

/// A column whose heading or cell is made while the page is.
pub(super) fn column<'a, R>(
    heading: impl Into<String>,
    cell: impl Fn(&R) -> Option<String> + 'a,
) -> Column<'a, R> {
    (heading.into(), Box::new(cell))
}

impl Table {
    /// A line for each of `rows`. `None` is a dash, and a column of dashes is left out. A heading that begins with `<` is one
    /// of words; what follows a comma is the unit.
    pub(super) fn of<R, F: Fn(&R) -> Option<String>>(
        rows: &[R],
        columns: &[(impl AsRef<str>, F)],
        is_grey: impl Fn(&R) -> bool,
    ) -> Table {
        let is_known = |(_, cell): &&(_, F)| rows.iter().any(|row| cell(row).is_some());
        let shown: Vec<_> = columns.iter().filter(is_known).collect();
        let line = |row: &R| {
            let cells = shown.iter().map(|(_, cell)| cell(row).unwrap_or_else(|| UNKNOWN.to_owned()));
            TableRow { cells: cells.collect(), is_grey: is_grey(row) }
        };
        Table {
            columns: shown.iter().map(|(heading, _)| TableColumn::new(heading.as_ref())).collect(),
            rows: rows.iter().map(line).collect(),
        }
    }

    /// A table of these cells.
    pub(super) fn new<const N: usize>(headings: [&str; N], rows: Vec<[String; N]>) -> Table {
        let row = |cells: [String; N]| TableRow { cells: cells.into(), is_grey: false };
        Table { columns: headings.map(TableColumn::new).into(), rows: rows.into_iter().map(row).collect() }
    }
}

impl TableColumn {
    fn new(heading: &str) -> TableColumn {
        let (name, unit) = heading.split_once(", ").unwrap_or((heading, ""));
        TableColumn {
            heading: name.trim_start_matches('<').to_owned(),
            unit: unit.to_owned(),
            is_words: heading.starts_with('<'),
        }
    }
}

/// The files of all drawings.
pub(super) fn drawings(blocks: &[Block]) -> Vec<File> {
    let file = |of: &Drawing| File { name: of.file.clone(), text: of.svg.file(&of.label) };
    let of_block = |block: &Block| match block {
        Block::Front { figure, .. } | Block::Figure(figure) => figure.drawings.iter().map(file).collect(),
        Block::Section(_, blocks) => drawings(blocks),
        _ => Vec::new(),
    };
    blocks.iter().flat_map(of_block).collect()
}
