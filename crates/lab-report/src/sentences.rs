//! Findings as sentences, for all formats of the report.

use super::format::{self, UNKNOWN, capitalized, count, each_level, latency, listed, percent, spread};
use kv::units::{micros, short};
use lab_analysis::audit::AuditFinding;
use lab_analysis::rows::{DID_NOT_RUN, SATURATED};
use lab_analysis::{
    Blocked, Bound, CONFLICTS, Capacity, Dominant, Effect, Estimate, Evidence, FastFail, Grade, Growth, Knee,
    Outside, PublishedSweep, Reason, Row, Searched, Shown, TimeSeries, UnderLimit, WAITS, Waiting,
    WorkloadFindings,
};
use lab_data::results::{Limit, ResourceKind, Results, SearchEnd, SearchPlan};
use stats::RUNS_LEAST;
use std::collections::BTreeMap;

/// Whether a workload was asked for at a rate. Capacity, knee and limit belong to a closed loop.
pub(super) fn is_open(found: &WorkloadFindings) -> bool {
    matches!(found.capacity, Capacity::Offered { .. })
}

/// The most that completed at any level, in requests per second.
pub(super) fn most_completed(found: &WorkloadFindings) -> Option<f64> {
    found.rows.iter().filter_map(|row| Some(row.goodput_rps?.mean)).max_by(f64::total_cmp)
}

/// When requests were sent, where that needs saying.
pub(super) fn pacing(found: &WorkloadFindings) -> Option<String> {
    let pacing = found.pacing.as_ref()?;
    Some(match is_open(found) {
        true => format!(
            "Open loop, {pacing}: requests are sent when they are due, whether or not earlier ones were answered. Latency \
             counts from the time a request was due, the service time from the time it was sent. The levels are numbers \
             of clients, each with one connection. At levels over capacity, latency is that of a queue that grows."
        ),
        false => format!("Pacing: {pacing}. Think time is not part of the latency."),
    })
}

/// Goodput falling past the peak, where that is certain.
pub(super) fn decline(found: &WorkloadFindings) -> Option<String> {
    let decline = found.decline.as_ref()?;
    let at = count(decline.level, "client");
    let (share, rps) = (percent(decline.share, 0), spread(&decline.rps));
    Some(format!("past the peak goodput falls by {share} ({rps} req/s at {at})"))
}

/// The name of a limit: `commit path`, or that of its resource, as of a pool: not every store has connections.
pub(super) fn limit(of: &Evidence) -> &str {
    let has_name = |limit: &Limit| !matches!(limit, Limit::Other | Limit::Pool);
    of.limit.filter(has_name).map_or(of.resource.as_str(), |limit| limit.name())
}

/// The names of limits: `commit path`, `server CPU and database CPU`.
pub(super) fn limits(of: &[Evidence]) -> String {
    listed(&of.iter().map(limit).collect::<Vec<_>>())
}

/// How busy they are: `99 % busy`, `58.2 of 64 clients wait`. A resource is named where the limit has another name.
pub(super) fn busy(of: &[Evidence]) -> String {
    let each = |of: &Evidence| match &of.waiting {
        Some(Waiting { sessions, places, pooled, .. }) => {
            waits(*sessions, *places as u32, if *pooled { "pool session" } else { "client" })
        }
        None if let Some(blocked) = &of.blocked => match of.limit {
            Some(Limit::OneThread | Limit::Pauses) => format!("{} busy", percent(of.utilization, 0)),
            Some(Limit::ServerCpu) => {
                let wanted =
                    blocked.count.map_or_else(String::new, |n| format!(", {n:.1} threads want a core"));
                format!("{} busy{wanted}", percent(of.utilization, 0))
            }
            _ => blocked_in_short(blocked),
        },
        None if of.resource == CONFLICTS => format!("{} of the statements", percent(of.utilization, 0)),
        None if limit(of) == of.resource => format!("{} busy", percent(of.utilization, 0)),
        None => format!("{} {} busy", of.resource, percent(of.utilization, 0)),
    };
    of.iter().map(each).collect::<Vec<_>>().join(" and ")
}

/// What led to the limit, beside the table of candidates.
pub(super) fn evidence(found: &WorkloadFindings) -> Vec<String> {
    let bottleneck = &found.bottleneck;
    // Then the queue was no evidence.
    let is_by_change = bottleneck.because.iter().any(|of| matches!(of, Reason::Followed { .. }));
    let because = bottleneck.because.iter().map(|of| {
        let in_use = if is_by_change { String::new() } else { in_use(of, &bottleneck.named) };
        reason(of, &bottleneck.levels) + &in_use
    });
    let named = &bottleneck.named;
    // Where nothing else led to it.
    let full = (bottleneck.because.is_empty() && !named.is_empty() && named.iter().all(is_full)).then(|| {
        let levels = format::levels(&bottleneck.levels);
        format!(
            "{}: {} at {levels}. From 95 % on that is evidence.",
            capitalized(&limits(named)),
            busy(named)
        )
    });
    full.into_iter().chain(because).chain(not_generator(found)).chain(help(found)).collect()
}

fn is_full(of: &Evidence) -> bool {
    of.blocked.is_none() && of.utilization >= SATURATED
}

/// Why a generator that is as busy as a limit is none.
fn not_generator(found: &WorkloadFindings) -> Option<String> {
    let busy = |of: &&Evidence| of.kind == ResourceKind::Generator && of.utilization >= SATURATED;
    let of = found.bottleneck.candidates.iter().find(busy)?;
    let is_shown = |effect: &&Effect| effect.of.as_ref() == Some(&of.id) && effect.shown == Shown::NotLimit;
    let effect = found.effects.iter().find(is_shown)?;
    Some(format!(
        "{} is {} busy, too, but not the limit: when the test added {} of work to each request, goodput fell by {}, and not by the {} that a limit loses. The generator’s other work for each request took less time then.",
        capitalized(&of.resource),
        percent(of.utilization, 0),
        latency(Some(effect.change.added_us)),
        percent(effect.loss.mean.max(0.0), 0),
        percent(effect.expected_loss, 0)
    ))
}

/// Why what is named is not what has the queue: ` Requests queue at server workers, which …`
fn in_use(of: &Reason, named: &[Evidence]) -> String {
    let (Reason::Queue(growth) | Reason::InStore(growth)) = of else { return String::new() };
    let is_other = named.iter().all(|of| of.resource != growth.resource);
    if !is_other || !named.first().is_some_and(|of| of.is_hard) {
        return String::new();
    }
    format!(
        " Requests queue at {}, which themselves need {} ({}{}): so the limit is {}.",
        growth.resource,
        limits(named),
        busy(named),
        if named.iter().all(is_full) { "; from 95 % on that is evidence" } else { "" },
        limits(named)
    )
}

/// The intervention that gives a server more.
const RAISED_QUOTA: &str = "server_quota";

/// What would help, where a limit is named.
fn help(found: &WorkloadFindings) -> Option<String> {
    let of = found.bottleneck.help.as_ref()?;
    let clients =
        of.clients.map_or_else(String::new, |clients| format!(" with {}", count(clients, "client")));
    let then =
        of.then.as_ref().map_or_else(String::new, |then| format!(", and {} would be the limit", limit(then)));
    let named = &found.bottleneck.named;
    let is_quota = named.iter().any(|of| of.limit == Some(Limit::ServerQuota));
    let raised = found.effects.iter().find(|of| is_quota && of.change.name == RAISED_QUOTA);
    let tried = raised.map_or_else(
        || " (predicted)".to_owned(),
        |of| {
            let gain = |loss: f64| percent(-loss, 0);
            let Estimate { mean, low, high, .. } = of.loss;
            format!(
                ". Tried: doubling the CPU quota raised goodput by {} ({} to {})",
                gain(mean),
                gain(high),
                gain(low)
            )
        },
    );
    let generator = found.bottleneck.candidates.iter().filter(|of| of.kind == ResourceKind::Generator);
    // What may carry more is not known to be too slow.
    let full = |of: &Evidence| of.ceiling().filter(|at| at.bound != Some(Bound::AtLeast));
    let generator = generator.filter_map(|of| Some((of, full(of)?.rps))).filter(|(_, full)| *full < of.rps);
    let too_slow =
        generator.min_by(|a, b| a.1.total_cmp(&b.1)).map_or_else(String::new, |(generator, full)| {
            format!(
                " To see that, give the load generator more cores: {} is full at {} req/s.",
                generator.resource,
                short(full)
            )
        });
    // What is seen from outside has no names.
    let outside = named.iter().find_map(|of| Some((of.limit?, of.blocked.as_ref()?.in_threads)));
    let see = match outside {
        Some((Limit::OneThread | Limit::ServerCpu, _)) => {
            " “perf record -g -p PID” shows which functions compute; it needs CAP_PERFMON, or kernel.perf_event_paranoid of at most 1."
        }
        Some((Limit::ServerLock | Limit::Pool, true)) => {
            " The stacks of its threads (jstack, py-spy, gdb) show where they wait; for another user’s process that needs CAP_SYS_PTRACE."
        }
        _ => "",
    };
    let limits = limits(named);
    let half = match outside {
        Some((Limit::AcceptQueue, _)) => "held its connection half as long as now".to_owned(),
        Some((Limit::Pool, _)) => format!("held its place in {limits} half as long as now"),
        _ => format!("needed half as much time of {limits} as now"),
    };
    let at_most = match found.bottleneck.grade {
        Grade::Delay => "be at most",
        _ if of.then.is_some() => "be at most",
        _ => "at most double, to",
    };
    Some(format!(
        "What would help: if each request {half}, goodput would {at_most} {} req/s{clients}{then}{tried}.{too_slow}{see}",
        short(of.rps)
    ))
}

/// The same in a few words, which have room behind the name of the limit: `if halved: ≤ 466 req/s`.
pub(super) fn help_in_short(found: &WorkloadFindings) -> Option<String> {
    let of = found.bottleneck.help.as_ref()?;
    let then = of.then.as_ref().map_or_else(String::new, |then| format!(", limited by {}", limit(then)));
    Some(format!("if halved: ≤ {} req/s{then}", short(of.rps)))
}

/// `30.5 of 32 clients wait`.
fn blocked_in_short(of: &Blocked) -> String {
    match of.count {
        Some(waiting) => waits(waiting.min(of.clients.into()), of.clients, "client"),
        None => format!("at {}", count(of.clients, "client")),
    }
}

/// `30.5 of 32 clients wait`, `0.9 of 1 client waits`.
fn waits(waiting: f64, all: u32, noun: &str) -> String {
    format!("{waiting:.1} of {} wait{}", count(all, noun), if all == 1 { "s" } else { "" })
}

/// What a service shows from outside.
fn blocked(of: &Blocked) -> String {
    let number = of.count.map_or_else(String::new, |count| format!(": {count:.1}"));
    let mut said = format!("At {} {}{number}.", count(of.clients, "client"), of.seen);
    if let Some(thread) = &of.thread {
        said += &format!(" The busiest thread is {thread}.");
    }
    if let Some(at_once) = of.at_once {
        said += &format!(
            " About {at_once:.1} requests are served concurrently (highest goodput × median latency of one client)."
        );
    }
    if of.grade == Grade::NotIdentified {
        said += " Whether this is a lock, a pool or a delay shows only with a valid level of 1 client (--levels 1,…): it tells \
                 how many requests are served concurrently.";
    }
    if !of.may_read {
        said += " The system calls of its threads could not be read: run weir as the user of the service, or with CAP_SYS_PTRACE.";
    }
    if let Some(does) = of.served {
        said += &format!(" The requests being served are {does}.");
    }
    said
}

/// What else a service shows.
fn seen(of: &Outside) -> String {
    let event = |name: &str, what: &str| {
        let rate = of.at(name);
        (rate >= 0.05).then(|| format!("{what}: {rate:.1} per second"))
    };
    let time = |share: f64, what: &str| {
        (share >= 0.01).then(|| format!("{what}: {} of the time", percent(share, 0)))
    };
    let all = [
        event("retransmits", "TCP retransmissions"),
        event("accept_overflows", "connections that found the accept queue full, on this machine"),
        time(of.at("window_closed"), "receive window closed, mean over the clients"),
        time(of.collector, "garbage collection"),
        time(of.silent(50.0), "gaps of 50 ms or more without any answer"),
    ];
    format!("Also seen: {}.", all.into_iter().flatten().collect::<Vec<_>>().join("; "))
}

/// What led to the conclusion, which was drawn at these levels.
fn reason(of: &Reason, levels: &[u32]) -> String {
    let added = |growth: &Growth, which: String| {
        let Growth { of_each, low, high, .. } = growth;
        format!(
            "From {low} to {high} clients, each added client increased the number of {which} by {of_each:.2}."
        )
    };
    let busy = |of: &Evidence, why: &str| {
        format!("The utilization of {} is {}, {why}.", of.resource, percent(of.utilization, 0))
    };
    match of {
        Reason::FailsFast(FastFail::Sooner { error_us, success_us }) => format!(
            "At the highest levels an error takes {}, a success {}.",
            latency(Some(*error_us)),
            latency(Some(*success_us))
        ),
        Reason::FailsFast(FastFail::MoreAttempts) => {
            "At the highest levels attempts rise while goodput falls.".to_owned()
        }
        Reason::OneClient => "There is one client, which waits for nobody.".to_owned(),
        Reason::NobodyWaits { clients, waiting, each } => format!(
            "At {clients} clients {} of them wait; the goodput per client is {} of that of a single client.",
            percent(*waiting, 0),
            percent(*each, 0)
        ),
        Reason::Queue(growth) => added(growth, format!("clients that wait for {}", growth.resource)),
        Reason::InStore(growth) => added(growth, format!("clients that are served by {}", growth.resource)),
        Reason::Unaccounted(growth) => added(growth, "unaccounted clients".to_owned()),
        Reason::Followed { of: Evidence { resource, .. }, is_named: true } => {
            format!(
                "When {resource} was slowed, goodput behaved as it does at a limit (see the table “Goodput lost when one resource is slowed”)."
            )
        }
        Reason::Followed { of: Evidence { resource, utilization, .. }, is_named: false } => format!(
            "A change of {resource} changed goodput as predicted, but its utilization is only {}. If no queue or wait points \
             to a resource, it is named only from 85 % on.",
            percent(*utilization, 0)
        ),
        Reason::SaturatedAtMost(Evidence { resource, at_most_clients, .. }) => {
            let (clients, utilization) = at_most_clients.unwrap_or_default();
            format!(
                "{}: {} busy at {}. At {}, from which the limit is determined, the data do not support {resource}, so it is only suspected.",
                capitalized(resource),
                percent(utilization, 0),
                count(clients, "client"),
                format::levels(levels)
            )
        }
        Reason::NotBusy(Evidence { resource, utilization, .. }) => format!(
            "This queue is not enough to name a limit: on average over {}, the utilization of {resource} is {}, and no resource that it needs is 95 % busy.",
            format::levels(levels),
            percent(*utilization, 0)
        ),
        Reason::ProcessorNotRead => {
            "The server’s processor was not read: its workers may compute all of that time, and then more of them do not help.".to_owned()
        }
        Reason::DemandVaries(of) => {
            let one = "but the limit is determined at one level, so whether the demand per request varies is not known".to_owned();
            let several = |by| {
                format!(
                    "but the demand per request varies by {} over these levels, so full utilization does not show that it is the limit",
                    percent(by, 0)
                )
            };
            busy(of, &of.demand_variation.map_or(one, several))
        }
        Reason::Batches { of: Evidence { resource, .. }, waits } => format!(
            "Batches in {resource} grow with the load, so high utilization there does not show the limit{}.",
            if *waits { "; most of the busy time is spent waiting for the named limit" } else { "" }
        ),
        Reason::Conflicts { clients, share } => format!(
            "With {} {} of the statements that write conflicted with another server’s write of the same key: they were sent again, or \
             nobody knows whether they took effect (504).",
            count(*clients, "client"),
            percent(*share, 0)
        ),
        Reason::Blocked(of) => blocked(of),
        Reason::Seen(of) => seen(of),
        Reason::NotFollowed(Evidence { resource, .. }) => {
            format!("Slowing {resource} reduced goodput by much less than predicted, so it is not the limit.")
        }
    }
}

/// Between which the knee lies: ` (3.8–4.3)`; nothing of one repetition.
pub(super) fn between_clients((low, high): (f64, f64)) -> String {
    let (low, high) = (format::clients(low), format::clients(high));
    if low == high { String::new() } else { format!(" ({low}–{high})") }
}

/// What stands in brackets behind the knee; nothing where nothing does.
pub(super) fn knee_brackets(of: &Knee, found: &WorkloadFindings) -> Option<&'static str> {
    let alone = found.rows.iter().filter(|row| row.level == of.swept.0).map(|row| row.of_runs.len());
    let repetitions = alone.chain(found.capacity.rps().map(|rps| rps.runs as usize)).min().unwrap_or(0);
    match between_clients(of.ends).is_empty() {
        true => None,
        false if repetitions < RUNS_LEAST => {
            Some("In brackets: what follows from the lowest and highest repetition.")
        }
        false => Some("In brackets: 95 % interval over repetitions."),
    }
}

/// States and the mean number of sessions in each: `IO:WALSync 1.2, LWLock:WALWrite 0.3`. The most frequent three, but none
/// that would read as zero beside the first.
fn states(of: &[(String, f64)]) -> String {
    let some = of.iter().take(3).enumerate().filter(|(i, (_, count))| *i == 0 || *count >= 0.05);
    some.map(|(_, (state, count))| format!("{state} {count:.1}")).collect::<Vec<_>>().join(", ")
}

/// Where the sessions of a database were, and what that means.
pub(super) fn sessions(of: &Dominant) -> String {
    let means = WAITS.iter().find(|wait| wait.name == of.class).map_or(UNKNOWN, |wait| wait.means);
    format!(
        "At {} {} had on average {:.1} sessions, {:.1} of them inside a statement (computing or waiting). Most {} in {}: {:.1} ({}). This means: {means}.",
        format::levels(&of.levels),
        of.part,
        of.sessions,
        of.at_work,
        if of.idle { "were" } else { "of these were" },
        of.class,
        of.in_class,
        states(&of.states)
    )
}

/// What was made slower: the resources, or that it is the control.
pub(super) fn slowed(effect: &Effect) -> String {
    let resources = &effect.change.raises;
    if resources.is_empty() {
        "nothing (control: a pause in each request)".to_owned()
    } else {
        listed(resources)
    }
}

/// By how much: `+250 µs per request`.
pub(super) fn how_slowed(effect: &Effect) -> String {
    let change = &effect.change;
    let per = match change.name.as_str() {
        "store_worker" => "batch",
        "commit" | "flush" => "flush",
        _ => "request",
    };
    match change.factor {
        Some(factor) => format!("demand × {}", format::trimmed(&format!("{factor:.2}"))),
        None => format!("+{} per {per}", latency(Some(change.added_us))),
    }
}

/// What a search asked for: `p99 ≤ 5.00 ms and errors ≤ 0.1 %`.
pub(super) fn asked(plan: &SearchPlan) -> String {
    format!("p99 ≤ {} and errors ≤ {} %", micros(plan.p99_us), (plan.error_ratio * 1e6).round() / 1e4)
}

/// `with p99 ≤ 5.00 ms and errors ≤ 0.1 %: between 8.10k and 8.26k req/s`.
pub(super) fn under_limit(of: &UnderLimit) -> String {
    format!("with {}: {}", asked(&of.plan), between(of))
}

/// Between which rates a search found the limit: `between 8.10k and 8.26k req/s`.
pub(super) fn between(of: &UnderLimit) -> String {
    let is_generator = of.searches.iter().any(|search| search.ended == Some(SearchEnd::Generator));
    match (of.holds_rps, of.breaks_rps) {
        (Some(holds), Some(breaks)) => format!("between {} and {} req/s", short(holds), short(breaks)),
        (Some(holds), None) if is_generator => {
            format!("at least {} req/s; the generator could not offer more", short(holds))
        }
        (Some(holds), None) => format!("at least {} req/s; the upper end was not decided", short(holds)),
        (None, Some(breaks)) => format!("less than {} req/s; the lower end was not decided", short(breaks)),
        (None, None) => format!("unknown: {}", undecided(of)),
    }
}

/// Why a search has no bound.
fn undecided(of: &UnderLimit) -> &'static str {
    let has_none = |search: &&Searched| search.holds_rps.is_none() && search.breaks_rps.is_none();
    match of.searches.iter().find(has_none).map(|search| search.ended) {
        Some(Some(SearchEnd::Generator)) => "the generator was the limit before any rate was decided",
        Some(Some(SearchEnd::Broken)) => "several trials in a row gave no figures",
        Some(Some(SearchEnd::TooLow)) => "no lower rate can be measured in this time",
        Some(Some(SearchEnd::Time | SearchEnd::Reached)) => "no rate was decided in the time given",
        Some(None) => "the search was interrupted before any rate was decided",
        None => "each bound is missing in some repetition",
    }
}

/// How many published rows deviate from Little's law.
pub(super) fn deviating(sweep: &PublishedSweep) -> String {
    match sweep.checked() {
        0 => "no row can be checked by Little’s law".to_owned(),
        checked => format!("{} of {checked} rows deviate from Little’s law by more than 5 %", sweep.off()),
    }
}

/// What somebody published of a workload, and what the audit says of it.
pub(super) fn published(sweep: &PublishedSweep) -> String {
    let PublishedSweep { report, system, workload, findings, .. } = sweep;
    let known = |what: &str, of: &str| if of.is_empty() { String::new() } else { format!(" {what} {of}") };
    let (report, system) = (known("in report", report), known("on system", system));
    let residuals = sweep.residuals().map_or_else(String::new, |of| format!(" ({of})"));
    let deviating = capitalized(&deviating(sweep));
    let mut said = format!("Published{report}: workload {workload}{system}. {deviating}{residuals}.");
    for AuditFinding { cause, reason, to_be_sure, .. } in findings {
        said += &format!(" The deviations are consistent with {cause}: {reason}. To be sure: {to_be_sure}");
    }
    said
}

/// How long the trials were: flags and adaptive windows may make it another length than the experiment's file says.
pub(super) fn lengths(results: &Results) -> Option<String> {
    let loads: Vec<_> = results.trials.iter().filter_map(|trial| trial.load.as_ref()).collect();
    let (least, most) = stats::range(loads.iter().map(|load| load.window_secs))?;
    let window = if least == most { format!("{least:.1}") } else { format!("{least:.1} to {most:.1}") };
    let scaled = results.scale.map_or_else(String::new, |share| {
        format!(" Scaled: durations are {share} of the file’s, and levels may be left out, so slow changes and rare events are missing.")
    });
    Some(format!(
        "Warm-up {:.1} s, windows of {window} s. Flags in the command below, if there are any, override the file.{scaled}",
        loads.first()?.warmup_secs
    ))
}

/// How to read the answers and plots at the beginning of the page: each sentence where there is what it explains.
pub(super) fn overview(workloads: &[WorkloadFindings]) -> String {
    type Is = fn(&WorkloadFindings) -> bool;
    let sentences: &[(Is, &str)] = &[
        (
            |of| of.rows.iter().any(|row| row.runs >= RUNS_LEAST as u32),
            "Whiskers: 95 % interval over repetitions.",
        ),
        (|of| of.rows.iter().any(|row| row.runs == 2), "Whiskers of two repetitions: their range."),
        (
            |of| matches!(of.capacity, Capacity::Reached { .. }),
            "Band: interval of the throughput (goodput) in the answers above.",
        ),
        (
            |found| found.bottleneck.candidates.iter().any(|of| found.bottleneck.full_at(of).is_some()),
            "Thin lines: goodput at which a resource would be 100 % busy.",
        ),
        (
            |of| of.knee.is_some(),
            "Vertical dashed line: the knee; beyond it, requests mostly wait for each other.",
        ),
        (
            |of| of.rows.iter().any(|row| row.runs > 0 && !row.usable()),
            "Hollow: too many errors or, in an open loop, over capacity; such a level does not count for throughput and knee.",
        ),
        (|of| of.rows.iter().any(|row| row.runs == 0), "No point: no trial has figures."),
        (
            |of| of.bottleneck.next.as_ref().is_some_and(|next| next.ceiling().is_some()),
            "The next limit is given with the goodput at which it would be 100 % busy; “≥” means “or more”, “≤” “or less”.",
        ),
        (
            |of| of.bottleneck.grade == Grade::Supported,
            "“… % busy” is the mean over the levels by which the limit is determined; the section of the workload names them. “Supported”: the limit is at least 95 % busy; or threads wait for it most of the time (a lock, or a flush); or it is at least 85 % busy, and slowing it a little reduced goodput by more than half of what is expected of a limit. “Confirmed” needs an experiment with [interventions].",
        ),
        (
            |of| of.bottleneck.grade == Grade::Confirmed,
            "“Confirmed”: requests queue or threads wait for the limit; goodput changed as predicted when it was changed, and hardly when requests were only delayed.",
        ),
        (|of| of.bottleneck.grade == Grade::Suspected, "“Suspected”: the evidence for this limit is weak."),
        (
            |of| of.bottleneck.grade == Grade::NotIdentified,
            "“Not identified”: the evidence points to no limit.",
        ),
        (
            |of| of.bottleneck.named.iter().any(|of| of.blocked.is_some()),
            "For a service that reports no counters there are other rules (docs/reference.md, “Services of your own”).",
        ),
    ];
    let shown = sentences.iter().filter(|(is, _)| workloads.iter().any(is)).map(|(_, text)| *text);
    shown.collect::<Vec<_>>().join(" ")
}

/// How to read the plot of the resources.
pub(super) const UTILIZATION: &str = "In the plot, grey is the load generator, a name in brackets is a resource that can be 100 % busy without being the limit, such as a disk, and the vertical dashed line is the knee.";

/// How a trial went.
pub(super) fn time_series_caption(of: &TimeSeries) -> String {
    let clients = count(of.level, "client");
    let cut = if of.cut_secs > 0.0 { " Dashed: where the warm-up seems to end." } else { "" };
    let (repetition, secs) = (of.repetition + 1, of.bin_secs);
    format!("Repetition {repetition} at {clients}, in bins of {secs} s. {}{cut}", of.said)
}

/// The trials that failed, and why.
pub(super) fn failures(rows: &[&Row]) -> Vec<String> {
    let mut causes: BTreeMap<&str, Vec<(&Row, u32)>> = BTreeMap::new();
    for row in rows {
        row.failures.iter().for_each(|(why, trials)| causes.entry(why).or_default().push((row, *trials)));
    }
    let sentence = |(why, failed): (&str, Vec<(&Row, u32)>)| {
        let trials: u32 = failed.iter().map(|(_, trials)| trials).sum();
        let planned: u32 = failed.iter().map(|(row, _)| row.planned).sum();
        let levels: Vec<u32> = failed.iter().map(|(row, _)| row.level).collect();
        let what = if why == DID_NOT_RUN { why } else { &format!("failed: {why}") };
        format!("{trials} of {} at {} {what}.", count(planned, "trial"), each_level(&levels))
    };
    causes.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_led_to_a_verdict_is_said_of_one_resource_as_of_several() {
        let of = |resource: &str, utilization| Evidence {
            resource: resource.into(),
            utilization,
            demand_variation: Some(0.2),
            at_most_clients: Some((256, utilization)),
            ..Evidence::default()
        };
        for (of, said) in [
            (
                Reason::SaturatedAtMost(of("server CPU", 0.97)),
                "Server CPU: 97 % busy at 256 clients. At 16–64 clients, from which the limit is determined, the data do not \
                 support server CPU, so it is only suspected.",
            ),
            (
                Reason::Followed { of: of("server CPU", 0.6), is_named: false },
                "A change of server CPU changed goodput as predicted, but its utilization is only 60 %. \
                 If no queue or wait points to a resource, it is named only from 85 % on.",
            ),
            (
                Reason::DemandVaries(of("store write workers", 0.97)),
                "The utilization of store write workers is 97 %, but the demand per request varies by 20 % over these levels, so full \
                 utilization does not show that it is the limit.",
            ),
            (
                Reason::NotBusy(of("lock", 0.93)),
                "This queue is not enough to name a limit: on average over 16–64 clients, the utilization of lock is 93 %, \
                 and no resource that it needs is 95 % busy.",
            ),
            (
                Reason::Batches { of: of("store write workers", 0.97), waits: true },
                "Batches in store write workers grow with the load, so high utilization there does not show the limit; most of the busy \
                 time is spent waiting for the named limit.",
            ),
        ] {
            assert_eq!(reason(&of, &[16, 64]), said);
        }
        assert_eq!(waits(0.9, 1, "client"), "0.9 of 1 client waits");
    }

    #[test]
    fn what_is_named_in_place_of_a_queue_says_how_busy_each_of_it_is() {
        let growth = Growth { resource: "server workers".into(), of_each: 0.9, low: 16, high: 64 };
        let hard = |resource: &str, utilization| Evidence {
            resource: resource.into(),
            is_hard: true,
            utilization,
            ..Evidence::default()
        };
        let said = in_use(&Reason::Queue(growth), &[hard("server CPU", 0.98), hard("database CPU", 0.96)]);
        let expected = " Requests queue at server workers, which themselves need server CPU and database CPU (98 % busy and 96 % busy; from 95 % on that is evidence): so the limit is server CPU and database CPU.";
        assert_eq!(said, expected);
    }
}
