//! The files of the report, read back.

use super::*;
use kv::proto::{AccuracyCheck, CheckOutcome, ScheduleReport, SelftestReport};
use lab_data::results::{Results, Selftest};
use lab_data::simulated::tests::{model, sweep};

fn results() -> Results {
    sweep(&model("cpu 1 =2ms, disk 1 =1ms, net 0 =5ms"), &["get", "put"], &[1, 2, 4, 8, 16, 32], 3, "1s")
}

fn file(results: &Results, name: &str) -> String {
    let file = render(results).into_iter().find(|file| file.name == name);
    file.unwrap_or_else(|| panic!("no {name}")).text
}

#[test]
fn the_same_results_give_the_same_bytes() {
    let results = results();
    let again: Results = serde_json::from_str(&serde_json::to_string(&results).unwrap()).unwrap();
    let names: Vec<String> = render(&results).into_iter().map(|file| file.name).collect();
    let plots = ["plots/get.svg", "plots/put.svg", "plots/get.resources.svg", "plots/put.resources.svg"];
    assert_eq!(names[..2], ["report.html", "report.md"]);
    assert_eq!(
        (&names[2..6], &names[6..]),
        (plots.map(str::to_owned).as_slice(), &["results.csv".to_owned()][..])
    );
    assert!(render(&results) == render(&again));
}

#[test]
fn the_headline_has_at_most_four_lines_of_100_columns_for_each_workload() {
    let lines = headline(&results());
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines.len(), 8, "{lines:?}");
    assert!(lines.iter().all(|line| line.chars().count() <= 100), "{lines:?}");
    for (line, start, said) in [
        (0, "get  throughput  500", "req/s; at 4–32 clients; p50 "),
        (1, "     knee        4 clients", ""),
        (2, "     limit       cpu, 100 % busy (supported)", "; next limit: disk, at 1.00k req/s"),
        (3, "     confidence  ", ""),
        (4, "put  throughput  500", ""),
    ] {
        assert!(lines[line].starts_with(start) && lines[line].contains(said), "{start:?}: {}", lines[line]);
    }
}

#[test]
fn the_headline_stays_within_its_columns_whatever_the_names() {
    let mut results = results();
    let name = "a workload with a name that nobody would type twice";
    results.workloads[0].name = name.into();
    results.trials.iter_mut().filter(|of| of.workload == "get").for_each(|of| of.workload = name.into());
    results.resources[0].name =
        "a resource with a name as long as a line in the terminal could ever be".into();
    let lines = headline(&results);
    assert_eq!(lines.lines().count(), 8);
    assert!(lines.lines().all(|line| line.chars().count() <= 100), "{lines}");
}

#[test]
fn html_stands_alone_and_runs_nothing() {
    let html = file(&results(), "report.html");
    for foreign in ["<script", "http-equiv", "src=", "@import", "url("] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    assert_eq!((html.matches("<svg").count(), html.matches("</svg>").count()), (4, 4));
    // The only address is the name of a language.
    assert_eq!(html.matches("http").count(), html.matches("http://www.w3.org/2000/svg").count());
}

#[test]
fn all_but_the_answers_and_their_plots_is_folded_and_open_on_paper() {
    let html = file(&results(), "report.html");
    let (open, folded) = html.split_once("<details").unwrap();
    assert!(open.contains("class=\"card\"") && open.matches("<svg").count() == 2 && !open.contains("<table"));
    assert!(
        !html.contains("<details open")
            && folded.trim_end().ends_with("</details>\n</main>\n</body>\n</html>")
    );
    let (_, print) = html.split_once("@media print").unwrap();
    assert!(print.contains("details::details-content { display: block; content-visibility: visible; }"));
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
    assert!(files.iter().any(|file| file.name.starts_with("plots/~3c~b~3e~")));
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
            let text = file.text;
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
            (load.goodput_rps, load.latency) = (0.0, kv::proto::Latency::default());
        }
    });
}

#[test]
fn hit_ratios_are_shown_where_policies_were_simulated() {
    let mut results = results();
    assert!(!file(&results, "report.md").contains("Hit ratio"));
    for trial in results.trials.iter_mut().filter(|trial| trial.workload == "get") {
        for (name, to) in [
            ("stats.weir_cache_requests_total{result=\"hit\"}", 1.0),
            ("stats.weir_cache_requests_total{result=\"miss\"}", 2.0),
            ("stats.weir_cache_requests_total{result=\"collapsed\"}", 1.0),
            ("stats.weir_shadow_requests_total{policy=\"sieve\",result=\"hit\"}", 3.0),
            ("stats.weir_shadow_requests_total{policy=\"sieve\",result=\"miss\"}", 1.0),
        ] {
            trial.opened.counters.insert(name.into(), 0.0);
            trial.closed.counters.insert(name.into(), to);
        }
    }
    let page = file(&results, "report.md");
    assert!(page.contains("| get | the cache | 72.0 | 25.0 % |"), "{page}");
    assert!(
        page.contains("| get | sieve | 72.0 | 75.0 % |") && !page.contains("| put | the cache"),
        "{page}"
    );
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
            "6.00 % of the attempts failed",
            "get, 16 clients",
            "3 of 3 trials at 32 clients",
            "none",
            "timeout",
            "no trial",
        ] {
            assert!(text.contains(said), "{said:?} is missing in {page}");
        }
    }
}

#[test]
fn a_check_has_one_row_for_each_cause_with_the_levels_and_the_range_of_what_was_seen() {
    let mut results = results();
    for trial in results.trials.iter_mut().filter(|trial| trial.level >= 8) {
        let load = trial.load.as_mut().unwrap();
        load.errors.insert("timeout".into(), 30);
        load.error_ratio = f64::from(trial.level) / 100.0;
    }
    let page = file(&results, "report.md");
    let failed: Vec<&str> = page.lines().filter(|line| line.starts_with("| Errors |")).collect();
    let seen = "get, 8, 16, 32 clients; put, 8, 16, 32 clients | fail | 8.00–32.00 % of the attempts failed";
    assert!(failed.len() == 2 && failed[0].contains(seen), "{failed:#?}");
    assert!(failed[1].ends_with("| all others |"), "{failed:#?}");
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
fn figures_have_all_panels_and_are_files_of_their_own() {
    let results = results();
    for (name, all) in [
        (
            "plots/get.svg",
            &["Goodput, req/s", "Latency", "knee 4", "capacity 500", "cpu 100 %", "p99.9", "width=\"520\""][..],
        ),
        ("plots/get.resources.svg", &["Utilization", "knee 4", "100 %", "disk", "width=\"840\""]),
    ] {
        let svg = file(&results, name);
        for said in all.iter().chain(&["prefers-color-scheme"]) {
            assert!(svg.contains(said), "{said:?} is missing in {name}");
        }
        assert!(svg.starts_with("<svg width=\"") && svg.trim_end().ends_with("</svg>"));
    }
}

#[test]
fn a_run_near_the_knee_is_shown_second_by_second_where_it_is_long_enough() {
    let mut results = sweep(&model("cpu 1 =20ms, net 0 =50ms"), &["get", "put"], &[1, 2, 4, 8], 2, "30s");
    for trial in results.trials.iter_mut().filter(|trial| trial.workload == "put") {
        let load = trial.load.as_mut().unwrap();
        load.seconds.truncate(9);
        load.window_secs = 9.0;
    }
    for trial in results.trials.iter_mut().filter(|trial| trial.repetition == 1) {
        let load = trial.load.as_mut().unwrap();
        for second in load.seconds.iter_mut().take(7) {
            second.successes /= 2;
            second.latency_us_mean *= 2.0;
        }
    }
    let svg = file(&results, "plots/get.seconds.svg");
    for said in ["Goodput, req/s", "Mean latency", "warm-up 7 s", ">30<"] {
        assert!(svg.contains(said), "{said:?} is missing");
    }
    let page = file(&results, "report.md").replace('\u{a0}', " ");
    for said in [
        "(plots/get.seconds.svg)",
        "Repetition 2 at 4 clients, in bins of 1 s. Not steady: the first 7 of 30 s still belong to the warm-up",
        "Dashed: where the warm-up seems to end.",
        "window of 9 s is too short for this check",
    ] {
        assert!(page.contains(said), "{said:?} is missing in {page}");
    }
    assert!(!page.contains("put.seconds.svg"));
    assert!(render(&results).iter().all(|file| file.name != "plots/put.seconds.svg"));
    assert_eq!(file(&results, "report.html").matches("<svg").count(), 5);
}

#[test]
fn who_shares_a_core_is_said() {
    let mut results = results();
    let placed = r#"[{"part":"server","cores":[0],"shares_with":["generator"]},{"part":"generator","cores":[0],"shares_with":["server"]}]"#;
    results.placements = serde_json::from_str(placed).unwrap();
    assert!(file(&results, "report.md").contains("| server | 0 | generator |"));
    results.placements[0].siblings_with = vec!["database".to_owned()];
    assert!(file(&results, "report.md").contains("| server | 0 | generator | database |"));
    results.placements.clear();
    assert!(file(&results, "report.md").contains("Nothing was pinned to a core."));
}

/// Rows of a report beside those of the simulated sweep, which levels off at 500 req/s.
fn with_printed(rows: &str) -> Results {
    let head = "report,system,workload,clients,throughput_rps,latency_ms,server_cpu_pct,disk_util_pct,success_share,note";
    let mut results = results();
    results.resources[0].name = "server CPU".into();
    results.published = lab_data::published::parse(&format!("{head}\n{rows}")).unwrap().rows;
    results
}

#[test]
fn published_rows_stand_beside_the_measured_ones_at_every_level_of_either() {
    let results = with_printed(
        "007,old,get,1,100,10.0,40.5,,,\n007,old,get,3,250,24.0,90,,,a strange one\n007,old,get,8,260,30.8,99,,,\n",
    );
    let text = file(&results, "report.md").replace('\u{a0}', " ");
    let (_, beside) = text.split_once("### Published beside measured").unwrap();
    let beside = beside.split("\n##").next().unwrap();
    let levels: Vec<&str> =
        beside.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next()).skip(2).collect();
    assert_eq!(levels, ["1", "2", "3", "4", "8", "16", "32"]);
    for said in [
        "Published in report 007: workload get on system old.",
        "1 of 3 rows deviate from Little’s law by more than 5 %",
        "rows from different runs",
        "To be sure: ",
        "| 3 | 250 | – | – | 24.0 ms | – | 90 % | – | – | – | +100.00 % | – | a strange one |",
        "| 2 | – | ",
        "The processor measured is server CPU, the disk disk.",
    ] {
        assert!(beside.contains(said), "{said:?} is missing in {beside}");
    }
    let at_8 = beside.lines().find(|line| line.starts_with("| 8 | 260 | ")).unwrap();
    assert!(at_8.contains("1.9") && at_8.contains('×'), "{at_8}");
    // The other workload has no published rows, and the front says of none what it does not say without.
    assert_eq!(text.matches("### Published beside measured").count(), 1);
    let mut without = results.clone();
    without.published.clear();
    assert_eq!(headline(&results), headline(&without));
    assert!(!file(&without, "report.md").to_lowercase().contains("published"));
}

#[test]
fn a_page_with_published_rows_opens_with_them_and_with_how_many_deviate_from_littles_law() {
    let results = with_printed(
        "007,old,get,1,100,10.0,40.5,,,\n007,old,get,3,250,24.0,90,,,\n007,old,put,8,260,30.8,99,,,\n",
    );
    let page = file(&results, "report.md").replace('\u{a0}', " ");
    let front = page.split_once("\n## Checks").unwrap().0;
    let [get, put] =
        ["| get |", "| put |"].map(|of| front.lines().find(|line| line.starts_with(of)).unwrap());
    assert!(
        get.contains("| 250 req/s; measured 2.00×; 1 of 2 rows deviate from Little’s law by more than 5 %"),
        "{get}"
    );
    assert!(put.contains("| 260 req/s; measured 1.92×; 0 of 1 rows deviate from Little’s law"), "{put}");
}

#[test]
fn a_workload_may_have_another_name_in_print() {
    let mut results = with_printed("007,old,get_capped,1,100,10.0,,,,\n");
    assert!(!file(&results, "report.md").contains("### Published beside measured"));
    results.workloads[0].published = Some("get_capped".into());
    assert!(file(&results, "report.md").contains("workload get\\_capped on system old"));
}

#[test]
fn figures_have_both_curves_on_an_axis_that_shows_both() {
    let near =
        file(&with_printed("007,old,get,1,100,10.0,40,,,\n007,old,get,64,260,246,99,,,\n"), "plots/get.svg");
    for said in ["published", "Goodput, req/s<", ">64<"] {
        assert!(near.contains(said), "{said:?} is missing");
    }
    let resources = file(&with_printed("007,old,get,1,100,10.0,40,,,\n"), "plots/get.resources.svg");
    assert!(near.contains("published mean") && resources.contains("published CPU"));
    let far =
        file(&with_printed("007,old,get,1,1,1000,40,,,\n007,old,get,4,2,2000,99,,,\n"), "plots/get.svg");
    assert!(far.contains("Goodput, req/s, logarithmic"));
}

#[test]
fn a_printed_peak_without_clients_is_a_line_and_a_row() {
    let results = with_printed("001,crow,get,,400,0.4,,,,peak only\n");
    let text = file(&results, "report.md").replace('\u{a0}', " ");
    let row =
        text.lines().find(|line| line.starts_with("| – | 400 | – |")).unwrap_or_else(|| panic!("{text}"));
    assert!(row.contains("| 400 µs |") && row.ends_with("| peak only |"), "{row}");
    assert!(text.contains("No row can be checked by Little’s law."));
    let svg = file(&results, "plots/get.svg");
    assert!(svg.contains("published"));
}

#[test]
fn printed_rows_survive_the_results_file_and_old_files_have_none() {
    let results = with_printed("007,old,get,4,260.50,15.0,99,12,0.98,\n001,,get,,1e3,,,,,\n");
    let json = serde_json::to_value(&results).unwrap();
    let again: Results = serde_json::from_value(json.clone()).unwrap();
    assert!(again == results && render(&again) == render(&results));
    let mut old = json;
    old.as_object_mut().unwrap().remove("published");
    assert!(serde_json::from_value::<Results>(old).unwrap().published.is_empty());
}

#[test]
fn what_databases_and_disks_did_is_shown_where_it_was_read() {
    let mut results = results();
    // A cap that only one of the workloads has.
    let cap = lab_data::results::Resource {
        name: "write cap 10 MB/s".into(),
        busy: vec!["cap.busy_secs".into()],
        servers: 1.0,
        kind: lab_data::results::ResourceKind::Station,
        ..Default::default()
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
        "Most of these were in row lock: ",
        "writes of one key go one after the other",
        "Resource usage",
        "write cap: written",
        "database: commits",
        "321",
        "database: threads",
        "at least 25 samples a trial; sampling took at most 0.8 % of a core",
        "at most once a second",
    ] {
        assert!(put.contains(said), "{said:?} is missing in {put}");
        assert!(!get.contains(said), "{said:?} in {get}");
    }
    let csv = file(&results, "results.csv");
    assert!(csv.lines().next().unwrap().contains("write_cap_10_MB_s_utilization"));
}

/// The page with this selftest before it, as HTML and as Markdown, and the headline.
fn proved(selftest: Option<Selftest>) -> [String; 3] {
    let mut results = results();
    results.selftest = selftest;
    let [html, markdown] =
        ["report.html", "report.md"].map(|name| file(&results, name).replace('\u{a0}', " "));
    [html, markdown, headline(&results)]
}

fn checks(of: &[(&str, CheckOutcome)]) -> Option<Selftest> {
    let check = |(name, outcome): &(&str, CheckOutcome)| AccuracyCheck {
        name: (*name).to_owned(),
        outcome: *outcome,
        measured: "0.05 measured".into(),
        bound: "≤ 0.02".into(),
        ..AccuracyCheck::default()
    };
    let checks = of.iter().map(check).collect();
    Some(Selftest::Ran(SelftestReport { format: 1, short: true, secs: 6.25, checks }))
}

#[test]
fn an_accuracy_check_that_fails_is_a_warning_above_everything_else() {
    let said = "Warning: the generator failed its accuracy test (stall), so its figures may be wrong.";
    let [html, markdown, headline] =
        proved(checks(&[("delay", CheckOutcome::Pass), ("stall", CheckOutcome::Fail)]));
    for page in [&html, &markdown, &headline] {
        assert!(page.find(said) < page.find("req/s") && page.contains(said), "{page}");
    }
    assert!(html.contains("class=\"warning\""));
    assert!(markdown.contains("1 of 2 checks passed in 6.2 s: delay"), "{markdown}");
    assert!(markdown.contains("| stall | 0.05 measured | ≤ 0.02 | fail |"), "{markdown}");
    let lines =
        selftest_lines(&checks(&[("delay", CheckOutcome::Pass), ("stall", CheckOutcome::Fail)]).unwrap());
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[1], "generator selftest: stall fail: 0.05 measured; bound: ≤ 0.02");
}

#[test]
fn an_accuracy_check_that_took_more_than_one_try_says_so_everywhere() {
    let tried = |outcome| {
        let made = checks(&[("delay", CheckOutcome::Pass), ("stall", outcome)]);
        let Some(Selftest::Ran(mut report)) = made else { unreachable!() };
        report.checks[0].figures.insert("tries".into(), 1.0);
        report.checks[1].figures.insert("tries".into(), 3.0);
        Selftest::Ran(report)
    };
    let [_, markdown, _] = proved(Some(tried(CheckOutcome::Pass)));
    assert!(markdown.contains(": delay, stall (at try 3)."), "{markdown}");
    assert!(markdown.contains("| ≤ 0.02 | pass (at try 3) |"), "{markdown}");
    assert!(selftest_lines(&tried(CheckOutcome::Pass))[0].ends_with(": delay, stall (at try 3)"));
    let lines = selftest_lines(&tried(CheckOutcome::Fail));
    assert!(lines[0].contains(" pass: ") && lines[1].contains(" fail (all 3 tries): "), "{lines:?}");
}

#[test]
fn the_cores_of_the_selftest_are_those_it_had() {
    let mut results = results();
    results.selftest = checks(&[("delay", CheckOutcome::Pass)]);
    assert!(file(&results, "report.md").contains("ran on this machine: 1 of 1 check passed"));
    results.selftest_cores = Some([3, 0]);
    let said = "this machine with the generator on core 3 and the test server on core 0: 1 of 1 check passed";
    assert!(file(&results, "report.md").contains(said));
}

#[test]
fn what_came_of_the_selftest_is_always_said() {
    let broke = || Some(Selftest::Broke("weir selftest: it ended without a report: no room.".into()));
    for (selftest, said, warned) in [
        (
            checks(&[("delay", CheckOutcome::Pass), ("faults", CheckOutcome::Pass)]),
            "2 of 2 checks passed in 6.2 s: delay, faults.",
            false,
        ),
        (checks(&[("delay", CheckOutcome::NotChecked)]), "0 of 1 check passed in 6.2 s.", false),
        (checks(&[]), "0 of 0 checks passed", true),
        (broke(), "could not be run: weir selftest: it ended without a report: no room.", true),
        (Some(Selftest::Skipped), "skipped (--no-selftest, or selftest = false).", false),
        (Some(Selftest::Simulated), "not needed, the target is simulated", false),
        (None, "Not known: these results were recorded before weir had this test.", false),
    ] {
        for page in proved(selftest.clone()).iter().take(2) {
            let (_, section) = page.split_once("Accuracy of the load generator").unwrap();
            assert!(section.contains(said), "{said:?} is missing in {section}");
            assert_eq!(page.contains("Warning: "), warned, "{selftest:?}");
        }
        assert!(selftest.iter().all(|selftest| selftest_lines(selftest).len() == 1));
    }
}

#[test]
fn results_from_before_the_selftest_are_read_and_keep_their_bytes() {
    let mut results = results();
    results.selftest = None;
    let text = serde_json::to_string(&results).unwrap();
    assert!(!text.contains("selftest"));
    assert_eq!(serde_json::from_str::<Results>(&text).unwrap(), results);
}

#[test]
fn an_open_loop_shows_what_was_offered_and_how_late_it_was_sent() {
    let mut results = results();
    assert!(!file(&results, "results.csv").contains("offered_rps"), "a closed loop has no such column");
    for trial in results.trials.iter_mut().filter(|trial| trial.workload == "put") {
        let load = trial.load.as_mut().unwrap();
        load.pacing = "constant 240/s".into();
        load.service = Some(load.latency);
        let over_capacity = trial.level == 1;
        // With random arrivals fewer may be due than were asked for.
        let due = (228.0 * load.window_secs).round() as u64;
        load.schedule = Some(ScheduleReport { offered_rps: 240.0, due, over_capacity, ..Default::default() });
    }
    let page = file(&results, "report.md");
    let (front, put) = page.split_once("\n## put").unwrap();
    for said in ["| 240 req/s offered; over capacity at 1 client; p50 ", " at 32 clients |"] {
        assert!(front.contains(said), "{said:?} is missing in {front}");
    }
    for said in [
        "Open loop, constant 240/s: requests are sent when they are due",
        "| clients | offered, req/s | goodput, req/s |",
        "| mean service time | p99 send lag |",
        "At levels over capacity, latency is that of a queue that grows.",
    ] {
        assert!(put.contains(said), "{said:?} is missing in {put}");
    }
    let lines: Vec<String> = headline(&results).lines().map(str::to_owned).collect();
    assert!(lines[5].contains("an open loop has none"), "{lines:?}");
    assert!(lines[6].contains("an open loop does not show it"), "{lines:?}");
    // Of a closed loop the same page says what it always said.
    assert!(page.split_once("\n## get").unwrap().1.split_once("\n## put").unwrap().0.contains("### Knee"));
    assert!(file(&results, "results.csv").lines().next().unwrap().contains("offered_rps"));
    // A little less than was offered is not over capacity, and not all.
    for (goodput, said) in [(228.0, "all of it completed"), (216.6, "at least 95.0 % of it completed")] {
        for load in results.trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
            load.schedule.iter_mut().for_each(|schedule| schedule.over_capacity = false);
            load.goodput_rps = goodput;
        }
        let page = file(&results, "report.md");
        assert!(
            page.split_once("\n## put").unwrap().0.contains(&format!("| 240 req/s offered; {said}")),
            "{page}"
        );
    }
    // Where no level kept up, the rate that was asked for is no answer to how fast it is.
    for load in results.trials.iter_mut().filter_map(|trial| trial.load.as_mut()) {
        load.schedule.iter_mut().for_each(|schedule| schedule.over_capacity = true);
    }
    let page = file(&results, "report.md");
    let front = page.split_once("\n## put").unwrap().0;
    assert!(
        front.contains(" req/s completed; 240 req/s offered; over capacity at 1, 2, 4, 8, 16, 32 clients"),
        "{front}"
    );
    assert!(!front.contains("| 240 req/s"), "{front}");
}

#[test]
fn a_knee_says_what_its_brackets_are_or_why_there_is_none() {
    let of = |stations: &str, levels: &[u32], repetitions| {
        file(&sweep(&model(stations), &["get"], levels, repetitions, "300ms"), "report.md")
    };
    let knee = |repetitions| of("cpu 1 1ms, delay 0 4ms", &[1, 4, 16, 64], repetitions);
    assert!(knee(3).contains("- In brackets: 95 % interval over repetitions."));
    assert!(knee(2).contains("- In brackets: what follows from the lowest and highest repetition."));
    assert!(!knee(1).contains("In brackets: ") && knee(1).contains("| broken stick: "));
    let few = of("cpu 1 1ms", &[1, 64], 1);
    assert!(few.contains("| unknown; fewer than three valid levels |"), "{few}");
    let many = of("cpu 1 1ms", &[16, 32, 64], 1);
    assert!(many.contains("| unknown; the lowest level already has over half of the capacity |"), "{many}");
}

#[test]
fn one_client_alone_shows_no_limit_and_no_delay() {
    let results = sweep(&model("cpu 1 =2ms"), &["get"], &[1], 3, "1s");
    let said = headline(&results);
    assert!(
        said.contains("limit       unknown; one client waits for nobody; more clients show the limit"),
        "{said}"
    );
}

/// It was "0 % busy at 0 clients".
#[test]
fn conflicts_are_a_share_of_the_statements_and_nothing_that_could_be_halved() {
    let mut results = sweep(&model("delay 0 =5ms"), &["put"], &[1, 2, 4], 3, "1s");
    for trial in &mut results.trials {
        let share = if trial.level == 1 { 0.0 } else { 30.0 };
        for (name, to) in [("conditional_writes", 100.0), ("conflicts", share)] {
            trial.opened.counters.insert(format!("stats.weir_store_{name}_total"), 0.0);
            trial.closed.counters.insert(format!("stats.weir_store_{name}_total"), to);
        }
        trial.load.as_mut().unwrap().error_ratio = if trial.level == 1 { 0.0 } else { 0.04 };
    }
    let page = file(&results, "report.md").replace('\u{a0}', " ");
    assert!(page.contains("conflicts over the same keys, 30 % of the statements (suspected)"), "{page}");
    assert!(!page.contains("0 clients") && !page.contains("What would help"), "{page}");
}

/// It was "stay at 4–8 clients or fewer".
#[test]
fn of_several_levels_to_stay_at_the_least_is_named() {
    let mut results = results();
    for trial in results.trials.iter_mut().filter(|trial| trial.level >= 8) {
        let load = trial.load.as_mut().unwrap();
        load.errors.insert("timeout".into(), 30);
        load.error_ratio = f64::from(trial.level) / 100.0;
    }
    let page = file(&results, "report.md").replace('\u{a0}', " ");
    assert!(page.contains("stay at 4 clients or fewer (--levels)"), "{page}");
}
