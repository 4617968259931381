//! The recipes for clients, behind a proxy that breaks every second request: they send it again, and it has an effect once.

use crate::docs::{Part, parts};
use crate::support::{Client, PATIENCE, Server, python};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// What the proxy counts.
#[derive(Default)]
struct Counts {
    requests: AtomicUsize,
    refused: AtomicUsize,
    lost: AtomicUsize,
}

/// A proxy in front of `server`. Every second request is refused, or has its answer lost.
fn proxy(server: SocketAddr) -> (SocketAddr, Arc<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, counts) = (listener.local_addr().unwrap(), Arc::<Counts>::default());
    let shared = Arc::clone(&counts);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counts = Arc::clone(&shared);
            // It ends with the client.
            thread::spawn(move || while pass_on(&stream, server, &counts).is_some() {});
        }
    });
    (address, counts)
}

/// Answers the next request of a connection; `None`: there is no more.
fn pass_on(mut stream: &TcpStream, server: SocketAddr, counts: &Counts) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut input = BufReader::new(stream);
    let (mut head, mut body) = (String::new(), Vec::new());
    while !head.ends_with("\r\n\r\n") {
        if input.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let fields = head.to_ascii_lowercase();
    let length = fields.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.parse().ok());
    body.resize(length.unwrap_or(0), 0);
    input.read_exact(&mut body).ok()?;
    match counts.requests.fetch_add(1, Relaxed) % 4 {
        1 => {
            counts.refused.fetch_add(1, Relaxed);
            let refusal = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nWeir-Outcome: not-applied\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(refusal.as_bytes()).ok()
        }
        kind => {
            let mut client = Client::connect(server).unwrap();
            client.send(&[head.replace("127.0.0.1", "localhost").as_bytes(), &body].concat()).unwrap();
            let answer = client.answer(head.starts_with("HEAD")).unwrap();
            if kind == 3 {
                counts.lost.fetch_add(1, Relaxed);
                return None;
            }
            let fields = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
            let head = format!("HTTP/1.1 {} Said\r\n{}\r\n", answer.status, fields.collect::<String>());
            stream.write_all(&[head.as_bytes(), &answer.body].concat()).ok()
        }
    }
}

#[test]
fn the_recipes_go_on_when_requests_are_refused_or_lost() {
    let server = Server::start("memory:", &[]);
    let text = std::fs::read_to_string("../../docs/clients.md").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path =
        format!("{}:{}", python("python3").parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut languages = Vec::new();
    for part in parts(&text) {
        let Part::Program(command, file, text) = part else { continue };
        // One that needs only the plain interface.
        if !text.contains("127.0.0.1:8080") {
            continue;
        }
        let (address, counts) = proxy(server.address);
        let program = directory.path().join(file);
        std::fs::write(program, text.replace("127.0.0.1:8080", &address.to_string())).unwrap();
        let mut shell = Command::new("bash");
        let output =
            shell.args(["-c", command]).current_dir(directory.path()).env("PATH", &path).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        let [requests, refused, lost] =
            [&counts.requests, &counts.refused, &counts.lost].map(|count| count.load(Relaxed));
        assert!(requests >= 10 && refused >= 3 && lost >= 1, "{command}: {requests}, {refused}, {lost}");
        languages.push(command);
    }
    assert_eq!(languages, ["python3 recipe.py", "node recipe.mjs", "go run recipe.go"]);
}
