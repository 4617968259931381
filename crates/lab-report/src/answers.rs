//! The answers for one workload: how fast it is, where its knee is, what limits it, and whether to believe that.

use super::checks;
use super::document::{Answer, Tone};
use super::format::{self, UNKNOWN, count, each_level, latency, percent};
use super::sentences;
use kv::units::short;
use lab_analysis::{Capacity, Estimate, Findings, Grade, Knee, WorkloadFindings};

/// The four answers, in the order in which readers ask.
pub(super) fn answers(found: &WorkloadFindings, findings: &Findings) -> Vec<Answer> {
    vec![throughput(found), knee(found), limit(found), checks::confidence(found, findings)]
}

fn plain(label: &'static str, said: String, details: impl IntoIterator<Item = Option<String>>) -> Answer {
    Answer { label, said, details: details.into_iter().flatten().collect(), tone: Tone::Plain }
}

fn throughput(found: &WorkloadFindings) -> Answer {
    let (said, where_from) = match &found.capacity {
        Capacity::Reached { rps, levels } => (req_per_sec(rps), format!("at {}", format::levels(levels))),
        Capacity::NotReached { rps, level, rising } => {
            let is = if *rising { "still rising" } else { "the best level" };
            (req_per_sec(rps), format!("{is} at {}", count(*level, "client")))
        }
        Capacity::Offered { rps, kept, over } => offered(found, *rps, kept, over),
        Capacity::Unknown => ("unknown".to_owned(), "no level is valid".to_owned()),
    };
    let (there, is_other) = match &found.capacity {
        Capacity::Reached { levels, .. } => {
            (found.knee.as_ref().map(|knee| &knee.nearest_level).or(levels.first()), true)
        }
        Capacity::NotReached { level, .. } => (Some(level), false),
        Capacity::Offered { kept, .. } => (kept.last(), true),
        Capacity::Unknown => (None, false),
    };
    let there = there.and_then(|level| found.rows.iter().find(|row| row.level == *level)).map(|row| {
        let (p50, p99) = (latency(row.latency_us_p50), latency(row.latency_us_p99));
        let at = if is_other { format!(" at {}", count(row.level, "client")) } else { String::new() };
        format!("p50 {p50}, p99 {p99}{at}")
    });
    let generator = found.generator_limited().then(|| "the load generator is the limit".to_owned());
    // A search that was asked for is the answer; the capacity then belongs to it.
    let (said, capacity) = match &found.under_limit {
        Some(of) => (sentences::under_limit(of), Some(format!("capacity {said}"))),
        None => (said, None),
    };
    let details = [capacity, generator, Some(where_from), there, sentences::decline(found)];
    plain("throughput", said, details)
}

fn req_per_sec(rps: &Estimate) -> String {
    format!("{} req/s", format::spread(rps))
}

/// What became of the rate that an open loop asked for.
fn offered(found: &WorkloadFindings, rps: f64, kept: &[u32], over: &[u32]) -> (String, String) {
    let too_much = format!("over capacity at {}", each_level(over));
    match (kept.last(), over.first(), sentences::most_completed(found)) {
        (None, Some(_), Some(completed)) => {
            (format!("{} req/s", short(completed)), format!("of {} req/s offered; {too_much}", short(rps)))
        }
        (Some(_), None, _) => {
            (format!("{} req/s", short(rps)), "offered, and all of it completed".to_owned())
        }
        (_, Some(_), _) => (format!("{} req/s", short(rps)), format!("offered; {too_much}")),
        (None, None, _) => (format!("{} req/s", short(rps)), "offered".to_owned()),
    }
}

fn knee(found: &WorkloadFindings) -> Answer {
    let (said, why) = match &found.knee {
        Some(knee) => {
            let blunt = (!knee.sharp).then(|| "not sharp: four methods differ by more than 2×".to_owned());
            (format!("{} clients{}", format::clients(knee.clients), ends(knee)), blunt)
        }
        None if sentences::is_open(found) => (UNKNOWN.to_owned(), Some("an open loop has none".to_owned())),
        None if matches!(found.capacity, Capacity::NotReached { rising: true, .. }) => {
            let most = found.rows.iter().map(|row| row.level).max().unwrap_or(0);
            ("not reached".to_owned(), Some(format!("up to {}", count(most, "client"))))
        }
        None => ("unknown".to_owned(), Some("too few levels".to_owned())),
    };
    plain("knee", said, [why])
}

/// Between which the knee lies: ` (3.8–4.3)`; nothing of one run.
fn ends(knee: &Knee) -> String {
    let (low, high) = (format::clients(knee.spread.clients.0), format::clients(knee.spread.clients.1));
    if low == high { String::new() } else { format!(" ({low}–{high})") }
}

fn limit(found: &WorkloadFindings) -> Answer {
    let bottleneck = &found.bottleneck;
    let next = bottleneck.next.as_ref();
    let next = next.map(|next| format!("next: {}, full at {} req/s", next.resource, short(next.ceiling_rps)));
    let said = |said: &str, why: &str| plain("limit", said.to_owned(), [Some(why.to_owned())]);
    match bottleneck.grade {
        Grade::Confirmed | Grade::Supported => {
            let grade = if bottleneck.grade == Grade::Confirmed { "confirmed" } else { "supported" };
            let named =
                format!("{}, {}", sentences::limits(&bottleneck.named), sentences::busy(&bottleneck.named));
            plain("limit", format!("{named} ({grade})"), [next])
        }
        Grade::Delay => said("a delay", "no resource is full: more clients get more"),
        Grade::FastFail => said("it fails fast", "failures rise, goodput does not"),
        Grade::Generator => match bottleneck.named.first() {
            Some(of) => said(
                &format!("the load generator, {} busy", percent(of.utilization)),
                "nothing is known of the target",
            ),
            None => said("unknown", "the load generator may be the limit"),
        },
        Grade::NotIdentified if sentences::is_open(found) => said(UNKNOWN, "an open loop does not show it"),
        Grade::NotIdentified => {
            let load_dependent = (!bottleneck.load_dependent.is_empty()).then(|| {
                let names: Vec<&str> =
                    bottleneck.load_dependent.iter().map(|of| of.resource.as_str()).collect();
                format!("{} is busy, but batching lowers its demand", format::listed(&names))
            });
            let busiest = found.ceilings.first();
            let busiest = busiest.map(|of| format!("busiest: {}, {}", of.resource, percent(of.utilization)));
            plain("limit", "not identified".to_owned(), [load_dependent, busiest])
        }
    }
}
