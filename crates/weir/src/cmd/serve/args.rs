//! The settings of `weir serve`: flags, environment variables, and the lines of a file.

use crate::cmd::{Cli, Command, read_text, usage, without_password};
use cache::policy::{self, PolicyRow};
use clap::builder::RangedU64ValueParser;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches};
use kv::faults::FAULTS;
use kv::units::{Size, Span};
use kv::{Error, VALUE_BYTES_MAX, line_number, named, one_line};
use server::{COMPAT_APIS, CompatListener, Listen};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;
use store::Batching;
use toml::Spanned;

/// Serve an HTTP key-value store: a cache in front of a durable store
///
/// Settings come from flags, environment variables (WEIR_LISTEN, WEIR_STORE, …) and a TOML file (listen = "…",
/// cache-bytes = "…"). A flag overrides the variable, a variable overrides the file. A setting that is true or
/// false is false by default, and true if its flag is given without a value.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A TOML file with settings named like the flags
    #[arg(long, value_name = "FILE", env = "WEIR_CONFIG")]
    pub(super) config: Option<PathBuf>,

    /// Where to listen: an address or a name with a port, or unix:PATH for a Unix socket; port 0 takes a free one. Repeatable; in
    /// WEIR_LISTEN separate them by commas, in the file write a list
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        env = "WEIR_LISTEN",
        value_delimiter = ',',
        default_value = "127.0.0.1:8080"
    )]
    pub(super) listen: Vec<Listen>,

    /// Speak HTTPS with the certificate chain in this file (PEM), except on Unix sockets, on a loopback --ops-listen, and on every
    /// --compat but s3. The file is read again when it changes, and on SIGHUP
    #[arg(long, value_name = "FILE", env = "WEIR_TLS_CERT")]
    pub(super) tls_cert: Option<PathBuf>,

    /// The private key of the certificate (PEM)
    #[arg(long, value_name = "FILE", env = "WEIR_TLS_KEY")]
    pub(super) tls_key: Option<PathBuf>,

    /// Accept only clients with a certificate that a CA in this file has signed (PEM)
    #[arg(long, value_name = "FILE", env = "WEIR_TLS_CLIENT_CA")]
    pub(super) tls_client_ca: Option<PathBuf>,

    /// Require a bearer token for requests, except for /healthz, /readyz, /openapi.json and the page /dashboard. The file says what
    /// each token allows; `weir token` makes one. The file is read again when it changes, and on SIGHUP
    #[arg(long, value_name = "FILE", env = "WEIR_TOKENS")]
    pub(super) tokens: Option<PathBuf>,

    /// Serve /metrics, /stats and /dashboard at this address, and no longer at --listen. /healthz, /readyz and /openapi.json are at
    /// both, all other routes only at --listen. On a loopback address or a Unix socket it needs no token and has no TLS. Repeatable; in WEIR_OPS_LISTEN separate them by commas, in the file write a list
    #[arg(long, value_name = "ADDRESS:PORT", env = "WEIR_OPS_LISTEN", value_delimiter = ',')]
    pub(super) ops_listen: Vec<Listen>,

    /// Also serve the HTTP API of another system at this address; NAME is s3 (a subset of Amazon S3, with --s3-credentials), or put-kv, crud, root or rpc, the APIs of four of the student reports in docs/reports.md.
    /// These four have neither tokens nor TLS: they are refused together with --tokens, and, without --insecure, at an address that other machines can reach. Repeatable; in WEIR_COMPAT separate them by commas, in the file write a list
    #[arg(long, value_name = "NAME=ADDRESS:PORT", env = "WEIR_COMPAT", value_delimiter = ',', value_parser = compat_at)]
    pub(super) compat: Vec<CompatListener>,

    /// Who may use --compat s3: the bucket's name, and access keys, secret keys and what they allow (docs/reference.md). The file is
    /// read again when it changes, and on SIGHUP
    #[arg(long, value_name = "FILE", env = "WEIR_S3_CREDENTIALS")]
    pub(super) s3_credentials: Option<PathBuf>,

    /// Accept only this name, localhost, 127.0.0.1, [::1] and the addresses of --listen in the Host header, and in the Origin of web pages. Without
    /// this flag, a server on a loopback address accepts all of these but NAME, and one on any other address every name. Repeatable; in WEIR_HOST separate them by commas, in
    /// the file write a list
    #[arg(long, value_name = "NAME", env = "WEIR_HOST", value_delimiter = ',', value_parser = host_name)]
    pub(super) host: Vec<String>,

    /// Allow addresses that other machines can reach even if TLS or tokens are missing; by default the start is refused
    #[arg(long, env = "WEIR_INSECURE", num_args = 0..=1, default_value_t, hide_default_value = true, default_missing_value = "true")]
    pub(super) insecure: bool,

    /// Where values are kept: file:DIRECTORY, postgres://USER@HOST:PORT/DATABASE (for failover HOST:PORT,HOST:PORT), mysql://USER@HOST:PORT/DATABASE, or memory: (not durable). To serve a table that exists already, add ?table=NAME. For TLS and passwords from files see docs/reference.md.
    /// Given more than once (in WEIR_STORE separated by blanks), the keys are divided among the stores; always give them in the same order
    #[arg(
        long,
        value_name = "URL",
        env = "WEIR_STORE",
        hide_env_values = true,
        default_value = "file:./weir-data"
    )]
    pub(super) store: Vec<String>,

    /// Other programs also write the existing table that --store names (…?table=NAME): nothing is cached, and every read asks the database
    #[arg(long, env = "WEIR_FOREIGN_WRITERS", num_args = 0..=1, default_value_t, hide_default_value = true, default_missing_value = "true")]
    pub(super) foreign_writers: bool,

    /// Accept a --store with several hosts and no synchronous standby; a failover can then lose acknowledged writes
    #[arg(long, env = "WEIR_ALLOW_ASYNCHRONOUS_FAILOVER", num_args = 0..=1, default_value_t, hide_default_value = true, default_missing_value = "true")]
    pub(super) allow_asynchronous_failover: bool,

    /// A copy, made by `weir replica init` (not a standby of PostgreSQL itself), of all stores, to read from while a store is unavailable; such answers may be stale and are marked detail=replica in Cache-Status
    #[arg(long, value_name = "URL", env = "WEIR_READ_FALLBACK", hide_env_values = true)]
    pub(super) read_fallback: Option<String>,

    /// Threads that serve connections [default: the cores this process may use]
    #[arg(long, value_name = "N", env = "WEIR_WORKERS", value_parser = at_least_one())]
    pub(super) workers: Option<usize>,

    // Written by hand the list would miss the next policy, here and below.
    #[arg(long, value_name = "NAME", env = "WEIR_CACHE_POLICY", default_value = "lru", value_parser = policy_named)]
    #[arg(help = format!("Eviction policy: {}", policy::names()))]
    pub(super) cache_policy: &'static PolicyRow,

    /// Eviction policies to simulate on the same requests, to compare their hit ratios (in /stats and /metrics). A simulation stores a hash
    /// and the size of each value, not the value
    #[arg(long, value_name = "NAME,…", env = "WEIR_SHADOW_POLICIES", value_delimiter = ',', value_parser = policy_named)]
    pub(super) shadow_policies: Vec<&'static PolicyRow>,

    /// Maximum number of values in the cache; 0 switches the cache off
    #[arg(long, value_name = "N", env = "WEIR_CACHE_ENTRIES", default_value = "1000000")]
    pub(super) cache_entries: usize,

    /// Maximum size of the cache, keys and bookkeeping included
    #[arg(long, value_name = "SIZE", env = "WEIR_CACHE_BYTES", default_value = "256MiB")]
    pub(super) cache_bytes: Size,

    /// Number of parts of the cache, each with its own lock; with more than 1, each part evicts on its own
    #[arg(long, value_name = "N", env = "WEIR_CACHE_SHARDS", default_value = "16", value_parser = at_least_one())]
    pub(super) cache_shards: usize,

    /// Maximum size of a value, up to 64MiB
    #[arg(long, value_name = "SIZE", env = "WEIR_VALUE_BYTES", default_value = "8MiB", value_parser = value_bytes)]
    pub(super) value_bytes: usize,

    /// Memory for the bodies and values of requests in progress; those of 36KiB or less do not count. Requests that would exceed it are
    /// answered 503 [default: a quarter of what remains of the memory of the machine, or of the control group, after --cache-bytes; at least 64MiB]
    #[arg(long, value_name = "SIZE", env = "WEIR_MEMORY_BUDGET")]
    pub(super) memory_budget: Option<Size>,

    /// Maximum number of connections; more are answered 503 [default: 20000, or fewer if the limit of open files is lower]
    #[arg(long, value_name = "N", env = "WEIR_CONNECTIONS", value_parser = at_least_one())]
    pub(super) connections: Option<usize>,

    /// Maximum time a request waits for the store
    #[arg(long, value_name = "TIME", env = "WEIR_STORE_TIMEOUT", default_value = "10s", value_parser = positive)]
    pub(super) store_timeout: Duration,

    /// Maximum number of requests in the queue of each store worker; more are answered 503
    #[arg(long, value_name = "N", env = "WEIR_STORE_QUEUE", default_value = "10000", value_parser = at_least_one())]
    pub(super) store_queue: usize,

    /// Threads that read from the store, each with its own connection to a database [default: depends on the store, see docs/reference.md]
    #[arg(long, value_name = "N", env = "WEIR_STORE_READ_WORKERS", value_parser = at_least_one())]
    pub(super) store_read_workers: Option<usize>,

    /// Threads that write to the store, each with its own connection to a database [default: depends on the store, see docs/reference.md]
    #[arg(long, value_name = "N", env = "WEIR_STORE_WRITE_WORKERS", value_parser = at_least_one())]
    pub(super) store_write_workers: Option<usize>,

    /// How long a start waits for another server to release the store
    #[arg(long, value_name = "TIME", env = "WEIR_LEASE_WAIT", default_value = "10s")]
    pub(super) lease_wait: Span,

    /// If another server owns the store, wait, and take over when that server stops or loses its lease; at a shutdown, hand the store over to a server that also waits with --standby
    #[arg(long, env = "WEIR_STANDBY", num_args = 0..=1, default_value_t, hide_default_value = true, default_missing_value = "true")]
    pub(super) standby: bool,

    /// Keep events (changes of keys) in the store for this long, so that clients of /watch can resume after a restart [default: not at all]
    #[arg(long, value_name = "TIME", env = "WEIR_EVENT_LOG", value_parser = positive)]
    pub(super) event_log: Option<Duration>,

    /// Maximum size of the event log in the store. The latest events are also in memory, up to the same size [default: 64MiB]
    #[arg(long, value_name = "SIZE", env = "WEIR_EVENT_LOG_BYTES")]
    pub(super) event_log_bytes: Option<Size>,

    /// How long a kept-alive connection may be idle
    #[arg(long, value_name = "TIME", env = "WEIR_IDLE_TIMEOUT", default_value = "75s", value_parser = positive)]
    pub(super) idle_timeout: Duration,

    /// How long a client may take to send the header section. A body must arrive at 1 KiB per second or more, averaged over each interval of this length
    #[arg(long, value_name = "TIME", env = "WEIR_HEAD_TIMEOUT", default_value = "10s", value_parser = positive)]
    pub(super) head_timeout: Duration,

    /// How long a shutdown waits for requests in progress
    #[arg(long, value_name = "TIME", env = "WEIR_DRAIN", default_value = "30s")]
    pub(super) drain: Span,

    /// Log requests to this file, or - for standard output: one JSON object per line, with the key, without values and tokens
    /// (docs/operations.md). If it is renamed or removed (logrotate), a new file is made
    #[arg(long, value_name = "FILE|-", env = "WEIR_ACCESS_LOG")]
    pub(super) access_log: Option<PathBuf>,

    /// Share of the requests that is logged, as in 0.01. Failures other than 404 and 412 are always logged, up to --access-log-rate
    #[arg(long, value_name = "SHARE", env = "WEIR_ACCESS_LOG_SAMPLE", default_value = "1", value_parser = part)]
    pub(super) access_log_sample: f64,

    /// Maximum number of lines of the access log in a second; more are dropped and counted
    #[arg(long, value_name = "N", env = "WEIR_ACCESS_LOG_RATE", default_value = "10000")]
    pub(super) access_log_rate: u32,

    /// Add a Server-Timing header to successful answers under /kv
    #[arg(long, env = "WEIR_TIMING", num_args = 0..=1, default_value_t, hide_default_value = true, default_missing_value = "true")]
    pub(super) timing: bool,

    /// Enable routes for measurements: fill and clear the store, use CPU time, inject faults (docs/http-api.md). Only on loopback addresses. Without --tokens any client can use them
    #[arg(long, env = "WEIR_LAB", num_args = 0..=1, default_value_t, hide_default_value = true, default_missing_value = "true")]
    pub(super) lab: bool,

    /// Combine requests into batches: on, or (only with --lab) off for one statement per request
    #[arg(long, value_name = "on|off", env = "WEIR_BATCHING", default_value = "on", value_parser = batching)]
    pub(super) batching: Batching,

    #[arg(long, value_name = "NAME=VALUE,…", env = "WEIR_INJECT", value_delimiter = ',')]
    #[arg(help = format!("Inject faults, as in cpu=250us,fail=40; only with --lab. Names: {} (docs/reference.md says where each acts). Values are times, except fail=N: while more than N requests are in progress, every tenth new one is answered 500", FAULTS.join(", ")))]
    pub(super) inject: Vec<String>,

    /// Acknowledge writes before they are committed. LOSES DATA: how the tests show that they can see a loss
    #[arg(long, hide = true)]
    pub(super) acknowledge_early: bool,

    /// Drain and end when standard input does: the process that started this one holds the other end
    #[arg(long, hide = true)]
    pub(super) until_stdin_ends: bool,
}

impl Args {
    /// The settings of the command line `words`, completed by those of the file they name: these become the defaults.
    pub(crate) fn with_file(self, words: &[OsString]) -> Result<Args, Error> {
        let Some(path) = &self.config else { return Ok(self) };
        let shown = path.display();
        let text = read_text(path, "", "--config names a TOML file")?;
        let at_line = |start: usize, what: &str| {
            let (line, what) = (line_number(&text, start), one_line(what));
            Error::input(format!("{shown}, line {line}: {what}"))
                .hint("`weir serve --help` lists the settings")
        };
        let settings: BTreeMap<Spanned<String>, serde_json::Value> = toml::from_str(&text)
            .map_err(|error| at_line(error.span().map_or(0, |span| span.start), error.message()))?;
        let mut command = Cli::command();
        let mut given = Vec::new();
        for (name, value) in &settings {
            let id = name.get_ref().replace('-', "_");
            let has_setting = |serve: &clap::Command| {
                // Flags that are no settings have no variable.
                let mut settings = serve.get_arguments().filter(|arg| arg.get_env().is_some());
                settings.any(|arg| *arg.get_id() == id.as_str() && id != "config")
            };
            if !command.find_subcommand("serve").is_some_and(has_setting) {
                return Err(at_line(name.span().start, &format!("unknown field `{}`", name.get_ref())));
            }
            let plain = |value: &serde_json::Value| value.as_str().map_or(value.to_string(), str::to_owned);
            let values = value.as_array().map_or(vec![plain(value)], |list| list.iter().map(plain).collect());
            given.extend_from_slice(&values);
            command =
                command.mut_subcommand("serve", |serve| serve.mut_arg(id, |arg| arg.default_values(values)));
        }
        let parsed = command.try_get_matches_from(words).and_then(|matches| Cli::from_arg_matches(&matches));
        match parsed.map(|cli| cli.command) {
            Ok(Command::Serve(args)) => Ok(*args),
            Ok(_) => Ok(self),
            // The command line was parsed before: what is wrong is a value of the file.
            Err(error) => {
                let is_wrong = |name: &str| match error.get(ContextKind::InvalidArg) {
                    Some(ContextValue::String(flag)) => flag.split(' ').next() == Some(&*format!("--{name}")),
                    _ => false,
                };
                let wrong = settings.keys().find(|name| is_wrong(name.get_ref()));
                let what = usage::first_paragraph(&error);
                let what = given.iter().fold(what, |what, value| without_password(what, value));
                Err(at_line(wrong.map_or(0, |name| name.span().start), &what))
            }
        }
    }
}

fn at_least_one() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

fn positive(text: &str) -> Result<Duration, String> {
    let Span(time) = text.parse()?;
    if time.is_zero() { Err("it has to be longer; hint: write it as in 10s".into()) } else { Ok(time) }
}

fn part(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| "it is no part of all; hint: write a number from 0 to 1, as in 0.01".into())
}

fn value_bytes(text: &str) -> Result<usize, String> {
    let Size(bytes) = text.parse()?;
    let fits = usize::try_from(bytes).ok().filter(|bytes| *bytes <= VALUE_BYTES_MAX);
    fits.ok_or_else(|| format!("{} is too large; hint: most is 64MiB", Size(bytes)))
}

fn policy_named(name: &str) -> Result<&'static PolicyRow, String> {
    policy::find(name).ok_or_else(|| format!("it is not known; hint: known are {}", policy::names()))
}

fn batching(text: &str) -> Result<Batching, String> {
    match text {
        "on" => Ok(Batching::On),
        "off" => Ok(Batching::Off),
        _ => Err("it is not known; hint: known are on and off".into()),
    }
}

/// A name or an address, as it stands in `Host` without the port.
fn host_name(text: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let address = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let is_host = match address {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !text.is_empty() && text.bytes().all(is_name),
    };
    match is_host {
        true => Ok(text.to_owned()),
        false => {
            Err("it is no host; hint: write a name or an address without a port, as in weir.example".into())
        }
    }
}

/// `NAME=ADDRESS:PORT`.
fn compat_at(text: &str) -> Result<CompatListener, String> {
    let (name, address) =
        text.split_once('=').ok_or("it has no address; hint: write --compat crud=127.0.0.1:8081")?;
    let api = named(COMPAT_APIS, |api| api.name, name)
        .map_err(|known| format!("{name} is not known; hint: known are {known}"))?;
    let listen = address.parse().map_err(|why: Error| why.at(address))?;
    Ok(CompatListener { api, listen })
}
