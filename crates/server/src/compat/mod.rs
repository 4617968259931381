//! Compatibility APIs: the HTTP interfaces of other systems over the same tiers, so that their clients run against weir.
//!
//! `s3` is a folder with a connection of its own. Each other API is one file with one function, from a request to its reply. These
//! four systems use the same C++ library (cpp-httplib), so heads, limits of forms and the life of a connection are shared, in
//! `connection` and `reply`; what the functions may ask of the tiers is in `call`. The plain interface knows nothing of this.

mod call;
mod connection;
mod crud;
mod put_kv;
mod reply;
mod root;
mod rpc;
mod s3;
mod statistics;

pub(super) use connection::Connection;
pub(super) use reply::refuse_connection;
pub use s3::S3Credentials;
#[cfg(feature = "test-support")]
pub use s3::fuzz;
pub(super) use s3::{S3Connection, S3State, Times, write_failure};
pub(super) use statistics::Statistics;

use crate::hosts::Hosts;
use crate::listen::Listen;
use call::Call;
use reply::Reply;
use std::pin::Pin;
use std::sync::Arc;

/// A compatibility API by name.
#[derive(Debug)]
pub struct CompatApi {
    /// As written after `--compat`.
    pub name: &'static str,
    /// The value of `Keep-Alive` on an answer that leaves the connection open.
    keep_alive: &'static str,
    /// Whether an answer of status 400 or more ends the connection.
    failure_closes: bool,
    /// Whether it needs the compute pool.
    pub(super) computes: bool,
    /// Whether it has a route that clears the store.
    pub clears: bool,
    /// Whether it knows who asks, and speaks TLS.
    pub is_s3: bool,
    handle: fn(Call) -> Pin<Box<dyn Future<Output = Handled>>>,
}

/// The reply to a request; the error is one that needed no further work.
type Handled = Result<Reply, Reply>;

/// What most of the APIs have in common.
const USUAL: CompatApi = CompatApi {
    name: "",
    keep_alive: "timeout=5, max=100",
    failure_closes: true,
    computes: false,
    clears: false,
    is_s3: false,
    handle: |_| Box::pin(async { Err(Reply::empty(404)) }),
};

/// Every compatibility API.
pub const COMPAT_APIS: &[CompatApi] = &[
    CompatApi { name: "put-kv", handle: |call| Box::pin(put_kv::handle(call)), ..USUAL },
    CompatApi {
        name: "crud",
        // Version 0.26 of the library; the others are later.
        failure_closes: false,
        clears: true,
        handle: |call| Box::pin(crud::handle(call)),
        ..USUAL
    },
    CompatApi {
        name: "root",
        keep_alive: "timeout=0, max=100",
        handle: |call| Box::pin(root::handle(call)),
        ..USUAL
    },
    CompatApi { name: "rpc", computes: true, handle: |call| Box::pin(rpc::handle(call)), ..USUAL },
    CompatApi { name: "s3", is_s3: true, ..USUAL },
];

/// A compatibility API and its address.
#[derive(Clone, Debug)]
pub struct CompatListener {
    /// Which.
    pub api: &'static CompatApi,
    /// Where.
    pub listen: Listen,
}

/// What the workers share of an API at one of its addresses.
pub(super) struct CompatState {
    pub(super) api: &'static CompatApi,
    pub(super) statistics: Arc<Statistics>,
    /// Those that its listener answers for.
    pub(super) hosts: Option<Hosts>,
}
