//! `weir serve`: flags, environment and file become a running server.

mod access_log;
mod args;
mod logger;
mod memory;
mod plan;
mod service;

pub(crate) use args::Args;
pub(super) use plan::store_urls;

use super::{of_store, say};
use cache::{self, Cache};
use kv::Error;
use kv::units::Size;
use plan::{OTHER_SCHEMES, Plan, plan};
use server::tiered::{Replica, Shard, Tiers};
use server::{Address, CONNECTION_BYTES_MAX, PassedSocket, Place, Server, Sockets};
use service::Manager;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use store::{self, Batching, Kind, Writers, replica};

/// Without batches, requests in flight are bounded by sessions: as many as servers without batches have connections.
const UNBATCHED_WORKERS: store::Workers = store::Workers { read: 16, write: 64 };

pub(crate) fn run(args: Args) -> Result<(), Error> {
    // Before there are threads: it changes the environment.
    let passed = service::passed_sockets()?;
    logger::start()?;
    let plan = plan(args.with_file(&std::env::args_os().collect::<Vec<_>>())?)?;
    warn_of_others_rights(&plan.args);
    let (log, path) = (plan.options.access_log.as_ref(), plan.args.access_log.as_ref());
    let writer = log.zip(path).map(|(log, path)| access_log::start(log, path)).transpose()?;
    let served = serve(&plan, passed);
    if let Some(writer) = writer {
        writer.finish();
    }
    log::logger().flush();
    served
}

/// Secrets that every user of the machine may read, and lists of rights that others may change, are used all the same.
fn warn_of_others_rights(args: &Args) {
    const READ: u32 = 0o004;
    const WRITE: u32 = 0o022;
    for (path, refused) in
        [(&args.tls_key, READ | WRITE), (&args.s3_credentials, READ | WRITE), (&args.tokens, WRITE)]
    {
        let Some(path) = path else { continue };
        // What cannot be read was refused before.
        let mode = std::fs::metadata(path).map_or(0, |file| file.permissions().mode());
        if mode & refused != 0 {
            let path = path.display();
            log::warn!("other users may read or write {path} (mode {:o}); run chmod 600 on it", mode & 0o777);
        }
    }
}

fn serve(plan: &Plan, mut passed: Vec<PassedSocket>) -> Result<(), Error> {
    let manager = Manager::of_environment()?;
    let taken = |error: io::Error| {
        // Not the exit code of wrong settings, with which a service manager gives up: the port or address may be there soon.
        let error_kind = error.kind();
        let may_change = matches!(error_kind, io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable);
        let failed = if may_change { Error::new(&error) } else { Error::input(&error) };
        failed.hint(match error_kind {
            io::ErrorKind::AddrNotAvailable => "name an address of this machine",
            io::ErrorKind::AddrInUse => {
                "stop what listens there, or choose another port or path; --listen 127.0.0.1:0 takes a free port"
            }
            io::ErrorKind::AlreadyExists => "choose another path, or remove what is there",
            io::ErrorKind::NotFound => "choose a path in a directory that is there",
            io::ErrorKind::PermissionDenied => {
                "choose a path in a directory of this user, or a port of 1024 or more"
            }
            _ if error.to_string().contains("(os error 24)") => "raise `ulimit -n`, or lower --workers",
            _ => "",
        })
    };
    // Before the stores are acquired: each lease costs an epoch.
    let sockets = Sockets::bind(&plan.options, &mut passed).map_err(taken)?;
    if let Some(socket) = passed.first() {
        let what = format!("the service manager passed a socket at {}, which is not in use", socket.address);
        return Err(Error::input(what).hint("add --listen with this address, or stop the .socket unit"));
    }
    // Before the stores, which may take long: SIGHUP does not end the server then either, and anything else does at once.
    let ends_at_once = Arc::new(AtomicBool::new(true));
    let mut signals = end_signals(&ends_at_once, plan.options.has_files() || manager.is_there())?;
    manager.tell("STATUS=opening the store");
    let tiers = start_tiers(plan).map_err(|error| store_failure(&error))?;
    if plan.args.acknowledge_early {
        log::warn!("writes are acknowledged before they are committed; they can be lost");
    }
    for (name, setting) in args::misspelt_variables() {
        log::warn!("the variable {name} has no effect; there is a setting {setting}");
    }
    let faults = plan.options.faults.as_ref().map(|faults| faults.base().words()).unwrap_or_default();
    if !faults.is_empty() {
        log::warn!("injected faults: {}", faults.join(", "));
    }
    let server = Server::start(plan.options.clone(), sockets, tiers).map_err(taken)?;
    // Before the address is printed: its reader may end the server at once.
    ends_at_once.store(false, Relaxed);
    if plan.args.until_stdin_ends {
        let signals = signals.handle();
        std::thread::spawn(move || {
            // Also a parent that is killed closes its end. An error is an end, too.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            signals.close();
        });
    }
    let mut addresses = Vec::new();
    for (place, address) in &server.addresses {
        match place {
            Place::Values => {
                say(format_args!("{} {address}", kv::proto::LISTENING));
                addresses.push(place_of_values(plan, address));
            }
            Place::Compat(api) => say(format_args!("{} {} {address}", kv::proto::COMPAT, api.name)),
            Place::Operations => say(format_args!("{} {address}", kv::proto::OPERATIONS)),
        }
    }
    let stores: Vec<String> = plan.store_urls.iter().map(|url| store::redacted(url)).collect();
    log::info!("store {}; values at {}; Ctrl-C ends", stores.join(" + "), addresses.join(", "));
    let [budget, each] = [plan.options.memory_budget, CONNECTION_BYTES_MAX].map(|bytes| Size(bytes as u64));
    let cache = plan.args.cache_bytes;
    log::info!(
        "memory: up to {cache} for the cache, {budget} for request bodies and values on their way, {each} for each of \
         up to {} connections besides",
        server.connections
    );
    manager.feed_watchdog(server.worker_checks())?;
    manager.tell(&format!("READY=1\nSTATUS=serving {}", stores.join(" + ")));
    // It ends without a signal when standard input does.
    let _ = signals.forever().find(|signal| {
        let reloads = *signal == SIGHUP && (server.reload() || manager.is_there());
        if reloads {
            manager.tell_reload();
        }
        !reloads
    });
    let later = Arc::clone(&ends_at_once);
    let wait = std::thread::Builder::new().spawn(move || {
        std::thread::sleep(super::SAME_SIGNAL);
        later.store(true, Relaxed);
    });
    if wait.is_err() {
        ends_at_once.store(true, Relaxed);
    }
    let (drain, later) = (plan.args.drain.0, super::SAME_SIGNAL);
    log::info!(
        "draining for up to {drain:?}; another signal, {later:?} from now or later, ends the server at once"
    );
    manager.tell("STOPPING=1\nSTATUS=draining");
    server.drain();
    Ok(())
}

/// Where values are, for people.
fn place_of_values(plan: &Plan, address: &Address) -> String {
    match address {
        Address::Tcp(address) if plan.options.tls.is_some() => format!("https://{address}/kv/KEY"),
        Address::Tcp(address) => format!("http://{address}/kv/KEY"),
        Address::Unix(_) => format!("{address} (curl --unix-socket PATH http://localhost/kv/KEY)"),
    }
}

/// Opens the stores, gives each its share of the cache, and acquires them.
fn start_tiers(plan: &Plan) -> Result<Tiers, store::Error> {
    let (args, config, of) = (&plan.args, plan.store_config(), plan.store_urls.len());
    // Whole rows and bytes: what does not divide is not used, so that the bounds hold for all together.
    let bytes = usize::try_from(args.cache_bytes.0).unwrap_or(usize::MAX);
    let share = cache::Limits { entries: args.cache_entries / of, bytes: bytes / of };
    let shards = plan.store_urls.iter().map(|url| {
        let mut store = store::open_with(url, OTHER_SCHEMES)?;
        let refused = |flag: &str, why: &str| {
            let what = format!("{flag} does not go with the store {}", store::redacted(url));
            Err(store::Error::new(Kind::Config, format!("{what}: {why}")))
        };
        if args.foreign_writers && !store.allow_foreign_writers() {
            let table = "?table=NAME&key=COLUMN&value=COLUMN";
            let why = format!("the tables of weir have one writer; name one of your own with {table}");
            return refused("--foreign-writers", &why);
        }
        if args.allow_asynchronous_failover && !store.allow_asynchronous_failover() {
            let why = "it is for postgres:// with several hosts; leave it out";
            return refused("--allow-asynchronous-failover", why);
        }
        let capabilities = store.capabilities();
        if args.event_log.is_some() && !capabilities.has_events() {
            return refused("--event-log", "it cannot keep events; leave the flag out");
        }
        let best = match args.batching {
            Batching::On => store.workers(),
            Batching::Off => UNBATCHED_WORKERS,
        };
        let workers = store::Workers {
            read: args.store_read_workers.unwrap_or(best.read),
            write: args.store_write_workers.unwrap_or(best.write),
        };
        // Where others write, too, a cached row could be older than what they wrote.
        let share = cache::Limits {
            entries: if capabilities.writers == Writers::Owner { share.entries } else { 0 },
            ..share
        };
        let cache = Cache::new(share, args.cache_shards.div_ceil(of), args.cache_policy)
            .with_shadow_policies(&args.shadow_policies);
        Ok(Shard { cache, store, config: store::Config { workers: Some(workers), ..config.clone() } })
    });
    // All are opened, and so their URLs are known to make sense, before any is acquired.
    let shards = shards.collect::<Result<_, store::Error>>()?;
    let Some(url) = &args.read_fallback else { return Tiers::start(shards, args.store_timeout) };
    let (replica, lag) = (replica::open(url)?, replica::Lag::watch(&plan.store_urls)?);
    let tiers = Tiers::start(shards, args.store_timeout)?;
    let config = store::Config { queue_wait_max: config.queue_wait_max, ..store::Config::default() };
    let replica = Replica::start(replica, lag, config, args.store_timeout)?;
    Ok(Tiers { replica: Some(replica), ..tiers })
}

fn store_failure(error: &store::Error) -> Error {
    let text = error.to_string();
    match error.kind() {
        Kind::Unavailable
            if ["cannot reach", "no host of"].iter().any(|what| text.starts_with(what)) && !text.contains("; ") =>
        {
            Error::new(error).hint("start it, or check host and port of --store; with --standby the server waits for it")
        }
        // PostgreSQL and MySQL: the user may not.
        Kind::Config if ["(42501)", "(1142)"].iter().any(|code| text.contains(code)) => {
            Error::input(error).hint(
                "GRANT the user of --store SELECT, INSERT, UPDATE and DELETE on the tables weir_…, and CREATE for their first start",
            )
        }
        Kind::Config if !text.contains("; ") => {
            Error::input(error).hint("check the URL of --store; `weir serve --help` shows what it takes")
        }
        _ => of_store(error),
    }
}

/// Listens from now on for the signals that end the server, or make it read files again. `ends_at_once`: what ends the server does
/// so without a drain.
fn end_signals(ends_at_once: &Arc<AtomicBool>, reloads: bool) -> Result<Signals, Error> {
    let failed = |error: io::Error| Error::new(format!("cannot wait for signals: {error}"));
    // Caught, so that a write above the limit of the size of files fails as on a full disk, and does not end the server.
    flag::register(SIGXFSZ, Arc::default()).map_err(failed)?;
    let mut signals = vec![SIGTERM, SIGINT];
    // `nohup` has it ignored, so that the server outlives its terminal.
    if reloads || !is_ignored(SIGHUP) {
        signals.push(SIGHUP);
    }
    for signal in signals.iter().filter(|signal| !(reloads && **signal == SIGHUP)) {
        flag::register_conditional_default(*signal, Arc::clone(ends_at_once)).map_err(failed)?;
    }
    Signals::new(signals).map_err(failed)
}

/// Whether this process was started with a signal ignored.
pub(super) fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok());
    ignored.is_some_and(|signals| signals >> (signal - 1) & 1 == 1)
}
