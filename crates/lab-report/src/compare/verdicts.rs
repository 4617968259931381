//! The verdicts of a gate: as text, as Markdown for a pull request, as JUnit's XML for a CI server.

use super::sentences::{p_value, ratio_of};
use crate::document::{Block, Column, Document, Table, column};
use crate::format::{capitalized, count, latency, listed, percent};
use crate::{markdown, text};
use kv::escaped;
use kv::units::short;
use lab_analysis::compare::{
    Gate, Kind, MEASURES, Measure, Method, NotCompared, Quotient, Standing, Subject, Verdict,
};
use lab_analysis::{Comparison, Excluded};
use lab_data::distinct;

/// The verdicts as plain text.
pub fn gate_text(comparison: &Comparison, gate: &Gate) -> String {
    text::write(&page(comparison, gate))
}

/// The verdicts as Markdown.
pub fn gate_markdown(comparison: &Comparison, gate: &Gate) -> String {
    markdown::write(&page(comparison, gate))
}

/// The verdicts in the XML that JUnit writes and CI servers read: a test case for each, failed if it is a regression, skipped if it is
/// undecided or not comparable; and an error for each workload that could not be compared.
pub fn gate_junit(comparison: &Comparison, gate: &Gate) -> String {
    let skipped = |of: &&Verdict| matches!(of.standing, Standing::Undecided | Standing::NotComparable);
    let (tests, failed) = (gate.verdicts.len(), gate.regressions().count());
    let skipped = gate.verdicts.iter().filter(skipped).count();
    let errors = gate.not_compared.len();
    let tests = tests + errors;
    let counts = format!("tests=\"{tests}\" failures=\"{failed}\" errors=\"{errors}\" skipped=\"{skipped}\"");
    let case = |of: &Verdict| {
        let said = xml(&format!("{}: {}", in_words(of), said(of, gate)));
        let body = match of.standing {
            Standing::Regression => format!("<failure type=\"regression\" message=\"{said}\"/>"),
            Standing::Undecided | Standing::NotComparable => format!("<skipped message=\"{said}\"/>"),
            _ => format!("<system-out>{said}</system-out>"),
        };
        let class = xml(&format!("{}.{}", of.side, of.workload));
        format!("    <testcase classname=\"{class}\" name=\"{}\">{body}</testcase>\n", xml(&words(of).name))
    };
    let error = |of: &NotCompared| {
        let said = xml(&format!("{}; hint: {}", why_not(of, gate), remedy(of, gate)));
        let class = xml(&format!("{}.{}", of.side, of.workload));
        format!(
            "    <testcase classname=\"{class}\" name=\"comparison\"><error type=\"not compared\" message=\"{said}\"/></testcase>\n"
        )
    };
    let cases: String = gate.verdicts.iter().map(case).chain(gate.not_compared.iter().map(error)).collect();
    let name = xml(&title_of_sides(comparison));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites {counts}>\n  <testsuite name=\"weir compare: {name}\" {counts}>\n\
         {cases}  </testsuite>\n</testsuites>\n"
    )
}

/// What the gate says, in one line.
pub fn gate_headline(gate: &Gate) -> String {
    let with = |standing| gate.verdicts.iter().filter(move |of| of.standing == standing);
    let named = |standing| distinct(with(standing).map(|of| of_workload(gate, of)));
    let (worse, undecided, margin) = (named(Standing::Regression), named(Standing::Undecided), margin(gate));
    match (worse.as_slice(), with(Standing::Regression).next()) {
        ([first, others @ ..], Some(of)) => {
            let also = if others.is_empty() { String::new() } else { format!("; also {}", listed(others)) };
            format!("regression: {first}: {}{also}", words(of).change)
        }
        _ if !gate.not_compared.is_empty() => {
            distinct(gate.not_compared.iter().map(|of| why_not(of, gate))).join("; ")
        }
        _ if !undecided.is_empty() => format!("undecided: {}", listed(&undecided)),
        _ if !gate.says_something() => "not comparable: the load generator was the limit".to_owned(),
        _ if with(Standing::NotComparable).next().is_some() => {
            format!("no loss of {margin} or more where it is comparable")
        }
        _ => format!("no loss of {margin} or more"),
    }
}

/// What to do where the gate compares nothing.
pub fn gate_remedy(gate: &Gate) -> &'static str {
    let first = gate.not_compared.first().map(|of| remedy(of, gate));
    first.unwrap_or("give the load generator more cores, or compare on a machine with more of them")
}

/// Why a workload could not be compared: `undecided: too few pairs`.
fn why_not(of: &NotCompared, gate: &Gate) -> String {
    let why = |excluded: Excluded| match excluded {
        Excluded::NoNumbers => "trials failed",
        Excluded::Errors => "more than 0.1 % of the requests failed, or none was completed",
        Excluded::Unanswered => "clients were left without an answer",
        Excluded::OverCapacity => "not all requests that were due completed",
    };
    let which = match of.excluded {
        [Some(first), Some(other)] if first == other => format!(" (on both sides {})", why(first)),
        [first, other] => {
            let sides = [("base", first), (&*of.side, other)];
            let known = sides.iter().filter_map(|(side, of)| Some(format!("{side}: {}", why((*of)?))));
            let known: Vec<String> = known.collect();
            if known.is_empty() { String::new() } else { format!(" ({})", known.join("; ")) }
        }
    };
    let is_other = |workload: &String| *workload != of.workload;
    let is_only = !gate.verdicts.iter().any(|other| is_other(&other.workload))
        && !gate.not_compared.iter().any(|other| is_other(&other.workload));
    let of_workload = if is_only { String::new() } else { format!(" of {}", of.workload) };
    match of.too_few_runs {
        true => format!("undecided: too few {}s{of_workload}{which}", method(gate).map_or("pair", unit)),
        false => format!("not comparable: no level{of_workload} counts on both sides{which}"),
    }
}

fn remedy(of: &NotCompared, gate: &Gate) -> &'static str {
    match (of.excluded[1].or(of.excluded[0]), method(gate)) {
        (_, Some(Method::Sequential)) if of.too_few_runs => "measure longer, with --for",
        (None, _) => "measure each level three times or more, with --repetitions of weir lab",
        (Some(Excluded::NoNumbers), _) => "find out why the trials failed, and measure again",
        (Some(Excluded::Errors), _) => "find out why requests fail, with weir load, and measure again",
        (Some(Excluded::Unanswered), _) => "find out what the clients wait for, or use a longer --window",
        (Some(Excluded::OverCapacity), _) => "lower --rate",
    }
}

/// What a figure is computed over.
fn unit(method: Method) -> &'static str {
    if method == Method::Welch { "repetition" } else { "pair" }
}

/// How the figures are compared; `None` where there is none.
fn method(gate: &Gate) -> Option<Method> {
    gate.verdicts.iter().find_map(|of| match &of.subject {
        Subject::Figure { quotient, .. } => Some(quotient.method),
        Subject::Level { .. } => None,
    })
}

/// `goodput`; `goodput of get_popular` where there are several workloads.
fn of_workload(gate: &Gate, of: &Verdict) -> String {
    let is_only = gate.verdicts.iter().all(|other| other.workload == of.workload);
    let name = words(of).name;
    if is_only { name } else { format!("{name} of {}", of.workload) }
}

/// `5 %`, `0.05 %`.
fn margin(gate: &Gate) -> String {
    format!("{} %", (gate.margin * 1e6).round() / 1e4)
}

/// As text in XML, which has no room for control characters.
fn xml(text: &str) -> String {
    escaped(&text.replace(char::is_control, " "))
}

fn title_of_sides(comparison: &Comparison) -> String {
    let names: Vec<&str> = comparison.sides.iter().map(|side| side.name.as_str()).collect();
    format!("{} against {}", listed(&names[1..]), names[0])
}

fn page(comparison: &Comparison, gate: &Gate) -> Document {
    let names: Vec<&str> = comparison.sides.iter().map(|side| side.name.as_str()).collect();
    let others = if let [_, only] = names[..] { only } else { "other side" };
    let columns: Vec<Column<Verdict>> = vec![
        column("<workload", |of: &Verdict| Some(of.workload.clone())),
        column("<side", |of: &Verdict| (names.len() > 2).then(|| of.side.clone())),
        column("<figure", |of: &Verdict| Some(words(of).name)),
        column(names[0], |of: &Verdict| Some(words(of).values[0].clone())),
        column(others, |of: &Verdict| Some(words(of).values[1].clone())),
        column("ratio", |of: &Verdict| Some(words(of).ratio)),
        column("p", |of: &Verdict| Some(p(of, gate))),
        column("<verdict", |of: &Verdict| Some(said(of, gate))),
    ];
    Document {
        title: capitalized(&gate_headline(gate)),
        above: title_of_sides(comparison),
        blocks: vec![
            Block::Table(Table::of(&gate.verdicts, &columns, |_| false)),
            Block::Notes(notes(comparison, gate)),
        ],
    }
}

/// What a verdict is about.
struct Words {
    /// `goodput`.
    name: String,
    /// The first's, the side's.
    values: [String; 2],
    ratio: String,
    /// By how much it differs, or why it does not count.
    change: String,
}

fn words(of: &Verdict) -> Words {
    match &of.subject {
        Subject::Figure { figure, values, quotient, .. } => {
            let measure = MEASURES.iter().find(|of| of.name == *figure);
            let Measure { label, unit, kind, .. } = measure.expect("a verdict is about a row of the table");
            let value = |value| match kind {
                Kind::Latency => latency(Some(value)),
                _ => format!("{} {unit}", short(value)),
            };
            let direction = if quotient.ratio > 1.0 { "higher" } else { "lower" };
            Words {
                name: (*label).to_owned(),
                values: values.map(value),
                ratio: ratio_of(quotient),
                change: format!("{} {direction}", percent((quotient.ratio - 1.0).abs(), 1)),
            }
        }
        Subject::Level { clients, excluded, runs, excluded_runs, error_ratios } => {
            let trials = excluded_runs.map(|excluded| format!("{excluded} of {}", count(*runs, "trial")));
            let which = trials[1].clone();
            let shares = error_ratios.map(|share| share.map_or_else(String::new, |share| percent(share, 2)));
            let (what, values, change) = match excluded {
                Excluded::NoNumbers => ("failed trials", trials, format!("{which} failed")),
                Excluded::Errors if error_ratios[1].is_none() => {
                    ("failed requests", shares, format!("no request was completed in {which}"))
                }
                Excluded::Errors => {
                    let change =
                        format!("{} of the requests failed; {which} had too many failures", shares[1]);
                    ("failed requests", shares, change)
                }
                Excluded::Unanswered => {
                    let change = format!("clients were left without an answer in {which}");
                    ("trials with clients without an answer", trials, change)
                }
                Excluded::OverCapacity => {
                    let change = format!("not all requests that were due completed in {which}");
                    ("trials over capacity", trials, change)
                }
            };
            let name = format!("{what} at {}", count(*clients, "client"));
            Words { name, values, ratio: String::new(), change }
        }
    }
}

/// The value and its ratio.
fn in_words(of: &Verdict) -> String {
    let Words { values: [a, b], ratio, .. } = words(of);
    if ratio.is_empty() { b } else { format!("{b}, base {a}, {ratio}") }
}

/// The p-value, corrected for the number of figures.
fn p(of: &Verdict, gate: &Gate) -> String {
    let Subject::Figure { quotient: Quotient { p: Some(p), .. }, .. } = &of.subject else {
        return String::new();
    };
    p_value((p * f64::from(gate.tested)).min(1.0))
}

/// What is said of it, in words.
fn said(of: &Verdict, gate: &Gate) -> String {
    let (change, margin) = (words(of).change, margin(gate));
    match (of.standing, &of.subject) {
        (Standing::Regression, _) => format!("regression: {change}"),
        (Standing::Worse, _) => format!("worse: {change}, but by less than {margin}"),
        (Standing::Better, _) => format!("better: {change}"),
        (Standing::WithinMargin, _) => format!("no loss of {margin} or more"),
        (Standing::NotComparable, _) => "not comparable: limited by the generator".to_owned(),
        (Standing::Undecided, Subject::Level { .. }) => format!("undecided: {change}"),
        (Standing::Undecided, Subject::Figure { quotient, more_runs, .. }) => {
            let unit = unit(quotient.method);
            match more_runs {
                Some(more) => format!("undecided; it takes about {}", count(*more, &format!("more {unit}"))),
                None if quotient.interval.is_none() => format!("undecided: too few {unit}s"),
                None => format!("undecided; it takes more than 10,000 {unit}s"),
            }
        }
    }
}

/// How to read it.
fn notes(comparison: &Comparison, gate: &Gate) -> Vec<String> {
    let margin = margin(gate);
    let method = match (comparison.interleaved, comparison.sequential) {
        (false, _) => "They are Welch’s and do not include changes of the machine between the runs.",
        (true, false) => "They are Student’s, computed from the ratios of pairs.",
        (true, true) => {
            "They are computed from the ratios of pairs and are valid at any number of pairs, so the run may end as soon as the verdicts are known."
        }
    };
    let said = |of: &NotCompared| {
        [why_not(of, gate), remedy(of, gate).to_owned()].map(|said| capitalized(&said) + ".")
    };
    let not_compared = gate.not_compared.iter().map(|of| said(of).join(" "));
    let rest = [
        "A figure is the geometric mean over the levels that count on both sides, so goodput is not the capacity.".to_owned(),
        format!(
            "All intervals together hold with 95 % (Bonferroni over {}); p is corrected in the same way. {method}",
            count(gate.tested, "figure")
        ),
        format!(
            "A regression is a significant loss whose interval reaches {margin}, or a level at which clearly more trials than of the base fail, \
             have more than 0.1 % errors, leave clients without an answer or are over capacity. At most 5 % of comparisons without a loss report a significant one; a true loss of {margin} \
             is reported as smaller in at most 5 % of comparisons."
        ),
    ];
    not_compared.chain(rest).collect()
}
