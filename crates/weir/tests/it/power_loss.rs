//! The embedded store and the results of a lab run after a power loss.
//!
//! What a server does to its files is recorded, in order, with its answers (`disk.c`). From the record come states that the disk
//! may have at any instant: everything that was flushed, and of what was not any part, in sectors of 512 bytes; new names and
//! lengths with or without their content. Each is opened, and must have every write that was acknowledged until then.

use crate::support::{Server, is_long, weir};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use store::Part;

const SECTOR: usize = 512;

/// The library that records and fails, compiled once for each test.
pub(crate) fn library(directory: &Path) -> String {
    let library = directory.join("disk.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/disk.c");
    let cc = Command::new("cc")
        .args(["-shared", "-fPIC", "-O2", "-Wall", "-o"])
        .arg(&library)
        .arg(source)
        .arg("-ldl")
        .status();
    assert!(cc.unwrap().success());
    library.display().to_string()
}

/// One call that a process made.
#[derive(Clone, Debug)]
enum Call {
    Create {
        name: String,
        inode: u64,
    },
    Write {
        inode: u64,
        offset: usize,
        data: Vec<u8>,
    },
    Truncate {
        inode: u64,
        bytes: usize,
    },
    Flush {
        inode: u64,
    },
    FlushNames {
        inode: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Unlink {
        name: String,
    },
    /// An answer of success to the client at this port.
    Answer {
        port: u16,
    },
}

fn calls(record: &Path) -> Vec<Call> {
    let bytes = fs::read(record).unwrap();
    let mut rest = &bytes[..];
    let mut calls = Vec::new();
    while !rest.is_empty() {
        let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
        let long = |at: usize| u64::from_le_bytes(rest[at..at + 8].try_into().unwrap());
        let (kind, name_bytes, data_bytes) = (word(0) as u8, word(4), word(8));
        let (inode, offset) = (long(16), long(24) as usize);
        let (name, data) = rest[32..32 + name_bytes + data_bytes].split_at(name_bytes);
        let file = |path: &[u8]| String::from_utf8_lossy(path).rsplit('/').next().unwrap().to_owned();
        calls.push(match kind {
            b'C' => Call::Create { name: file(name), inode },
            b'W' => Call::Write { inode, offset, data: data.to_vec() },
            b'T' => Call::Truncate { inode, bytes: offset },
            b'F' => Call::Flush { inode },
            b'D' => Call::FlushNames { inode },
            b'R' => Call::Rename { from: file(name), to: file(data) },
            b'U' => Call::Unlink { name: file(name) },
            b'A' => Call::Answer { port: inode as u16 },
            other => panic!("{other}"),
        });
        rest = &rest[32 + name_bytes + data_bytes..];
    }
    calls
}

/// What a client did to one key, in order.
type History = Vec<Operation>;

#[derive(Clone, Debug)]
struct Operation {
    /// `None` removes it.
    value: Option<Vec<u8>>,
    /// It was acknowledged by the answer with this number to the client at this port.
    answer: (u16, usize),
}

/// What all clients did so far.
#[derive(Default)]
struct Done {
    histories: HashMap<String, History>,
    /// How many answers each port had: the system may give one again to a later client.
    answers: HashMap<u16, usize>,
}

/// Lets clients write keys of their own until each has done `operations`, and adds what they did.
fn write(server: &Server, operations: usize, sizes: &[usize], done: &mut Done) {
    const CLIENTS: usize = 6;
    const KEYS: usize = 5;
    let before = &done.answers;
    let more = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| {
                scope.spawn(move || {
                    let mut client = server.client();
                    let port = client.port();
                    let first = before.get(&port).copied().unwrap_or_default();
                    let mut done = Vec::new();
                    for step in 0..operations {
                        let key = format!("{number}-{}", step % KEYS);
                        let size = sizes[(step * 7 + number) % sizes.len()];
                        // Content that tells the writes apart at any of its sectors.
                        let stamp = format!("{port} {} ", first + step).into_bytes();
                        let value = (step % 9 != 8)
                            .then(|| stamp.iter().copied().cycle().take(size.max(12)).collect::<Vec<u8>>());
                        let path = format!("/kv/{key}");
                        let answer = match &value {
                            Some(value) => client.ask("PUT", &path, &[], value),
                            None => client.ask("DELETE", &path, &[], b""),
                        };
                        let answer = answer.unwrap();
                        assert!(matches!(answer.status, 201 | 204), "{}", answer.text());
                        done.push((key, Operation { value, answer: (port, first + step) }));
                    }
                    done
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<_>>()
    });
    for (key, operation) in more {
        *done.answers.entry(operation.answer.0).or_default() += 1;
        done.histories.entry(key).or_default().push(operation);
    }
}

fn clear(server: &Server, done: &mut Done) {
    let mut client = server.client();
    let answers = done.answers.entry(client.port()).or_default();
    let answer = (client.port(), *answers);
    *answers += 1;
    assert_eq!(client.ask("DELETE", "/kv", &[], b"").unwrap().status, 204);
    done.histories.values_mut().for_each(|history| history.push(Operation { value: None, answer }));
}

/// A run of a server, through restarts and a clear, with values of these sizes.
struct Run {
    calls: Vec<Call>,
    histories: HashMap<String, History>,
    /// The inode of its directory.
    directory: u64,
}

/// The URL of a store, and the environment of servers whose calls on it are recorded.
fn recorded(store: &Path, record: &Path, segment: &str) -> (String, [(&'static str, String); 3]) {
    let environment = [
        ("LD_PRELOAD", library(record.parent().unwrap())),
        ("WEIR_DISK_DIR", store.display().to_string()),
        ("WEIR_DISK_RECORD", record.display().to_string()),
    ];
    (format!("file:{}?segment={segment}", store.display()), environment)
}

fn run(operations: usize, sizes: &[usize], segment: &str) -> Run {
    let directory = tempfile::tempdir().unwrap();
    let (store, record) = (directory.path().join("store"), directory.path().join("record"));
    let (url, environment) = recorded(&store, &record, segment);
    let mut done = Done::default();
    let start = || Server::start_in(&url, &["--lab"], &environment).unwrap();
    for phase in 0..3 {
        let server = start();
        write(&server, operations / 3, sizes, &mut done);
        if phase == 1 {
            clear(&server, &mut done);
            write(&server, operations / 6, sizes, &mut done);
        }
        server.kill();
    }
    drop(start());
    let calls = calls(&record);
    assert!(calls.iter().any(|call| matches!(call, Call::Answer { .. })));
    Run { calls, histories: done.histories, directory: fs::metadata(&store).unwrap().ino() }
}

/// A disk: what was flushed, and what was done since.
#[derive(Clone, Default)]
struct Disk {
    files: HashMap<u64, File>,
    names: BTreeMap<String, u64>,
    pending_names: Vec<Call>,
}

#[derive(Clone, Default)]
struct File {
    flushed: Vec<u8>,
    pending: Vec<Call>,
}

fn apply(bytes: &mut Vec<u8>, call: &Call) {
    match call {
        Call::Write { offset, data, .. } => {
            bytes.resize(bytes.len().max(offset + data.len()), 0);
            bytes[*offset..offset + data.len()].copy_from_slice(data);
        }
        Call::Truncate { bytes: length, .. } => bytes.resize(*length, 0),
        _ => {}
    }
}

fn apply_name(names: &mut BTreeMap<String, u64>, call: &Call) {
    match call {
        Call::Create { name, inode } => drop(names.insert(name.clone(), *inode)),
        Call::Rename { from, to } => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
        Call::Unlink { name } => drop(names.remove(name)),
        _ => {}
    }
}

impl Disk {
    fn does(&mut self, call: &Call, directory: u64) {
        match call {
            Call::Write { inode, .. } | Call::Truncate { inode, .. } => {
                self.files.entry(*inode).or_default().pending.push(call.clone());
            }
            Call::Flush { inode } => {
                let file = self.files.entry(*inode).or_default();
                for call in std::mem::take(&mut file.pending) {
                    apply(&mut file.flushed, &call);
                }
            }
            Call::FlushNames { inode } if *inode == directory => {
                for call in std::mem::take(&mut self.pending_names) {
                    apply_name(&mut self.names, &call);
                }
            }
            Call::Create { inode, .. } => {
                // A number may be given again, to another file.
                self.files.insert(*inode, File::default());
                self.pending_names.push(call.clone());
            }
            Call::Rename { .. } | Call::Unlink { .. } => self.pending_names.push(call.clone()),
            Call::FlushNames { .. } | Call::Answer { .. } => {}
        }
    }

    /// One of the states that a power loss may leave: its files by name.
    fn state(&self, space: Space, random: &mut Xoshiro256PlusPlus) -> Vec<(String, Vec<u8>)> {
        let share = [0, 1, 4, 7, 8][(random.next_u64() % 5) as usize];
        let chance = |random: &mut Xoshiro256PlusPlus| random.next_u64() % 8 < share;
        let mut names = self.names.clone();
        for call in &self.pending_names {
            // A name that is lost takes the later ones with it: what they speak of is not there.
            if !chance(random) {
                break;
            }
            apply_name(&mut names, call);
        }
        let mut files = Vec::new();
        for (name, inode) in names {
            let file = self.files.get(&inode).cloned().unwrap_or_default();
            let mut bytes = file.flushed;
            for call in &file.pending {
                let Call::Write { offset, data, .. } = call else {
                    if chance(random) {
                        apply(&mut bytes, call);
                    }
                    continue;
                };
                if chance(random) {
                    bytes.resize(bytes.len().max(offset + data.len()), 0);
                }
                let mut at = *offset;
                while at < offset + data.len() {
                    let end = (at - at % SECTOR + SECTOR).min(offset + data.len());
                    if chance(random) {
                        bytes.resize(bytes.len().max(end), 0);
                        bytes[at..end].copy_from_slice(&data[at - offset..end - offset]);
                    }
                    at = end;
                }
            }
            if space == Space::AllocatedAhead && chance(random) {
                bytes.resize(bytes.len() + SECTOR * (random.next_u64() % 64) as usize, 0);
            }
            files.push((name, bytes));
        }
        files
    }
}

/// How a process gets the space of its files.
#[derive(Clone, Copy, PartialEq)]
enum Space {
    /// Some calls before it writes: a file may be longer than what was written to it.
    AllocatedAhead,
    /// By writing.
    Written,
}

/// Makes `states` states that `calls` may leave, spread over them, each in a directory, and hands it to `look` with the number of
/// the last call before.
fn each_state(
    calls: &[Call],
    directory: u64,
    states: usize,
    space: Space,
    mut look: impl FnMut(usize, &Path),
) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(states as u64);
    let mut disk = Disk::default();
    let shared_memory = Path::new("/dev/shm");
    let place =
        if shared_memory.is_dir() { tempfile::tempdir_in(shared_memory) } else { tempfile::tempdir() };
    let place = place.unwrap();
    let mut made = 0;
    for (number, call) in calls.iter().enumerate() {
        disk.does(call, directory);
        // The same share of all calls, spread over the run.
        let due = (number + 1) * states / calls.len();
        while made < due {
            made += 1;
            let state = place.path().join(made.to_string());
            fs::create_dir(&state).unwrap();
            for (name, bytes) in disk.state(space, &mut random) {
                fs::write(state.join(name), bytes).unwrap();
            }
            look(number, &state);
            fs::remove_dir_all(&state).unwrap();
        }
    }
}

/// What was wrong with the states of a run.
#[derive(Debug, Default)]
struct Found {
    states: usize,
    lost: usize,
    refused: usize,
    first: Option<String>,
}

/// Builds about `states` states of `run` and opens each.
fn judge(run: &Run, states: usize) -> Found {
    let mut answered: HashMap<u16, usize> = HashMap::new();
    let mut calls_seen = 0;
    let mut found = Found::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    each_state(&run.calls, run.directory, states, Space::AllocatedAhead, |number, directory| {
        for call in &run.calls[calls_seen..=number] {
            if let Call::Answer { port } = call {
                *answered.entry(*port).or_default() += 1;
            }
        }
        calls_seen = number + 1;
        found.states += 1;
        let is_answered = |(port, step): (u16, usize)| answered.get(&port).is_some_and(|count| step < *count);
        match runtime.block_on(lost(directory, &run.histories, is_answered)) {
            Ok(None) => {}
            Ok(Some(what)) => {
                found.lost += 1;
                found.first.get_or_insert(format!("after call {number}: {what}"));
            }
            Err(error) => {
                found.refused += 1;
                let call = KindOf(&run.calls[number]);
                found.first.get_or_insert(format!("after call {number} ({call:?}): {error}"));
            }
        }
    });
    found
}

/// A call without its data.
struct KindOf<'c>(&'c Call);

impl std::fmt::Debug for KindOf<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self.0 {
            Call::Write { inode, offset, data } => write!(f, "Write {inode} {offset} +{}", data.len()),
            other => write!(f, "{other:?}"),
        }
    }
}

/// Opens `directory`: an acknowledged write that is not there, or something that nobody wrote. The error: it is not opened.
async fn lost(
    directory: &Path,
    histories: &HashMap<String, History>,
    is_answered: impl Fn((u16, usize)) -> bool,
) -> Result<Option<String>, String> {
    let store = store::open(&format!("file:{}?segment=64KiB", directory.display())).unwrap();
    let lease = store.acquire(Part::WHOLE).await.map_err(|error| error.to_string())?;
    let mut session = store.connect(lease.epoch).await.map_err(|error| error.to_string())?;
    for (key, history) in histories {
        let last = history.iter().rposition(|operation| is_answered(operation.answer));
        // The last that was acknowledged, or the next, which may have been under way.
        let possible = match last {
            Some(last) => &history[last..history.len().min(last + 2)],
            None => &history[..1],
        };
        let key = kv::Key::new(key.as_bytes()).unwrap();
        let row =
            session.read(std::slice::from_ref(&key)).await.map_err(|error| error.to_string())?.remove(0);
        let value = row.as_ref().map(kv::Row::value);
        let is_possible = possible.iter().any(|operation| operation.value.as_deref() == value);
        let is_untouched = last.is_none() && value.is_none();
        if !is_possible && !is_untouched {
            let shown =
                value.map(|value| String::from_utf8_lossy(&value[..value.len().min(20)]).into_owned());
            return Ok(Some(format!("{key:?} has {shown:?} after {last:?} of {}", history.len())));
        }
    }
    Ok(None)
}

/// Sizes of values, operations of each client, length of segments, states in the short form.
const SCENARIOS: &[(&[usize], usize, &str, usize)] = &[
    (&[10], 600, "16KiB", 150),
    (&[10, 1024], 180, "64KiB", 150),
    (&[1024, 65536], 90, "512KiB", 100),
    (&[10, 4 << 20], 18, "8MiB", 20),
];

#[test]
fn no_acknowledged_write_is_lost_when_power_is() {
    let factor = if is_long() { 30 } else { 1 };
    let mut states = 0;
    for (sizes, operations, segment, short) in SCENARIOS {
        let run = run(*operations, sizes, segment);
        let renames = run.calls.iter().filter(|call| matches!(call, Call::Rename { .. })).count();
        let unlinks = run.calls.iter().filter(|call| matches!(call, Call::Unlink { .. })).count();
        // It went through new segments, and through the end of old ones.
        assert!(renames > 6 && unlinks > 2, "{sizes:?}: {renames} renames, {unlinks} unlinks");
        let found = judge(&run, short * factor);
        assert_eq!((found.lost, found.refused), (0, 0), "{sizes:?}: {found:?}");
        states += found.states;
    }
    assert!(states >= if is_long() { 10_000 } else { 400 }, "{states} states");
}

/// An opening writes and flushes what only the page cache may have, also of files that were copied a moment ago.
#[test]
fn what_a_server_found_is_on_disk_once_it_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let (store, record) = (directory.path().join("store"), directory.path().join("record"));
    let (url, environment) = recorded(&store, &record, "16KiB");
    let mut done = Done::default();
    let server = Server::start_in(&url, &[], &environment).unwrap();
    write(&server, 10, &[10, 1024], &mut done);
    server.kill();
    let mut before = calls(&record);
    let number = before.len();
    drop(Server::start_in(&url, &[], &environment).unwrap());
    let opening = calls(&record).split_off(number);
    // The last flush failed: the disk never gets what it was for.
    let flush_of = |call: &Call| if let Call::Flush { inode } = call { Some(*inode) } else { None };
    let failed = before.iter().rev().find_map(flush_of).unwrap();
    before.truncate(before.iter().rposition(|call| flush_of(call) == Some(failed)).unwrap());
    let from = before.iter().rposition(|call| flush_of(call) == Some(failed)).unwrap();
    let is_lost = |call: &Call| matches!(call, Call::Write { inode, .. } if *inode == failed);
    let kept = before.iter().enumerate().filter(|(at, call)| *at < from || !is_lost(call));
    let kept: Vec<Call> = kept.map(|(_, call)| call.clone()).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for writes_again in [true, false] {
        let opening = opening.iter().filter(|call| writes_again || !is_lost(call));
        let all: Vec<Call> = kept.iter().chain(opening).cloned().collect();
        // At the end.
        each_state(&all, fs::metadata(&store).unwrap().ino(), 1, Space::Written, |_, state| {
            let found = runtime.block_on(lost(state, &done.histories, |_| true));
            assert_eq!(found.is_ok_and(|lost| lost.is_none()), writes_again);
        });
    }
    let segments = fs::read_dir(&store).unwrap().map(Result::unwrap);
    let segments = segments.filter(|file| file.file_name().to_string_lossy().ends_with(".log"));
    let numbers: Vec<u64> = segments.map(|file| file.metadata().unwrap().ino()).collect();
    let is_flushed = |number: &u64| opening.iter().any(|call| flush_of(call) == Some(*number));
    assert!(numbers.len() > 2 && numbers.iter().all(is_flushed));
}

/// Only the last of them was.
#[test]
fn the_name_of_each_directory_that_a_store_makes_is_flushed() {
    let directory = tempfile::tempdir().unwrap();
    let (made, record) = (directory.path().join("made"), directory.path().join("record"));
    let (_, environment) = recorded(&made, &record, "1MiB");
    let store = format!("file:{}/with/store", made.display());
    Server::start_in(&store, &[], &environment).unwrap().kill();
    let calls = calls(&record);
    for parent in [directory.path(), &made, &made.join("with")] {
        let number = fs::metadata(parent).unwrap().ino();
        let is_flushed = |call: &Call| matches!(call, Call::FlushNames { inode } if *inode == number);
        assert!(calls.iter().any(is_flushed), "{}", parent.display());
    }
}

/// Servers that do it wrong: what the test says of them shows that it can see.
#[test]
fn a_power_loss_shows_every_wrong_order() {
    let right = run(90, &[10, 1024], "64KiB");
    let judged = |change: &dyn Fn(Vec<Call>) -> Vec<Call>| {
        let wrong = Run { calls: change(right.calls.clone()), histories: right.histories.clone(), ..right };
        judge(&wrong, 800)
    };
    let no_flush =
        judged(&|calls| calls.into_iter().filter(|call| !matches!(call, Call::Flush { .. })).collect());
    assert!(no_flush.lost + no_flush.refused > 0, "a server that does not flush: {no_flush:?}");
    // Each answer comes before the flush that it waited for.
    let early = judged(&|mut calls| {
        for at in 1..calls.len() {
            let mut place = at;
            while place > 0
                && matches!(calls[place], Call::Answer { .. })
                && matches!(calls[place - 1], Call::Answer { .. } | Call::Flush { .. })
            {
                calls.swap(place, place - 1);
                place -= 1;
                if matches!(calls[place + 1], Call::Flush { .. }) {
                    break;
                }
            }
        }
        calls
    });
    assert!(early.lost > 0, "a server that answers before the flush: {early:?}");
    // A segment gets its name before its content is on disk.
    let renamed = judged(&|calls| {
        let is_before_rename = |at: usize| matches!(calls.get(at + 1), Some(Call::Rename { .. }));
        let kept = calls
            .iter()
            .enumerate()
            .filter(|(at, call)| !(matches!(call, Call::Flush { .. }) && is_before_rename(*at)));
        kept.map(|(_, call)| call.clone()).collect()
    });
    assert!(renamed.lost + renamed.refused > 0, "a rename before the content: {renamed:?}");
    // Names are not flushed.
    let names =
        judged(&|calls| calls.into_iter().filter(|call| !matches!(call, Call::FlushNames { .. })).collect());
    assert!(names.lost + names.refused > 0, "names that are not flushed: {names:?}");
}

const LAB: &str = r#"
name = "station"
title = "A station that limits"
levels = [1, 2, 4, 8]
repetitions = 3
warmup = "500ms"
window = "2s"
[target]
kind = "simulated"
[[target.station]]
name = "front"
servers = 1
demand = "1ms"
service = "exponential"
[[workload]]
name = "mixed"
"#;

/// What a lab run did to its directory, and the inode of that.
fn lab_run() -> (Vec<Call>, u64) {
    let directory = tempfile::tempdir().unwrap();
    let [file, out, record] = ["experiment.toml", "out", "record"].map(|name| directory.path().join(name));
    fs::write(&file, LAB).unwrap();
    let mut lab = weir();
    let lab = lab.arg("lab").arg(file).arg("--out").arg(&out).env("XDG_CACHE_HOME", directory.path());
    let lab = lab.env("LD_PRELOAD", library(directory.path())).env("WEIR_DISK_DIR", &out);
    let output = lab.env("WEIR_DISK_RECORD", &record).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let calls = calls(&record);
    // Of the report there are others, in directories of their own; it can be made again.
    (calls, fs::metadata(&out).unwrap().ino())
}

/// How many trials a file of results has. `None`: it cannot be read.
fn trials(bytes: &[u8]) -> Option<usize> {
    let results: lab_data::results::Results = serde_json::from_slice(bytes).ok()?;
    Some(results.trials.len())
}

/// States of a lab run that lack trials, and that cannot be read.
fn judge_lab(calls: &[Call], directory: u64, states: usize) -> Found {
    // After each call: the trials of the save that is complete, as the next one, or what comes after it, has begun.
    let (mut saving, mut saved) = (Vec::new(), Vec::new());
    let (mut inode_saving, mut begun, mut complete) = (0, None, 0);
    for call in calls {
        match call {
            Call::Create { name, inode } => {
                complete = begun.unwrap_or(complete);
                (inode_saving, saving) = (if name.ends_with(".tmp") { *inode } else { 0 }, Vec::new());
            }
            Call::Write { inode, .. } if *inode == inode_saving => apply(&mut saving, call),
            Call::Rename { .. } => begun = trials(&saving),
            _ => {}
        }
        saved.push(complete);
    }
    assert_eq!(begun, Some(12), "every trial is saved");
    let mut found = Found::default();
    each_state(calls, directory, states, Space::Written, |number, directory| {
        found.states += 1;
        let read = fs::read(directory.join("results.json"));
        let wrong = match read.map_or(Some(0), |bytes| trials(&bytes)) {
            None => &mut found.refused,
            Some(trials) if trials < saved[number] => &mut found.lost,
            Some(_) => return,
        };
        *wrong += 1;
        found.first.get_or_insert(format!("after call {number}: {} saved", saved[number]));
    });
    found
}

#[test]
fn no_saved_trial_of_a_lab_run_is_lost_when_power_is() {
    let (calls, directory) = lab_run();
    let found = judge_lab(&calls, directory, if is_long() { 10_000 } else { 500 });
    assert_eq!((found.lost, found.refused), (0, 0), "{found:?}");
    // Without its flushes it is seen to lose.
    let without = |is_left_out: fn(&Call) -> bool| {
        let calls: Vec<Call> = calls.iter().filter(|call| !is_left_out(call)).cloned().collect();
        judge_lab(&calls, directory, 500)
    };
    let content = without(|call| matches!(call, Call::Flush { .. }));
    assert!(content.refused > 0, "content that is not flushed: {content:?}");
    let names = without(|call| matches!(call, Call::FlushNames { .. }));
    assert!(names.lost > 0, "names that are not flushed: {names:?}");
}
