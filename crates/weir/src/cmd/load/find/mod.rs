//! `weir load --find-rate` and `--find-capacity`: many short loads in one process, and what they say together.

mod capacity;
mod rate;

pub(super) use capacity::capacity;
pub(super) use rate::rate;

use kv::Error;
use kv::proto::{LoadEvent, LoadReport};
use load::{self, EarlyEnd, Pacing, Plan, Target};
use std::time::Duration;

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
