//! The front of the page: four questions answered in large type for each workload, and all of it in one sentence.

use super::Report;
use super::words::{self, UNKNOWN};
use kv::units::short;
use lab_analysis::{Capacity, Confidence, Grade, Trust, WorkloadFindings};

/// What the front says of one workload.
pub(super) struct Lead {
    /// Its name.
    pub(super) name: String,
    /// Where its section is.
    pub(super) anchor: String,
    /// Four questions, in the order in which they are asked.
    pub(super) answers: Vec<Answer>,
    /// All of it in one sentence.
    pub(super) sentence: String,
}

/// A question and its answer.
pub(super) struct Answer {
    /// In three words.
    pub(super) question: &'static str,
    /// In one or two: `31.9k req/s`.
    pub(super) said: String,
    /// How sure that is, or where it comes from.
    pub(super) below: String,
    /// Whether to stop at it.
    pub(super) tone: Tone,
}

/// How an answer is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// As it stands.
    Plain,
    /// With what stands below it in mind.
    Care,
    /// Not at all.
    Stop,
}

/// What the front says, workload by workload.
pub(super) fn leads(report: &Report) -> Vec<Lead> {
    let lead = |(found, slug): (&WorkloadFindings, &String)| Lead {
        name: found.name.clone(),
        anchor: slug.clone(),
        answers: vec![how_fast(found), where_the_knee(found), what_limits(found), believable(found)],
        sentence: words::sentence(found),
    };
    report.findings.workloads.iter().zip(&report.slugs).map(lead).collect()
}

fn plain(question: &'static str, said: String, below: String) -> Answer {
    Answer { question, said, below, tone: Tone::Plain }
}

fn how_fast(found: &WorkloadFindings) -> Answer {
    let (said, below) = match &found.capacity {
        Capacity::Reached { rps, levels } => {
            let apart = words::spread(rps).replacen(&short(rps.mean), "", 1);
            let apart = apart.trim();
            // A range names both ends, of which the mean is neither.
            let apart = if apart.starts_with('±') { apart.to_owned() } else { words::spread(rps) };
            let runs = words::count(rps.runs, "run");
            (format!("{} req/s", short(rps.mean)), format!("{apart}, {runs}, at {}", words::levels(levels)))
        }
        Capacity::NotReached { rps, level, rising } => {
            let is = if *rising { "still rising" } else { "the best level" };
            (format!("{} req/s", short(rps.mean)), format!("{is} at {}", words::count(*level, "client")))
        }
        Capacity::Offered { rps, kept, over } => {
            if let (None, Some(_), Some(through)) = (kept.last(), over.first(), words::through(found)) {
                let below =
                    format!("of {} req/s offered; over capacity at {}", short(*rps), words::each_level(over));
                return plain("How fast?", format!("{} req/s", short(through)), below);
            }
            let below = match (kept.last(), over.first()) {
                (Some(kept), None) => format!("offered, and kept with {}", words::count(*kept, "connection")),
                (_, Some(over)) => {
                    format!("offered; over capacity with {}", words::count(*over, "connection"))
                }
                (None, None) => "offered".to_owned(),
            };
            (format!("{} req/s", short(*rps)), below)
        }
        Capacity::Unknown => ("unknown".to_owned(), "no level is valid".to_owned()),
    };
    plain("How fast?", said, below)
}

fn where_the_knee(found: &WorkloadFindings) -> Answer {
    let question = "Where is the knee?";
    match &found.knee {
        Some(knee) => {
            let (p50, p99) = (words::latency(knee.latency_us_p50), words::latency(knee.latency_us_p99));
            let blunt = if knee.sharp { "" } else { "not sharp; " };
            let below = format!("{blunt}p50 {p50}, p99 {p99} there");
            plain(question, format!("{} clients", words::clients(knee.clients)), below)
        }
        None if words::is_open(found) => plain(question, UNKNOWN.to_owned(), "the loop is open".to_owned()),
        None if matches!(found.capacity, Capacity::NotReached { rising: true, .. }) => {
            let swept = found.rows.iter().map(|row| row.level).max().unwrap_or(0);
            plain(question, "not reached".to_owned(), format!("with up to {}", words::count(swept, "client")))
        }
        None => plain(question, "unknown".to_owned(), "too few levels".to_owned()),
    }
}

fn what_limits(found: &WorkloadFindings) -> Answer {
    let bottleneck = &found.bottleneck;
    let next = bottleneck.next.as_ref();
    let next = next.map(|next| format!("; next {}, {} req/s", next.resource, short(next.ceiling_rps)));
    let next = next.unwrap_or_default();
    let (said, below) = match bottleneck.grade {
        Grade::Confirmed => (words::limits(&bottleneck.named), format!("confirmed{next}")),
        Grade::Supported => (words::limits(&bottleneck.named), format!("supported{next}")),
        Grade::Delay => ("a delay".to_owned(), "no resource: more clients get more".to_owned()),
        Grade::FastFail => ("it fails fast".to_owned(), "what rises is failures".to_owned()),
        Grade::Generator => ("the generator".to_owned(), "nothing is known of the target".to_owned()),
        Grade::NotIdentified if words::is_open(found) => (UNKNOWN.to_owned(), "the loop is open".to_owned()),
        Grade::NotIdentified => {
            let busiest = found.ceilings.first();
            let busy = |of: &lab_analysis::Ceiling| {
                format!("busiest: {}, {}", of.resource, words::percent(of.utilization))
            };
            ("not identified".to_owned(), busiest.map(busy).unwrap_or_default())
        }
    };
    plain("What limits it?", said, below)
}

fn believable(found: &WorkloadFindings) -> Answer {
    let trust = &found.trust;
    let (said, tone) = match trust.least() {
        _ if found.rows.iter().all(|row| !row.usable()) => ("no", Tone::Stop),
        Confidence::Low => ("hardly", Tone::Care),
        Confidence::Medium => ("with care", Tone::Care),
        Confidence::High => ("yes", Tone::Plain),
    };
    let mut names: Vec<&str> = Vec::new();
    for lowered in
        [&trust.capacity, &trust.knee, &trust.bottleneck].into_iter().flat_map(|of: &Trust| &of.lowered_by)
    {
        let name = lowered.check().name;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let below = match names.as_slice() {
        [] => "no check failed that concerns it".to_owned(),
        names => format!("failed: {}", names.join(", ")),
    };
    Answer { question: "May we believe it?", said: said.to_owned(), below, tone }
}
