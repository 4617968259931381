//! `put-kv`: values under `/kv/{key}`; the answer to a read says where it was found.

use super::counts::{Count, Figures};
use super::reply::Reply;
use super::{Asked, Done, Operation, key};
use crate::error::Failure;
use crate::tiered::Served;
use http1::request::Method;

pub(super) fn route(asked: &mut Asked) -> Result<Operation, Reply> {
    let encoded = asked.path.strip_prefix(b"/kv/").filter(|rest| !rest.is_empty());
    match (asked.method, encoded) {
        (Method::Get, None) if asked.path == b"/stats" => Ok(Operation::Figures),
        (Method::Get, Some(rest)) => Ok(Operation::Get(key(rest)?)),
        // Only reads may have a slash in the key.
        (Method::Put, Some(rest)) if !rest.contains(&b'/') => {
            Ok(Operation::Put { key: key(rest)?, value: std::mem::take(&mut asked.body) })
        }
        (Method::Delete, Some(rest)) => Ok(Operation::Delete(key(rest)?)),
        _ => Err(Reply::empty(404)),
    }
}

pub(super) fn tell(operation: &Operation, done: Result<Done, Failure>) -> Reply {
    match (operation, done) {
        (_, Err(failure)) => Reply::exception(failure.detail),
        (_, Ok(Done::Read { row: Some(row), served: Served::Hit })) => Reply::value("CACHE HIT: ", row),
        (_, Ok(Done::Read { row: Some(row), .. })) => Reply::value("DB HIT: ", row),
        (_, Ok(Done::Read { row: None, .. })) => Reply::text(404, "Not found"),
        (Operation::Delete(_), _) => Reply::text(200, "DELETE OK"),
        (_, Ok(Done::Figures(figures))) => Reply::text(200, stats(&figures)),
        _ => Reply::text(200, "PUT OK"),
    }
}

fn stats(figures: &Figures) -> String {
    format!(
        "cache_hits={}\ncache_misses={}\nhit_rate={:.6}%\n",
        figures.of(Count::Hits),
        figures.of(Count::Misses),
        figures.hit_rate()
    )
}
