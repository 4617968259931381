//! Which part of the keys a store holds: the placement, and the map that every shard carries.
//!
//! Pure: each store keeps the map's text beside its epoch and has it judged here.

use super::{Error, Kind};
use std::fmt;

/// Among how many stores one server may divide its keys.
pub const SHARDS_MAX: usize = 32;

/// The placement's name in the map.
const PLACEMENT: &str = "fnv1a64";

/// The shard of `key` among `of`, which is not 0: FNV-1a with 64 bits, modulo their number.
///
/// Never changes: stores on disk depend on it. Source: Fowler, Noll and Vo, as in
/// draft-eastlake-fnv; bytes are unsigned.
pub fn shard_of(key: &[u8], of: usize) -> usize {
    (fnv1a64(key) % of as u64) as usize
}

fn fnv1a64(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 14_695_981_039_346_656_037;
    const PRIME: u64 = 1_099_511_628_211;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// One of the stores that a server's keys are divided among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which one, `0..of`.
    pub index: usize,
    /// How many there are.
    pub of: usize,
}

impl Part {
    /// All keys.
    pub const WHOLE: Part = Part { index: 0, of: 1 };

    /// What is written into the store: `1 of 1`, or `2 of 3 by fnv1a64`.
    pub fn map(self) -> String {
        let Part { index, of } = self;
        match self {
            Part::WHOLE => "1 of 1".into(),
            _ => format!("{} of {of} by {PLACEMENT}", index + 1),
        }
    }

    /// Compares the map found in `store` (its name, for the message) with this part. `Ok(true)`: there is none yet, and
    /// [`Part::map`] is to be written. A store that holds rows (`in_use`) without a map is from before there were any: the
    /// whole. Error: [`Kind::Config`].
    pub fn admit(self, recorded: Option<&str>, in_use: bool, store: &str) -> Result<bool, Error> {
        let whole = Part::WHOLE.map();
        let found = match recorded {
            None if !in_use => return Ok(true),
            None => whole.as_str(),
            Some(found) => found,
        };
        if found == self.map() {
            return Ok(recorded.is_none());
        }
        let given = if self == Part::WHOLE { "the only store".to_owned() } else { self.to_string() };
        let (what, remedy) = match found.split_once(" by ") {
            _ if found == whole => ("a whole store", "serve it alone, or divide the keys among empty stores"),
            Some((place, PLACEMENT)) => (place, "give the --store URLs in their first order, all of them"),
            _ => (found, "serve it with the version of weir that wrote this map"),
        };
        let shard = if found == whole { "" } else { "shard " };
        let message = format!("{store} is {shard}{what}, but was given as {given}; {remedy}");
        Err(Error::new(Kind::Config, message))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shard {} of {}", self.index + 1, self.of)
    }
}

/// What a store is to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It holds the keys, or a part of them.
    Store(Part),
    /// It is only read, and may be away when the server starts.
    Replica,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Store(Part::WHOLE) => f.write_str("the store"),
            Role::Store(part) => part.fmt(f),
            Role::Replica => f.write_str("the replica"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        for (bytes, hash) in [
            (&b""[..], 0xcbf2_9ce4_8422_2325),
            (b"a", 0xaf63_dc4c_8601_ec8c),
            (b"b", 0xaf63_df4c_8601_f1a5),
            (b"foobar", 0x8594_4171_f739_67e8),
            // Unsigned: sign extension, as some C++ has it, gives another hash from here on.
            (b"\xff", 0xaf64_724c_8602_eb6e),
        ] {
            assert_eq!(fnv1a64(bytes), hash, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn a_keys_shard_never_changes() {
        for (key, of_2, of_3) in TABLE {
            assert_eq!((shard_of(key, 2), shard_of(key, 3)), (*of_2, *of_3), "{}", key.escape_ascii());
        }
        assert!((0..1000).all(|i: u32| shard_of(&i.to_be_bytes(), 1) == 0));
    }

    /// A key, its shard of two, its shard of three.
    const TABLE: &[(&[u8], usize, usize)] = &[
        (b"a", 0, 1),
        (b"key-1", 0, 1),
        (b"key-2", 1, 0),
        (b"key-10000000", 0, 2),
        (b"popular_0", 1, 2),
        (b"\x00", 1, 0),
        (b"\xff\xfe", 0, 2),
        (b"a/b", 1, 0),
        ("ü".as_bytes(), 0, 0),
    ];

    #[test]
    fn keys_spread_evenly() {
        for of in [2, 3, 8] {
            let mut counts = vec![0; of];
            (0..8000).for_each(|i| counts[shard_of(format!("key-{i}").as_bytes(), of)] += 1);
            let even = 8000 / of;
            assert!(counts.iter().all(|count| (even * 9 / 10..even * 11 / 10).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn a_store_is_taken_only_for_the_part_it_holds() {
        let part = |index, of| Part { index, of };
        for (given, recorded, in_use, expected) in [
            (Part::WHOLE, None, false, Ok(true)),
            (Part::WHOLE, None, true, Ok(true)),
            (Part::WHOLE, Some("1 of 1"), true, Ok(false)),
            (part(1, 2), None, false, Ok(true)),
            (part(1, 2), Some("2 of 2 by fnv1a64"), true, Ok(false)),
            (
                part(0, 2),
                Some("2 of 2 by fnv1a64"),
                true,
                Err(
                    "S is shard 2 of 2, but was given as shard 1 of 2; give the --store URLs in their first order, all of them",
                ),
            ),
            // Wrong even while it is empty: the rows of the others would be out of sight.
            (
                Part::WHOLE,
                Some("1 of 2 by fnv1a64"),
                false,
                Err(
                    "S is shard 1 of 2, but was given as the only store; give the --store URLs in their first order, all of them",
                ),
            ),
            (
                part(3, 4),
                Some("2 of 3 by fnv1a64"),
                true,
                Err(
                    "S is shard 2 of 3, but was given as shard 4 of 4; give the --store URLs in their first order, all of them",
                ),
            ),
            (
                part(0, 2),
                None,
                true,
                Err(
                    "S is a whole store, but was given as shard 1 of 2; serve it alone, or divide the keys among empty stores",
                ),
            ),
            (
                part(0, 2),
                Some("1 of 2 by rendezvous"),
                true,
                Err(
                    "S is shard 1 of 2 by rendezvous, but was given as shard 1 of 2; serve it with the version of weir that wrote this map",
                ),
            ),
        ] {
            let got = given.admit(recorded, in_use, "S");
            assert!(got.as_ref().err().is_none_or(|error| error.kind() == Kind::Config));
            assert_eq!(got.map_err(|error| error.to_string()), expected.map_err(str::to_owned));
        }
    }
}
