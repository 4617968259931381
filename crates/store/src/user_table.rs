//! Tables that others made, as stores: what is the same for all databases.
//!
//! The rows stay theirs, and what weir adds stands in the table `weir_versions`. A row of `weir_versions` has the SHA-256 of the
//! value that it is about. While the value is still that one, the version, the content type and the rest there are the row's.
//! Otherwise somebody else has written the value: then its version is 43 bits of its hash, in the epoch 0 that no lease has.
//!
//! So others may write at any time. A write that was decided by what was read locks what it read, and is rolled back if that
//! has changed; the batcher then decides anew.

use crate::sql::{Failure, Meaning, Setup};
use crate::store_url::StoreUrl;
use crate::{Capabilities, Error, Kind, Writers};
use kv::{Key, Row};
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// The parameters of a URL that name it.
pub(super) const PARAMETERS: [&str; 3] = ["table", "key", "value"];

pub(super) const VERSIONS: &str = "weir_versions";

/// Of what is kept of values that others have removed, so much is forgotten each time expired rows are asked for, however many of
/// these.
pub(super) const FORGOTTEN_AT_ONCE: u64 = 1000;

/// What a store can do with its own tables, or with one of others (`is_user_table`).
pub(super) fn capabilities(is_user_table: bool, others_write: bool) -> Capabilities {
    match is_user_table && others_write {
        // Nobody says what the others write.
        true => Capabilities { writers: Writers::OwnerAndPrograms, has_events: false, ..Capabilities::OWNED },
        false => Capabilities::OWNED,
    }
}

/// What the URL says of it.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) table: String,
    pub(super) key: String,
    pub(super) value: String,
}

impl Names {
    pub(super) fn of(url: &mut StoreUrl) -> Result<Option<Names>, String> {
        match PARAMETERS.map(|name| url.take(name)) {
            [None, None, None] => Ok(None),
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

/// Why there is never such a row in the table `shown`, if that is so.
pub(super) fn refuses(
    shown: &str,
    key_column: &Column,
    value_column: &Column,
    key: &Key,
    row: Option<&Row>,
) -> Option<Error> {
    let unfit = |what: &str, Column { name, type_name, length_max, .. }: &Column| {
        let most = match length_max {
            None => String::new(),
            Some(Length::Characters(most)) => format!(" of at most {most} characters"),
            Some(Length::Bytes(most)) => format!(" of at most {most} bytes"),
        };
        let why = format!("the {what} does not fit the column {name} of {shown}, which is {type_name}{most}");
        Some(Error::new(Kind::Unfit, why))
    };
    if !key_column.fits(key.as_bytes()) {
        return unfit("key", key_column);
    }
    row.filter(|row| !value_column.fits(row.value())).and_then(|_| unfit("value", value_column))
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
    is_open: bool,
    rows: HashMap<Key, Option<Row>>,
}

impl Seen {
    /// What is read from here on decides the next write.
    pub(super) fn begin(&mut self) {
        *self = Seen { is_open: true, ..Seen::default() };
    }

    /// It was written.
    pub(super) fn end(&mut self) {
        *self = Seen::default();
    }

    pub(super) fn note(&mut self, keys: &[Key], rows: &[Option<Row>]) {
        if self.is_open {
            self.rows.extend(keys.iter().cloned().zip(rows.iter().cloned()));
        }
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
