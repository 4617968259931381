//! What the report shows of evidence that is filled in by hand: effects, places.

use crate::answers::answers;
use crate::{FILES, File, rendered};
use lab_analysis::{
    Blocked, Effect, Estimate, Evidence, Findings, Grade, Growth, Help, Place, Population, Reason, Shown,
    findings,
};
use lab_data::results::{Change, Limit, ResourceKind, Results};
use lab_data::simulated::tests::{model, sweep};

const LEVELS: &[u32] = &[1, 2, 4, 8, 16];

/// A sweep of two workloads long enough for a course, and its findings with everything in them.
fn proven() -> (Results, Findings) {
    let results = sweep(&model("cpu 1 =20ms, disk 1 =5ms, net 0 =50ms"), &["get", "put"], LEVELS, 3, "30s");
    let mut findings = findings(&results);
    let found = &mut findings.workloads[0];
    found.bottleneck.grade = Grade::Confirmed;
    found.bottleneck.next.as_mut().unwrap().ceiling_rps = Some(200.0);
    found.bottleneck.because =
        vec![Reason::Queue(Growth { resource: "cpu".into(), of_each: 0.98, low: 4, high: 16 })];
    let named = &mut found.bottleneck.named[0];
    (named.limit, named.queue_growth) = (Some(Limit::CommitPath), Some(0.98));
    named.within.push("disk".to_owned());
    let effect = |name: &str, raises: &[&str], expected_loss: f64, losses: &[f64]| Effect {
        change: Change {
            name: name.into(),
            raises: raises.iter().map(|name| (*name).to_owned()).collect(),
            added_us: 250.0,
            factor: None,
        },
        level: 16,
        rounds: losses.len() as u32,
        of: raises.first().map(|name| (*name).to_owned()),
        expected_loss,
        as_delay: 0.05,
        loss: Estimate::of(losses).unwrap(),
        shown: if losses[0] > 0.1 { Shown::Limit } else { Shown::NotLimit },
        elasticity: Estimate::of(&losses.iter().map(|loss| loss / expected_loss).collect::<Vec<_>>())
            .unwrap(),
    };
    found.effects = vec![
        effect("cpu", &["cpu"], 0.23, &[0.22, 0.23, 0.24]),
        effect("store_worker", &["disk"], 0.2, &[0.001, -0.002, 0.004]),
        effect("delay", &[], 0.2, &[0.0, 0.001, -0.001]),
    ];
    for row in &mut found.rows {
        let clients = f64::from(row.level);
        row.population = Some(Population {
            clients,
            away: 0.0,
            places: vec![
                place("cpu", false, clients * 0.5, clients * 0.2),
                place("disk", false, clients * 0.001, clients * 0.2),
                place("flush", true, clients * 0.1, clients * 0.1),
            ],
            unaccounted: clients * 0.099,
            is_late: false,
        });
    }
    (results, findings)
}

fn place(resource: &str, inner: bool, waiting: f64, serving: f64) -> Place {
    Place {
        resource: resource.into(),
        is_generator: false,
        inner,
        waiting: Some(waiting),
        serving: Some(serving),
    }
}

fn text(files: &[File], name: &str) -> String {
    let file = files.iter().find(|file| file.name == name).unwrap_or_else(|| panic!("no {name}"));
    file.text.replace('\u{a0}', " ")
}

fn check(text: &str, all: &[&str]) {
    for said in all {
        assert!(text.contains(said), "{said:?} is missing in {text}");
    }
}

#[test]
fn every_file_is_written_and_the_same_findings_give_the_same_bytes() {
    let (results, findings) = proven();
    let files = rendered(&results, &findings);
    for name in FILES {
        let name = name.replace("WORKLOAD", "get");
        assert!(files.iter().any(|file| file.name == name && !file.text.is_empty()), "{name}");
    }
    assert!(files == rendered(&results, &findings));
}

#[test]
fn a_generator_as_busy_as_a_limit_is_told_from_one() {
    let (results, mut findings) = proven();
    let found = &mut findings.workloads[0];
    let name = "generator CPU".to_owned();
    found.bottleneck.candidates.push(Evidence {
        resource: name.clone(),
        id: name.clone(),
        kind: ResourceKind::Generator,
        utilization: 0.97,
        ..Evidence::default()
    });
    let (expected_loss, loss) = (0.17, Estimate::of(&[0.02, 0.03, 0.04]).unwrap());
    let effect = Effect { of: Some(name), expected_loss, loss, ..found.effects[1].clone() };
    found.effects.push(effect);
    for said in [
        "Generator CPU is 97 % busy, too, but not the limit: when the test added ",
        " of work to each request, goodput fell by 3 %, and not by the 17 % that a limit loses. The generator’s other work for each request took less time then.",
    ] {
        check(&text(&rendered(&results, &findings), "report.html"), &[said]);
    }
}

#[test]
fn the_front_answers_how_fast_where_what_and_whether() {
    let (results, findings) = proven();
    let files = rendered(&results, &findings);
    let html = text(&files, "report.html");
    let (front, _) = html.split_once("<details").unwrap();
    check(
        front,
        &[
            "<dt>throughput</dt><dd>50.0",
            "<dt>knee</dt><dd>3.8 clients",
            "<dt>limit</dt><dd>commit path, cpu 100 % busy (confirmed)</dd><dd>next limit: disk, at 200 req/s</dd>",
            "<dt>confidence</dt><dd>",
        ],
    );
    let markdown = text(&files, "report.md");
    check(
        &markdown,
        &[
            "| workload | throughput | knee | limit | confidence |",
            "| commit path, cpu 100 % busy (confirmed)",
        ],
    );
}

#[test]
fn what_lowers_the_confidence_in_a_workload_stands_on_its_card() {
    let (mut results, _) = proven();
    let front = |results: &Results| {
        let html = text(&rendered(results, &findings(results)), "report.html");
        html.split_once("<details").unwrap().0.to_owned()
    };
    results.scale = Some(0.5);
    check(&front(&results), &["class=\"care\"", "<dd>medium</dd><dd>failed checks: full length</dd>"]);
    results.environment.push(("build".into(), "debug".into()));
    check(
        &front(&results),
        &["class=\"stop\"", "<dd>low</dd><dd>failed checks: optimized build; full length</dd>"],
    );
    results.trials.clear();
    check(&front(&results), &["class=\"stop\"", "<dd>low</dd>"]);
}

#[test]
fn interventions_are_rows_with_what_a_limit_would_lose() {
    let (results, mut findings) = proven();
    let files = rendered(&results, &findings);
    let markdown = text(&files, "report.md");
    check(
        &markdown,
        &[
            "### Why commit path is named",
            "From 4 to 16 clients, each added client increased the number of clients that wait for cpu by 0.98.",
            "| cpu | the limit: commit path | 100 % | 20.0 ms ±0 % | 50.0 | 0.98 |",
            "| disk | needs the limit | 25 % | 5.00 ms ±0 % | 200 | ",
            "| cpu | +250 µs per request | 16 | 3 | 23.0 % | 23.0 % (20.5 % to 25.5 %) | 1.00 (0.89 to 1.11) | yes |",
            "| disk | +250 µs per batch | 16 | 3 | 20.0 % | 0.1 % (−0.6 % to 0.8 %) | 0.01 (−0.03 to 0.04) | no |",
            "| nothing (control: a pause in each request) | +250 µs per request | 16 | 3 | – |",
        ],
    );
    let (_, put) = markdown.split_once("\n## put").unwrap();
    assert!(!put.contains("measured ÷ expected"), "{put}");
    let named = &mut findings.workloads[0].bottleneck.named;
    named.push(Evidence { resource: "disk".into(), ..Evidence::default() });
    check(&text(&rendered(&results, &findings), "report.md"), &["### Why commit path and disk are named"]);
}

#[test]
fn all_clients_are_in_a_table_that_leaves_out_what_is_counted_elsewhere() {
    let (results, findings) = proven();
    let markdown = text(&rendered(&results, &findings), "report.md");
    let (get, _) = markdown.split_once("\n## put").unwrap();
    let (_, table) = get.split_once("### Where the clients are").unwrap();
    // What waits for the disk is too little for a column, and a flush is counted with what holds it.
    check(
        table,
        &[
            "| clients | cpu, waiting | cpu, served | disk, served | unaccounted |",
            "| 16 | 8.0 | 3.2 | 3.2 | 1.6 |",
        ],
    );
}

#[test]
fn a_bottleneck_is_called_what_it_is_and_says_where_it_was_seen() {
    let (_, findings) = proven();
    let limit = |i: usize| answers(&findings.workloads[i]).remove(2).said;
    assert_eq!(limit(0), "commit path, cpu 100 % busy (confirmed)");
    assert_eq!(limit(1), "cpu, 100 % busy (supported)");
}

#[test]
fn of_what_has_places_a_request_holds_its_place_half_as_long() {
    for (limit, resource, said) in [
        (Limit::AcceptQueue, "accept queue", "held its connection half as long as now, goodput"),
        (Limit::Pool, "a pool of 4", "held its place in a pool of 4 half as long as now, goodput"),
        (Limit::OneThread, "one thread", "needed half as much time of one thread as now, goodput"),
    ] {
        let (results, mut findings) = proven();
        let bottleneck = &mut findings.workloads[0].bottleneck;
        (bottleneck.grade, bottleneck.because) = (Grade::Supported, Vec::new());
        bottleneck.help = Some(Help { rps: 1520.0, clients: None, then: None });
        let blocked = Blocked { in_threads: true, ..blocked(Grade::Supported, "threads wait", Some(31.8)) };
        let named = Evidence { resource: resource.into(), limit: Some(limit), ..Evidence::default() };
        bottleneck.named = vec![Evidence { blocked: Some(blocked), ..named }];
        let stacks =
            |findings: &Findings| text(&rendered(&results, findings), "report.md").contains("The stacks of");
        assert_eq!(stacks(&findings), limit == Limit::Pool);
        check(&text(&rendered(&results, &findings), "report.md"), &[&format!("if each request {said}")]);
        // Where no thread waits, none shows where.
        let named = &mut findings.workloads[0].bottleneck.named[0];
        named.blocked.as_mut().unwrap().in_threads = false;
        assert!(!stacks(&findings));
        // It has room behind the name that `weir lab --command` gives its workload.
        findings.workloads[0].name = "requests".into();
        check(&crate::text::headline(None, &crate::page::cards(&findings)), &["(supported); if halved: "]);
    }
}

/// So many of 32 clients, and no thread.
fn blocked(grade: Grade, seen: &'static str, count: Option<f64>) -> Blocked {
    Blocked {
        grade,
        seen,
        count,
        clients: 32,
        at_once: None,
        in_threads: false,
        served: None,
        may_read: true,
        thread: None,
    }
}

/// Threads that wait for a core are not the use of the processor.
#[test]
fn a_processor_that_threads_want_is_as_busy_as_it_was() {
    let (results, mut findings) = proven();
    let bottleneck = &mut findings.workloads[0].bottleneck;
    let blocked = blocked(Grade::Suspected, "threads compute or wait for a core", Some(2.3));
    let named = Evidence {
        resource: "server CPU".into(),
        limit: Some(Limit::ServerCpu),
        utilization: 0.64,
        ..Evidence::default()
    };
    (bottleneck.grade, bottleneck.because) = (Grade::Suspected, vec![Reason::Blocked(blocked.clone())]);
    bottleneck.named = vec![Evidence { blocked: Some(blocked), ..named }];
    let page = text(&rendered(&results, &findings), "report.md");
    check(
        &page,
        &[
            "server CPU, 64 % busy, 2.3 threads want a core (suspected)",
            "At 32 clients threads compute or wait for a core: 2.3.",
        ],
    );
}

/// What clients wait for is not named without a level of one client; the report says what to do.
#[test]
fn where_a_lock_may_be_a_pool_a_level_of_one_client_is_asked_for() {
    let (results, mut findings) = proven();
    let bottleneck = &mut findings.workloads[0].bottleneck;
    let blocked = blocked(Grade::NotIdentified, "requests wait without a thread", None);
    (bottleneck.grade, bottleneck.named) = (Grade::NotIdentified, Vec::new());
    bottleneck.because = vec![Reason::Blocked(blocked)];
    findings.workloads[0].name = "requests".into();
    let said = "At 32 clients requests wait without a thread. Whether this is a lock, a pool or a delay shows only with a valid level of 1 client";
    check(&text(&rendered(&results, &findings), "report.md"), &[said]);
    let answers = crate::text::headline(None, &crate::page::cards(&findings));
    check(&answers, &["not identified; it takes a valid level of 1 client"]);
}
