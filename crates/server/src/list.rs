//! `GET /kv`: the keys in the order of their bytes, a page at a time.

use crate::budget::{Budget, Full, Reservation};
use crate::data::DataWriter;
use crate::error::Failure;
use crate::json::{self, Members};
use crate::query::Params;
use crate::reply::{JSON, NDJSON};
use crate::tiered::{Error, Kind, Tiers};
use crate::timeouts::End;
use crate::wire::Stream;
use kv::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::Value;
use std::time::Instant;
use store::{LIST_TIME_MAX, Listed, Listing, Page};

/// Most keys and prefixes of a page, and as many as it has if nothing is said.
const LIMIT_MAX: usize = 10_000;
const LIMIT_DEFAULT: usize = 1000;

/// What is listed.
#[derive(Debug)]
pub(super) struct ListQuery {
    pub(super) prefix: Vec<u8>,
    /// Keys that have it behind the prefix are listed as one, up to it.
    pub(super) delimiter: Vec<u8>,
    /// Where the page begins.
    pub(super) from: Vec<u8>,
    pub(super) limit: usize,
    pub(super) with_values: bool,
    pub(super) in_lines: bool,
}

/// A page, with what the delimiter made one of several keys.
#[derive(Default)]
pub(super) struct Entries {
    pub(super) rows: Vec<Listed>,
    pub(super) prefixes: Vec<Vec<u8>>,
    /// Of both together.
    bytes: usize,
    /// Where the next page begins.
    pub(super) next: Option<Vec<u8>>,
}

impl ListQuery {
    /// Of a query and the field `Accept`.
    pub(super) fn of(query: &[u8], accept: Option<&[u8]>) -> Result<ListQuery, Failure> {
        let known = ["prefix", "delimiter", "after", "limit", "values"];
        let params = Params::once(&known, query)?;
        let bad = |what: String| Failure::new(400, "bad_query", what);
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
        let limit = params.get("limit").map_or(Some(LIMIT_DEFAULT), number);
        let limit = limit.filter(|limit| (1..=LIMIT_MAX).contains(limit));
        let with_values = match params.get("values") {
            None | Some(b"false") => false,
            Some(b"true") => true,
            Some(other) => {
                return Err(bad(format!("values is true or false, not {}", other.escape_ascii())));
            }
        };
        let prefix = params.get("prefix").unwrap_or_default().to_vec();
        let from = match params.get("after") {
            None => prefix.clone(),
            Some(cursor) => {
                let from = json::of_cursor(cursor).filter(|from| from.starts_with(&prefix));
                let what =
                    "after is not the \"next\" of an earlier page of this list; begin again without it";
                from.ok_or_else(|| Failure::new(400, "bad_cursor", what))?
            }
        };
        Ok(ListQuery {
            delimiter: params.get("delimiter").unwrap_or_default().to_vec(),
            prefix,
            from,
            limit: limit.ok_or_else(|| bad(format!("limit is a number from 1 to {LIMIT_MAX}")))?,
            with_values,
            in_lines: json::prefers_lines(accept),
        })
    }

    pub(super) fn content_type(&self) -> &'static str {
        if self.in_lines { NDJSON } else { JSON }
    }

    /// Asks the stores, and writes what they have. The rows are counted in `reservation`.
    pub(super) async fn perform<S: Stream>(
        &self,
        tiers: &Tiers,
        reservation: &mut Reservation<&Budget>,
        mut out: DataWriter<'_, S>,
    ) -> Result<(), End> {
        let entries = self.entries(tiers, reservation).await;
        let Entries { rows, prefixes, next, .. } = entries.map_err(|error| Failure::of_read(&error))?;
        let next = next.map(|from| json::cursor(&from));
        out.link = next.as_ref().map(|cursor| self.link(cursor));
        let next = next.map_or(Value::Null, Value::from);
        // Between two entries, and behind the last.
        let (between, last): (&[u8], &[u8]) = if self.in_lines { (b"\n", b"\n") } else { (b",", b"") };
        if !self.in_lines {
            out.push(b"{\"keys\":[").await?;
        }
        let mut left = rows.len();
        for Listed { row, value_bytes } in rows {
            let of_row = Members { size: Some(value_bytes), ..Members::of(&row).with_key(row.key()) };
            out.push_object(&of_row, self.with_values.then(|| row.value())).await?;
            left -= 1;
            out.push(if left > 0 { between } else { last }).await?;
        }
        if !self.in_lines {
            out.push(format!("],\"next\":{next}").as_bytes()).await?;
            if !self.delimiter.is_empty() {
                out.push(b",\"prefixes\":[").await?;
            }
        }
        let mut left = prefixes.len();
        for prefix in prefixes {
            let mut object = b"{".to_vec();
            json::push_bytes(&mut object, "prefix", &prefix);
            object.push(b'}');
            left -= 1;
            object.extend_from_slice(if left > 0 { between } else { last });
            out.push(&object).await?;
        }
        let end = match () {
            () if self.in_lines => format!("{{\"next\":{next}}}\n"),
            () if self.delimiter.is_empty() => "}\n".to_owned(),
            () => "]}\n".to_owned(),
        };
        out.push(end.as_bytes()).await?;
        out.finish().await
    }

    /// The page. Its rows are counted in `reservation`.
    pub(super) async fn entries(
        &self,
        tiers: &Tiers,
        reservation: &mut Reservation<&Budget>,
    ) -> Result<Entries, Error> {
        let (until, started) = (successor(&self.prefix), Instant::now());
        let mut entries = Entries { next: Some(self.from.clone()), ..Entries::default() };
        while let Some(from) = entries.next.take() {
            let left = self.limit - entries.rows.len() - entries.prefixes.len();
            if left == 0 {
                entries.next = Some(from);
                break;
            }
            let now = Timestamp::default();
            let listing = Listing { from, until: until.clone(), limit: left, now, expired: false };
            let before = entries.bytes;
            let count = |bytes: usize| {
                reservation.raise(before + bytes).map_err(|_| Error::new(Kind::Overloaded, Full::WHAT))
            };
            let Page { rows, next } = tiers.list(&listing, self.with_values, count).await?;
            let is_whole = entries.add(rows, self);
            entries.next = next;
            // What is behind the last prefix comes next: the keys under it are not looked at.
            if !is_whole
                && entries.next.is_some()
                && let Some(last) = entries.prefixes.last()
            {
                entries.next = successor(last).filter(|next| until.as_ref().is_none_or(|until| next < until));
            }
            // A page with values may have ended early because it is large. Prefixes are found one by one, which may take long.
            let (has_rows, has_prefixes) = (!entries.rows.is_empty(), !entries.prefixes.is_empty());
            let is_late = started.elapsed() > LIST_TIME_MAX;
            if self.with_values && has_rows || is_late && (has_rows || has_prefixes) {
                break;
            }
        }
        Ok(entries)
    }

    /// Where the list goes on at `cursor`.
    fn link(&self, cursor: &str) -> String {
        let mut link = format!("/kv?after={cursor}&limit={}", self.limit);
        for (name, value) in [("prefix", &self.prefix), ("delimiter", &self.delimiter)] {
            if !value.is_empty() {
                link.push_str(&format!("&{name}={}", percent_encode(value, NON_ALPHANUMERIC)));
            }
        }
        if self.with_values {
            link.push_str("&values=true");
        }
        link
    }
}

impl Entries {
    /// Adds rows, those of one prefix together; whether the last of them is a key of its own.
    fn add(&mut self, rows: Vec<Listed>, query: &ListQuery) -> bool {
        if query.delimiter.is_empty() {
            self.bytes += rows.iter().map(|listed| listed.row.bytes()).sum::<usize>();
            self.rows.extend(rows);
            return true;
        }
        let mut is_key = true;
        for listed in rows {
            let behind = &listed.row.key()[query.prefix.len()..];
            let found = memchr::memmem::find(behind, &query.delimiter);
            is_key = found.is_none();
            match found.map(|at| &listed.row.key()[..query.prefix.len() + at + query.delimiter.len()]) {
                Some(common) if self.prefixes.last().is_none_or(|last| last != common) => {
                    self.bytes += common.len();
                    self.prefixes.push(common.to_vec());
                }
                Some(_) => {}
                None => {
                    self.bytes += listed.row.bytes();
                    self.rows.push(listed);
                }
            }
        }
        is_key
    }
}

/// The first key behind all that begin with `prefix`; `None` if there is none.
pub(super) fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut next = prefix[..=last].to_vec();
    next[last] += 1;
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_understood_or_refused() {
        let of = |query: &str| ListQuery::of(query.as_bytes(), None);
        let query = of("prefix=a%2F&delimiter=/&limit=10&values=true").unwrap();
        assert_eq!((&query.prefix[..], &query.from[..], query.limit), (&b"a/"[..], &b"a/"[..], 10));
        let next = of(&format!("prefix=a%2F&after={}", json::cursor(b"a/b\xff"))).unwrap();
        assert_eq!(next.from, b"a/b\xff");
        // A page that took too long may end with the longest key.
        let behind = [&[b'k'; kv::KEY_BYTES_MAX][..], b"\0"].concat();
        assert_eq!(of(&format!("after={}", json::cursor(&behind))).unwrap().from, behind);
        for (wrong, code) in [
            ("limit=0", "bad_query"),
            ("limit=10001", "bad_query"),
            ("limit=x", "bad_query"),
            ("values=1", "bad_query"),
            ("prefx=a", "bad_query"),
            ("prefix=%zz", "bad_query"),
            ("prefix=a&prefix=b", "bad_query"),
            ("after=*", "bad_cursor"),
            ("prefix=b&after=YQ", "bad_cursor"),
        ] {
            assert_eq!(of(wrong).unwrap_err().code, code, "{wrong}");
        }
    }

    #[test]
    fn the_successor_is_behind_all_keys_of_a_prefix() {
        for (prefix, next) in
            [(&b"a"[..], Some(&b"b"[..])), (b"a\xff", Some(b"b")), (b"", None), (b"\xff\xff", None)]
        {
            assert_eq!(successor(prefix).as_deref(), next, "{}", prefix.escape_ascii());
        }
    }
}
