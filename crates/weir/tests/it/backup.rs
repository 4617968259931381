//! `weir store backup` while a server writes: copies that open, and hold what was acknowledged before.

use crate::support::{Client, Server, is_long, until, weir};
use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

const KEYS: usize = 16;
const WRITERS: usize = 4;

fn backup(store: &str, destination: &Path) -> Output {
    weir().args(["store", "backup", store]).arg(destination).output().unwrap()
}

/// The number that the value of each key begins with.
fn numbers(client: &mut Client) -> Vec<u64> {
    let number = |key: usize| {
        let answer = client.get(&format!("/kv/{key}"));
        assert!([200, 404].contains(&answer.status));
        answer.text().split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
    };
    (0..KEYS).map(number).collect()
}

/// For each key, the number that was acknowledged last, and the one that was sent last.
#[derive(Default)]
struct Written {
    acknowledged: [AtomicU64; KEYS],
    sent: [AtomicU64; KEYS],
}

fn all(numbers: &[AtomicU64; KEYS]) -> Vec<u64> {
    numbers.iter().map(|number| number.load(SeqCst)).collect()
}

/// Writes its keys again and again, until the server or the test ends.
fn write(mut client: Client, writer: usize, written: &Written, is_over: &AtomicBool) {
    let tail = "x".repeat(10_000);
    for number in written.sent[writer].load(SeqCst) + 1.. {
        for key in (writer..KEYS).step_by(WRITERS) {
            if is_over.load(SeqCst) {
                return;
            }
            written.sent[key].store(number, SeqCst);
            let body = format!("{number} {tail}");
            match client.ask("PUT", &format!("/kv/{key}"), &[], body.as_bytes()) {
                Ok(answer) => assert!([201, 204].contains(&answer.status), "{}", answer.text()),
                // It was killed.
                Err(_) => return,
            }
            written.acknowledged[key].store(number, SeqCst);
        }
    }
}

#[test]
fn a_backup_under_load_opens_and_has_what_was_acknowledged_before_it() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("store");
    // Short segments: one is begun, and one removed, many times in a second.
    let store = format!("file:{}?segment=1MiB", directory.display());
    let written = Written::default();
    let mut first_segments = Vec::new();
    for round in 0..if is_long() { 100 } else { 5 } {
        let server = Server::start(&store, &[]);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (client, written, is_over) = (server.client(), &written, &is_over);
                scope.spawn(move || write(client, writer, written, is_over));
            }
            let begin = all(&written.acknowledged);
            until("there is much to copy", || {
                all(&written.acknowledged).iter().zip(&begin).all(|(now, then)| *now > then + 40)
            });
            // One is killed, at any moment of it. The next one of the same name is whole.
            let destination = place.path().join(format!("copy-{round}"));
            let mut command = weir();
            command.args(["store", "backup", &store]).arg(&destination);
            let mut killed = command.stdout(std::process::Stdio::null()).spawn().unwrap();
            let partial = place.path().join(format!("copy-{round}.partial"));
            until("it has begun", || partial.exists() || killed.try_wait().unwrap().is_some());
            killed.kill().unwrap();
            killed.wait().unwrap();
            if destination.exists() {
                fs::remove_dir_all(&destination).unwrap();
            }
            let before = all(&written.acknowledged);
            let made = thread::scope(|scope| {
                let made = scope.spawn(|| backup(&store, &destination));
                if round % 2 == 1 {
                    // What it copies does not need the server.
                    until("it has begun", || partial.exists() || made.is_finished());
                    server.kill();
                }
                made.join().unwrap()
            });
            let after = all(&written.sent);
            is_over.store(true, SeqCst);
            let said = [made.stdout, made.stderr].concat();
            let said = String::from_utf8(said).unwrap();
            assert!(made.status.success() && said.contains("no damage"), "{said}");
            let segments = fs::read_dir(&destination).unwrap().map(|file| file.unwrap().file_name());
            first_segments.push(segments.min().unwrap());
            let copy = Server::start(&format!("file:{}", destination.display()), &[]);
            let found = numbers(&mut copy.client());
            for key in 0..KEYS {
                let (least, found, most) = (before[key], found[key], after[key]);
                assert!(
                    (least..=most).contains(&found),
                    "key {key}: {least} ≤ {found} ≤ {most}, round {round}"
                );
            }
            copy.client().put("/kv/0", b"it is a store like any");
            drop(copy);
            fs::remove_dir_all(&destination).unwrap();
        });
    }
    assert!(
        first_segments.windows(2).all(|two| two[0] < two[1]),
        "nothing was removed meanwhile: {first_segments:?}"
    );
    // The original took no harm.
    let found = numbers(&mut Server::start(&store, &[]).client());
    for (key, found) in found.into_iter().enumerate() {
        let (least, most) = (written.acknowledged[key].load(SeqCst), written.sent[key].load(SeqCst));
        assert!((least..=most).contains(&found), "key {key}: {least} ≤ {found} ≤ {most}");
    }
}

#[test]
fn a_backup_that_cannot_be_made_says_why_and_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let store = format!("file:{}", at("store").display());
    let server = Server::start(&store, &[]);
    server.client().put("/kv/a", b"value");
    fs::create_dir(at("empty")).unwrap();
    let (full, nowhere) = (at("store"), at("nowhere"));
    // A copy was made beside it, in vain, and stayed.
    std::os::unix::fs::symlink(at("empty"), at("link")).unwrap();
    for (store, destination, part) in [
        (store.as_str(), full.as_path(), "is there already"),
        (&store, &at("link"), "is a link, or where a file system is mounted; hint: name a directory in it"),
        (nowhere.to_str().unwrap(), &at("copy"), "cannot read the store in"),
        (at("empty").to_str().unwrap(), &at("copy"), "there is no store in"),
        ("postgres://me@localhost/db", &at("copy"), "is no embedded store"),
        (&store, &nowhere.join("copy"), "cannot write the copy in"),
    ] {
        let made = backup(store, destination);
        let said = String::from_utf8(made.stderr).unwrap();
        assert!(!made.status.success() && said.contains(part), "{said}");
    }
    assert!(["copy", "copy.partial", "link.partial"].iter().all(|name| !at(name).exists()));
    // An empty directory is as good as none, and so is one with a copy that was cut short.
    fs::create_dir(at("empty.partial")).unwrap();
    fs::write(at("empty.partial/0000000007.log"), "half").unwrap();
    assert!(backup(&store, &at("empty")).status.success());
    assert!(!at("empty.partial").exists());
    let copy = Server::start(&format!("file:{}", at("empty").display()), &[]);
    assert_eq!(copy.client().get("/kv/a").text(), "value");
}
