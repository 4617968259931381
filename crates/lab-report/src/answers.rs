//! The answers for one workload: how fast it is, where its knee is, what limits it, and whether to believe that.

use super::checks;
use super::document::Answer;
use super::format::{self, UNKNOWN, count, each_level, latency, percent};
use super::published;
use super::sentences;
use kv::units::short;
use lab_analysis::capacity::LEVELS;
use lab_analysis::{Bound, Capacity, Excluded, FastFail, Grade, Reason, WorkloadFindings};
use lab_data::results::ResourceKind;
use lab_data::sums;
use stats::range;

const NONE_VALID: &str = "no level is valid";

/// The answers, in the order in which readers ask, and what somebody published.
pub(super) fn answers(found: &WorkloadFindings) -> Vec<Answer> {
    let own = [throughput(found), knee(found), limit(found), checks::confidence(found)];
    own.into_iter().chain(published::answer(found)).collect()
}

fn answer(label: &'static str, said: String, details: impl IntoIterator<Item = Option<String>>) -> Answer {
    Answer { label, said, details: details.into_iter().flatten().collect(), class: "" }
}

fn throughput(found: &WorkloadFindings) -> Answer {
    let (said, where_from, level) = match &found.capacity {
        Capacity::Reached { rps, levels } => {
            // With more clients, requests only wait longer.
            let at = format!("at {}", format::levels(levels));
            (format::spread(rps) + " req/s", Some(at), levels.first().copied())
        }
        Capacity::NotReached { rps, level, rising } => {
            let is = if *rising { "still rising" } else { "highest" };
            let at = format!("{is} at {}", count(*level, "client"));
            (format::spread(rps) + " req/s", Some(at), Some(*level))
        }
        Capacity::Offered { rps, kept, over } => {
            let (said, what_became) = offered(found, *rps, kept, over);
            (said, what_became, kept.last().copied())
        }
        Capacity::Unknown => ("unknown".to_owned(), Some(NONE_VALID.to_owned()), None),
    };
    let row = found.rows.iter().find(|row| Some(row.level) == level).map(|row| {
        let (p50, p99) = (latency(row.latency_us_p50), latency(row.latency_us_p99));
        let at = match &found.capacity {
            Capacity::NotReached { .. } => String::new(),
            _ => format!(" at {}", count(row.level, "client")),
        };
        format!("p50 {p50}, p99 {p99}{at}")
    });
    let generator = found.generator_limited().then(|| "the load generator is the limit".to_owned());
    // A search that was asked for is the answer; the capacity then belongs to it.
    let (said, capacity) = match &found.under_limit {
        Some(of) => (sentences::under_limit(of), Some(format!("capacity {said}"))),
        None => (said, None),
    };
    let failed = matches!(found.capacity, Capacity::Unknown).then(|| failures(found)).flatten();
    answer("throughput", said, [capacity, generator, failed, where_from, row, sentences::decline(found)])
}

/// What failed most, where no level is valid.
fn failures(found: &WorkloadFindings) -> Option<String> {
    let rows = || found.rows.iter().filter(|row| row.excluded == Some(Excluded::Errors));
    let ratio = rows().filter_map(|row| row.error_ratio).fold(0.0, f64::max);
    let errors = sums(rows().flat_map(|row| row.errors.iter().map(|(class, count)| (class, *count))));
    let (class, _) = errors.into_iter().max_by_key(|(_, count)| *count)?;
    let decimals = if ratio < 0.1 { 2 } else { 0 };
    Some(format!("up to {} of the attempts failed, most with {class}", percent(ratio, decimals)))
}

/// Of what was due: what a window ends with may be a little less than what it begins with.
const ALL: f64 = 0.99;

/// The rate that an open loop offered, or what completed where that is less at every level; and what became of it.
fn offered(found: &WorkloadFindings, rps: f64, kept: &[u32], over: &[u32]) -> (String, Option<String>) {
    let offered = format!("{} req/s offered", short(rps));
    let what_became = match (kept, over) {
        ([], []) => None,
        (_, []) => {
            let completed = found.rows.iter().filter_map(|row| Some(row.goodput_rps?.mean / row.due_rps?));
            let least = completed.fold(f64::INFINITY, f64::min);
            Some(match least >= ALL {
                true => "all of it completed".to_owned(),
                false => format!("at least {} of it completed", percent(least, 1)),
            })
        }
        _ => Some(format!("over capacity at {}", each_level(over))),
    };
    match (sentences::most_completed(found), &what_became) {
        (Some(completed), Some(over)) if kept.is_empty() => {
            (format!("{} req/s completed", short(completed)), Some(format!("{offered}; {over}")))
        }
        _ => (offered, what_became),
    }
}

fn knee(found: &WorkloadFindings) -> Answer {
    let (said, why) = match &found.knee {
        Some(knee) => {
            let others = range([knee.broken_stick, knee.power, knee.kneedle].into_iter().flatten());
            let blunt = others.filter(|_| !knee.sharp).map(|(least, most)| {
                let [least, most] = [least, most].map(format::clients);
                format!("uncertain: other methods give {least} to {most}")
            });
            let ends = sentences::between_clients(knee.ends);
            (format!("{} clients{ends}", format::clients(knee.clients)), blunt)
        }
        None if sentences::is_open(found) => (UNKNOWN.to_owned(), Some("an open loop has none".to_owned())),
        None if let Capacity::NotReached { rising: true, level, .. } = found.capacity => {
            let valid = if found.rows.iter().any(|row| row.level > level) { "valid " } else { "" };
            ("not reached".to_owned(), Some(format!("highest {valid}level: {}", count(level, "client"))))
        }
        None => ("unknown".to_owned(), Some(no_knee(found).to_owned())),
    };
    answer("knee", said, [why])
}

/// Why there is no knee although goodput no longer rises.
fn no_knee(found: &WorkloadFindings) -> &'static str {
    let valid = || found.rows.iter().filter(|row| row.usable());
    match valid().next() {
        None => NONE_VALID,
        Some(_) if valid().count() < LEVELS => "fewer than three valid levels",
        Some(first) if first.level > 1 && found.rows[0].usable() => {
            "the lowest level already has over half of the capacity"
        }
        Some(first) if first.level > 1 => "the lowest valid level already has over half of the capacity",
        Some(_) => "the latency of the lowest level is not known",
    }
}

fn limit(found: &WorkloadFindings) -> Answer {
    let bottleneck = &found.bottleneck;
    let (named, busy) = (sentences::limits(&bottleneck.named), sentences::busy(&bottleneck.named));
    let next = bottleneck.next.as_ref().and_then(|of| Some((sentences::limit(of), of.ceiling()?)));
    let next = Some(match next {
        Some((name, at)) => {
            // Short, so that the whole answer has room in a line of a terminal.
            let bound = match at.bound {
                Some(Bound::AtLeast) => "≥",
                Some(Bound::AtMost) => "≤",
                None => "",
            };
            format!("next limit: {name}, at {bound}{} req/s", short(at.rps))
        }
        None => "next limit: unknown".to_owned(),
    });
    // Of a service that is seen from outside hardly any next limit is known, and what would help is the question.
    let is_outside = bottleneck.named.iter().any(|of| of.blocked.is_some());
    let next = sentences::help_in_short(found).filter(|_| is_outside).or(next);
    let said = |said: &str, why: &str| answer("limit", said.to_owned(), [Some(why.to_owned())]);
    match bottleneck.grade {
        Grade::Confirmed => answer("limit", format!("{named}, {busy} (confirmed)"), [next]),
        Grade::Supported => answer("limit", format!("{named}, {busy} (supported)"), [next]),
        Grade::Suspected => {
            let (busy, at_most) = match bottleneck.named[0].at_most_clients {
                Some((clients, most)) => {
                    let most = percent(most, 0);
                    (format!("{most} busy"), Some(format!("{most} at {}", count(clients, "client"))))
                }
                None => (busy, None),
            };
            answer("limit", format!("{named}, {busy} (suspected)"), [next, at_most])
        }
        Grade::Delay if is_outside => {
            let more = Some("more clients help".to_owned());
            answer("limit", format!("a delay: {named}, {busy}"), [more, next])
        }
        Grade::Delay if bottleneck.because.iter().any(|of| matches!(of, Reason::OneClient)) => {
            said("unknown", "one client waits for nobody; more clients show the limit")
        }
        Grade::Delay => said("a delay", "no resource is saturated; more clients increase goodput"),
        Grade::FastFail => {
            let is_sooner = |of: &Reason| matches!(of, Reason::FailsFast(FastFail::Sooner { .. }));
            let why = match bottleneck.because.iter().any(is_sooner) {
                true => "failures are answered in less than half the time of successes",
                false => "attempts rise while goodput falls",
            };
            said("unknown: requests fail fast", why)
        }
        Grade::Generator => match bottleneck.named.first() {
            Some(of) => said(
                &format!("the load generator, {} busy", percent(of.utilization, 0)),
                "the limit of the target was not reached",
            ),
            None => said("unknown", "the load generator may be the limit"),
        },
        Grade::NotIdentified if sentences::is_open(found) => said(UNKNOWN, "an open loop does not show it"),
        Grade::NotIdentified => {
            let names: Vec<&str> = bottleneck.load_dependent.iter().map(|of| of.resource.as_str()).collect();
            let batching = format!(
                "{}: busy, but batches grow with load, so perhaps not the limit",
                format::listed(&names)
            );
            let resources = bottleneck.candidates.iter().filter(|of| of.kind != ResourceKind::Indication);
            let busiest = resources.max_by(|a, b| a.utilization.total_cmp(&b.utilization));
            let busiest =
                busiest.map(|of| format!("busiest: {}, {} busy", of.resource, percent(of.utilization, 0)));
            let is_unclear =
                |of: &Reason| matches!(of, Reason::Blocked(of) if of.grade == Grade::NotIdentified);
            let unclear = bottleneck.because.iter().any(is_unclear);
            let needed = unclear.then(|| "it takes a valid level of 1 client".to_owned());
            let batching = (!names.is_empty()).then_some(batching);
            answer("limit", "not identified".to_owned(), [needed, batching, busiest])
        }
    }
}

#[cfg(test)]
mod tests {
    use lab_data::simulated::tests::{model, sweep};

    /// Of a server that was killed: "still rising at 2 clients" beside "highest level: 8 clients".
    #[test]
    fn a_knee_that_is_not_reached_names_the_highest_level_that_counts() {
        let mut results = sweep(&model("cpu 1 =1ms, delay 0 =99ms"), &["get"], &[1, 2, 4, 8], 3, "1s");
        let knee = |results: &_| {
            let files = crate::render(results);
            let page = files.into_iter().find(|file| file.name == "report.md").unwrap().text;
            let said = page.split("not reached; ").nth(1).expect(&page).split(" |").next().unwrap();
            said.replace('\u{a0}', " ")
        };
        assert_eq!(knee(&results), "highest level: 8 clients");
        for trial in results.trials.iter_mut().filter(|trial| trial.level > 2) {
            (trial.load, trial.failure) = (None, Some("the service ended".into()));
        }
        assert_eq!(knee(&results), "highest valid level: 2 clients");
    }
}
