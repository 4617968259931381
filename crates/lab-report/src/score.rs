//! A score as a page: which verdicts on imposed limits were right, how often, and what the highest utilization would have said.
//!
//! A pure function, as the report is: the same score gives the same bytes.

use super::document::{Block, Document, Table, TableColumn, section};
use super::format::{self, UNKNOWN};
use super::{markdown, text};
use lab_analysis::Grade;
use lab_analysis::score::{BINDING, Case, Class, Outcome, Score, Split, Tally};
use std::collections::BTreeSet;

const TITLE: &str = "How often the name is right";

/// The score as Markdown.
pub fn markdown(score: &Score) -> String {
    markdown::write(&page(score))
}

/// The score as plain text, without a line end behind the last line.
pub fn text(score: &Score) -> String {
    text::write(&page(score))
}

fn page(score: &Score) -> Document {
    let kinds = score.kinds();
    let three = kinds.values().filter(|severities| **severities >= 3).count();
    let above =
        format!("{}, {three} of them in three severities or more", format::count(kinds.len() as u32, "kind"));
    let mut page = vec![Block::Table(totals(score))];
    page.push(Block::Notes(vec![
        "The interval is Wilson’s, 95 %, of the share of right ones.".to_owned(),
        "By the highest utilization: the busiest resource of the highest level, pools and disks included; a busy disk \
         counts as any limit of a disk, shared cores as the processor of either part."
            .to_owned(),
    ]));
    page.push(Block::Text(conclusion(score)));
    page.push(section("Confirmed and wrong", "confirmed-and-wrong"));
    page.push(listed(
        score
            .wrong_but_confirmed()
            .map(|case| format!("{}: {} expected, {} said", named(case), case.expected, said(case))),
    ));
    page.push(section("Cases", "cases"));
    page.push(Block::Table(cases(score)));
    page.push(Block::Notes(vec![
        format!(
            "Binding: goodput without what was imposed over goodput with it, at the highest level; below {BINDING} the case \
             is discarded. {UNKNOWN}: nothing is imposed that could bind."
        ),
        "Busiest: what the highest utilization says; ✓ where that is right.".to_owned(),
    ]));
    page.push(section("Which verdict came where", "confusion"));
    page.push(Block::Table(confusion(score)));
    page.push(section("Discarded", "discarded"));
    page.push(listed(score.cases.iter().filter_map(|case| match &case.outcome {
        Outcome::Discarded(why) => Some(format!("{}: {why}", named(case))),
        _ => None,
    })));
    page.push(section("Not imposed on this machine", "not-imposed"));
    page.push(listed(score.cases.iter().filter_map(|case| match &case.outcome {
        Outcome::NotImposed(why) => Some(format!("{}: {why}", named(case))),
        _ => None,
    })));
    Document { title: TITLE.to_owned(), above, blocks: page }
}

fn totals(score: &Score) -> Table {
    let mut table = Table::new(&["<cases", "<by", "right", "of", "<interval", "no answer", "wrong"]);
    let rows = [
        (Split::HeldOut, "the lab", &score.held_out),
        (Split::HeldOut, "the highest utilization", &score.baseline_held_out),
        (Split::Tune, "the lab", &score.tune),
        (Split::Tune, "the highest utilization", &score.baseline_tune),
    ];
    for (split, by, tally) in rows {
        let Tally { cases, right, abstained, .. } = tally;
        table.push([
            split.name().to_owned(),
            by.to_owned(),
            right.to_string(),
            cases.to_string(),
            tally.interval.map_or(UNKNOWN.to_owned(), |(low, high)| {
                format!("{:.1}–{:.1} %", low * 100.0, high * 100.0)
            }),
            abstained.to_string(),
            (cases - right - abstained).to_string(),
        ]);
    }
    table
}

/// Whether it suffices, and what no table says.
fn conclusion(score: &Score) -> String {
    let count = |of: fn(&Outcome) -> bool| score.cases.iter().filter(|case| of(&case.outcome)).count() as u32;
    let discarded = count(|outcome| matches!(outcome, Outcome::Discarded(_)));
    let refused = count(|outcome| matches!(outcome, Outcome::NotImposed(_)));
    let silent = score.held_out.right_without_answer + score.tune.right_without_answer;
    let mut said = format!(
        "Of {}, {} counted, {discarded} discarded, {refused} not imposed on this machine.",
        format::count(score.cases.len() as u32, "case"),
        score.held_out.cases + score.tune.cases,
    );
    if silent > 0 {
        said +=
            &format!(" Of the right ones {silent} named nothing where nothing limits, without saying why.");
    }
    let shortcomings = score.shortcomings();
    said += &match shortcomings.is_empty() {
        true => " No confirmed verdict is wrong, and enough of the held-out ones are right.".to_owned(),
        false => format!(" Not good enough: {}.", shortcomings.join("; ")),
    };
    said
}

fn cases(score: &Score) -> Table {
    let head = [
        "<kind",
        "<target",
        "<severity",
        "<split",
        "<expected",
        "<said",
        "<grade",
        "binding",
        "<busiest",
        "<outcome",
    ];
    let mut table = Table::new(&head);
    for case in &score.cases {
        let busiest = case.baseline.as_ref().map(|of| {
            let mark = if of.right { " ✓" } else { "" };
            format!("{} {}{mark}", of.resource, format::percent(of.utilization))
        });
        let cells = [
            case.experiment.clone(),
            case.target.clone(),
            case.severity.clone(),
            case.split.name().to_owned(),
            case.expected.to_string(),
            said(case),
            case.grade.map_or(UNKNOWN, grade).to_owned(),
            format::known(case.binding, |ratio| format!("{ratio:.2} ×")),
            busiest.unwrap_or_else(|| UNKNOWN.to_owned()),
            outcome(&case.outcome).to_owned(),
        ];
        table.push_row(cells, !case.outcome.counts());
    }
    table
}

fn confusion(score: &Score) -> Table {
    let all: BTreeSet<&Class> = score.confusion.iter().map(|cell| &cell.said).collect();
    let names: Vec<String> = all.iter().map(ToString::to_string).collect();
    let mut table = Table::new(&["<expected ↓ said →"]);
    table.columns.extend(names.into_iter().map(|name| TableColumn::figures(name, "")));
    let expected: BTreeSet<&Class> = score.confusion.iter().map(|cell| &cell.expected).collect();
    for expected in expected {
        let cell = |said: &&Class| {
            let of = |cell: &&_| same(cell, expected, said);
            score.confusion.iter().find(of).map_or(String::new(), |cell| cell.cases.to_string())
        };
        table.push(std::iter::once(expected.to_string()).chain(all.iter().map(cell)));
    }
    table
}

fn same(cell: &lab_analysis::score::Confusion, expected: &Class, said: &Class) -> bool {
    cell.expected == *expected && cell.said == *said
}

fn listed(lines: impl Iterator<Item = String>) -> Block {
    let lines: Vec<String> = lines.collect();
    match lines.is_empty() {
        true => Block::Text("None.".to_owned()),
        false => Block::Notes(lines),
    }
}

fn named(case: &Case) -> String {
    format!("{}, {} ({})", case.experiment, case.target, case.severity)
}

fn said(case: &Case) -> String {
    case.said.as_ref().map_or(UNKNOWN.to_owned(), Class::to_string)
}

fn grade(grade: Grade) -> &'static str {
    match grade {
        Grade::Confirmed => "confirmed",
        Grade::Supported => "supported",
        Grade::Delay => "a delay",
        Grade::FastFail => "fails fast",
        Grade::Generator => "generator",
        Grade::NotIdentified => UNKNOWN,
    }
}

fn outcome(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Right => "right",
        Outcome::Wrong => "wrong",
        Outcome::Abstained => "no answer",
        Outcome::Discarded(_) => "discarded",
        Outcome::NotImposed(_) => "not imposed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_analysis::score::tests::scored;

    #[test]
    fn the_page_says_how_many_were_right_and_lists_what_does_not_count() {
        let page = text(&scored());
        for said in [
            "held-out  the lab",
            "not binding: without what was imposed goodput is 1.00 × as high, not 1.3 ×",
            "truth, refused (2ms): no control groups here",
            "Which verdict came where",
        ] {
            assert!(page.contains(said), "{said}\n{page}");
        }
        assert_eq!(page, text(&scored()), "the same score gives the same bytes");
    }

    #[test]
    fn markdown_has_a_row_for_every_case() {
        let score = scored();
        let document = markdown(&score);
        assert!(document.starts_with(&format!("# {TITLE}\n")));
        let rows = document.lines().filter(|line| line.starts_with("| truth |"));
        assert_eq!(rows.count(), score.cases.len());
    }
}
