//! Tables that others made, as stores: what is the same for all databases.
//!
//! The rows stay theirs, and what weir adds stands in the table `weir_versions`. A row of `weir_versions` has the SHA-256 of the
//! value that it is about. While the value is still that one, the version, the content type and the rest there are the row's.
//! Otherwise somebody else has written the value: then its version is 43 bits of its hash, in the epoch 0 that no lease has.
//! The row with the empty key, which no value has, says which table and columns the others are of.
//!
//! So others may write at any time. A write that was decided by what was read locks what it read, and is rolled back if that
//! has changed; the batcher then decides anew.

use crate::sql::{Failure, Meaning, Setup};
use crate::store_url::StoreUrl;
use crate::{Capabilities, Error, Kind, Writers};
use kv::{Key, Row};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

/// The parameters of a URL that name it.
pub(super) const PARAMETERS: [&str; 3] = ["table", "key", "value"];

pub(super) const VERSIONS: &str = "weir_versions";

/// Of what is kept of values that others have removed, so much is forgotten each time expired rows are asked for, however many of
/// these.
pub(super) const FORGOTTEN_AT_ONCE: u64 = 1000;

/// Where the rows of a store are: in weir's own table, unless the URL names one of others.
pub(super) struct RowsTable<S> {
    pub(super) names: Option<Names>,
    /// What the table of others turned out to be.
    known: OnceLock<Arc<UserTable<S>>>,
    /// Others may write the rows at any time, and nothing is cached.
    pub(super) others_write: bool,
}

impl<S> RowsTable<S> {
    /// What the parameters of `url` say, which are no longer in it.
    pub(super) fn of(url: &mut StoreUrl) -> Result<RowsTable<S>, String> {
        Ok(RowsTable { names: Names::of(url)?, known: OnceLock::new(), others_write: false })
    }

    /// The first look counts: the database checks again what it lets through.
    pub(super) fn examined(&self, table: UserTable<S>) {
        self.known.get_or_init(|| {
            if !self.others_write {
                log::info!(
                    "what other programs write to {} is not noticed while the value before is cached; with --foreign-writers nothing is cached",
                    table.shown
                );
            }
            Arc::new(table)
        });
    }

    /// The table of others, once the store was acquired.
    pub(super) fn known(&self) -> Option<&Arc<UserTable<S>>> {
        self.known.get()
    }

    /// See [`crate::Store::allow_foreign_writers`].
    pub(super) fn allow_foreign_writers(&mut self) -> bool {
        self.others_write = true;
        self.names.is_some()
    }

    /// See [`crate::Store::capabilities`].
    pub(super) fn capabilities(&self) -> Capabilities {
        match self.names.is_some() && self.others_write {
            // Nobody says what the others write.
            true => Capabilities { writers: Writers::OwnerAndPrograms, ..Capabilities::OWNED },
            false => Capabilities::OWNED,
        }
    }

    /// See [`crate::Store::refuses`].
    pub(super) fn refuses(&self, key: &Key, row: Option<&Row>) -> Option<Error> {
        self.known()?.refuses(key, row)
    }
}

/// A table that others made, and what can be in it.
#[derive(Debug)]
pub(super) struct UserTable<S> {
    /// For messages.
    pub(super) shown: String,
    /// Within statements.
    pub(super) table: String,
    pub(super) key: Column,
    pub(super) value: Column,
    /// Stands for the table and both columns, in `weir_versions`.
    pub(super) mark: Vec<u8>,
    pub(super) statements: S,
}

/// What the URL says of it.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) table: String,
    pub(super) key: String,
    pub(super) value: String,
}

impl Names {
    /// The table within statements: each part of its name as the database's `quoted` writes it.
    pub(super) fn quoted_table(&self, quoted: fn(&str) -> String) -> String {
        self.table.splitn(2, '.').map(quoted).collect::<Vec<_>>().join(".")
    }

    /// See [`UserTable::mark`]; the schema and the table are as the database calls them.
    pub(super) fn mark(&self, schema: &str, table: &str) -> Vec<u8> {
        digest([schema, table, &self.key, &self.value].join("\0").as_bytes())
    }

    fn of(url: &mut StoreUrl) -> Result<Option<Names>, String> {
        match PARAMETERS.map(|name| url.take(name)) {
            [None, None, None] => Ok(None),
            [Some(table), ..] if table.rsplit('.').next().is_some_and(|name| name.starts_with("weir_")) => {
                Err(format!("table={table} is a table of weir itself: name one of another program"))
            }
            [_, Some(key), Some(value)] if key == value => {
                Err(format!("key={key} and value={value} are the same column: name two"))
            }
            [Some(table), Some(key), Some(value)] => Ok(Some(Names { table, key, value })),
            _ => Err("table, key and value go together: write table=NAME&key=COLUMN&value=COLUMN".into()),
        }
    }
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Bytes,
    Text,
    /// To which spaces at the end are nothing.
    PaddedText,
    Uuid,
    /// With so many bits.
    Integer(u32),
    Json,
    /// The database writes these values anew.
    Jsonb,
}

impl Type {
    /// The content type of values that came without one.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Type::Json | Type::Jsonb => "application/json",
            Type::Text | Type::PaddedText => "text/plain; charset=utf-8",
            _ => "",
        }
    }

    /// Whether a column has exactly these bytes as the text of a value.
    fn fits(self, bytes: &[u8]) -> bool {
        let text = || std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
        match self {
            Type::Bytes => true,
            Type::Text | Type::Json | Type::Jsonb => text().is_some(),
            Type::PaddedText => text().is_some_and(|text| !text.ends_with(' ')),
            Type::Integer(bits) => {
                let number = text()
                    .and_then(|text| text.parse::<i64>().ok().filter(|number| number.to_string() == text));
                number.is_some_and(|number| number >> (bits - 1) == number >> 63)
            }
            Type::Uuid => {
                let is_dash = |at| [8, 13, 18, 23].contains(&at);
                let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                bytes.len() == 36
                    && bytes
                        .iter()
                        .enumerate()
                        .all(|(at, byte)| if is_dash(at) { *byte == b'-' } else { is_digit(*byte) })
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// What the database calls its type.
    pub(super) type_name: String,
    pub(super) kind: Type,
    /// The most text that it holds, if that is limited.
    pub(super) length_max: Option<Length>,
}

/// The most that a column of text holds. Databases cut spaces behind it off, without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Characters(u64),
    /// As UTF-8.
    Bytes(u64),
}

impl Column {
    /// Whether it has exactly these bytes as the text of a value.
    fn fits(&self, bytes: &[u8]) -> bool {
        let is_short = match self.length_max {
            None => true,
            Some(Length::Characters(most)) => {
                std::str::from_utf8(bytes).is_ok_and(|text| text.chars().count() as u64 <= most)
            }
            Some(Length::Bytes(most)) => bytes.len() as u64 <= most,
        };
        is_short && self.kind.fits(bytes)
    }
}

impl<S> UserTable<S> {
    /// An error if one of these keys and rows cannot be in the table: requests that waited for the lease were not checked before. The
    /// database would take some for others, as 007 for 7.
    pub(super) fn check<'k>(
        &self,
        mut rows: impl Iterator<Item = (&'k Key, Option<&'k Row>)>,
    ) -> Result<(), Error> {
        rows.find_map(|(key, row)| self.refuses(key, row)).map_or(Ok(()), Err)
    }

    /// Says that `weir_versions` of the store `store` is of this table: else it would give lifetimes to values of others that are the
    /// same by chance. `marked`: its mark; `key`: its column, in statements.
    pub(super) fn check_mark(&self, marked: &[u8], store: &str, key: &str) -> Setup<()> {
        if marked == self.mark {
            return Ok(());
        }
        let what =
            format!("weir_versions in {store} is of another table, or other columns, than {}", self.shown);
        let renamed = format!(
            "if it was renamed, or a column, run DELETE FROM {VERSIONS} WHERE {key} = '', which forgets its events"
        );
        let anew = format!(
            "if the other table is served no more, run DELETE FROM {VERSIONS}, which forgets its events, lifetimes and content types"
        );
        refuse(format!("{what}; a database is one store: use another one for this table; {renamed}; {anew}"))
    }

    /// Why there is never such a row, if that is so.
    fn refuses(&self, key: &Key, row: Option<&Row>) -> Option<Error> {
        let (what, bytes, column) = match row {
            _ if !self.key.fits(key.as_bytes()) => ("key", key.as_bytes(), &self.key),
            Some(row) if !self.value.fits(row.value()) => ("value", row.value(), &self.value),
            _ => return None,
        };
        let Column { name, type_name, length_max, kind } = column;
        let most = match (kind, length_max) {
            (Type::Text | Type::Json | Type::Jsonb, _) if !kind.fits(bytes) => {
                ": valid UTF-8 without NUL".to_owned()
            }
            (Type::PaddedText, _) if !kind.fits(bytes) => {
                ": valid UTF-8 without NUL, and without a space at its end".to_owned()
            }
            (Type::Uuid, _) => ", in lower case with dashes".to_owned(),
            (_, None) => String::new(),
            (_, Some(Length::Characters(most))) => format!(" of at most {most} characters"),
            (_, Some(Length::Bytes(most))) => format!(" of at most {most} bytes"),
        };
        let shown = &self.shown;
        let why = format!("the {what} does not fit the column {name} of {shown}, which is {type_name}{most}");
        Some(Error::new(Kind::Unfit, why))
    }
}

/// What a database says of a column of a table of others.
pub(super) struct Described {
    pub(super) name: String,
    pub(super) type_name: String,
    /// `None`: weir does not know it.
    pub(super) kind: Option<Type>,
    pub(super) length_max: Option<Length>,
    /// Whether a row can be made without it.
    pub(super) is_filled: bool,
    pub(super) is_generated: bool,
}

impl Described {
    /// The column called `name`, which can be written; `remedy` if the database makes its values.
    pub(super) fn find<'c>(
        columns: &'c [Described],
        shown: &str,
        name: &str,
        remedy: &str,
    ) -> Setup<&'c Described> {
        let Some(found) = columns.iter().find(|column| column.name == name) else {
            let known: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            return refuse(format!("{shown} has no column {name}; it has {}", known.join(", ")));
        };
        if found.is_generated {
            return refuse(format!(
                "the column {name} of {shown} is generated, so it cannot be written; {remedy}"
            ));
        }
        Ok(found)
    }

    /// The column, if it is of a type that `is_right`; `others` are the types that there are.
    pub(super) fn column(
        &self,
        shown: &str,
        is_right: impl FnOnce(Type) -> bool,
        others: &str,
    ) -> Setup<Column> {
        let Described { name, type_name, kind, length_max, .. } = self;
        match kind.filter(|kind| is_right(*kind)) {
            Some(kind) => {
                Ok(Column { name: name.clone(), type_name: type_name.clone(), kind, length_max: *length_max })
            }
            None => refuse(format!("the column {name} of {shown} is {type_name}; {others}")),
        }
    }
}

impl Names {
    /// Says that a row can be made of key and value alone. `table` and `quoted` are for statements.
    pub(super) fn check_others(
        &self,
        columns: &[Described],
        table: &str,
        quoted: impl Fn(&str) -> String,
    ) -> Setup<()> {
        let is_lacking =
            |column: &&Described| !column.is_filled && column.name != self.key && column.name != self.value;
        let Some(Described { name, .. }) = columns.iter().find(is_lacking) else { return Ok(()) };
        refuse(format!(
            "the column {name} of {} is NOT NULL without a default, so no row can be made; run ALTER TABLE {table} ALTER {} SET DEFAULT …",
            self.table,
            quoted(name)
        ))
    }
}

/// A list was asked for, of a column of keys that has another order than that of the bytes.
pub(super) fn no_order(Column { name, type_name, .. }: &Column, bytes: &str) -> Error {
    let why = format!(
        "keys are listed in the order of their bytes, which the column {name} does not have: it is {type_name}, not {bytes}"
    );
    Error::new(Kind::Unsupported, why)
}

/// What the next write is decided by.
#[derive(Default)]
pub(super) struct Seen {
    /// What is read of these decides it.
    by: HashSet<Key>,
    rows: HashMap<Key, Option<Row>>,
}

impl Seen {
    /// What is read of these keys from here on decides the next write.
    pub(super) fn begin(&mut self, by: &[Key]) {
        *self = Seen { by: by.iter().cloned().collect(), ..Seen::default() };
    }

    /// It was written.
    pub(super) fn end(&mut self) {
        *self = Seen::default();
    }

    pub(super) fn note(&mut self, keys: &[Key], rows: &[Option<Row>]) {
        let decide = keys.iter().zip(rows).filter(|(key, _)| self.by.contains(*key));
        self.rows.extend(decide.map(|(key, row)| (key.clone(), row.clone())));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.rows.keys()
    }

    /// Whether the value of `key`, if there is one, is still the one with this digest.
    pub(super) fn is_as(&self, key: &Key, now: Option<&[u8]>) -> bool {
        let seen = self.rows.get(key).and_then(|row| row.as_ref().map(|row| digest(row.value())));
        seen.as_deref() == now
    }
}

pub(super) fn digest(value: &[u8]) -> Vec<u8> {
    Sha256::digest(value).to_vec()
}

/// What was seen is no longer so.
pub(super) fn changed_since() -> Failure {
    Failure::Database(Meaning::RolledBack, "another program changed a row meanwhile".to_owned())
}

/// What the table does not take is the fault of who sent it.
pub(super) fn refused_by(shown: &str, why: &str) -> Failure {
    Error::new(Kind::Unfit, format!("the table {shown} refuses it: {why}")).into()
}

pub(super) fn refuse<T>(message: String) -> Setup<T> {
    Err(Error::new(Kind::Config, message).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_fits_a_column_only_in_the_form_that_comes_back() {
        for (kind, fit, unfit) in [
            (Type::Bytes, &["", "\0", "x"][..], &[][..]),
            (Type::Text, &["a", "ü", "a "], &["a\0"]),
            (Type::PaddedText, &["a", " a"], &["a ", "a\0"]),
            (
                Type::Integer(16),
                &["0", "-32768", "32767"],
                &["32768", "-32769", "+1", "01", "-0", " 1", "", "x"],
            ),
            (Type::Integer(64), &["9223372036854775807"], &["9223372036854775808"]),
            (
                Type::Uuid,
                &["01234567-89ab-cdef-0123-456789abcdef"],
                &[
                    "01234567-89AB-cdef-0123-456789abcdef",
                    "0123456789abcdef0123456789abcdef",
                    "0123456-789ab-cdef-0123-456789abcdef",
                ],
            ),
        ] {
            assert!(fit.iter().all(|text| kind.fits(text.as_bytes())), "{kind:?}");
            assert!(unfit.iter().all(|text| !kind.fits(text.as_bytes())), "{kind:?}");
        }
        assert!(!Type::Text.fits(b"\xff"));
    }

    #[test]
    fn spaces_behind_the_end_of_a_column_do_not_fit() {
        for (length_max, fit, unfit) in [
            (Length::Characters(3), &["ab ", "\u{fc}\u{fc}\u{fc}"][..], &["ab  ", "abcd"][..]),
            (Length::Bytes(3), &["ab ", "\u{fc} "], &["ab  ", "\u{fc}\u{fc}"]),
        ] {
            let (name, type_name) = (String::new(), String::new());
            let column = Column { name, type_name, kind: Type::Text, length_max: Some(length_max) };
            assert!(fit.iter().all(|text| column.fits(text.as_bytes())), "{length_max:?}");
            assert!(unfit.iter().all(|text| !column.fits(text.as_bytes())), "{length_max:?}");
        }
    }
}
