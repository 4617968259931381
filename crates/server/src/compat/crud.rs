//! `crud`: one route for each operation, keys and values in queries and forms.
//!
//! The status of a write says whether the key was in the cache, not whether it was in the store. The cache is asked just before the
//! write: of two first creations at once, both may be answered `Inserted`.

use super::Handled;
use super::call::{Call, key};
use super::reply::Reply;
use super::statistics::Counts;
use crate::error::Failure;
use http1::request::Method;

pub(super) async fn handle(call: Call) -> Handled {
    let failed = |_: Failure| Reply::text(500, "DB Error\n");
    let not_deleted = |_: Failure| Reply::text(500, "Database error\n");
    let name = call.params.get("key").unwrap_or_default();
    let value = || call.params.get("value").unwrap_or_default().to_vec();
    match (call.method, call.path.as_slice()) {
        (Method::Post, b"/create") => Ok(match call.put(&key(name)?, value()).await.map_err(failed)? {
            true => Reply::text(200, "Updated\n"),
            false => Reply::text(201, "Inserted\n"),
        }),
        // There is nothing under the empty key.
        (Method::Get, b"/get") if name.is_empty() => Err(absent()),
        (Method::Get, b"/get") => match call.get(&key(name)?).await.map_err(failed)? {
            (Some(row), _) => Ok(Reply::value("", &row)),
            (None, _) => Err(absent()),
        },
        (Method::Delete, b"/delete") if name.is_empty() => Err(deleted(false)),
        (Method::Delete, b"/delete") => Ok(deleted(call.delete(&key(name)?).await.map_err(not_deleted)?)),
        (Method::Post, b"/preload") => {
            call.preload(&key(name)?, value()).await.map_err(failed)?;
            Ok(Reply::text(200, "Preloaded"))
        }
        (Method::Delete, b"/clear") => {
            call.clear().await.map_err(not_deleted)?;
            Ok(Reply::text(200, "Database and cache cleared.\n"))
        }
        (Method::Get, b"/cache-stats") => Ok(Reply::text(200, stats(&call.counts()))),
        _ => Err(Reply::empty(404)),
    }
}

fn absent() -> Reply {
    Reply::text(404, "Not found")
}

fn deleted(was_cached: bool) -> Reply {
    Reply::text(if was_cached { 200 } else { 404 }, "Deleted\n")
}

fn stats(counts: &Counts) -> String {
    let Counts { hits, misses, .. } = counts;
    let rate = counts.hit_rate();
    format!("Total Accesses:{}\nHits:{hits}\nMisses:{misses}\nHitRate:{rate:.6}%\n", hits + misses)
}
