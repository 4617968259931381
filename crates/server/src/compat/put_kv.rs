//! `put-kv`: values under `/kv/{key}`; the answer to a read says where it was found.

use super::Handled;
use super::call::{Call, key};
use super::reply::Reply;
use super::statistics::Counts;
use crate::error::Failure;
use crate::tiered::Served;
use http1::request::Method;

pub(super) async fn handle(mut call: Call) -> Handled {
    let failed = |failure: Failure| Reply::exception(failure.detail);
    let name = call.path.strip_prefix(b"/kv/").filter(|rest| !rest.is_empty());
    match (call.method, name) {
        (Method::Get, None) if call.path == b"/stats" => Ok(Reply::text(200, stats(&call.counts()))),
        (Method::Get, Some(name)) => Ok(match call.get(&key(name)?).await.map_err(failed)? {
            (None, _) => Reply::text(404, "Not found"),
            (Some(row), Served::Hit) => Reply::value("CACHE HIT: ", &row),
            (Some(row), _) => Reply::value("DB HIT: ", &row),
        }),
        // Only reads may have a slash in the key.
        (Method::Put, Some(name)) if !name.contains(&b'/') => {
            let (key, value) = (key(name)?, std::mem::take(&mut call.body));
            call.put(&key, value).await.map_err(failed)?;
            Ok(Reply::text(200, "PUT OK"))
        }
        (Method::Delete, Some(name)) => {
            call.delete(&key(name)?).await.map_err(failed)?;
            Ok(Reply::text(200, "DELETE OK"))
        }
        _ => Err(Reply::empty(404)),
    }
}

fn stats(counts: &Counts) -> String {
    let Counts { hits, misses, .. } = counts;
    format!("cache_hits={hits}\ncache_misses={misses}\nhit_rate={:.6}%\n", counts.hit_rate())
}
