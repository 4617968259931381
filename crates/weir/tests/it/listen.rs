//! Where a server listens: names, several addresses, Unix sockets.

use crate::support::{Server, weir};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Sends one request over a Unix socket; the status line and the body of its answer.
fn ask(path: &Path, method: &str, body: &str) -> (String, String) {
    let mut stream = UnixStream::connect(path).unwrap();
    let length = body.len();
    let head = format!(
        "{method} /kv/a HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

#[test]
fn names_addresses_and_unix_sockets_serve_the_same_values() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weir.sock");
    let unix = format!("unix:{}", path.display());
    let mut server = Server::start("memory:", &["--listen", "localhost:0", "--listen", &unix]);
    assert_eq!(server.more.len(), 2);
    assert_eq!(server.more[1], unix);
    server.client().put("/kv/a", b"value");
    let mut other = crate::support::Client::connect(server.more[0].parse().unwrap()).unwrap();
    assert_eq!(other.get("/kv/a").text(), "value");
    assert_eq!(ask(&path, "GET", ""), ("HTTP/1.1 200 OK".to_owned(), "value".to_owned()));
    assert_eq!(ask(&path, "PUT", "new").0, "HTTP/1.1 204 No Content");
    assert_eq!(server.client().get("/kv/a").text(), "new");
    let found = fs::metadata(&path).unwrap();
    assert!(found.file_type().is_socket() && found.permissions().mode() & 0o777 == 0o660);
    server.terminate();
    assert!(server.wait().success());
    assert!(!path.exists(), "a server removes its socket");
}

#[test]
fn the_socket_of_a_killed_server_is_replaced_and_that_of_a_running_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("weir.sock");
    let unix = format!("unix:{}", path.display());
    Server::start("memory:", &["--listen", &unix]).kill();
    assert!(path.exists());
    let server = Server::start("memory:", &["--listen", &unix]);
    let second = weir().args(["serve", "--store", "memory:", "--listen", &unix]).output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("cannot listen on {unix}: another process listens there")), "{said}");
    assert_eq!(ask(&path, "GET", "").0, "HTTP/1.1 404 Not Found");
    drop(server);
    let file = directory.path().join("file");
    fs::write(&file, "mine").unwrap();
    let flag = format!("unix:{}", file.display());
    let refused = weir().args(["serve", "--store", "memory:", "--listen", &flag]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        refused.status.code() == Some(2)
            && said.contains("a file that is no socket; hint: choose another path"),
        "{said}"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn a_compatibility_api_has_a_unix_socket_too() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("compat.sock");
    let mut child = weir()
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--until-stdin-ends", "--compat"])
        .arg(format!("put-kv=unix:{}", path.display()))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert!(lines.next().unwrap().unwrap().starts_with("listening 127.0.0.1:"));
    assert_eq!(lines.next().unwrap().unwrap(), format!("compat put-kv unix:{}", path.display()));
    assert_eq!(ask(&path, "PUT", "value"), ("HTTP/1.1 200 OK".to_owned(), "PUT OK".to_owned()));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}
