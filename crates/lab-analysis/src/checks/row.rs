//! The checks of one row: the runs of one workload at one level. The worst run decides.

use super::{Checked, OfRow};
use crate::parts::of_target;
use crate::rows::{ERRORS_MAX, FastFail, Row, unanswered};
use kv::proto::{Latency, LoadReport, ScheduleReport};
use kv::units::micros;
use lab_data::results::{Run, Trial};
use lab_data::sums;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn little(case: &OfRow) -> Checked {
    const LIMIT: f64 = 0.02;
    let residuals: Option<Vec<(f64, &LoadReport)>> =
        case.ran.iter().map(|(_, load)| Some((load.little_residual()?, *load))).collect();
    let worst =
        residuals.and_then(|all| all.into_iter().max_by(|(a, _), (b, _)| a.abs().total_cmp(&b.abs())));
    let Some((worst, load)) = worst else {
        return Checked::not_checked("a trial has no clients, no window, or no count of requests in flight");
    };
    let share = format!("{:.1} %", worst.abs() * 100.0);
    if worst.abs() <= LIMIT {
        return Checked::pass(format!("at most {share} off"));
    }
    let more = if worst < 0.0 { "fewer" } else { "more" };
    let seen = match (load.is_open(), load.in_flight_mean) {
        (true, Some(mean)) => format!(
            "attempts per second × service time account for {share} {more} requests in flight than the {mean:.3} counted"
        ),
        _ => format!("attempts per second × latency account for {share} {more} clients than there were"),
    };
    Checked::fail(seen, "This is a fault of weir: Little’s law must hold. Please report it.")
}

pub(super) fn percentiles(case: &OfRow) -> Checked {
    let of_run = |(_, load): &Run<'_>| {
        let operations = load.operations.iter().map(|of| (of.operation.clone(), of.latency));
        std::iter::once(("all attempts".to_owned(), load.latency)).chain(operations).collect::<Vec<_>>()
    };
    let mut all = case.ran.iter().flat_map(of_run).filter(|(_, latency)| latency.count > 0).peekable();
    if all.peek().is_none() {
        return Checked::not_checked("no request completed");
    }
    let wrong = all.find_map(|(name, latency)| Some(format!("latency of {name}: {}", disorder(&latency)?)));
    Checked::unless(wrong, "The histogram is wrong or too short. Please report it with results.json.")
}

/// What is out of order in a distribution.
fn disorder(latency: &Latency) -> Option<String> {
    // A percentile is the end of a bucket that holds three digits, while mean, min and max may be exact.
    const BUCKET: f64 = 1.001;
    if latency.clipped > 0 {
        return Some(format!("{} samples lie beyond the histogram", latency.clipped));
    }
    let Latency { us_min, us_p50, us_p90, us_p99, us_p999, us_max, us_mean, .. } = *latency;
    let pairs = [
        (("min", us_min), ("p50", us_p50)),
        (("p50", us_p50), ("p90", us_p90)),
        (("p90", us_p90), ("p99", us_p99)),
        (("p99", us_p99), ("p99.9", us_p999)),
        (("p99.9", us_p999), ("max", us_max)),
        (("mean", us_mean), ("max", us_max)),
    ];
    let wrong = pairs.into_iter().find(|((_, low), (_, high))| *low > high * BUCKET);
    wrong.map(|((a, low), (b, high))| format!("{a} {low:.1} µs > {b} {high:.1} µs"))
}

pub(super) fn errors(case: &OfRow) -> Checked {
    let worst = case.ran.iter().map(|(_, load)| load).max_by(|a, b| a.error_ratio.total_cmp(&b.error_ratio));
    let Some(load) = worst else { return Checked::not_checked("no trial") };
    if load.attempts == 0 {
        return Checked::fail(
            "no request completed",
            "See what the target waits for, or take a longer --window.",
        );
    }
    let mut seen = format!("{:.2} % of the attempts failed", load.error_ratio * 100.0);
    let left = case.ran.iter().map(|(_, load)| (unanswered(load), load.clients)).max();
    if let Some((unanswered @ 1.., clients)) = left.filter(|_| load.error_ratio <= ERRORS_MAX) {
        return Checked::fail(
            format!("{unanswered} of {clients} clients were left without an answer"),
            "The latencies are those of the other clients. Find out what the clients without an answer wait for, or use a longer --window.",
        );
    }
    if load.error_ratio <= ERRORS_MAX {
        return Checked::pass(seen);
    }
    seen += &match case.row.fast_fail {
        Some(FastFail::Sooner { error_us, success_us }) => {
            format!("; fast-fail: an error takes {error_us:.0} µs, a success {success_us:.0} µs")
        }
        Some(FastFail::MoreAttempts) => "; fast-fail: attempts rose while goodput fell".to_owned(),
        None => String::new(),
    };
    let class = load.errors.iter().max_by_key(|(_, count)| **count);
    let class = class.map_or_else(String::new, |(class, count)| {
        format!("Most ({count}) are `{class}`: see docs/method.md. ")
    });
    let is_good = |row: &&Row| row.usable() && row.unanswered == 0;
    let fewer = match case.below.iter().rfind(is_good) {
        Some(Row { level: 1, .. }) => ", or stay at 1 client (--levels)".to_owned(),
        Some(good) => format!(", or stay at {} clients or fewer (--levels)", good.level),
        None if case.below.is_empty() && case.row.level > 1 => {
            ", or begin with fewer clients (--levels)".to_owned()
        }
        None => String::new(),
    };
    Checked::fail(seen, format!("{class}Remove the cause{fewer}."))
}

/// Of its requests' time, how much the generator may wait for a core or send late.
const LATE_MAX: f64 = 0.01;

pub(super) fn on_time(case: &OfRow) -> Checked {
    let lags = case.ran.iter().filter_map(|(_, load)| Some((lag_share(load)?, load.schedule.as_ref()?)));
    // A thread of an open loop sleeps between requests: what waking costs it is in its send lag.
    let is_long = |of: &ScheduleReport| of.send_lag.us_p99 > LAG_US_P99_MIN;
    let worst = lags.max_by(|(a, of), (b, other)| is_long(of).cmp(&is_long(other)).then(a.total_cmp(b)));
    let Some((share, schedule)) = worst else { return waited_for_core(case) };
    let (percent, send_lag) = (share * 100.0, schedule.send_lag);
    if share <= LATE_MAX {
        return Checked::pass(format!("send lag is {percent:.1} % of the latency"));
    }
    if !is_long(schedule) {
        let p99 = micros(send_lag.us_p99);
        return Checked::pass(format!(
            "send lag is {percent:.1} % of the latency, but its p99 is only {p99}"
        ));
    }
    let (mean, p99) = (micros(send_lag.us_mean), micros(send_lag.us_p99));
    Checked::fail(
        format!("send lag is {percent:.1} % of the latency (mean {mean}, p99 {p99})"),
        "Give the generator more cores, with [cores] in the experiment, or lower --rate in the workload’s args. \
         Service times do not contain it.",
    )
}

/// How long the threads of a closed loop waited, in the worst run.
fn waited_for_core(case: &OfRow) -> Checked {
    let waits = case.ran.iter().filter(|(_, load)| !load.is_open()).map(waited);
    let waits: Vec<f64> = waits.collect::<Option<_>>().unwrap_or_default();
    match waits.into_iter().max_by(f64::total_cmp) {
        None => Checked::not_checked("how long the generator waited for a core was not read"),
        Some(share) => Checked::judged(
            share <= LATE_MAX,
            format!("the generator waited for a core for {:.1} % of the total latency", share * 100.0),
            "Keep other processes off the generator’s cores, and repeat.",
        ),
    }
}

/// Below this share of its threads' time nobody could do better: a thread that sleeps until an answer comes waits about two
/// microseconds until it runs.
const WAIT_MIN: f64 = 0.05;
/// Below this nobody could send sooner: a sleeping thread takes that long to wake.
const LAG_US_P99_MIN: f64 = 50.0;

/// How long the generator's threads waited for a core, as a share of the time requests were under way: by the sampler,
/// else by what the generator read of itself.
fn waited((trial, load): &Run<'_>) -> Option<f64> {
    let sampled = trial.per_sec("generator.run_delay_secs");
    let own = || Some(load.run_delay_secs? / load.window_secs);
    let per_sec = sampled.or_else(own)?;
    if per_sec <= WAIT_MIN * f64::from(load.threads) {
        return Some(0.0);
    }
    // R·X: so much time passes in requests every second.
    let share = per_sec / (load.request_secs() / load.window_secs);
    share.is_finite().then_some(share)
}

/// How much of all latency is time by which the generator sent late although it had a connection.
fn lag_share(load: &LoadReport) -> Option<f64> {
    let lag = load.schedule.as_ref()?.send_lag;
    let share = lag.us_mean * lag.count as f64 / (load.latency.us_mean * load.latency.count as f64);
    share.is_finite().then_some(share)
}

/// The kernel publishes processor time of cores in units of 10 ms: less than a few of them is no finding.
const TICKS_SECS: f64 = 0.03;
/// It counts whoever is at work each time so much has passed (most kernels: 250 times a second).
const TICK_SECS: f64 = 0.004;

pub(super) fn machine(case: &OfRow) -> Checked {
    const STEAL_LIMIT: f64 = 0.005;
    // Kernel threads that flush and journal for the target itself take 1 %, seen on an otherwise idle machine with every durable write:
    // they are in no process of ours, and no disturbance.
    const FOREIGN_LIMIT: f64 = 0.05;
    // Then what limits the target may be what it leaves to others.
    const MOST_PERCENT: f64 = 50.0;
    let placements = &case.results.placements;
    let cores: BTreeSet<usize> = placements.iter().flat_map(|part| part.cores.clone()).collect();
    // Of the run that exceeds most what is `allowed` in so many seconds of our cores: the share of them, and by how much it exceeds.
    let worst = |secs: &dyn Fn(&Trial) -> Option<f64>, allowed: fn(f64) -> f64| {
        let of_run = |(trial, _): &Run<'_>| {
            let all = trial.elapsed_secs * cores.len() as f64;
            let share = secs(trial)? / all;
            share.is_finite().then_some((share, share - allowed(all)))
        };
        let runs: Option<Vec<(f64, f64)>> = case.ran.iter().map(of_run).collect();
        runs?.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
    };
    let of_cores = |trial: &Trial, what: &str| {
        cores.iter().map(|core| trial.growth(&format!("core.{core}.{what}_secs"))).sum::<Option<f64>>()
    };
    // Work in bursts as long as the kernel's tick is counted up to a fifth of a core too long or too short, seen with durable writes of 256
    // clients; what is not idle holds the waking up, a tenth of a core with one client. Both grow with what others use.
    let busy = |trial: &Trial| {
        let of_core = |core: &usize| {
            let growth = |what: &str| trial.growth(&format!("core.{core}.{what}_secs"));
            let idle = growth("idle").zip(growth("steal")).map(|(idle, stolen)| idle + stolen);
            Some(growth("busy")?.min(trial.elapsed_secs - idle.unwrap_or(0.0)))
        };
        cores.iter().map(of_core).sum::<Option<f64>>()
    };
    let ours = |trial: &Trial| {
        placements.iter().map(|of| trial.growth(&format!("{}.cpu_secs", of.part))).sum::<Option<f64>>()
    };
    let swapped =
        |trial: &Trial| Some(trial.growth("memory.swap_in_pages")? + trial.growth("memory.swap_out_pages")?);

    // Of a target that the lab did not start it cannot know which processes are not part of it.
    let is_started = of_target(case.results).next().is_some();
    let stolen = worst(&|trial| of_cores(trial, "steal"), |all| STEAL_LIMIT.max(TICKS_SECS / all));
    // Beyond two standard errors, at most, of a share of so many ticks.
    let foreign =
        worst(&|trial| Some(busy(trial)? - ours(trial)?), |all| FOREIGN_LIMIT + (TICK_SECS / all).sqrt());
    let foreign = foreign.filter(|_| is_started);
    let swapped = worst(&swapped, |_| 0.0);
    let percent = |of: Option<(f64, f64)>| of.map_or(0.0, |(share, _)| share.max(0.0) * 100.0);
    let (stolen_percent, foreign_percent) = (percent(stolen), percent(foreign));
    let is_most = stolen_percent + foreign_percent > MOST_PERCENT;
    let exceeds = |of: Option<(f64, f64)>| of.is_some_and(|(_, by)| by > 0.0);
    if exceeds(stolen) {
        return Checked::fail(
            format!("the hypervisor took {stolen_percent:.2} % of the cores"),
            "Repeat when other virtual machines are idle, or use a dedicated machine.",
        )
        .grave(is_most);
    }
    if exceeds(foreign) {
        return Checked::fail(
            format!(
                "other processes used {foreign_percent:.0} % of the processor time of the cores of server and generator"
            ),
            "Stop what else runs on this machine, and repeat.",
        )
        .grave(is_most);
    }
    if exceeds(swapped) {
        return Checked::fail("the machine swapped", "Add memory, or use less data.");
    }
    let all = [
        (stolen.is_none(), "steal of the cores was not read"),
        (swapped.is_none(), "whether the machine swapped was not read"),
        (is_started && foreign.is_none(), "the processor time of other processes was not read"),
    ];
    match all.into_iter().find(|(is_missing, _)| *is_missing) {
        Some((_, missing)) => Checked::not_checked(missing),
        None if is_started => {
            Checked::pass(format!("steal {stolen_percent:.2} %, other processes {foreign_percent:.0} %"))
        }
        None => Checked::pass(format!(
            "steal {stolen_percent:.2} %, no swap; other processes do not count, as the lab did not start the target"
        )),
    }
}

pub(super) fn mix(case: &OfRow) -> Checked {
    if case.ran.iter().any(|(_, load)| load.mix.is_empty()) {
        return Checked::not_checked("the results do not say which mix was asked for");
    }
    if case.ran.iter().all(|(_, load)| load.attempts == 0) {
        return Checked::not_checked("no request completed");
    }
    let remedy = "By chance fewer than one row in a thousand fails. Probably some operations take longer than the window.";
    let looks: usize = case.ran.iter().map(|(_, load)| load.mix.len()).sum();
    Checked::unless(case.ran.iter().find_map(|(_, load)| another_mix(load, looks)), remedy)
}

/// The operation that was not as frequent as asked for, of so many `looks` in this row.
fn another_mix(load: &LoadReport, looks: usize) -> Option<String> {
    const CHANCE: f64 = 1e-3;
    // A normal deviate exceeds ±z with a probability below 2 exp(-z²/2).
    let sigmas = (2.0 * (2.0 * looks as f64 / CHANCE).ln()).sqrt();
    let attempts = load.attempts as f64;
    let observed = load.operations.iter().map(|of| (of.operation.as_str(), of.attempts as f64));
    let mut observed: BTreeMap<&str, f64> = sums(observed);
    load.mix.keys().for_each(|name| *observed.entry(name).or_default() += 0.0);
    observed.into_iter().find_map(|(name, seen)| {
        // What nobody asked for is asked for with a share of nothing.
        let share = load.mix.get(name).copied().unwrap_or(0.0);
        // Requests that follow each other in a fixed pattern scatter less than drawn ones, but every client is cut
        // off somewhere within its pattern, and its slowest request is the likeliest to straddle an edge of the
        // window: that is up to one request of each.
        let sigma = (attempts * share * (1.0 - share)).sqrt();
        let slack = if share == 0.0 { 0.0 } else { f64::from(load.clients) };
        let (of_all, asked) = (seen / attempts * 100.0, share * 100.0);
        ((seen - attempts * share).abs() > sigmas * sigma + slack)
            .then(|| format!("{of_all:.1} % of the requests were {name}, the mix asks for {asked:.1} %"))
    })
}

/// Of several checkpoints the mean is fair; of one the window shows some part.
pub(super) fn checkpoints(case: &OfRow) -> Checked {
    let has_one = |(trial, _): &Run<'_>| {
        let names = trial.closed.counters.keys().filter(|name| name.ends_with(".checkpoints"));
        let grown: Vec<f64> = names.map(|name| trial.growth(name)).collect::<Option<_>>()?;
        // Counters of whole numbers; anything else would be two readings of different servers.
        (!grown.is_empty()).then(|| grown.iter().any(|count| count.round() == 1.0))
    };
    let Some(runs) = case.ran.iter().map(has_one).collect::<Option<Vec<bool>>>() else {
        return Checked::not_checked("the target has no database whose checkpoints the lab can count");
    };
    let (one, of) = (runs.iter().filter(|has_one| **has_one).count(), runs.len());
    Checked::unless(
        (one > 0).then(|| format!("a single checkpoint fell into the window of {one} of {of} trials")),
        "Take a longer --window, so that it holds several, or raise max_wal_size and checkpoint_timeout in [postgres] \
         settings, so that it holds none.",
    )
}
