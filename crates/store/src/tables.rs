//! The tables of weir in a database: whether those that are there are weir's, and what it means that one is missing.

use crate::sql::Setup;
use crate::user_table::{VERSIONS, refuse};

/// The table of the rows, unless others made one for them.
pub(super) const ROWS: &str = "weir_kv";

/// The tables that a database has of those that were asked for: the name of each with each of its columns.
pub(super) struct TablesThere(pub(super) Vec<(String, String)>);

impl TablesThere {
    pub(super) fn has(&self, table: &str) -> bool {
        self.0.iter().any(|(name, _)| name == table)
    }

    /// Says that the `table` of the store `shown`, if it is there, is the one that weir makes with this `definition`. `remedy`: where
    /// weir finds other ones.
    pub(super) fn check_own(&self, table: &str, definition: &str, shown: &str, remedy: &str) -> Setup<()> {
        let has = |wanted: &str| self.0.iter().any(|(name, column)| name == table && column == wanted);
        match columns_of(definition).find(|wanted| !has(wanted)) {
            Some(lacking) if self.has(table) => refuse(format!(
                "{table} in {shown} is not a table of weir: it has no column {lacking}; {remedy}"
            )),
            _ => Ok(()),
        }
    }

    /// Says that the table `rows` may be made, which has the rows of the store `shown` or their versions. If a server has used the
    /// database (`is_used`), it had this table, and what it held would be gone without a word.
    pub(super) fn check_rows(&self, rows: &str, is_used: bool, shown: &str) -> Setup<()> {
        // A store that is served with a table of others from now on loses nothing.
        if self.has(rows) || !is_used || rows == VERSIONS && self.has(ROWS) {
            return Ok(());
        }
        let what = format!("{shown} has no table {rows}, although a server has used it");
        if self.has(VERSIONS) {
            return refuse(format!(
                "{what} with a table that already exists; add table=NAME&key=COLUMN&value=COLUMN to its URL, or use another database"
            ));
        }
        let lost = if rows == ROWS { "an empty store" } else { "no lifetimes and content types" };
        refuse(format!(
            "{what}; restore all tables weir_… of a backup, or run DELETE FROM weir_map to begin with {lost}"
        ))
    }
}

/// The columns of the table with this definition.
fn columns_of(definition: &str) -> impl Iterator<Item = &str> {
    let words = definition.split(',').filter_map(|part| part.split_whitespace().next());
    words.filter(|word| *word != "INDEX").map(|word| word.trim_matches('`'))
}
