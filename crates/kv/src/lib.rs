//! Keys, rows and writes: the plain data that every tier passes on.
//!
//! Knows nothing of caches, stores or HTTP.

pub mod clock;
pub mod cores;
pub mod counters;
mod error;
mod named_enum;
pub mod proto;
pub mod queue_meter;
mod text;
pub mod faults;
pub mod units;

pub use clock::{Clock, Timestamp};
pub use error::Error;
pub use text::{escaped, line_number, named, one_line};

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;
// For rows, which are many: one count in front of the bytes instead of two, and room for a header between.
use triomphe::{Arc as Counted, HeaderSlice};

/// The longest key, in bytes. The shortest is one byte.
pub const KEY_BYTES_MAX: usize = 1024;

/// The longest content type that is stored, in bytes.
pub const CONTENT_TYPE_BYTES_MAX: usize = 255;

/// The longest content coding that is stored, in bytes.
pub const CONTENT_ENCODING_BYTES_MAX: usize = 64;

/// The longest value that a server can be configured to accept, in bytes.
pub const VALUE_BYTES_MAX: usize = 64 << 20;

/// The content type of a value that was written without one.
pub const CONTENT_TYPE_DEFAULT: &str = "application/octet-stream";

/// A key: 1…[`KEY_BYTES_MAX`] arbitrary bytes. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<[u8]>);

impl Key {
    /// `None` when `bytes` is empty or longer than [`KEY_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Option<Key> {
        (1..=KEY_BYTES_MAX).contains(&bytes.len()).then(|| Key(bytes.into()))
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// In the order of the bytes.
impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0.escape_ascii())
    }
}

/// Orders the writes of a key: a later write has a greater version, over restarts of the server too.
///
/// The upper bits count the starts of servers over this store (the *epoch*), the lower ones the writes since.
/// Fits a signed 64-bit column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

impl Version {
    /// The lower bits, which count the writes of an epoch.
    pub const COUNTER_BITS: u32 = 43;

    /// The first version of an epoch. 2^20 starts of 2^43 writes each: at 100 k writes/s one start lasts 2.7 years.
    pub fn first_of(epoch: u64) -> Version {
        Version(epoch << Self::COUNTER_BITS)
    }

    /// The last epoch whose versions fit.
    pub const EPOCH_MAX: u64 = (1 << (63 - Self::COUNTER_BITS)) - 1;

    /// How many servers had started over the store when this version was given.
    pub fn epoch(self) -> u64 {
        self.0 >> Self::COUNTER_BITS
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What is stored with a value. The default is a value without any of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes<'a> {
    /// Empty for [`CONTENT_TYPE_DEFAULT`].
    pub content_type: &'a str,
    /// Empty for none.
    pub content_encoding: &'a str,
    /// When the row ends, by the store's clock.
    pub expires: Option<Timestamp>,
}

impl<'a> Attributes<'a> {
    /// Those of a row with this content type and [`Row::extra`]. What weir cannot have written is left out.
    pub fn of(content_type: &'a [u8], extra: &'a [u8]) -> Attributes<'a> {
        let expires = extra.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        Attributes {
            content_type: std::str::from_utf8(content_type).unwrap_or_default(),
            content_encoding: std::str::from_utf8(extra.get(EXPIRES_BYTES..).unwrap_or_default())
                .unwrap_or_default(),
            expires: (1..=EXPIRES_MAX).contains(&expires).then_some(Timestamp(expires)),
        }
    }
}

/// A key with its value, attributes and version. Cloning is cheap.
///
/// Key, attributes and value share one allocation, with one counter of its owners and without a second one for weak
/// references: a row costs 24 bytes where it is held, and 12 in front of its bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Row {
    /// Key, content type, [`Extra`] if it has any, and value, one after the other.
    block: Counted<HeaderSlice<Lengths, [u8]>>,
    version: Version,
}

/// Where a row's key ends, its content type, and what most rows do not have.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Lengths {
    key: u16,
    content_type: u8,
    /// When it expires (8 bytes, 0 for never) and its content coding.
    extra: u8,
}

/// Bytes of the time in [`Lengths::extra`].
const EXPIRES_BYTES: usize = 8;
/// The end of the year 9999, in milliseconds: later years have five digits, which dates of HTTP cannot have.
const EXPIRES_MAX: u64 = 253_402_300_799_999;

impl Row {
    /// Packs a row that has no attribute but its content type.
    pub fn new(key: &Key, content_type: &str, value: &[u8], version: Version) -> Row {
        Row::with(key, Attributes { content_type, ..Attributes::default() }, value, version)
    }

    /// Packs a row. A content type that is too long or equal to the default is stored as empty, and so is a content coding that is
    /// too long.
    pub fn with(key: &Key, attributes: Attributes<'_>, value: &[u8], version: Version) -> Row {
        let Attributes { content_type, content_encoding, expires } = attributes;
        let content_type = match content_type {
            CONTENT_TYPE_DEFAULT => "",
            long if long.len() > CONTENT_TYPE_BYTES_MAX => "",
            other => other,
        };
        let content_encoding =
            if content_encoding.len() > CONTENT_ENCODING_BYTES_MAX { "" } else { content_encoding };
        let has_extra = expires.is_some() || !content_encoding.is_empty();
        let extra = if has_extra { EXPIRES_BYTES + content_encoding.len() } else { 0 };
        let key_bytes = key.as_bytes();
        let mut bytes = Vec::with_capacity(key_bytes.len() + content_type.len() + extra + value.len());
        bytes.extend_from_slice(key_bytes);
        bytes.extend_from_slice(content_type.as_bytes());
        if has_extra {
            bytes.extend_from_slice(&expires.map_or(0, |expires| expires.0).to_le_bytes());
            bytes.extend_from_slice(content_encoding.as_bytes());
        }
        bytes.extend_from_slice(value);
        let lengths = Lengths {
            key: key_bytes.len() as u16,
            content_type: content_type.len() as u8,
            extra: extra as u8,
        };
        Row { block: Counted::from_header_and_vec(lengths, bytes), version }
    }

    /// The same row under another version.
    pub fn with_version(mut self, version: Version) -> Row {
        self.version = version;
        self
    }

    /// The same row with another end.
    pub fn with_expiry(&self, key: &Key, expires: Option<Timestamp>) -> Row {
        Row::with(key, Attributes { expires, ..self.attributes() }, self.value(), self.version)
    }

    /// The key's bytes.
    pub fn key(&self) -> &[u8] {
        &self.block.slice[..usize::from(self.block.header.key)]
    }

    /// The content type as stored; empty for [`CONTENT_TYPE_DEFAULT`].
    pub fn content_type(&self) -> &[u8] {
        &self.block.slice[usize::from(self.block.header.key)..self.extra_start()]
    }

    /// Whether it has ended by `clock`, which is read only if it ever does.
    pub fn is_expired(&self, clock: &Clock) -> bool {
        self.block.header.extra != 0
            && self.attributes().expires.is_some_and(|expires| expires <= clock.now())
    }

    /// What is stored with the value.
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes::of(self.content_type(), self.extra())
    }

    /// The value's bytes.
    pub fn value(&self) -> &[u8] {
        &self.block.slice[self.value_start()..]
    }

    /// The version of the write that made this row.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes of key, attributes and value together.
    pub fn bytes(&self) -> usize {
        self.block.slice.len()
    }

    /// Attributes that most rows do not have: when it expires, and its content coding. Empty if it has neither.
    pub fn extra(&self) -> &[u8] {
        &self.block.slice[self.extra_start()..self.value_start()]
    }

    fn extra_start(&self) -> usize {
        usize::from(self.block.header.key) + usize::from(self.block.header.content_type)
    }

    fn value_start(&self) -> usize {
        self.extra_start() + usize::from(self.block.header.extra)
    }
}

impl fmt::Debug for Row {
    /// Values never appear in logs, so not here either.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Row({} @{}, {} B)", self.key().escape_ascii(), self.version, self.value().len())
    }
}

/// What a write does to its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Creates or replaces the row.
    Put(Row),
    /// Removes the row; removing an absent one succeeds.
    Delete,
}

/// A versioned change of one key, as a store applies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Whose row changes.
    pub key: Key,
    /// Greater than that of every earlier write of the key.
    pub version: Version,
    /// To what.
    pub change: Change,
}

impl Write {
    /// The row that it makes, if it makes one.
    pub fn row(&self) -> Option<&Row> {
        match &self.change {
            Change::Put(row) => Some(row),
            Change::Delete => None,
        }
    }

    /// Bytes this write carries to the store.
    pub fn bytes(&self) -> usize {
        match &self.change {
            Change::Put(row) => row.bytes(),
            Change::Delete => self.key.as_bytes().len(),
        }
    }
}

/// What must hold of a key for a write to be made (RFC 9110, section 13).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    #[default]
    None,
    /// `If-None-Match: *`: the key is absent.
    Absent,
    /// `If-Match: *`: the key is present.
    Present,
    /// `If-Match: "v", …`: the key is present with one of these versions.
    VersionIn(Vec<Version>),
}

impl Precondition {
    /// Whether a key whose row has version `current` (`None`: absent) meets it.
    pub fn holds(&self, current: Option<Version>) -> bool {
        match self {
            Precondition::None => true,
            Precondition::Absent => current.is_none(),
            Precondition::Present => current.is_some(),
            Precondition::VersionIn(versions) => current.is_some_and(|v| versions.contains(&v)),
        }
    }
}

named_enum! {
    /// Whether a write that failed has happened.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Outcome {
        /// It has not and will not.
        NotApplied = "not-applied",
        /// It is not known; it may also happen later.
        Unknown = "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_gives_back_what_was_packed() {
        let key = Key::new(b"a/b").unwrap();
        let row = Row::new(&key, "text/plain", b"value", Version(7));
        assert_eq!(
            (row.key(), row.content_type(), row.value()),
            (&b"a/b"[..], &b"text/plain"[..], &b"value"[..])
        );
        let empty = Row::new(&key, CONTENT_TYPE_DEFAULT, b"", Version(8));
        assert_eq!((empty.content_type(), empty.value(), empty.version()), (&b""[..], &b""[..], Version(8)));
        let attributes =
            Attributes { content_type: "a/b", content_encoding: "gzip", expires: Some(Timestamp(9)) };
        let full = Row::with(&key, attributes, b"value", Version(7));
        assert_eq!((full.attributes(), full.value(), full.key()), (attributes, &b"value"[..], &b"a/b"[..]));
        let never = full.with_expiry(&key, None);
        assert_eq!(
            (never.attributes(), never.value()),
            (Attributes { expires: None, ..attributes }, &b"value"[..])
        );
        assert_eq!(row.attributes(), Attributes { content_type: "text/plain", ..Attributes::default() });
        // Another program may write any number into the column.
        let late = |end| full.with_expiry(&key, Some(Timestamp(end))).attributes().expires;
        assert_eq!((late(EXPIRES_MAX), late(EXPIRES_MAX + 1)), (Some(Timestamp(EXPIRES_MAX)), None));
    }

    #[test]
    fn a_key_has_one_to_1024_bytes() {
        assert!(Key::new(b"").is_none());
        assert!(Key::new(&[0; KEY_BYTES_MAX]).is_some());
        assert!(Key::new(&[0; KEY_BYTES_MAX + 1]).is_none());
    }

    #[test]
    fn every_version_of_a_later_epoch_is_greater() {
        let late_in_first = Version(Version::first_of(2).0 - 1);
        assert!(late_in_first < Version::first_of(2));
        assert_eq!((late_in_first.epoch(), Version::first_of(2).epoch()), (1, 2));
        assert!(i64::try_from(Version::first_of(Version::EPOCH_MAX).0).is_ok());
    }

    #[test]
    fn preconditions_hold_as_rfc_9110_says() {
        let one = Some(Version(1));
        for (condition, absent, present) in [
            (Precondition::None, true, true),
            (Precondition::Absent, true, false),
            (Precondition::Present, false, true),
            (Precondition::VersionIn(vec![Version(1)]), false, true),
            (Precondition::VersionIn(vec![Version(2)]), false, false),
        ] {
            assert_eq!((condition.holds(None), condition.holds(one)), (absent, present), "{condition:?}");
        }
    }
}
