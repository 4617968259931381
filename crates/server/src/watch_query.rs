//! What `GET /watch` asks for, and the ids of its events.

use super::error::Failure;
use super::query::Params;
use std::io::Write;
use store::Position;

/// What is watched.
#[derive(Debug)]
pub(super) struct WatchQuery {
    pub(super) prefix: Vec<u8>,
    /// Where the client is, in each store; `None`: from now on.
    pub(super) since: Option<Vec<Position>>,
}

impl WatchQuery {
    /// Of a query and the field `Last-Event-ID`, which counts if both say where.
    pub(super) fn of(query: &[u8], last_event_id: Option<&[u8]>) -> Result<WatchQuery, Failure> {
        let params = Params::once(&["prefix", "since"], query)?;
        let cursors = [last_event_id, params.get("since")];
        let since = cursors.into_iter().flatten().find(|cursor| !cursor.is_empty());
        Ok(WatchQuery {
            prefix: params.get("prefix").unwrap_or_default().to_vec(),
            since: since.map(|cursor| positions(cursor).ok_or_else(bad_cursor)).transpose()?,
        })
    }
}

pub(super) fn bad_cursor() -> Failure {
    let what = "this is not the id of an event of this server; leave it out, and list the keys anew";
    Failure::new(400, "bad_cursor", what)
}

fn positions(cursor: &[u8]) -> Option<Vec<Position>> {
    std::str::from_utf8(cursor).ok()?.split('.').map(|position| position.parse().ok()).collect()
}

/// Writes the id that says where a client is.
pub(super) fn push_cursor(text: &mut Vec<u8>, positions: &[Position]) {
    for (index, position) in positions.iter().enumerate() {
        let separator = if index > 0 { "." } else { "" };
        // Memory takes everything.
        let _ = write!(text, "{separator}{position}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_understood_or_refused() {
        let query = WatchQuery::of(b"prefix=a%2F&since=1.ff-2", None).unwrap();
        assert_eq!(query.prefix, b"a/");
        assert_eq!(query.since, Some(vec![Position::behind(1), Position { block: 255, records: 2 }]));
        let header = WatchQuery::of(b"since=1", Some(b"2")).unwrap();
        assert_eq!(header.since, Some(vec![Position::behind(2)]));
        let empty = WatchQuery::of(b"since=1", Some(b"")).unwrap();
        assert_eq!(empty.since, Some(vec![Position::behind(1)]));
        assert_eq!(WatchQuery::of(b"since=", None).unwrap().since, None);
        for (wrong, code) in [
            ("since=x", "bad_cursor"),
            ("since=1.", "bad_cursor"),
            ("after=1", "bad_query"),
            ("prefix=%4", "bad_query"),
            ("since=1&since=1", "bad_query"),
        ] {
            assert_eq!(WatchQuery::of(wrong.as_bytes(), None).unwrap_err().code, code, "{wrong}");
        }
    }
}
