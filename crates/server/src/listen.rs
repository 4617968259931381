//! Where a server listens: addresses, names and Unix sockets, and the sockets bound to them.

use kv::Error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::fmt::{self, Display};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tokio::net;

/// What a Unix socket's address begins with.
const UNIX: &str = "unix:";
/// Who may use a Unix socket: its owner and its group.
const UNIX_MODE: u32 = 0o660;
/// Connections that wait to be accepted.
pub(super) const BACKLOG: i32 = 4096;

/// A place to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Port 0 for any free one.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Where to listen, as written: `127.0.0.1:8080`, `localhost:8080`, `unix:/run/weir.sock`. A name stands for all its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    text: String,
    /// Where a name was given.
    pub(super) name: Option<String>,
    addresses: Vec<Address>,
}

impl Address {
    /// Whether only this machine reaches it.
    pub(super) fn is_local(&self) -> bool {
        match self {
            Address::Tcp(address) => address.ip().is_loopback(),
            Address::Unix(_) => true,
        }
    }
}

impl Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(out),
            Address::Unix(path) => write!(out, "{UNIX}{}", path.display()),
        }
    }
}

impl Listen {
    /// Whether only this machine reaches it.
    pub fn is_local(&self) -> bool {
        self.addresses.iter().all(Address::is_local)
    }
}

impl Display for Listen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl FromStr for Listen {
    type Err = Error;

    /// Looks a name up.
    fn from_str(text: &str) -> Result<Listen, Error> {
        // Of a list with blanks.
        let text = text.trim();
        let listen = |name, addresses| Ok(Listen { text: text.to_owned(), name, addresses });
        if let Some(path) = text.strip_prefix(UNIX) {
            if path.is_empty() {
                return Err(Error::input("it has no path").hint("write it as in unix:/run/weir.sock"));
            }
            return listen(None, vec![Address::Unix(path.into())]);
        }
        if let Ok(address) = text.parse() {
            return listen(None, vec![Address::Tcp(address)]);
        }
        let name = text.rsplit_once(':').map(|(name, port)| (name, port.parse::<u16>()));
        let (name, port) = match name {
            Some((name, Ok(port))) if !name.is_empty() && !name.contains(['/', ':', '[']) => (name, port),
            _ => {
                let hint = "write an address or a name with a port, as in 127.0.0.1:8080, or unix:PATH";
                return Err(Error::input("it is no address with a port").hint(hint));
            }
        };
        let found = (name, port).to_socket_addrs();
        let found = found.map_err(|error| Error::input(format_args!("{name} has no address: {error}")))?;
        let mut addresses: Vec<Address> = Vec::new();
        for address in found.map(Address::Tcp) {
            // With any free port each would have another.
            if !addresses.contains(&address) && (port != 0 || addresses.is_empty()) {
                addresses.push(address);
            }
        }
        listen(Some(name.to_owned()), addresses)
    }
}

/// The sockets of one address, one for each worker.
pub(super) struct Bound {
    pub(super) address: Address,
    pub(super) sockets: Vec<OwnedFd>,
    /// Of a Unix socket that was made here.
    pub(super) file: Option<SocketFile>,
    is_passed: bool,
}

/// A listening socket that another process made, as a service manager does.
#[derive(Debug)]
pub struct PassedSocket {
    /// Where it listens.
    pub address: Address,
    socket: OwnedFd,
}

impl PassedSocket {
    /// A socket of an IP address.
    pub fn tcp(socket: TcpListener) -> io::Result<PassedSocket> {
        socket.set_nonblocking(true)?;
        Ok(PassedSocket { address: Address::Tcp(socket.local_addr()?), socket: socket.into() })
    }

    /// A socket with a path.
    pub fn unix(socket: UnixListener) -> io::Result<PassedSocket> {
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let path = address.as_pathname().ok_or(io::ErrorKind::Unsupported)?;
        Ok(PassedSocket { address: Address::Unix(path.to_owned()), socket: socket.into() })
    }

    /// All workers accept from it.
    fn share(self, workers: usize) -> io::Result<Bound> {
        let sockets = copies(&self.socket, workers)?;
        Ok(Bound { address: self.address, sockets, file: None, is_passed: true })
    }
}

/// The path of a Unix socket. It is removed with this, if it is still that socket's.
pub(super) struct SocketFile {
    path: PathBuf,
    id: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|id| id == self.id) {
            // Nobody is left to hear that it failed; the next start removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds `workers` sockets to each address of `listen`, or takes the one that was `passed` for it. They do not listen yet.
pub(super) fn bind(
    listen: &Listen,
    workers: usize,
    passed: &mut Vec<PassedSocket>,
) -> io::Result<Vec<Bound>> {
    let mut bound = Vec::new();
    let mut unavailable = None;
    for address in &listen.addresses {
        let of_address = passed.iter().position(|passed| passed.address == *address);
        let made = match address {
            _ if let Some(index) = of_address => passed.swap_remove(index).share(workers),
            Address::Tcp(address) => bind_tcp(*address, workers),
            Address::Unix(path) => bind_unix(path, workers),
        };
        match made {
            Ok(made) => bound.push(made),
            // A name may have an address of a protocol that this machine does not speak.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable && listen.name.is_some() => {
                unavailable = Some(cannot_listen(address, &error));
            }
            Err(error) => return Err(cannot_listen(address, &error)),
        }
    }
    match unavailable {
        Some(error) if bound.is_empty() => Err(error),
        _ => Ok(bound),
    }
}

impl Bound {
    /// Begins to listen. Clients that come earlier are refused.
    pub(super) fn listen(&self) -> io::Result<()> {
        let listen = || {
            if let (Address::Tcp(address), 2.., false) = (&self.address, self.sockets.len(), self.is_passed) {
                // They share the port with any process. Another may listen there since they were bound, but not when this is
                // bound.
                drop(bind_tcp_once(*address, false)?);
            }
            if let Some(file) = &self.file
                && identity(&file.path).ok() != Some(file.id)
            {
                let what = "another process took its place meanwhile";
                return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
            }
            self.sockets.iter().try_for_each(|socket| rustix::net::listen(socket, BACKLOG))?;
            Ok(())
        };
        listen().map_err(|error| cannot_listen(&self.address, &error))
    }
}

fn cannot_listen(address: &Address, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
}

/// One socket per worker, all on the same port.
fn bind_tcp(address: SocketAddr, workers: usize) -> io::Result<Bound> {
    let alone = bind_tcp_once(address, false)?;
    let address = alone.local_addr()?;
    let sockets = match workers {
        1 => vec![alone.into()],
        _ => {
            drop(alone);
            let bind = |_| bind_tcp_once(address, true).map(OwnedFd::from);
            (0..workers).map(bind).collect::<io::Result<_>>()?
        }
    };
    Ok(Bound { address: Address::Tcp(address), sockets, file: None, is_passed: false })
}

/// Fails where another process listens, unless both share the port.
fn bind_tcp_once(address: SocketAddr, shares_port: bool) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, shares_port)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket.into())
}

/// One socket that all workers accept from. One that a killed server has left at the path is removed.
fn bind_unix(path: &Path, workers: usize) -> io::Result<Bound> {
    remove_stale(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(path)?)?;
    let file = SocketFile { path: path.to_owned(), id: identity(path)? };
    // Before it listens: until then nobody can connect.
    fs::set_permissions(path, fs::Permissions::from_mode(UNIX_MODE))?;
    let sockets = copies(&socket, workers)?;
    Ok(Bound { address: Address::Unix(path.to_owned()), sockets, file: Some(file), is_passed: false })
}

/// A socket for each worker; together they are one.
fn copies(socket: &OwnedFd, workers: usize) -> io::Result<Vec<OwnedFd>> {
    (0..workers).map(|_| socket.try_clone()).collect()
}

/// Removes a socket that nobody listens on.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = match fs::symlink_metadata(path) {
        Ok(found) => found.file_type().is_socket(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !is_socket {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
        Err(error) => Err(error),
    }
}

/// Which file is at the path.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// An accepted connection.
pub(super) enum Stream {
    Tcp(net::TcpStream),
    Unix(net::UnixStream),
}

/// A listening socket of a worker's runtime.
pub(super) enum Acceptor {
    Tcp(net::TcpListener),
    Unix(net::UnixListener),
}

impl Acceptor {
    pub(super) fn new(socket: OwnedFd) -> io::Result<Acceptor> {
        Ok(match rustix::net::getsockname(&socket)?.address_family() {
            AddressFamily::UNIX => Acceptor::Unix(net::UnixListener::from_std(socket.into())?),
            _ => Acceptor::Tcp(net::TcpListener::from_std(socket.into())?),
        })
    }

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Acceptor::Tcp(listener) => Stream::Tcp(listener.accept().await?.0),
            Acceptor::Unix(listener) => Stream::Unix(listener.accept().await?.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The addresses and whether they are local, or the failure.
    fn check(text: &str, expected: &str) {
        let got = match text.parse::<Listen>() {
            Ok(listen) => {
                let addresses: Vec<String> = listen.addresses.iter().map(Address::to_string).collect();
                assert_eq!(listen.to_string(), text);
                format!("{} {}", addresses.join(" "), if listen.is_local() { "local" } else { "remote" })
            }
            Err(error) => error.to_string(),
        };
        assert!(got.starts_with(expected), "{text}: {got}");
    }

    #[test]
    fn an_address_is_read_and_a_name_looked_up() {
        check("127.0.0.1:80", "127.0.0.1:80 local");
        check("[::1]:0", "[::1]:0 local");
        check("0.0.0.0:80", "0.0.0.0:80 remote");
        check("unix:/run/a b", "unix:/run/a b local");
        check("unix:", "it has no path");
        for wrong in ["", "80", ":80", "localhost", "localhost:", "localhost:65536", "http://localhost:80"] {
            check(wrong, "it is no address with a port; hint: write an address");
        }
        check("no.such.name.invalid:80", "no.such.name.invalid has no address:");
        let localhost: Listen = "localhost:8080".parse().unwrap();
        assert!(localhost.is_local() && localhost.name.as_deref() == Some("localhost"));
        assert!(localhost.addresses.contains(&Address::Tcp(([127, 0, 0, 1], 8080).into())));
        let any: Listen = "localhost:0".parse().unwrap();
        assert_eq!(any.addresses.len(), 1, "one port");
    }

    #[test]
    fn only_a_stale_socket_is_replaced_and_only_the_own_one_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listen: Listen = format!("unix:{}", path.display()).parse().unwrap();
        let first = bind(&listen, 2, &mut Vec::new()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, UNIX_MODE);
        assert_eq!(UnixStream::connect(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        first[0].listen().unwrap();
        let taken = bind(&listen, 1, &mut Vec::new()).map(|_| ()).unwrap_err();
        assert!(taken.to_string().contains("another process listens there"), "{taken}");
        // As a server that was killed leaves it.
        let [mut first] = <[Bound; 1]>::try_from(first).ok().unwrap();
        std::mem::forget(first.file.take());
        drop(first);
        assert!(path.exists());
        let second = bind(&listen, 1, &mut Vec::new()).unwrap();
        // One that began later took it for stale: it was bound and did not listen.
        let third = bind(&listen, 1, &mut Vec::new()).unwrap();
        let displaced = second[0].listen().unwrap_err();
        assert!(displaced.to_string().contains("another process took its place"), "{displaced}");
        third[0].listen().unwrap();
        drop(third);
        let second = bind(&listen, 1, &mut Vec::new()).unwrap();
        // Somebody else's by now.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        drop(second);
        assert!(path.exists());
        assert!(bind(&listen, 1, &mut Vec::new()).is_err(), "a file is not removed");
        fs::remove_file(&path).unwrap();
        drop(bind(&listen, 1, &mut Vec::new()).unwrap());
        assert!(!path.exists());
    }
}
