//! `crud`: one route for each operation, keys and values in queries and forms.
//!
//! The statuses of writes tell whether the key was in the cache, not whether it was in the store. The cache is asked just
//! before the write: of two first creations at once, both may be told `Inserted`.

use super::counts::{Count, Figures};
use super::reply::Reply;
use super::{Asked, Done, Operation, key};
use crate::error::Failure;
use http1::request::Method;

pub(super) fn route(asked: &mut Asked) -> Result<Operation, Reply> {
    let name = asked.params.get("key").unwrap_or_default();
    let value = || asked.params.get("value").unwrap_or_default().to_vec();
    match (asked.method, asked.path.as_slice()) {
        (Method::Post, b"/create") => Ok(Operation::Put { key: key(name)?, value: value() }),
        // There is nothing under no key.
        (Method::Get, b"/get") if name.is_empty() => Err(absent()),
        (Method::Get, b"/get") => Ok(Operation::Get(key(name)?)),
        (Method::Delete, b"/delete") if name.is_empty() => Err(deleted(false)),
        (Method::Delete, b"/delete") => Ok(Operation::Delete(key(name)?)),
        (Method::Post, b"/preload") => Ok(Operation::Preload { key: key(name)?, value: value() }),
        (Method::Delete, b"/clear") => Ok(Operation::Clear),
        (Method::Get, b"/cache-stats") => Ok(Operation::Figures),
        _ => Err(Reply::empty(404)),
    }
}

pub(super) fn tell(operation: &Operation, done: Result<Done, Failure>) -> Reply {
    match (operation, done) {
        (Operation::Delete(_) | Operation::Clear, Err(_)) => Reply::text(500, "Database error\n"),
        (_, Err(_)) => Reply::text(500, "DB Error\n"),
        (Operation::Preload { .. }, _) => Reply::text(200, "Preloaded"),
        (Operation::Delete(_), Ok(Done::Written { was_cached })) => deleted(was_cached),
        (_, Ok(Done::Written { was_cached: true })) => Reply::text(200, "Updated\n"),
        (_, Ok(Done::Read { row: Some(row), .. })) => Reply::value("", row),
        (_, Ok(Done::Read { row: None, .. })) => absent(),
        (_, Ok(Done::Cleared)) => Reply::text(200, "Database and cache cleared.\n"),
        (_, Ok(Done::Figures(figures))) => Reply::text(200, stats(&figures)),
        _ => Reply::text(201, "Inserted\n"),
    }
}

fn absent() -> Reply {
    Reply::text(404, "Not found")
}

fn deleted(was_cached: bool) -> Reply {
    Reply::text(if was_cached { 200 } else { 404 }, "Deleted\n")
}

fn stats(figures: &Figures) -> String {
    let (hits, misses) = (figures.of(Count::Hits), figures.of(Count::Misses));
    let rate = figures.hit_rate();
    format!("Total Accesses:{}\nHits:{hits}\nMisses:{misses}\nHitRate:{rate:.6}%\n", hits + misses)
}
