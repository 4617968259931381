//! `weir load --find-rate` and `--find-capacity`: many short loads in one process, and what they say together.
//!
//! Which rate is next is for `lab_data::search` to say, as in the lab.

use crate::cmd::{counted, note, say, say_document};
use kv::Error;
use kv::proto::{LoadEvent, LoadReport};
use kv::units::{Rate, Span, micros, short};
use lab_analysis::{ERRORS_MAX, Estimate, Interval};
use lab_data::results::{SearchEnd, SearchPlan};
use lab_data::search::{self, Outcome, Search, Tally};
use load::{self, Conditions, EarlyEnd, Pacing, Plan, Target};
use serde::Serialize;
use std::time::{Duration, Instant};

/// A search has time for so many tries, and for so many at least where they have to be longer.
const TRIES: f64 = 40.0;
const TRIES_LEAST: f64 = 15.0;
/// A try has so many requests at the rate that is reached without a limit, if the time allows: a search needs half of it at least.
const REQUESTS: f64 = 400.0;
/// How near the bounds are to come.
const GOAL: f64 = 0.02;
/// A search with the closed loop has so many rounds over all levels.
const ROUNDS: usize = 3;
/// It warms up for this share of a window.
const WARMUP: f64 = 0.25;
/// A level is the last one if twice the clients bring less than this more.
const GAIN_LEAST: f64 = 1.03;

/// What `--find-rate` says as JSON.
#[derive(Serialize)]
struct Found<'a> {
    conditions: String,
    clients: u32,
    secs: f64,
    /// The highest rate at which they hold.
    holds_rps: Option<f64>,
    /// The lowest at which they do not.
    breaks_rps: Option<f64>,
    /// Between both, where the tries change sides.
    estimate_rps: Option<f64>,
    ended: SearchEnd,
    rates: &'a [Tally],
}

/// Finds the highest rate at which `wanted` holds.
pub(super) fn rate(
    plan: &Plan,
    wanted: &Conditions,
    within: Duration,
    (json, quiet): (bool, bool),
) -> Result<(), Error> {
    let begun = Instant::now();
    let (wanted, error_ratio) = &wanted.with_error_ratio_max();
    let is_broken = wanted.opposite();
    let trial_secs = (within.as_secs_f64() / TRIES).clamp(0.25, 30.0);
    // What comes through without a limit is where to begin.
    let first = run(&Plan { window: Duration::from_secs_f64(trial_secs), ..plan.clone() })?;
    needs_success(&first)?;
    let requests = requests_of_a_try(*error_ratio);
    let longest_secs = within.as_secs_f64() / TRIES_LEAST;
    let trial_secs = trial_secs.max((requests / first.goodput_rps).min(longest_secs));
    let all = SearchPlan {
        // These two are judged here.
        p99_us: 0.0,
        error_ratio: 0.0,
        clients: plan.clients,
        arrivals: plan.pacing.to_string(),
        trial_secs,
        most_secs: within.as_secs_f64(),
        goal: GOAL,
    };
    let tell = |line: String| {
        if !quiet {
            note(line);
        }
    };
    let needed_secs = requests / first.goodput_rps * TRIES_LEAST;
    let longer = (needed_secs > within.as_secs_f64()).then(|| format!("--within {:.0}s", needed_secs.ceil()));
    if let Some(longer) = &longer {
        let what =
            if requests > REQUESTS { "to see so few errors" } else { "for the low rates of this server" };
        tell(format!("note: tries are too short {what}; use {longer}"));
    }
    tell(format!("unlimited  {} req/s with {} clients", short(first.goodput_rps), plan.clients));
    let mut plan = Plan { preload: !plan.is_key_value(), ..plan.clone() };
    let mut search = Search::new(all.clone(), Some(first.goodput_rps / 2.0));
    let mut waits = false;
    // Why the last try that did not count did not.
    let mut why_none = None;
    let mut has_counted = false;
    // Of the last try that failed.
    let mut why_failed = None;
    let mut failure = None;
    let ended = loop {
        let next = match search.next() {
            Ok(next) => next,
            Err(ended) => break ended,
        };
        plan.pacing = Pacing { rate: Some(Rate(next.rate_rps)), ..plan.pacing };
        plan.warmup = Duration::from_secs_f64(next.warmup_secs);
        plan.window = Duration::from_secs_f64(next.window_secs);
        // The same requests again would find what the last try left in a cache.
        plan.seed = plan.seed.wrapping_add(1);
        let tried = Instant::now();
        let report = match attempt(&plan) {
            Ok(report) => report,
            Err(why) => {
                failure = Some(why);
                break SearchEnd::Broken;
            }
        };
        let met = is_broken.met(&report);
        let outcome = search::outcome(&report, *error_ratio, met.is_empty());
        if outcome == Outcome::Failed {
            why_failed = Some(failed_text(next.rate_rps, &met));
        }
        let schedule = report.schedule.as_ref();
        waits |= outcome == Outcome::Failed
            && schedule.is_some_and(|schedule| schedule.waited * 10 > schedule.sent);
        tell(try_line(&report, next.rate_rps, &outcome));
        match &outcome {
            Outcome::Passed | Outcome::Failed => has_counted = true,
            Outcome::Spoiled(why) | Outcome::Missing(why) => why_none = Some(why.clone()),
        }
        search.take(next.rate_rps, next.window_secs, &outcome, tried.elapsed().as_secs_f64());
    };
    let (holds, breaks) = search::bounds(search.tallies());
    let [holds_rps, breaks_rps] = [holds, breaks].map(|bound| bound.map(|tally| tally.rate_rps));
    let estimate_rps = search::estimate(search.tallies());
    let secs = begun.elapsed().as_secs_f64();
    if json {
        let (conditions, clients, rates) = (wanted.to_string(), plan.clients, search.tallies());
        let found = Found { conditions, clients, secs, holds_rps, breaks_rps, estimate_rps, ended, rates };
        say_document(&found)?;
    } else {
        result(wanted, plan.clients, [holds, breaks], ended).into_iter().for_each(say);
        limit(estimate_rps, holds_rps.zip(breaks_rps), ended).into_iter().for_each(say);
        if waits && holds.is_some() {
            say(format!(
                "all {} connections were in use above it: more --clients may give a higher rate",
                plan.clients
            ));
        }
        say(format!("took {secs:.0} s"));
    }
    match (failure, holds) {
        (Some(why), _) => Err(why),
        (None, Some(_)) => Ok(()),
        (None, None) => Err(no_rate(ended, why_none.filter(|_| !has_counted), why_failed, longer)),
    }
}

/// Why no rate was found, and what to do; `why_none` is why no try counted, `why_failed` why the last one failed that did, and `longer` the
/// time that there should be.
fn no_rate(
    ended: SearchEnd,
    why_none: Option<String>,
    why_failed: Option<String>,
    longer: Option<String>,
) -> Error {
    if let Some(why) = why_none {
        return Error::unmet(format_args!("no try counted: in the last one {why}"))
            .hint("give the generator cores of its own, or more --threads");
    }
    let hint = match (ended, longer) {
        (_, Some(longer)) => format!("give the search more time: {longer}"),
        (SearchEnd::Time, None) => "give the search more time with --within".to_owned(),
        _ => "is a limit too low for any rate?".to_owned(),
    };
    let why = why_failed.map_or_else(String::new, |why| format!(": {why}"));
    Error::unmet(format_args!("at no rate did enough tries show that the conditions hold{why}")).hint(hint)
}

/// Why a try at this rate failed: these conditions were broken, or none of them.
fn failed_text(rate_rps: f64, met: &[String]) -> String {
    let why = match met {
        [] => "too many of the requests that were due were not sent or not over".to_owned(),
        _ => met.join("; "),
    };
    format!("at {} req/s {why}", short(rate_rps))
}

/// Where the limit is, if both bounds are known.
fn limit(estimate_rps: Option<f64>, bounds: Option<(f64, f64)>, ended: SearchEnd) -> Option<String> {
    if let Some(rps) = estimate_rps {
        return Some(format!("limit       about {} req/s", short(rps)));
    }
    let (holds, breaks) = bounds?;
    let remedy = if ended == SearchEnd::Time { ": give it more time (--within)" } else { "" };
    Some(format!("limit       between {} and {} req/s{remedy}", short(holds), short(breaks)))
}

/// How many requests a try needs at the rate that is reached without a limit, if this share may fail: at half of it, one is expected to
/// fail where the limit is. A try with fewer would pass by luck.
fn requests_of_a_try(error_ratio_max: f64) -> f64 {
    let of_errors = if error_ratio_max > 0.0 { 2.0 / error_ratio_max } else { 0.0 };
    REQUESTS.max(of_errors)
}

fn run(plan: &Plan) -> Result<LoadReport, Error> {
    load::run(plan, &mut |_| {})
}

/// A run against servers that have answered before. An error is why the search ends: it says so if one of them does not answer a single
/// client any more.
fn attempt(plan: &Plan) -> Result<LoadReport, Error> {
    match run(plan) {
        Ok(report) if load::server_is_gone(&report).is_none() => Ok(report),
        // With less load it may still answer.
        of => plan.urls.iter().find_map(|url| gone(plan, url)).map_or(of, Err),
    }
}

/// That a server does not answer a single client any more.
fn gone(plan: &Plan, url: &Target) -> Option<Error> {
    const HINT: &str = "see its log; what was found before is above";
    let alone = Plan {
        urls: vec![url.clone()],
        clients: 1,
        pacing: Pacing::default(),
        warmup: Duration::ZERO,
        window: plan.window.max(Duration::from_secs(1)),
        bin: Duration::from_millis(50),
        ..plan.clone()
    };
    let early_end = EarlyEnd::default();
    let report = load::run_until(&alone, &early_end, &mut |event| {
        if let LoadEvent::Bin { bin: 0.., report } = event
            && report.successes > 0
        {
            early_end.request();
        }
    });
    match report {
        Err(_) => {
            Some(Error::unmet(format_args!("{url} went away: it cannot be reached any more")).hint(HINT))
        }
        Ok(report) if report.attempts == 0 => {
            let secs = report.window_secs;
            let what = format_args!("{url} stopped answering: a single client had no answer in {secs:.1} s");
            Some(Error::unmet(what).hint(HINT))
        }
        Ok(report) => load::nothing_succeeded(&report),
    }
}

fn try_line(report: &LoadReport, rate_rps: f64, outcome: &Outcome) -> String {
    let says = match outcome {
        Outcome::Passed => "holds".to_owned(),
        Outcome::Failed => "breaks".to_owned(),
        Outcome::Spoiled(why) | Outcome::Missing(why) => format!("does not count: {why}"),
    };
    format!(
        "tried      {:>6} req/s for {:<5}  p50 {}  p95 {}  p99 {}  errors {} %  {says}",
        short(rate_rps),
        Span(Duration::from_millis((report.window_secs * 1e3).round() as u64)).to_string(),
        micros(report.latency.us_p50),
        micros(report.latency.us_p95),
        micros(report.latency.us_p99),
        short(report.error_ratio * 100.0),
    )
}

/// The result in lines.
fn result(
    wanted: &Conditions,
    clients: u32,
    [holds, breaks]: [Option<Tally>; 2],
    ended: SearchEnd,
) -> Vec<String> {
    let rate = |tally: Option<Tally>| {
        tally.map_or("–".to_owned(), |tally| format!("{} req/s", short(tally.rate_rps)))
    };
    let counts = |tally: Option<Tally>, of: fn(&Tally) -> u32| {
        tally.map_or_else(String::new, |tally| {
            format!(" ({} of {} tries)", of(&tally), tally.passed + tally.failed)
        })
    };
    let why = match ended {
        SearchEnd::Reached => "",
        SearchEnd::Time => "; the time was over before the bounds were near",
        SearchEnd::TooLow => "; no lower rate can be measured in this time",
        SearchEnd::Generator => "; above it the generator is the limit",
        SearchEnd::Broken => "; tries gave no figures",
    };
    vec![
        format!("rate        {} with {wanted}, {clients} clients{why}", rate(holds)),
        format!("holds at    {}{}", rate(holds), counts(holds, |tally| tally.passed)),
        format!("breaks at   {}{}", rate(breaks), counts(breaks, |tally| tally.failed)),
    ]
}

/// What `--find-capacity` says as JSON.
#[derive(Serialize)]
struct Capacity {
    /// `None` if no level counts.
    capacity_rps: Option<f64>,
    /// Half the width of its 95 % confidence interval; `None` with fewer than three rounds.
    plus_minus_rps: Option<f64>,
    clients: Option<u32>,
    /// `None` if the capacity may not be reached, or one client's level does not count.
    knee_clients: Option<f64>,
    levels: Vec<Level>,
}

/// A number of clients.
#[derive(Serialize)]
struct Level {
    clients: u32,
    goodput_rps: Vec<f64>,
    latency_us_mean: f64,
    latency_us_p50: f64,
    latency_us_p99: f64,
    error_ratio: f64,
    /// Clients without an answer in a whole window: those of the round with most.
    unanswered: u64,
    /// The mean latency of successes.
    #[serde(skip)]
    success_us_mean: f64,
}

/// A try in which nothing was over says how to give the search more time.
fn needs_success(report: &LoadReport) -> Result<(), Error> {
    match load::nothing_succeeded(report) {
        Some(_) if report.attempts == 0 => {
            let what = format_args!("no request was over in a try of {:.1} s", report.window_secs);
            Err(Error::unmet(what)
                .hint("does the server answer? If it is so slow, give the search more time with --within"))
        }
        Some(why) => Err(why),
        None => Ok(()),
    }
}

/// Finds the highest goodput in a closed loop, and the number of clients from which more only wait.
pub(super) fn capacity(plan: &Plan, within: Duration, (json, quiet): (bool, bool)) -> Result<(), Error> {
    let begun = Instant::now();
    let runs = ROUNDS as f64 * f64::from(plan.clients.ilog2() + 1);
    let window = (within.as_secs_f64() / runs / (1.0 + WARMUP)).clamp(0.25, 30.0);
    let plan = Plan {
        window: Duration::from_secs_f64(window),
        warmup: Duration::from_secs_f64(window * WARMUP),
        ..plan.clone()
    };
    let mut reports = Vec::new();
    let ended = rounds(&plan, quiet, &mut reports);
    let levels: Vec<Level> = reports.iter().map(|of_level| Level::of(of_level)).collect();
    let Some(first) = levels.first() else { return ended };
    let counting = levels.iter().filter(|level| level.why_not().is_none());
    let estimates = counting.filter_map(|level| Some((Estimate::of(&level.goodput_rps)?, level.clients)));
    let best = estimates.max_by(|(a, _), (b, _)| a.mean.total_cmp(&b.mean));
    // A request more or less in each window is no difference.
    let request_rps = 1.0 / window;
    let not_reached = best.and_then(|(_, clients)| not_reached(&levels, clients));
    let knee = best.filter(|_| not_reached.is_none() && first.why_not().is_none());
    let knee_clients = knee.map(|(estimate, _)| knee_clients(estimate.mean, first, plan.pacing.think.mean));
    let outcome = ended.and_then(|()| match (best, first.why_not()) {
        (None, Some(why)) => {
            Err(Error::unmet(format_args!("no number of clients counts: with one client {why}"))
                .hint("without --find-capacity the report says why requests fail"))
        }
        _ => Ok(()),
    });
    if json {
        let capacity_rps = best.map(|(estimate, _)| estimate.mean);
        let plus_minus_rps = best.and_then(|(estimate, _)| plus_minus(&estimate, request_rps));
        let clients = best.map(|(_, clients)| clients);
        say_document(&Capacity { capacity_rps, plus_minus_rps, clients, knee_clients, levels })?;
        return outcome;
    }
    let capacity = best.map_or("–".to_owned(), |(estimate, clients)| {
        let doubt = not_reached.map_or_else(String::new, |why| format!("; {why}"));
        format!("{} with {}{doubt}", in_words(&estimate, request_rps), counted(clients.into(), "client"))
    });
    say(format!("capacity    {capacity}"));
    say(knee_clients.map_or("knee        –".to_owned(), |clients| {
        format!(
            "knee        {} clients: capacity × (mean latency of one client + think time); with more, requests wait for each other",
            short(clients)
        )
    }));
    say(String::new());
    say(format!("{:>7} {:>10} {:>10} {:>10} {:>8}", "clients", "req/s", "p50", "p99", "errors"));
    for level in &levels {
        let (p50, p99) = (micros(level.latency_us_p50), micros(level.latency_us_p99));
        let errors = format!("{} %", short(level.error_ratio * 100.0));
        let rps = Estimate::of(&level.goodput_rps).map_or_else(String::new, |of| short(of.mean));
        let why_not = level.why_not().map_or_else(String::new, |why| format!("  does not count: {why}"));
        say(format!("{:>7} {rps:>10} {p50:>10} {p99:>10} {errors:>8}{why_not}", level.clients));
    }
    say(format!("took {:.0} s", begun.elapsed().as_secs_f64()));
    outcome
}

/// Measures 1, 2, 4, … clients in rounds, and appends the report of each to those of its level. An error is why that ended early.
fn rounds(plan: &Plan, quiet: bool, reports: &mut Vec<Vec<LoadReport>>) -> Result<(), Error> {
    let most = plan.clients;
    let mut plan = plan.clone();
    for round in 0..ROUNDS {
        for place in 0.. {
            let clients = 1 << place;
            let is_last = round > 0 && place == reports.len();
            if is_last || clients > most {
                break;
            }
            plan.clients = clients;
            // As above: each run asks for something else.
            plan.seed = plan.seed.wrapping_add(1);
            let report = if reports.is_empty() { run(&plan)? } else { attempt(&plan)? };
            if let Err(why) = needs_success(&report) {
                // What was measured with fewer clients stays.
                if reports.is_empty() {
                    return Err(why);
                }
                note(format_args!("{clients} clients: {why}"));
                break;
            }
            // The keys are there now.
            plan.preload = !plan.is_key_value();
            if !quiet {
                let (p50, p99) = (micros(report.latency.us_p50), micros(report.latency.us_p99));
                note(format!(
                    "round {} of {ROUNDS}  {clients:>5} clients  {:>6} req/s  p50 {p50}  p99 {p99}",
                    round + 1,
                    short(report.goodput_rps),
                ));
            }
            match reports.get_mut(place) {
                Some(of_level) => of_level.push(report),
                None => reports.push(vec![report]),
            }
            // Two doublings without a gain.
            let goodput =
                |back: usize| reports.len().checked_sub(back).map(|place| reports[place][0].goodput_rps);
            if round == 0
                && let (Some(last), Some(before)) = (goodput(1), goodput(3))
                && last < before * GAIN_LEAST
            {
                break;
            }
        }
    }
    Ok(())
}

/// Why more than `best` clients, who had the highest goodput, may get more; `None` if fewer doublings than two are left that may bring a
/// gain.
fn not_reached(levels: &[Level], best: u32) -> Option<&'static str> {
    let counting: Vec<&Level> = levels.iter().filter(|level| level.why_not().is_none()).collect();
    let rps =
        |back: usize| Some(Estimate::of(&counting.get(counting.len().checked_sub(back)?)?.goodput_rps)?.mean);
    let is_level = rps(1).zip(rps(3)).is_some_and(|(last, before)| last < before * GAIN_LEAST);
    let is_last = counting.last().is_some_and(|last| last.clients == best);
    let has_more = levels.last().is_some_and(|last| last.clients > best);
    let why = if has_more { "no level with more clients counts" } else { "it was still rising" };
    (is_last && !is_level).then_some(why)
}

/// Half the width of a 95 % confidence interval, at least `least`; `None` where there is none.
fn plus_minus(of: &Estimate, least: f64) -> Option<f64> {
    (of.interval == Interval::StudentT).then_some((of.high - of.mean).max(least))
}

/// `12.3k ± 210 req/s`.
fn in_words(of: &Estimate, least: f64) -> String {
    let mean = short(of.mean);
    match (plus_minus(of, least), of.interval) {
        (Some(half), _) => format!("{mean} ± {} req/s", short(half)),
        (None, Interval::Single) => format!("{mean} req/s (one round)"),
        (None, _) => format!("{mean} req/s ({} to {} in two rounds)", short(of.low), short(of.high)),
    }
}

/// Asymptotic bounds: from so many clients on, they cannot all be served at once.
fn knee_clients(capacity_rps: f64, alone: &Level, think: Duration) -> f64 {
    capacity_rps * (alone.success_us_mean / 1e6 + think.as_secs_f64())
}

impl Level {
    /// Of at least one round; of latencies and errors the mean of the rounds is kept.
    fn of(reports: &[LoadReport]) -> Level {
        let all = |figure: fn(&LoadReport) -> f64| reports.iter().map(figure);
        let mean = |figure: fn(&LoadReport) -> f64| all(figure).sum::<f64>() / reports.len() as f64;
        Level {
            clients: reports[0].clients,
            goodput_rps: all(|report| report.goodput_rps).collect(),
            latency_us_mean: mean(|report| report.latency.us_mean),
            latency_us_p50: mean(|report| report.latency.us_p50),
            latency_us_p99: mean(|report| report.latency.us_p99),
            error_ratio: mean(|report| report.error_ratio),
            unanswered: reports.iter().map(|report| report.unanswered).max().unwrap_or_default(),
            success_us_mean: mean(success_us_mean),
        }
    }

    /// Why it counts neither for the capacity nor for the knee, as a level of the lab.
    fn why_not(&self) -> Option<String> {
        let Level { unanswered, clients, error_ratio, .. } = self;
        match () {
            () if *error_ratio > ERRORS_MAX => {
                Some(format!("{} % of the attempts failed", short(error_ratio * 100.0)))
            }
            () if *unanswered > 0 => Some(format!("{unanswered} of {clients} clients had no answer")),
            () => None,
        }
    }
}

/// The mean latency of successes.
fn success_us_mean(report: &LoadReport) -> f64 {
    let all = || report.operations.iter().map(|operation| &operation.latency);
    let sum: f64 = all().map(|latency| latency.us_mean * latency.count as f64).sum();
    sum / all().map(|latency| latency.count).sum::<u64>().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::proto::{Latency, OperationReport};

    #[test]
    fn a_try_has_requests_enough_to_see_the_errors_that_are_allowed() {
        for (ratio, requests) in [(0.0, 400.0), (0.01, 400.0), (0.0001, 20_000.0)] {
            assert_eq!(requests_of_a_try(ratio), requests, "{ratio}");
        }
    }

    #[test]
    fn a_search_that_finds_no_rate_says_why() {
        let late = "the generator sent 3.00 ms late (p99)";
        let longer = || Some("--within 60s".to_owned());
        for (ended, why, longer, says) in [
            (
                SearchEnd::TooLow,
                Some(late.to_owned()),
                longer(),
                "no try counted: in the last one the generator sent",
            ),
            (SearchEnd::TooLow, None, longer(), "hold; hint: give the search more time: --within 60s"),
            (SearchEnd::Time, None, None, "hold; hint: give the search more time with --within"),
            (SearchEnd::TooLow, None, None, "hold; hint: is a limit too low"),
        ] {
            let text = no_rate(ended, why, None, longer).to_string();
            assert!(text.contains(says), "{text}");
        }
        for (met, says) in [
            (
                &["errors is 50.0 %, above 1.00 %".to_owned()][..],
                "hold: at 20.0 req/s errors is 50.0 %, above",
            ),
            (
                &[],
                "hold: at 20.0 req/s too many of the requests that were due were not sent or not over; hint",
            ),
        ] {
            let text = no_rate(SearchEnd::TooLow, None, Some(failed_text(20.0, met)), None).to_string();
            assert!(text.contains(says), "{text}");
        }
    }

    #[test]
    fn a_limit_is_an_estimate_only_between_near_bounds() {
        let text = |estimate, bounds, ended| limit(estimate, bounds, ended).unwrap_or_default();
        let bounds = Some((750.0, 1500.0));
        assert_eq!(
            text(Some(404.0), Some((400.0, 408.0)), SearchEnd::Reached),
            "limit       about 404 req/s"
        );
        assert_eq!(
            text(None, bounds, SearchEnd::Time),
            "limit       between 750 and 1.50k req/s: give it more time (--within)"
        );
        assert_eq!(text(None, bounds, SearchEnd::Reached), "limit       between 750 and 1.50k req/s");
        assert_eq!(text(None, None, SearchEnd::Time), "");
    }

    /// A level that fails in the second round has one round, which once read as ± 0.
    #[test]
    fn a_capacity_has_an_interval_from_three_rounds_on() {
        for (rounds, said) in [
            (&[100.0][..], "100 req/s (one round)"),
            (&[100.0, 120.0], "110 req/s (100 to 120 in two rounds)"),
            (&[100.0, 110.0, 120.0], "110 ± 24.8 req/s"),
            // 42 requests in each window.
            (&[96.8, 96.8, 96.8], "96.8 ± 2.30 req/s"),
        ] {
            assert_eq!(in_words(&Estimate::of(rounds).unwrap(), 2.3), said);
        }
    }

    /// Of equal levels the last may be the best by chance, which once read as rising.
    #[test]
    fn a_capacity_is_reached_if_the_last_doublings_that_count_brought_no_gain() {
        const RISING: Option<&str> = Some("it was still rising");
        const NO_MORE: Option<&str> = Some("no level with more clients counts");
        // From so many clients on some have no answer, or requests fail.
        for (rps, best, unanswered_from, failed_from, why) in [
            (&[100.0, 200.0, 201.0, 203.0][..], 8, 99, 99, None),
            (&[100.0, 200.0, 390.0, 700.0], 8, 99, 99, RISING),
            (&[100.0, 200.0, 390.0, 380.0], 4, 99, 99, None),
            (&[100.0, 190.0], 2, 99, 99, RISING),
            (&[100.0, 99.0, 101.0], 1, 2, 99, NO_MORE),
            (&[100.0, 200.0, 390.0, 700.0], 4, 99, 8, NO_MORE),
            (&[100.0, 200.0, 201.0, 202.0, 150.0], 8, 99, 16, None),
        ] {
            let report = |(place, rps): (u32, &f64)| LoadReport {
                clients: 1 << place,
                goodput_rps: *rps,
                unanswered: u64::from(1 << place >= unanswered_from),
                error_ratio: if 1 << place >= failed_from { 0.002 } else { 0.001 },
                ..LoadReport::default()
            };
            let levels: Vec<Level> = (0..).zip(rps).map(|of| Level::of(&[report(of)])).collect();
            assert_eq!(not_reached(&levels, best), why, "{rps:?}");
        }
    }

    #[test]
    fn the_knee_is_capacity_times_mean_latency_and_think_time() {
        // Nine of ten requests take 1 ms and the others 11 ms; a client thinks for 8 ms.
        let of = |us_mean, count| OperationReport {
            latency: Latency { us_mean, count, ..Latency::default() },
            ..OperationReport::default()
        };
        // A failed attempt of 5 s, in the mean latency of all, is none of it.
        let latency = Latency { us_mean: 7000.0, count: 1001, ..Latency::default() };
        let operations = vec![of(1000.0, 900), of(11_000.0, 100)];
        let report =
            LoadReport { clients: 1, goodput_rps: 100.0, latency, operations, ..LoadReport::default() };
        let alone = Level::of(&[report]);
        assert_eq!(knee_clients(5000.0, &alone, Duration::from_millis(8)), 50.0);
        assert_eq!(knee_clients(5000.0, &alone, Duration::ZERO), 10.0);
    }
}
