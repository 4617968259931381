//! The score as Markdown.

use super::class::Class;
use super::judge::{BINDING, Case, Outcome, Tally, shortcomings, tally, tally_of_baseline};
use lab_analysis::Grade;
use lab_data::experiment::Split;
use std::fmt::Write;

const UNKNOWN: &str = "–";

/// The page.
pub(crate) fn page(cases: &[Case]) -> String {
    let wrong = cases.iter().filter(|case| case.is_confirmed_and_wrong());
    let wrong =
        wrong.map(|case| format!("{}: {} expected, {} said", name(case), case.imposed.expect, said(case)));
    let discarded = cases.iter().filter_map(|case| match &case.outcome {
        Outcome::Discarded(why) => Some(format!("{}: {why}", name(case))),
        _ => None,
    });
    let refused = cases.iter().filter_map(|case| match &case.outcome {
        Outcome::NotImposed(why) => Some(format!("{}: {why}", name(case))),
        _ => None,
    });
    [
        "# How often the verdict is right".to_owned(),
        totals(cases),
        "The interval is Wilson’s, 95 %. By the highest utilization: the busiest resource of the highest level, pools and disks \
         included; a busy disk counts as any limit of a disk, shared cores as the processor of either part."
            .to_owned(),
        conclusion(cases),
        "## Confirmed and wrong".to_owned(),
        list(wrong),
        "## Cases".to_owned(),
        table_of_cases(cases),
        format!(
            "Binding: goodput without what was imposed over goodput with it, at the highest level; below {BINDING} the case is \
             discarded. Busiest: what the highest utilization says; ✓ where that is right."
        ),
        "## Discarded".to_owned(),
        list(discarded),
        "## Not imposed on this machine".to_owned(),
        list(refused),
    ]
    .join("\n\n")
        + "\n"
}

fn totals(cases: &[Case]) -> String {
    let mut rows = Vec::new();
    for (split, split_name) in [(Split::HeldOut, "held-out"), (Split::Tune, "tune")] {
        let by =
            [("the lab", tally(cases, split)), ("the highest utilization", tally_of_baseline(cases, split))];
        for (by, Tally { cases, right, abstained, .. }) in by {
            let interval = stats::wilson(right, cases).map(|(low, high)| (low * 100.0, high * 100.0));
            rows.push(vec![
                split_name.to_owned(),
                by.to_owned(),
                right.to_string(),
                cases.to_string(),
                interval.map_or(UNKNOWN.to_owned(), |(low, high)| format!("{low:.1}–{high:.1} %")),
                abstained.to_string(),
                (cases - right - abstained).to_string(),
            ]);
        }
    }
    table(&["cases", "by", "right", "of", "interval", "no answer", "wrong"], rows)
}

/// Whether it is enough, and what no table says.
fn conclusion(cases: &[Case]) -> String {
    let count = |of: fn(&Outcome) -> bool| cases.iter().filter(|case| of(&case.outcome)).count();
    let mut text = format!(
        "Of {} cases, {} counted, {} discarded, {} not imposed on this machine.",
        cases.len(),
        cases.iter().filter(|case| case.counts()).count(),
        count(|outcome| matches!(outcome, Outcome::Discarded(_))),
        count(|outcome| matches!(outcome, Outcome::NotImposed(_))),
    );
    let silent = |case: &&Case| case.outcome == Outcome::Right && case.said == Some(Class::NotIdentified);
    let silent = cases.iter().filter(silent).count();
    if silent > 0 {
        text += &format!(" {silent} of the right ones gave no answer where nothing limits.");
    }
    let shortcomings = shortcomings(cases);
    text += &match shortcomings.is_empty() {
        true => " No confirmed verdict is wrong, and enough of the held-out ones are right.".to_owned(),
        false => format!(" Not good enough: {}.", shortcomings.join("; ")),
    };
    text
}

fn table_of_cases(cases: &[Case]) -> String {
    let row = |case: &Case| {
        let busiest = case.baseline.as_ref().map(|of| {
            format!("{} {:.0} %{}", of.resource, of.utilization * 100.0, if of.right { " ✓" } else { "" })
        });
        let outcome = match case.outcome {
            Outcome::Right => "right",
            Outcome::Wrong => "wrong",
            Outcome::Abstained => "no answer",
            Outcome::Discarded(_) => "discarded",
            Outcome::NotImposed(_) => "not imposed",
        };
        let grade = match case.grade {
            Some(Grade::Confirmed) => "confirmed",
            Some(Grade::Supported) => "supported",
            Some(Grade::Delay) => "a delay",
            Some(Grade::FastFail) => "fails fast",
            Some(Grade::Generator) => "generator",
            Some(Grade::NotIdentified) | None => UNKNOWN,
        };
        let split = if case.imposed.case.split == Split::Tune { "tune" } else { "held-out" };
        vec![
            case.experiment.clone(),
            case.imposed.case.target.clone(),
            case.imposed.case.severity.clone(),
            split.to_owned(),
            case.imposed.expect.to_string(),
            said(case),
            grade.to_owned(),
            case.binding.map_or(UNKNOWN.to_owned(), |ratio| format!("{ratio:.2} ×")),
            busiest.unwrap_or_else(|| UNKNOWN.to_owned()),
            outcome.to_owned(),
        ]
    };
    let head =
        ["kind", "target", "severity", "split", "expected", "said", "grade", "binding", "busiest", "outcome"];
    table(&head, cases.iter().map(row).collect())
}

fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut text = format!("| {} |\n|{}", head.join(" | "), ":--|".repeat(head.len()));
    for cells in rows {
        // Writing into a string does not fail.
        let _ = write!(text, "\n| {} |", cells.join(" | ").replace('\n', " "));
    }
    text
}

fn list(lines: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = lines.map(|line| format!("- {line}")).collect();
    if lines.is_empty() { "None.".to_owned() } else { lines.join("\n") }
}

fn name(case: &Case) -> String {
    format!("{}, {} ({})", case.experiment, case.imposed.case.target, case.imposed.case.severity)
}

fn said(case: &Case) -> String {
    case.said.as_ref().map_or(UNKNOWN.to_owned(), Class::to_string)
}
