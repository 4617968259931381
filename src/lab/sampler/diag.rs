//! The ends of TCP connections on this machine, with the bytes that lie in their queues.
//!
//! The kernel is asked by netlink: one dump of all established sockets whose port, at either end, is the one wanted. Where it
//! refuses, `/proc/net/tcp` and `tcp6` say the same at several times the price. Sources: Linux `sock_diag(7)` and
//! `include/uapi/linux/inet_diag.h`; `Documentation/networking/proc_net_tcp.rst`.

use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use std::{fs, io};

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

/// Whom to ask.
#[derive(Debug)]
pub(super) enum Source {
    /// The kernel: the socket, the number of the last question, room for its answers.
    Netlink { socket: OwnedFd, asked: u32, room: Vec<u8> },
    /// The files in `/proc/net`.
    Files,
}

/// The kernel fills what it is given, up to 32 KiB.
const ROOM_BYTES: usize = 32 << 10;
/// A dump is made while it is read; nothing has to be waited for.
const PATIENCE: Duration = Duration::from_secs(1);

impl Source {
    /// The first that answers.
    pub(super) fn open() -> io::Result<Source> {
        let netlink = || {
            let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
            let socket = socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::SOCK_DIAG))?;
            set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
            Ok(Source::Netlink { socket, asked: 0, room: vec![0; ROOM_BYTES] })
        };
        let answers = |mut source: Source| source.ends(1, &mut Vec::new()).map(|()| source);
        netlink().and_then(answers).or_else(|error: io::Error| {
            log::debug!("sampler sockets: netlink: {error}");
            answers(Source::Files)
        })
    }

    /// Adds the ends of all established connections with `port` at one of them.
    pub(super) fn ends(&mut self, port: u16, into: &mut Vec<End>) -> io::Result<()> {
        match self {
            Source::Netlink { socket, asked, room } => {
                *asked = asked.wrapping_add(1);
                send(&*socket, &question(port, *asked), SendFlags::empty())?;
                loop {
                    let (filled, _) =
                        retry_on_intr(|| recv(&*socket, room.as_mut_slice(), RecvFlags::empty()))?;
                    if answer(&room[..filled], *asked, into)? {
                        return Ok(());
                    }
                }
            }
            Source::Files => {
                // A machine without IPv6 has no second file.
                let files = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
                if let [Err(error), Err(_)] = files {
                    return Err(error);
                }
                let texts = files.into_iter().flatten();
                texts.for_each(|text| into.extend(text.lines().filter_map(|line| end_of_line(line, port))));
                Ok(())
            }
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
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// `1 << TCP_ESTABLISHED`.
const ESTABLISHED: u32 = 1 << 1;
/// `INET_DIAG_REQ_BYTECODE`.
const BYTECODE: u16 = 1;
/// Of `nlmsghdr`.
const HEADER_BYTES: usize = 16;
const FAMILY_IPV4: u8 = 2;
const FAMILY_IPV6: u8 = 10;

/// A dump of all established sockets with `port` at either end, as its bytes.
fn question(port: u16, number: u32) -> Vec<u8> {
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
    body.extend(ESTABLISHED.to_ne_bytes());
    body.extend(0_u32.to_ne_bytes());
    body.extend((4 + program.len() as u16).to_ne_bytes());
    body.extend(BYTECODE.to_ne_bytes());
    body.extend(program);
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend(GETSOCK.to_ne_bytes());
    message.extend(DUMP.to_ne_bytes());
    message.extend(number.to_ne_bytes());
    message.extend(0_u32.to_ne_bytes());
    message.extend(body);
    message
}

/// Takes in what one read gave; whether it was the last of the answer to question `number`.
fn answer(mut bytes: &[u8], number: u32, into: &mut Vec<End>) -> io::Result<bool> {
    let malformed = || io::Error::other("the kernel's answer is cut off");
    while !bytes.is_empty() {
        let length = u32_at(bytes, 0).ok_or_else(malformed)? as usize;
        let kind = u16::from_ne_bytes(array_at(bytes, 4).ok_or_else(malformed)?);
        let of = u32_at(bytes, 8).ok_or_else(malformed)?;
        let body = bytes.get(HEADER_BYTES..length).ok_or_else(malformed)?;
        match kind {
            // What is left of a question that was given up.
            _ if of != number => {}
            DONE => return Ok(true),
            ERROR => {
                let code = u32_at(body, 0).ok_or_else(malformed)?.cast_signed();
                return Err(Errno::from_raw_os_error(code.wrapping_neg()).into());
            }
            _ => into.push(end(body).ok_or_else(malformed)?),
        }
        // Messages begin at multiples of four.
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
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

/// A line of `/proc/net/tcp` or `tcp6`: `0: 0100007F:1F90 0100007F:A2C4 01 00000000:0000000A …`.
fn end_of_line(line: &str, port: u16) -> Option<End> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, peer) = (address(words.next()?)?, address(words.next()?)?);
    if words.next()? != "01" || (local.port() != port && peer.port() != port) {
        return None;
    }
    let (unacknowledged, unread) = words.next()?.split_once(':')?;
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    Some(End { local, peer, unread: number(unread)?, unacknowledged: number(unacknowledged)? })
}

/// `0100007F:1F90`: the address as the machine's own numbers of 32 bits, the port as one of 16.
fn address(word: &str) -> Option<SocketAddr> {
    let (ip, port) = word.split_once(':')?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (index, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(8 * index)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), u16::from_str_radix(port, 16).ok()?))
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

    /// What `source` says of both ends, the server's first.
    fn both(source: &mut Source, client: &TcpStream) -> (End, End) {
        let port = client.peer_addr().unwrap().port();
        let mut ends = Vec::new();
        source.ends(port, &mut ends).unwrap();
        assert_eq!(ends.len(), 2, "{ends:?}");
        let servers = ends.iter().position(|end| end.local.port() == port).unwrap();
        (ends[servers], ends[1 - servers])
    }

    #[test]
    fn both_ends_are_found_with_what_lies_unread() {
        for mut source in [Source::open().unwrap(), Source::Files] {
            for host in ["127.0.0.1", "::1", "::"] {
                // Not every machine has IPv6.
                let Ok((client, mut server)) = connection(host) else { continue };
                let (at_server, at_client) = both(&mut source, &client);
                assert_eq!((at_server.unread, at_client.unread), (3, 0), "{host} {source:?}");
                assert_eq!(at_client.local, client.local_addr().unwrap());
                assert_eq!((at_server.local, at_server.peer), (at_client.peer, at_client.local));
                assert!(at_server.local.ip().is_loopback());
                server.read_exact(&mut [0; 3]).unwrap();
                let (at_server, _) = both(&mut source, &client);
                assert_eq!(at_server.unread, 0, "{host}");
            }
        }
    }

    #[test]
    fn more_connections_than_fit_in_one_answer_are_all_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let pair = |_| Some((TcpStream::connect(to).ok()?, listener.accept().ok()?));
        let pairs: Vec<_> = (0..300).map_while(pair).collect();
        let mut ends = Vec::new();
        Source::open().unwrap().ends(to.port(), &mut ends).unwrap();
        assert_eq!(ends.len(), 2 * pairs.len());
    }

    #[test]
    fn a_refusal_is_an_error_and_a_cut_answer_too() {
        let mut message = Vec::new();
        message.extend(20_u32.to_ne_bytes());
        message.extend(ERROR.to_ne_bytes());
        message.extend([0; 2]);
        message.extend(7_u32.to_ne_bytes());
        message.extend([0; 4]);
        message.extend((-2_i32).to_ne_bytes());
        let said =
            |bytes: &[u8], number| answer(bytes, number, &mut Vec::new()).map_err(|error| error.kind());
        assert_eq!(said(&message, 7), Err(io::ErrorKind::NotFound));
        assert_eq!(said(&message, 8), Ok(false), "somebody else's");
        assert_eq!(said(&message[..18], 7), Err(io::ErrorKind::Other));
    }
}
