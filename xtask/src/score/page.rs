//! The score as Markdown.

use super::judge::{BINDING, Case, GOAL, IsRight, Outcome, Tally, shortcomings, tally};
use super::truth::{LimitVerdict, Split};
use std::fmt::Display;

/// The page.
pub(crate) fn page(cases: &[Case]) -> String {
    let of = |outcome: Outcome| {
        let of_outcome = cases.iter().filter(move |case| case.outcome == outcome);
        list(of_outcome.map(|case| (case, case.why.clone())))
    };
    let wrong = cases.iter().filter(|case| case.is_confirmed_and_wrong());
    let said =
        |case: &Case| format!("{} expected, {} said", case.imposed.expect, or_unknown(case.said.as_ref()));
    format!(
        "# How often the verdict is right\n\n{}\n\n\
         The interval is Wilson’s, 95 %. By the highest utilization: the busiest resource of the highest level, pools and disks \
         included; a busy disk counts as any limit of a disk, shared cores as the processor of either part.\n\n{}\n\n\
         ## Confirmed and wrong\n\n{}\n\n\
         ## Cases\n\n{}\n\n\
         Effect: goodput without the imposed limit over goodput with it, at the highest level; below {BINDING} the case is \
         discarded. Busiest: what the highest utilization says; ✓ where that is right; above 100 %, several sessions are in it at \
         the same time.\n\n\
         ## Discarded\n\n{}\n\n\
         ## Not imposed on this machine\n\n{}\n",
        totals(cases),
        conclusion(cases),
        list(wrong.map(|case| (case, said(case)))),
        table_of_cases(cases),
        of(Outcome::Discarded),
        of(Outcome::NotImposed),
    )
}

fn totals(cases: &[Case]) -> String {
    let by: [(&str, IsRight); 2] =
        [("the lab", Case::is_right), ("the highest utilization", Case::is_baseline_right)];
    let mut rows = Vec::new();
    for split in [Split::HeldOut, Split::Tune] {
        for (by, is_right) in by {
            let Tally { cases, right, abstained } = tally(cases, split, is_right);
            let interval = stats::wilson(right, cases)
                .map(|(low, high)| format!("{:.1}–{:.1} %", low * 100.0, high * 100.0));
            let (split, interval, wrong) = (name(split), or_unknown(interval), cases - right - abstained);
            rows.push(format!("{split} | {by} | {right} | {cases} | {interval} | {abstained} | {wrong}"));
        }
    }
    table("cases | by | right | of | interval | no answer | wrong", rows)
}

/// Whether it is enough, and what no table says.
fn conclusion(cases: &[Case]) -> String {
    let count = |is: &dyn Fn(&Case) -> bool| cases.iter().filter(|case| is(case)).count();
    let [discarded, refused] =
        [Outcome::Discarded, Outcome::NotImposed].map(|outcome| count(&|case| case.outcome == outcome));
    let mut text = format!(
        "Of {} cases, {} counted, {discarded} discarded, {refused} not imposed on this machine.",
        cases.len(),
        cases.len() - discarded - refused,
    );
    let none = Some(LimitVerdict::Limits([].into()));
    let silent = count(&|case| case.outcome == Outcome::Right && case.said == none);
    if silent > 0 {
        text += &format!(" {silent} of the right ones gave no answer where nothing limits.");
    }
    let shortcomings = shortcomings(cases);
    text += &match shortcomings.is_empty() {
        true => {
            let goal = GOAL * 100.0;
            format!(
                " No confirmed verdict is wrong, and at least {goal:.0} % of the held-out ones are right."
            )
        }
        false => format!(" Not good enough: {}.", shortcomings.join("; ")),
    };
    text
}

fn table_of_cases(cases: &[Case]) -> String {
    let row = |case: &Case| {
        let busiest = case.baseline.as_ref().map(|of| {
            format!("{} {:.0} %{}", of.resource, of.utilization * 100.0, if of.right { " ✓" } else { "" })
        });
        let cells = [
            case.experiment.clone(),
            case.imposed.target.clone(),
            case.imposed.severity.clone(),
            name(case.imposed.split).to_owned(),
            case.imposed.expect.to_string(),
            or_unknown(case.said.as_ref()),
            or_unknown(case.grade.map(|grade| format!("{grade:?}"))),
            or_unknown(case.binding.map(|ratio| format!("{ratio:.2} ×"))),
            or_unknown(busiest),
            format!("{:?}", case.outcome),
        ];
        cells.join(" | ").replace('\n', " ")
    };
    let head = "kind | target | severity | split | expected | said | grade | effect | busiest | outcome";
    table(head, cases.iter().map(row).collect())
}

/// Cases, and what is to be said of each.
fn list<'c>(cases: impl Iterator<Item = (&'c Case, String)>) -> String {
    let line = |(case, what): (&Case, String)| {
        format!("- {}, {} ({}): {what}", case.experiment, case.imposed.target, case.imposed.severity)
    };
    let lines: Vec<String> = cases.map(line).collect();
    if lines.is_empty() { "None.".to_owned() } else { lines.join("\n") }
}

/// Rows of cells with ` | ` between them.
fn table(head: &str, rows: Vec<String>) -> String {
    let rows: String = rows.iter().map(|row| format!("\n| {row} |")).collect();
    format!("| {head} |\n|{}{rows}", ":--|".repeat(head.split('|').count()))
}

fn name(split: Split) -> &'static str {
    if split == Split::Tune { "tune" } else { "held-out" }
}

fn or_unknown(text: Option<impl Display>) -> String {
    text.map_or("–".to_owned(), |text| text.to_string())
}
