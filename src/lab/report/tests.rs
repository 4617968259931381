//! The files of the report, read back.

use super::*;
use crate::lab::results::{Placement, Results};
use crate::lab::simulated::tests::{model, sweep};

fn results() -> Results {
    sweep(&model("cpu 1 =2ms, disk 1 =1ms, net 0 =5ms"), &["get", "put"], &[1, 2, 4, 8, 16, 32], 3, "1s")
}

fn file(results: &Results, name: &str) -> String {
    let file = render(results).into_iter().find(|file| file.name == name);
    String::from_utf8(file.unwrap_or_else(|| panic!("no {name}")).bytes).unwrap()
}

#[test]
fn the_same_results_give_the_same_bytes() {
    let results = results();
    let again: Results = serde_json::from_str(&serde_json::to_string(&results).unwrap()).unwrap();
    let names: Vec<String> = render(&results).into_iter().map(|file| file.name).collect();
    assert_eq!(names, ["report.html", "report.md", "plots/get.svg", "plots/put.svg", "results.csv"]);
    assert!(render(&results) == render(&again));
}

#[test]
fn the_headline_says_capacity_knee_and_bottleneck() {
    let lines = headline(&results());
    let first = lines.lines().next().unwrap();
    for said in [
        "get  Capacity 500",
        "req/s (3 runs, 4–32 clients)",
        "knee at 4 clients",
        "bottleneck cpu (supported",
    ] {
        assert!(first.contains(said), "{said:?} is missing in {first}");
    }
    assert_eq!(lines.lines().count(), 2);
}

#[test]
fn html_stands_alone_and_runs_nothing() {
    let html = file(&results(), "report.html");
    for foreign in ["<script", "http-equiv", "src=", "@import", "url("] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert_eq!((html.matches("<svg").count(), html.matches("</svg>").count()), (2, 2));
    // The only address is the name of a language.
    assert_eq!(html.matches("http").count(), html.matches("http://www.w3.org/2000/svg").count());
}

#[test]
fn names_are_text_not_markup() {
    let mut results = results();
    let name = "<b>&\"'|`*../x";
    results.title = name.into();
    results.experiment_toml = format!("```\n</pre>{name}");
    results.workloads[0].name = name.into();
    results.resources[0].name = name.into();
    results.environment.push((name.into(), name.into()));
    results.trials.iter_mut().filter(|trial| trial.workload == "get").for_each(|trial| {
        trial.workload = name.into();
        trial.load.as_mut().unwrap().errors.insert(name.into(), 1);
    });
    let files = render(&results);
    assert!(
        files
            .iter()
            .any(|file| file.name == "plots/_b______________x.svg" || file.name.starts_with("plots/_b_"))
    );
    assert!(files.iter().all(|file| !file.name.contains("..")));
    for page in ["report.html", "report.md"] {
        assert!(!file(&results, page).split("```").next().unwrap().contains("<b>"), "{page}");
    }
    assert!(
        !file(&results, "report.html").contains("</pre>&lt;b")
            && !file(&results, "report.html").contains("<b>")
    );
    assert!(file(&results, "report.md").contains("\n````\n"));
}

#[test]
fn nothing_is_printed_as_nan_whatever_the_results_hold() {
    let empty = |change: fn(&mut Results)| {
        let mut results = results();
        change(&mut results);
        for file in render(&results) {
            let text = String::from_utf8(file.bytes).unwrap();
            for word in ["NaN", "inf ", "inf<", "inf,", ">inf"] {
                assert!(!text.contains(word), "{word:?} in {}", file.name);
            }
        }
        headline(&results)
    };
    empty(|results| results.trials.clear());
    empty(|results| results.levels.clear());
    empty(|results| results.levels = vec![0, 1]);
    empty(|results| results.levels = vec![8]);
    empty(|results| results.resources.iter_mut().for_each(|of| of.servers = 0.0));
    empty(|results| results.resources.clear());
    empty(|results| results.workloads.clear());
    empty(|results| {
        for trial in &mut results.trials {
            let load = trial.load.as_mut().unwrap();
            (load.window_secs, load.attempts, trial.elapsed_secs) = (0.0, 0, 0.0);
            (load.goodput_rps, load.latency) = (0.0, crate::proto::Latency::default());
        }
    });
}

#[test]
fn every_planned_level_is_printed_with_what_went_wrong() {
    let mut results = results();
    results.trials.retain(|trial| trial.level != 32);
    for trial in results.trials.iter_mut().filter(|trial| trial.level == 16) {
        let load = trial.load.as_mut().unwrap();
        load.errors.insert("timeout".into(), 30);
        load.error_ratio = 0.06;
    }
    for page in ["report.html", "report.md"] {
        let text = file(&results, page).replace('\u{a0}', " ");
        for said in [
            "G4 errors at 16 clients: 6.00 % of the attempts failed",
            "3 of 3 runs at 32 clients",
            "timeout",
            "no run",
        ] {
            assert!(text.contains(said), "{said:?} is missing in {page}");
        }
    }
}

#[test]
fn csv_has_a_line_for_each_planned_trial_and_a_unit_in_each_name() {
    let mut results = results();
    results.trials.retain(|trial| trial.level != 4 || trial.repetition == 0);
    let csv = file(&results, "results.csv");
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 1 + 2 * 6 * 3);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()));
    let column =
        |name: &str| lines[0].iter().position(|of| *of == name).unwrap_or_else(|| panic!("no {name}"));
    let of_get_4: Vec<&Vec<&str>> =
        lines.iter().filter(|line| line[0] == "get" && line[column("clients")] == "4").collect();
    assert_eq!(of_get_4.iter().map(|line| line[2]).collect::<Vec<_>>(), ["", "did not run", "did not run"]);
    assert_eq!((of_get_4[1][column("goodput_rps")], of_get_4[1][column("level_runs")]), ("", "1"));
    assert!(of_get_4[0][column("cpu_utilization")].parse::<f64>().unwrap() > 0.9);
    assert_eq!(of_get_4[0][column("latency_us_p99")], of_get_4[1][column("level_latency_us_p99")]);
}

#[test]
fn figures_carry_all_panels_and_stand_alone() {
    let svg = file(&results(), "plots/get.svg");
    for said in [
        "Goodput, req/s",
        "Latency",
        "Utilization",
        "knee 4",
        "capacity",
        "prefers-color-scheme",
        "p99.9",
        "disk",
    ] {
        assert!(svg.contains(said), "{said:?} is missing");
    }
    assert!(svg.starts_with("<svg width=\"840\" ") && svg.trim_end().ends_with("</svg>"));
}

#[test]
fn who_shares_a_core_is_said() {
    let mut results = results();
    let part = |part: &str, with: &[&str]| Placement {
        part: part.into(),
        cores: vec![0],
        shares_with: with.iter().map(|of| (*of).to_owned()).collect(),
    };
    results.placements = vec![part("server", &["generator"]), part("generator", &["server"])];
    assert!(file(&results, "report.md").contains("server shares its cores with generator"));
    results.placements = vec![part("server", &[])];
    assert!(file(&results, "report.md").contains("No two parts shared a core."));
}

#[test]
fn what_databases_and_disks_did_is_shown_where_it_was_read() {
    let mut results = results();
    // A cap that only one of the workloads has.
    let cap = crate::lab::results::Resource {
        name: "write cap 10 MB/s".into(),
        busy: vec!["cap.busy_secs".into()],
        servers: 1.0,
        kind: crate::lab::results::ResourceKind::Station,
    };
    results.resources.push(cap);
    for trial in results.trials.iter_mut().filter(|trial| trial.workload == "put") {
        let (secs, clients) = (trial.elapsed_secs, f64::from(trial.level));
        for (name, growth) in [
            ("cap.busy_secs", 0.4 * secs),
            ("cap.written_bytes", 4e6 * secs),
            ("database.commits", 321.0 * secs),
            ("database.waits.samples", 25.0),
            ("database.waits.observed_secs", secs),
            ("database.waits.cost_secs", 0.008 * secs),
            ("database.waits.Lock:tuple_secs", 0.75 * clients * secs),
            ("database.waits.idle_secs", 0.25 * clients * secs),
        ] {
            trial.opened.counters.insert(name.into(), 0.0);
            trial.closed.counters.insert(name.into(), growth);
        }
        trial.opened.gauges.insert("database.threads".into(), 9.0);
        trial.closed.gauges.insert("database.threads".into(), 9.0);
    }
    let page = file(&results, "report.md");
    let (get, put) = page.split_once("\n## put").unwrap();
    let get = get.split_once("\n## get").unwrap().1;
    for said in [
        "write cap 10 MB/s",
        "Where the database’s sessions were",
        "most of these in row lock: ",
        "writes of one key go one after the other",
        "What the resources did",
        "write cap written",
        "database commits",
        "321",
        "database threads",
        "at least 25 looks a run; the asking took at most 0.8 % of a core",
        "at most once a second",
    ] {
        assert!(put.contains(said), "{said:?} is missing in {put}");
        assert!(!get.contains(said), "{said:?} in {get}");
    }
    let csv = file(&results, "results.csv");
    assert!(csv.lines().next().unwrap().contains("write_cap_10_MB_s_utilization"));
}
