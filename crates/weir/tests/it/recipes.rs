//! The recipes for clients, behind a proxy that breaks some requests: they send them again, and they have an effect once.

use crate::docs::{Part, parts};
use crate::support::{Client, PATIENCE, Server, python};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
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

/// What becomes of a request.
enum Fate {
    Answered,
    Refused,
    /// It is done, and its answer does not arrive.
    Lost,
}

/// A proxy in front of `server`; `fate` says what becomes of the request with this number.
fn proxy(server: SocketAddr, fate: fn(usize) -> Fate) -> (SocketAddr, Arc<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, counts) = (listener.local_addr().unwrap(), Arc::<Counts>::default());
    let shared = Arc::clone(&counts);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counts = Arc::clone(&shared);
            // It ends with the client.
            thread::spawn(move || while pass_on(&stream, server, fate, &counts).is_some() {});
        }
    });
    (address, counts)
}

/// Answers the next request of a connection; `None`: there is no more.
fn pass_on(
    mut stream: &TcpStream,
    server: SocketAddr,
    fate: fn(usize) -> Fate,
    counts: &Counts,
) -> Option<()> {
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
    match fate(counts.requests.fetch_add(1, Relaxed)) {
        Fate::Refused => {
            counts.refused.fetch_add(1, Relaxed);
            let refusal = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nWeir-Outcome: not-applied\r\nContent-Length: 0\r\n\r\n";
            stream.write_all(refusal.as_bytes()).ok()
        }
        fate => {
            let mut client = Client::connect(server).unwrap();
            client.send(&[head.replace("127.0.0.1", "localhost").as_bytes(), &body].concat()).unwrap();
            let answer = client.answer(head.starts_with("HEAD")).unwrap();
            if matches!(fate, Fate::Lost) {
                counts.lost.fetch_add(1, Relaxed);
                return None;
            }
            let fields = answer.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
            let head = format!("HTTP/1.1 {} Said\r\n{}\r\n", answer.status, fields.collect::<String>());
            stream.write_all(&[head.as_bytes(), &answer.body].concat()).ok()
        }
    }
}

/// Runs every recipe behind a proxy, and gives `check` its command, how it ended and what the proxy counted; their commands.
fn run_recipes(fate: fn(usize) -> Fate, check: impl Fn(&str, &Output, [usize; 3])) -> Vec<String> {
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
        let (address, counts) = proxy(server.address, fate);
        let program = directory.path().join(file);
        std::fs::write(program, text.replace("127.0.0.1:8080", &address.to_string())).unwrap();
        let mut shell = Command::new("bash");
        let output =
            shell.args(["-c", command]).current_dir(directory.path()).env("PATH", &path).output().unwrap();
        let counts = [&counts.requests, &counts.refused, &counts.lost].map(|count| count.load(Relaxed));
        check(command, &output, counts);
        languages.push(command.to_owned());
    }
    languages
}

#[test]
fn the_recipes_go_on_when_requests_are_refused_or_lost() {
    let every_second = |number| match number % 4 {
        1 => Fate::Refused,
        3 => Fate::Lost,
        _ => Fate::Answered,
    };
    let ran = run_recipes(every_second, |command, output, [requests, refused, lost]| {
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(requests >= 10 && refused >= 3 && lost >= 1, "{command}: {requests}, {refused}, {lost}");
    });
    assert_eq!(ran, ["python3 recipe.py", "node recipe.mjs", "go run recipe.go"]);
}

/// A refusal speaks of its own attempt only, and the one before may have happened.
#[test]
fn the_recipes_remember_that_an_outcome_is_unknown() {
    let first_is_lost = |number| if number == 0 { Fate::Lost } else { Fate::Refused };
    run_recipes(first_is_lost, |command, output, counts| {
        let said = [&output.stderr, &output.stdout].map(|text| String::from_utf8_lossy(text)).concat();
        assert!(!output.status.success() && said.contains("outcome unknown"), "{command}: {said}");
        assert_eq!(counts, [4, 3, 1], "{command}");
    });
}
