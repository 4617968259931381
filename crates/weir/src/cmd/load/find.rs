//! `weir load --find-rate` and `--find-capacity`: many short loads in one process, and what they say together.
//!
//! Which rate is next is for `lab_data::search` to say, as in the lab.

use crate::cmd::{note, say, say_document};
use kv::Error;
use kv::proto::LoadReport;
use kv::units::{Rate, Span, micros, short};
use lab_analysis::{Estimate, Interval};
use lab_data::results::{SearchEnd, SearchPlan};
use lab_data::search::{self, Outcome, Search, Tally};
use load::{self, Conditions, Pacing, Plan};
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
        let report = run(&plan)?;
        let outcome = search::outcome(&report, *error_ratio, is_broken.met(&report).is_empty());
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
        if let Some(rps) = estimate_rps {
            say(format!("limit       about {} req/s", short(rps)));
        }
        if waits && holds.is_some() {
            say(format!(
                "all {} connections were in use above it: more --clients may give a higher rate",
                plan.clients
            ));
        }
        say(format!("took {secs:.0} s"));
    }
    match holds {
        Some(_) => Ok(()),
        None => Err(no_rate(ended, why_none.filter(|_| !has_counted), longer)),
    }
}

/// Why no rate was found, and what to do; `why_none` is why no try counted, and `longer` the time that there should be.
fn no_rate(ended: SearchEnd, why_none: Option<String>, longer: Option<String>) -> Error {
    if let Some(why) = why_none {
        return Error::unmet(format_args!("no try counted: in the last one {why}"))
            .hint("give the generator cores of its own, or more --threads");
    }
    let hint = match (ended, longer) {
        (_, Some(longer)) => format!("give the search more time: {longer}"),
        (SearchEnd::Time, None) => "give the search more time with --within".to_owned(),
        _ => "see the tries: is a limit too low for any rate?".to_owned(),
    };
    Error::unmet("at no rate did enough tries show that the conditions hold").hint(hint)
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
    capacity_rps: f64,
    /// Half the width of its 95 % confidence interval; `None` with fewer than three rounds.
    plus_minus_rps: Option<f64>,
    clients: u32,
    knee_clients: f64,
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
}

/// A try in which nothing was over says how to give the search more time.
fn needs_success(report: &LoadReport) -> Result<(), Error> {
    match load::nothing_succeeded(report) {
        Some(_) if report.attempts == 0 => {
            let what = format_args!("no request was over in a try of {:.1} s", report.window_secs);
            Err(Error::unmet(what).hint("give the search more time with --within"))
        }
        Some(why) => Err(why),
        None => Ok(()),
    }
}

/// Finds the highest goodput in a closed loop, and the number of clients from which more only wait.
pub(super) fn capacity(plan: &Plan, within: Duration, (json, quiet): (bool, bool)) -> Result<(), Error> {
    let begun = Instant::now();
    let most = plan.clients;
    let runs = ROUNDS as f64 * f64::from(most.ilog2() + 1);
    let window = (within.as_secs_f64() / runs / (1.0 + WARMUP)).clamp(0.25, 30.0);
    let mut plan = Plan {
        window: Duration::from_secs_f64(window),
        warmup: Duration::from_secs_f64(window * WARMUP),
        ..plan.clone()
    };
    let mut reports: Vec<Vec<LoadReport>> = Vec::new();
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
            let report = run(&plan)?;
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
    let levels: Vec<Level> = reports.iter().map(|of_level| Level::of(of_level)).collect();
    let estimates =
        levels.iter().filter_map(|level| Some((Estimate::of(&level.goodput_rps)?, level.clients)));
    let best = estimates.max_by(|(a, _), (b, _)| a.mean.total_cmp(&b.mean));
    let Some((estimate, clients)) = best else { return Err(Error::unmet("there was no level")) };
    // A request more or less in each window is no difference.
    let request_rps = 1.0 / window;
    let (capacity_rps, plus_minus_rps) = (estimate.mean, plus_minus(&estimate, request_rps));
    let knee_clients = knee(capacity_rps, &levels[0], plan.pacing.think.mean);
    if json {
        return say_document(&Capacity { capacity_rps, plus_minus_rps, clients, knee_clients, levels });
    }
    let rises = if still_rises(&levels, clients) { "; it was still rising" } else { "" };
    say(format!("capacity    {} with {clients} clients{rises}", in_words(&estimate, request_rps)));
    say(format!(
        "knee        {} clients: capacity × (mean latency of one client + think time); with more, requests wait for each other",
        short(knee_clients)
    ));
    say(String::new());
    say(format!("{:>7} {:>10} {:>10} {:>10} {:>8}", "clients", "req/s", "p50", "p99", "errors"));
    for level in &levels {
        let (p50, p99) = (micros(level.latency_us_p50), micros(level.latency_us_p99));
        let errors = format!("{} %", short(level.error_ratio * 100.0));
        let rps = Estimate::of(&level.goodput_rps).map_or_else(String::new, |of| short(of.mean));
        say(format!("{:>7} {rps:>10} {p50:>10} {p99:>10} {errors:>8}", level.clients));
    }
    say(format!("took {:.0} s", begun.elapsed().as_secs_f64()));
    Ok(())
}

/// Whether more than `best` clients, who had the highest goodput, may get more: they were the most, and the last two doublings brought a gain.
fn still_rises(levels: &[Level], best: u32) -> bool {
    let rps =
        |back: usize| Some(Estimate::of(&levels.get(levels.len().checked_sub(back)?)?.goodput_rps)?.mean);
    let is_level = rps(1).zip(rps(3)).is_some_and(|(last, before)| last < before * GAIN_LEAST);
    levels.last().is_some_and(|last| last.clients == best) && !is_level
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
fn knee(capacity_rps: f64, alone: &Level, think: Duration) -> f64 {
    capacity_rps * (alone.latency_us_mean / 1e6 + think.as_secs_f64())
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::proto::Latency;

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
            (SearchEnd::TooLow, None, None, "hold; hint: see the tries"),
        ] {
            let text = no_rate(ended, why, longer).to_string();
            assert!(text.contains(says), "{text}");
        }
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
    fn a_capacity_still_rises_if_the_last_doublings_brought_a_gain() {
        for (rps, best, rises) in [
            (&[100.0, 200.0, 201.0, 203.0][..], 8, false),
            (&[100.0, 200.0, 390.0, 700.0], 8, true),
            (&[100.0, 200.0, 390.0, 380.0], 4, false),
            (&[100.0, 190.0], 2, true),
        ] {
            let report = |(place, rps): (u32, &f64)| LoadReport {
                clients: 1 << place,
                goodput_rps: *rps,
                ..LoadReport::default()
            };
            let levels: Vec<Level> = (0..).zip(rps).map(|of| Level::of(&[report(of)])).collect();
            assert_eq!(still_rises(&levels, best), rises, "{rps:?}");
        }
    }

    #[test]
    fn the_knee_is_capacity_times_mean_latency_and_think_time() {
        // Nine of ten requests take 1 ms and the others 11 ms; a client thinks for 8 ms.
        let latency = Latency { us_mean: 2000.0, us_p50: 1000.0, ..Latency::default() };
        let alone =
            Level::of(&[LoadReport { clients: 1, goodput_rps: 100.0, latency, ..LoadReport::default() }]);
        assert_eq!(knee(5000.0, &alone, Duration::from_millis(8)), 50.0);
        assert_eq!(knee(5000.0, &alone, Duration::ZERO), 10.0);
    }
}
