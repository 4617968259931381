//! Lines on a connection: a JSON document each, of bounded length, with a bound on the wait for them.
//!
//! Knows nothing of what is said. Whatever comes from the other end is an error at worst, never a panic.

use super::super::plainly;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Longest line before the other end has proved who it is.
pub(super) const STRANGERS_LINE_MAX: usize = 4 << 10;
/// Longest line after that: a tally, all histograms full, is far below it.
pub(super) const LINE_MAX: usize = 64 << 20;
/// Longest part of a text from the other end that is told to people.
const TOLD_MAX: usize = 300;
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

/// Why there is no line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The other end closed it, or the system did.
    Ended,
    /// Nothing came for longer than it may take.
    Silent,
    /// A line of more bytes than this.
    TooLong(usize),
    /// Not JSON, or not what is said here.
    Nonsense(String),
    /// Another error.
    System(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Ended => write!(f, "the connection ended"),
            Broken::Silent => write!(f, "it fell silent"),
            Broken::TooLong(most) => write!(f, "it sent a line of more than {most} bytes"),
            Broken::Nonsense(why) => write!(f, "it sent what is no word of this protocol ({why})"),
            Broken::System(why) => write!(f, "{why}"),
        }
    }
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Broken {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof => Broken::Ended,
            _ => Broken::System(one_line(&plainly(&error))),
        }
    }
}

/// How long to wait for a line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// Until then for all of it.
    Until(Instant),
    /// So long for each piece of it.
    EachPiece(Duration),
}

impl Patience {
    fn left(self) -> Duration {
        match self {
            Patience::Until(instant) => instant.saturating_duration_since(Instant::now()),
            Patience::EachPiece(most) => most,
        }
    }
}

/// The reading end of a connection.
pub(super) struct Ear {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// How much of the buffer is known to have no line end.
    searched: usize,
}

impl Ear {
    pub(super) fn new(stream: TcpStream) -> Ear {
        Ear { stream, buffer: Vec::new(), searched: 0 }
    }

    /// The next line of up to `most` bytes, its end not counted.
    pub(super) fn hear<T: DeserializeOwned>(&mut self, most: usize, patience: Patience) -> Result<T, Broken> {
        loop {
            let end = memchr::memchr(b'\n', &self.buffer[self.searched..]).map(|at| self.searched + at);
            if end.unwrap_or(self.buffer.len()) > most {
                return Err(Broken::TooLong(most));
            }
            if let Some(end) = end {
                let parsed = serde_json::from_slice(&self.buffer[..end]);
                self.buffer.drain(..=end);
                self.searched = 0;
                return parsed.map_err(|error| Broken::Nonsense(one_line(&error.to_string())));
            }
            self.searched = self.buffer.len();
            let left = patience.left();
            if left.is_zero() {
                return Err(Broken::Silent);
            }
            self.stream.set_read_timeout(Some(left))?;
            self.buffer.resize(self.searched + READ_BYTES, 0);
            let read = self.stream.read(&mut self.buffer[self.searched..]);
            self.buffer.truncate(self.searched + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(Broken::Ended),
                Ok(_) => {}
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(Broken::Silent),
                    _ => return Err(error.into()),
                },
            }
        }
    }
}

/// The writing end of a connection; several threads may hold it, each line stays whole.
pub(super) struct Mouth {
    stream: Mutex<TcpStream>,
    /// The same connection, to be closed while somebody writes.
    handle: TcpStream,
}

impl Mouth {
    /// A line that the other end does not take for `silence` ends the connection.
    pub(super) fn new(stream: TcpStream, silence: Duration) -> std::io::Result<Mouth> {
        stream.set_write_timeout(Some(silence))?;
        // A line is a whole thought; the kernel need not wait for more.
        stream.set_nodelay(true)?;
        Ok(Mouth { handle: stream.try_clone()?, stream: Mutex::new(stream) })
    }

    pub(super) fn say(&self, word: &impl Serialize) -> Result<(), Broken> {
        let mut line = serde_json::to_vec(word).map_err(|error| Broken::System(error.to_string()))?;
        line.push(b'\n');
        self.stream.lock().write_all(&line).map_err(|error| match error.kind() {
            // Half a line may be out, so nothing can follow it.
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                Broken::System("it takes no more of what is sent to it".into())
            }
            _ => error.into(),
        })
    }

    /// Ends the connection for both directions; whoever listens at either end hears that it ended.
    pub(super) fn close(&self) {
        // An error says that it is closed already.
        let _ = self.handle.shutdown(Shutdown::Both);
    }
}

/// What the other end wrote, fit for a terminal: one line of limited length without control characters.
pub(super) fn one_line(text: &str) -> String {
    let words = text.split(|sign: char| sign.is_control() || sign.is_whitespace());
    let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(TOLD_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const SILENCE: Duration = Duration::from_secs(60);
    const PATIENCE: Patience = Patience::EachPiece(SILENCE);

    fn pair() -> (Mouth, TcpStream, Ear) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let other = listener.accept().unwrap().0;
        (Mouth::new(stream.try_clone().unwrap(), SILENCE).unwrap(), stream, Ear::new(other))
    }

    #[test]
    fn lines_arrive_whole_and_in_order_however_they_are_cut() {
        let (mouth, mut raw, mut ear) = pair();
        mouth.say(&"one").unwrap();
        raw.write_all(b"\"tw").unwrap();
        assert_eq!(ear.hear::<String>(5, PATIENCE), Ok("one".to_owned()));
        raw.write_all(b"o\"\n3\n").unwrap();
        assert_eq!(ear.hear::<String>(5, PATIENCE), Ok("two".to_owned()));
        assert_eq!(ear.hear::<u8>(5, PATIENCE), Ok(3));
        mouth.close();
        assert_eq!(ear.hear::<u8>(5, PATIENCE), Err(Broken::Ended));
    }

    #[test]
    fn a_long_line_arrives_while_it_is_written() {
        let (mouth, _raw, mut ear) = pair();
        let long = "x".repeat(5_000_000);
        std::thread::scope(|scope| {
            scope.spawn(|| mouth.say(&long).unwrap());
            assert_eq!(ear.hear::<String>(LINE_MAX, PATIENCE).map(|text| text.len()), Ok(5_000_000));
        });
    }

    #[test]
    fn what_is_no_line_is_named() {
        for (sent, error) in
            [("123456\n", Broken::TooLong(5)), ("1234567", Broken::TooLong(5)), ("12", Broken::Ended)]
        {
            let (mouth, mut raw, mut ear) = pair();
            raw.write_all(sent.as_bytes()).unwrap();
            mouth.close();
            assert_eq!(ear.hear::<u64>(5, PATIENCE), Err(error), "{sent:?}");
        }
        for sent in [&b"{\"a\"\n"[..], b"\xff\xfe\n", b"\n", b"-1\n", b"GET /\n"] {
            let (_mouth, mut raw, mut ear) = pair();
            raw.write_all(sent).unwrap();
            assert!(matches!(ear.hear::<u64>(5, PATIENCE), Err(Broken::Nonsense(_))), "{sent:?}");
        }
    }

    #[test]
    fn nobody_waits_for_ever() {
        let (_mouth, mut raw, mut ear) = pair();
        raw.write_all(b"1").unwrap();
        let short = Duration::from_millis(5);
        for patience in [
            Patience::EachPiece(short),
            Patience::Until(Instant::now() + short),
            Patience::Until(Instant::now()),
        ] {
            assert_eq!(ear.hear::<u64>(5, patience), Err(Broken::Silent));
        }
        // What came in pieces is not lost by it.
        raw.write_all(b"2\n").unwrap();
        assert_eq!(ear.hear::<u64>(5, PATIENCE), Ok(12));
    }

    #[test]
    fn texts_of_others_are_one_line() {
        assert_eq!(one_line("a\r\nb\u{1b}[2J\tc  "), "a b [2J c");
        assert_eq!(one_line(&"ä".repeat(1000)).chars().count(), TOLD_MAX + 1);
    }
}
