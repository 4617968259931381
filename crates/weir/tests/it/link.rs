//! The link from outside: what goes through, how much of it and how late, and what it says of that.

use crate::support::{PATIENCE, free_address};
use kv::proto::LinkAccount;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

struct Link {
    process: Child,
    questions: ChildStdin,
    said: BufReader<ChildStdout>,
    address: String,
}

impl Link {
    fn start(to: &str, flags: &[&str]) -> Link {
        let mut command = Command::new("sh");
        // Few files, until it asks for more.
        command.args(["-c", "ulimit -Sn 16 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_weir")]);
        command.args(["link", "--to", to]).args(flags).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let questions = process.stdin.take().unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening ").unwrap().trim().to_owned();
        Link { process, questions, said, address }
    }

    fn account(&mut self) -> LinkAccount {
        self.questions.write_all(b"stats\n").unwrap();
        let mut line = String::new();
        self.said.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// Closes its input, with which it ends.
    fn end(self) {
        let Link { mut process, questions, .. } = self;
        drop(questions);
        assert!(process.wait().unwrap().success());
    }
}

/// Sends everything back, for so many connections.
fn echo(connections: usize) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = move || {
        let streams: Vec<TcpStream> = listener.incoming().take(connections).map(Result::unwrap).collect();
        let copy = |mut stream: TcpStream| {
            thread::spawn(move || {
                std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
            })
        };
        streams.into_iter().map(copy).collect::<Vec<_>>().into_iter().for_each(|one| one.join().unwrap());
    };
    (address, thread::spawn(serve))
}

/// Sends `bytes` and reads them back to the end; compares all of them.
fn round_trip(address: &str, bytes: usize, seed: u8) {
    let sent: Vec<u8> = (0..bytes).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect();
    let mut stream = TcpStream::connect(address).unwrap();
    let mut writing = stream.try_clone().unwrap();
    let all = sent.clone();
    let writer = thread::spawn(move || {
        writing.write_all(&all).unwrap();
        writing.shutdown(Shutdown::Write).unwrap();
    });
    let mut read = Vec::new();
    stream.read_to_end(&mut read).unwrap();
    writer.join().unwrap();
    assert!(read == sent, "{} of {} bytes came back", read.len(), sent.len());
}

#[test]
fn every_byte_comes_through_in_order_and_the_end_after_the_last() {
    for flags in
        [&[][..], &["--delay", "3ms"], &["--rate", "200mbit"], &["--rate", "200mbit", "--delay", "1ms"]]
    {
        let (to, server) = echo(8);
        let mut link = Link::start(&to, flags);
        let address = link.address.clone();
        let clients: Vec<_> = (0..8u8)
            .map(|seed| {
                let address = address.clone();
                thread::spawn(move || round_trip(&address, 300_000 + usize::from(seed), seed))
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        server.join().unwrap();
        let account = link.account();
        assert_eq!((account.up.bytes, account.down.bytes), (8 * 300_000 + 28, 8 * 300_000 + 28), "{flags:?}");
        link.end();
    }
}

/// Upper bounds only: on a slow day less goes through, never more.
#[test]
fn no_more_goes_through_than_the_rate_allows() {
    let (to, server) = echo(4);
    let mut link = Link::start(&to, &["--rate", "1mbit"]);
    let (address, start) = (link.address.clone(), Instant::now());
    let clients: Vec<_> = (0..4u8)
        .map(|seed| {
            let address = address.clone();
            thread::spawn(move || round_trip(&address, 15_000, seed))
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    // 60 kB at 125 kB/s, and the last chunk once more on its way back.
    let secs = start.elapsed().as_secs_f64();
    assert!(secs >= 60_000.0 / 125_000.0, "{secs}");
    server.join().unwrap();
    let account = link.account();
    let expected = 60_000.0 / 125_000.0;
    for direction in [account.up, account.down] {
        assert!((direction.busy_secs - expected).abs() < 1e-6, "{direction:?}");
    }
    // Four connections share it, each of them with bytes that wait or go nearly all the time; never more than all four.
    assert!(account.waiting_secs > 0.0 && account.serving_secs >= expected, "{account:?}");
    assert!(account.waiting_secs + account.serving_secs <= 2.0 * 4.0 * secs, "{account:?}");
    link.end();
}

#[test]
fn an_answer_comes_no_sooner_than_the_delay_in_each_direction() {
    let (to, server) = echo(1);
    let mut link = Link::start(&to, &["--delay", "20ms"]);
    let mut stream = TcpStream::connect(&link.address).unwrap();
    for _ in 0..3 {
        let start = Instant::now();
        stream.write_all(b"ping").unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(40), "{:?}", start.elapsed());
    }
    let account = link.account();
    // Three times there and back, in which it was always under way.
    assert!((account.serving_secs - 0.12).abs() < 1e-9 && account.waiting_secs == 0.0, "{account:?}");
    assert_eq!(account.up.busy_secs, 0.0);
    drop(stream);
    server.join().unwrap();
    link.end();
}

/// The server says something and closes; the link keeps both ends until the client does, too.
#[test]
fn a_link_with_more_clients_than_files_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut link = Link::start(&listener.local_addr().unwrap().to_string(), &[]);
    // Ends with the test program.
    thread::spawn(move || listener.incoming().flatten().for_each(|mut stream| drop(stream.write_all(b"x"))));
    let few = Rlimit { current: Some(16), maximum: Some(16) };
    let before = prlimit(Some(Pid::from_child(&link.process)), Resource::Nofile, few).unwrap();
    assert_eq!(before.current, before.maximum, "it asks for all files that it may have");
    let clients: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(&link.address).unwrap()).collect();
    // One that ended for them would have ended by then.
    thread::sleep(Duration::from_millis(200));
    link.account();
    drop(clients);
    let begun = Instant::now();
    while TcpStream::connect(&link.address).unwrap().read_exact(&mut [0]).is_err() {
        assert!(begun.elapsed() < PATIENCE);
    }
    link.end();
}

#[test]
fn a_server_that_is_not_there_is_a_connection_that_ends() {
    let nobody = free_address().to_string();
    let mut link = Link::start(&nobody, &["--delay", "1ms"]);
    let mut stream = TcpStream::connect(&link.address).unwrap();
    let _ = stream.write_all(b"hello");
    let ended = stream.read(&mut [0; 1]);
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
    assert_eq!(link.account().down.bytes, 0);
    link.end();
}
