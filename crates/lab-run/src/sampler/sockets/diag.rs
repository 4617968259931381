//! The ends of TCP connections on this machine, with the bytes that lie in their queues.
//!
//! The kernel is asked by netlink, in two ways: for chosen ends, which it finds by their addresses, and for all established ends
//! with one port, for which it walks its whole table. Sources: Linux `sock_diag(7)` and `include/uapi/linux/inet_diag.h`.

use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use std::{io, iter, mem};

/// One end of an established connection. Addresses of IPv4 within IPv6 stand as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// Bytes that have arrived and were not read.
    pub(super) unread: u32,
    /// Bytes that were written and not acknowledged by the other end, whether they were sent or not.
    pub(super) unacknowledged: u32,
}

/// The kernel: a socket to ask it by.
#[derive(Debug)]
pub(super) struct Source {
    socket: OwnedFd,
    /// The number of the last question.
    asked: u32,
    /// For an answer.
    room: Vec<u8>,
}

/// Questions about chosen ends, ready to be sent: what is asked first is answered soonest.
#[derive(Debug, Default)]
pub(super) struct Questions {
    bytes: Vec<u8>,
    ends: Vec<(SocketAddr, SocketAddr)>,
}

/// The kernel fills what it is given, up to 32 KiB.
const ROOM_BYTES: usize = 32 << 10;
/// An answer is made while it is read, or before; nothing has to be waited for.
const PATIENCE: Duration = Duration::from_secs(1);

impl Source {
    /// Fails where the kernel does not answer.
    pub(super) fn open() -> io::Result<Source> {
        let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::SOCK_DIAG))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
        let mut source = Source { socket, asked: 0, room: vec![0; ROOM_BYTES] };
        source.all(1, &mut Vec::new())?;
        Ok(source)
    }

    /// Adds the ends of all established connections with `port` at one of them.
    pub(super) fn all(&mut self, port: u16, into: &mut Vec<End>) -> io::Result<()> {
        self.asked = self.asked.wrapping_add(1);
        let asked = self.asked;
        send(&self.socket, &question_of_all(port, asked), SendFlags::empty())?;
        loop {
            for answer in answers(self.receive()?) {
                match answer? {
                    // What is left of a question that was given up.
                    (number, _) if number != asked => {}
                    (_, Answer::Done) => return Ok(()),
                    (_, Answer::Refused(error)) => return Err(error.into()),
                    (_, Answer::Socket(body)) => into.push(end(body).ok_or_else(cut_off)?),
                }
            }
        }
    }

    /// The ends that `questions` ask for, in their order; `None` for one that is not there, or no longer established.
    pub(super) fn look(&mut self, questions: &mut Questions) -> io::Result<Vec<Option<End>>> {
        if questions.ends.is_empty() {
            // The kernel takes an empty message for a mistake.
            return Ok(Vec::new());
        }
        let first = self.asked.wrapping_add(1);
        self.asked = self.asked.wrapping_add(questions.ends.len() as u32);
        questions.number_from(first);
        let mut found = vec![None; questions.ends.len()];
        // The kernel looks while it takes the message: it has seen everything when this returns.
        send(&self.socket, &questions.bytes, SendFlags::empty())?;
        let mut open = found.len();
        while open > 0 {
            for answer in answers(self.receive()?) {
                let (number, answer) = answer?;
                let Some(place) = found.get_mut(number.wrapping_sub(first) as usize) else { continue };
                open -= 1;
                match answer {
                    Answer::Socket(body) if body.get(1) == Some(&STATE_ESTABLISHED) => {
                        let asked = questions.ends[number.wrapping_sub(first) as usize];
                        // Where there is none, the kernel names the listener instead.
                        *place = end(body).filter(|end| (end.local, end.peer) == asked);
                    }
                    Answer::Refused(Errno::NOENT) | Answer::Socket(_) | Answer::Done => {}
                    Answer::Refused(error) => return Err(error.into()),
                }
            }
        }
        Ok(found)
    }

    fn receive(&mut self) -> io::Result<&[u8]> {
        let (filled, _) = retry_on_intr(|| recv(&self.socket, self.room.as_mut_slice(), RecvFlags::empty()))?;
        Ok(&self.room[..filled])
    }
}

impl Questions {
    /// Leaves none.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// Asks for the end at `local` of a connection with `peer`, after all that was asked for before.
    pub(super) fn ask(&mut self, local: SocketAddr, peer: SocketAddr) {
        let (family, of_local, of_peer) = match (local.ip(), peer.ip()) {
            (IpAddr::V4(local), IpAddr::V4(peer)) => {
                let wide = |ip: [u8; 4]| {
                    let mut bytes = [0; 16];
                    bytes[..4].copy_from_slice(&ip);
                    bytes
                };
                (FAMILY_IPV4, wide(local.octets()), wide(peer.octets()))
            }
            (local, peer) => {
                let octets = |ip: IpAddr| match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                    IpAddr::V6(ip) => ip.octets(),
                };
                (FAMILY_IPV6, octets(local), octets(peer))
            }
        };
        // inet_diag_req_v2: family, protocol, extensions, states; ports and addresses; any interface, any cookie.
        let mut body = vec![family, PROTOCOL_TCP, 0, 0];
        body.extend(u32::MAX.to_ne_bytes());
        body.extend(local.port().to_be_bytes());
        body.extend(peer.port().to_be_bytes());
        body.extend(of_local);
        body.extend(of_peer);
        body.extend(0_u32.to_ne_bytes());
        body.extend([0xff; 8]);
        message(SOCK_DIAG_BY_FAMILY, REQUEST, 0, &body, &mut self.bytes);
        self.ends.push((local, peer));
    }

    /// Answers carry the numbers of their questions.
    fn number_from(&mut self, first: u32) {
        let bytes_each = self.bytes.len() / self.ends.len().max(1);
        for (of, question) in (0..).zip(self.bytes.chunks_exact_mut(bytes_each.max(HEADER_BYTES))) {
            question[8..12].copy_from_slice(&first.wrapping_add(of).to_ne_bytes());
        }
    }
}

/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// `NLMSG_DONE`.
const DONE: u16 = 3;
/// `TCPDIAG_GETSOCK`: the older of two questions, because its dump has IPv4 and IPv6 in one walk over the kernel's table. The
/// newer has one family only, and a server that listens on both has its end of an IPv4 connection in the other.
const GETSOCK: u16 = 18;
/// The newer question. It finds an end of IPv4 also where it belongs to a server that listens on both.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// `TCP_ESTABLISHED`.
const STATE_ESTABLISHED: u8 = 1;
/// `IPPROTO_TCP`.
const PROTOCOL_TCP: u8 = 6;
/// `INET_DIAG_REQ_BYTECODE`.
const BYTECODE: u16 = 1;
/// Of `nlmsghdr`.
const HEADER_BYTES: usize = 16;
const FAMILY_IPV4: u8 = 2;
const FAMILY_IPV6: u8 = 10;

/// A dump of all established sockets with `port` at either end, as its bytes.
fn question_of_all(port: u16, number: u32) -> Vec<u8> {
    // A program for the kernel: operation, how far to go on if it holds, how far if not; an operand is an operation of
    // its own. To go to the very end is to accept, 4 bytes beyond it to reject.
    const JUMP: u8 = 1;
    let [source_from, source_to, peer_from, peer_to] = [2_u8, 3, 4, 5];
    let operations: [(u8, u8, u16, bool); 5] = [
        (source_from, 8, 20, true),
        (source_to, 8, 12, true),
        (JUMP, 4, 20, false),
        (peer_from, 8, 20, true),
        (peer_to, 8, 12, true),
    ];
    let mut program = Vec::new();
    for (operation, yes, no, has_operand) in operations {
        program.extend([operation, yes]);
        program.extend(no.to_ne_bytes());
        if has_operand {
            program.extend([0, 0]);
            program.extend(port.to_ne_bytes());
        }
    }
    // inet_diag_req: family, lengths and extensions, an address that is not looked at, states, and one more number.
    let mut body = vec![0; 4 + 48];
    body.extend((1_u32 << STATE_ESTABLISHED).to_ne_bytes());
    body.extend(0_u32.to_ne_bytes());
    body.extend((4 + program.len() as u16).to_ne_bytes());
    body.extend(BYTECODE.to_ne_bytes());
    body.extend(program);
    let mut bytes = Vec::with_capacity(HEADER_BYTES + body.len());
    message(GETSOCK, DUMP, number, &body, &mut bytes);
    bytes
}

/// Adds an `nlmsghdr` and what it heads.
fn message(kind: u16, flags: u16, number: u32, body: &[u8], into: &mut Vec<u8>) {
    into.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    into.extend(kind.to_ne_bytes());
    into.extend(flags.to_ne_bytes());
    into.extend(number.to_ne_bytes());
    into.extend(0_u32.to_ne_bytes());
    into.extend(body);
}

/// A message of the kernel.
#[derive(Debug, PartialEq)]
enum Answer<'a> {
    /// An `inet_diag_msg`.
    Socket(&'a [u8]),
    Refused(Errno),
    /// There is no more.
    Done,
}

/// What one read gave, each message with the number of its question.
fn answers(mut bytes: &[u8]) -> impl Iterator<Item = io::Result<(u32, Answer<'_>)>> {
    iter::from_fn(move || {
        let all = mem::take(&mut bytes);
        (!all.is_empty()).then(|| {
            let length = u32_at(all, 0).ok_or_else(cut_off)? as usize;
            let kind = u16::from_ne_bytes(array_at(all, 4).ok_or_else(cut_off)?);
            let number = u32_at(all, 8).ok_or_else(cut_off)?;
            let body = all.get(HEADER_BYTES..length).ok_or_else(cut_off)?;
            // Messages begin at multiples of four.
            bytes = all.get(length.next_multiple_of(4)..).unwrap_or_default();
            let answer = match kind {
                DONE => Answer::Done,
                ERROR => {
                    let code = u32_at(body, 0).ok_or_else(cut_off)?.cast_signed();
                    Answer::Refused(Errno::from_raw_os_error(code.wrapping_neg()))
                }
                _ => Answer::Socket(body),
            };
            Ok((number, answer))
        })
    })
}

fn cut_off() -> io::Error {
    io::Error::other("the kernel's answer is cut off")
}

/// An `inet_diag_msg`.
fn end(body: &[u8]) -> Option<End> {
    let address = |port: usize, ip: usize| {
        let ip = match *body.first()? {
            FAMILY_IPV4 => IpAddr::from(array_at::<4>(body, ip)?),
            FAMILY_IPV6 => IpAddr::from(array_at::<16>(body, ip)?),
            _ => return None,
        };
        Some(SocketAddr::new(ip.to_canonical(), u16::from_be_bytes(array_at(body, port)?)))
    };
    let (local, peer) = (address(4, 8)?, address(6, 24)?);
    Some(End { local, peer, unread: u32_at(body, 56)?, unacknowledged: u32_at(body, 60)? })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_ne_bytes)
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    /// A connection to `host` with three bytes unread at the server's end; a client, and the server's end.
    fn connection(host: &str) -> io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind((host, 0))?;
        let to = match host {
            "::" => "127.0.0.1",
            host => host,
        };
        let mut client = TcpStream::connect((to, listener.local_addr()?.port()))?;
        let (server, _) = listener.accept()?;
        client.write_all(b"abc")?;
        // It has arrived once it can be looked at.
        server.peek(&mut [0; 3])?;
        Ok((client, server))
    }

    /// What `source` says of both ends, the server's first: among all with that port, and asked for.
    fn both(source: &mut Source, client: &TcpStream) -> [(End, End); 2] {
        let (local, peer) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let mut ends = Vec::new();
        source.all(peer.port(), &mut ends).unwrap();
        assert_eq!(ends.len(), 2, "{ends:?}");
        let servers = ends.iter().position(|end| end.local.port() == peer.port()).unwrap();
        let mut questions = Questions::default();
        questions.ask(peer, local);
        questions.ask(local, peer);
        let looked = source.look(&mut questions).unwrap();
        [(ends[servers], ends[1 - servers]), (looked[0].unwrap(), looked[1].unwrap())]
    }

    #[test]
    fn both_ends_are_found_with_what_lies_unread() {
        // Not every machine lets us ask.
        let Ok(mut source) = Source::open() else { return };
        for host in ["127.0.0.1", "::1", "::"] {
            // Nor has each IPv6.
            let Ok((client, mut server)) = connection(host) else { continue };
            for (at_server, at_client) in both(&mut source, &client) {
                assert_eq!((at_server.unread, at_client.unread), (3, 0), "{host}");
                assert_eq!(at_client.local, client.local_addr().unwrap());
                assert_eq!((at_server.local, at_server.peer), (at_client.peer, at_client.local));
                assert!(at_server.local.ip().is_loopback());
            }
            server.read_exact(&mut [0; 3]).unwrap();
            for (at_server, _) in both(&mut source, &client) {
                assert_eq!(at_server.unread, 0, "{host}");
            }
        }
    }

    #[test]
    fn more_connections_than_fit_in_one_answer_are_all_there() {
        let Ok(mut source) = Source::open() else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let pair = |_| Some((TcpStream::connect(to).ok()?, listener.accept().ok()?));
        let pairs: Vec<_> = (0..300).map_while(pair).collect();
        let mut ends = Vec::new();
        source.all(to.port(), &mut ends).unwrap();
        assert_eq!(ends.len(), 2 * pairs.len());
    }

    #[test]
    fn an_end_that_is_gone_is_missing_and_the_others_are_answered() {
        let Ok(mut source) = Source::open() else { return };
        // The listener stays, and is not taken for the end that is asked for.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let client = TcpStream::connect(to).unwrap();
        let here = client.local_addr().unwrap();
        let nobody = SocketAddr::from(([127, 0, 0, 2], 1));
        let mut questions = Questions::default();
        for (local, peer) in [(to, nobody), (here, to), (nobody, here), (to, here)] {
            questions.ask(local, peer);
        }
        let found = source.look(&mut questions).unwrap();
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false, true]);
        // Asked again, the same questions have numbers of their own; once cleared there are none.
        assert_eq!(source.look(&mut questions).unwrap(), found);
        questions.clear();
        assert_eq!(source.look(&mut questions).unwrap(), []);
    }

    #[test]
    fn a_refusal_is_told_with_its_number_and_a_cut_answer_is_an_error() {
        let mut bytes = Vec::new();
        message(ERROR, 0, 7, &(-2_i32).to_ne_bytes(), &mut bytes);
        message(DONE, 0, 8, &[], &mut bytes);
        let said: Vec<_> = answers(&bytes).map(Result::unwrap).collect();
        assert_eq!(said, [(7, Answer::Refused(Errno::NOENT)), (8, Answer::Done)]);
        assert!(answers(&bytes[..18]).any(|answer| answer.is_err()));
    }
}
