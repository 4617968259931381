//! The page, before it is spelled as HTML or Markdown: what stands on it, in which order.

use super::Report;
use super::beside;
use super::columns::{Bound, columns};
use super::course;
use super::evidence;
use super::front::{Lead, leads};
use super::limit;
use super::proof;
use super::resources;
use super::words::{self, UNKNOWN};
use kv::units::short;
use lab_analysis::{CHECKS, Capacity, Grade, Outcome, Spot, WorkloadFindings};
use lab_data::results::{Placement, Results};

/// A piece of the page. All text is plain; a writer escapes it.
pub(super) enum Block {
    /// The head: a line above it, and the title.
    Title { above: String, title: String },
    /// What speaks against believing the page, before anything else is read.
    Warning(String),
    /// The front: questions, answers and a sentence for each workload.
    Lead(Vec<Lead>),
    /// One sentence for each workload: its name, where its section is, and the sentence.
    Front(Vec<(String, String, String)>),
    /// A heading of the second order and the name it is linked by.
    Section { title: String, anchor: String },
    /// The same above all that is said of one workload; on paper it begins a page.
    Workload { title: String, anchor: String },
    /// A heading of the third order.
    Part(String),
    /// A paragraph.
    Text(String),
    /// Lines that explain the table above them.
    Notes(Vec<String>),
    /// A table.
    Table(Table),
    /// A drawing by its index, and how to read it: first the plots of every workload, then the courses of every one, then what
    /// interventions did to every one.
    Figure { index: usize, caption: String },
    /// Text to be kept as it is.
    Verbatim(String),
}

/// A table. Every row has a cell for every column.
pub(super) struct Table {
    /// Heading and unit of each column.
    pub(super) head: Vec<(String, String)>,
    /// Whether a column holds words, aligned to the left, instead of figures.
    pub(super) words: Vec<bool>,
    /// The rows and whether they are set back, because they are not valid.
    pub(super) rows: Vec<(Vec<String>, bool)>,
}

impl Table {
    /// A table with `head`; a heading that begins with `<` stands above words.
    pub(super) fn new(head: &[&str]) -> Table {
        Table {
            head: head.iter().map(|name| (name.trim_start_matches('<').to_owned(), String::new())).collect(),
            words: head.iter().map(|name| name.starts_with('<')).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub(super) fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push((cells.into_iter().collect(), false));
    }
}

/// What the summary says of a workload: heading and cell.
type Summary = (&'static str, fn(&WorkloadFindings) -> String);

const SUMMARY: &[Summary] = &[
    ("<workload", |found| found.name.clone()),
    ("<capacity, req/s", |found| match &found.capacity {
        Capacity::Unknown => UNKNOWN.to_owned(),
        Capacity::Reached { rps, .. } => words::spread(rps),
        Capacity::NotReached { rps, .. } => words::spread(rps),
        Capacity::Offered { rps, .. } => format!("{} offered", short(*rps)),
    }),
    ("knee, clients", |found| words::known(found.knee.as_ref().map(|knee| knee.clients), words::clients)),
    ("p50 there", |found| words::latency(found.knee.as_ref().and_then(|knee| knee.latency_us_p50))),
    ("p99 there", |found| words::latency(found.knee.as_ref().and_then(|knee| knee.latency_us_p99))),
    ("<bottleneck", |found| match found.bottleneck.grade {
        Grade::Confirmed | Grade::Supported => words::limits(&found.bottleneck.named),
        Grade::Generator if found.bottleneck.named.is_empty() => UNKNOWN.to_owned(),
        Grade::Generator => "generator".to_owned(),
        Grade::NotIdentified if words::is_open(found) => UNKNOWN.to_owned(),
        Grade::NotIdentified => "not identified".to_owned(),
        Grade::Delay => "none: a delay".to_owned(),
        Grade::FastFail => "none: it fails fast".to_owned(),
    }),
    ("<grade", |found| {
        let grade = match (found.bottleneck.grade, found.bottleneck.named.len()) {
            (Grade::Confirmed, 0 | 1) => "confirmed",
            (Grade::Confirmed, _) => "confirmed, shared",
            (Grade::Supported, 0 | 1) => "supported",
            (Grade::Supported, _) => "supported, shared",
            (Grade::Delay, _) => "a delay",
            (Grade::FastFail, _) => "no capacity",
            (Grade::Generator, _) => "target unknown",
            (Grade::NotIdentified, _) => UNKNOWN,
        };
        grade.to_owned()
    }),
    ("<next", |found| {
        let next = found.bottleneck.next.as_ref();
        next.map_or(UNKNOWN.to_owned(), |of| format!("{} {} req/s", of.resource, short(of.ceiling_rps)))
    }),
    ("usable levels", |found| {
        let usable = found.rows.iter().filter(|row| row.usable()).count();
        format!("{usable} of {}", found.rows.len())
    }),
];

/// The whole page.
pub(super) fn page(report: &Report) -> Vec<Block> {
    let results = report.results;
    let mut page = vec![Block::Title {
        above: format!("weir {} · {} · {}", results.weir_version, results.name, results.started),
        title: results.title.clone(),
    }];
    page.extend(proof::warning(results).map(Block::Warning));
    page.push(Block::Lead(leads(report)));
    believe(report, &mut page);
    page.extend(proof::blocks(results));
    page.push(section("All workloads", "summary"));
    let mut summary = Table::new(&SUMMARY.iter().map(|(heading, _)| *heading).collect::<Vec<_>>());
    for found in &report.findings.workloads {
        summary.push(SUMMARY.iter().map(|(_, cell)| cell(found)));
    }
    page.push(Block::Table(summary));
    page.push(Block::Notes(vec![
        "Capacity is the mean over the levels of the plateau with its interval; ≥ gives the lower end of the interval at \
         the best level, where the plateau was not reached or the generator was in the way. Of an open loop it is the rate \
         that was offered. Latency there was measured at the level nearest to the knee."
            .to_owned(),
        "In the tables of levels below: goodput is the mean over runs with its 95 % interval (Student’s t; lowest to \
         highest of two runs); the mean latency is that of all attempts, percentiles are the median over runs; Little \
         and gates show the worst run; the columns named after resources are their busy share, 0 to 1. For a disk that \
         is no utilization: it works in parallel, and for every process of the machine."
            .to_owned(),
    ]));
    hit_ratios(report, &mut page);
    for (index, found) in report.findings.workloads.iter().enumerate() {
        workload(report, index, found, &mut page);
    }
    circumstances(report, &mut page);
    page
}

/// A heading of the second order.
pub(super) fn section(title: &str, anchor: &str) -> Block {
    Block::Section { title: title.to_owned(), anchor: anchor.to_owned() }
}

/// What speaks for and against the figures.
fn believe(report: &Report, page: &mut Vec<Block>) {
    let findings = &report.findings;
    page.push(section("May we believe it?", "believe"));
    let place = |spot: &Spot| format!("{}, {}", spot.workload, words::count(spot.level, "client"));
    let mut said = vec![format!(
        "{} of {} planned delivered numbers ({} of each workload at each level).",
        words::count(findings.ran, "trial"),
        findings.planned,
        words::count(report.results.repetitions, "run"),
    )];
    said.push(match &findings.worst_little {
        Some(spot) => format!(
            "The row furthest from Little’s law is off by {:.2} % ({}).",
            spot.value.abs() * 100.0,
            place(spot)
        ),
        None => "Little’s law could not be checked anywhere.".to_owned(),
    });
    said.push(match &findings.busiest_generator {
        Some(spot) => format!(
            "The load generator used at most {} of its cores ({}).",
            words::percent(spot.value),
            place(spot)
        ),
        None => "How busy the load generator’s cores were was not read.".to_owned(),
    });
    said.push(sharing(&report.results.placements));
    if let Some(share) = report.results.scale {
        said.push(format!(
            "This run is scaled down: the durations of the file are shortened to {share} of themselves, so that slow \
             changes and rare events are not in it."
        ));
    }
    page.push(Block::Text(said.join(" ")));

    let mut checks = Table::new(&["<check", "<rule", "passed", "failed", "not checked", "<seen"]);
    for (check, count) in CHECKS.iter().zip(&findings.checks) {
        // A zero is quieter than a figure.
        let figure = |n: u32| if n == 0 { "·".to_owned() } else { n.to_string() };
        let counts = [count.passed, count.failed, count.not_checked].map(figure);
        let head = [check.name.to_owned(), check.about.to_owned()];
        checks.push(head.into_iter().chain(counts).chain([count.seen.clone()]));
    }
    page.push(Block::Table(checks));
    let open = CHECKS.iter().zip(&findings.checks).filter(|(_, count)| !count.missing.is_empty());
    let open = open.map(|(check, count)| format!("{}: {}.", words::capitalized(check.name), count.missing));
    let counted = "Counted are levels with numbers, each by the worst of its runs; workloads; or the run.";
    page.push(Block::Notes(std::iter::once(counted.to_owned()).chain(open).collect()));
}

fn sharing(placements: &[Placement]) -> String {
    if placements.is_empty() {
        return "Nothing was pinned to a core.".to_owned();
    }
    // Those that share do so with the same others: each group is named where its first part stands.
    let mut shared: Vec<String> = Vec::new();
    for (index, part) in placements.iter().enumerate() {
        let others: Vec<&str> = part.shares_with.iter().map(String::as_str).collect();
        let is_first = !placements[..index].iter().any(|before| others.contains(&before.part.as_str()));
        if !others.is_empty() && is_first {
            let all = [&[part.part.as_str()], others.as_slice()].concat();
            shared.push(format!("{} share their cores", words::listed(&all)));
        }
    }
    match shared.is_empty() {
        true => "No two parts shared a core.".to_owned(),
        false => format!("On the cores: {}.", shared.join("; ")),
    }
}

/// Policies beside each other, where the target simulated some.
fn hit_ratios(report: &Report, page: &mut Vec<Block>) {
    let workloads = &report.findings.workloads;
    let mut policies: Vec<&str> =
        workloads.iter().flat_map(|found| &found.hit_ratios).filter_map(|of| of.policy.as_deref()).collect();
    policies.sort_unstable();
    policies.dedup();
    if policies.is_empty() {
        return;
    }
    page.push(section("Hit ratio by policy", "hits"));
    let mut table = Table::new(&[&["<workload", "reads", "the cache"], policies.as_slice()].concat());
    for found in workloads.iter().filter(|found| !found.hit_ratios.is_empty()) {
        let of = |policy: Option<&str>| found.hit_ratios.iter().find(|of| of.policy.as_deref() == policy);
        let ratio = |policy| words::known(of(policy).map(|of| of.hit_ratio), |ratio| format!("{ratio:.3}"));
        let reads = words::known(of(None).map(|of| of.reads), short);
        let cells = policies.iter().map(|policy| ratio(Some(*policy)));
        table.push([found.name.clone(), reads, ratio(None)].into_iter().chain(cells));
    }
    page.push(Block::Table(table));
    page.push(Block::Notes(vec![
        "Hits over reads, 0 to 1, as the target counted them in the windows of all trials of the workload. The cache \
         itself follows the policy it was started with; the others were simulated beside it on the same requests and \
         limits, without rows (--shadow-policies)."
            .to_owned(),
    ]));
}

fn workload(report: &Report, index: usize, found: &WorkloadFindings, page: &mut Vec<Block>) {
    page.push(Block::Workload { title: found.name.clone(), anchor: report.slugs[index].clone() });
    if !found.about.is_empty() {
        page.push(Block::Text(found.about.clone()));
    }
    page.extend(words::pacing(found).map(Block::Text));
    if report.plots[index].is_some() {
        page.push(Block::Figure { index, caption: caption(found) });
    }
    page.push(Block::Text(evidence::sentences(found)));
    let workloads = report.findings.workloads.len();
    let effects = report.effects[index].as_ref().map(|_| 2 * workloads + index);
    page.extend(evidence::blocks(found, effects));
    page.push(Block::Part("Every level".to_owned()));

    let columns = columns(report.results);
    // A resource that no trial of this workload has is not shown as a column of dashes.
    let read = |column: &&Bound| column.resource().is_none_or(|i| found.rows.iter().any(|row| row.uses(i)));
    let shown: Vec<_> =
        columns.iter().filter(read).filter_map(|column| Some((column, column.heading.clone()?))).collect();
    let table = Table {
        head: shown.iter().map(|(_, heading)| heading.clone()).collect(),
        words: vec![false; shown.len()],
        rows: (found.rows.iter())
            .map(|row| (shown.iter().map(|(column, _)| column.cell(row).text).collect(), !row.usable()))
            .collect(),
    };
    page.push(Block::Table(table));
    let mut notes = notes(found);
    let errors = errors(found);
    if errors.is_none() && found.rows.iter().any(|row| row.runs > 0) {
        notes.push("No attempt failed at any level.".to_owned());
    }
    page.push(Block::Notes(notes));
    if let Some(errors) = errors {
        page.push(Block::Part("Failed attempts by class".to_owned()));
        page.push(Block::Table(errors));
    }
    page.extend(limit::blocks(found));
    if let Some(of) = &found.course {
        page.push(Block::Part("How a run went".to_owned()));
        let index = workloads + index;
        page.push(Block::Figure { index, caption: course::caption(of) });
    }
    page.extend(resources::parts(found));
    page.extend(beside::blocks(found));
}

/// What flags may have changed of the file that is printed below.
fn as_run(results: &Results) -> String {
    let levels: Vec<String> = results.levels.iter().map(u32::to_string).collect();
    let loads = || results.trials.iter().filter_map(|trial| trial.load.as_ref());
    let windows = || loads().map(|load| load.window_secs);
    let (least, most) = (windows().fold(f64::INFINITY, f64::min), windows().fold(0.0, f64::max));
    let spans = loads().next().map_or_else(String::new, |load| {
        // Some end by themselves.
        let window = match format!("{least:.1}") == format!("{most:.1}") {
            true => format!("{least:.1} s of window"),
            false => format!("windows of {least:.1} to {most:.1} s"),
        };
        format!(", {:.1} s of warm-up and {window}", load.warmup_secs)
    });
    let own = results.workloads.iter().filter_map(|workload| {
        let levels: Vec<String> = workload.levels.as_ref()?.iter().map(u32::to_string).collect();
        Some(format!("; {} at {}", workload.name, levels.join(", ")))
    });
    let scaled = results.scale.map_or_else(String::new, |share| {
        format!(" Scaled: the durations of the file are shortened to {share} of themselves, and levels may be left out.")
    });
    format!(
        "Run with {} at {} clients each{}{spans}.{scaled}",
        words::count(results.repetitions, "repetition"),
        levels.join(", "),
        own.collect::<String>()
    )
}

fn caption(found: &WorkloadFindings) -> String {
    let mut said = match words::is_open(found) {
        true => "Whiskers: the interval over runs.".to_owned(),
        false => "Thin grey: the capacity. Whiskers: the interval over runs.".to_owned(),
    };
    if found.rows.iter().any(|row| row.population.is_some()) {
        said += " Where the clients are: before a resource they wait for it (full colour), in it they are served (pale); hatched, \
                 nobody can tell.";
    }
    if found.rows.iter().any(|row| row.population.as_ref().is_some_and(|of| of.is_late)) {
        said += " Sockets were looked at late, for want of real-time priority (ulimit -r): who waits for the server and who for the \
                 generator is less sure.";
    }
    if found.rows.iter().any(|row| row.runs > 0 && !row.usable()) {
        said += " Hollow: a gate failed.";
    }
    if found.rows.iter().any(|row| row.runs == 0) {
        said += " No point: no run delivered numbers.";
    }
    if found.knee.is_some() {
        said += if found.printed.is_some() { " Dashed, upright: the knee." } else { " Dashed: the knee." };
    }
    if let Some(sweep) = &found.printed {
        said += " Dashed lines: as printed";
        said += if sweep.off() > 0 {
            ", squares hollow where a row is off Little’s law by more than 5 %."
        } else {
            "."
        };
    }
    said
}

/// What is wrong at which levels, and what to do about it: gate by gate, then the runs without numbers.
fn notes(found: &WorkloadFindings) -> Vec<String> {
    let mut notes = Vec::new();
    for check in CHECKS {
        // Levels with the same figure share a clause; the remedy is said once.
        let mut clauses: Vec<(&str, Vec<u32>)> = Vec::new();
        let mut last_remedy = None;
        for row in &found.rows {
            let failed = row.checks.iter().find(|of| of.id == check.id && of.outcome == Outcome::Fail);
            let Some(failed) = failed else { continue };
            last_remedy = Some(&failed.remedy);
            match clauses.iter_mut().find(|(said, _)| *said == failed.seen) {
                Some((_, levels)) => levels.push(row.level),
                None => clauses.push((&failed.seen, vec![row.level])),
            }
        }
        let Some(remedy) = last_remedy else { continue };
        let clauses: Vec<String> = clauses
            .iter()
            .map(|(seen, levels)| format!("at {}: {seen}", words::each_level(levels)))
            .collect();
        notes.push(format!("{}: {}. {remedy}", words::capitalized(check.name), clauses.join("; ")));
    }
    for of in found.checks.iter().filter(|of| of.failed()) {
        notes.push(format!("{}: {}. {}", words::capitalized(of.check().name), of.seen, of.remedy));
    }
    for row in &found.rows {
        let planned = words::count(row.planned, "run");
        let at = words::each_level(&[row.level]);
        notes.extend(
            row.failures
                .iter()
                .map(|(why, runs)| format!("{runs} of {planned} at {at} without numbers: {why}.")),
        );
    }
    notes
}

/// Failed attempts by level and class, of all runs together. `None` where none failed.
fn errors(found: &WorkloadFindings) -> Option<Table> {
    let mut classes: Vec<&str> =
        found.rows.iter().flat_map(|row| row.errors.keys().map(String::as_str)).collect();
    classes.sort_unstable();
    classes.dedup();
    let mut table = Table::new(&[&["clients"], classes.as_slice()].concat());
    for row in found.rows.iter().filter(|row| !row.errors.is_empty()) {
        let counts =
            classes.iter().map(|class| row.errors.get(*class).map_or("·".to_owned(), u64::to_string));
        table.push(std::iter::once(row.level.to_string()).chain(counts));
    }
    (!classes.is_empty()).then_some(table)
}

/// Where it was measured and how to do it again.
fn circumstances(report: &Report, page: &mut Vec<Block>) {
    let results = report.results;
    page.push(section("Where and how", "circumstances"));
    let mut environment = Table::new(&["<environment", "<"]);
    for (name, value) in &results.environment {
        environment.push([name.clone(), value.clone()]);
    }
    environment.push(["seed".to_owned(), results.seed.to_string()]);
    page.push(Block::Table(environment));
    if !results.placements.is_empty() {
        let mut pinning = Table::new(&["<part", "<cores", "<shares them with"]);
        for part in &results.placements {
            let cores: Vec<String> = part.cores.iter().map(usize::to_string).collect();
            let with =
                if part.shares_with.is_empty() { UNKNOWN.to_owned() } else { part.shares_with.join(", ") };
            pinning.push([part.part.clone(), cores.join(", "), with]);
        }
        page.push(Block::Table(pinning));
    }
    page.push(Block::Part("The experiment".to_owned()));
    page.push(Block::Text(as_run(results)));
    page.push(Block::Verbatim(results.experiment_toml.clone()));
    page.push(Block::Part("To do it again".to_owned()));
    page.push(Block::Verbatim(results.command.clone()));
}
