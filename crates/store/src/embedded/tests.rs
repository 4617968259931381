//! Tests of the embedded store: the contract, and what is left of a directory that was torn, damaged or cleaned.

use super::super::{contract, open};
use super::*;
use kv::{Change, Version};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};

fn url(directory: &tempfile::TempDir) -> String {
    format!("file:{}", directory.path().join("store").display())
}

#[tokio::test]
async fn the_embedded_store_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    contract::all(open(&url(&directory)).unwrap().as_ref()).await;
}

#[tokio::test]
async fn rows_and_epoch_outlive_the_process() {
    let directory = tempfile::tempdir().unwrap();
    contract::survives_reopening(|| open(&url(&directory)).unwrap()).await;
}

#[tokio::test]
async fn a_directory_remembers_which_shard_it_is() {
    let directory = tempfile::tempdir().unwrap();
    contract::remembers_its_part(|| open(&url(&directory)).unwrap()).await;
}

#[tokio::test]
async fn the_embedded_store_keeps_events() {
    let directory = tempfile::tempdir().unwrap();
    contract::keeps_events(|| open(&url(&directory)).unwrap()).await;
}

/// The directory above may be another user's. As root this shows nothing.
#[tokio::test]
async fn a_directory_above_that_must_not_be_listed_is_no_reason_to_refuse() {
    let directory = tempfile::tempdir().unwrap();
    let permit = |mode| fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode)).unwrap();
    permit(0o300);
    let opened = open(&url(&directory)).unwrap().acquire(Part::WHOLE).await.map(drop);
    let copied = backup::backup(&directory.path().join("store"), &directory.path().join("copy"));
    permit(0o700);
    opened.unwrap();
    copied.unwrap();
}

#[tokio::test]
async fn a_directory_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(&url(&directory)).unwrap();
    let _held = first.acquire(Part::WHOLE).await.unwrap();
    let second = open(&url(&directory)).unwrap().acquire(Part::WHOLE).await.err().unwrap();
    assert_eq!(second.kind(), Kind::Taken);
    assert!(second.to_string().contains("another server holds"), "{second}");
}

/// A server that hands its store over may take its time with the answers it owes.
#[tokio::test]
async fn the_directory_is_free_once_the_lease_and_its_sessions_end() {
    let directory = tempfile::tempdir().unwrap();
    let [first, second] = [(); 2].map(|()| open(&url(&directory)).unwrap());
    let lease = first.acquire(Part::WHOLE).await.unwrap();
    let session = first.connect(lease.epoch).await.unwrap();
    drop((lease, session));
    let lease = second.acquire(Part::WHOLE).await.unwrap();
    assert!(first.connect(lease.epoch - 1).await.is_err());
}

/// A standby that reads a long log refuses meanwhile what waits too long.
#[tokio::test]
async fn others_go_on_while_a_log_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&url(&directory)).unwrap();
    let others = std::cell::Cell::new(false);
    let acquired = async {
        let _lease = store.acquire(Part::WHOLE).await.unwrap();
        assert!(others.get());
    };
    tokio::join!(acquired, async { others.set(true) });
}

#[test]
fn a_wrong_url_says_what_is_wrong() {
    for (url, what) in [
        ("file:", "names no directory; write file:./weir-data"),
        ("file:x?segment=many", "wrong length of segments, as in ?segment=1MiB; write file:./weir-data"),
        ("file:x?segment=", "wrong length of segments"),
        ("file:x?segmnt=1MiB", "has an unknown parameter; expected: segment"),
        ("file:a,file:b", "names several stores; give each a --store"),
        ("file://x", "names a host, which a directory has not; write file:./weir-data"),
    ] {
        let error = Embedded::open(url).err().unwrap().to_string();
        assert!(error.contains(what), "{error}");
    }
}

/// What a directory holds, as a reader of each of `keys` sees it.
fn rows(log: &Log, keys: usize) -> Vec<Option<Vec<u8>>> {
    let read = |key: usize| log.read(&name(key)).unwrap().map(|row| row.value().to_vec());
    (0..keys).map(read).collect()
}

fn name(key: usize) -> Key {
    Key::new(format!("key {key}").as_bytes()).unwrap()
}

fn put(key: usize, value: &[u8]) -> Write {
    let row = Row::new(&name(key), "", value, Version(1));
    Write { key: name(key), version: Version(1), change: Change::Put(row) }
}

fn delete(key: usize) -> Write {
    Write { key: name(key), version: Version(1), change: Change::Delete }
}

/// A log with segments of 64 KiB.
fn log_in(directory: &tempfile::TempDir) -> Result<Log, Error> {
    let admit = |map: Option<&str>, in_use| Part::WHOLE.admit(map, in_use, "it").map(|_| Part::WHOLE.map());
    Log::open(directory.path(), Some(1 << 16), admit)
}

/// The newest segment.
fn newest(directory: &tempfile::TempDir) -> PathBuf {
    let files = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|suffix| suffix == "log")).max().unwrap()
}

/// Where `value` is in a file.
fn place_of(path: &PathBuf, value: &[u8]) -> usize {
    fs::read(path).unwrap().windows(value.len()).position(|bytes| bytes == value).unwrap()
}

#[test]
fn a_torn_end_is_cut_off_wherever_it_is_torn() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    log.write(&[put(0, b"first")]).unwrap();
    log.write(&[put(1, b"second value"), put(2, b"third value")]).unwrap();
    let path = newest(&directory);
    drop(log);
    let whole = fs::read(&path).unwrap();
    let end = whole.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let start = place_of(&path, b"first") + 5;
    for cut in start..end {
        let torn = tempfile::tempdir().unwrap();
        let [name, bytes] = [path.file_name().unwrap().as_encoded_bytes(), &whole[..cut]];
        let name = String::from_utf8(name.to_vec()).unwrap();
        fs::write(torn.path().join(&name), bytes).unwrap();
        let [first, others @ ..] = &rows(&log_in(&torn).unwrap(), 3)[..] else { unreachable!() };
        assert_eq!(first.as_deref(), Some(&b"first"[..]), "cut at {cut}");
        assert_eq!(others, [None, None], "cut at {cut}");
        // As when it is opened again: nothing that was cut off comes back.
        assert_eq!(rows(&log_in(&torn).unwrap(), 3)[1], None);
    }
}

#[test]
fn damage_before_the_end_is_reported_and_not_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    for (key, value) in ["first value", "second value", "third value"].into_iter().enumerate() {
        log.write(&[put(key, value.as_bytes())]).unwrap();
    }
    let path = newest(&directory);
    drop(log);
    let whole = fs::read(&path).unwrap();
    let begin = place_of(&path, b"first value");
    let end = place_of(&path, b"second value");
    for at in begin..end {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        fs::write(&path, &damaged).unwrap();
        let error = log_in(&directory).err().unwrap();
        let text = error.to_string();
        assert!(error.kind() == Kind::Config && text.contains("is damaged: "), "{at}: {text}");
        assert!(text.contains(&*path.to_string_lossy()) && text.contains("restore a backup"), "{at}: {text}");
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(rows(&log_in(&directory).unwrap(), 3).iter().flatten().count(), 3);
}

/// A backup has the number of its store in every checksum.
#[test]
fn a_copy_of_the_log_in_a_torn_write_is_no_damage() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    log.write(&[put(0, b"first value")]).unwrap();
    log.write(&[put(1, b"second value")]).unwrap();
    let path = newest(&directory);
    let copy: Vec<u8> = fs::read(&path).unwrap().into_iter().take(4096).chain(*b"its end").collect();
    log.write(&[put(2, &copy)]).unwrap();
    drop(log);
    let end = place_of(&path, b"its end");
    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(&[0; 7], end as u64).unwrap();
    let found = rows(&log_in(&directory).unwrap(), 3);
    assert_eq!(found, [Some(b"first value".to_vec()), Some(b"second value".to_vec()), None]);
}

/// Who knew them could store a value that takes minutes to read when it is torn.
#[test]
fn the_batches_of_each_store_are_counted_from_a_number_of_its_own() {
    let first = [(); 2].map(|()| {
        let directory = tempfile::tempdir().unwrap();
        log_in(&directory).unwrap();
        replay::Replayed::read(directory.path()).unwrap().batch
    });
    assert!(first[0].abs_diff(first[1]) > 1 << 30, "{first:?}");
}

/// On a full disk every few deletes began one more.
#[test]
fn a_segment_that_was_begun_short_becomes_longer() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    log.write(&[put(0, b"value")]).unwrap();
    log.writer.lock().room = 0;
    log.write(&[delete(0)]).unwrap();
    assert_eq!((log.index.read().segments.len(), log.writer.lock().room), (1, 1 << 16));
}

/// Of rows that are longer than half a segment each has its own: writing them anew brings nothing.
#[test]
fn large_rows_are_not_written_anew_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    for key in 0..400 {
        log.write(&[put(key, &[7; 40_000])]).unwrap();
    }
    assert!(log.index.read().segments.len() >= 400 && !log.is_wasteful());
}

/// Else it would keep all others that have expired.
#[test]
fn a_row_that_has_expired_and_is_damaged_is_listed_beside_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    let ends = |key: usize, at| {
        let attributes = kv::Attributes { expires: Some(Timestamp(at)), ..kv::Attributes::default() };
        let row = Row::with(&name(key), attributes, b"value", Version(1));
        Write { key: name(key), version: Version(1), change: Change::Put(row) }
    };
    log.write(&[ends(0, 1), ends(1, 2)]).unwrap();
    let path = newest(&directory);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"X", place_of(&path, b"key 0") as u64).unwrap();
    let listing = Listing { from: vec![], until: None, limit: 9, now: Timestamp(9), expired: true };
    let keys: Vec<Vec<u8>> = log.list(&listing).unwrap().iter().map(|of| of.row.key().to_vec()).collect();
    assert_eq!(keys, [b"key 0", b"key 1"]);
}

#[test]
fn a_row_that_is_damaged_later_fails_alone() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    log.write(&[put(0, b"first value"), put(1, b"second value")]).unwrap();
    let path = newest(&directory);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(b"X", place_of(&path, b"first value") as u64).unwrap();
    let error = log.read(&name(0)).unwrap_err();
    assert!(error.kind() == Kind::Rejected && error.to_string().contains("the row is damaged"), "{error}");
    assert_eq!(log.read(&name(1)).unwrap().unwrap().value(), b"second value");
}

#[test]
fn a_missing_segment_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    for round in 0..40 {
        log.write(&[put(round, &[7; 4000])]).unwrap();
    }
    drop(log);
    fs::remove_file(directory.path().join("0000000002.log")).unwrap();
    let text = log_in(&directory).err().unwrap().to_string();
    assert!(text.contains("0000000002.log is missing"), "{text}");
}

/// It was taken for a segment, and not found under the name of one.
#[test]
fn a_file_that_is_called_like_a_date_is_no_segment() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("20261124.log"), b"of another program").unwrap();
    log_in(&directory).unwrap().write(&[put(0, b"value")]).unwrap();
    assert_eq!(rows(&log_in(&directory).unwrap(), 1), [Some(b"value".to_vec())]);
}

#[test]
fn space_is_given_back_and_no_row_is_lost_or_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = log_in(&directory).unwrap();
    let mut expected: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    // A sequence of its own: keys of three ages, and every seventh write removes.
    for round in 0..4000_usize {
        let key = (round * 7919) % [3, 40, 200][round % 3];
        if round % 7 == 0 {
            log.write(&[delete(key)]).unwrap();
            expected.remove(&key);
        } else {
            let value = vec![round as u8; 100 + round % 900];
            log.write(&[put(key, &value)]).unwrap();
            expected.insert(key, value);
        }
        while log.is_wasteful() {
            assert!(log.clean(&|| false).unwrap());
        }
        if round % 500 == 0 {
            drop(log);
            log = log_in(&directory).unwrap();
        }
    }
    let check = |log: &Log| {
        for (key, row) in rows(log, 200).into_iter().enumerate() {
            assert_eq!(row.as_ref(), expected.get(&key), "key {key}");
        }
    };
    check(&log);
    drop(log);
    check(&log_in(&directory).unwrap());
    let live: usize = expected.values().map(Vec::len).sum();
    let used: u64 =
        fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(used < 2 * live as u64 + 6 * (1 << 16), "{used} bytes for {live}");
}

/// One changed byte of a row that nobody needed kept the space of all others.
#[test]
fn what_was_replaced_and_is_damaged_keeps_no_space() {
    for is_needed in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let log = log_in(&directory).unwrap();
        log.write(&[put(0, b"old value"), put(1, b"another")]).unwrap();
        if !is_needed {
            log.write(&[put(0, b"new value")]).unwrap();
        }
        let path = newest(&directory);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"X", place_of(&path, b"old value") as u64).unwrap();
        for _ in 0..40 {
            log.write(&[put(2, &[7; 4000])]).unwrap();
        }
        assert_eq!((log.clean(&|| false).is_ok(), path.exists()), (!is_needed, is_needed));
        assert_eq!(log.read(&name(1)).unwrap().unwrap().value(), b"another");
    }
}

/// Cut between two batches, so that what is left of it looks whole.
#[test]
fn a_segment_that_became_shorter_is_not_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    log.write(&[put(0, b"a value")]).unwrap();
    let (path, end) = (newest(&directory), log.index.read().segments.values().next_back().unwrap().bytes);
    log.write(&[put(1, b"another")]).unwrap();
    for _ in 0..40 {
        log.write(&[put(2, &[7; 4000])]).unwrap();
    }
    OpenOptions::new().write(true).open(&path).unwrap().set_len(end).unwrap();
    assert!(log.clean(&|| false).is_err() && path.exists());
}

#[test]
fn what_was_cleared_stays_away() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    log.write(&[put(0, b"old"), put(1, b"old")]).unwrap();
    log.clear().unwrap();
    log.write(&[put(1, b"new")]).unwrap();
    assert_eq!(rows(&log, 2), [None, Some(b"new".to_vec())]);
    drop(log);
    assert_eq!(rows(&log_in(&directory).unwrap(), 2), [None, Some(b"new".to_vec())]);
}

/// Each such attempt cut off the last batch.
#[test]
fn an_opening_that_fails_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    log.write(&[put(0, b"first")]).unwrap();
    log.write(&[put(1, b"second")]).unwrap();
    drop(log);
    // As where no file can be made.
    let next = directory.path().join("next");
    fs::create_dir(&next).unwrap();
    for _ in 0..2 {
        log_in(&directory).map(drop).unwrap_err();
    }
    fs::remove_dir(next).unwrap();
    let found = rows(&log_in(&directory).unwrap(), 2);
    assert_eq!(found, [Some(b"first".to_vec()), Some(b"second".to_vec())]);
}

/// An opening that failed before its segment had a name leaves a file, with a copy of a batch that may then be lost.
#[test]
fn a_batch_that_was_read_as_absent_does_not_come_back_out_of_a_failed_opening() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    let (path, flushed) = (newest(&directory), fs::read(newest(&directory)).unwrap());
    log.write(&[put(0, b"not flushed")]).unwrap();
    drop(log);
    drop(log_in(&directory).unwrap());
    let unnamed = fs::read(newest(&directory)).unwrap();
    fs::remove_file(newest(&directory)).unwrap();
    fs::write(&path, flushed).unwrap();
    fs::write(directory.path().join("next"), unnamed).unwrap();
    for _ in 0..2 {
        assert_eq!(rows(&log_in(&directory).unwrap(), 1), [None]);
    }
}

/// In a copy of another store its ETags stood for other values.
#[test]
fn a_new_store_gives_no_versions_that_another_one_gave() {
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    assert_ne!(log_in(&one).unwrap().epoch(), log_in(&other).unwrap().epoch(), "by chance once in 500,000");
}

/// What the log says of itself was written anew behind what it says now, if it was the last batch.
#[test]
fn each_opening_begins_an_epoch_also_after_space_was_given_back() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    for _ in 0..40 {
        log.write(&[put(0, &[7; 4000])]).unwrap();
    }
    assert!(log.clean(&|| false).unwrap());
    let first = log.epoch();
    drop(log);
    for later in 1..5 {
        assert_eq!(log_in(&directory).unwrap().epoch(), first + later);
    }
}

#[test]
fn opening_it_again_and_again_takes_no_space() {
    let directory = tempfile::tempdir().unwrap();
    log_in(&directory).unwrap().write(&[put(0, &[7; 50_000])]).unwrap();
    for _ in 0..20 {
        drop(log_in(&directory).unwrap());
    }
    let lengths = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len());
    // The newest segment and the reserve are allocated ahead, the others are as long as what is in them.
    assert!(lengths.sum::<u64>() < 4 * (1 << 16));
}

#[test]
fn a_clear_while_space_is_given_back_stays_a_clear() {
    let directory = tempfile::tempdir().unwrap();
    let log = log_in(&directory).unwrap();
    for key in 0..60 {
        log.write(&[put(key, &[7; 4000])]).unwrap();
    }
    // Asked before the rows of the oldest segment are written anew.
    log.clean(&|| log.clear().map(|()| false).unwrap()).unwrap();
    log.write(&[put(1, b"new")]).unwrap();
    drop(log);
    let found = rows(&log_in(&directory).unwrap(), 60);
    assert_eq!(found.iter().flatten().collect::<Vec<_>>(), [b"new"]);
}

#[test]
fn only_its_owner_may_read_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let store = directory.path().join("store");
    let log = Log::open(&store, None, |_, _| Ok(String::new())).unwrap();
    log.write(&[put(0, b"secret")]).unwrap();
    let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&store), 0o700);
    for file in fs::read_dir(&store).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
}

/// A thousand large rows were in memory together.
#[tokio::test]
async fn a_read_of_large_rows_ends_by_bytes_and_the_batch_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&url(&directory)).unwrap();
    let lease = store.acquire(Part::WHOLE).await.unwrap();
    let mut session = store.connect(lease.epoch).await.unwrap();
    for key in 0..5 {
        session.write(&[put(key, &vec![key as u8; 3 << 20])]).await.unwrap();
    }
    let keys: Vec<Key> = (0..8).map(name).collect();
    for (from, read) in [(0, 2), (2, 2), (4, 4), (5, 3)] {
        assert_eq!(session.read(&keys[from..]).await.unwrap().len(), read, "from key {from}");
    }
    drop((session, lease));
    let config = crate::Config { workers: Some(Workers { read: 1, write: 1 }), ..crate::Config::default() };
    let batcher = crate::Batcher::start(store, config, Arc::new(())).unwrap();
    let (sender, answers) = std::sync::mpsc::channel();
    // Some of a key; the last ones are absent.
    for number in 0..24 {
        let sender = sender.clone();
        let done = move |row: Result<Option<Row>, Error>, _| drop(sender.send((number % 8, row)));
        batcher.read(keys[number % 8].clone(), crate::Reply::new(done));
    }
    drop(sender);
    let mut answered = 0;
    for (key, row) in answers {
        let first = row.unwrap().map(|row| row.value()[0]);
        assert_eq!(first, (key < 5).then_some(key as u8), "key {key}");
        answered += 1;
    }
    assert_eq!(answered, 24);
}
