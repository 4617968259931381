//! The ends of TCP connections on this machine, with the bytes that lie in their queues, and who is connected by Unix sockets.
//!
//! The kernel is asked by netlink, in two ways: for chosen ends, which it finds by their addresses, and for all established ends, for
//! which it walks its whole table. Source: Linux `sock_diag(7)`.

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags};
use netlink_packet_sock_diag::unix::nlas::UnixDiagName;
use netlink_packet_sock_diag::unix::{self, UnixRequest};
use netlink_packet_sock_diag::{
    AF_INET, AF_INET6, IPPROTO_TCP, SockDiagMessage, TCP_ESTABLISHED, TCP_LISTEN, TCP_SYN_SENT,
};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A socket, as one end of a connection. Addresses of IPv4 within IPv6 stand as IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sampler) struct Socket {
    pub(in crate::sampler) local: SocketAddr,
    pub(in crate::sampler) peer: SocketAddr,
    /// Its number, as in `/proc/PID/fd`.
    pub(in crate::sampler) inode: u32,
    pub(in crate::sampler) is_listener: bool,
    /// Whether it wants to be connected, and no answer came yet.
    pub(in crate::sampler) is_connecting: bool,
    /// Bytes that have arrived and were not read; of a listener connections that were not accepted.
    pub(in crate::sampler) unread: u32,
    /// Bytes that were written and could not be sent yet. This and what follows is told by [`Source::sockets`] alone.
    pub(in crate::sampler) unsent: u32,
    /// How many go into one segment.
    pub(in crate::sampler) segment: u32,
    /// Whether the last data was sent, not received; `None` where both were in the same tick of the kernel's clock.
    pub(in crate::sampler) sent_last: Option<bool>,
    /// How long ago the last data was sent, in milliseconds.
    pub(in crate::sampler) sent_ms_ago: u32,
    /// Segments that were sent again, since the connection began.
    pub(in crate::sampler) sent_again: u32,
    /// Time in which the other end took no more, since then.
    pub(in crate::sampler) window_closed_us: u64,
}

/// A Unix socket that is connected or listens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::sampler) struct UnixSocket {
    pub(in crate::sampler) inode: u32,
    pub(in crate::sampler) is_listener: bool,
    /// The number of the other end; 0 where it was not accepted yet.
    pub(in crate::sampler) peer: u32,
    /// What it is bound to; of one that was accepted, what its listener is bound to.
    pub(in crate::sampler) name: Option<Vec<u8>>,
}

/// The kernel: a socket to ask it by.
#[derive(Debug)]
pub(in crate::sampler) struct Source {
    socket: OwnedFd,
    /// For an answer.
    room: Vec<u8>,
}

/// Questions about chosen ends, ready to be sent: what is asked first is answered soonest.
#[derive(Debug)]
pub(super) struct Questions {
    bytes: Vec<u8>,
    ends: Vec<(SocketAddr, SocketAddr)>,
}

/// The kernel fills what it is given, up to 32 KiB.
const ROOM_BYTES: usize = 32 << 10;
/// An answer is made while it is read, or before; nothing has to be waited for.
const TIMEOUT: Duration = Duration::from_secs(1);

impl Source {
    /// Fails where the kernel does not answer.
    pub(in crate::sampler) fn open() -> io::Result<Source> {
        let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
        let socket = socket_with(AddressFamily::NETLINK, kind, flags, Some(netlink::SOCK_DIAG))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(TIMEOUT))?;
        let mut source = Source { socket, room: vec![0; ROOM_BYTES] };
        source.all(&BTreeSet::new())?;
        Ok(source)
    }

    /// The ends of all established connections with one of `ports` at one of them.
    pub(super) fn all(&mut self, ports: &BTreeSet<u16>) -> io::Result<Vec<Socket>> {
        let mut found = self.dump(StateFlags::ESTABLISHED, ExtensionFlags::empty())?;
        found.retain(|end| [end.local, end.peer].iter().any(|address| ports.contains(&address.port())));
        Ok(found)
    }

    /// All sockets that are connected, want to be or listen, with what the kernel counts of each.
    pub(in crate::sampler) fn sockets(&mut self) -> io::Result<Vec<Socket>> {
        let connected = StateFlags::ESTABLISHED | StateFlags::CLOSE_WAIT;
        self.dump(connected | StateFlags::LISTEN | StateFlags::SYN_SENT, ExtensionFlags::INFO)
    }

    /// All Unix sockets that are connected or listen.
    pub(in crate::sampler) fn unix(&mut self) -> io::Result<Vec<UnixSocket>> {
        let request = UnixRequest {
            state_flags: unix::StateFlags::all(),
            inode: 0,
            show_flags: unix::ShowFlags::NAME | unix::ShowFlags::PEER,
            cookie: [0; 8],
        };
        let mut found = Vec::new();
        self.answers(SockDiagMessage::UnixRequest(request), |answer| {
            if let SockDiagMessage::UnixResponse(of) = answer {
                let name = of.name().map(|name| match name {
                    UnixDiagName::Pathname(path) => path.as_encoded_bytes().to_vec(),
                    UnixDiagName::Abstract(name) => [b"\0", name.as_slice()].concat(),
                });
                let (inode, is_listener) = (of.header.inode, of.header.state == TCP_LISTEN);
                found.push(UnixSocket { inode, is_listener, peer: of.peer().unwrap_or(0), name });
            }
        })?;
        Ok(found)
    }

    /// All sockets in these states.
    fn dump(&mut self, states: StateFlags, extensions: ExtensionFlags) -> io::Result<Vec<Socket>> {
        let mut found = Vec::new();
        // A server that listens on both families has its end of an IPv4 connection in the other.
        for (family, id) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
            let request =
                InetRequest { extensions: extensions.clone(), ..request(family, states.clone(), id) };
            self.answers(SockDiagMessage::InetRequest(request), |answer| {
                if let SockDiagMessage::InetResponse(of) = answer {
                    found.push(Socket::of(of));
                }
            })?;
        }
        Ok(found)
    }

    /// Calls `take` with each answer to a request for a list.
    fn answers(
        &mut self,
        request: SockDiagMessage,
        mut take: impl FnMut(&SockDiagMessage),
    ) -> io::Result<()> {
        let mut question = Vec::new();
        append(&mut question, 0, NLM_F_DUMP, request);
        send(&self.socket, &question, SendFlags::empty())?;
        loop {
            for answer in self.receive()? {
                match answer.payload {
                    NetlinkPayload::Done(_) => return Ok(()),
                    NetlinkPayload::Error(error) => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(answer) => take(&answer),
                    _ => {}
                }
            }
        }
    }

    /// The ends that `questions` ask for, in their order; `None` for one that is not there, or no longer established.
    pub(super) fn sample(&mut self, questions: &Questions) -> io::Result<Vec<Option<Socket>>> {
        let mut found = vec![None; questions.ends.len()];
        if found.is_empty() {
            // The kernel takes an empty message for a mistake.
            return Ok(found);
        }
        // The kernel samples while it takes the message: it has seen everything when this returns.
        send(&self.socket, &questions.bytes, SendFlags::empty())?;
        let mut open = found.len();
        while open > 0 {
            for answer in self.receive()? {
                let number = answer.header.sequence_number as usize;
                open -= 1;
                match answer.payload {
                    NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(of))
                        if of.header.state == TCP_ESTABLISHED =>
                    {
                        // Where there is none, the kernel names the listener instead.
                        let end = Some(Socket::of(&of));
                        found[number] = end.filter(|end| (end.local, end.peer) == questions.ends[number]);
                    }
                    NetlinkPayload::Error(error)
                        if error.to_io().raw_os_error() != Some(Errno::NOENT.raw_os_error()) =>
                    {
                        return Err(error.to_io());
                    }
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    fn receive(&mut self) -> io::Result<Vec<NetlinkMessage<SockDiagMessage>>> {
        let (filled, _) = retry_on_intr(|| recv(&self.socket, self.room.as_mut_slice(), RecvFlags::empty()))?;
        let mut rest = &self.room[..filled];
        let mut messages = Vec::new();
        while !rest.is_empty() {
            let message = NetlinkMessage::deserialize(rest).map_err(io::Error::other)?;
            // Messages begin at multiples of four.
            rest = rest.get((message.header.length as usize).next_multiple_of(4)..).unwrap_or_default();
            messages.push(message);
        }
        Ok(messages)
    }
}

impl Questions {
    /// Asks in this order for ends by their own address and that of their peer.
    pub(super) fn about(ends: impl IntoIterator<Item = (SocketAddr, SocketAddr)>) -> Questions {
        let (mut bytes, ends) = (Vec::new(), Vec::from_iter(ends));
        for (number, (local, peer)) in ends.iter().enumerate() {
            // The family IPv4 finds an end also where it belongs to a server that listens on both.
            let both_v4 = local.is_ipv4() && peer.is_ipv4();
            let address = |ip: IpAddr| match ip {
                IpAddr::V4(ip) if !both_v4 => ip.to_ipv6_mapped().into(),
                ip => ip,
            };
            let id = SocketId {
                source_port: local.port(),
                destination_port: peer.port(),
                source_address: address(local.ip()),
                destination_address: address(peer.ip()),
                interface_id: 0,
                // Any.
                cookie: [0xff; 8],
            };
            let family = if both_v4 { AF_INET } else { AF_INET6 };
            let request = request(family, StateFlags::all(), id);
            append(&mut bytes, number, 0, SockDiagMessage::InetRequest(request));
        }
        Questions { bytes, ends }
    }
}

impl Socket {
    /// Offsets are those of `struct tcp_info` in Linux `tcp.h`. What an old kernel does not tell is 0.
    fn of(response: &InetResponse) -> Socket {
        let info = response.nlas.iter().find_map(|of| match of {
            Nla::TcpInfo(bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        let number = |offset: usize| {
            let bytes = info?.get(offset..offset + 4)?;
            Some(u32::from_ne_bytes(bytes.try_into().ok()?))
        };
        let wide = |offset: usize| {
            let bytes = info.and_then(|info| info.get(offset..offset + 8)?.try_into().ok());
            bytes.map_or(0, u64::from_ne_bytes)
        };
        let since = [44, 52].map(|offset| number(offset).unwrap_or_default());
        let header = &response.header;
        let id = &header.socket_id;
        Socket {
            local: SocketAddr::new(id.source_address.to_canonical(), id.source_port),
            peer: SocketAddr::new(id.destination_address.to_canonical(), id.destination_port),
            inode: header.inode,
            is_listener: header.state == TCP_LISTEN,
            is_connecting: header.state == TCP_SYN_SENT,
            unread: header.recv_queue,
            unsent: number(144).unwrap_or_default(),
            segment: number(16).unwrap_or_default(),
            sent_last: (since[0] != since[1]).then_some(since[0] < since[1]),
            sent_ms_ago: since[0],
            sent_again: number(100).unwrap_or_default(),
            window_closed_us: wide(176),
        }
    }
}

#[cfg(test)]
impl Socket {
    /// One end of a connection on which nothing was sent.
    pub(in crate::sampler) fn between(local: SocketAddr, peer: SocketAddr) -> Socket {
        Socket {
            local,
            peer,
            inode: 1,
            is_listener: false,
            is_connecting: false,
            unread: 0,
            unsent: 0,
            segment: 1448,
            sent_last: None,
            sent_ms_ago: 0,
            sent_again: 0,
            window_closed_us: 0,
        }
    }
}

fn request(family: u8, states: StateFlags, socket_id: SocketId) -> InetRequest {
    InetRequest { family, protocol: IPPROTO_TCP, extensions: ExtensionFlags::empty(), states, socket_id }
}

/// Adds a message, whose answer will have its `number`.
fn append(bytes: &mut Vec<u8>, number: usize, flags: u16, request: SockDiagMessage) {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | flags;
    header.sequence_number = number as u32;
    let mut message = NetlinkMessage::new(header, request.into());
    message.finalize();
    let start = bytes.len();
    bytes.resize(start + message.buffer_len(), 0);
    message.serialize(&mut bytes[start..]);
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
        // It has arrived once it can be sampled.
        server.peek(&mut [0; 3])?;
        Ok((client, server))
    }

    /// What `source` says of both ends, the server's first: among all with that port, and asked for.
    fn both(source: &mut Source, client: &TcpStream) -> [(Socket, Socket); 2] {
        let (local, peer) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
        let ends = source.all(&[peer.port()].into()).unwrap();
        assert_eq!(ends.len(), 2, "{ends:?}");
        let servers = ends.iter().position(|end| end.local.port() == peer.port()).unwrap();
        let sampled = source.sample(&Questions::about([(peer, local), (local, peer)])).unwrap();
        [(ends[servers], ends[1 - servers]), (sampled[0].unwrap(), sampled[1].unwrap())]
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
        let ends = source.all(&[to.port()].into()).unwrap();
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
        let ends = [(to, nobody), (here, to), (nobody, here), (to, here)];
        let found = source.sample(&Questions::about(ends)).unwrap();
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false, true]);
        assert_eq!(source.sample(&Questions::about([])).unwrap(), []);
    }
}
