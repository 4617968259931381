//! The files of a comparison, read back.

use super::*;
use lab_analysis::compare;
use lab_analysis::compare::tests::{busy_generator, run};
use lab_data::results::Results;

fn results() -> Vec<Results> {
    run(&[("weir", 50), ("nginx", 100), ("other", 25)], &[1, 16], 3)
}

fn of(all: &[Results]) -> Comparison {
    compare(&all.iter().collect::<Vec<_>>()).unwrap()
}

fn file(all: &[Results], name: &str) -> String {
    let file = render(&of(all)).into_iter().find(|file| file.name == name);
    file.unwrap_or_else(|| panic!("no {name}")).text
}

#[test]
fn the_same_results_give_the_same_bytes() {
    let all = results();
    let again: Vec<Results> = serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
    let names: Vec<String> = render(&of(&all)).into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["compare.html", "compare.md", "compare.svg"]);
    assert!(render(&of(&all)) == render(&of(&again)) && text(&of(&all)) == text(&of(&again)));
}

#[test]
fn the_headline_says_who_has_more_of_what_at_how_many_levels() {
    let lines = headline(&of(&results()));
    assert_eq!(lines.lines().count(), 4);
    for said in [
        "get  nginx against weir: goodput at 16 clients 0.",
        "higher on weir, p ",
        "; goodput 0.",
        "(higher on nginx at 2 of 2 levels)",
        "other against weir: ",
    ] {
        assert!(lines.contains(said), "{said:?} is missing in {lines}");
    }
}

/// An interval without 1 stood beside "no difference shown", as only p was corrected for the number of ratios.
#[test]
fn why_an_interval_without_1_shows_no_difference_is_said() {
    let mut comparison = of(&results());
    let said = "(p is corrected for the number of these sentences; the interval ";
    assert!(!headline(&comparison).contains(said));
    let nginx = comparison.workloads[0].capacities[1].as_mut().unwrap();
    (nginx.p_holm, nginx.ratio.conclusion) = (Some(0.079), compare::Conclusion::NotShown);
    let lines = headline(&comparison);
    assert!(lines.contains(&format!(", no difference shown, p 0.079 {said}")), "{lines}");
}

#[test]
fn what_was_not_planned_on_both_has_no_line_in_the_headline() {
    let mut all = results();
    all[1].workloads.retain(|plan| plan.name == "get");
    let lines = headline(&of(&all));
    let begins = |start: &str| lines.lines().any(|line| line.starts_with(start));
    assert!(begins("get  nginx against weir: ") && begins("put  other against weir: "), "{lines}");
    assert!(lines.lines().count() == 3 && !lines.contains("not measured"), "{lines}");
    assert!(text(&of(&all)).contains("Not measured on nginx."));
}

#[test]
fn all_targets_stand_beside_each_other_at_each_level() {
    let page = file(&results(), "compare.md");
    assert!(
        page.contains(
            "| clients | target | goodput, req/s | ratio, to weir, 95 % | difference | failed checks |"
        ),
        "{page}"
    );
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| 16 | weir |")).collect();
    // Four tables of two workloads.
    assert_eq!(rows.len(), 8, "{page}");
    for label in ["CPU per request, µs", "p50 latency", "p99 latency"] {
        assert!(
            page.contains(&format!("| {label} | ratio, to weir, 95 % | difference |")),
            "{label}: {page}"
        );
    }
    assert!(
        page.contains("| 16 | nginx |")
            && page.contains("higher on nginx")
            && page.contains("higher on weir"),
        "{page}"
    );
    assert!(page.contains("![Processor time per request](compare.svg)"), "{page}");
}

#[test]
fn what_the_generator_limits_stands_in_brackets() {
    let mut all = results();
    busy_generator(&mut all[1]);
    let page = file(&all, "compare.md");
    // At 16 clients: goodput barred, with the reason; processor time compared.
    let rows: Vec<&str> = page.lines().filter(|line| line.contains("[≥ 0.")).collect();
    let why = "not comparable: limited by the generator";
    assert!(!rows.is_empty() && rows.iter().all(|row| row.contains(why)), "{page}");
    assert!(page.contains("higher on nginx"), "{page}");
}

#[test]
fn different_promises_are_said_in_words_where_something_is_written() {
    let page = text(&of(&results()));
    let (get, put) = page.split_once("\nput\n").unwrap();
    let said = "weir: after fdatasync; nginx: not stated; other: not stated.";
    assert!(!get.split("\nget\n").nth(1).unwrap().contains("acknowledge"), "{get}");
    assert!(put.replace('\n', " ").contains(said), "{put}");
}

#[test]
fn how_many_ratios_were_tested_is_said() {
    assert!(text(&of(&results())).contains("32 ratios tested for a difference"));
    let one = text(&of(&run(&[("weir", 50), ("nginx", 100)], &[4], 1)));
    assert!(
        one.contains("No ratio was tested") && one.contains("(–)") && one.contains("no interval"),
        "{one}"
    );
}

#[test]
fn too_few_repetitions_for_an_interval_are_said_with_their_number() {
    let needs = |repetitions, is_sequential| {
        let mut all = run(&[("weir", 50), ("nginx", 100)], &[4], repetitions);
        all.iter_mut().for_each(|results| results.sequential = is_sequential);
        headline(&of(&all))
    };
    for (lines, needed) in [
        (needs(1, false), Some("no interval: each side needs at least two repetitions")),
        (needs(2, false), None),
        (needs(4, true), Some("no interval: at least five pairs are needed")),
        (needs(5, true), None),
    ] {
        match needed {
            Some(needed) => assert!(lines.contains(needed), "{lines}"),
            None => assert!(!lines.contains("no interval"), "{lines}"),
        }
    }
}

#[test]
fn without_a_test_the_table_says_what_is_in_the_way() {
    let mut all = run(&[("weir", 50), ("nginx", 100)], &[4], 2);
    for trial in &mut all[1].trials {
        trial.load.as_mut().unwrap().error_ratio = 0.5;
        trial.load.as_mut().unwrap().successes /= 2;
    }
    let page = text(&of(&all));
    assert!(page.contains("No ratio was tested: none is comparable"), "{page}");
    let row = page.lines().find(|line| line.contains("not comparable: a level does not count")).unwrap();
    assert!(row.ends_with("  errors") && !page.contains("no interval"), "{page}");
}

#[test]
fn a_ratio_that_cannot_be_is_named_in_the_table_and_counted_in_the_headline() {
    let mut all = results();
    for trial in all[1].trials.iter_mut().filter(|trial| trial.level == 16 && trial.repetition == 0) {
        trial.load.as_mut().unwrap().goodput_rps = 0.0;
    }
    let page = file(&all, "compare.md");
    assert!(page.contains("| no ratio | not comparable: 0 in repetition 1 of nginx"), "{page}");
    assert!(headline(&of(&all)).contains("not comparable at 1"), "{}", headline(&of(&all)));
}

#[test]
fn tables_fit_a_terminal_of_120_columns_and_lose_no_word() {
    let mut all =
        run(&[("weir", 50), ("floor", 40), ("nginx", 60), ("webdis", 100), ("etcd", 900)], &[1, 16, 64], 3);
    for results in &mut all {
        results.measured.as_mut().unwrap().durability = "fdatasync of the raft log before the answer".into();
        results.environment.push(("command".into(), format!("etcd --listen {}", "x".repeat(300))));
        results.trials.iter_mut().for_each(|trial| {
            let load = trial.load.as_mut().unwrap();
            load.cpu_secs = 0.9 * load.window_secs;
        });
    }
    all[4].environment.pop();
    let page = text(&of(&all));
    let widest = page.lines().max_by_key(|line| line.chars().count()).unwrap();
    assert!(widest.chars().count() <= 120, "{}: {widest}", widest.chars().count());
    let unbroken: String = page.split_whitespace().collect();
    assert!(unbroken.contains(&"x".repeat(300)), "{page}");
}

#[test]
fn names_are_text_not_markup_and_nothing_is_printed_as_nan() {
    let mut all = results();
    let name = "<b>&\"'|`*../x";
    for results in &mut all {
        let measured = results.measured.as_mut().unwrap();
        measured.among[1] = name.into();
        measured.durability = name.into();
        results.workloads[0].name = name.into();
        results
            .trials
            .iter_mut()
            .filter(|trial| trial.workload == "get")
            .for_each(|t| t.workload = name.into());
    }
    all[1].measured.as_mut().unwrap().target = name.into();
    all[1].environment.push((name.into(), name.into()));
    for trial in &mut all[2].trials {
        let load = trial.load.as_mut().unwrap();
        (load.window_secs, load.attempts, load.goodput_rps, trial.elapsed_secs) = (0.0, 0, 0.0, 0.0);
        load.latency = kv::proto::Latency::default();
    }
    let html = file(&all, "compare.html");
    for foreign in ["<script", "src=", "@import", "url(", "<b>", "NaN", "inf<"] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert!(!file(&all, "compare.md").contains("<b>") && !file(&all, "compare.svg").contains("<b>"));
    for file in ["compare.md", "compare.svg"].map(|name| file(&all, name)) {
        assert!(!file.contains("NaN") && !file.contains("inf,"), "{file}");
    }
}

#[test]
fn without_processor_time_there_is_no_drawing_and_no_gap() {
    let mut all = results();
    all.iter_mut().for_each(|results| results.placements.clear());
    let names: Vec<String> = render(&of(&all)).into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["compare.html", "compare.md"]);
    let page = file(&all, "compare.md");
    assert!(!page.contains("compare.svg") && !page.contains("| target | ratio"), "{page}");
}

/// A margin of 0.05 % was 0.1 %.
#[test]
fn the_margin_is_the_one_that_was_asked_for() {
    for (margin, said) in [(0.05, "reaches 5 %"), (0.0005, "reaches 0.05 %"), (1.5, "reaches 150 %")] {
        let comparison = of(&results());
        let text = gate_text(&comparison, &compare::gate(&comparison, margin));
        assert!(text.replace('\n', " ").replace("  ", " ").contains(said), "{text}");
    }
}
