//! The highest rate at which conditions hold.
//!
//! Which rate is next is for `lab_data::search` to say, as in the lab.

use super::{attempt, needs_success, run};
use crate::cmd::{note, say, say_document};
use kv::Error;
use kv::proto::LoadReport;
use kv::units::{Rate, Span, micros, short};
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
pub(in crate::cmd::load) fn rate(
    plan: &Plan,
    wanted: &Conditions,
    within: Duration,
    (json, quiet): (bool, bool),
) -> Result<(), Error> {
    let begun = Instant::now();
    let (wanted, error_ratio) = &wanted.with_error_ratio_max();
    // A try at a low rate says nothing of it.
    let (of_tries, least_rps) = wanted.without_least_rate();
    let is_broken = of_tries.opposite();
    let trial_secs = (within.as_secs_f64() / TRIES).clamp(0.25, 30.0);
    // What comes through without a limit is where to begin.
    let first = run(&Plan { window: Duration::from_secs_f64(trial_secs), ..plan.clone() })?;
    needs_success(&first)?;
    let requests = requests_of_a_try(*error_ratio, wanted.requests_least());
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
        let what = if requests > REQUESTS { "to tell" } else { "for the low rates of this server" };
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
        (None, Some(_)) => match least_rps.zip(holds_rps).filter(|(least, holds)| holds < least) {
            Some((least, holds)) => {
                let what =
                    format_args!("the conditions hold at {} req/s, not at {}", short(holds), short(least));
                Err(Error::unmet(what))
            }
            None => Ok(()),
        },
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

/// How many requests a try needs at the rate that is reached without a limit, if this share may fail and so many tell of the latencies:
/// at half of it, one is expected to fail where the limit is. A try with fewer would pass by luck.
fn requests_of_a_try(error_ratio_max: f64, of_latencies: f64) -> f64 {
    let of_errors = if error_ratio_max > 0.0 { 2.0 / error_ratio_max } else { 0.0 };
    REQUESTS.max(of_errors).max(of_latencies)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_has_requests_enough_to_see_the_errors_that_are_allowed() {
        for (ratio, text, requests) in [
            (0.0, "p99<1s", 400.0),
            (0.01, "mean<1s,max<2s", 400.0),
            (0.0001, "p50<1s", 20_000.0),
            (0.01, "p99<1s,p99.9<2s", 4000.0),
        ] {
            let wanted: Conditions = text.parse().unwrap();
            assert_eq!(requests_of_a_try(ratio, wanted.requests_least()).round(), requests, "{ratio} {text}");
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
}
