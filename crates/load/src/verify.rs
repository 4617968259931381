//! What a value says of its own origin, so that a read of it can be compared to the last byte and put in order.
//!
//! Behind the key a marked value says which run wrote it, which client, as which of its writes, and how long it is; all the
//! rest follows from that. Bytes in and out: what may be read when is the matter of `staleness`.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;

/// Which reads are compared as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Verify {
    /// Of the reads, 0–1. At zero values carry no marks, and of every read the beginning is compared.
    share: f64,
    /// Told in every mark, so that values of other runs are not taken for this one's.
    pub(super) run: u32,
}

impl Verify {
    /// Of no read more than the beginning of its value.
    pub const NONE: Verify = Verify { share: 0.0, run: 0 };

    /// All reads.
    pub fn all() -> Verify {
        Verify { share: 1.0, run: 0 }.anew()
    }

    /// The same for another run.
    pub(super) fn anew(self) -> Verify {
        if !self.is_on() {
            return Verify::NONE;
        }
        // Not drawn from the seed: two runs of one seed must not take each other's values for their own.
        let run = RandomState::new().hash_one(()) & low_bits(RUN_CHARACTERS);
        Verify { run: run as u32, ..self }
    }

    /// Whether values carry marks.
    pub(super) fn is_on(self) -> bool {
        self.share > 0.0
    }

    /// Whether read number `read` of client `client` is compared as a whole: a draw that hangs on nothing else.
    pub(super) fn picks(self, client: u32, read: u64) -> bool {
        // As far to the right as 53 bits go, which a float holds without rounding.
        let drawn = mix(mix(u64::from(client)) ^ read) >> 11;
        (drawn as f64) < self.share * (1_u64 << 53) as f64
    }
}

impl FromStr for Verify {
    type Err = String;

    fn from_str(text: &str) -> Result<Verify, String> {
        let share = match (text, text.strip_suffix('%').map(|percent| percent.trim().parse::<f64>())) {
            ("none", _) => 0.0,
            ("all", _) => 1.0,
            (_, Some(Ok(percent))) if percent > 0.0 && percent <= 100.0 => percent / 100.0,
            _ => return Err("write none, all, or a share of the reads above 0 %, as in 1%".into()),
        };
        Ok(Verify { share, run: 0 }.anew())
    }
}

impl fmt::Display for Verify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.share {
            0.0 => write!(f, "none"),
            1.0 => write!(f, "all"),
            // Rounded, for a hundredth of a share and a hundred times that are not the same in floats.
            share => write!(f, "{}%", (share * 100.0 * 1e9).round() / 1e9),
        }
    }
}

/// How long a mark is, in bytes. No value that is shorter than its key, `=` and this carries one.
pub(super) const MARK_BYTES: usize =
    RUN_CHARACTERS + WRITER_CHARACTERS + COUNT_CHARACTERS + LENGTH_CHARACTERS + CHECK_CHARACTERS;

// Six bits each.
const RUN_CHARACTERS: usize = 5;
const WRITER_CHARACTERS: usize = 4;
const COUNT_CHARACTERS: usize = 6;
const LENGTH_CHARACTERS: usize = 5;
const CHECK_CHARACTERS: usize = 4;

/// The writer in the marks of the preload. No client has so high a number.
pub(super) const PRELOAD_WRITER: u32 = (1 << (6 * WRITER_CHARACTERS)) - 1;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Which run wrote it.
    pub(super) run: u32,
    /// Which of its clients, or [`PRELOAD_WRITER`].
    pub(super) writer: u32,
    /// Which of that client's writes it is, counted from 1; of the preload 0.
    pub(super) count: u64,
    /// How long the whole value is, in bytes.
    pub(super) value_bytes: usize,
}

impl Mark {
    /// Appends the mark of a value of key `number`.
    pub(super) fn write(&self, out: &mut Vec<u8>, number: u64) {
        for (value, characters) in self.fields() {
            put(out, value, characters);
        }
        put(out, self.seed(number), CHECK_CHARACTERS);
    }

    /// The mark that `text`, [`MARK_BYTES`] of a value of key `number`, is; `None` when it is none of that key.
    pub(super) fn read(text: &[u8], number: u64) -> Option<Mark> {
        let mut rest = text;
        let mut take = |characters: usize| {
            let (field, behind) = rest.split_at_checked(characters)?;
            rest = behind;
            field.iter().try_fold(0, |value: u64, character| {
                let six = character.checked_sub(b'0').filter(|six| *six < 64)?;
                Some(value << 6 | u64::from(six))
            })
        };
        let mark = Mark {
            run: take(RUN_CHARACTERS)? as u32,
            writer: take(WRITER_CHARACTERS)? as u32,
            count: take(COUNT_CHARACTERS)?,
            value_bytes: take(LENGTH_CHARACTERS)? as usize,
        };
        let check = take(CHECK_CHARACTERS)?;
        (check == mark.seed(number) & low_bits(CHECK_CHARACTERS)).then_some(mark)
    }

    /// What the rest of a value of key `number` is drawn from.
    pub(super) fn seed(&self, number: u64) -> u64 {
        self.fields().into_iter().fold(mix(number), |seed, (value, _)| mix(seed ^ value))
    }

    fn fields(&self) -> [(u64, usize); 4] {
        [
            (u64::from(self.run), RUN_CHARACTERS),
            (u64::from(self.writer), WRITER_CHARACTERS),
            (self.count, COUNT_CHARACTERS),
            (self.value_bytes as u64, LENGTH_CHARACTERS),
        ]
    }
}

/// Appends the low bits of `value`, six to a character from `0` to `o`.
fn put(out: &mut Vec<u8>, value: u64, characters: usize) {
    out.extend((0..characters).rev().map(|place| b'0' + (value >> (6 * place) & 63) as u8));
}

/// As many ones as fit into this many characters.
const fn low_bits(characters: usize) -> u64 {
    (1 << (6 * characters)) - 1
}

/// A number that looks like any other, always the same for the same `value`: the last step of SplitMix64 (Steele, Lea &
/// Flood 2014).
pub(super) fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_verify_reads_back_as_written() {
        for text in ["none", "all", "1%", "0.5%", "12.5%", "7%", "0.000001%"] {
            assert_eq!(text.parse::<Verify>().unwrap().to_string(), text);
        }
        assert_eq!("100%".parse::<Verify>().unwrap().to_string(), "all");
        for wrong in ["", "some", "1", "0%", "-1%", "101%", "NaN%", "%", "inf%"] {
            let why = wrong.parse::<Verify>().unwrap_err();
            assert!(why.contains("none, all, or a share"), "{wrong}: {why}");
        }
    }

    #[test]
    fn a_share_picks_about_that_many_and_always_the_same() {
        let picked = |text: &str, client: u32| -> Vec<u64> {
            let verify: Verify = text.parse().unwrap();
            (0..100_000).filter(|read| verify.picks(client, *read)).collect()
        };
        assert_eq!(picked("none", 1).len(), 0);
        assert_eq!(picked("all", 1).len(), 100_000);
        for (text, expected) in [("1%", 1000.0_f64), ("30%", 30_000.0)] {
            let few = picked(text, 1);
            assert!((few.len() as f64 - expected).abs() < 4.0 * expected.sqrt(), "{}", few.len());
            assert_eq!(few, picked(text, 1));
            assert_ne!(few, picked(text, 2));
        }
    }

    #[test]
    fn a_mark_reads_back_as_written_and_of_its_own_key_only() {
        let all = |characters| low_bits(characters);
        for mark in [
            Mark { run: 0, writer: 0, count: 1, value_bytes: 100 },
            Mark { run: 77, writer: PRELOAD_WRITER, count: 0, value_bytes: 64 << 20 },
            Mark {
                run: all(RUN_CHARACTERS) as u32,
                writer: 99_999,
                count: all(COUNT_CHARACTERS),
                value_bytes: all(LENGTH_CHARACTERS) as usize,
            },
        ] {
            let mut text = Vec::new();
            mark.write(&mut text, 7);
            assert_eq!(text.len(), MARK_BYTES);
            assert!(text.iter().all(|byte| (b'0'..=b'o').contains(byte)), "{}", text.escape_ascii());
            assert_eq!(Mark::read(&text, 7), Some(mark));
            assert_eq!(Mark::read(&text, 8), None);
            assert_eq!(Mark::read(&text[1..], 7), None);
            for place in 0..MARK_BYTES {
                let mut other = text.clone();
                other[place] ^= 1;
                assert_eq!(Mark::read(&other, 7), None, "{place}");
                other[place] = b'z';
                assert_eq!(Mark::read(&other, 7), None, "{place}");
            }
        }
    }

    #[test]
    fn two_runs_of_one_plan_do_not_share_their_values() {
        let once = Verify::all();
        assert_ne!(once.run, once.anew().run);
        assert!(!Verify::NONE.is_on() && once.is_on());
    }
}
