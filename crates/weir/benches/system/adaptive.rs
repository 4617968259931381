//! What a window that ends by itself saves, and whether its interval holds: long runs are recorded once, and the rule is replayed
//! on stretches of them.
//!
//! The other side is one length for all levels: that by which nine of ten windows of the worst of them are known, which is what a fixed
//! window has to be if every level shall be known as well; and, more to its favour, that which the rule takes for the worst of them
//! on average, by which every other of its windows is not. Both sides see the same recording. With `WEIR_RECORDED=DIR` the recording
//! is kept there as `WORKLOAD-CLIENTS.json`, and what is there already is not measured again.

use crate::support::{Server, load};
use kv::proto::{LoadReport, SecondReport};
use lab_data::experiment::Adaptive;
use lab_run::harness::BIN;
use stats::steady::{Bin, GOODPUT, Goal, LATENCY, Limits, Verdict, Window, long_enough};
use std::path::{Path, PathBuf};

/// Recorded of each level: the limit of either side.
const RECORDED: &str = "75s";
/// What is asked of it, each on a server of its own.
const WORKLOADS: &[&str] = &["get_popular", "get_all", "get_zipfian", "mixed", "put_all"];
const CLIENTS: &[&str] = &["1", "8", "64"];
/// How well goodput is to be known; the mean latency half as well.
const GOALS: &[f64] = &[0.02, 0.03, 0.05, 0.1];
/// So many stretches of each, with starts that are equally far apart. Behind its end the recording is played backwards, which has the
/// same noise and no step where both meet.
const STRETCHES: usize = 30;
/// Of so many of its windows a fixed length knows the worst level.
const SURE: f64 = 0.9;
/// What a fixed window is, in seconds.
const FIXED: &[f64] = &[15.0, 30.0, 60.0];
/// How long it takes to end a window that was found long enough.
const ENDING: f64 = 0.2;

/// A level of a workload.
struct Recorded {
    workload: &'static str,
    clients: &'static str,
    secs: f64,
    bins: Vec<Bin>,
}

/// A stretch that was ended as soon as the rule let it.
struct Ended {
    /// After how many seconds.
    after: f64,
    /// Whether that was the rule, and not the recording's end.
    known: bool,
    /// Half an interval of goodput and of the mean latency, and whether it holds the mean of the whole recording; `None` where
    /// what was seen is not steady.
    figures: Option<[(f64, bool); 2]>,
}

/// Prints for each workload how long every level takes either way, and how often the intervals hold.
pub(crate) fn run() {
    let kept = std::env::var_os("WEIR_RECORDED").map(PathBuf::from);
    let all: Vec<Vec<Recorded>> =
        WORKLOADS.iter().map(|workload| recorded(workload, kept.as_deref())).collect();
    about(all.iter().flatten());
    for goal in GOALS {
        println!("goodput to ±{:.0} %, mean latency to ±{:.0} %", goal * 100.0, goal * 200.0);
        println!(
            "| workload | clients | ends after, s | 9 of 10 by | not at all | known to | holds the mean |"
        );
        println!("|---|---|---|---|---|---|---|");
        let sums: Vec<Sum> = all.iter().map(|levels| level_by_level(levels, *goal)).collect();
        let worst = sums.iter().map(|sum| sum.worst).reduce(Length::max).expect("there are workloads");
        for sum in &sums {
            sum.told(&worst);
        }
        let together = sums.iter().fold(Sum::of(""), |all, sum| Sum {
            adaptive: all.adaptive + sum.adaptive,
            levels: all.levels + sum.levels,
            held: [0, 1].map(|moves| [0, 1].map(|of| all.held[moves][of] + sum.held[moves][of])),
            worst,
            ..all
        });
        together.told(&worst);
        for (held, of) in together.held.iter().zip(["are not unsteady as a whole", "are"]) {
            let share = held[0] as f64 / held[1] as f64 * 100.0;
            println!(
                "intervals that hold the mean of the whole recording, of those that {of}: {} of {}, {share:.0} %",
                held[0], held[1]
            );
        }
        println!();
    }
    for fixed in FIXED {
        as_well_as(*fixed, &all);
    }
}

/// Prints what fixed windows of `fixed` seconds know of the worst level of each workload, and how long the rule takes to know every
/// level as well, with that length as its limit. So it is never longer; whether it is known as often is said beside it.
fn as_well_as(fixed: f64, all: &[Vec<Recorded>]) {
    println!(
        "beside fixed windows of {fixed} s: known as well as 9 of 10 of them know their worst level, or {fixed} s long"
    );
    println!(
        "| workload | known to | the rule takes | share | known so well by the rule | by fixed windows |"
    );
    println!("|---|---|---|---|---|---|");
    let row = |name: &str, levels: &[&Recorded], goal: f64| {
        let ended: Vec<Vec<Ended>> = levels.iter().map(|level| level.stretches(goal, fixed)).collect();
        let took: f64 = ended.iter().map(|ended| Length::of(ended).mean).sum();
        let known = ended.iter().flatten().filter(|of| of.known).count();
        let windows = levels.iter().flat_map(|level| level.reached(fixed));
        let as_well = windows.filter(|reached| *reached <= goal).count();
        let (fixed, count) = (fixed * levels.len() as f64, levels.len() * STRETCHES);
        let (goal, share) = (goal * 100.0, took / fixed);
        println!(
            "| {name} | ±{goal:.1} % | {took:.1} of {fixed:.1} s | {share:.2} | {known} of {count} | {as_well} |"
        );
    };
    let goal = |levels: &[Recorded]| levels.iter().map(|of| sure(of.reached(fixed))).fold(0.0, f64::max);
    for levels in all {
        row(levels[0].workload, &levels.iter().collect::<Vec<_>>(), goal(levels));
    }
    let worst = all.iter().map(|levels| goal(levels)).fold(0.0, f64::max);
    row("all", &all.iter().flatten().collect::<Vec<_>>(), worst);
    println!();
}

/// What [`SURE`] of all are no more than; of nothing the least.
fn sure(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let at = (SURE * all.len() as f64).ceil() as usize;
    all.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// The levels of a workload, from the folder or measured.
fn recorded(workload: &'static str, kept: Option<&Path>) -> Vec<Recorded> {
    let path = |clients: &str| Some(kept?.join(format!("{workload}-{clients}.json")));
    let known = |clients: &str| path(clients).filter(|path| path.exists());
    // On the disk, because a folder for temporary files is often memory.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the target directory takes a folder");
    let server = (!CLIENTS.iter().all(|clients| known(clients).is_some()))
        .then(|| Server::start(&["--store", &format!("file:{}", dir.path().display())]));
    let level = |clients: &&'static str| {
        let report = match (known(clients), &server) {
            (None, Some(server)) => {
                let report = record(server, workload, clients);
                let text = serde_json::to_string(&report).expect("a report is JSON");
                path(clients).into_iter().for_each(|path| {
                    std::fs::write(&path, &text).expect("WEIR_RECORDED is a folder that takes files");
                });
                report
            }
            (path, _) => {
                let text = std::fs::read_to_string(path.unwrap_or_default()).expect("a file that was there");
                serde_json::from_str::<LoadReport>(&text).expect("a report that was kept")
            }
        };
        let bins = report.bins.expect("a recording is in bins");
        let secs = bins.secs;
        let bin = |of: &SecondReport| Bin {
            attempts: of.attempts,
            successes: of.successes,
            latency_us_mean: of.latency_us_mean,
        };
        Recorded { workload, clients, secs, bins: bins.list.iter().map(bin).collect() }
    };
    CLIENTS.iter().map(level).collect()
}

fn record(server: &Server, workload: &str, clients: &str) -> LoadReport {
    let bin = BIN.to_string();
    let flags = ["--workload", workload, "--clients", clients, "--warmup", "1s", "--window", RECORDED];
    load(server.url(), &[&flags[..], &["--bin", &bin]].concat())
}

/// Prints what the recordings are like: how much bins of several lengths vary, and how neighbours are correlated.
fn about<'a>(all: impl Iterator<Item = &'a Recorded>) {
    const LENGTHS: [f64; 6] = [0.1, 0.2, 0.5, 1.0, 3.0, 10.0];
    let head: String = LENGTHS.iter().map(|length| format!(" {length} s |")).collect();
    println!("goodput of bins varies by, and correlation of neighbours; what gate G5 says of the whole");
    println!("| workload | clients | req/s |{head} |\n|---|---|---|{}---|", "---|".repeat(LENGTHS.len()));
    for level in all {
        let cells = LENGTHS.iter().map(|length| {
            let each = (length / level.secs).round() as usize;
            let rates: Vec<f64> = level.bins.chunks_exact(each).map(|bins| successes(bins) as f64).collect();
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            let off = |lag: usize| -> f64 {
                rates.iter().zip(&rates[lag..]).map(|(a, b)| (a - mean) * (b - mean)).sum()
            };
            let varies = (off(0) / (rates.len() - 1) as f64).sqrt() / mean * 100.0;
            format!(" {varies:.1} %, {:.2} |", off(1) / off(0))
        });
        let said = match Window::of(level.secs, &level.bins).verdict(false) {
            Verdict::Steady(_) => "steady".to_owned(),
            Verdict::TooShort { .. } => "too short".to_owned(),
            Verdict::NotSteady { figure, change } => format!("{figure}: {change:?}"),
            Verdict::TooFew => "too few".to_owned(),
        };
        let cells: String = cells.collect();
        println!("| {} | {} | {:.0} |{cells} {said} |", level.workload, level.clients, level.means()[0]);
    }
    println!();
}

fn successes(bins: &[Bin]) -> u64 {
    bins.iter().map(|bin| bin.successes).sum()
}

impl Recorded {
    /// Goodput and mean latency of all of it.
    fn means(&self) -> [f64; 2] {
        let attempts: u64 = self.bins.iter().map(|bin| bin.attempts).sum();
        let latency: f64 = self.bins.iter().map(|bin| bin.attempts as f64 * bin.latency_us_mean).sum();
        [
            successes(&self.bins) as f64 / (self.bins.len() as f64 * self.secs),
            latency / attempts.max(1) as f64,
        ]
    }

    /// What becomes of each stretch, of `most` seconds at most.
    fn stretches(&self, goal: f64, most: f64) -> Vec<Ended> {
        let ended = |bins: Vec<Bin>| {
            let least_secs = Adaptive::LEAST.0.as_secs_f64();
            let wanted = Goal { least_secs, goodput: goal, latency: 2.0 * goal, is_open: false };
            let early = (1..=bins.len()).find(|count| long_enough(&bins[..*count], self.secs, &wanted));
            let count = early.unwrap_or(bins.len());
            let ending = if count < bins.len() { ENDING } else { 0.0 };
            let after = count as f64 * self.secs + ending;
            Ended { after, known: early.is_some(), figures: self.figures(&bins[..count], goal) }
        };
        self.each(most).map(ended).collect()
    }

    /// How well windows of `secs` know goodput, or the mean latency half as well; of those that are steady.
    fn reached(&self, secs: f64) -> Vec<f64> {
        let figures = self.each(secs).filter_map(|bins| self.figures(&bins, 1.0));
        figures.map(|[(goodput, _), (latency, _)]| goodput.max(latency / 2.0)).collect()
    }

    /// All stretches, each of `secs`.
    fn each(&self, secs: f64) -> impl Iterator<Item = Vec<Bin>> {
        let count = ((secs / self.secs).round() as usize).min(self.bins.len());
        (0..STRETCHES).map(move |stretch| {
            let there_and_back = self.bins.iter().chain(self.bins.iter().rev());
            there_and_back.skip(stretch * self.bins.len() / STRETCHES).take(count).copied().collect()
        })
    }

    /// How well a stretch knows goodput and mean latency, and whether rightly.
    fn figures(&self, bins: &[Bin], goal: f64) -> Option<[(f64, bool); 2]> {
        let (goodput, latency) =
            (Limits { interval: goal, ..GOODPUT }, Limits { interval: 2.0 * goal, ..LATENCY });
        match Window::of(self.secs, bins).judged(false, goodput, latency) {
            Verdict::Steady(reached) | Verdict::TooShort { reached, .. } => {
                let of = |figure: usize| {
                    let known = reached.figures[figure];
                    (known.interval, (self.means()[figure] / known.mean - 1.0).abs() <= known.interval)
                };
                Some([of(0), of(1)])
            }
            Verdict::NotSteady { .. } | Verdict::TooFew => None,
        }
    }
}

/// How long a fixed window has to be, in seconds.
#[derive(Clone, Copy)]
struct Length {
    /// What the rule takes.
    mean: f64,
    /// By when the rule ends [`SURE`] of all.
    sure: f64,
}

impl Length {
    fn of(ended: &[Ended]) -> Length {
        let after: Vec<f64> = ended.iter().map(|of| of.after).collect();
        Length { mean: after.iter().sum::<f64>() / after.len() as f64, sure: sure(after) }
    }

    fn max(self, other: Length) -> Length {
        Length { mean: self.mean.max(other.mean), sure: self.sure.max(other.sure) }
    }
}

/// What a workload takes, or all of them.
struct Sum {
    workload: &'static str,
    levels: usize,
    /// Seconds of all levels, each ended by the rule.
    adaptive: f64,
    /// Of the worst level.
    worst: Length,
    /// Intervals that hold the mean of the whole, of how many; of recordings that gate G5 calls unsteady apart from the others.
    held: [[usize; 2]; 2],
}

impl Sum {
    fn of(workload: &'static str) -> Sum {
        let worst = Length { mean: 0.0, sure: 0.0 };
        Sum { workload, levels: 0, adaptive: 0.0, worst, held: [[0; 2]; 2] }
    }

    /// Beside one length for its own levels, and one for those of all workloads.
    fn told(&self, all: &Length) {
        let mut lengths = vec![(all, "all")];
        if self.workload.is_empty() {
            println!("all: {:.1} s", self.adaptive);
        } else {
            println!("{}: {:.1} s", self.workload, self.adaptive);
            lengths.insert(0, (&self.worst, "its own"));
        }
        for (length, whose) in lengths {
            let share = |length: f64| {
                let fixed = length * self.levels as f64;
                format!("{:.2} of {fixed:.1} s", self.adaptive / fixed)
            };
            let (sure, mean) = (share(length.sure), share(length.mean));
            println!(
                "  {sure} for one length of {whose} that knows 9 of 10; {mean} for the mean of the worst"
            );
        }
    }
}

/// Prints the levels of a workload: means over the starts.
fn level_by_level(levels: &[Recorded], goal: f64) -> Sum {
    let mut sum = Sum::of(levels.first().map_or("", |level| level.workload));
    for level in levels {
        let ended = level.stretches(goal, f64::INFINITY);
        let count = ended.len() as f64;
        let length = Length::of(&ended);
        let (least, most) = ended
            .iter()
            .fold((f64::INFINITY, 0.0), |(least, most), of| (of.after.min(least), of.after.max(most)));
        let figures: Vec<[(f64, bool); 2]> =
            ended.iter().filter(|of| of.known).filter_map(|of| of.figures).collect();
        let known =
            |figure: usize| figures.iter().map(|of| of[figure].0).sum::<f64>() / figures.len() as f64 * 100.0;
        let held = |figure: usize| figures.iter().filter(|of| of[figure].1).count();
        println!(
            "| {} | {} | {:.1} ({least:.1}–{most:.1}) | {:.1} | {:.0} % | ±{:.1} %, ±{:.1} % | {} and {} of {} |",
            level.workload,
            level.clients,
            length.mean,
            length.sure,
            ended.iter().filter(|of| !of.known).count() as f64 / count * 100.0,
            known(0),
            known(1),
            held(0),
            held(1),
            figures.len()
        );
        sum.levels += 1;
        sum.adaptive += length.mean;
        sum.worst = sum.worst.max(length);
        let whole = Window::of(level.secs, &level.bins).verdict(false);
        let all = &mut sum.held[usize::from(matches!(whole, Verdict::NotSteady { .. }))];
        all[0] += held(0) + held(1);
        all[1] += 2 * figures.len();
    }
    sum
}
