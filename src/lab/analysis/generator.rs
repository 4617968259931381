//! Gate G3: was the generator what limited a row, or what its latencies show?

use super::checks::{Seen, Verdict, failed};
use super::little::{is_open, request_secs};
use crate::lab::results::{ResourceKind, Results, Trial};
use crate::proto::{LoadReport, ScheduleReport};
use crate::units::micros;

/// The part that is the generator.
const GENERATOR: &str = "generator";
/// Of its cores' time, how much it may use.
const BUSY_LIMIT: f64 = 0.7;
/// Of its requests' time, how much it may wait for a core.
const WAIT_LIMIT: f64 = 0.01;
/// Of the latency that an open loop shows, how much may be the generator's own lateness; below the least, nobody could
/// do better: a sleeping thread takes that long to wake.
const SLIP_LIMIT: f64 = 0.01;
const SLIP_US_P99_LEAST: f64 = 50.0;

/// The parts that have the generator's cores; empty where it has them alone, or was not pinned.
pub(super) fn shares_with(results: &Results) -> &[String] {
    let generator = results.placements.iter().find(|placement| placement.part == GENERATOR);
    generator.map_or(&[], |placement| &placement.shares_with)
}

pub(super) fn judge(seen: &Seen) -> Verdict {
    if let Some(verdict) = shared(seen.results) {
        return verdict;
    }
    let share = share(seen);
    if let Some(share) = share.filter(|share| *share > BUSY_LIMIT) {
        return failed(
            format!("the generator uses {:.0} % of its cores", share * 100.0),
            "Give the generator more cores, or the target fewer.",
        );
    }
    let waits: Option<Vec<f64>> = seen.ran.iter().map(waited).collect();
    let waited = waits.and_then(|waits| waits.into_iter().max_by(f64::total_cmp));
    if let Some(waited) = waited.filter(|waited| *waited > WAIT_LIMIT) {
        return failed(
            format!("of its requests’ time the generator waited {:.1} % for a core", waited * 100.0),
            "Leave the generator’s cores to it; repeat when the machine is quiet.",
        );
    }
    let slips = seen.ran.iter().filter_map(|(_, load)| Some((slipped(load)?, load.schedule.as_ref()?)));
    let slip = slips.max_by(|(a, _), (b, _)| a.total_cmp(b));
    if let Some((of_latency, ScheduleReport { slip, .. })) = slip
        && of_latency > SLIP_LIMIT
        && slip.us_p99 > SLIP_US_P99_LEAST
    {
        return failed(
            format!(
                "{:.1} % of the latency is the generator’s own lateness (mean {}, p99 {})",
                of_latency * 100.0,
                micros(slip.us_mean),
                micros(slip.us_p99)
            ),
            "Give the generator more threads and cores, or offer less. Service times do not contain it.",
        );
    }
    let Some(share) = share else {
        return Verdict::NotChecked("the generator’s processor time was not read".into());
    };
    let late = slip.map(|(_, of)| format!(", and sent {} late on average", micros(of.slip.us_mean)));
    Verdict::Partly {
        holds: format!("the generator uses {:.0} % of its cores{}", share * 100.0, late.unwrap_or_default()),
        missing: "the comparison with a server that answers from memory comes later".into(),
    }
}

/// On cores it shares, the generator takes from the target what it needs, and the other way round. How much of it went to
/// whom can be counted; what either would do alone cannot.
fn shared(results: &Results) -> Option<Verdict> {
    let others = shares_with(results);
    let (last, before) = others.split_last()?;
    let with = if before.is_empty() { last.clone() } else { format!("{} and {last}", before.join(", ")) };
    let placement = results.placements.iter().find(|placement| placement.part == GENERATOR)?;
    let core = if placement.cores.len() == 1 { "core" } else { "cores" };
    Some(failed(
        format!("the generator shares its {core} with the {with}"),
        "Give the generator cores of its own, or run it on another machine.",
    ))
}

/// How busy the generator was in its busiest run, 0–1: by its resource, else by its own processor time over as many
/// cores as it has threads.
fn share(seen: &Seen) -> Option<f64> {
    let resources: Vec<_> =
        seen.results.resources.iter().filter(|resource| resource.kind == ResourceKind::Generator).collect();
    let of_run = |(trial, load): &(&Trial, &LoadReport)| {
        let read = resources.iter().filter_map(|resource| trial.utilization(resource)).max_by(f64::total_cmp);
        let own = load.cpu_secs / (load.window_secs * f64::from(load.threads));
        read.or(own.is_finite().then_some(own))
    };
    let shares: Option<Vec<f64>> = seen.ran.iter().map(of_run).collect();
    shares?.into_iter().max_by(f64::total_cmp)
}

/// How long the generator's threads waited for a core, as a share of the time requests were under way: by the sampler,
/// else by what the generator read of itself.
fn waited((trial, load): &(&Trial, &LoadReport)) -> Option<f64> {
    let sampled = trial.growth("generator.run_delay_secs").map(|secs| secs / trial.elapsed_secs);
    let own = || Some(load.run_delay_secs? / load.window_secs);
    // R·X: so much time passes in requests every second.
    let share = sampled.or_else(own)? / (request_secs(load) / load.window_secs);
    share.is_finite().then_some(share)
}

/// How much of all latency is time by which the generator sent late although it had a connection.
fn slipped(load: &LoadReport) -> Option<f64> {
    let slip = load.schedule.as_ref().filter(|_| is_open(load))?.slip;
    let share = slip.us_mean * slip.count as f64 / (load.latency.us_mean * load.latency.count as f64);
    share.is_finite().then_some(share)
}
