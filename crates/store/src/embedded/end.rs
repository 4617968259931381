//! The file in which a log at rest says where it ends: after a clean stop, and in a backup.
//!
//! A log that was cut off by a crash ends somewhere, and what stood behind that was never acknowledged. Of one at rest it is known what
//! it holds, so that a file that became shorter is damage. As soon as the log is used again it has a later segment, and this says nothing.

use super::files::{self, END};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const NEXT: &str = "end.next";

/// Epochs between that of a copy and the first one of its use. Whoever goes on with the original very probably begins fewer meanwhile,
/// or others than another copy.
const GAP: std::ops::Range<u64> = 1024..4096;

/// Where a log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The number of the store: of any other log this says nothing.
    pub store: u64,
    /// The oldest segment that counts, and the newest.
    pub first: u32,
    pub segment: u32,
    /// How many bytes of the newest are written.
    pub bytes: u64,
    /// Whether this log is a copy, whose original may have gone on.
    pub is_copy: bool,
}

/// What the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndFile {
    /// It is not there.
    Absent,
    Whole(End),
    /// It is damaged: it gets its name when it is on disk.
    Damaged {
        bytes: u64,
    },
}

impl End {
    /// Writes it for the log in `directory`, all of which is on disk.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let next = directory.join(NEXT);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&next, directory.join(END))?;
        File::open(directory)?.sync_all()
    }

    /// Of the log in `directory`, whether it is still at rest or not.
    pub(super) fn read(directory: &Path) -> io::Result<EndFile> {
        match fs::read(directory.join(END)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(EndFile::Absent),
            Err(error) => Err(error),
            Ok(bytes) => Ok(str::from_utf8(&bytes)
                .ok()
                .and_then(End::of)
                .map_or(EndFile::Damaged { bytes: bytes.len() as u64 }, EndFile::Whole)),
        }
    }

    /// Removes what is said of the log in `directory`.
    pub(super) fn remove(directory: &Path) -> io::Result<()> {
        for name in [NEXT, END] {
            files::remove_if_there(&directory.join(name))?;
        }
        File::open(directory)?.sync_all()
    }

    fn text(&self) -> String {
        let End { store, first, segment, bytes, is_copy } = self;
        let said = format!("{store:016x} {first} {segment} {bytes} {is_copy}");
        format!("{said} {}\n", crc32fast::hash(said.as_bytes()))
    }

    fn of(text: &str) -> Option<End> {
        let mut words = text.split_whitespace();
        let end = End {
            store: u64::from_str_radix(words.next()?, 16).ok()?,
            first: words.next()?.parse().ok()?,
            segment: words.next()?.parse().ok()?,
            bytes: words.next()?.parse().ok()?,
            is_copy: words.next()?.parse().ok()?,
        };
        (end.text() == text).then_some(end)
    }
}

impl EndFile {
    /// What is said of a log at rest: one of this store, without a later segment than `newest`.
    pub(super) fn at_rest(self, store: u64, newest: u32) -> Option<End> {
        match self {
            EndFile::Whole(end) => (end.store == store && end.segment >= newest).then_some(end),
            EndFile::Absent | EndFile::Damaged { .. } => None,
        }
    }
}

/// A number of epochs that somebody else hardly has begun meanwhile.
pub(super) fn gap() -> u64 {
    GAP.start + RandomState::new().hash_one(()) % (GAP.end - GAP.start)
}

#[cfg(test)]
mod tests {
    use super::super::backup::backup;
    use super::super::files;
    use super::super::log::Log;
    use super::super::repair::{check, repair};
    use super::super::replay::{Damage, Lost};
    use super::*;
    use crate::Part;
    use kv::{Change, Key, Row, Version, Write};
    use std::path::PathBuf;

    fn opened(directory: &Path) -> Result<Log, crate::Error> {
        Log::open(directory, Some(1 << 16), |map, in_use| {
            Part::WHOLE.admit(map, in_use, "it").map(|_| Part::WHOLE.map())
        })
    }

    /// A store of several segments that was used once, and its newest segment.
    fn at_rest(directory: &Path, puts: u8) -> (u64, PathBuf) {
        let log = opened(directory).unwrap();
        for number in 0..puts {
            let key = Key::new(&[number]).unwrap();
            let row = Row::new(&key, "", &[number; 2000], Version::first_of(log.epoch()));
            log.write(&[Write { key, version: row.version(), change: Change::Put(row) }]).unwrap();
        }
        log.say_end().unwrap();
        (log.epoch(), files::path(directory, *files::segments(directory).unwrap().last().unwrap()))
    }

    fn cut(path: &Path, bytes: u64) {
        OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
    }

    #[test]
    fn what_is_said_is_read_and_what_is_damaged_says_nothing() {
        let end = End { store: 9, first: 3, segment: 10, bytes: 4711, is_copy: true };
        assert_eq!(End::of(&end.text()), Some(end));
        for text in ["", "3 10 4711 true", &end.text().replace("47", "48"), &end.text().repeat(2)] {
            assert_eq!(End::of(text), None, "{text}");
        }
    }

    #[test]
    fn a_store_that_was_stopped_and_became_shorter_is_damaged_and_can_be_repaired() {
        let place = tempfile::tempdir().unwrap();
        let (_, newest) = at_rest(place.path(), 10);
        assert_eq!(check(place.path()).unwrap().damage, []);
        // Within a batch, and between two.
        for bytes in [9000, 16] {
            cut(&newest, bytes);
            let found = check(place.path()).unwrap();
            assert_eq!((found.damage.len(), found.torn), (1, None), "{bytes}");
            assert_eq!(found.damage[0].path, newest);
            let error = opened(place.path()).map(drop).unwrap_err();
            assert!(error.to_string().contains("is damaged"), "{error}");
        }
        let before = fs::read(&newest).unwrap();
        assert!(repair(place.path(), Some(1 << 16)).unwrap().set_aside.is_some());
        assert_eq!(check(place.path()).unwrap().damage, []);
        drop(opened(place.path()).unwrap());
        assert_eq!(before.len(), 16);
    }

    // An only segment without any bytes had lost nothing, as nobody knew whose it was.
    #[test]
    fn of_a_segment_that_was_emptied_all_is_lost() {
        let place = tempfile::tempdir().unwrap();
        let (_, newest) = at_rest(place.path(), 10);
        let bytes = fs::metadata(&newest).unwrap().len();
        let written = fs::read(&newest).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64;
        cut(&newest, 0);
        let lost = |damage: &[Damage]| damage.iter().flat_map(|of| of.lost.clone()).collect::<Vec<_>>();
        let found = lost(&check(place.path()).unwrap().damage);
        assert!(
            matches!(&found[..], [Lost { range, key: None }] if range.end > written && range.end <= bytes)
        );
        // Nothing says how long it was.
        End::remove(place.path()).unwrap();
        let found = lost(&check(place.path()).unwrap().damage);
        assert!(matches!(&found[..], [Lost { range, key: None }] if range.is_empty()), "{found:?}");
    }

    #[test]
    fn zeros_at_the_end_of_a_store_that_was_stopped_are_damage() {
        let place = tempfile::tempdir().unwrap();
        let (_, newest) = at_rest(place.path(), 10);
        cut(&newest, 9000);
        cut(&newest, 1 << 16);
        assert_eq!(check(place.path()).unwrap().damage.len(), 1);
    }

    #[test]
    fn once_the_log_is_used_again_a_torn_end_is_one() {
        let place = tempfile::tempdir().unwrap();
        at_rest(place.path(), 10);
        let log = opened(place.path()).unwrap();
        let key = Key::new(b"key").unwrap();
        let row = Row::new(&key, "", &[7; 2000], Version::first_of(log.epoch()));
        log.write(&[Write { key, version: row.version(), change: Change::Put(row) }]).unwrap();
        drop(log);
        let newest = files::path(place.path(), *files::segments(place.path()).unwrap().last().unwrap());
        let written = fs::read(&newest).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64;
        cut(&newest, written - 10);
        let found = check(place.path()).unwrap();
        assert!(found.damage.is_empty() && found.torn.is_some(), "{found:?}");
        drop(opened(place.path()).unwrap());
    }

    #[test]
    fn of_a_copy_the_segment_that_is_missing_is_named_also_if_it_was_the_newest() {
        let place = tempfile::tempdir().unwrap();
        let [original, copy] = ["store", "copy"].map(|name| place.path().join(name));
        at_rest(&original, 100);
        backup(&original, &copy).unwrap();
        let numbers = files::segments(&copy).unwrap();
        assert!(numbers.len() > 2, "{numbers:?}");
        let newest = files::path(&copy, *numbers.last().unwrap());
        fs::remove_file(&newest).unwrap();
        let damage = check(&copy).unwrap().damage;
        assert_eq!(damage.iter().map(|of| &of.path).collect::<Vec<_>>(), [&newest]);
        // Also after a repair, whose segments have the numbers behind those that are there.
        repair(&copy, Some(1 << 16)).unwrap();
        assert_eq!(check(&copy).unwrap().damage, []);
    }

    #[test]
    fn a_store_whose_segments_are_all_gone_does_not_begin_anew() {
        let place = tempfile::tempdir().unwrap();
        let (_, newest) = at_rest(place.path(), 3);
        fs::remove_file(newest).unwrap();
        assert_eq!(check(place.path()).unwrap().damage.len(), 1);
        assert!(opened(place.path()).map(drop).unwrap_err().to_string().contains("is missing"));
    }

    #[test]
    fn what_is_said_of_another_log_or_of_an_earlier_moment_says_nothing() {
        let place = tempfile::tempdir().unwrap();
        let (_, newest) = at_rest(place.path(), 3);
        let EndFile::Whole(end) = End::read(place.path()).unwrap() else { panic!() };
        End { store: end.store ^ 1, segment: end.segment + 5, ..end }.write(place.path()).unwrap();
        assert_eq!(check(place.path()).unwrap().damage, []);
        // The next opening removes it.
        drop(opened(place.path()).unwrap());
        assert_eq!(End::read(place.path()).unwrap(), EndFile::Absent);
        end.write(place.path()).unwrap();
        assert_eq!(check(place.path()).unwrap().damage, [], "{}", newest.display());
    }

    #[test]
    fn what_cannot_be_understood_is_damage_that_a_repair_removes() {
        let place = tempfile::tempdir().unwrap();
        let (epoch, _) = at_rest(place.path(), 3);
        let text = fs::read_to_string(place.path().join(END)).unwrap();
        for text in [String::new(), text.replace("false", "true")] {
            fs::write(place.path().join(END), text).unwrap();
            assert_eq!(check(place.path()).unwrap().damage[0].path, place.path().join(END));
            assert!(backup(place.path(), &place.path().join("copy")).is_err());
            let repaired = repair(place.path(), Some(1 << 16)).unwrap();
            assert!(repaired.set_aside.unwrap().join(END).exists());
            assert_eq!(check(place.path()).unwrap().damage, []);
        }
        assert!(opened(place.path()).unwrap().epoch() > epoch + GAP.start);
    }

    #[test]
    fn of_a_store_that_became_shorter_there_is_no_copy() {
        let place = tempfile::tempdir().unwrap();
        let (original, copy) = (place.path().join("store"), place.path().join("copy"));
        let (_, newest) = at_rest(&original, 100);
        let oldest = files::path(&original, 1);
        for (path, is_missing) in [(&newest, false), (&newest, true), (&oldest, true)] {
            let whole = fs::read(path).unwrap();
            match is_missing {
                true => fs::remove_file(path).unwrap(),
                false => cut(path, 3000),
            }
            // Also after a crash, where nothing says where the log ended.
            let end = fs::read(original.join(END)).unwrap();
            for is_at_rest in [true, false].into_iter().take(if *path == oldest { 2 } else { 1 }) {
                if !is_at_rest {
                    End::remove(&original).unwrap();
                }
                let error = backup(&original, &copy).unwrap_err();
                assert!(error.to_string().contains("the store is damaged"), "{error}");
            }
            fs::write(original.join(END), end).unwrap();
            fs::write(path, &whole).unwrap();
        }
        backup(&original, &copy).unwrap();
    }

    #[test]
    fn a_copy_and_its_original_give_out_no_version_twice() {
        let place = tempfile::tempdir().unwrap();
        let [original, copy] = ["store", "copy"].map(|name| place.path().join(name));
        let (epoch, _) = at_rest(&original, 3);
        backup(&original, &copy).unwrap();
        assert_eq!(opened(&original).unwrap().epoch(), epoch + 1);
        let first = opened(&copy).unwrap().epoch();
        assert!((epoch + GAP.start..epoch + GAP.end + 1).contains(&first), "{epoch} {first}");
        // Only once.
        assert_eq!(opened(&copy).unwrap().epoch(), first + 1);
    }
}
