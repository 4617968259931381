//! A client of HTTP that asks one question on a connection.

use lab_data::experiment::{HTTPS, address};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// No honest answer is longer.
const BYTES_MAX: u64 = 1 << 20;

/// How long one question of [`answers`] may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// An answer that has to be over in time: one that goes on as long as anybody reads would never be.
struct Answer {
    stream: TcpStream,
    until: Instant,
}

impl Read for Answer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

/// One request without a body: status and body of the answer, which ends with the connection if its length is not given. Connecting
/// and the answer may take `timeout` each.
pub(crate) fn ask(method: &str, url: &str, path: &str, timeout: Duration) -> io::Result<(u16, Vec<u8>)> {
    let stream = send(method, url, path, timeout)?;
    let until = Instant::now() + timeout;
    let mut reader = BufReader::new(Answer { stream, until }.take(BYTES_MAX));
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && reader.read_until(b'\n', &mut head)? > 0 {}
    let Some(status) = status(&head).filter(|_| head.ends_with(b"\r\n\r\n")) else {
        return Err(io::Error::other(format!("{url}{path} did not answer in HTTP")));
    };
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = Vec::new();
    reader.take(length.unwrap_or(BYTES_MAX)).read_to_end(&mut body)?;
    Ok((status, body))
}

/// Whether one GET has a status that `is_well`; why not, in a few words. The rest of the answer is not waited for: not every server
/// ends a connection. Of a server that speaks TLS, whether it accepts a connection.
pub(crate) fn answers(url: &str, path: &str, is_well: fn(u16) -> bool) -> Result<(), String> {
    if url.starts_with(HTTPS) {
        return connect(url, ANSWER_MAX).map(drop).map_err(|error| error.to_string());
    }
    let mut start = [0; "HTTP/1.1 200".len()];
    let read = send("GET", url, path, ANSWER_MAX).and_then(|mut stream| stream.read_exact(&mut start));
    match read.map(|()| status(&start)) {
        Ok(Some(status)) if is_well(status) => Ok(()),
        Ok(Some(status)) => Err(format!("it answered {status}")),
        Ok(None) => Err("it does not speak HTTP".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err("it closed the connection without an answer; does it speak TLS?".to_owned())
        }
        Err(error) => Err(error.to_string()),
    }
}

fn connect(url: &str, timeout: Duration) -> io::Result<(TcpStream, &str)> {
    let host = address(url).ok_or_else(|| io::Error::other(format!("{url} is not http://HOST:PORT")))?;
    let none = Err(io::Error::other(format!("{host} has no address")));
    // As the load generator does: the first that accepts a connection.
    let connect =
        |first: io::Result<_>, address| first.or_else(|_| TcpStream::connect_timeout(&address, timeout));
    Ok((host.to_socket_addrs()?.fold(none, connect)?, host))
}

fn send(method: &str, url: &str, path: &str, timeout: Duration) -> io::Result<TcpStream> {
    let (mut stream, host) = connect(url, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.set_nodelay(true)?;
    // Of a method that may have a body it is said that there is none.
    let length = if method == "GET" { "" } else { "Content-Length: 0\r\n" };
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{length}Connection: close\r\n\r\n")?;
    Ok(stream)
}

/// The status that an answer begins with.
fn status(answer: &[u8]) -> Option<u16> {
    std::str::from_utf8(answer.get(..12)?).ok()?.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    #[test]
    fn an_answer_is_split_at_the_empty_line() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", Some((200, b"{}".to_vec()))),
            ("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{}", Some((200, b"{}".to_vec()))),
            ("HTTP/1.1 503 \r\n\r\n", Some((503, vec![]))),
            ("HTTP/1.1 200 OK\r\n", None),
            ("SSH-2.0-OpenSSH\r\n\r\n", None),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let server = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                // The whole request, or what is left of it resets the connection.
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    asked.extend(byte);
                }
                stream.write_all(answer.as_bytes()).unwrap();
                // Not every server ends the connection.
                answer.contains("Content-Length").then_some(stream)
            });
            assert_eq!(ask("GET", &url, "/", Duration::from_secs(60)).ok(), expected, "{answer}");
            server.join().unwrap();
        }
    }

    /// A reading of a service whose `/stats` is a stream never ended, and Ctrl-C was not heard.
    #[test]
    fn an_answer_that_does_not_end_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            while stream.write_all(b"data\n").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        });
        let error = ask("GET", &url, "/", Duration::from_millis(300)).unwrap_err();
        assert!([io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock].contains(&error.kind()), "{error:?}");
        server.join().unwrap();
    }
}
