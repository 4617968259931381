//! The plan of a load: all that a run needs, as the flags of `weir load` give it.

use super::dialect::{DIALECTS, Dialect, OperationTemplate};
use super::distribution::Distribution;
use super::header::HttpRequest;
use super::http_request::{RequestFlags, pattern};
use super::mix::{self, Mix, MixEntry, Operation};
use super::pacing::{Arrivals, Pacing};
use super::seconds::SECOND;
use super::stages::Stages;
use super::target::{Target, check_http2_path};
use super::tls::Tls;
use super::value_size::ValueSize;
use super::variables;
use super::verify::{MARK_BYTES, Verify};
use super::workload::{WORKLOADS, Workload};
use clap::ValueEnum;
use clap::builder::ValueParser;
use kv::Error;
use kv::faults::TIME_MAX;
use kv::units::{Span, short};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// All that a run needs: two runs of one plan send the same requests in the same order.
#[derive(Clone, Debug, clap::Parser, Serialize, Deserialize)]
// By it the parser sees whether there is a plan; it does not fill the group itself where arguments are flattened.
#[group(args = ["urls"])]
pub struct Plan {
    /// URL to request, as http://host:port/path, https://… or unix:/socket:/path; clients are divided among several URLs
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<Target>,

    /// What is sent, and what counts as a success.
    #[command(flatten)]
    pub http: RequestFlags,

    /// Clients, each with one request in flight and a connection of its own
    #[arg(long, short, value_name = "N", default_value_t = 16, default_value_if("find_capacity", "true", CAPACITY_CLIENTS), value_parser = up_to(100_000), help_heading = "Load")]
    pub clients: u32,

    /// When a client sends.
    #[command(flatten)]
    pub pacing: Pacing,

    /// Threads of the load generator
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = up_to(1024), help_heading = "Load")]
    pub threads: u32,

    /// Time to run before the measured window
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = span, help_heading = "Load")]
    pub warmup: Duration,

    /// Length of the measured window
    #[arg(long, value_name = "TIME", visible_alias = "duration", default_value = "10s", value_parser = span_not_zero, help_heading = "Load")]
    pub window: Duration,

    /// Seed of the random numbers; the same seed gives the same requests
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,

    /// Workload for a key-value server, see --list. Any flag of this group asks for a load of keys and values, by default get_popular; without one, the URL is requested as it is
    #[arg(long, value_name = "NAME", help_heading = KEY_VALUE)]
    pub workload: Option<&'static Workload>,

    /// HTTP API of the server: a name from --list, or a file that describes it [default: weir]
    #[arg(long, value_name = "NAME|FILE.toml", help_heading = KEY_VALUE)]
    pub dialect: Option<&'static Dialect>,

    /// How many keys there are [default: the workload's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = KEY_VALUE)]
    pub keys: Option<u64>,

    /// Operations and their shares, as in get=50,put=30,delete=20 [default: the workload's]
    #[arg(long, value_name = "WEIGHTS", help_heading = KEY_VALUE)]
    pub mix: Option<Mix>,

    /// How keys are chosen, see --list [default: the workload's]
    #[arg(long, value_name = "NAME", help_heading = KEY_VALUE)]
    pub distribution: Option<Distribution>,

    /// Size of the values in bytes, as in 100, 100-1000 (all equally likely) or zipfian:100-100000 (the shorter the likelier) [default: the workload's]
    #[arg(long, value_name = "SIZE", help_heading = KEY_VALUE)]
    pub value_size: Option<ValueSize>,

    /// When to connect: once per client, or anew for each request
    #[arg(long, value_name = "WHEN", default_value = "once", help_heading = "Connections")]
    pub connect: Connect,

    /// Speak HTTP/2
    #[arg(long, conflicts_with = "connect", help_heading = "Connections")]
    pub http2: bool,

    /// Clients that share a connection of HTTP/2 [default: 1]
    #[arg(long, value_name = "N", requires = "http2", value_parser = up_to(100_000), help_heading = "Connections")]
    pub streams: Option<u32>,

    // Checked every tenth of it, and every 100 ms at least.
    /// Maximum time for a request
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = span_not_zero, help_heading = "Connections")]
    pub timeout: Duration,

    /// Certificates of https.
    #[command(flatten)]
    pub tls: Tls,

    /// Do not write all keys before a workload that reads
    #[arg(long = "no-preload", action = clap::ArgAction::SetFalse, help_heading = KEY_VALUE)]
    pub preload: bool,

    /// How many of the values read are compared in full with those written: none, all, or a share as in 1% [default: none]
    #[arg(long, value_name = "WHICH", default_value = "none", hide_default_value = true, help_heading = KEY_VALUE)]
    pub verify: Verify,

    /// Check all operations after the run; exit with 1 if they violate linearizability
    #[arg(long = "check", value_name = "WHAT", help_heading = KEY_VALUE)]
    pub check_for: Option<Check>,

    /// Add the latency histograms to --json and --events
    #[arg(long, help_heading = "Output")]
    pub histogram: bool,

    /// Add the results of short intervals, as in 100ms, to --json and --events
    #[arg(long, value_name = "TIME", value_parser = bin, default_value = "1s", hide_default_value = true, help_heading = "Output")]
    pub bin: Duration,

    /// Add processor time to each request, as in cpu=2us: to see whether the generator is the limit
    #[arg(long = "inject", value_name = "FAULT", value_parser = added_cpu, default_value = "cpu=0s", hide = true)]
    pub added_cpu: Duration,
}

kv::serde_as_text!(&'static Workload, Mix, Distribution, ValueSize, Verify);

/// What the flags of key-value workloads are listed under.
const KEY_VALUE: &str = "Key-value workloads";
/// Most clients of `weir load --find-capacity`, where --clients is not given.
const CAPACITY_CLIENTS: &str = "256";
/// More requests than so many are counted together.
const KINDS_MAX: usize = 50;

/// What requests are told apart by in a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// Its place among the counts.
    pub(super) place: usize,
    /// An operation, or method and path.
    pub name: String,
    /// Of all requests, 0–1.
    pub share: f64,
}

/// When a client makes a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Connect {
    /// At its first request, and again only when the connection ended
    #[default]
    Once,
    /// A new connection for each request; the result is then mostly the cost of connecting
    Each,
}

/// What the operations of a run are judged for at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Check {
    /// Whether each operation can have taken effect at one instant between request and answer
    Linearizability,
}

impl Plan {
    /// Whether operations on keys are asked for, and not what the URL says.
    pub fn is_key_value(&self) -> bool {
        let of_keys =
            [self.workload.is_some(), self.dialect.is_some(), self.mix.is_some(), self.keys.is_some()];
        let of_values = [self.distribution.is_some(), self.value_size.is_some(), !self.preload];
        let of_checks = [self.verify != Verify::NONE, self.check_for.is_some()];
        of_keys.into_iter().chain(of_values).chain(of_checks).any(|is_said| is_said)
    }

    /// The operations, keys and values, where they are asked for.
    pub fn workload(&self) -> &'static Workload {
        self.workload.unwrap_or(&WORKLOADS[0])
    }

    /// Of HTTP/2: how many clients share a connection.
    pub(super) fn http2_streams(&self) -> Option<u32> {
        self.http2.then(|| self.streams.unwrap_or(1))
    }

    /// How operations look.
    pub fn dialect(&self) -> &'static Dialect {
        self.dialect.unwrap_or(&DIALECTS[0])
    }

    /// Which operations, in which shares.
    pub fn mix_entries(&self) -> &[MixEntry] {
        &self.mix.as_ref().unwrap_or(&self.workload().mix).entries
    }

    /// The requests that are no operation on keys, as they are sent to the first server.
    pub(super) fn requests(&self) -> Vec<HttpRequest> {
        let first = self.urls.first().map(|url| self.http.requests(url));
        // Where it fails, the check of the plan does.
        first.and_then(Result::ok).unwrap_or_default()
    }

    /// What the report tells apart.
    pub fn kinds(&self) -> Vec<Kind> {
        if self.is_key_value() {
            let shares = mix::shares(self.mix_entries()).into_iter();
            let kind = |(operation, share): (Operation, f64)| Kind {
                place: operation as usize,
                name: operation.name().to_owned(),
                share,
            };
            return shares.map(kind).collect();
        }
        let requests = self.requests();
        if requests.len() > KINDS_MAX {
            return vec![Kind { place: 0, name: "request".to_owned(), share: 1.0 }];
        }
        let all: f64 = requests.iter().map(|request| f64::from(request.weight)).sum();
        let kind = |(place, request): (usize, &HttpRequest)| Kind {
            place,
            name: request.name.clone(),
            share: f64::from(request.weight) / all,
        };
        requests.iter().enumerate().map(kind).collect()
    }

    /// How many counts there are, used or not.
    pub(super) fn kind_count(&self) -> usize {
        if self.is_key_value() { Operation::ALL.len() } else { self.kinds().len().max(1) }
    }

    /// The workload in one sentence; where another mix or distribution replaces its own, these.
    pub(super) fn about(&self) -> String {
        if !self.is_key_value() {
            let kinds: Vec<String> = self.kinds().into_iter().map(|kind| kind.name).collect();
            return format!("{}.", kinds.join(", "));
        }
        if self.mix.is_none() && self.distribution.is_none() {
            return self.workload().about.clone();
        }
        let shares = mix::shares(self.mix_entries()).into_iter();
        let shares =
            shares.map(|(operation, share)| format!("{} % {}", short(share * 100.0), operation.name()));
        format!("{}; keys: {}.", shares.collect::<Vec<_>>().join(", "), self.distribution_names())
    }

    /// Which keys the requests of `entry` name.
    pub(super) fn distribution_of(&self, entry: &MixEntry) -> Distribution {
        self.distribution.or(entry.distribution).unwrap_or(self.workload().distribution)
    }

    /// The distributions of all entries, each once, in their order.
    pub(super) fn distribution_names(&self) -> String {
        let names = self.mix_entries().iter().map(|entry| self.distribution_of(entry).to_string());
        let mut seen = BTreeSet::new();
        names.filter(|name| seen.insert(name.clone())).collect::<Vec<_>>().join(", ")
    }

    /// What an open loop with even gaps offers, and how long it does so before the window. Of random arrivals only the mean number of
    /// what is due follows from that.
    pub(super) fn evenly_offered(&self) -> Option<(Stages, Duration)> {
        let offered = self.pacing.offered().filter(|_| self.pacing.arrivals == Arrivals::Constant);
        offered.map(|offered| (offered, self.warmup))
    }

    /// How many keys there are; at least one.
    pub fn keys(&self) -> u64 {
        self.keys.unwrap_or(self.workload().keys)
    }

    /// How long the values are.
    pub fn value_size(&self) -> ValueSize {
        self.value_size.unwrap_or(self.workload().value_size)
    }

    /// The names that the histograms of the report will have.
    pub fn histogram_names(&self) -> Vec<String> {
        let open = ["service", "send_lag"].into_iter().filter(|_| self.pacing.is_open());
        let kinds = self.kinds().into_iter().map(|kind| kind.name);
        ["all".to_owned()].into_iter().chain(kinds).chain(open.map(str::to_owned)).collect()
    }

    /// Whether any request names a key.
    pub fn names_keys(&self) -> bool {
        self.is_key_value() && self.asks(|operation| self.dialect().names_key(operation))
    }

    /// How many keys, from the first on, are written and read back before the run. None where nothing is read: only then
    /// must keys be there. None either where the dialect reads without naming a key.
    pub fn preload_keys(&self) -> u64 {
        let reads = |operation| operation == Operation::Get && self.dialect().names_key(operation);
        let wanted = self.preload && self.is_key_value() && self.asks(reads);
        if wanted { self.workload().preload_keys_max.unwrap_or(u64::MAX).min(self.keys()) } else { 0 }
    }

    /// From which key on it is a good answer that there is none. In an open loop a client may read the key of a PUT that has not ended;
    /// those keys follow those that were there.
    pub(super) fn absent_from(&self) -> u64 {
        let may_lack_any = self.workload().absent_is_success
            || self.asks(|operation| operation.is_write() && !operation.has_value())
            || self.check_for.is_some();
        match self.pacing.is_open() {
            _ if may_lack_any => 0,
            true => self.keys(),
            false => u64::MAX,
        }
    }

    /// Complains of what only all flags together show to be wrong, as a dialect that lacks an operation.
    pub fn check(&self) -> Result<(), Error> {
        if !self.is_key_value() {
            return self.check_requests();
        }
        if let Some(flag) = self.http.says_what_is_asked() {
            return Err(Error::input(format_args!("{flag} cannot be used with a key-value workload"))
                .hint("leave it out, or leave out the flags of key-value workloads, as --workload"));
        }
        if let Some(url) = self.urls.iter().find(|url| url.path().is_some_and(|path| path != "/")) {
            return Err(Error::input(format_args!(
                "{url} has a path, and the requests of a key-value workload have their own"
            ))
            .hint("leave the path out, or --workload and the other flags of key-value workloads"));
        }
        self.urls.iter().try_for_each(|url| self.http.all_headers(url).map(drop))?;
        let Dialect { name, value_bytes_min, .. } = self.dialect();
        let lacks = |operation: &Operation| !self.dialect().supports(*operation);
        let steps = self.mix_entries().iter().flat_map(|entry| entry.steps);
        let fail = |what: String, hint| Err(Error::input(what).hint(hint));
        if let Some(header) = self.http.headers.iter().find(|of| variables::are_in(&of.value)) {
            return fail(
                format!(
                    "the header {} has a variable, which requests of a key-value workload have not",
                    header.name
                ),
                "write the value out, or leave out the flags of key-value workloads, as --workload",
            );
        }
        let preload = self.preload_keys() > 0;
        if let Some(operation) = steps.map(|step| step.operation).find(lacks) {
            return fail(
                format!("dialect {name} has no [{}], which this load asks for", operation.name()),
                "add it to a file of your own for --dialect, or leave it out with --mix, as in --mix get=1",
            );
        }
        if preload && lacks(&Operation::Put) {
            return fail(
                format!("dialect {name} has no [put], which the preload asks for"),
                "add it to a file of your own for --dialect, or use --no-preload on keys that are there",
            );
        }
        let says_version =
            |form: &OperationTemplate| form.version_header.is_some() || form.version_after.is_some();
        if self.asks(Operation::needs_version)
            && !self.dialect().form(Operation::Get).is_some_and(says_version)
        {
            return fail(
                format!("the [get] of dialect {name} says no version, which this load asks for"),
                "add version_header or version_after to it, or leave the operation out of --mix",
            );
        }
        if self.http2 {
            let forms = Operation::ALL.into_iter().filter(|operation| self.asks(|asked| asked == *operation));
            for (operation, form) in forms.filter_map(|of| Some((of, self.dialect().form(of)?))) {
                check_http2_path(&form.request.path).map_err(|why| {
                    Error::input(format_args!("--http2: [{}] of dialect {name}: {why}", operation.name()))
                })?;
            }
        }
        let writes = preload || self.asks(Operation::has_value);
        if writes && self.value_size().min < *value_bytes_min {
            let what = format!("dialect {name} takes no values of less than {value_bytes_min} B");
            return fail(what, "take a longer --value-size");
        }
        // With `latest` any number may follow.
        let inserts = |entry: &MixEntry| self.distribution_of(entry) == Distribution::Latest;
        let last = if self.mix_entries().iter().any(inserts) { u64::MAX } else { self.keys() - 1 };
        let key_bytes = format!("{}{last}=", self.workload().key_prefix).len();
        let marked = (key_bytes + MARK_BYTES) as u64;
        match self.check_for {
            None if self.asks(Operation::is_conditional) => fail(
                "conditional writes are sent only by a load that is checked".into(),
                "add --check linearizability, or leave them out of --mix",
            ),
            Some(_) if !self.dialect().reads_values() => fail(
                format!("dialect {name} reads no values of keys, so nothing can be checked"),
                "its [get] must name {key} and expect {value}, see docs/reference.md",
            ),
            Some(_) if self.value_size().min < marked => fail(
                format!("values of less than {marked} B do not say which write they are of"),
                "take a longer --value-size",
            ),
            _ => Ok(()),
        }
    }

    /// Whether each URL has its requests, and all have the same ones: what is counted goes by the place in that list.
    fn check_requests(&self) -> Result<(), Error> {
        self.http.expect_body.as_deref().map(pattern).transpose().map_err(Error::input)?;
        let all = self.urls.iter().map(|url| self.http.requests(url)).collect::<Result<Vec<_>, Error>>()?;
        if self.http2 {
            for HttpRequest { name, path, .. } in all.iter().flatten() {
                check_http2_path(&variables::without(path))
                    .map_err(|why| Error::input(format_args!("--http2: {name}: {why}")))?;
            }
        }
        let names = |requests: &Vec<HttpRequest>| -> Vec<(String, u32)> {
            requests.iter().map(|request| (request.name.clone(), request.weight)).collect()
        };
        let is_other = |requests: &Vec<HttpRequest>| names(requests) != names(&all[0]);
        match all.iter().position(is_other).filter(|_| self.http.targets.is_some()) {
            None => Ok(()),
            Some(place) => {
                let (first, other) = (&self.urls[0], &self.urls[place]);
                Err(Error::input(format_args!("--targets has other requests to {other} than to {first}"))
                    .hint("give one URL, or write paths, as in GET /orders/1: those go to all servers"))
            }
        }
    }

    pub(super) fn asks(&self, what: impl Fn(Operation) -> bool) -> bool {
        self.mix_entries().iter().flat_map(|entry| entry.steps).any(|step| what(step.operation))
    }

    /// A plan of one client, for tests.
    #[cfg(test)]
    pub(super) fn example(workload: &str) -> Plan {
        clap::Parser::parse_from(["load", "http://host:1", "--workload", workload, "--clients", "1"])
    }

    /// The plan of these flags, for tests.
    #[cfg(test)]
    pub(super) fn of_flags(flags: &[&str]) -> Plan {
        let mut plan: Plan = clap::Parser::parse_from([&["load", "http://host:1"], flags].concat());
        plan.workload.get_or_insert(&WORKLOADS[0]);
        plan
    }
}

/// More is no load test but a mistyped number, or more than one machine's ports.
fn up_to(most: i64) -> ValueParser {
    clap::value_parser!(u32).range(1..=most).into()
}

/// Longest warm-up, window or time-out: what is longer is a mistyped number.
const SPAN_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A duration, as the flags take them.
pub fn span(text: &str) -> Result<Duration, String> {
    let Span(time) = text.parse()?;
    if time > SPAN_MAX { Err("the most is 24h".into()) } else { Ok(time) }
}

fn span_not_zero(text: &str) -> Result<Duration, String> {
    let time = span(text)?;
    if time.is_zero() { Err("it must be longer than 0s".into()) } else { Ok(time) }
}

/// The length of a bin: seconds are put together from them.
fn bin(text: &str) -> Result<Duration, String> {
    /// A shorter bin says more of the machine's clock than of anything else.
    const BIN_MIN: Duration = Duration::from_millis(10);
    let time = span(text)?;
    if time < BIN_MIN || !SECOND.as_nanos().is_multiple_of(time.as_nanos()) {
        return Err("a second is not a multiple of it, or it is shorter than 10ms; hint: write 100ms, 200ms, 250ms or 500ms".into());
    }
    Ok(time)
}

fn added_cpu(text: &str) -> Result<Duration, String> {
    let time = text
        .strip_prefix("cpu=")
        .ok_or("the generator has one fault; hint: write cpu=TIME, as in cpu=2us")?;
    let Span(time) = time.parse()?;
    if time > TIME_MAX { Err(format!("the most is {} a request", Span(TIME_MAX))) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_checked_say_which_write_they_are_of() {
        for (distribution, is_long_enough) in [("uniform", true), ("latest", false)] {
            let flags = "--workload mixed --keys 10 --value-size 33 --check linearizability --distribution";
            let flags = flags.split(' ').chain([distribution]).collect::<Vec<_>>();
            assert_eq!(Plan::of_flags(&flags).check().is_ok(), is_long_enough, "{distribution}");
        }
    }

    /// A correct server was said to fail, as 404 came before the PUT of the key had ended.
    #[test]
    fn a_new_key_may_be_absent_in_an_open_loop() {
        for (flags, from) in [
            ("--workload ycsb_d --keys 10 --rate 5k", 10),
            ("--workload ycsb_d --keys 10", u64::MAX),
            ("--mix get=9,delete=1 --keys 10", 0),
        ] {
            let plan = Plan::of_flags(&flags.split(' ').collect::<Vec<_>>());
            assert_eq!(plan.absent_from(), from, "{flags}");
        }
    }
}
