//! A page before it is written as HTML, Markdown or plain text. All text in it is plain: a writer escapes it.

use super::svg::Svg;

/// A file of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its path below the directory of the run: `report.html`, `plots/get_popular.svg`.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl File {
    /// A file of text.
    pub(super) fn text(name: &str, text: String) -> File {
        File { name: name.to_owned(), bytes: text.into_bytes() }
    }
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
    Front { cards: Vec<Card>, drawings: Vec<Drawing>, caption: String },
    /// A section that opens on demand, and on paper is open.
    Fold { title: String, anchor: String, blocks: Vec<Block> },
    /// The heading of a section and the name it is linked by.
    Section { title: String, anchor: String },
    /// A heading within a section.
    Part(String),
    /// A paragraph.
    Text(String),
    /// Lines that explain the table above them.
    Notes(Vec<String>),
    /// A table.
    Table(Table),
    /// A drawing and how to read it.
    Figure { drawing: Drawing, caption: String },
    /// Text to be kept as it is.
    Verbatim(String),
}

/// The heading of a section.
pub(super) fn section(title: &str, anchor: &str) -> Block {
    Block::Section { title: title.to_owned(), anchor: anchor.to_owned() }
}

/// A section that opens on demand.
pub(super) fn fold(title: &str, anchor: &str, blocks: Vec<Block>) -> Block {
    Block::Fold { title: title.to_owned(), anchor: anchor.to_owned(), blocks }
}

/// The answers for one workload.
pub(super) struct Card {
    /// The workload.
    pub(super) name: String,
    /// Where its section is.
    pub(super) anchor: String,
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
    /// Whether it needs care.
    pub(super) tone: Tone,
}

/// How an answer is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// As it is.
    Plain,
    /// Together with its details.
    Care,
    /// Not at all.
    Stop,
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

/// A table. Every row has a cell for every column.
pub(super) struct Table {
    pub(super) columns: Vec<TableColumn>,
    pub(super) rows: Vec<TableRow>,
}

/// The head of a column.
#[derive(Clone)]
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

impl TableColumn {
    /// A column of figures.
    pub(super) fn figures(heading: impl Into<String>, unit: impl Into<String>) -> TableColumn {
        TableColumn { heading: heading.into(), unit: unit.into(), is_words: false }
    }
}

impl Table {
    /// A table without rows; a heading that begins with `<` is one of words.
    pub(super) fn new(headings: &[&str]) -> Table {
        let column = |heading: &&str| TableColumn {
            is_words: heading.starts_with('<'),
            ..TableColumn::figures(heading.trim_start_matches('<'), "")
        };
        Table::of(headings.iter().map(column).collect())
    }

    /// A table without rows.
    pub(super) fn of(columns: Vec<TableColumn>) -> Table {
        Table { columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub(super) fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        self.push_row(cells, false);
    }

    /// Adds a row that may be grey.
    pub(super) fn push_row(&mut self, cells: impl IntoIterator<Item = String>, is_grey: bool) {
        self.rows.push(TableRow { cells: cells.into_iter().collect(), is_grey });
    }
}

impl Document {
    /// All drawings, in their order.
    pub(super) fn drawings(&self) -> Vec<&Drawing> {
        fn collect<'a>(blocks: &'a [Block], all: &mut Vec<&'a Drawing>) {
            for block in blocks {
                match block {
                    Block::Front { drawings, .. } => all.extend(drawings),
                    Block::Fold { blocks, .. } => collect(blocks, all),
                    Block::Figure { drawing, .. } => all.push(drawing),
                    _ => {}
                }
            }
        }
        let mut all = Vec::new();
        collect(&self.blocks, &mut all);
        all
    }
}
