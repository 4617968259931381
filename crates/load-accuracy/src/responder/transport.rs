//! The bytes of a connection of the responder: as they are, or in TLS.

use rustls::ServerConnection;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

/// A socket that never blocks, and its session of TLS if there is one.
pub(super) struct Transport {
    pub(super) socket: TcpStream,
    session: Option<Box<ServerConnection>>,
}

impl Transport {
    /// `socket` becomes non-blocking.
    pub(super) fn new(socket: TcpStream, session: Option<ServerConnection>) -> io::Result<Transport> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        Ok(Transport { socket, session: session.map(Box::new) })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.session.is_some()
    }

    /// Reads what is there, once; 0 at the end of the connection.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.socket.read(into) };
        loop {
            match session.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The client ended the connection without saying so in TLS.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            let arrived = session.read_tls(&mut self.socket)?;
            session.process_new_packets().map_err(io::Error::other)?;
            send(session, &mut self.socket)?;
            if arrived == 0 && session.is_handshaking() {
                return Ok(0);
            }
        }
    }

    /// Sends `bytes`; false if the client did not take them. Answers are short enough for one write.
    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        let Some(session) = &mut self.session else {
            return bytes.is_empty() || matches!(self.socket.write(bytes), Ok(sent) if sent == bytes.len());
        };
        session.writer().write_all(bytes).is_ok() && send(session, &mut self.socket).is_ok()
    }
}

/// Sends the records that wait.
fn send(session: &mut ServerConnection, socket: &mut TcpStream) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(socket)?;
    }
    Ok(())
}
