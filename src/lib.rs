//! weir: an HTTP key-value store in tiers, and the instrument that measures it.
//!
//! Read the modules in this order; each may use only those above it, as ARCHITECTURE.md draws it and
//! `tests/it/tidy.rs` holds it. `server`, `load`, `lab`, `link`, `responder` and `selftest` are programs that meet only over HTTP
//! and JSON, in the terms of [`proto`].

pub mod kv;
pub mod units;
pub mod counters;
pub mod station;
pub mod strain;
pub mod proto;
pub mod http1;

pub mod cache;
pub mod store;
pub mod tiered;

pub mod server;
pub mod load;
pub mod lab;
pub mod link;
pub mod responder;
pub mod selftest;

pub mod cmd;
