//! Tests of checking and repairing: each kind of damage is found where it is, and costs no row but its own.

use super::*;
use kv::Key;
use kv::{Change, Row, Write};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, chown};
use tempfile::TempDir;

const KEYS: usize = 240;
const ROWS_PER_BATCH: usize = 3;

fn name(key: usize) -> Key {
    Key::new(format!("key {key}").as_bytes()).unwrap()
}

/// Of different lengths, and with content that is nowhere else.
fn value(key: usize, round: usize) -> Vec<u8> {
    format!("<{key} {round}> ").into_bytes().into_iter().cycle().take(500 + key).collect()
}

fn put(key: usize, round: usize) -> Write {
    let version = Version::first_of(1 + round as u64);
    Write {
        key: name(key),
        version,
        change: Change::Put(Row::new(&name(key), "", &value(key, round), version)),
    }
}

fn opened(directory: &Path) -> Result<Log, Error> {
    let admit = |map: Option<&str>, in_use| Part::WHOLE.admit(map, in_use, "it").map(|_| Part::WHOLE.map());
    Log::open(directory, Some(1 << 16), admit)
}

/// A store of several segments, which was opened twice.
fn store() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for part in [0..KEYS / 2, KEYS / 2..KEYS] {
        let log = opened(directory.path()).unwrap();
        for batch in part.collect::<Vec<_>>().chunks(ROWS_PER_BATCH) {
            log.write(&batch.iter().map(|key| put(*key, 0)).collect::<Vec<_>>()).unwrap();
        }
    }
    assert!(files::segments(directory.path()).unwrap().len() >= 4);
    directory
}

/// A copy of the files in it.
fn copy(of: &TempDir) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(of.path()).unwrap().map(Result::unwrap) {
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
    }
    copy
}

/// Where the record of `key` with `value` is: which file, and which bytes of it.
fn record(directory: &TempDir, key: usize, value: &[u8]) -> (u32, Range<u64>) {
    for number in files::segments(directory.path()).unwrap() {
        let bytes = fs::read(files::path(directory.path(), number)).unwrap();
        if let Some(at) = memchr::memmem::find(&bytes, value) {
            let begin = at - name(key).as_bytes().len() - 20;
            return (number, begin as u64..(at + value.len()) as u64);
        }
    }
    panic!("{key} is nowhere");
}

fn places(directory: &TempDir) -> Vec<(u32, Range<u64>)> {
    (0..KEYS).map(|key| record(directory, key, &value(key, 0))).collect()
}

fn change(directory: &TempDir, segment: u32, range: Range<u64>, change: impl Fn(u8) -> u8) {
    let path = files::path(directory.path(), segment);
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start).unwrap();
    bytes.iter_mut().for_each(|byte| *byte = change(*byte));
    file.write_all_at(&bytes, range.start).unwrap();
}

/// Every file of it, with its content.
fn files_of(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

fn url(directory: &TempDir) -> String {
    format!("file:{}", directory.path().display())
}

/// Checks a store that is damaged at `segment` and `range` (`None`: it is missing), repairs it, and expects the rows of all keys
/// but those of `lost`.
fn is_found_and_repaired(
    directory: &TempDir,
    segment: u32,
    range: Option<Range<u64>>,
    lost: &[usize],
) -> Checked {
    let path = files::path(directory.path(), segment);
    let before = files_of(directory.path());
    let checked = crate::check(&url(directory)).unwrap();
    assert_eq!(files_of(directory.path()), before, "a check changes nothing");
    let [damage] = &checked.damage[..] else { panic!("{checked:?}") };
    assert_eq!(damage.path, path);
    match (&damage.range, &range) {
        (None, None) => {}
        (Some(found), Some(range)) => {
            assert!(found.start <= range.start && range.end <= found.end, "{found:?} {range:?}");
            // Not the whole file: to the batch that begins before it.
            assert!(range.start - found.start < 4096, "{found:?} {range:?}");
            for lost in &damage.lost {
                assert!(lost.range.start < range.end && range.start < lost.range.end, "{lost:?} {range:?}");
            }
        }
        found => panic!("{found:?}"),
    }
    assert_eq!(checked.rows, KEYS - lost.len());
    let refused = opened(directory.path()).err().unwrap().to_string();
    let place = range.map_or("is missing".into(), |_| format!("at {}", damage.range.clone().unwrap().start));
    for part in [
        format!("{} {place}", path.display()),
        format!("weir store check {}", url(directory)),
        format!("weir store repair {}", url(directory)),
    ] {
        assert!(refused.contains(&part), "{part}: {refused}");
    }

    let repaired = crate::repair(&format!("{}?segment=64KiB", url(directory))).unwrap();
    assert_eq!(repaired.before, checked);
    let aside = repaired.set_aside.unwrap();
    for (path, bytes) in before.iter().filter(|(path, _)| path.extension().is_some()) {
        assert_eq!(fs::read(aside.join(path.file_name().unwrap())).unwrap(), *bytes, "{}", path.display());
    }
    let after = crate::check(&url(directory)).unwrap();
    assert!(after.damage.is_empty() && after.rows == KEYS - lost.len(), "{after:?}");
    has_rows(directory, lost);
    checked
}

fn has_rows(directory: &TempDir, lost: &[usize]) {
    let log = opened(directory.path()).unwrap();
    // The third lease, or a later one.
    assert!(log.epoch() > 2, "{}", log.epoch());
    for key in 0..KEYS {
        let row = log.read(&name(key)).unwrap().map(|row| row.value().to_vec());
        assert_eq!(row, (!lost.contains(&key)).then(|| value(key, 0)), "key {key}");
    }
}

/// A key whose record is the second of its batch, in the middle of a segment that is not the last.
const VICTIM: usize = 100;

#[test]
fn a_changed_bit_costs_one_record() {
    let whole = store();
    let (segment, record) = record(&whole, VICTIM, &value(VICTIM, 0));
    let key_at = record.start + 20;
    let value_at = key_at + name(VICTIM).as_bytes().len() as u64;
    for (at, has_key) in [
        (record.start, true),
        (record.start + 5, true),
        (record.start + 12, false),
        (record.start + 16, false),
        (key_at, true),
        (value_at, true),
        (value_at + 300, true),
        (record.end - 1, true),
    ] {
        let damaged = copy(&whole);
        change(&damaged, segment, at..at + 1, |byte| byte ^ 4);
        let checked = is_found_and_repaired(&damaged, segment, Some(at..at + 1), &[VICTIM]);
        let [damage] = &checked.damage[..] else { unreachable!() };
        let [lost] = &damage.lost[..] else { panic!("{damage:?}") };
        assert_eq!(lost.range, record, "byte {at}");
        assert_eq!(lost.key.is_some(), has_key, "byte {at}");
        assert_eq!(damage.readable, ROWS_PER_BATCH as u64 - 1);
        if at >= value_at {
            assert_eq!(lost.key, Some(name(VICTIM)));
        }
    }
}

#[test]
fn a_changed_header_costs_no_record() {
    let whole = store();
    let (segment, first) =
        record(&whole, VICTIM - VICTIM % ROWS_PER_BATCH, &value(VICTIM - VICTIM % ROWS_PER_BATCH, 0));
    let meta_end = 16 + 24 + 20 + 24 + Part::WHOLE.map().len() as u64;
    // Of a batch; of the file; of the batch that describes the store.
    for at in (first.start - 24..first.start).step_by(5).chain([0, 3, 9, 15, 17, 30]) {
        let damaged = copy(&whole);
        change(&damaged, segment, at..at + 1, |byte| byte ^ 1);
        let checked = is_found_and_repaired(&damaged, segment, Some(at..at + 1), &[]);
        assert!(checked.damage[0].lost.is_empty(), "byte {at}: {checked:?}");
    }
    let damaged = copy(&whole);
    change(&damaged, segment, meta_end - 1..meta_end, |byte| byte ^ 1);
    let checked = is_found_and_repaired(&damaged, segment, Some(meta_end - 1..meta_end), &[]);
    assert!(checked.damage[0].lost.is_empty(), "{checked:?}");
}

#[test]
fn zeros_cost_the_records_they_are_in() {
    let whole = store();
    let places = places(&whole);
    let (segment, record) = places[VICTIM].clone();
    for begin in [record.start - record.start % 4096, record.start, record.start + 100, record.end - 1] {
        let zeroed = begin..begin + 4096;
        let damaged = copy(&whole);
        change(&damaged, segment, zeroed.clone(), |_| 0);
        let is_hit = |key: &usize| {
            let (of, record) = &places[*key];
            *of == segment && record.start < zeroed.end && zeroed.start < record.end
        };
        let lost: Vec<usize> = (0..KEYS).filter(is_hit).collect();
        assert!(lost.len() > 3);
        is_found_and_repaired(&damaged, segment, Some(zeroed.clone()), &lost);
    }
}

#[test]
fn a_missing_segment_costs_its_records() {
    let whole = store();
    let places = places(&whole);
    let segment = places[VICTIM].0;
    let damaged = copy(&whole);
    fs::remove_file(files::path(damaged.path(), segment)).unwrap();
    let lost: Vec<usize> = (0..KEYS).filter(|key| places[*key].0 == segment).collect();
    is_found_and_repaired(&damaged, segment, None, &lost);
}

/// The server of another user could not open it.
#[test]
fn what_root_repairs_stays_its_owners() {
    let directory = store();
    let (segment, record) = record(&directory, VICTIM, &value(VICTIM, 0));
    change(&directory, segment, record.end - 1..record.end, |byte| byte ^ 1);
    let everything = || {
        let files = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
        files.chain([directory.path().to_owned()])
    };
    if !everything().all(|path| chown(path, Some(1234), Some(1234)).is_ok()) {
        return; // only root may
    }
    for is_damaged in [true, false] {
        fs::remove_file(directory.path().join("lock")).unwrap();
        let repaired = crate::repair(&url(&directory)).unwrap();
        assert_eq!(repaired.set_aside.is_some(), is_damaged);
        for path in everything() {
            let found = fs::metadata(&path).unwrap();
            assert_eq!((found.uid(), found.gid()), (1234, 1234), "{}", path.display());
        }
    }
}

#[test]
fn a_torn_end_is_no_damage() {
    let directory = store();
    let last = *files::segments(directory.path()).unwrap().last().unwrap();
    let (segment, record) = record(&directory, KEYS - 1, &value(KEYS - 1, 0));
    assert_eq!(segment, last);
    change(&directory, segment, record.end - 7..record.end, |_| 0);
    let before = files_of(directory.path());
    let checked = crate::check(&url(&directory)).unwrap();
    let (path, torn) = checked.torn.clone().unwrap();
    assert_eq!(path, files::path(directory.path(), last));
    assert!(torn.start < record.start && torn.end == record.end - 7, "{torn:?} {record:?}");
    assert!(checked.damage.is_empty() && checked.rows == KEYS - ROWS_PER_BATCH, "{checked:?}");
    let repaired = crate::repair(&url(&directory)).unwrap();
    assert_eq!((repaired.before, repaired.set_aside), (checked, None));
    assert_eq!(files_of(directory.path()), before);
    has_rows(&directory, &[KEYS - 3, KEYS - 2, KEYS - 1]);
}

/// What a record that is lost had replaced or removed.
#[test]
fn an_older_value_may_come_back_and_its_key_is_named() {
    let directory = store();
    let log = opened(directory.path()).unwrap();
    log.write(&[put(7, 1)]).unwrap();
    log.write(&[Write { key: name(8), version: Version::first_of(3), change: Change::Delete }]).unwrap();
    log.write(&[put(9, 1)]).unwrap();
    drop(log);
    let (segment, newer) = record(&directory, 7, &value(7, 1));
    change(&directory, segment, newer.end - 1..newer.end, |byte| byte ^ 1);
    // The record of the delete is behind it: a header, and a record without a value.
    let delete = newer.end + 24..newer.end + 24 + 20 + name(8).as_bytes().len() as u64;
    change(&directory, segment, delete.start..delete.start + 1, |byte| byte ^ 1);
    let repaired = crate::repair(&url(&directory)).unwrap();
    let lost: Vec<_> = repaired.before.damage.iter().flat_map(|damage| &damage.lost).collect();
    let [seven, eight] = &lost[..] else { panic!("{lost:?}") };
    assert_eq!((&seven.range, &seven.key), (&newer, &Some(name(7))));
    assert_eq!((&eight.range, &eight.key), (&delete, &Some(name(8))));
    let log = opened(directory.path()).unwrap();
    let read = |key: usize| log.read(&name(key)).unwrap().unwrap().value().to_vec();
    assert_eq!([read(7), read(8), read(9)], [value(7, 0), value(8, 0), value(9, 1)]);
}

/// The server refused the repaired store: its versions had no room for more.
#[test]
fn a_record_in_a_value_gives_no_version_that_was_never_given() {
    let directory = tempfile::tempdir().unwrap();
    let log = opened(directory.path()).unwrap();
    let meta = Meta { epoch: 1 << 40, first: 1, ..Meta::default() }.encode();
    let (admin, forged) = (name(0), segment::keyless(EntryKind::Put, u64::MAX, b"forged"));
    let forged =
        [segment::Entry { key: admin.as_bytes(), ..forged }, segment::keyless(EntryKind::Meta, 0, &meta)];
    let text = segment::encode(0, 0, &forged).0;
    let (key, version) = (name(1), Version::first_of(1));
    let row = Row::new(&key, "", &text, version);
    log.write(&[put(0, 0)]).unwrap();
    log.write(&[Write { key, version, change: Change::Put(row) }]).unwrap();
    log.write(&[put(2, 0)]).unwrap();
    let last = log.epoch();
    drop(log);
    let (segment, damaged) = record(&directory, 1, &text);
    change(&directory, segment, damaged.start + 14..damaged.start + 15, |byte| byte ^ 0x40);
    crate::repair(&url(&directory)).unwrap();
    let log = opened(directory.path()).unwrap();
    assert!(log.epoch() < last + (1 << 13), "{} {last}", log.epoch());
    assert_eq!(log.read(&name(0)).unwrap().unwrap().value(), value(0, 0));
}

#[test]
fn everything_unreadable_leaves_an_empty_store() {
    let directory = tempfile::tempdir().unwrap();
    let log = opened(directory.path()).unwrap();
    log.write(&[put(0, 0)]).unwrap();
    drop(log);
    let path = files::path(directory.path(), 1);
    fs::write(&path, vec![0; 5000]).unwrap();
    let repaired = crate::repair(&url(&directory)).unwrap();
    assert!(!repaired.before.damage.is_empty() && !repaired.has_map && repaired.before.rows == 0);
    assert_eq!(fs::read(repaired.set_aside.unwrap().join("0000000001.log")).unwrap(), vec![0; 5000]);
    assert_eq!(opened(directory.path()).unwrap().read(&name(0)).unwrap(), None);
}

#[test]
fn a_repair_that_was_interrupted_is_begun_again() {
    let directory = store();
    let (segment, record) = record(&directory, VICTIM, &value(VICTIM, 0));
    change(&directory, segment, record.end - 1..record.end, |byte| byte ^ 1);
    for _ in 0..2 {
        assert_eq!(crate::check(&url(&directory)).unwrap().rows, KEYS - 1);
        begin_repair(&directory);
        let refused = opened(directory.path()).err().unwrap().to_string();
        assert!(refused.contains("is damaged"), "{refused}");
    }
    let repaired = crate::repair(&url(&directory)).unwrap();
    assert_eq!(repaired.before.rows, KEYS - 1);
    has_rows(&directory, &[VICTIM]);
}

/// A repair that is cut off when it has written all rows.
fn begin_repair(directory: &TempDir) {
    let lock = files::lock(directory.path()).unwrap();
    let replayed = read(directory.path()).unwrap();
    behind(directory.path(), Some(1 << 16), lock, replayed).unwrap().0.rewrite_all().unwrap();
}

fn replace_7_and_remove_8(directory: &TempDir) {
    let log = opened(directory.path()).unwrap();
    log.write(&[put(7, 1)]).unwrap();
    log.write(&[Write { key: name(8), version: Version::first_of(3), change: Change::Delete }]).unwrap();
}

fn is_7_replaced_and_8_removed(directory: &TempDir) {
    let log = opened(directory.path()).unwrap();
    let read = |key: usize| log.read(&name(key)).unwrap().map(|row| row.value().to_vec());
    assert_eq!([read(7), read(8)], [Some(value(7, 1)), None]);
}

/// The segment was put back, or the disk could read it again, and rows that it had replaced or removed were served.
#[test]
fn when_damage_goes_away_an_unfinished_repair_does_not_count() {
    for (repairs, is_at_rest) in [(1, false), (2, false), (1, true)] {
        let directory = store();
        replace_7_and_remove_8(&directory);
        // The newest segment, of which only what says the end knows, or one in the middle.
        opened(directory.path()).unwrap().say_end().unwrap();
        if !is_at_rest {
            drop(opened(directory.path()).unwrap());
        }
        let path = match is_at_rest {
            true => {
                files::path(directory.path(), *files::segments(directory.path()).unwrap().last().unwrap())
            }
            false => files::path(directory.path(), record(&directory, 7, &value(7, 1)).0),
        };
        let whole = files_of(directory.path());
        fs::remove_file(&path).unwrap();
        for _ in 0..repairs {
            begin_repair(&directory);
        }
        fs::write(&path, &whole[&path]).unwrap();
        let checked = crate::check(&url(&directory)).unwrap();
        let [damage] = &checked.damage[..] else { panic!("{checked:?}") };
        assert!(damage.is_of_repair && checked.rows == KEYS - 1, "{checked:?}");
        let refused = opened(directory.path()).err().unwrap().to_string();
        assert!(refused.contains("is of a repair that was cut off"), "{refused}");
        let aside = crate::repair(&url(&directory)).unwrap().set_aside.unwrap();
        assert!(aside.join(damage.path.file_name().unwrap()).exists());
        is_7_replaced_and_8_removed(&directory);
    }
}

/// A copy that was cut short was repaired, and then completed: only the first segment was known to be of a repair.
#[test]
fn a_segment_that_takes_the_place_of_a_repairs_counts_and_the_next_ones_do_not() {
    let directory = store();
    replace_7_and_remove_8(&directory);
    let whole = files_of(directory.path());
    let numbers = files::segments(directory.path()).unwrap();
    let newest = *numbers.last().unwrap();
    for number in [numbers[1], newest] {
        fs::remove_file(files::path(directory.path(), number)).unwrap();
    }
    begin_repair(&directory);
    for (path, bytes) in whole {
        fs::write(path, bytes).unwrap();
    }
    let checked = crate::check(&url(&directory)).unwrap();
    let [damage] = &checked.damage[..] else { panic!("{checked:?}") };
    let next = files::path(directory.path(), newest + 1);
    assert!(damage.is_of_repair && damage.path == next && checked.rows == KEYS - 1, "{checked:?}");
    crate::repair(&url(&directory)).unwrap();
    is_7_replaced_and_8_removed(&directory);
}

/// What it has written is all that is left.
#[test]
fn an_unfinished_repair_counts_where_nothing_else_is_left() {
    let directory = store();
    let old = files::segments(directory.path()).unwrap();
    fs::remove_file(files::path(directory.path(), old[1])).unwrap();
    begin_repair(&directory);
    let rows = crate::check(&url(&directory)).unwrap().rows;
    old.iter().for_each(|number| {
        let _ = fs::remove_file(files::path(directory.path(), *number));
    });
    assert!(opened(directory.path()).err().unwrap().to_string().contains("is of a repair"));
    let repaired = crate::repair(&url(&directory)).unwrap();
    assert!(repaired.before.rows == rows && rows > 0, "{repaired:?}");
}

/// Its first segment made void what says where the log ended, and with it all that showed the damage.
#[test]
fn an_interrupted_repair_leaves_what_is_missing_at_the_end_damaged() {
    for is_missing in [false, true] {
        let directory = store();
        opened(directory.path()).unwrap().say_end().unwrap();
        let newest = *files::segments(directory.path()).unwrap().last().unwrap();
        let path = files::path(directory.path(), newest);
        match is_missing {
            true => fs::remove_file(&path).unwrap(),
            false => File::options().write(true).open(&path).unwrap().set_len(20).unwrap(),
        }
        for _ in 0..2 {
            begin_repair(&directory);
            let refused = opened(directory.path()).err().unwrap().to_string();
            assert!(refused.contains("is damaged"), "{refused}");
        }
        crate::repair(&url(&directory)).unwrap();
        assert!(crate::check(&url(&directory)).unwrap().damage.is_empty());
        has_rows(&directory, &[]);
    }
}

#[test]
fn a_store_in_use_is_left_alone() {
    let directory = store();
    let log = opened(directory.path()).unwrap();
    for error in [crate::check(&url(&directory)).err(), crate::repair(&url(&directory)).err()] {
        let error = error.unwrap();
        assert!(error.kind() == Kind::Taken && error.to_string().contains("stop it first"), "{error}");
    }
    drop(log);
    assert!(crate::check(&directory.path().display().to_string()).unwrap().damage.is_empty());
}

#[test]
fn what_is_no_embedded_store_is_refused_and_nothing_made_there() {
    let directory = tempfile::tempdir().unwrap();
    let nothing = directory.path().join("nothing").display().to_string();
    for (place, what) in [
        (nothing.as_str(), "cannot open"),
        (&directory.path().display().to_string(), "there is no store"),
        ("postgres://u:secret@h/d", "postgres://u@h/d is no embedded store"),
        ("memory:", "is no embedded store"),
    ] {
        for error in [crate::check(place).err(), crate::repair(place).err()] {
            let error = error.unwrap();
            assert!(error.kind() == Kind::Config && error.to_string().contains(what), "{error}");
        }
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
