//! Events: what happened to keys, in the blocks in which it was committed, and the bytes of a block.
//!
//! ```text
//! body    whether all writes of its time are in blocks, 0 or 1 (1), records
//! record  kind (1), version (8), bytes of the key (2), key, and if the request had an Idempotency-Key: its id (16), digest (8)
//! kind    0 nothing that is seen, 1 put, 2 delete, 3 expire; + 4: the key was there before; + 8: with an id
//! ```
//!
//! Numbers are little endian.

use kv::{Timestamp, Version, named_enum};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

named_enum! {
    /// What happened to a key. A record has its place in this list, counted from 1: the order stays.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum EventKind {
        /// It was created or replaced.
        Put = "put",
        /// It was removed.
        Delete = "delete",
        /// It expired, and was removed or replaced after that.
        Expire = "expire",
    }
}

/// The events of one commit, as a store keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBlock {
    /// Greater than that of every block before it, and than the versions in it.
    pub id: u64,
    /// When it was made, by the store's clock.
    pub at: Timestamp,
    /// As described above.
    pub body: Arc<[u8]>,
}

/// Where a client is in the events of a store: behind so many records of a block, and all blocks before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// [`EventBlock::id`].
    pub block: u64,
    /// How many of its records; [`Position::ALL`] for all.
    pub records: u32,
}

impl Position {
    /// All records of a block.
    pub const ALL: u32 = u32::MAX;

    /// Behind a block.
    pub fn behind(block: u64) -> Position {
        Position { block, records: Position::ALL }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.records {
            Position::ALL => write!(f, "{:x}", self.block),
            records => write!(f, "{:x}-{records:x}", self.block),
        }
    }
}

impl FromStr for Position {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Position, Self::Err> {
        let (block, records) = match text.split_once('-') {
            Some((block, records)) => (block, u32::from_str_radix(records, 16)?),
            None => (text, Position::ALL),
        };
        Ok(Position { block: u64::from_str_radix(block, 16)?, records })
    }
}

/// Tells a request that is sent again from one that only has the same `Idempotency-Key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// A digest of the key and the `Idempotency-Key`.
    pub id: [u8; 16],
    /// A digest of what the request does.
    pub digest: [u8; 8],
}

/// A write in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// `None`: nothing that is seen.
    pub event: Option<EventKind>,
    pub key: &'a [u8],
    pub version: Version,
    /// Whether the key was there before.
    pub existed: bool,
    pub idempotency: Option<Idempotency>,
}

const KIND_BITS: u8 = 3;
const EXISTED: u8 = 4;
const WITH_ID: u8 = 8;

/// A body without records. `is_complete`: all writes of its time are in blocks.
pub(super) fn body(is_complete: bool) -> Vec<u8> {
    vec![u8::from(is_complete)]
}

/// Whether there are records in a body.
pub(super) fn has_records(body: &[u8]) -> bool {
    body.len() > 1
}

/// Whether all writes of its time are in blocks.
pub(super) fn is_complete(body: &[u8]) -> bool {
    body.first() == Some(&1)
}

impl<'a> Record<'a> {
    pub(super) fn add_to(&self, body: &mut Vec<u8>) {
        let kind = self.event.map_or(0, |event| event as u8 + 1);
        let existed = if self.existed { EXISTED } else { 0 };
        let with_id = if self.idempotency.is_some() { WITH_ID } else { 0 };
        body.push(kind | existed | with_id);
        body.extend_from_slice(&self.version.0.to_le_bytes());
        body.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        body.extend_from_slice(self.key);
        if let Some(Idempotency { id, digest }) = &self.idempotency {
            body.extend_from_slice(id);
            body.extend_from_slice(digest);
        }
    }

    fn take_from(body: &mut &'a [u8]) -> Option<Record<'a>> {
        let (&[flags], rest) = body.split_first_chunk()?;
        let (version, rest) = rest.split_first_chunk()?;
        let (key_bytes, rest) = rest.split_first_chunk()?;
        let (key, mut rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_bytes)))?;
        let event =
            usize::from(flags & KIND_BITS).checked_sub(1).and_then(|at| EventKind::ALL.get(at)).copied();
        let idempotency = if flags & WITH_ID == 0 {
            None
        } else {
            let (id, behind) = rest.split_first_chunk()?;
            let (digest, behind) = behind.split_first_chunk()?;
            rest = behind;
            Some(Idempotency { id: *id, digest: *digest })
        };
        *body = rest;
        let version = Version(u64::from_le_bytes(*version));
        Some(Record { event, key, version, existed: flags & EXISTED != 0, idempotency })
    }
}

/// The records of a body, up to the first that is none.
pub(super) fn records(body: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let mut rest = body.get(1..).unwrap_or_default();
    std::iter::from_fn(move || Record::take_from(&mut rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_gives_back_its_records() {
        assert_eq!(EventKind::ALL.map(EventKind::name), ["put", "delete", "expire"], "stored as 1, 2 and 3");
        let idempotency = Some(Idempotency { id: [7; 16], digest: [9; 8] });
        let written = [
            Record {
                event: Some(EventKind::Put),
                key: b"a",
                version: Version(5),
                existed: false,
                idempotency: None,
            },
            Record { event: None, key: &[0xff; 1024], version: Version(6), existed: true, idempotency },
            Record {
                event: Some(EventKind::Expire),
                key: b"",
                version: Version(u64::MAX),
                existed: true,
                idempotency: None,
            },
        ];
        let mut bytes = body(true);
        assert!(!has_records(&bytes) && is_complete(&bytes));
        written.iter().for_each(|record| record.add_to(&mut bytes));
        assert_eq!(records(&bytes).collect::<Vec<_>>(), written);
        // Cut anywhere, it gives the whole records before.
        for length in 0..bytes.len() {
            assert!(written.starts_with(&records(&bytes[..length]).collect::<Vec<_>>()), "{length}");
        }
    }

    #[test]
    fn a_position_is_read_as_it_is_written() {
        for position in [Position::behind(u64::MAX), Position { block: 255, records: 16 }] {
            assert_eq!(position.to_string().parse(), Ok(position));
        }
        for wrong in ["", "-", "x", "1-", "1-100000000", "10000000000000000", "1-2-3", " 1"] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong}");
        }
    }
}
