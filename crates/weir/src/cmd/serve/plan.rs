//! From settings to everything a server is made of.

use super::args::Args;
use cache::{self, policy};
use http1::Limits;
use kv::Error;
use kv::VALUE_BYTES_MAX;
use kv::faults::{FaultInjector, FaultSpec};
use kv::units::{Size, Span};
use server::tiered::SHARDS_MAX;
use server::{self, COMPAT_APIS, CompatListener, Options, Timeouts};
use std::fmt::Display;
use std::sync::Arc;
use store::{self, Batching};

/// Without batches, requests in flight are bounded by sessions: as many as servers without batches have connections.
pub(super) const UNBATCHED_WORKERS: store::Workers = store::Workers { read: 16, write: 64 };

/// Everything a server is made of, checked.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) options: Options,
    pub(super) store_urls: Vec<String>,
    pub(super) read_fallback: Option<String>,
    /// Of all shards together.
    pub(super) cache: cache::Limits,
    pub(super) cache_shards: usize,
    pub(super) cache_policy: &'static policy::PolicyRow,
    pub(super) shadow_policies: Vec<&'static policy::PolicyRow>,
    pub(super) store_config: store::Config,
    pub(super) workers: (Option<usize>, Option<usize>),
    pub(super) deadline: Span,
}

/// The caller's mistake, and what to do about it.
fn wrong<T>(what: impl Display, hint: impl Display) -> Result<T, Error> {
    Err(Error::input(what).hint(hint))
}

/// The plan that the settings make, or the first of them that is wrong.
pub(super) fn plan(args: Args) -> Result<Plan, Error> {
    let args = args.with_file()?;
    let defaults = Options::default();
    let at_least_one = |name: &str, value: Option<usize>| match value {
        Some(0) => wrong(format!("--{name} is 0"), "it has to be 1 or more"),
        other => Ok(other),
    };
    let positive = |name: &str, value: Option<Span>| match value {
        Some(span) if span.0.is_zero() => wrong(format!("--{name} is 0"), "it has to be longer, as in 10s"),
        other => Ok(other.map(|span| span.0)),
    };
    let listen = args.listen.unwrap_or(defaults.listen);
    let lab = args.lab.unwrap_or(false);
    let compat = args.compat.iter().map(|text| compat_at(text)).collect::<Result<Vec<_>, _>>()?;
    let mut addresses = vec![format!("--listen {listen}")];
    addresses.retain(|_| !listen.ip().is_loopback());
    let remote = compat.iter().filter(|at| !at.listen.ip().is_loopback());
    addresses.extend(remote.map(|at| format!("--compat {}={}", at.api.name, at.listen)));
    if let Some(flag) = addresses.first() {
        if lab {
            let hint = "with --lab anybody may clear the store: listen on 127.0.0.1";
            return wrong(format!("--lab and {flag} do not go together"), hint);
        }
        let clears = |at: &&CompatListener| at.api.clears && !at.listen.ip().is_loopback();
        if let Some(CompatListener { api, listen }) = compat.iter().find(clears) {
            let what = format!("--compat {}={listen} would let anybody clear the store", api.name);
            return wrong(what, "listen on 127.0.0.1: this API has a route for that");
        }
        if !args.insecure.unwrap_or(false) {
            let what = format!("{flag} can be reached from other machines, without TLS or a password");
            return wrong(what, "listen on 127.0.0.1, or add --insecure");
        }
    }
    let value_bytes = args.value_bytes.map_or(defaults.value_bytes as u64, |size| size.0);
    if value_bytes > VALUE_BYTES_MAX as u64 {
        return wrong(format!("--value-bytes {} is too large", Size(value_bytes)), "most is 64MiB");
    }
    let batching = match args.batching.as_deref() {
        None | Some("on") => Batching::On,
        Some("off") if lab => Batching::Off,
        Some("off") => return wrong("--batching off is for measurements only", "add --lab"),
        Some(other) => return wrong(format!("--batching {other} is not known"), "known are on and off"),
    };
    let faults = faults(args.inject.as_deref(), lab)?;
    let cache_entries = args.cache_entries.unwrap_or(1_000_000);
    let cache_policy = policy_named("cache-policy", args.cache_policy.as_deref().unwrap_or("lru"))?;
    let shadow_policies = shadow_policies(args.shadow_policies.as_deref().unwrap_or_default())?;
    let mut store_urls = store_urls(&args.store)?;
    if store_urls.is_empty() {
        store_urls.push("fjall:./weir-data".into());
    }
    if let Some(url) = args.read_fallback.as_ref().filter(|url| store_urls.contains(url)) {
        let what = format!("--read-fallback {} is a --store, too", store::redacted(url));
        return wrong(what, "a replica is a server of its own; make one with `weir replica init`");
    }
    // Only the embedded store flushes in this process.
    let flushes = |url: &String| url.starts_with("fjall:");
    let words = faults.as_ref().map(|faults| faults.base().words()).unwrap_or_default();
    let flush = words.iter().find(|word| word.starts_with("flush="));
    if let Some(flush) = flush.filter(|_| !store_urls.iter().any(flushes)) {
        let what = format!("--inject {flush} has no effect: only the embedded store flushes in this process");
        return wrong(what, "use a --store fjall:DIRECTORY, or the fault store_worker");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let deadline =
        positive("store-timeout", args.store_timeout)?.unwrap_or(std::time::Duration::from_secs(10));
    let store_config = store::Config {
        queue_requests: at_least_one("store-queue", args.store_queue)?.unwrap_or(10_000),
        // What has waited so long is refused, with time left to say so before the deadline makes it unknown.
        queue_wait_max: deadline / 2,
        lease_wait: args.lease_wait.map_or(store::Config::default().lease_wait, |span| span.0),
        batching,
        acknowledge_early: args.acknowledge_early,
        faults: faults.clone(),
        ..store::Config::default()
    };
    Ok(Plan {
        options: Options {
            listen,
            compat,
            lab,
            faults,
            cache_entries,
            workers: at_least_one("workers", args.workers)?.unwrap_or(cores),
            limits: Limits::default(),
            value_bytes: value_bytes as usize,
            connections: at_least_one("connections", args.connections)?.unwrap_or(defaults.connections),
            timing: args.timing.unwrap_or(false),
            drain: args.drain.map_or(defaults.drain, |span| span.0),
            timeouts: Timeouts {
                idle: positive("idle-timeout", args.idle_timeout)?.unwrap_or(defaults.timeouts.idle),
                head: positive("head-timeout", args.head_timeout)?.unwrap_or(defaults.timeouts.head),
                ..defaults.timeouts
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
        shadow_policies,
        store_config,
        workers: (
            at_least_one("store-read-workers", args.store_read_workers)?,
            at_least_one("store-write-workers", args.store_write_workers)?,
        ),
        deadline: Span(deadline),
    })
}

/// `NAME=ADDRESS:PORT`.
fn compat_at(text: &str) -> Result<CompatListener, Error> {
    let Some((name, address)) = text.split_once('=') else {
        return wrong(format!("--compat {text} has no address"), "write --compat crud=127.0.0.1:8081");
    };
    let Some(api) = server::find_compat(name) else {
        let known: Vec<&str> = COMPAT_APIS.iter().map(|api| api.name).collect();
        return wrong(format!("--compat {name} is not known"), format!("known are {}", known.join(", ")));
    };
    match address.parse() {
        Ok(listen) => Ok(CompatListener { api, listen }),
        Err(_) => wrong(
            format!("--compat {text}: {address} is no address with a port"),
            format!("write --compat {name}=127.0.0.1:8081; port 0 takes a free one"),
        ),
    }
}

fn policy_named(flag: &str, name: &str) -> Result<&'static policy::PolicyRow, Error> {
    match policy::find(name) {
        Some(policy) => Ok(policy),
        None => wrong(format!("--{flag} {name} is not known"), format!("known are {}", policy::names())),
    }
}

fn shadow_policies(names: &[String]) -> Result<Vec<&'static policy::PolicyRow>, Error> {
    if let Some(name) = repeated(names) {
        return wrong(format!("--shadow-policies has {name} twice"), "name each policy once");
    }
    names.iter().map(|name| policy_named("shadow-policies", name)).collect()
}

/// The first of `names` that an earlier one equals.
fn repeated(names: &[String]) -> Option<&String> {
    names.iter().enumerate().find(|(index, name)| names[..*index].contains(name)).map(|(_, name)| name)
}

/// The injector that every server with `--lab` has, also without faults at the start.
fn faults(words: Option<&[String]>, lab: bool) -> Result<Option<Arc<FaultInjector>>, Error> {
    if words.is_some() && !lab {
        return wrong("--inject is for measurements only", "add --lab");
    }
    let spec = FaultSpec::parse(words.unwrap_or_default()).map_err(|why| why.at(format_args!("--inject")))?;
    Ok(lab.then(|| Arc::new(FaultInjector::new(spec))))
}

/// The URLs of the stores, in their order. The environment has one variable for all of them, separated by blanks; where not
/// every word begins like a store, it is a single URL with blanks.
pub(in crate::cmd) fn store_urls(given: &[String]) -> Result<Vec<String>, Error> {
    let is_store = |word: &str| store::SCHEMES.iter().any(|scheme| word.starts_with(scheme.prefix));
    let split = |text: &String| match text.split_whitespace().all(is_store) {
        true => text.split_whitespace().map(str::to_owned).collect(),
        false => vec![text.clone()],
    };
    let urls: Vec<String> = given.iter().flat_map(split).collect();
    // Each memory: is a store of its own.
    let named: Vec<String> = urls.iter().filter(|url| *url != "memory:").cloned().collect();
    if let Some(url) = repeated(&named) {
        let what = format!("--store {} is given twice", store::redacted(url));
        return wrong(what, "every shard is a store of its own");
    }
    if urls.len() > SHARDS_MAX {
        return wrong(format!("{} stores are given", urls.len()), format!("most are {SHARDS_MAX}"));
    }
    Ok(urls)
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

    fn planned(flags: &[&str]) -> Result<Plan, Error> {
        let words = std::iter::once("serve").chain(flags.iter().copied());
        plan(Alone::try_parse_from(words).map_err(Error::input)?.args)
    }

    #[test]
    fn a_flag_is_stronger_than_the_file_and_the_file_than_the_default() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("weir.toml");
        std::fs::write(
            &file,
            "workers = 3\ncache-entries = 7\nstore = \"memory:\"\nshadow-policies = [\"lru\", \"s3fifo\"]\n\
             compat = [\"crud=127.0.0.1:0\"]\n",
        )
        .unwrap();
        let plan = planned(&["--config", file.to_str().unwrap(), "--workers", "5"]).unwrap();
        assert_eq!((plan.options.workers, plan.cache.entries), (5, 7));
        assert_eq!(plan.store_urls, ["memory:"]);
        assert_eq!(plan.options.value_bytes, 8 << 20);
        assert_eq!(plan.shadow_policies.iter().map(|row| row.name).collect::<Vec<_>>(), ["lru", "s3fifo"]);
        assert_eq!(plan.options.compat[0].api.name, "crud");
        let two = ["--compat", "root=127.0.0.1:1", "--compat", "rpc=[::1]:2"];
        let plan = planned(&[&["--config", file.to_str().unwrap()], &two[..]].concat()).unwrap();
        let names: Vec<&str> = plan.options.compat.iter().map(|at| at.api.name).collect();
        assert_eq!(names, ["root", "rpc"]);
    }

    #[test]
    fn help_names_every_policy() {
        use clap::CommandFactory;
        let help = Alone::command().render_long_help().to_string();
        assert!(help.contains(&format!("Which row leaves a full cache: {} [", policy::names())), "{help}");
    }

    #[test]
    fn help_names_every_fault() {
        use clap::CommandFactory;
        let help = Alone::command().render_long_help().to_string();
        assert!(help.contains(&format!("Inject faults: any of {};", kv::faults::names())), "{help}");
    }

    #[test]
    fn faults_come_from_flags_or_the_file_and_every_lab_server_has_an_injector() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("weir.toml");
        std::fs::write(&file, "lab = true\ninject = [\"lock=0s\", \"fail=7\"]\n").unwrap();
        let file = ["--config", file.to_str().unwrap()];
        for (flags, expected) in [
            (&file[..], Some(vec!["lock=0s", "fail=7"])),
            (
                &[file[0], file[1], "--inject", "worker=1.5ms,cpu=250us"],
                Some(vec!["cpu=250us", "worker=1.5ms"]),
            ),
            (&["--lab"], Some(vec![])),
            (&[], None),
        ] {
            let faults = planned(flags).unwrap().options.faults;
            assert_eq!(
                faults.map(|faults| faults.base().words()),
                expected.map(|words| words.into_iter().map(str::to_owned).collect()),
                "{flags:?}"
            );
        }
    }

    #[test]
    fn help_names_every_compatibility_api() {
        use clap::CommandFactory;
        let help = Alone::command().render_long_help().to_string();
        for row in COMPAT_APIS {
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
            (
                &["--lab", "--store", "memory:", "--inject", "store_worker=1ms,flush=2ms"],
                "--inject flush=2ms has no effect",
            ),
            (&["--value-bytes", "65MiB"], "65MiB is too large"),
            (
                &["--store", "fjall:a", "--store", "fjall:b", "--store", "fjall:a"],
                "--store fjall:a is given twice",
            ),
            (&["--store", &"memory: ".repeat(33)], "33 stores are given"),
            (&["--store", "postgres://h/a", "--read-fallback", "postgres://h/a"], "is a --store, too"),
            (&["--batching", "off"], "for measurements only"),
            (&["--lab", "--batching", "maybe"], "--batching maybe is not known"),
            (&["--inject", "cpu=1ms"], "--inject is for measurements only"),
            (&["--lab", "--inject", "cpu=1ms,disk=1ms"], "--inject: unknown fault \"disk\""),
            (&["--lab", "--inject", "cpu=1ms", "--inject", "cpu=2ms"], "--inject: cpu is given twice"),
            (&["--lab", "--listen", "0.0.0.0:80", "--insecure"], "do not go together"),
            (&["--compat", "crud=0.0.0.0:80", "--insecure"], "would let anybody clear the store"),
            (&["--cache-policy", "mru"], "--cache-policy mru is not known"),
            (&["--shadow-policies", "lru,mru"], "--shadow-policies mru is not known"),
            (&["--shadow-policies", "lru,fifo,lru"], "--shadow-policies has lru twice"),
            (&["--store-timeout", "5"], "a duration is a number with"),
        ] {
            let failure = planned(flags).expect_err(&format!("{flags:?}"));
            assert!(failure.to_string().contains(part), "{flags:?}: {failure}");
            assert!(failure.is_input(), "{flags:?}");
        }
    }
}
