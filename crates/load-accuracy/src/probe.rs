//! The simplest client there is: one request at a time, of the same bytes. Shares no code with the load generator; of HTTP/2 it
//! reads and writes the frames itself.

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long it waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);

/// As long as the load generator's, so that it takes as long to send.
const REQUEST: &[u8] = b"GET /kv/popular_0 HTTP/1.1\r\nHost: 127.0.0.1:65535\r\n\r\n";
/// The preface of HTTP/2, settings that leave all as it is, and a window for more than all answers.
const PREFACE: &[u8] =
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x04\x08\0\0\0\0\0\x3f\0\0\0";
/// The length of what comes before the content of a frame.
const FRAME_HEAD: usize = 9;
/// Types and flags of frames (RFC 9113, section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A connection, whatever is below.
trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// How long each round trip in a window took, in nanoseconds: over TLS where the server has a certificate.
pub(super) fn round_trips(
    address: SocketAddr,
    certificate: Option<&CertificateDer<'static>>,
    http2: bool,
    [warmup, window]: [Duration; 2],
) -> io::Result<Vec<u64>> {
    let socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    let mut stream: Box<dyn Stream> = match certificate {
        None => Box::new(socket),
        Some(certificate) => {
            let session = session(address, certificate, http2).map_err(io::Error::other)?;
            Box::new(StreamOwned::new(session, socket))
        }
    };
    if http2 {
        stream.write_all(PREFACE)?;
    }
    let mut buffer = vec![0; 64 << 10];
    let mut rest = Vec::new();
    let mut trips_ns = Vec::new();
    let start = Instant::now() + warmup;
    for id in (1..).step_by(2) {
        let frame = if http2 { request_frame(id, certificate.is_some()) } else { REQUEST.to_vec() };
        let sent = Instant::now();
        stream.write_all(&frame)?;
        loop {
            let bytes = stream.read(&mut buffer)?;
            if bytes == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            // An answer of HTTP/1.1 is short and sent at once, so that one read returns all of it.
            if !http2 {
                break;
            }
            rest.extend_from_slice(&buffer[..bytes]);
            if take_frames(&mut rest, id) {
                break;
            }
        }
        let answered = Instant::now();
        if answered >= start {
            trips_ns.push(answered.duration_since(sent).as_nanos() as u64);
        }
        if answered >= start + window {
            break;
        }
    }
    Ok(trips_ns)
}

fn session(
    address: SocketAddr,
    certificate: &CertificateDer<'static>,
    http2: bool,
) -> Result<ClientConnection, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    ClientConnection::new(Arc::new(config), ServerName::IpAddress(address.ip().into()))
}

/// The same request as a frame. Its fields are literal or of the static table (RFC 7541, appendix A).
fn request_frame(id: u32, is_tls: bool) -> Vec<u8> {
    const METHOD_GET: u8 = 0x82;
    const SCHEME_HTTP: u8 = 0x86;
    const SCHEME_HTTPS: u8 = 0x87;
    const AUTHORITY: u8 = 1;
    const PATH: u8 = 4;
    let mut fields = vec![METHOD_GET, if is_tls { SCHEME_HTTPS } else { SCHEME_HTTP }];
    for (name, value) in [(PATH, "/kv/popular_0"), (AUTHORITY, "127.0.0.1:65535")] {
        fields.extend([name, value.len() as u8]);
        fields.extend(value.bytes());
    }
    let mut frame = vec![0, 0, fields.len() as u8, HEADERS, END_STREAM | END_HEADERS];
    frame.extend(id.to_be_bytes());
    frame.extend(fields);
    frame
}

/// Takes the whole frames from the front; true if one of them ended this stream.
fn take_frames(bytes: &mut Vec<u8>, id: u32) -> bool {
    let mut has_ended = false;
    while let Some([a, b, c, kind, flags, stream @ ..]) = bytes.first_chunk::<FRAME_HEAD>() {
        let length = FRAME_HEAD + u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if bytes.len() < length {
            break;
        }
        let is_of_stream = matches!(*kind, DATA | HEADERS) && *stream == id.to_be_bytes();
        has_ended |= is_of_stream && flags & END_STREAM != 0;
        bytes.drain(..length);
    }
    has_ended
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::responder::{Options, Responder};

    #[test]
    fn it_is_answered_over_every_protocol() {
        for (tls, http2) in [(false, false), (true, false), (false, true), (true, true)] {
            let responder = Responder::start(Options { tls, http2, ..Options::default() }, None).unwrap();
            let times = [Duration::ZERO, Duration::from_millis(20)];
            let trips = round_trips(responder.address, responder.certificate.as_ref(), http2, times).unwrap();
            let record = responder.stop().unwrap();
            assert!(record.requests > 0 && record.requests == trips.len() as u64, "{tls} {http2}");
            assert_eq!(record.answers["good"], record.requests);
        }
    }
}
