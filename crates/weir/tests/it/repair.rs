//! `weir store check` and `weir store repair` on what a server left.

use crate::power_loss::library;
use crate::support::{Server, weir};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

fn store(action: &str, url: &str) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = weir().args(["store", action, url]).output().unwrap();
    (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
}

/// The oldest segment.
fn oldest(directory: &Path) -> std::path::PathBuf {
    let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|suffix| suffix == "log")).min().unwrap()
}

#[test]
fn a_damaged_store_is_refused_checked_and_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("store");
    let url = format!("file:{}", place.display());
    let server = Server::start(&url, &[]);
    let mut client = server.client();
    for key in 0..20 {
        assert_eq!(client.put(&format!("/kv/{key}"), format!("value of {key}").as_bytes()).status, 201);
    }
    let (code, text) = store("check", &url);
    assert!(
        code == Some(1) && text.contains("a server holds the store") && text.contains("stop it first"),
        "{text}"
    );
    server.kill();
    let (code, text) = store("check", &url);
    assert!(code == Some(0) && text.contains("20 records") && text.ends_with("no damage\n"), "{text}");
    let (code, text) = store("repair", &url);
    assert!(code == Some(0) && text.ends_with("no damage\nnothing was changed\n"), "{text}");

    let file = oldest(&place);
    let mut bytes = fs::read(&file).unwrap();
    let at = memchr::memmem::find(&bytes, b"value of 7").unwrap();
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    let refused = Server::start_in(&url, &[], &[("WEIR_DRAIN", "1s".into())]).err().unwrap();
    // The record's batch begins at its header, and the record is behind that.
    let offset = format!("at {}", at - 1 - 20 - 24);
    let commands = [format!("`weir store check {url}`"), format!("`weir store repair {url}`")];
    for part in [&file.display().to_string(), &offset, &commands[0], &commands[1]] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    let (code, text) = store("check", &place.display().to_string());
    assert!(code == Some(1) && text.contains(&offset) && text.contains("probably of the key 7"), "{text}");
    let (code, text) = store("repair", &url);
    assert!(code == Some(0) && text.contains("lost: 1 record") && text.contains("the older value"), "{text}");
    assert!(text.contains(&place.join("damaged-1").display().to_string()), "{text}");
    let server = Server::start(&url, &[]);
    for key in 0..20 {
        let answer = server.client().get(&format!("/kv/{key}"));
        let expected = if key == 7 { 404 } else { 200 };
        assert_eq!(answer.status, expected, "{key}: {}", answer.text());
    }
}

/// Their bytes were counted as those of rows.
#[test]
fn events_are_no_rows() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}/store", directory.path().display());
    let server = Server::start(&url, &["--event-log", "1h"]);
    assert_eq!(server.client().put("/kv/a", b"1").status, 201);
    assert_eq!(server.client().ask("DELETE", "/kv/a", &[], b"").unwrap().status, 204);
    server.kill();
    let (code, text) = store("check", &url);
    assert!(code == Some(0) && text.contains("2 records of writes, 0 rows (0 bytes)"), "{text}");
}

/// A repair was advised, and said that there is no store.
#[test]
fn of_a_store_without_any_segment_only_a_backup_is_advised() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("file:{}/store", directory.path().display());
    let mut server = Server::start(&url, &[]);
    assert_eq!(server.client().put("/kv/a", b"1").status, 201);
    server.terminate();
    server.wait();
    fs::remove_file(oldest(&directory.path().join("store"))).unwrap();
    let refused = Server::start_in(&url, &[], &[("WEIR_DRAIN", "1s".into())]).err().unwrap();
    for text in [refused, store("check", &url).1, store("repair", &url).1] {
        let is_advised = text.contains("restore a backup") && !text.contains("weir store repair");
        assert!(is_advised && text.contains("nothing of the store"), "{text}");
    }
}

/// No command could read such a store, and the error was of a directory without permissions.
#[test]
fn what_the_disk_cannot_read_costs_the_records_that_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let [whole, place] = ["whole", "store"].map(|name| directory.path().join(name));
    let library = library(directory.path());
    let server = Server::start(&format!("file:{}", whole.display()), &[]);
    let mut client = server.client();
    for key in 0..20 {
        assert_eq!(client.put(&format!("/kv/{key}"), &[b'0' + key; 2000]).status, 201);
    }
    server.kill();
    let file = oldest(&whole);
    let name = file.file_name().unwrap().to_str().unwrap();
    // In the middle; and behind the last batch, where it may have been a write that was acknowledged.
    for (at, rows) in [(16384, "17 rows"), (65536, "20 rows")] {
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).unwrap();
        fs::copy(&file, place.join(name)).unwrap();
        let url = format!("file:{}", place.display());
        let on_disk = |command: &mut Command| {
            command.env("LD_PRELOAD", &library).env("WEIR_DISK_DIR", &place);
            let Output { status, stdout, stderr } =
                command.env("WEIR_DISK_UNREADABLE", format!("store/{name}:{at}")).output().unwrap();
            (status.code(), String::from_utf8([stdout, stderr].concat()).unwrap())
        };
        let store = |action: &str| on_disk(weir().args(["store", action, &url]));
        let cannot = format!("the disk cannot read the file at {at}\n");
        let (code, text) = store("check");
        assert!(code == Some(1) && text.contains(&cannot) && text.contains(rows), "{text}");
        let (code, text) = on_disk(weir().args(["serve", "--listen", "127.0.0.1:0", "--store", &url]));
        let cannot = format!("(the disk cannot read it at {at})");
        assert!(code != Some(0) && text.contains(&cannot) && text.contains("weir store repair"), "{text}");
        let copy = directory.path().join("copy").display().to_string();
        let (code, text) = on_disk(weir().args(["store", "backup", &url, &copy]));
        assert!(code != Some(0) && text.contains("`weir store check` lists what the disk"), "{text}");
        assert_eq!(store("repair").0, Some(0));
        let (code, text) = store("check");
        assert!(code == Some(0) && text.contains(rows), "{text}");
    }
}

/// Killed before each of its calls in turn, a repair is begun again, and finishes with every row that could be read.
#[test]
fn a_repair_that_was_killed_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let [damaged, place] = ["damaged", "store"].map(|name| directory.path().join(name));
    let library = library(directory.path());
    let server = Server::start(&format!("file:{}?segment=64KiB", damaged.display()), &[]);
    let mut client = server.client();
    for key in 0..60 {
        let value = format!("value of {key}, {}", "and so on ".repeat(400));
        assert_eq!(client.put(&format!("/kv/{key}"), value.as_bytes()).status, 201);
    }
    server.kill();
    let file = oldest(&damaged);
    let mut bytes = fs::read(&file).unwrap();
    let at = memchr::memmem::find(&bytes, b"value of 7,").unwrap();
    bytes[at] ^= 1;
    fs::write(&file, bytes).unwrap();
    for call in 1.. {
        let _ = fs::remove_dir_all(&place);
        fs::create_dir(&place).unwrap();
        for file in fs::read_dir(&damaged).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), place.join(file.file_name())).unwrap();
        }
        let url = format!("file:{}?segment=64KiB", place.display());
        let mut repair = weir();
        repair.args(["store", "repair", &url]).env("LD_PRELOAD", &library).env("WEIR_DISK_DIR", &place);
        let killed = repair.env("WEIR_DISK_FAIL", format!("{call}:0:1:0")).output().unwrap().status;
        let (code, text) = store("repair", &url);
        assert_eq!(code, Some(0), "call {call}: {text}");
        let (code, text) = store("check", &url);
        assert!(code == Some(0) && text.contains("59 rows"), "call {call}: {text}");
        if killed.signal().is_none() {
            assert!(killed.success() && call > 10, "call {call}: {killed}");
            return;
        }
    }
}
