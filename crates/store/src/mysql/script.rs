//! A transaction of writes as text: all of its statements in one packet, or in as few as the server takes.
//!
//! The server stops at the first statement that fails. So the commit at the end happens only after everything before it, and that
//! begins with a look at the epoch which fails if it is another one.

use super::session::STATEMENT_KEYS_MAX;
use crate::EventBlock;
use kv::{Change, Row, Write};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use std::mem;

// With a long list the optimizer may think that reading the whole table is cheaper. It never is, and a delete would
// lock what it reads.
const LOOK: &str = "SELECT `key`, version FROM weir_kv FORCE INDEX (PRIMARY) WHERE `key` IN (";
const DELETE: &str = "DELETE old FROM weir_kv AS old FORCE INDEX (PRIMARY) WHERE old.`key` IN (";
const PUT: &str =
    "INSERT INTO weir_kv (`key`, value, content_type, version, content_encoding, expires) VALUES ";
/// Assignments are made from left to right: the version, on which the others depend, comes last.
const PUT_OVER: &str = " ON DUPLICATE KEY UPDATE
    value = IF(VALUES(version) >= version, VALUES(value), value),
    content_type = IF(VALUES(version) >= version, VALUES(content_type), content_type),
    content_encoding = IF(VALUES(version) >= version, VALUES(content_encoding), content_encoding),
    expires = IF(VALUES(version) >= version, VALUES(expires), expires),
    version = GREATEST(version, VALUES(version))";
const ADD_EVENTS: &str = "INSERT INTO weir_events (id, at, body) VALUES ";

/// Most bytes in one packet, unless one row has more: the protocol divides larger ones.
const PACKET_BYTES_MAX: usize = 15 << 20;
/// What is left free of what the server takes.
const MARGIN_BYTES: usize = 1024;

/// How a transaction begins that no later lease can come before. Where the epoch is not this one, the sum is out of range.
pub(super) fn begin(epoch: u64) -> String {
    format!(
        "START TRANSACTION; SELECT 18446744073709551615 + (COUNT(*) <> 1) FROM weir_owner \
         WHERE one = 1 AND epoch = {epoch} LOCK IN SHARE MODE"
    )
}

pub(super) struct Script {
    pub(super) packets: Vec<Packet>,
    bytes_max: usize,
}

#[derive(Default)]
pub(super) struct Packet {
    text: Vec<u8>,
    statements: Vec<Sort>,
}

/// What the answer to a statement says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    /// The rows that are there.
    Look,
    /// How many rows were changed.
    Change,
    /// Nothing but that it was done.
    Other,
}

/// What a script was answered.
#[derive(Default)]
pub(super) struct Answers {
    /// Key and version of the rows that were there, if it looked.
    pub(super) there: Vec<mysql_async::Row>,
    /// How many rows the server counts as changed: a row that is replaced counts as two.
    pub(super) changed: u64,
}

impl Script {
    /// A transaction. It looks at what is there first, unless the count of changed rows says it.
    pub(super) fn of(
        epoch: u64,
        writes: &[Write],
        events: Option<&EventBlock>,
        packet_bytes_max: usize,
    ) -> Script {
        let bytes_max = PACKET_BYTES_MAX.min(packet_bytes_max).saturating_sub(MARGIN_BYTES);
        let mut script = Script { packets: vec![Packet::default()], bytes_max };
        for statement in begin(epoch).split("; ") {
            script.push(Sort::Other, statement.as_bytes());
        }
        let event = |block: &EventBlock| {
            let EventBlock { id, at, body } = block;
            row(&[Field::Number(*id as i64), Field::Number(at.0 as i64), Field::Bytes(body)])
        };
        script.list(Sort::Other, ADD_EVENTS, events.map(event), "");
        let key = |write: &Write| quoted(write.key.as_bytes());
        if writes.len() > 1 {
            script.list(Sort::Look, LOOK, writes.iter().map(key), ")");
        }
        let put = |write: &Write| match &write.change {
            Change::Put(row) => Some(put_of(write, row)),
            Change::Delete => None,
        };
        script.list(Sort::Change, PUT, writes.iter().filter_map(put), PUT_OVER);
        let gone = writes.iter().filter(|write| write.change == Change::Delete);
        script.list(Sort::Change, DELETE, gone.map(key), ")");
        script.push(Sort::Other, b"COMMIT");
        script
    }

    /// Bytes of the largest packet.
    pub(super) fn packet_bytes(&self) -> usize {
        self.packets.iter().map(|packet| packet.text.len()).max().unwrap_or_default()
    }

    /// Adds a statement over a list, or as many as it takes.
    fn list(&mut self, sort: Sort, start: &str, items: impl IntoIterator<Item = Vec<u8>>, end: &str) {
        let (mut statement, mut count) = (Vec::new(), 0);
        let room = self.bytes_max.saturating_sub(end.len() + 2);
        for item in items {
            if count == STATEMENT_KEYS_MAX || (count > 0 && statement.len() + item.len() > room) {
                statement.extend(end.bytes());
                self.push(sort, &mem::take(&mut statement));
                count = 0;
            }
            statement.extend(if count == 0 { start.bytes() } else { ", ".bytes() });
            statement.extend(item);
            count += 1;
        }
        if count > 0 {
            statement.extend(end.bytes());
            self.push(sort, &statement);
        }
    }

    /// Adds a statement to the last packet, or to a new one if it does not fit.
    fn push(&mut self, sort: Sort, statement: &[u8]) {
        match self.packets.last_mut() {
            Some(packet)
                if packet.text.is_empty() || packet.text.len() + statement.len() < self.bytes_max =>
            {
                packet.add(sort, statement);
            }
            _ => {
                let mut packet = Packet::default();
                packet.add(sort, statement);
                self.packets.push(packet);
            }
        }
    }
}

impl Packet {
    fn add(&mut self, sort: Sort, statement: &[u8]) {
        if !self.text.is_empty() {
            self.text.push(b';');
        }
        self.text.extend(statement);
        self.statements.push(sort);
    }

    pub(super) fn statements(&self) -> usize {
        self.statements.len()
    }

    /// Sends it and reads the answers; `left` is how many statements have none yet.
    pub(super) async fn send(
        &self,
        connection: &mut Conn,
        left: &mut usize,
        answers: &mut Answers,
    ) -> Result<(), mysql_async::Error> {
        let mut results = connection.query_iter(self.text.as_slice()).await?;
        for sort in &self.statements {
            // Now: with the last row of this answer the driver reads how the next one begins.
            *left -= 1;
            if *sort == Sort::Change {
                answers.changed += results.affected_rows();
            }
            let rows = results.collect::<mysql_async::Row>().await?;
            if *sort == Sort::Look {
                answers.there.extend(rows);
            }
        }
        Ok(())
    }
}

/// A value in a row.
enum Field<'a> {
    Bytes(&'a [u8]),
    Number(i64),
    Null,
}

fn put_of(write: &Write, put: &Row) -> Vec<u8> {
    let attributes = put.attributes();
    row(&[
        Field::Bytes(write.key.as_bytes()),
        Field::Bytes(put.value()),
        Field::Bytes(attributes.content_type.as_bytes()),
        Field::Number(write.version.0 as i64),
        Field::Bytes(attributes.content_encoding.as_bytes()),
        attributes.expires.map_or(Field::Null, |at| Field::Number(at.0 as i64)),
    ])
}

fn row(fields: &[Field<'_>]) -> Vec<u8> {
    let mut text = vec![b'('];
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        match field {
            Field::Bytes(bytes) => quote(bytes, &mut text),
            Field::Number(number) => text.extend(number.to_string().bytes()),
            Field::Null => text.extend(b"NULL"),
        }
    }
    text.push(b')');
    text
}

fn quoted(bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len() + 2);
    quote(bytes, &mut text);
    text
}

/// Adds a literal. The sessions' SQL mode knows no backslashes, and their character set no characters of several bytes.
fn quote(bytes: &[u8], text: &mut Vec<u8>) {
    text.push(b'\'');
    for (index, part) in bytes.split(|byte| *byte == b'\'').enumerate() {
        if index > 0 {
            text.extend(b"''");
        }
        text.extend(part);
    }
    text.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::{Attributes, Key, Version};

    fn put(key: &str, value: &[u8]) -> Write {
        let (key, version) = (Key::new(key.as_bytes()).unwrap(), Version(7));
        let row = Row::with(&key, Attributes::default(), value, version);
        Write { key, version, change: Change::Put(row) }
    }

    fn texts(script: &Script) -> Vec<String> {
        script.packets.iter().map(|packet| String::from_utf8_lossy(&packet.text).into_owned()).collect()
    }

    #[test]
    fn a_batch_is_one_packet_that_ends_with_its_commit() {
        let gone = Write { key: Key::new(b"c'd").unwrap(), version: Version(8), change: Change::Delete };
        let writes = [put("a", b"it''s; COMMIT"), put("b\\", b"\0\xff'"), gone];
        let script = Script::of(5, &writes, None, 1 << 20);
        let [text] = &texts(&script)[..] else { panic!() };
        assert!(
            text.starts_with("START TRANSACTION;SELECT ") && text.ends_with("IN ('c''d');COMMIT"),
            "{text}"
        );
        assert!(text.contains("epoch = 5 LOCK") && text.contains("IN ('a', 'b\\', 'c''d');"), "{text}");
        assert_eq!(script.packets[0].statements(), 6);
        assert!(text.contains("('a','it''''s; COMMIT','',7,'',NULL), ('b\\',"), "{text}");
    }

    #[test]
    fn what_the_server_does_not_take_at_once_is_divided() {
        let writes: Vec<Write> = (0..2000).map(|n| put(&format!("k{n}"), &[b'\''; 100])).collect();
        let script = Script::of(5, &writes, None, 64 << 10);
        assert!(script.packets.len() > 6 && script.packet_bytes() < 64 << 10, "{}", script.packet_bytes());
        let rows: usize = texts(&script).iter().map(|text| text.matches(",7,").count()).sum();
        assert_eq!(rows, writes.len());
        // One row is sent whatever its size, by itself.
        let script = Script::of(5, &[put("a", &[b'\''; 60_000])], None, 64 << 10);
        assert_eq!((script.packets.len(), script.packet_bytes() > 120_000), (3, true));
    }
}
