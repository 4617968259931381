//! What a window that ends by itself saves: long runs are recorded once, and the rule is replayed on their seconds.
//!
//! The other side is one length for all levels, chosen for the worst of them with the same rule: that is what a fixed window
//! has to be if every level shall be known as well. Both sides see the same seconds.

use crate::support::{Server, load};
use weir::lab::analysis::steady::{
    BINS_LEAST, GOODPUT, LATENCY, Limits, Series, Verdict, Wanted, enough, judge,
};
use weir::proto::SecondReport;

/// Recorded of each level, in seconds: the limit of either side.
const MOST: usize = 30;
/// What is asked of it, each on a server of its own.
const WORKLOADS: &[&str] = &["get_popular", "get_all", "put_all"];
const CLIENTS: &[&str] = &["1", "8", "64"];
/// How well goodput is to be known; the mean latency half as well.
const GOALS: &[f64] = &[0.02, 0.03, 0.05];

/// A level of a workload.
struct Recorded {
    clients: &'static str,
    seconds: Vec<SecondReport>,
}

/// Prints for each workload how long every level takes either way, and how well it is then known.
pub(crate) fn run() {
    let mut all = Vec::new();
    for workload in WORKLOADS {
        // On the disk, because a folder for temporary files is often memory.
        let dir =
            tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the target directory takes a folder");
        let server = Server::start(&["--store", &format!("fjall:{}", dir.path().display())]);
        let levels: Vec<Recorded> =
            CLIENTS.iter().map(|clients| record(&server, workload, clients)).collect();
        all.push((*workload, levels));
    }
    for goal in GOALS {
        println!("goodput to ±{:.0} %, mean latency to ±{:.0} %", goal * 100.0, goal * 200.0);
        println!("| workload | clients | req/s | seconds vary by | adaptive | known to | fixed | known to |");
        println!("|---|---|---|---|---|---|---|---|");
        let sums: Vec<(usize, usize, usize)> =
            all.iter().map(|(workload, levels)| compare(workload, levels, *goal)).collect();
        let cells = sums.iter().map(|(_, _, cells)| cells).sum::<usize>();
        let adaptive = sums.iter().map(|(adaptive, ..)| adaptive).sum::<usize>();
        let worst = sums.iter().map(|(_, fixed, cells)| fixed / cells).max().unwrap_or(0);
        println!(
            "all: {adaptive} s, {:.2} of the {} s that one length for all workloads takes\n",
            adaptive as f64 / (worst * cells) as f64,
            worst * cells
        );
    }
}

fn record(server: &Server, workload: &str, clients: &'static str) -> Recorded {
    let window = format!("{MOST}s");
    let flags = ["--workload", workload, "--clients", clients, "--warmup", "1s", "--window", &window];
    Recorded { clients, seconds: load(server.url(), &flags).seconds }
}

/// Prints the levels of a workload; gives the seconds of either side, and how many levels there are.
fn compare(workload: &str, levels: &[Recorded], goal: f64) -> (usize, usize, usize) {
    let ends: Vec<usize> = levels.iter().map(|level| end(&level.seconds, goal)).collect();
    let worst = ends.iter().copied().max().unwrap_or(0);
    for (level, end) in levels.iter().zip(&ends) {
        let rates: Vec<f64> = level.seconds.iter().map(|second| second.successes as f64).collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let deviation =
            rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (rates.len() - 1) as f64;
        println!(
            "| {workload} | {} | {mean:.0} | {:.1} % | {end} s | {} | {worst} s | {} |",
            level.clients,
            deviation.sqrt() / mean * 100.0,
            known(&level.seconds[..*end], goal),
            known(&level.seconds[..worst], goal),
        );
    }
    let (adaptive, fixed) = (ends.iter().sum::<usize>(), worst * levels.len());
    println!(
        "{workload}: {adaptive} s, {:.2} of the {fixed} s that the worst level needs for all",
        adaptive as f64 / fixed as f64
    );
    (adaptive, fixed, levels.len())
}

/// After how many seconds the lab ends such a level.
fn end(seconds: &[SecondReport], goal: f64) -> usize {
    let wanted = Wanted { least: BINS_LEAST, goodput: goal, latency: 2.0 * goal, is_open: false };
    let early = (BINS_LEAST..seconds.len()).find(|length| enough(&seconds[..*length], &wanted));
    early.unwrap_or(seconds.len())
}

/// Half of the interval of goodput and of the mean latency.
fn known(seconds: &[SecondReport], goal: f64) -> String {
    let goodput: Vec<f64> = seconds.iter().map(|second| second.successes as f64).collect();
    let latency: Vec<f64> = seconds.iter().map(|second| second.latency_us_mean).collect();
    let verdict = judge(&[
        Series { name: "goodput", bins: &goodput, limits: Limits { interval: goal, ..GOODPUT } },
        Series { name: "mean latency", bins: &latency, limits: Limits { interval: 2.0 * goal, ..LATENCY } },
    ]);
    match verdict {
        Verdict::Steady(reached) | Verdict::TooShort { reached, .. } => {
            let figures = reached.figures.iter().map(|known| format!("±{:.1} %", known.interval * 100.0));
            figures.collect::<Vec<_>>().join(", ")
        }
        Verdict::NotSteady { figure, .. } => format!("not steady ({figure})"),
        Verdict::TooFew => "too few seconds".to_owned(),
    }
}
