//! The settings of `weir serve`, as flags, environment and file have them.

use cache::policy;
use kv::Error;
use kv::faults;
use kv::units::{Size, Span};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Serve an HTTP key-value store: a cache in front of a durable store
///
/// Every setting may also stand in the environment (WEIR_LISTEN, WEIR_STORE, …) and in a TOML file (listen = "…",
/// cache-bytes = "…"): a flag is stronger than the environment, and that is stronger than the file.
#[derive(clap::Args, Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Args {
    /// A TOML file with settings named like the flags
    #[arg(long, value_name = "FILE", env = "WEIR_CONFIG")]
    #[serde(skip)]
    pub(super) config: Option<PathBuf>,

    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT", env = "WEIR_LISTEN")]
    pub(super) listen: Option<SocketAddr>,

    /// Also serve the HTTP API of another system, at an address of its own: put-kv, crud, root or rpc. May be repeated; the
    /// variable and the file take a list
    #[arg(long, value_name = "NAME=ADDRESS:PORT", env = "WEIR_COMPAT", value_delimiter = ',')]
    #[serde(default)]
    pub(super) compat: Vec<String>,

    /// Allow an address that other machines can reach: there is neither TLS nor a password
    #[arg(long, env = "WEIR_INSECURE", num_args = 0..=1, default_missing_value = "true")]
    pub(super) insecure: Option<bool>,

    /// Where values are kept: fjall:DIRECTORY, postgres://USER@HOST:PORT/DATABASE, mysql://… alike, or memory:; given
    /// more than once, the keys are divided among the stores, whose order is theirs for good [default: fjall:./weir-data]
    #[arg(long, value_name = "URL", env = "WEIR_STORE", hide_env_values = true)]
    #[serde(default, deserialize_with = "one_or_more")]
    pub(super) store: Vec<String>,

    /// A replica to read from while a store is unavailable; such answers say so, and may be old
    #[arg(long, value_name = "URL", env = "WEIR_READ_FALLBACK", hide_env_values = true)]
    pub(super) read_fallback: Option<String>,

    /// Threads that serve connections [default: the cores this process may use]
    #[arg(long, value_name = "N", env = "WEIR_WORKERS")]
    pub(super) workers: Option<usize>,

    // Written by hand the list would miss the next policy.
    #[arg(long, value_name = "NAME", env = "WEIR_CACHE_POLICY")]
    #[arg(help = format!("Which row leaves a full cache: {} [default: lru]", policy::names()))]
    pub(super) cache_policy: Option<String>,

    /// Shadow policies: simulated on the same requests, without rows; their hit ratios are in /metrics
    #[arg(long, value_name = "NAME,…", env = "WEIR_SHADOW_POLICIES", value_delimiter = ',')]
    pub(super) shadow_policies: Option<Vec<String>>,

    /// Most rows in the cache; 0 for none [default: 1000000]
    #[arg(long, value_name = "N", env = "WEIR_CACHE_ENTRIES")]
    pub(super) cache_entries: Option<usize>,

    /// Most bytes in the cache, keys and bookkeeping included [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "WEIR_CACHE_BYTES")]
    pub(super) cache_bytes: Option<Size>,

    /// Locks the cache is divided by; with 1 the policy is followed exactly [default: 16]
    #[arg(long, value_name = "N", env = "WEIR_CACHE_SHARDS")]
    pub(super) cache_shards: Option<usize>,

    /// Longest value, up to 64MiB [default: 8MiB]
    #[arg(long, value_name = "SIZE", env = "WEIR_VALUE_BYTES")]
    pub(super) value_bytes: Option<Size>,

    /// Most connections; more are answered 503 [default: 20000]
    #[arg(long, value_name = "N", env = "WEIR_CONNECTIONS")]
    pub(super) connections: Option<usize>,

    /// Longest wait of a request for the store [default: 10s]
    #[arg(long, value_name = "TIME", env = "WEIR_STORE_TIMEOUT")]
    pub(super) store_timeout: Option<Span>,

    /// Most requests that may wait in one queue of the store [default: 10000]
    #[arg(long, value_name = "N", env = "WEIR_STORE_QUEUE")]
    pub(super) store_queue: Option<usize>,

    /// Threads that read from the store, each with a session [default: what suits the store]
    #[arg(long, value_name = "N", env = "WEIR_STORE_READ_WORKERS")]
    pub(super) store_read_workers: Option<usize>,

    /// Threads that write to the store, each with a session [default: what suits the store]
    #[arg(long, value_name = "N", env = "WEIR_STORE_WRITE_WORKERS")]
    pub(super) store_write_workers: Option<usize>,

    /// How long a start waits for another server to release the store [default: 10s]
    #[arg(long, value_name = "TIME", env = "WEIR_LEASE_WAIT")]
    pub(super) lease_wait: Option<Span>,

    /// How long a kept-alive connection may be idle [default: 75s]
    #[arg(long, value_name = "TIME", env = "WEIR_IDLE_TIMEOUT")]
    pub(super) idle_timeout: Option<Span>,

    /// How long a client may take to send a head [default: 10s]
    #[arg(long, value_name = "TIME", env = "WEIR_HEAD_TIMEOUT")]
    pub(super) head_timeout: Option<Span>,

    /// How long a shutdown waits for requests under way [default: 30s]
    #[arg(long, value_name = "TIME", env = "WEIR_DRAIN")]
    pub(super) drain: Option<Span>,

    /// Put Server-Timing on every answer of the data routes that is no failure
    #[arg(long, env = "WEIR_TIMING", num_args = 0..=1, default_missing_value = "true")]
    pub(super) timing: Option<bool>,

    /// A server for measurements: lets everybody clear it, make it compute, and turn batching off
    #[arg(long, env = "WEIR_LAB", num_args = 0..=1, default_missing_value = "true")]
    pub(super) lab: Option<bool>,

    /// off: one statement per request, as in servers without batches; only with --lab
    /// [default: on]
    #[arg(long, value_name = "on|off", env = "WEIR_BATCHING")]
    pub(super) batching: Option<String>,

    // As for the policies.
    #[arg(long, value_name = "NAME=VALUE,…", env = "WEIR_INJECT", value_delimiter = ',')]
    #[arg(help = format!("Inject faults: any of {}; only with --lab", faults::names()))]
    pub(super) inject: Option<Vec<String>>,

    /// Acknowledge writes before they are committed. LOSES DATA: how the tests show that they can see a loss
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub(super) acknowledge_early: bool,

    /// Drain and end when standard input does: the process that started this one holds the other end
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub(super) until_stdin_ends: bool,
}

impl Args {
    /// These settings, completed by those of `file`.
    fn or(mut self, file: Args) -> Args {
        macro_rules! complete {
            ($($option:ident)* ; $($list:ident)*) => {
                $(self.$option = self.$option.or(file.$option);)*
                $(if self.$list.is_empty() { self.$list = file.$list; })*
            };
        }
        complete! {
            listen insecure read_fallback workers cache_policy shadow_policies cache_entries cache_bytes
            cache_shards value_bytes connections store_timeout store_queue store_read_workers
            store_write_workers lease_wait idle_timeout head_timeout drain timing lab batching inject;
            compat store
        }
        self
    }

    /// These settings, completed by those of the file they name.
    ///
    /// Errors: the file cannot be read, or is no list of settings.
    pub(super) fn with_file(self) -> Result<Args, Error> {
        let Some(path) = self.config.clone() else { return Ok(self) };
        Ok(self.or(read_file(&path)?))
    }
}

fn read_file(path: &Path) -> Result<Args, Error> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Error::input(format!("cannot read {shown}: {error}")).hint("--config names a TOML file")
    })?;
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        let what = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        Error::input(format!("{shown}, line {line}: {what}")).hint("`weir serve --help` lists the settings")
    })
}

/// A URL, or a list of them.
fn one_or_more<'de, D: serde::Deserializer<'de>>(file: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a store's URL or a list of them")]
    enum Given {
        One(String),
        More(Vec<String>),
    }
    Ok(match Given::deserialize(file)? {
        Given::One(url) => vec![url],
        Given::More(urls) => urls,
    })
}
