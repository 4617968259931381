//! The floor: what this kernel takes for one request and one answer, whoever serves.
//!
//! One thread and epoll. Whatever arrives in one read is answered by one write of a fixed answer, as long as weir's to a
//! GET of 100 bytes; nothing is parsed. `floor ADDRESS:PORT`

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

/// A head with the fields of weir's own, and 100 bytes.
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Date: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
    ETag: \"8796093022209\"\r\n\
    Cache-Control: no-cache\r\n\
    Cache-Status: weir; hit\r\n\
    Content-Type: application/octet-stream\r\n\
    X-Content-Type-Options: nosniff\r\n\
    Content-Length: 100\r\n\
    \r\n\
    0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

/// Connections, the listener and what the process has open anyway.
const FILES: u64 = 10_100;
const LISTENER: Token = Token(usize::MAX);

fn main() -> io::Result<()> {
    let address: SocketAddr = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| io::Error::other("one argument: where to listen, as in 127.0.0.1:8080"))?;
    allow_files()?;
    let mut listener = TcpListener::bind(address)?;
    let mut poll = Poll::new()?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut events = Events::with_capacity(1024);
    let mut connections: Vec<Option<TcpStream>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    // Longer than any request here: a shorter read has emptied the socket, and nothing need be read to be sure of it.
    let mut request = vec![0; 16 << 10];
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            polled => polled?,
        }
        for event in &events {
            if event.token() == LISTENER {
                accept(&listener, &poll, &mut connections, &mut free)?;
            } else if !answer(event, &mut connections, &mut request) {
                connections[event.token().0] = None;
                free.push(event.token().0);
            }
        }
    }
}

/// As many files as a busy server needs, or as we may have.
fn allow_files() -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(FILES, |maximum| maximum.min(FILES));
    match current {
        Some(current) if current < wanted => {
            Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })?)
        }
        _ => Ok(()),
    }
}

fn accept(
    listener: &TcpListener,
    poll: &Poll,
    connections: &mut Vec<Option<TcpStream>>,
    free: &mut Vec<usize>,
) -> io::Result<()> {
    loop {
        let mut stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            // A client that went away meanwhile is none.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
            Err(error) => return Err(error),
        };
        stream.set_nodelay(true)?;
        let place = free.pop().unwrap_or_else(|| {
            connections.push(None);
            connections.len() - 1
        });
        poll.registry().register(&mut stream, Token(place), Interest::READABLE)?;
        connections[place] = Some(stream);
    }
}

/// Reads once and answers once; false when the connection is over.
fn answer(event: &Event, connections: &mut [Option<TcpStream>], request: &mut [u8]) -> bool {
    let Some(stream) = &mut connections[event.token().0] else { return true };
    loop {
        match stream.read(request) {
            Ok(0) => return false,
            Ok(length) => {
                if !matches!(stream.write(ANSWER), Ok(written) if written == ANSWER.len()) {
                    return false;
                }
                // With the end of the connection in the same event there will be no other that tells of it.
                if length < request.len() && !event.is_read_closed() {
                    return true;
                }
            }
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}
