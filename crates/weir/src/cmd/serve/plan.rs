//! From settings to everything a server is made of.

use super::args::Args;
use super::memory;
use kv::Error;
use kv::faults::{FaultInjector, FaultSpec};
use kv::units::Size;
use server::tiered::SHARDS_MAX;
use server::{AccessLog, CompatListener, Listen, Options, S3Credentials, Tls, Tokens};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use store::{self, Batching, EventLog, Scheme};

/// Settings that fit together, and what follows from them.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) args: Args,
    pub(super) store_urls: Vec<String>,
    /// How the server serves.
    pub(super) options: Options,
}

/// The caller's mistake, and what to do about it.
fn wrong<T>(what: impl Display, hint: impl Display) -> Result<T, Error> {
    Err(Error::input(what).hint(hint))
}

/// The plan that the settings make, or the first of them that is wrong.
pub(super) fn plan(args: Args) -> Result<Plan, Error> {
    let lab = args.lab;
    if args.listen.is_empty() {
        return wrong("listen names no address", "write listen = [\"127.0.0.1:8080\"], or leave it out");
    }
    let remote: Vec<&CompatListener> = args.compat.iter().filter(|at| !at.listen.is_local()).collect();
    let first =
        |flag, list: &[Listen]| list.iter().find(|at| !at.is_local()).map(|at| format!("{flag} {at}"));
    let own = first("--listen", &args.listen).or_else(|| first("--ops-listen", &args.ops_listen));
    let shown = |at: &CompatListener| format!("--compat {}={}", at.api.name, at.listen);
    let compat = remote.first().map(|at| shown(at));
    if let Some(flag) = own.as_ref().or(compat.as_ref()) {
        if lab {
            let hint = "with --lab anybody may clear the store: listen on 127.0.0.1";
            return wrong(format!("--lab and {flag} do not go together"), hint);
        }
        if let Some(CompatListener { api, listen }) = remote.iter().find(|at| at.api.clears) {
            let what = format!("--compat {}={listen} would let anybody clear the store", api.name);
            return wrong(what, "listen on 127.0.0.1: this API has a route for that");
        }
    }
    let missing = match (&args.tls_cert, &args.tokens) {
        (Some(_), Some(_)) => None,
        (Some(_), None) => Some("without tokens (--tokens)"),
        (None, Some(_)) => Some("without TLS (--tls-cert, --tls-key)"),
        (None, None) => Some("without TLS (--tls-cert, --tls-key) and tokens (--tokens)"),
    };
    let own = own.zip(missing);
    // Compatibility APIs have neither, but for S3: its requests are signed.
    let missing = |at: &&CompatListener| match (at.api.is_s3, &args.tls_cert) {
        (true, Some(_)) => None,
        (true, None) => Some("without TLS (--tls-cert, --tls-key)"),
        (false, _) => Some("without TLS and tokens"),
    };
    let open = remote.iter().find_map(|at| Some((shown(at), missing(at)?)));
    if let Some((flag, missing)) = own.or(open)
        && !args.insecure
    {
        let what = format!("{flag} can be reached from other machines, {missing}");
        return wrong(what, "listen on 127.0.0.1, give what is missing, or add --insecure");
    }
    if let (Some(_), Some(at)) = (&args.tokens, args.compat.iter().find(|at| !at.api.is_s3)) {
        let what = format!("--tokens and {} do not go together", shown(at));
        return wrong(what, "this API knows no tokens; leave one of the two out");
    }
    match (&args.s3_credentials, args.compat.iter().find(|at| at.api.is_s3)) {
        (None, Some(at)) => {
            let hint = "name a file with access keys and secret keys: docs/reference.md has an example";
            return wrong(format!("{} has no --s3-credentials", shown(at)), hint);
        }
        (Some(_), None) => {
            return wrong("--s3-credentials has no effect", "add --compat s3=127.0.0.1:9000");
        }
        _ => {}
    }
    if args.event_log_bytes.is_some() && args.event_log.is_none() {
        return wrong("--event-log-bytes has no effect without --event-log", "add --event-log 24h");
    }
    if args.batching == Batching::Off && !lab {
        return wrong("--batching off is for measurements only", "add --lab");
    }
    if args.batching == Batching::Off && args.event_log.is_some() {
        return wrong(
            "--event-log does not go with --batching off, which keeps no events",
            "leave one of them out",
        );
    }
    if let Some(name) = repeated(args.shadow_policies.iter().map(|policy| policy.name)) {
        return wrong(format!("--shadow-policies has {name} twice"), "name each policy once");
    }
    let store_urls = store_urls(&args.store)?;
    let given = args.memory_budget.map(|Size(bytes)| usize::try_from(bytes).unwrap_or(usize::MAX));
    // Signatures between parts of a body, a head before a value, and the rest of a row count with these.
    let value_max = args.value_bytes + args.value_bytes / 64 + (32 << 10);
    // A list with values holds two pages while it asks several stores.
    let pages = if store_urls.len() > 1 { 2 } else { 1 };
    let budget_min = pages * value_max.max(store::LIST_BYTES_MAX);
    let memory_budget = given.unwrap_or_else(|| memory::budget(args.cache_bytes.0).max(budget_min));
    if memory_budget < budget_min {
        let (budget, value) = (Size(memory_budget as u64), Size(args.value_bytes as u64));
        let what = format!("--memory-budget {budget} is too small for values up to --value-bytes {value}");
        let why = if pages > 1 { ": a list over several stores holds two pages" } else { "" };
        return wrong(what, format!("raise it to {}{why}", Size(budget_min as u64)));
    }
    if args.standby && store_urls.len() > 1 {
        let what = "--standby goes with one --store: two servers could each own a part of several";
        return wrong(what, "leave --standby out, or divide the keys among pairs of servers");
    }
    if let Some(url) = args.read_fallback.as_ref().filter(|url| store_urls.contains(url)) {
        let what = format!("--read-fallback {} is a --store, too", store::redacted(url));
        return wrong(what, "a replica is a server of its own; make one with `weir replica init`");
    }
    if !args.inject.is_empty() && !lab {
        return wrong("--inject is for measurements only", "add --lab");
    }
    let faults = FaultSpec::parse(&args.inject).map_err(|why| why.at("--inject"))?;
    // Only the embedded store flushes in this process.
    let flushes = store_urls.iter().any(|url| url.starts_with("file:"));
    if let Some(flush) = faults.words().iter().find(|word| word.starts_with("flush=") && !flushes) {
        let what = format!("--inject {flush} has no effect: only the embedded store flushes in this process");
        return wrong(what, "use a --store file:DIRECTORY, or the fault store_worker");
    }
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => {
            let tls = Tls::new(certificate, key, args.tls_client_ca.as_deref());
            Some(Arc::new(tls?))
        }
        (None, None) if args.tls_client_ca.is_none() => None,
        (certificate, _) => {
            let missing = if certificate.is_none() { "--tls-cert" } else { "--tls-key" };
            return wrong(format!("there is no {missing}"), "TLS needs --tls-cert and --tls-key");
        }
    };
    let tokens = args.tokens.as_deref().map(Tokens::new).transpose()?.map(Arc::new);
    let s3_credentials = args.s3_credentials.as_deref().map(S3Credentials::new).transpose()?.map(Arc::new);
    let log = || Arc::new(AccessLog::new(args.access_log_sample, args.access_log_rate));
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options {
        listen: args.listen.clone(),
        tls,
        tokens,
        ops_listen: args.ops_listen.clone(),
        compat: args.compat.clone(),
        s3_credentials,
        stores: store_urls.iter().filter_map(|url| url.split(':').next()).map(str::to_owned).collect(),
        asynchronous_failover: args.allow_asynchronous_failover,
        hosts: args.host.clone(),
        // Every server with --lab has an injector, also without faults at the start.
        faults: lab.then(|| Arc::new(FaultInjector::new(faults))),
        cache_entries: args.cache_entries,
        workers: args.workers.unwrap_or_else(cores),
        value_bytes: args.value_bytes,
        memory_budget,
        connections: args.connections,
        access_log: args.access_log.is_some().then(log),
        timing: args.timing,
        drain: args.drain.0,
        standby: args.standby,
        idle_timeout: args.idle_timeout,
        head_timeout: args.head_timeout,
    };
    Ok(Plan { args, store_urls, options })
}

impl Plan {
    /// How each store is used.
    pub(super) fn store_config(&self) -> store::Config {
        store::Config {
            queue_requests: self.args.store_queue,
            queue_bytes: self.options.memory_budget,
            // What has waited so long is refused, with time left to say so before the deadline makes it unknown.
            queue_wait_max: self.args.store_timeout / 2,
            lease_wait: self.args.lease_wait.0,
            is_standby: self.args.standby,
            batching: self.args.batching,
            acknowledge_early: self.args.acknowledge_early,
            faults: self.options.faults.clone(),
            event_log: self.args.event_log.map(|age| EventLog {
                age,
                bytes: usize::try_from(self.args.event_log_bytes.unwrap_or(EVENT_LOG_BYTES).0)
                    .unwrap_or(usize::MAX),
            }),
            ..store::Config::default()
        }
    }
}

/// The first of `names` that an earlier one equals.
fn repeated<T: Ord + Copy>(mut names: impl Iterator<Item = T>) -> Option<T> {
    let mut seen = BTreeSet::new();
    names.find(|name| !seen.insert(*name))
}

/// Of the event log, unless told otherwise.
const EVENT_LOG_BYTES: Size = Size(64 << 20);

/// The kinds of stores of other crates.
pub(super) const OTHER_SCHEMES: &[Scheme] = &[
    #[cfg(feature = "cassandra")]
    cassandra::SCHEME,
    #[cfg(not(feature = "cassandra"))]
    Scheme {
        prefix: "cassandra://",
        example: "cassandra://host1,host2/keyspace",
        open: |_| {
            let what = "this weir was built without Cassandra; build it with cargo build --release --features cassandra";
            Err(store::Error::new(store::Kind::Config, what))
        },
    },
];

/// The URLs of the stores, in their order. The environment has one variable for all of them, separated by blanks; where not
/// every word begins like a store, it is a single URL with blanks.
pub(in crate::cmd) fn store_urls(given: &[String]) -> Result<Vec<String>, Error> {
    let is_store =
        |word: &str| store::SCHEMES.iter().chain(OTHER_SCHEMES).any(|scheme| word.starts_with(scheme.prefix));
    let split = |text: &String| match text.split_whitespace().all(is_store) {
        true => text.split_whitespace().map(str::to_owned).collect(),
        false => vec![text.clone()],
    };
    let urls: Vec<String> = given.iter().flat_map(split).collect();
    if urls.is_empty() {
        return wrong("--store names no store", "write --store file:./weir-data, or leave it out");
    }
    // Each memory: is a store of its own.
    if let Some(url) = repeated(urls.iter().filter(|url| *url != "memory:")) {
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
    use crate::cmd::{Cli, Command};
    use cache::policy;
    use clap::{CommandFactory, Parser};
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};
    use server::COMPAT_APIS;
    use std::ffi::OsString;

    fn planned(flags: &[&str]) -> Result<Plan, Error> {
        let words: Vec<OsString> =
            [&["weir", "serve"], flags].concat().into_iter().map(OsString::from).collect();
        match Cli::try_parse_from(&words).map_err(Error::input)?.command {
            Command::Serve(args) => plan(args.with_file(&words)?),
            _ => panic!("this is another command"),
        }
    }

    fn help() -> String {
        Cli::command().find_subcommand_mut("serve").unwrap().render_long_help().to_string()
    }

    #[test]
    fn a_flag_is_stronger_than_the_file_and_the_file_than_the_default() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("weir.toml");
        std::fs::write(
            &file,
            "workers = 3\ncache-entries = 7\nstore = \"memory:\"\nshadow-policies = [\"lru\", \"s3fifo\"]\n\
             compat = [\"crud=127.0.0.1:0\"]\nhost = [\"a.example\", \"[::2]\"]\n",
        )
        .unwrap();
        let plan = planned(&["--config", file.to_str().unwrap(), "--workers", "5"]).unwrap();
        assert_eq!((plan.options.workers, plan.args.cache_entries), (5, 7));
        assert_eq!(plan.store_urls, ["memory:"]);
        assert_eq!(plan.options.value_bytes, 8 << 20);
        assert_eq!(
            plan.args.shadow_policies.iter().map(|row| row.name).collect::<Vec<_>>(),
            ["lru", "s3fifo"]
        );
        assert_eq!(plan.args.compat[0].api.name, "crud");
        assert_eq!(plan.options.hosts, ["a.example", "[::2]"]);
        let lists = ["--listen", "127.0.0.1:1, [::1]:2", "--host", "a, b", "--shadow-policies", "lru, fifo"];
        let plan = planned(&lists).unwrap();
        assert_eq!(
            plan.options.listen.iter().map(Listen::to_string).collect::<Vec<_>>(),
            ["127.0.0.1:1", "[::1]:2"]
        );
        assert_eq!((plan.options.hosts.len(), plan.args.shadow_policies.len()), (2, 2));
        let two = ["--compat", "root=127.0.0.1:1", "--compat", "rpc=[::1]:2"];
        let plan = planned(&[&["--config", file.to_str().unwrap()], &two[..]].concat()).unwrap();
        let names: Vec<&str> = plan.args.compat.iter().map(|at| at.api.name).collect();
        assert_eq!(names, ["root", "rpc"]);
    }

    /// As a fuzzer would, with its whole corpus in one file.
    #[test]
    fn a_file_of_any_bytes_is_read_or_refused_in_one_line() {
        const GOOD: &str = "listen = [\"127.0.0.1:1\", \"[::1]:2\"]\nworkers = 3\nlab = true\ncache-entries = 7\n\
            cache-bytes = \"64MiB\"\nstore = [\"memory:\", \"postgres://u:secret@h/d\"]\nstore-timeout = \"1.5s\"\n\
            shadow-policies = [\"lru\", \"s3fifo\"]\ncompat = [\"crud=127.0.0.1:0\"]\nhost = [\"a.example\", \"[::2]\"]\n\
            inject = [\"lock=0s\"]\nbatching = \"on\"\n";
        const BITS: &[&str] = &[
            "\"", "\n", "=", "[", "{", "é", "\u{7f}", "0x", "-1", "1e400", "nan", "--", "@", "%", "\\u0000",
            "{}",
        ];
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("weir.toml");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut below = |limit: usize| (random.next_u64() % limit.max(1) as u64) as usize;
        let (mut read, mut refused) = (0, 0);
        for _ in 0..400 {
            let mut bytes = GOOD.as_bytes().to_vec();
            for _ in 0..=below(2) {
                let at = below(bytes.len());
                let end = (at + below(12)).min(bytes.len());
                match below(5) {
                    0 => bytes[at] = below(256) as u8,
                    1 => drop(bytes.drain(at..end)),
                    2 => bytes.truncate(at),
                    3 => bytes.extend_from_within(at..end),
                    _ => drop(bytes.splice(at..end, BITS[below(BITS.len())].bytes())),
                }
            }
            std::fs::write(&file, &bytes).unwrap();
            match planned(&["--config", file.to_str().unwrap()]) {
                Ok(_) => read += 1,
                Err(error) => {
                    let text = error.to_string();
                    let shown = String::from_utf8_lossy(&bytes).into_owned();
                    assert!(!text.contains(char::is_control), "{text:?} of {shown}");
                    assert!(!text.contains("secret") || !shown.contains("u:secret@h/d"), "{text} of {shown}");
                    refused += 1;
                }
            }
        }
        assert!(read > 20 && refused > 20, "{read} read, {refused} refused");
    }

    #[test]
    fn help_names_every_policy() {
        let help = help();
        assert!(help.contains(&format!("Eviction policy: {}", policy::names())), "{help}");
    }

    #[test]
    fn help_names_every_fault() {
        let help = help();
        assert!(help.contains(&format!("Names: {} (", kv::faults::FAULTS.join(", "))), "{help}");
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
        let help = help();
        for row in COMPAT_APIS {
            assert!(help.contains(row.name), "{}: {help}", row.name);
        }
    }

    #[test]
    fn stores_are_given_one_by_one_or_as_a_list() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("weir.toml");
        std::fs::write(&file, "store = [\"memory:\", \"file:x\"]\n").unwrap();
        for (flags, expected) in [
            (&["--config", file.to_str().unwrap()][..], &["memory:", "file:x"][..]),
            (&["--store", "file:b", "--store", "file:a"], &["file:b", "file:a"]),
            // As the environment has it.
            (&["--store", "file:b  postgres://h/d"], &["file:b", "postgres://h/d"]),
            (&["--store", "file:my data"], &["file:my data"]),
            (&["--store", "memory:", "--store", "memory:"], &["memory:", "memory:"]),
            (&[], &["file:./weir-data"]),
        ] {
            assert_eq!(planned(flags).unwrap().store_urls, expected, "{flags:?}");
        }
    }

    #[test]
    fn wrong_settings_are_named_with_a_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("weir.toml");
        std::fs::write(&file, "workers = 3\nchache-entries = 7\n").unwrap();
        let empty = directory.path().join("empty.toml");
        std::fs::write(&empty, "listen = []\n").unwrap();
        for (flags, part) in [
            (&["--config", "/nowhere.toml"][..], "cannot read /nowhere.toml"),
            (&["--config", file.to_str().unwrap()], "line 2: unknown field `chache-entries`"),
            (&["--config", empty.to_str().unwrap()], "listen names no address"),
            (&["--listen", "0.0.0.0:80"], "can be reached from other machines"),
            (&["--listen", "127.0.0.1:80", "--listen", "[::]:80"], "--listen [::]:80 can be reached"),
            (
                &["--ops-listen", "0.0.0.0:80"],
                "--ops-listen 0.0.0.0:80 can be reached from other machines, without TLS",
            ),
            (&["--listen", "0.0.0.0:80", "--tls-cert", "c"], "without tokens (--tokens); hint: "),
            (&["--listen", "0.0.0.0:80", "--tokens", "t"], "without TLS (--tls-cert, --tls-key); hint: "),
            (&["--tokens", "/nowhere.toml"], "cannot read /nowhere.toml"),
            (
                &["--tokens", "t", "--compat", "root=127.0.0.1:1"],
                "--tokens and --compat root=127.0.0.1:1 do not go",
            ),
            (&["--compat", "s3=127.0.0.1:1"], "--compat s3=127.0.0.1:1 has no --s3-credentials; hint: "),
            (&["--s3-credentials", "c"], "--s3-credentials has no effect"),
            (
                &["--compat", "s3=127.0.0.1:1", "--s3-credentials", "/nowhere.toml"],
                "cannot read /nowhere.toml",
            ),
            (
                &["--compat", "s3=0.0.0.0:1", "--s3-credentials", "c"],
                "--compat s3=0.0.0.0:1 can be reached from other machines, without TLS (",
            ),
            (
                &["--compat", "root=0.0.0.0:1", "--tls-cert", "c", "--tls-key", "k"],
                "--compat root=0.0.0.0:1 can be reached from other machines, without TLS and tokens",
            ),
            (&["--listen", "nowhere"], "--listen <ADDRESS:PORT>': it is no address with a port"),
            (&["--workers", "0"], "'0' for '--workers <N>': it has to be 1 or more"),
            (&["--workers", "a"], "'a' for '--workers <N>': it has to be 1 or more"),
            (&["--store-timeout", "0s"], "it has to be longer than 0"),
            (
                &["--lab", "--store", "memory:", "--inject", "store_worker=1ms,flush=2ms"],
                "--inject flush=2ms has no effect",
            ),
            (&["--value-bytes", "65MiB"], "65MiB is too large"),
            (&["--memory-budget", "8MiB"], "--memory-budget 8MiB is too small for values up to "),
            (
                &["--store", "file:a", "--store", "file:b", "--memory-budget", "16MiB"],
                "--memory-budget 16MiB is too small for values up to --value-bytes 8MiB; hint: raise it to 16704KiB: a list",
            ),
            (
                &["--value-bytes", "1MiB", "--memory-budget", "4095KiB"],
                "--memory-budget 4095KiB is too small for values up to --value-bytes 1MiB; hint: raise it to 4MiB",
            ),
            (
                &["--store", "file:a", "--store", "file:b", "--store", "file:a"],
                "--store file:a is given twice",
            ),
            (&["--store", &"memory: ".repeat(33)], "33 stores are given"),
            (&["--store", "postgres://h/a", "--read-fallback", "postgres://h/a"], "is a --store, too"),
            (&["--batching", "off"], "for measurements only"),
            (&["--lab", "--batching", "maybe"], "'maybe' for '--batching <on|off>': it is not known"),
            (&["--inject", "cpu=1ms"], "--inject is for measurements only"),
            (&["--lab", "--inject", "cpu=1ms,disk=1ms"], "--inject: unknown fault \"disk\""),
            (&["--lab", "--inject", "cpu=1ms", "--inject", "cpu=2ms"], "--inject: cpu is given twice"),
            (&["--lab", "--listen", "0.0.0.0:80", "--insecure"], "do not go together"),
            (&["--compat", "crud=0.0.0.0:80", "--insecure"], "would let anybody clear the store"),
            (&["--cache-policy", "mru"], "'mru' for '--cache-policy <NAME>': it is not known"),
            (&["--shadow-policies", "lru,mru"], "'mru' for '--shadow-policies <NAME,…>': it is not known"),
            (&["--shadow-policies", "lru,fifo,lru"], "--shadow-policies has lru twice"),
            (&["--host", "weir.example:80"], "'weir.example:80' for '--host <NAME>': it is no host"),
            (&["--host", "http://weir.example"], "it is no host"),
            (&["--host", ""], "--host"),
            (&["--access-log", "-", "--access-log-sample", "1.5"], "it is no part of all"),
            (&["--store-timeout", "5"], "a duration is a number with"),
        ] {
            let failure = planned(flags).expect_err(&format!("{flags:?}"));
            assert!(failure.to_string().contains(part), "{flags:?}: {failure}");
            assert!(failure.is_input(), "{flags:?}");
        }
    }
}
