//! Enough of Cassandra's native protocol (version 4) to run a statement and read its rows as text.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const STARTUP: u8 = 0x01;
const AUTHENTICATE: u8 = 0x03;
const AUTH_RESPONSE: u8 = 0x0F;
const QUERY: u8 = 0x07;
const ERROR: u8 = 0x00;
const RESULT: u8 = 0x08;
/// The kind of a result that has rows.
const ROWS: i32 = 2;
/// Types of columns.
const BIGINT: i64 = 0x02;
const INT: i64 = 0x09;
/// User and password of every private node, as SASL PLAIN has them.
const LOGIN: &[u8] = b"\0cassandra\0cassandra";
/// Consistency ONE: what is asked is about the node, or about the schema, which has none.
const ONE: u16 = 1;
/// No answer is longer.
const ANSWER_BYTES_MAX: u32 = 64 << 20;

/// A connection to one node.
pub(crate) struct CqlSession(TcpStream);

impl CqlSession {
    /// Connects; no answer may take longer than `timeout`.
    pub(crate) fn open(address: SocketAddr, timeout: Duration) -> io::Result<CqlSession> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        let mut session = CqlSession(stream);
        let mut options = Vec::new();
        options.extend(1_u16.to_be_bytes());
        for text in ["CQL_VERSION", "3.0.0"] {
            options.extend((text.len() as u16).to_be_bytes());
            options.extend(text.as_bytes());
        }
        if session.ask(STARTUP, &options)?.0 == AUTHENTICATE {
            let length = (LOGIN.len() as u32).to_be_bytes();
            session.ask(AUTH_RESPONSE, &[&length, LOGIN].concat())?;
        }
        Ok(session)
    }

    /// Runs `cql` and gives the rows as text: whole numbers of four and eight bytes as such, the rest as UTF-8; NULL is empty. No column may
    /// be a collection.
    pub(crate) fn query(&mut self, cql: &str) -> io::Result<Vec<Vec<String>>> {
        let mut body = (cql.len() as u32).to_be_bytes().to_vec();
        body.extend(cql.as_bytes());
        body.extend(ONE.to_be_bytes());
        body.push(0);
        let (_, answer) = self.ask(QUERY, &body)?;
        rows(&mut &answer[..])
    }

    /// What kind of answer comes, and its body.
    fn ask(&mut self, operation: u8, body: &[u8]) -> io::Result<(u8, Vec<u8>)> {
        let mut frame = vec![4, 0, 0, 0, operation];
        frame.extend((body.len() as u32).to_be_bytes());
        frame.extend(body);
        self.0.write_all(&frame)?;
        let mut head = [0; 9];
        self.0.read_exact(&mut head)?;
        let length = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        if length > ANSWER_BYTES_MAX {
            return Err(io::Error::other("the answer is too long"));
        }
        let mut answer = vec![0; length as usize];
        self.0.read_exact(&mut answer)?;
        if head[4] == ERROR {
            let mut rest = &answer[4..];
            return Err(io::Error::other(text(&mut rest)?));
        }
        let is_warned = head[1] & 0x08 != 0;
        if is_warned && head[4] == RESULT {
            let mut rest = &answer[..];
            for _ in 0..number::<2>(&mut rest)? {
                text(&mut rest)?;
            }
            return Ok((head[4], rest.to_vec()));
        }
        Ok((head[4], answer))
    }
}

/// The rows of a result; none if it is of another kind.
fn rows(answer: &mut &[u8]) -> io::Result<Vec<Vec<String>>> {
    if number::<4>(answer)? != i64::from(ROWS) {
        return Ok(Vec::new());
    }
    let (flags, columns) = (number::<4>(answer)?, number::<4>(answer)?);
    let is_one_table = flags & 1 != 0;
    if is_one_table {
        text(answer)?;
        text(answer)?;
    }
    let mut types = Vec::new();
    for _ in 0..columns {
        if !is_one_table {
            text(answer)?;
            text(answer)?;
        }
        text(answer)?;
        types.push(number::<2>(answer)?);
    }
    let count = number::<4>(answer)?;
    let mut rows = Vec::new();
    for _ in 0..count {
        let mut row = Vec::new();
        for kind in &types {
            let length = number::<4>(answer)?;
            let mut bytes = if length < 0 { &[][..] } else { take(answer, length as usize)? };
            row.push(match (*kind, bytes.len()) {
                (INT, 4) => number::<4>(&mut bytes)?.to_string(),
                (BIGINT, 8) => number::<8>(&mut bytes)?.to_string(),
                _ => String::from_utf8_lossy(bytes).into_owned(),
            });
        }
        rows.push(row);
    }
    Ok(rows)
}

/// A signed number of `BYTES` bytes.
fn number<const BYTES: usize>(rest: &mut &[u8]) -> io::Result<i64> {
    let bytes = take(rest, BYTES)?;
    let sign = if bytes[0] & 0x80 != 0 { -1 } else { 0 };
    Ok(bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
}

/// A text behind its length in two bytes.
fn text(rest: &mut &[u8]) -> io::Result<String> {
    let length = number::<2>(rest)?;
    Ok(String::from_utf8_lossy(take(rest, length.unsigned_abs() as usize)?).into_owned())
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> io::Result<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count).ok_or(io::ErrorKind::UnexpectedEof)?;
    *rest = left;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_by_the_types_of_their_columns() {
        let mut answer = Vec::new();
        let short = |out: &mut Vec<u8>, text: &str| {
            out.extend((text.len() as u16).to_be_bytes());
            out.extend(text.as_bytes());
        };
        answer.extend([0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3]);
        short(&mut answer, "system");
        short(&mut answer, "t");
        for (name, kind) in [("a", BIGINT), ("b", 0x0D), ("c", INT)] {
            short(&mut answer, name);
            answer.extend((kind as u16).to_be_bytes());
        }
        answer.extend([0, 0, 0, 1, 0, 0, 0, 8]);
        answer.extend((-7_i64).to_be_bytes());
        answer.extend([0, 0, 0, 4]);
        answer.extend(b"four");
        answer.extend([0xff; 4]);
        assert_eq!(rows(&mut &answer[..]).unwrap(), [["-7", "four", ""]]);
        assert!(rows(&mut &answer[..40]).is_err());
    }
}
