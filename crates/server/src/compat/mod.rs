//! Compatibility APIs: the HTTP interfaces of four other systems over the same tiers, so that their load generators run against weir.
//!
//! Each API is one file with two pure functions: from a request to an operation, and from what became of it to an
//! answer. All four systems stand on the same C++ library (cpp-httplib), so heads, limits on forms and the life of a
//! connection are shared, in `connection` and `reply`. The plain interface knows nothing of this.

mod connection;
mod counts;
mod crud;
mod put_kv;
mod reply;
mod root;
mod rpc;

pub(super) use connection::Connection;
pub(super) use reply::refuse_connection;

use super::error::Failure;
use super::query::Params;
use crate::tiered::Served;
use counts::{Counts, Figures, Hashes};
use http1::request::Method;
use kv::{Key, Row};
use parking_lot::Mutex;
use reply::Reply;
use std::net::SocketAddr;

/// A compatibility API by name.
#[derive(Debug)]
pub struct CompatApi {
    /// As written after `--compat`.
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// The value of `Keep-Alive` on an answer that leaves the connection open.
    keep_alive: &'static str,
    /// Whether an answer of status 400 or more ends the connection.
    failure_closes: bool,
    /// Whether it has operations for the pool that computes.
    pub(super) computes: bool,
    /// Whether anybody who reaches it may clear the store.
    pub clears: bool,
    /// What a request asks for, or its answer where nothing needs to be done.
    route: fn(&mut Asked) -> Result<Operation, Reply>,
    /// The answer to an operation.
    tell: fn(&Operation, Result<Done, Failure>) -> Reply,
}

/// Every compatibility API.
pub const COMPAT_APIS: &[CompatApi] = &[
    CompatApi {
        name: "put-kv",
        about: "PUT, GET and DELETE on /kv/{key}; a read says CACHE HIT or DB HIT",
        keep_alive: "timeout=5, max=100",
        failure_closes: true,
        computes: false,
        clears: false,
        route: put_kv::route,
        tell: put_kv::tell,
    },
    CompatApi {
        name: "crud",
        about: "POST /create, GET /get, DELETE /delete with forms and queries; /preload, /clear and /cache-stats",
        keep_alive: "timeout=5, max=100",
        // Version 0.26 of the library; the others are later.
        failure_closes: false,
        computes: false,
        clears: true,
        route: crud::route,
        tell: crud::tell,
    },
    CompatApi {
        name: "root",
        about: "POST, GET and DELETE on /{key}; /metrics as text",
        keep_alive: "timeout=0, max=100",
        failure_closes: true,
        computes: false,
        clears: false,
        route: root::route,
        tell: root::tell,
    },
    CompatApi {
        name: "rpc",
        about: "/kv/create, /kv/read and /kv/delete with queries, /compute/prime and /compute/hash, answers in JSON",
        keep_alive: "timeout=5, max=100",
        failure_closes: true,
        computes: true,
        clears: false,
        route: rpc::route,
        tell: rpc::tell,
    },
];

/// The API called `name`.
pub fn find(name: &str) -> Option<&'static CompatApi> {
    COMPAT_APIS.iter().find(|row| row.name == name)
}

/// A compatibility API and its address.
#[derive(Clone, Copy, Debug)]
pub struct CompatListener {
    /// Which.
    pub api: &'static CompatApi,
    /// Port 0 for any free one.
    pub listen: SocketAddr,
}

/// What the workers share of an API.
pub(super) struct CompatState {
    api: &'static CompatApi,
    counts: Counts,
    hashes: Mutex<Hashes>,
    /// Most rows the cache may hold; one API reports it.
    cache_entries_max: usize,
}

impl CompatState {
    pub(super) fn new(api: &'static CompatApi, cache_entries_max: usize) -> CompatState {
        CompatState { api, counts: Counts::default(), hashes: Mutex::default(), cache_entries_max }
    }
}

/// A request, as far as the APIs look at it.
struct Asked {
    /// HEAD is routed like GET.
    method: Method,
    method_name: &'static str,
    /// Decoded.
    path: Vec<u8>,
    /// Of the query, then of the form.
    params: Params,
    body: Vec<u8>,
}

/// What is to be done.
enum Operation {
    Get(Key),
    Put {
        key: Key,
        value: Vec<u8>,
    },
    /// A put whose answer tells the value it replaced.
    Exchange {
        key: Key,
        value: Vec<u8>,
    },
    Delete(Key),
    /// Into the store and not into the cache.
    Preload {
        key: Key,
        value: Vec<u8>,
    },
    Clear,
    /// The first primes, this many.
    Primes(usize),
    Hash(Vec<u8>),
    Figures,
}

/// What became of it.
enum Done {
    Read { row: Option<Row>, served: Served },
    Written { was_cached: bool },
    Exchanged { old: Option<Row> },
    Cleared,
    Primes(Vec<u32>),
    Hash { hash: u32, was_known: bool },
    Figures(Figures),
}

/// The key, or the answer to one that is empty or too long.
fn key(bytes: &[u8]) -> Result<Key, Reply> {
    Key::new(bytes).ok_or(Reply::empty(400))
}

/// The part of a hundred; none of nothing.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
