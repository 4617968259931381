//! Figures and sentences: how a finding is said.
//!
//! Every figure carries its unit and, where one is known, its spread; what is not known is "–", never NaN.

use kv::units::{micros, short};
use lab_analysis::{
    AuditedRow, Capacity, Checked, Estimate, Evidence, Excluded, Findings, Grade, Interval, Knee, KneeSpread,
    Outcome, PrintedSweep, Row, WAITS, Waiting, WorkloadFindings,
};
use lab_data::results::{Limit, ResourceKind};

/// What stands where a figure is not known.
pub(super) const UNKNOWN: &str = "–";

/// `value` as `say` says it, or "–".
pub(super) fn known(value: Option<f64>, say: impl Fn(f64) -> String) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| UNKNOWN.to_owned(), say)
}

/// A latency in microseconds with its unit.
pub(super) fn latency(us: Option<f64>) -> String {
    known(us, micros)
}

/// A number of clients that need not be a whole one: `4.0`, `118`.
pub(super) fn clients(value: f64) -> String {
    if value.fract() == 0.0 || value >= 99.95 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// A share as whole per cent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A residual of Little's law: `+0.12 %`.
pub(super) fn residual(share: f64) -> String {
    // Adding 0 turns the −0.00 of a tiny negative residual into +0.00.
    let hundredths = (share * 1e4).round() + 0.0;
    format!("{:+.2} %", hundredths / 100.0).replace('-', "−")
}

/// `14.6k ± 0.2k`; `14.4k–14.8k` for a range and `14.6k` for a single run.
pub(super) fn spread(of: &Estimate) -> String {
    match of.interval {
        _ if ![of.mean, of.low, of.high].iter().all(|value| value.is_finite()) => UNKNOWN.to_owned(),
        Interval::Single => short(of.mean),
        // Two ends that read alike are no range.
        Interval::Range if short(of.low) == short(of.high) => short(of.mean),
        Interval::Range => format!("{}–{}", short(of.low), short(of.high)),
        Interval::StudentT | Interval::Bootstrap => {
            let (mean, half) = (short(of.mean), (of.high - of.mean).max(of.mean - of.low));
            format!("{mean} ± {}", like(&mean, half))
        }
    }
}

/// `14.6k ± 0.2k req/s (3 runs)`: what kind of interval it is stands behind it.
pub(super) fn rate(of: &Estimate) -> String {
    format!("{} req/s ({})", spread(of), runs(of))
}

/// `3 runs`, `2 runs, lowest to highest`, `1 run`.
fn runs(of: &Estimate) -> String {
    match (of.runs, of.interval) {
        (1, Interval::Range) => "1 run each, lowest to highest".to_owned(),
        (1, _) => "1 run".to_owned(),
        (n, Interval::Range) => format!("{n} runs, lowest to highest"),
        (n, _) => format!("{n} runs"),
    }
}

/// `half` with the suffix and the decimals of `mean`, which [`short`] wrote: 180 like `14.6k` is `0.2k`.
fn like(mean: &str, half: f64) -> String {
    let suffix = mean.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let decimals = mean.trim_end_matches(suffix).split_once('.').map_or(0, |(_, digits)| digits.len());
    let scale =
        [("k", 1e3), ("M", 1e6), ("G", 1e9)].iter().find(|(s, _)| *s == suffix).map_or(1.0, |of| of.1);
    // A spread that would read as zero gets as many more digits as it needs to read as something.
    let says = |digits: &usize| format!("{:.digits$}", half / scale).contains(|c| ('1'..='9').contains(&c));
    let digits = (decimals..decimals + 4).find(says).unwrap_or(decimals);
    format!("{:.digits$}{suffix}", half / scale)
}

/// `16–64 clients`, or `16 clients`.
pub(super) fn levels(levels: &[u32]) -> String {
    match levels {
        [] => UNKNOWN.to_owned(),
        [only] => count(*only, "client"),
        [first, .., last] => format!("{first}–{last} clients"),
    }
}

/// `16, 32 clients`, each level by itself.
pub(super) fn each_level(levels: &[u32]) -> String {
    let each: Vec<String> = levels.iter().map(u32::to_string).collect();
    format!("{} client{}", each.join(", "), if levels == [1] { "" } else { "s" })
}

/// `1 client`, `2 clients`.
pub(super) fn count(n: u32, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

/// Capacity with its interval, or what it is at least.
pub(super) fn capacity(found: &WorkloadFindings) -> String {
    match &found.capacity {
        Capacity::Reached { rps, levels: at } => {
            format!("capacity {} req/s ({}, {})", spread(rps), runs(rps), levels(at))
        }
        Capacity::NotReached { rps, level, rising } => {
            let is = if *rising { "still rising" } else { "best level" };
            format!("capacity {} req/s ({}, {is}, {})", spread(rps), runs(rps), levels(&[*level]))
        }
        Capacity::Offered { rps, kept, over } => offered(found, *rps, kept, over),
        Capacity::Unknown => "capacity unknown: no row is valid".to_owned(),
    }
}

/// What became of the rate an open loop asked for.
fn offered(found: &WorkloadFindings, rps: f64, kept: &[u32], over: &[u32]) -> String {
    let mut said = format!("open loop, {} req/s offered: ", short(rps));
    said += &match kept.split_last() {
        Some((last, _)) => {
            let row = found.rows.iter().find(|row| row.level == *last);
            let rank = |read: fn(&Row) -> Option<f64>| latency(row.and_then(read));
            format!(
                "all of it went through at {}; at {} p50 {}, p99 {}",
                each_level(kept),
                count(*last, "client"),
                rank(|row| row.latency_us_p50),
                rank(|row| row.latency_us_p99)
            )
        }
        None => match through(found) {
            Some(through) => format!("no more than {} req/s came through", short(through)),
            None => "it went through at no valid level".to_owned(),
        },
    };
    if !over.is_empty() {
        said += &format!("; over capacity at {}: latency there is a queue’s length", each_level(over));
    }
    said
}

/// The most that any level got through, whatever it was asked for.
pub(super) fn through(found: &WorkloadFindings) -> Option<f64> {
    found.rows.iter().filter_map(|row| Some(row.goodput_rps?.mean)).max_by(f64::total_cmp)
}

/// Whether a workload was asked for at a rate: capacity, knee and bottleneck are notions of a closed loop.
pub(super) fn is_open(found: &WorkloadFindings) -> bool {
    matches!(found.capacity, Capacity::Offered { .. })
}

/// When requests were sent, where that needs saying.
pub(super) fn pacing(found: &WorkloadFindings) -> Option<String> {
    let pacing = found.pacing.as_ref()?;
    Some(match is_open(found) {
        true => format!(
            "Open loop, {pacing}: requests are sent when they are due, whatever the answers do. Latency counts from the \
             instant a request was due, the service time from the instant it was sent; the levels are numbers of \
             connections. Capacity, knee and bottleneck are notions of a closed loop."
        ),
        false => format!("Pacing: {pacing}. Think time is not part of the latency."),
    })
}

/// The knee, or that there is none to speak of.
pub(super) fn knee(found: &WorkloadFindings) -> String {
    match &found.knee {
        None if matches!(found.capacity, Capacity::NotReached { rising: true, .. }) => {
            "knee not reached".to_owned()
        }
        None => "knee unknown".to_owned(),
        Some(knee) if knee.sharp => format!("knee at {} clients{}", clients(knee.clients), ends(knee)),
        Some(knee) => {
            format!("no sharp knee ({} clients where the bounds cross{})", clients(knee.clients), ends(knee))
        }
    }
}

/// Between which the knee lies: ` (3.8–4.3)`; nothing of one run.
fn ends(knee: &Knee) -> String {
    let of = &knee.spread;
    let (low, high) = (clients(of.clients.0), clients(of.clients.1));
    match of.interval {
        Interval::Single => String::new(),
        _ if low == high => String::new(),
        Interval::Range => format!(" ({low}–{high} in single runs)"),
        Interval::StudentT | Interval::Bootstrap => format!(" ({low}–{high})"),
    }
}

/// What the brackets behind its estimates are.
pub(super) fn of_knee(spread: &KneeSpread) -> &'static str {
    match spread.interval {
        Interval::Single => " One run: how far another would move them is not known.",
        Interval::Range => " In brackets: lowest to highest of single runs, too few for an interval.",
        Interval::StudentT | Interval::Bootstrap => " In brackets: 95 % bootstrap over runs.",
    }
}

/// Latency as measured next to the knee.
pub(super) fn latency_at_knee(found: &WorkloadFindings) -> Option<String> {
    let knee = found.knee.as_ref()?;
    let (p50, p99) = (latency(knee.latency_us_p50), latency(knee.latency_us_p99));
    Some(format!("at {} p50 {p50}, p99 {p99}", count(knee.nearest_level, "client")))
}

/// What limits, how sure that is, and what comes next.
pub(super) fn bottleneck(found: &WorkloadFindings) -> String {
    let bottleneck = &found.bottleneck;
    let said = match (bottleneck.grade, bottleneck.named.as_slice()) {
        (Grade::Confirmed | Grade::Supported, [one]) => {
            // What it is called says nothing of where it was seen.
            let called = limit(one);
            let seen = if called == one.resource { String::new() } else { format!("{} ", one.resource) };
            format!("bottleneck {called} ({}: {seen}{})", sure(bottleneck.grade), busy(one))
        }
        (Grade::Confirmed | Grade::Supported, several) => {
            let each: Vec<String> = several.iter().map(|of| percent(of.utilization)).collect();
            let (names, sure) = (limits(several), sure(bottleneck.grade));
            format!("bottleneck shared by {names} ({sure}: {} busy)", each.join(" and "))
        }
        (Grade::Delay, _) => "nothing limits it but a delay: more clients get more".to_owned(),
        (Grade::FastFail, _) => "it fails fast: what rises is failures".to_owned(),
        (Grade::Generator, [one, ..]) => format!(
            "bottleneck generator ({} of its cores busy): nothing is known of the target",
            percent(one.utilization)
        ),
        (Grade::Generator, []) => "no bottleneck is named: nothing is known of the target".to_owned(),
        (Grade::NotIdentified, _) if !bottleneck.load_dependent.is_empty() => format!(
            "bottleneck not identified: {} is busy, but load-dependent (batching)",
            names(&bottleneck.load_dependent)
        ),
        (Grade::NotIdentified, _) => "bottleneck not identified".to_owned(),
    };
    match (bottleneck.grade, &bottleneck.next, found.ceilings.first()) {
        (Grade::NotIdentified, _, Some(busiest)) => {
            format!("{said}; highest utilization {} {}", busiest.resource, percent(busiest.utilization))
        }
        (_, Some(next), _) => format!("{said}, next {} ({} req/s)", next.resource, short(next.ceiling_rps)),
        _ => said,
    }
}

/// What a resource is called as a bottleneck, else its own name.
fn limit(of: &Evidence) -> &str {
    of.limit.filter(|limit| *limit != Limit::Other).map_or(of.resource.as_str(), |limit| limit.name())
}

/// What these are called as bottlenecks: `commit path`, `server CPU and database CPU`.
pub(super) fn limits(of: &[Evidence]) -> String {
    listed(&of.iter().map(limit).collect::<Vec<_>>())
}

/// How much of its cores the generator used at most: what is left is its headroom. `None` where that was not read.
fn headroom(found: &WorkloadFindings) -> Option<String> {
    let of_row = |row: &Row| {
        let generators = row.resources.iter().filter(|of| of.kind == ResourceKind::Generator);
        generators.filter_map(|of| of.utilization_max).max_by(f64::total_cmp)
    };
    let most =
        found.rows.iter().filter_map(of_row).filter(|share| share.is_finite()).max_by(f64::total_cmp)?;
    Some(format!("generator at most {} busy", percent(most)))
}

fn sure(grade: Grade) -> &'static str {
    if grade == Grade::Confirmed { "confirmed" } else { "supported" }
}

fn busy(of: &Evidence) -> String {
    if let Some(waiting) = &of.waiting {
        let mostly = waiting.states.first().map_or(UNKNOWN, |of| of.0.as_str());
        return format!("{} wait there, mostly {mostly}", held(waiting));
    }
    let demand = known(of.demand_us, |us| format!(", {} per request", micros(us)));
    format!("{} busy{}", percent(of.utilization), if demand == UNKNOWN { "" } else { &demand })
}

/// `58.2 of 64 clients`; where a pool of sessions is full, of those.
pub(super) fn held(waiting: &Waiting) -> String {
    let whose = if waiting.pooled { "sessions of a full pool" } else { "clients" };
    format!("{:.1} of {:.0} {whose}", waiting.sessions, waiting.places)
}

/// The evidence of a database wait, as a sentence.
pub(super) fn waiting(name: &str, waiting: &Waiting) -> String {
    format!(
        "At {} on average {} waited in {name} ({}): {}.",
        count(waiting.level, "client"),
        held(waiting),
        states(&waiting.states),
        means(waiting.class)
    )
}

/// States and the mean number of sessions in each: `IO:WALSync 1.2, LWLock:WALWrite 0.3`. The most frequent three, but none
/// that would read as zero beside the first.
pub(super) fn states(of: &[(String, f64)]) -> String {
    let some = of.iter().take(3).enumerate().filter(|(i, (_, count))| *i == 0 || *count >= 0.05);
    some.map(|(_, (state, count))| format!("{state} {count:.1}")).collect::<Vec<_>>().join(", ")
}

/// What it means that sessions are in a class of waits.
pub(super) fn means(class: &str) -> &'static str {
    WAITS.iter().find(|wait| wait.name == class).map_or(UNKNOWN, |wait| wait.means)
}

/// The names, as `a`, `a and b` or `a, b and c`.
pub(super) fn names(of: &[Evidence]) -> String {
    listed(&of.iter().map(|of| of.resource.as_str()).collect::<Vec<_>>())
}

/// With a capital at its start.
pub(super) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().collect::<String>() + letters.as_str())
}

/// `a`, `a and b` or `a, b and c`.
pub(super) fn listed(names: &[&str]) -> String {
    match names.split_last() {
        None => UNKNOWN.to_owned(),
        Some((only, [])) => (*only).to_owned(),
        Some((last, before)) => format!("{} and {last}", before.join(", ")),
    }
}

/// Which checks failed and where, and how many could not be read at all.
pub(super) fn checks(found: &WorkloadFindings) -> String {
    let mut failed: Vec<String> = Vec::new();
    let first = found.rows.iter().find(|row| !row.checks.is_empty());
    for (i, checked) in first.iter().flat_map(|row| row.checks.iter().enumerate()) {
        let at: Vec<u32> = (found.rows.iter())
            .filter(|row| row.checks.get(i).is_some_and(Checked::failed))
            .map(|row| row.level)
            .collect();
        if !at.is_empty() {
            failed.push(format!("{} at {}", checked.check().name, each_level(&at)));
        }
    }
    failed.extend(found.checks.iter().filter(|of| of.failed()).map(|of| of.check().name.to_owned()));
    let missing = found.rows.iter().filter(|row| row.excluded == Some(Excluded::NoNumbers)).count() as u32;
    if missing > 0 {
        failed.push(format!("{} without numbers", count(missing, "level")));
    }
    let unread = first
        .map_or(0, |row| row.checks.iter().filter(|checked| checked.outcome == Outcome::NotChecked).count());
    match (failed.is_empty(), first.is_some()) {
        (true, false) => "nothing checked".to_owned(),
        (true, true) => format!("no check failed, {unread} not checked"),
        (false, _) => format!("failed: {}, {unread} not checked", failed.join("; ")),
    }
}

/// Goodput falling past the peak, where that is certain.
pub(super) fn decline(found: &WorkloadFindings) -> Option<String> {
    let decline = found.decline.as_ref()?;
    let at = count(decline.level, "client");
    Some(format!(
        "past the peak goodput falls by {} ({} at {at})",
        percent(decline.share),
        rate(&decline.rps)
    ))
}

/// What somebody printed of a workload, and what the audit says of it.
pub(super) fn audited(sweep: &PrintedSweep) -> String {
    let PrintedSweep { report, system, workload, findings, .. } = sweep;
    let system = if system.is_empty() { String::new() } else { format!(" of {system}") };
    let mut said = match report.is_empty() {
        true => format!("Printed as {workload}{system}."),
        false => format!("Printed in report {report} as {workload}{system}."),
    };
    for row in sweep.rows.iter().filter(|row| row.printed.clients.is_none()) {
        said += &format!(" {}", without_clients(row));
    }
    said += &match (sweep.off(), sweep.checked(), sweep.residuals()) {
        (_, 0, _) | (_, _, None) => " No printed row can be checked by Little’s law.".to_owned(),
        (0, checked, Some(residuals)) => {
            format!(" Little’s law: none of {checked} printed rows is off by more than 5 % ({residuals}).")
        }
        (off, checked, Some(residuals)) => {
            format!(" Little’s law: {off} of {checked} printed rows are off by more than 5 % ({residuals}).")
        }
    };
    for (i, found) in findings.iter().enumerate() {
        let which = if i == 0 { "Consistent with" } else { "Also consistent with" };
        said += &format!(" {which} {}: {}. To be sure: {}", found.cause, found.reason, found.to_be_sure);
    }
    said
}

/// A printed row that names no number of clients.
fn without_clients(row: &AuditedRow) -> String {
    let printed = &row.printed;
    let figures = [
        printed.throughput_rps.map(|rps| format!("{} req/s", short(rps.value))),
        printed.latency_ms.map(|ms| format!("a latency of {}", micros(ms.value * 1e3))),
    ];
    let figures: Vec<String> = figures.into_iter().flatten().collect();
    let note = if printed.note.is_empty() { String::new() } else { format!(" ({})", printed.note) };
    format!("Without a number of clients: {}{note}.", figures.join(" and "))
}

/// All of it in one sentence.
pub(super) fn sentence(found: &WorkloadFindings) -> String {
    let knee = match latency_at_knee(found) {
        Some(latency) => format!("{}, {latency}", knee(found)),
        None => knee(found),
    };
    let closed = |said: String| Some(said).filter(|_| !is_open(found));
    let parts = [
        Some(capacity(found)),
        closed(knee),
        super::limit::sentence(found),
        decline(found),
        closed(bottleneck(found)),
        headroom(found),
        Some(checks(found)),
    ];
    let mut sentence = parts.into_iter().flatten().collect::<Vec<_>>().join("; ");
    if let Some(first) = sentence.chars().next() {
        sentence.replace_range(..first.len_utf8(), &first.to_uppercase().to_string());
    }
    sentence + "."
}

/// One line for each workload, for the terminal.
pub(super) fn headline(findings: &Findings) -> String {
    let width = findings.workloads.iter().map(|found| found.name.chars().count()).max().unwrap_or(0);
    let line = |found: &WorkloadFindings| format!("{:width$}  {}", found.name, sentence(found));
    findings.workloads.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_scale_of_its_mean() {
        let of = |mean: f64, half: f64, interval| {
            spread(&Estimate { mean, low: mean - half, high: mean + half, runs: 3, interval })
        };
        for (mean, half, text) in [
            (14_612.0, 180.0, "14.6k ± 0.2k"),
            (14_612.0, 31.0, "14.6k ± 0.03k"),
            (500.2, 12.0, "500 ± 12"),
            (7.0, 0.0, "7.00 ± 0.00"),
            (1.5e6, 2.5e4, "1.50M ± 0.03M"),
            (f64::NAN, 1.0, "–"),
        ] {
            assert_eq!(of(mean, half, Interval::StudentT), text);
        }
        assert_eq!(of(14_612.0, 180.0, Interval::Range), "14.4k–14.8k");
        assert_eq!(of(14_612.0, 0.0, Interval::Single), "14.6k");
        let rate = rate(&Estimate::of(&[14_500.0, 14_600.0, 14_700.0]).unwrap());
        assert_eq!(rate, "14.6k ± 0.2k req/s (3 runs)");
    }

    #[test]
    fn what_is_not_known_is_a_dash() {
        assert_eq!((latency(None), latency(Some(f64::INFINITY))), ("–".into(), "–".into()));
        assert_eq!(
            (levels(&[]), levels(&[1]), levels(&[1, 2, 4])),
            ("–".into(), "1 client".into(), "1–4 clients".into())
        );
    }
}
