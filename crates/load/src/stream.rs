//! A connection to a server: TCP, TLS over it, or a Unix socket. Never blocks.

use super::target::Address;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

/// A server that clients connect to.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) address: Address,
    pub(super) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// A connection.
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
}

/// TLS over TCP.
pub(super) struct TlsStream {
    session: ClientConnection,
    tcp: TcpStream,
}

impl Stream {
    /// Begins to connect, and has the socket watched.
    pub(super) fn connect(endpoint: &Endpoint, registry: &Registry, token: Token) -> io::Result<Stream> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        let address = match &endpoint.address {
            Address::Tcp(address) => *address,
            Address::Unix(path) => {
                let mut stream = UnixStream::connect(path)?;
                registry.register(&mut stream, token, interest)?;
                return Ok(Stream::Unix(stream));
            }
        };
        let mut tcp = TcpStream::connect(address)?;
        // A refused loopback connection may be known already; the write that follows will say so.
        let _ = tcp.set_nodelay(true);
        registry.register(&mut tcp, token, interest)?;
        Ok(match &endpoint.tls {
            None => Stream::Tcp(tcp),
            Some((config, name)) => {
                let session =
                    ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
                Stream::Tls(Box::new(TlsStream { session, tcp }))
            }
        })
    }

    /// Whether a read that brings less than there is room for has brought all there is.
    pub(super) fn short_read_is_all(&self) -> bool {
        !matches!(self, Stream::Tls(_))
    }

    /// Whether something that was written is still to be sent.
    pub(super) fn has_unsent(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.session.wants_write())
    }
}

impl Read for Stream {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    /// Sends what TLS has kept.
    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Tls(stream) => stream.send(),
            _ => Ok(()),
        }
    }
}

impl TlsStream {
    /// Sends records until there are none, or the socket takes no more.
    fn send(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.tcp)?;
        }
        Ok(())
    }

    /// Takes the records that have arrived: false at the end of the connection.
    fn receive(&mut self) -> io::Result<bool> {
        let bytes = self.session.read_tls(&mut self.tcp)?;
        if let Err(error) = self.session.process_new_packets() {
            // The alert is sent as far as it can be.
            let _ = self.send();
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(bytes > 0)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Many servers end a connection without saying so in TLS; whether an answer was complete, its length says.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if !self.receive()? && self.session.is_handshaking() {
                return Ok(0);
            }
            // A key update, or the end of the handshake.
            let _ = self.send();
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        while self.session.is_handshaking() {
            self.send()?;
            if self.session.is_handshaking() && !self.receive()? {
                return Err(ErrorKind::ConnectionReset.into());
            }
        }
        let written = self.session.writer().write(bytes)?;
        match self.send() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            // What the socket does not take now, it takes when it is writable.
            _ if written > 0 => Ok(written),
            _ => Err(ErrorKind::WouldBlock.into()),
        }
    }
}
