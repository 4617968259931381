//! The settings of `weir serve`: flags, environment variables, and the lines of a file.

use crate::cmd::{Cli, Command, read_text, usage, without_password};
use cache::policy::{self, PolicyRow};
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Args as _, CommandFactory, FromArgMatches};
use kv::faults::FAULTS;
use kv::units::{Size, Span};
use kv::{Error, VALUE_BYTES_MAX, line_number, named, one_line};
use server::{COMPAT_APIS, CompatListener, Listen};
use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::time::Duration;
use store::Batching;
use toml::Spanned;

const SOURCES: &str = "\
Each flag is also an environment variable (WEIR_STORE for --store) and, except --config, a setting of the file (store = \"…\").
A flag overrides the variable, and the variable overrides the file. Details of all settings: docs/reference.md";

/// Serve an HTTP key-value store: a cache in front of a durable store.
#[derive(Debug, clap::Args)]
#[command(mut_args(settings()), after_help = SOURCES)]
pub(crate) struct Args {
    /// TOML file with settings named like the flags
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,

    /// Where to listen; port 0 takes a free one, unix:PATH is a Unix socket. Repeatable
    #[arg(long, value_name = "ADDRESS:PORT", value_delimiter = ',', default_value = "127.0.0.1:8080")]
    pub(super) listen: Vec<Listen>,

    /// Where to serve /metrics, /stats and /dashboard; they are then no longer at --listen. Repeatable
    #[arg(long, value_name = "ADDRESS:PORT", value_delimiter = ',')]
    pub(super) ops_listen: Vec<Listen>,

    /// Also serve the HTTP API of another system: s3, or that of a student project (docs/reports.md): put-kv, crud, root or rpc (these four have no TLS, and are refused with
    /// --tokens). Repeatable
    #[arg(long, value_name = "NAME=ADDRESS:PORT", value_delimiter = ',', value_parser = compat_at)]
    pub(super) compat: Vec<CompatListener>,

    /// Name of the server. If given, requests for other hosts are refused, except localhost and the addresses of --listen. Repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = host_name)]
    pub(super) host: Vec<String>,

    /// Certificate chain (PEM), for HTTPS. It is read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(super) tls_cert: Option<PathBuf>,

    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub(super) tls_key: Option<PathBuf>,

    /// CA certificates (PEM): accept only clients whose certificate one of these has signed
    #[arg(long, value_name = "FILE")]
    pub(super) tls_client_ca: Option<PathBuf>,

    /// File of tokens, from `weir token`: requests need one, except /healthz, /readyz, /openapi.json and the page /dashboard. It is read again when it
    /// changes
    #[arg(long, value_name = "FILE")]
    pub(super) tokens: Option<PathBuf>,

    /// File with the bucket and the access keys for --compat s3
    #[arg(long, value_name = "FILE")]
    pub(super) s3_credentials: Option<PathBuf>,

    /// Listen without TLS or without tokens also at addresses that other machines can reach; without this flag, that is refused
    #[arg(long, num_args = 0..=1, default_value_t)]
    pub(super) insecure: bool,

    /// Where values are kept: file:DIRECTORY, postgres://USER@HOST:PORT/DATABASE, mysql://USER@HOST:PORT/DATABASE, or memory: (lost when the server
    /// ends). Repeatable: the keys are divided among the stores; give these in the same order at every start
    #[arg(long, value_name = "URL", hide_env_values = true, default_value = "file:./weir-data")]
    pub(super) store: Vec<String>,

    /// Cache nothing, because other programs also write the keys
    #[arg(long, num_args = 0..=1, default_value_t)]
    pub(super) foreign_writers: bool,

    /// Accept several hosts in one --store URL (HOST:PORT,HOST:PORT) even if a failover can lose acknowledged writes
    #[arg(long, num_args = 0..=1, default_value_t)]
    pub(super) allow_asynchronous_failover: bool,

    /// Copy of the stores, from `weir replica init`, to read from while a store is unavailable. Such answers may be old, and are marked
    #[arg(long, value_name = "URL", hide_env_values = true)]
    pub(super) read_fallback: Option<String>,

    /// How long a start waits while another server uses the store
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(super) lease_wait: Span,

    /// Wait as long as another server uses the store; take over when it ends or fails, and at shutdown hand over to the next one that waits
    #[arg(long, num_args = 0..=1, default_value_t)]
    pub(super) standby: bool,

    /// How long a request may wait for the store
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive)]
    pub(super) store_timeout: Duration,

    /// Maximum number of requests in the queue of each store worker; more are answered 503
    #[arg(long, value_name = "N", default_value = "10000", value_parser = at_least_one)]
    pub(super) store_queue: usize,

    /// Threads that read from the store [default: depends on the store]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(super) store_read_workers: Option<usize>,

    /// Threads that write to the store [default: depends on the store]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(super) store_write_workers: Option<usize>,

    /// How long to keep events (changes of keys, for clients of /watch) in the store, so that these clients can resume after a restart [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = positive)]
    pub(super) event_log: Option<Duration>,

    /// Maximum size of all these events together; the oldest are removed [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    pub(super) event_log_bytes: Option<Size>,

    // Written by hand the list would miss the next policy, here and below.
    #[arg(long, value_name = "NAME", default_value = "lru", value_parser = policy_named)]
    #[arg(help = format!("Eviction policy: {}", policy::names()))]
    pub(super) cache_policy: &'static PolicyRow,

    /// Eviction policies to simulate on the same requests: /stats and /metrics show their hit ratios
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = policy_named)]
    pub(super) shadow_policies: Vec<&'static PolicyRow>,

    /// Maximum number of values in the cache; 0 switches it off
    #[arg(long, value_name = "N", default_value = "1000000")]
    pub(super) cache_entries: usize,

    /// Maximum size of the cache
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub(super) cache_bytes: Size,

    /// Number of parts of the cache, each with its own lock and its own eviction
    #[arg(long, value_name = "N", default_value = "16", value_parser = at_least_one)]
    pub(super) cache_shards: usize,

    /// Threads that serve connections [default: the cores this process may use]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(super) workers: Option<usize>,

    /// Maximum number of connections; more are answered 503 [default: 20000, or what the limit of open files allows]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(super) connections: Option<usize>,

    /// Maximum size of a value, up to 64MiB
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = value_bytes)]
    pub(super) value_bytes: usize,

    /// Maximum memory for the bodies and values of requests in progress; more are answered 503 [default: (memory of
    /// the machine or cgroup − --cache-bytes) / 4, at least 64MiB]
    #[arg(long, value_name = "SIZE")]
    pub(super) memory_budget: Option<Size>,

    /// How long an idle connection is kept open
    #[arg(long, value_name = "TIME", default_value = "75s", value_parser = positive)]
    pub(super) idle_timeout: Duration,

    /// How long a client may take to send the header section. A request body that arrives at less than 1 KiB/s over this time is refused, too
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive)]
    pub(super) head_timeout: Duration,

    /// How long a shutdown waits for requests in progress
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(super) drain: Span,

    /// Log requests to this file as lines of JSON; - is standard output
    #[arg(long, value_name = "FILE|-")]
    pub(super) access_log: Option<PathBuf>,

    /// Share of the requests to log, as in 0.01; failures other than 404 and 412 are always logged, up to --access-log-rate
    #[arg(long, value_name = "SHARE", default_value = "1", value_parser = part)]
    pub(super) access_log_sample: f64,

    /// Maximum number of lines in the access log per second
    #[arg(long, value_name = "N", default_value = "10000")]
    pub(super) access_log_rate: u32,

    /// Add a Server-Timing header to successful answers
    #[arg(long, num_args = 0..=1, default_value_t)]
    pub(super) timing: bool,

    /// Enable routes for measurements, which can clear the store and inject faults; refused if another machine can reach the server
    #[arg(long, num_args = 0..=1, default_value_t)]
    pub(super) lab: bool,

    /// Send requests to the store in batches (on), or one by one (off, only with --lab)
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = batching)]
    pub(super) batching: Batching,

    #[arg(long, value_name = "NAME=VALUE,…", value_delimiter = ',')]
    #[arg(help = format!("Inject faults, as in cpu=250us,fail=40 (each request takes 250 µs more of processor time; with more than 40 requests in progress, some fail); only with --lab. Names: {} (docs/reference.md)", FAULTS.join(", ")))]
    pub(super) inject: Vec<String>,

    /// Acknowledge writes before they are committed. LOSES DATA: how the tests show that they can see a loss
    #[arg(long, hide = true)]
    pub(super) acknowledge_early: bool,

    /// Drain and end when standard input does: the process that started this one holds the other end
    #[arg(long, hide = true)]
    pub(super) until_stdin_ends: bool,
}

/// The headings of the help, each with its first setting.
const HEADINGS: &[(&str, &str)] = &[
    ("listen", "Addresses"),
    ("tls_cert", "Security"),
    ("store", "Store"),
    ("cache_policy", "Cache"),
    ("workers", "Limits"),
    ("access_log", "Access log"),
    ("timing", "Measurements"),
];

/// What the settings have in common: their headings and variables, and that a switch alone means `true`.
fn settings() -> impl FnMut(Arg) -> Arg {
    let mut heading = None;
    move |arg| {
        let first_of = HEADINGS.iter().find(|(first, _)| *arg.get_id() == *first);
        heading = first_of.map(|(_, name)| *name).or(heading);
        let variable = format!("WEIR_{}", arg.get_id().as_str().to_ascii_uppercase());
        let (is_setting, is_switch) = (!arg.is_hide_set(), arg.get_num_args() == Some((0..=1).into()));
        let mut arg = arg.help_heading(heading);
        if is_switch {
            arg = arg.value_name("true|false").hide_possible_values(true);
            arg = arg.hide_default_value(true).default_missing_value("true");
        }
        if is_setting { arg.env(variable).hide_env(true) } else { arg }
    }
}

/// Variables that are no settings, each with a setting that is not given and that is written like it but for one letter. By two,
/// Kubernetes has WEIR_PORT where there is WEIR_HOST.
pub(super) fn misspelt_variables() -> Vec<(String, String)> {
    let command = Args::augment_args(clap::Command::new("serve"));
    let settings: Vec<&str> = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str()).collect();
    let given = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let unknown = given.filter(|name| name.starts_with("WEIR_") && !settings.contains(&&**name));
    let meant = |name: &str| {
        let close =
            |setting: &&&str| strsim::osa_distance(name, setting) == 1 && env::var_os(setting).is_none();
        settings.iter().find(close).map(|setting| (*setting).to_owned())
    };
    unknown.filter_map(|name| meant(&name).map(|setting| (name, setting))).collect()
}

impl Args {
    /// The settings of the command line `words`, completed by those of the file they name: these become the defaults.
    pub(crate) fn with_file(self, words: &[OsString]) -> Result<Args, Error> {
        let Some(path) = &self.config else { return Ok(self) };
        let shown = path.display();
        let text = read_text(path, "", "--config names a TOML file")?;
        let at_line = |start: usize, what: &str| {
            let (line, what) = (line_number(&text, start), one_line(what));
            // A value says itself what it should be.
            let hint = if what.contains("; hint: ") { "" } else { "`weir serve --help` lists the settings" };
            Error::input(format!("{shown}, line {line}: {what}")).hint(hint)
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

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "it has to be 1 or more; hint: write a whole number".into())
}

fn positive(text: &str) -> Result<Duration, String> {
    let Span(time) = text.parse()?;
    if time.is_zero() { Err("it has to be longer than 0; hint: write it as in 10s".into()) } else { Ok(time) }
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
    policy::find(name.trim()).ok_or_else(|| format!("it is not known; hint: known are {}", policy::names()))
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
    let text = text.trim();
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
    let (name, address) = text.trim().split_once('=').unwrap_or((text, ""));
    let api = named(COMPAT_APIS, |api| api.name, name)
        .map_err(|known| format!("{name} is not known; hint: known are {known}"))?;
    if address.is_empty() {
        return Err(format!("it has no address; hint: write --compat {name}=127.0.0.1:8081"));
    }
    let listen = address.parse().map_err(|why: Error| why.at(address))?;
    Ok(CompatListener { api, listen })
}
