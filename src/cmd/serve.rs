//! `weir serve`: flags, environment and file become a running server.

use super::{Failure, note, say};
use crate::cache::policy;
use crate::cache::{self, Cache};
use crate::http1::Limits;
use crate::kv::VALUE_BYTES_MAX;
use crate::server::{self, FRONTS, FrontAt, Options, Patience, Server};
use crate::store::{self, Batching, Kind, replica};
use crate::tiered::{Replica, SHARDS_MAX, Shard, Tiers};
use crate::units::{Size, Span};
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
    config: Option<PathBuf>,

    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS:PORT", env = "WEIR_LISTEN")]
    listen: Option<SocketAddr>,

    /// Serve another system's wire shape as well, on a listener of its own: put-kv, crud, root or rpc. May be repeated;
    /// the variable and the file take a list
    #[arg(long, value_name = "NAME=ADDRESS:PORT", env = "WEIR_FRONT", value_delimiter = ',')]
    #[serde(default)]
    front: Vec<String>,

    /// Allow an address that other machines can reach: there is neither TLS nor a password
    #[arg(long, env = "WEIR_INSECURE", num_args = 0..=1, default_missing_value = "true")]
    insecure: Option<bool>,

    /// Where values are kept: fjall:DIRECTORY, postgres://USER@HOST:PORT/DATABASE, mysql://… alike, or memory:; given
    /// more than once, the keys are divided among the stores, whose order is theirs for good [default: fjall:./weir-data]
    #[arg(long, value_name = "URL", env = "WEIR_STORE", hide_env_values = true)]
    #[serde(default, deserialize_with = "one_or_more")]
    store: Vec<String>,

    /// A replica to read from while a store is away; such answers say so, and may be old
    #[arg(long, value_name = "URL", env = "WEIR_READ_FALLBACK", hide_env_values = true)]
    read_fallback: Option<String>,

    /// Threads that serve connections [default: the cores this process may use]
    #[arg(long, value_name = "N", env = "WEIR_WORKERS")]
    workers: Option<usize>,

    // Written by hand the list would miss the next policy.
    #[arg(long, value_name = "NAME", env = "WEIR_CACHE_POLICY")]
    #[arg(help = format!("Which row leaves a full cache: {} [default: lru]", policy::names()))]
    cache_policy: Option<String>,

    /// Policies to simulate beside the cache, without rows; their hit ratios are in /metrics
    #[arg(long, value_name = "NAME,…", env = "WEIR_GHOST", value_delimiter = ',')]
    ghost: Option<Vec<String>>,

    /// Most rows in the cache; 0 for none [default: 1000000]
    #[arg(long, value_name = "N", env = "WEIR_CACHE_ENTRIES")]
    cache_entries: Option<usize>,

    /// Most bytes in the cache, keys and bookkeeping included [default: 256MiB]
    #[arg(long, value_name = "SIZE", env = "WEIR_CACHE_BYTES")]
    cache_bytes: Option<Size>,

    /// Locks the cache is divided by; with 1 the policy is followed exactly [default: 16]
    #[arg(long, value_name = "N", env = "WEIR_CACHE_SHARDS")]
    cache_shards: Option<usize>,

    /// Longest value, up to 64MiB [default: 8MiB]
    #[arg(long, value_name = "SIZE", env = "WEIR_VALUE_BYTES")]
    value_bytes: Option<Size>,

    /// Most connections; more are answered 503 [default: 20000]
    #[arg(long, value_name = "N", env = "WEIR_CONNECTIONS")]
    connections: Option<usize>,

    /// Longest wait of a request for the store [default: 10s]
    #[arg(long, value_name = "TIME", env = "WEIR_STORE_TIMEOUT")]
    store_timeout: Option<Span>,

    /// Most requests that may wait in one lane of the store [default: 10000]
    #[arg(long, value_name = "N", env = "WEIR_STORE_QUEUE")]
    store_queue: Option<usize>,

    /// Sessions of the store for reads [default: what suits the store]
    #[arg(long, value_name = "N", env = "WEIR_READ_LANES")]
    read_lanes: Option<usize>,

    /// Sessions of the store for writes [default: what suits the store]
    #[arg(long, value_name = "N", env = "WEIR_WRITE_LANES")]
    write_lanes: Option<usize>,

    /// How long a start waits for another server to let go of the store [default: 10s]
    #[arg(long, value_name = "TIME", env = "WEIR_CLAIM_WAIT")]
    claim_wait: Option<Span>,

    /// How long a kept-alive connection may be idle [default: 75s]
    #[arg(long, value_name = "TIME", env = "WEIR_IDLE_TIMEOUT")]
    idle_timeout: Option<Span>,

    /// How long a client may take to send a head [default: 10s]
    #[arg(long, value_name = "TIME", env = "WEIR_HEAD_TIMEOUT")]
    head_timeout: Option<Span>,

    /// How long a shutdown waits for requests under way [default: 30s]
    #[arg(long, value_name = "TIME", env = "WEIR_DRAIN")]
    drain: Option<Span>,

    /// Put Server-Timing on every answer
    #[arg(long, env = "WEIR_TIMING", num_args = 0..=1, default_missing_value = "true")]
    timing: Option<bool>,

    /// A server for measurements: lets everybody clear it, make it compute, and turn batching off
    #[arg(long, env = "WEIR_LAB", num_args = 0..=1, default_missing_value = "true")]
    lab: Option<bool>,

    /// off: every request is a statement of its own, as in servers without batches; for comparisons, only with --lab
    /// [default: gathered]
    #[arg(long, value_name = "gathered|off", env = "WEIR_BATCHING")]
    batching: Option<String>,

    /// Acknowledge writes before they are committed. LOSES DATA: how the tests show that they can see a loss
    #[arg(long, hide = true)]
    #[serde(skip)]
    acknowledge_early: bool,
}

impl Args {
    /// These settings, and where they say nothing those of `file`.
    fn or(self, file: Args) -> Args {
        Args {
            config: self.config,
            listen: self.listen.or(file.listen),
            front: if self.front.is_empty() { file.front } else { self.front },
            insecure: self.insecure.or(file.insecure),
            store: if self.store.is_empty() { file.store } else { self.store },
            read_fallback: self.read_fallback.or(file.read_fallback),
            workers: self.workers.or(file.workers),
            cache_policy: self.cache_policy.or(file.cache_policy),
            ghost: self.ghost.or(file.ghost),
            cache_entries: self.cache_entries.or(file.cache_entries),
            cache_bytes: self.cache_bytes.or(file.cache_bytes),
            cache_shards: self.cache_shards.or(file.cache_shards),
            value_bytes: self.value_bytes.or(file.value_bytes),
            connections: self.connections.or(file.connections),
            store_timeout: self.store_timeout.or(file.store_timeout),
            store_queue: self.store_queue.or(file.store_queue),
            read_lanes: self.read_lanes.or(file.read_lanes),
            write_lanes: self.write_lanes.or(file.write_lanes),
            claim_wait: self.claim_wait.or(file.claim_wait),
            idle_timeout: self.idle_timeout.or(file.idle_timeout),
            head_timeout: self.head_timeout.or(file.head_timeout),
            drain: self.drain.or(file.drain),
            timing: self.timing.or(file.timing),
            lab: self.lab.or(file.lab),
            batching: self.batching.or(file.batching),
            acknowledge_early: self.acknowledge_early,
        }
    }

    fn with_file(self) -> Result<Args, Failure> {
        let Some(path) = self.config.clone() else { return Ok(self) };
        Ok(self.or(read_file(&path)?))
    }
}

fn read_file(path: &Path) -> Result<Args, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::input(format!("cannot read {shown}: {error}")).hint("--config names a TOML file.")
    })?;
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        let what = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        Failure::input(format!("{shown}, line {line}: {what}"))
            .hint("`weir serve --help` lists the settings.")
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

/// The stores' URLs in their order. The environment has one variable for all of them, with blanks in between; where
/// not every word begins like a store, the blanks belong to a single one.
pub(super) fn store_urls(given: &[String]) -> Result<Vec<String>, Failure> {
    let is_store = |word: &str| store::SCHEMES.iter().any(|scheme| word.starts_with(scheme.prefix));
    let split = |text: &String| match text.split_whitespace().all(is_store) {
        true => text.split_whitespace().map(str::to_owned).collect(),
        false => vec![text.clone()],
    };
    let urls: Vec<String> = given.iter().flat_map(split).collect();
    let twice = urls.iter().enumerate().find(|(index, url)| {
        // Each one is another store.
        url.as_str() != "memory:" && urls[..*index].contains(url)
    });
    match twice {
        Some((_, url)) => Err(Failure::input(format!("--store {} is given twice", store::redacted(url)))
            .hint("Every shard is a store of its own.")),
        None if urls.len() > SHARDS_MAX => Err(Failure::input(format!("{} stores are given", urls.len()))
            .hint(format!("Most are {SHARDS_MAX}."))),
        None => Ok(urls),
    }
}

/// Without batches as many requests are under way as there are sessions: as many as usual servers have connections.
const UNBATCHED_LANES: store::Lanes = store::Lanes { read: 16, write: 64 };

/// Everything a server is made of, checked.
#[derive(Debug)]
struct Plan {
    options: Options,
    store_urls: Vec<String>,
    read_fallback: Option<String>,
    /// Of all shards together.
    cache: cache::Limits,
    cache_shards: usize,
    cache_policy: &'static policy::PolicyRow,
    ghosts: Vec<&'static policy::PolicyRow>,
    gather: store::Config,
    lanes: (Option<usize>, Option<usize>),
    deadline: Span,
}

fn plan(args: Args) -> Result<Plan, Failure> {
    let args = args.with_file()?;
    let defaults = Options::default();
    let at_least_one = |name: &str, value: Option<usize>| match value {
        Some(0) => Err(Failure::input(format!("--{name} is 0")).hint("It has to be 1 or more.")),
        other => Ok(other),
    };
    let positive = |name: &str, value: Option<Span>| match value {
        Some(span) if span.0.is_zero() => {
            Err(Failure::input(format!("--{name} is 0")).hint("It has to be longer, as in 10s."))
        }
        other => Ok(other.map(|span| span.0)),
    };
    let listen = args.listen.unwrap_or(defaults.listen);
    let lab = args.lab.unwrap_or(false);
    let fronts = args.front.iter().map(|text| front_at(text)).collect::<Result<Vec<_>, _>>()?;
    let mut addresses = vec![format!("--listen {listen}")];
    addresses.retain(|_| !listen.ip().is_loopback());
    let remote = fronts.iter().filter(|front| !front.listen.ip().is_loopback());
    addresses.extend(remote.map(|front| format!("--front {}={}", front.row.name, front.listen)));
    if let Some(flag) = addresses.first() {
        if lab {
            return Err(Failure::input(format!("--lab and {flag} do not go together"))
                .hint("With --lab anybody may clear the store: listen on 127.0.0.1."));
        }
        let clears = |front: &&FrontAt| front.row.clears && !front.listen.ip().is_loopback();
        if let Some(front) = fronts.iter().find(clears) {
            let name = front.row.name;
            return Err(Failure::input(format!(
                "--front {name}={} would let anybody clear the store",
                front.listen
            ))
            .hint("Listen on 127.0.0.1: this front has routes for that."));
        }
        if !args.insecure.unwrap_or(false) {
            return Err(Failure::input(format!(
                "{flag} can be reached from other machines, without TLS or a password"
            ))
            .hint("Listen on 127.0.0.1, or add --insecure."));
        }
    }
    let value_bytes = args.value_bytes.map_or(defaults.value_bytes as u64, |size| size.0);
    if value_bytes > VALUE_BYTES_MAX as u64 {
        return Err(Failure::input(format!("--value-bytes {} is too large", Size(value_bytes)))
            .hint("Most is 64MiB."));
    }
    let batching = match args.batching.as_deref() {
        None | Some("gathered") => Batching::Gathered,
        Some("off") if lab => Batching::Off,
        Some("off") => {
            return Err(Failure::input("--batching off is for measurements only").hint("Add --lab."));
        }
        Some(other) => {
            return Err(Failure::input(format!("--batching {other} is not known"))
                .hint("Known are gathered and off."));
        }
    };
    let cache_entries = args.cache_entries.unwrap_or(1_000_000);
    let cache_policy = policy_named("cache-policy", args.cache_policy.as_deref().unwrap_or("lru"))?;
    let ghosts = ghosts(args.ghost.as_deref().unwrap_or_default())?;
    let mut store_urls = store_urls(&args.store)?;
    if store_urls.is_empty() {
        store_urls.push("fjall:./weir-data".into());
    }
    if let Some(url) = args.read_fallback.as_ref().filter(|url| store_urls.contains(url)) {
        return Err(Failure::input(format!("--read-fallback {} is a --store, too", store::redacted(url)))
            .hint("A replica is a server of its own; make one with `weir replica init`."));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let deadline =
        positive("store-timeout", args.store_timeout)?.unwrap_or(std::time::Duration::from_secs(10));
    let gather = store::Config {
        queue_requests: at_least_one("store-queue", args.store_queue)?.unwrap_or(10_000),
        // What has waited so long is refused, with time left to say so before the deadline makes it unknown.
        queue_wait_max: deadline / 2,
        claim_patience: args.claim_wait.map_or(store::Config::default().claim_patience, |span| span.0),
        batching,
        acknowledge_early: args.acknowledge_early,
        ..store::Config::default()
    };
    Ok(Plan {
        options: Options {
            listen,
            fronts,
            lab,
            cache_entries,
            workers: at_least_one("workers", args.workers)?.unwrap_or(cores),
            limits: Limits::default(),
            value_bytes: value_bytes as usize,
            connections: at_least_one("connections", args.connections)?.unwrap_or(defaults.connections),
            timing: args.timing.unwrap_or(false),
            drain: args.drain.map_or(defaults.drain, |span| span.0),
            patience: Patience {
                idle: positive("idle-timeout", args.idle_timeout)?.unwrap_or(defaults.patience.idle),
                head: positive("head-timeout", args.head_timeout)?.unwrap_or(defaults.patience.head),
                ..defaults.patience
            },
        },
        store_urls,
        read_fallback: args.read_fallback,
        cache: cache::Limits {
            entries: cache_entries,
            bytes: args.cache_bytes.map_or(256 << 20, |size| usize::try_from(size.0).unwrap_or(usize::MAX)),
        },
        cache_shards: at_least_one("cache-shards", args.cache_shards)?.unwrap_or(16),
        cache_policy,
        ghosts,
        gather,
        lanes: (at_least_one("read-lanes", args.read_lanes)?, at_least_one("write-lanes", args.write_lanes)?),
        deadline: Span(deadline),
    })
}

/// `NAME=ADDRESS:PORT`.
fn front_at(text: &str) -> Result<FrontAt, Failure> {
    let (name, address) = text.split_once('=').ok_or_else(|| {
        Failure::input(format!("--front {text} has no address")).hint("Write --front crud=127.0.0.1:8081.")
    })?;
    let row = server::find_front(name).ok_or_else(|| {
        let known: Vec<&str> = FRONTS.iter().map(|row| row.name).collect();
        Failure::input(format!("--front {name} is not known"))
            .hint(format!("Known are {}.", known.join(", ")))
    })?;
    let listen = address.parse().map_err(|_| {
        Failure::input(format!("--front {text}: {address} is no address with a port"))
            .hint(format!("Write --front {name}=127.0.0.1:8081; port 0 takes a free one."))
    })?;
    Ok(FrontAt { row, listen })
}

fn policy_named(flag: &str, name: &str) -> Result<&'static policy::PolicyRow, Failure> {
    policy::find(name).ok_or_else(|| {
        Failure::input(format!("--{flag} {name} is not known"))
            .hint(format!("Known are {}.", policy::names()))
    })
}

/// The policies to simulate.
fn ghosts(names: &[String]) -> Result<Vec<&'static policy::PolicyRow>, Failure> {
    let twice = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name));
    if let Some((_, name)) = twice {
        return Err(Failure::input(format!("--ghost has {name} twice")).hint("Name each policy once."));
    }
    names.iter().map(|name| policy_named("ghost", name)).collect()
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let plan = plan(args)?;
    start_log();
    let tiers = start_tiers(&plan).map_err(|error| store_failure(&error))?;
    if plan.gather.acknowledge_early {
        note("warning: writes are acknowledged before they are committed; they can be lost");
    }
    let server = Server::start(plan.options, tiers).map_err(|error| {
        Failure::input(error)
            .hint("Stop what listens there, or choose another port; --listen 127.0.0.1:0 takes a free one.")
    })?;
    // Before anybody is told: whoever reads the address may end the server at once.
    let wait_for_end = end()?;
    say(format_args!("{} {}", crate::proto::LISTENING, server.address()));
    for (name, address) in server.fronts() {
        say(format_args!("{} {name} {address}", crate::proto::FRONT));
    }
    let stores: Vec<String> = plan.store_urls.iter().map(|url| store::redacted(url)).collect();
    note(format_args!(
        "store {}; values at http://{}/kv/KEY; Ctrl-C ends",
        stores.join(" + "),
        server.address()
    ));
    wait_for_end();
    note("draining");
    server.drain();
    Ok(())
}

/// Opens the stores, gives each its share of the cache, and claims them.
fn start_tiers(plan: &Plan) -> Result<Tiers, store::Error> {
    let of = plan.store_urls.len();
    // Whole rows and bytes: what does not divide is not used, so that the bounds hold for all together.
    let share = cache::Limits { entries: plan.cache.entries / of, bytes: plan.cache.bytes / of };
    let shards = plan.store_urls.iter().map(|url| {
        let store = store::open(url)?;
        let best = match plan.gather.batching {
            Batching::Gathered => store.lanes(),
            Batching::Off => UNBATCHED_LANES,
        };
        let lanes = store::Lanes {
            read: plan.lanes.0.unwrap_or(best.read),
            write: plan.lanes.1.unwrap_or(best.write),
        };
        let cache =
            Cache::new(share, plan.cache_shards.div_ceil(of), plan.cache_policy).with_ghosts(&plan.ghosts);
        Ok(Shard { cache, store, config: store::Config { lanes: Some(lanes), ..plan.gather } })
    });
    // All are opened, and so their URLs are known to make sense, before any is claimed.
    let shards = shards.collect::<Result<_, store::Error>>()?;
    let Some(url) = &plan.read_fallback else { return Tiers::start(shards, plan.deadline.0) };
    let (replica, lag) = (replica::open(url)?, replica::Lag::watch(&plan.store_urls)?);
    let tiers = Tiers::start(shards, plan.deadline.0)?;
    let config = store::Config { queue_wait_max: plan.gather.queue_wait_max, ..store::Config::default() };
    Ok(tiers.with_replica(Replica::start(replica, lag, config, plan.deadline.0)?))
}

fn store_failure(error: &store::Error) -> Failure {
    match error.kind() {
        Kind::Unavailable => {
            Failure::run(error).hint("Start it, or leave --store out to use the embedded one.")
        }
        Kind::Config => Failure::input(error).hint("`weir serve --help` shows what --store takes."),
        _ => Failure::run(error),
    }
}

/// Listens for SIGTERM and SIGINT from now on; what it gives waits for the first of them.
pub(super) fn end() -> Result<impl FnOnce(), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let cannot = |error: std::io::Error| Failure::run(format!("cannot wait for signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
    let entered = runtime.enter();
    let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
    drop(entered);
    Ok(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        });
    })
}

/// Lets the floors below be heard on standard error.
pub(super) fn start_log() {
    struct ToStderr;
    impl log::Log for ToStderr {
        fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
            // The libraries' own chatter is not for people.
            metadata.target().starts_with("weir") || metadata.level() == log::Level::Error
        }

        fn log(&self, record: &log::Record<'_>) {
            if self.enabled(record.metadata()) {
                note(format_args!("{}: {}", record.level().as_str().to_lowercase(), record.args()));
            }
        }

        fn flush(&self) {}
    }
    // It fails only if there is a logger already.
    if log::set_logger(&ToStderr).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        args: Args,
    }

    fn planned(flags: &[&str]) -> Result<Plan, Failure> {
        let words = std::iter::once("serve").chain(flags.iter().copied());
        plan(Alone::try_parse_from(words).map_err(Failure::input)?.args)
    }

    #[test]
    fn a_flag_is_stronger_than_the_file_and_the_file_than_the_default() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("weir.toml");
        std::fs::write(
            &file,
            "workers = 3\ncache-entries = 7\nstore = \"memory:\"\nghost = [\"lru\", \"s3fifo\"]\n\
             front = [\"crud=127.0.0.1:0\"]\n",
        )
        .unwrap();
        let plan = planned(&["--config", file.to_str().unwrap(), "--workers", "5"]).unwrap();
        assert_eq!((plan.options.workers, plan.cache.entries), (5, 7));
        assert_eq!(plan.store_urls, ["memory:"]);
        assert_eq!(plan.options.value_bytes, 8 << 20);
        assert_eq!(plan.ghosts.iter().map(|row| row.name).collect::<Vec<_>>(), ["lru", "s3fifo"]);
        assert_eq!(plan.options.fronts[0].row.name, "crud");
        let two = ["--front", "root=127.0.0.1:1", "--front", "rpc=[::1]:2"];
        let plan = planned(&[&["--config", file.to_str().unwrap()], &two[..]].concat()).unwrap();
        let names: Vec<&str> = plan.options.fronts.iter().map(|front| front.row.name).collect();
        assert_eq!(names, ["root", "rpc"]);
    }

    #[test]
    fn help_names_every_policy() {
        use clap::CommandFactory;
        let help = Alone::command().render_long_help().to_string();
        assert!(help.contains(&format!("Which row leaves a full cache: {} [", policy::names())), "{help}");
    }

    #[test]
    fn help_names_every_front() {
        use clap::CommandFactory;
        let help = Alone::command().render_long_help().to_string();
        for row in FRONTS {
            assert!(help.contains(row.name), "{}: {help}", row.name);
        }
    }

    #[test]
    fn stores_are_given_one_by_one_or_as_a_list() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("weir.toml");
        std::fs::write(&file, "store = [\"memory:\", \"fjall:x\"]\n").unwrap();
        for (flags, expected) in [
            (&["--config", file.to_str().unwrap()][..], &["memory:", "fjall:x"][..]),
            (&["--store", "fjall:b", "--store", "fjall:a"], &["fjall:b", "fjall:a"]),
            // As the environment has it.
            (&["--store", "fjall:b  postgres://h/d"], &["fjall:b", "postgres://h/d"]),
            (&["--store", "fjall:my data"], &["fjall:my data"]),
            (&["--store", "memory:", "--store", "memory:"], &["memory:", "memory:"]),
            (&[], &["fjall:./weir-data"]),
        ] {
            assert_eq!(planned(flags).unwrap().store_urls, expected, "{flags:?}");
        }
    }

    #[test]
    fn wrong_settings_are_named_with_a_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("weir.toml");
        std::fs::write(&file, "workers = 3\nchache-entries = 7\n").unwrap();
        for (flags, part) in [
            (&["--config", "/nowhere.toml"][..], "cannot read /nowhere.toml"),
            (&["--config", file.to_str().unwrap()], "line 2: unknown field `chache-entries`"),
            (&["--listen", "0.0.0.0:80"], "can be reached from other machines"),
            (&["--listen", "nowhere"], "--listen"),
            (&["--workers", "0"], "--workers is 0"),
            (&["--value-bytes", "65MiB"], "65MiB is too large"),
            (
                &["--store", "fjall:a", "--store", "fjall:b", "--store", "fjall:a"],
                "--store fjall:a is given twice",
            ),
            (&["--store", &"memory: ".repeat(33)], "33 stores are given"),
            (&["--store", "postgres://h/a", "--read-fallback", "postgres://h/a"], "is a --store, too"),
            (&["--batching", "off"], "for measurements only"),
            (&["--lab", "--batching", "on"], "--batching on is not known"),
            (&["--lab", "--listen", "0.0.0.0:80", "--insecure"], "do not go together"),
            (&["--front", "crud=0.0.0.0:80", "--insecure"], "would let anybody clear the store"),
            (&["--cache-policy", "mru"], "--cache-policy mru is not known"),
            (&["--ghost", "lru,mru"], "--ghost mru is not known"),
            (&["--ghost", "lru,fifo,lru"], "--ghost has lru twice"),
            (&["--store-timeout", "5"], "a duration is a number with"),
        ] {
            let failure = planned(flags).expect_err(&format!("{flags:?}"));
            assert!(failure.message.contains(part), "{flags:?}: {}", failure.message);
            assert_eq!(failure.code, 2);
        }
    }
}
