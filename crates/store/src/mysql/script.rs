//! A transaction of writes as text: all of its statements in one packet, or in as few as the server takes.
//!
//! The server stops at the first statement that fails. So the commit at the end happens only after everything before it, and that
//! begins with a look at the epoch which fails if it is another one.

use crate::EventBlock;
use kv::{Change, Write};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

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
    version = ";
/// A newer row stays.
const NEWER_STAYS: &str = "GREATEST(version, VALUES(version))";
/// A newer row fails the transaction, of which the events say that it was replaced: the sum is out of range.
const NEWER_FAILS: &str = "VALUES(version) + 0 * (18446744073709551615 + (VALUES(version) < version))";
const ADD_EVENTS: &str = "INSERT INTO weir_events (id, at, body) VALUES ";

/// Most keys in one statement. MariaDB makes a temporary table of lists of a thousand.
pub(super) const STATEMENT_KEYS_MAX: usize = 512;
/// Most bytes in one packet, unless one row has more: the protocol divides larger ones.
const PACKET_BYTES_MAX: usize = 15 << 20;
/// What is left free of what the server takes.
const MARGIN_BYTES: usize = 1024;
/// What statements add to the literals of a row at most.
const ROW_BYTES: usize = 128;
/// More than all statements of a packet without their rows have.
const STATEMENTS_BYTES: usize = 2048;

/// How a transaction begins that no later lease can come before. Where the epoch is not this one, the sum is out of range.
pub(super) fn begin(epoch: u64) -> [String; BEGIN_STATEMENTS] {
    let sum = "SELECT 18446744073709551615 + (COUNT(*) <> 1) FROM weir_owner WHERE one = 1 AND epoch =";
    ["START TRANSACTION".into(), format!("{sum} {epoch} LOCK IN SHARE MODE")]
}
const BEGIN_STATEMENTS: usize = 2;

/// A transaction, of which the packets are made one after the other. It looks at what is there first, unless the count of changed
/// rows says it.
pub(super) struct Script<'w> {
    epoch: u64,
    events: Option<&'w EventBlock>,
    looks: bool,
    /// What is in no packet yet.
    left: &'w [Write],
    is_begun: bool,
    is_over: bool,
    bytes_max: usize,
}

#[derive(Default)]
pub(super) struct Packet {
    text: Vec<u8>,
    statements: Vec<Sort>,
    /// It begins the transaction.
    is_first: bool,
    /// It commits the transaction.
    pub(super) is_last: bool,
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

impl<'w> Script<'w> {
    pub(super) fn new(
        epoch: u64,
        writes: &'w [Write],
        events: Option<&'w EventBlock>,
        packet_bytes_max: usize,
    ) -> Script<'w> {
        let bytes_max = PACKET_BYTES_MAX.min(packet_bytes_max).saturating_sub(MARGIN_BYTES);
        let (looks, left) = (writes.len() > 1, writes);
        Script { epoch, events, looks, left, is_begun: false, is_over: false, bytes_max }
    }

    /// Most bytes of a row as text.
    pub(super) fn row_bytes(&self) -> usize {
        let of_events = self.events.map(|block| text_bytes(&block.body));
        self.left.iter().map(bytes_of).chain(of_events).max().unwrap_or_default()
    }

    /// Adds as many writes as there is room for, or one if `at_least_one`.
    fn add_writes(&mut self, packet: &mut Packet, at_least_one: bool) {
        let mut room = self.bytes_max.saturating_sub(packet.text.len() + STATEMENTS_BYTES);
        let mut fits = 0;
        for write in self.left.iter().take(STATEMENT_KEYS_MAX) {
            let bytes = bytes_of(write);
            if bytes > room && (fits > 0 || !at_least_one) {
                break;
            }
            room = room.saturating_sub(bytes);
            fits += 1;
        }
        let (writes, left) = self.left.split_at(fits);
        self.left = left;
        packet.text.reserve(writes.iter().map(bytes_of).sum::<usize>() + STATEMENTS_BYTES);
        let key = |write: &'w Write| vec![Field::Bytes(write.key.as_bytes())];
        if self.looks {
            packet.add_list(Sort::Look, LOOK, writes.iter().map(key), ")");
        }
        let version = if self.events.is_some() { NEWER_FAILS } else { NEWER_STAYS };
        let over = [PUT_OVER, version].concat();
        packet.add_list(Sort::Change, PUT, writes.iter().filter_map(fields_of_put), &over);
        let gone = writes.iter().filter(|write| write.change == Change::Delete);
        packet.add_list(Sort::Change, DELETE, gone.map(key), ")");
    }
}

impl Iterator for Script<'_> {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        if self.is_over {
            return None;
        }
        let mut packet = Packet { is_first: !self.is_begun, ..Packet::default() };
        if packet.is_first {
            self.is_begun = true;
            begin(self.epoch).iter().for_each(|statement| packet.add(Sort::Other, statement));
            packet.add_list(Sort::Other, ADD_EVENTS, self.events.map(fields_of_events), "");
        }
        let mut left = self.left.len();
        let is_alone = !packet.is_first;
        self.add_writes(&mut packet, is_alone);
        while left > self.left.len() && !self.left.is_empty() {
            left = self.left.len();
            self.add_writes(&mut packet, false);
        }
        if self.left.is_empty() {
            packet.add(Sort::Other, "COMMIT");
            (packet.is_last, self.is_over) = (true, true);
        }
        Some(packet)
    }
}

impl Packet {
    fn add(&mut self, sort: Sort, statement: &str) {
        if !self.text.is_empty() {
            self.text.push(b';');
        }
        self.text.extend(statement.bytes());
        self.statements.push(sort);
    }

    /// Adds a statement over a list of rows, unless that is empty.
    fn add_list<'w>(
        &mut self,
        sort: Sort,
        start: &str,
        rows: impl IntoIterator<Item = Vec<Field<'w>>>,
        end: &str,
    ) {
        let mut is_begun = false;
        for row in rows {
            if std::mem::replace(&mut is_begun, true) {
                self.text.extend(b", ");
            } else {
                self.add(sort, start);
            }
            write_row(&row, &mut self.text);
        }
        if is_begun {
            self.text.extend(end.bytes());
        }
    }

    /// Whether the statement that fails after so many answers is the commit.
    pub(super) fn commits_after(&self, answered: usize) -> bool {
        self.is_last && answered + 1 == self.statements.len()
    }

    /// The same of the beginning of the transaction.
    pub(super) fn begins_after(&self, answered: usize) -> bool {
        self.is_first && answered < BEGIN_STATEMENTS
    }

    /// Sends it and reads the answers, and counts them: the next statement is the one that an error of the server is about.
    pub(super) async fn send(
        &self,
        connection: &mut Conn,
        answered: &mut usize,
        answers: &mut Answers,
    ) -> Result<(), mysql_async::Error> {
        let mut results = connection.query_iter(self.text.as_slice()).await?;
        for sort in &self.statements {
            let changed = results.affected_rows();
            let rows = results.collect::<mysql_async::Row>().await?;
            *answered += 1;
            match sort {
                Sort::Look => answers.there.extend(rows),
                Sort::Change => answers.changed += changed,
                Sort::Other => {}
            }
        }
        Ok(())
    }
}

/// Most bytes of the text of a literal.
fn text_bytes(bytes: &[u8]) -> usize {
    bytes.len() + bytes.iter().filter(|byte| **byte == b'\'').count()
}

/// Most bytes of the text of a write.
fn bytes_of(write: &Write) -> usize {
    let row = match &write.change {
        Change::Put(row) => {
            let kv::Attributes { content_type, content_encoding, .. } = row.attributes();
            let texts = [row.value(), content_type.as_bytes(), content_encoding.as_bytes()];
            texts.map(text_bytes).iter().sum()
        }
        Change::Delete => 0,
    };
    // It stands in the look, too.
    2 * text_bytes(write.key.as_bytes()) + row + ROW_BYTES
}

/// A value in a row.
enum Field<'a> {
    Bytes(&'a [u8]),
    Number(u64),
    Null,
}

fn fields_of_put(write: &Write) -> Option<Vec<Field<'_>>> {
    let Change::Put(row) = &write.change else { return None };
    let attributes = row.attributes();
    Some(vec![
        Field::Bytes(write.key.as_bytes()),
        Field::Bytes(row.value()),
        Field::Bytes(attributes.content_type.as_bytes()),
        Field::Number(write.version.0),
        Field::Bytes(attributes.content_encoding.as_bytes()),
        attributes.expires.map_or(Field::Null, |at| Field::Number(at.0)),
    ])
}

fn fields_of_events(EventBlock { id, at, body }: &EventBlock) -> Vec<Field<'_>> {
    vec![Field::Number(*id), Field::Number(at.0), Field::Bytes(body)]
}

fn write_row(fields: &[Field<'_>], text: &mut Vec<u8>) {
    let brackets: [&[u8]; 2] = if fields.len() == 1 { [b"", b""] } else { [b"(", b")"] };
    text.extend(brackets[0]);
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        match field {
            Field::Bytes(bytes) => quote(bytes, text),
            Field::Number(number) => text.extend(number.to_string().bytes()),
            Field::Null => text.extend(b"NULL"),
        }
    }
    text.extend(brackets[1]);
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
    use kv::{Attributes, Key, Row, Version};

    fn put(key: &str, value: &[u8]) -> Write {
        let (key, version) = (Key::new(key.as_bytes()).unwrap(), Version(7));
        let row = Row::with(&key, Attributes::default(), value, version);
        Write { key, version, change: Change::Put(row) }
    }

    fn texts(script: Script<'_>) -> Vec<String> {
        script.map(|packet| String::from_utf8_lossy(&packet.text).into_owned()).collect()
    }

    #[test]
    fn a_batch_is_one_packet_that_ends_with_its_commit() {
        let gone = Write { key: Key::new(b"c'd").unwrap(), version: Version(8), change: Change::Delete };
        let writes = [put("a", b"it''s; COMMIT"), put("b\\", b"\0\xff'"), gone];
        let [text] = &texts(Script::new(5, &writes, None, 1 << 20))[..] else { panic!() };
        assert!(
            text.starts_with("START TRANSACTION;SELECT ") && text.ends_with("IN ('c''d');COMMIT"),
            "{text}"
        );
        assert!(text.contains("epoch = 5 LOCK") && text.contains("IN ('a', 'b\\', 'c''d');"), "{text}");
        assert!(text.contains("('a','it''''s; COMMIT','',7,'',NULL), ('b\\',"), "{text}");
        let packet = Script::new(5, &writes, None, 1 << 20).next().unwrap();
        let commits: Vec<bool> = (0..6).map(|answered| packet.commits_after(answered)).collect();
        assert_eq!(commits, [false, false, false, false, false, true]);
        let begins: Vec<bool> = (0..6).map(|answered| packet.begins_after(answered)).collect();
        assert_eq!(begins, [true, true, false, false, false, false]);
        // Only events; and nothing but a delete.
        let events = EventBlock { id: 9, at: kv::Timestamp(3), body: b"x".to_vec().into() };
        let [text] = &texts(Script::new(5, &[], Some(&events), 1 << 20))[..] else { panic!() };
        assert!(text.ends_with("VALUES (9,3,'x');COMMIT"), "{text}");
        let [text] = &texts(Script::new(5, &writes[2..], None, 1 << 20))[..] else { panic!() };
        assert!(!text.contains("version") && text.ends_with("IN ('c''d');COMMIT"), "{text}");
    }

    #[test]
    fn what_the_server_does_not_take_at_once_is_divided() {
        let writes: Vec<Write> = (0..2000).map(|n| put(&format!("k{n}"), &[b'\''; 100])).collect();
        let packets = texts(Script::new(5, &writes, None, 64 << 10));
        assert!(packets.len() > 6 && packets.iter().all(|text| text.len() < 64 << 10));
        let rows: usize = packets.iter().map(|text| text.matches(",7,").count()).sum();
        assert_eq!(rows, writes.len());
        let commits = packets.iter().filter(|text| text.ends_with(";COMMIT")).count();
        assert_eq!((commits, packets.last().unwrap().ends_with(";COMMIT")), (1, true));
        // One row is sent whatever its size.
        let large = [put("a", &[b'\''; 60_000]), put("b", b"")];
        let script = Script::new(5, &large, None, 64 << 10);
        assert!(script.row_bytes() > 120_000);
        let packets = texts(script);
        assert_eq!(packets.iter().map(|text| text.matches("ON DUPL").count()).collect::<Vec<_>>(), [0, 1, 1]);
        // One statement has few enough keys.
        let many: Vec<Write> = (0..1024).map(|n| put(&format!("k{n}"), b"")).collect();
        let [text] = &texts(Script::new(5, &many, None, 16 << 20))[..] else { panic!() };
        assert_eq!(text.matches("ON DUPL").count(), 2);
    }
}
