//! `weir store check` and `weir store repair` on what a server left.

use crate::support::{Server, weir};
use std::fs;
use std::path::Path;
use std::process::Output;

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
