//! How often a verdict on a window is right, on series of which the truth is known; beside it the textbook's rules,
//! which take every figure as it stands.

use crate::runner::Run;
use lab_data::experiment::Adaptive;
use stats::steady::{BINS_LEAST, Change, Known, Reached, Series, Verdict, judge};
use synthetic::{KINDS, NOISES, Noise, Score, WINDOWS, score, score_adaptive};

#[path = "../../../stats/tests/steady/synthetic.rs"]
mod synthetic;

const SERIES: usize = 200;
const SEED: u64 = 2;

/// A table: its title, whose verdicts it shows (those of the rules, or of the textbook), and what of them: how many of how many.
type Table = (&'static str, usize, fn(&Score) -> (u32, u32));

const TABLES: &[Table] = &[
    ("right, %", 0, |score| (score.right, score.series)),
    ("called too short, %", 0, |score| (score.too_short, score.series)),
    ("interval holds the mean, % of those called steady", 0, |score| (score.covered, score.coverable)),
    ("right by the textbook, %", 1, |score| (score.right, score.series)),
];

/// The tables of docs/method.md, as Markdown.
pub(crate) fn verdicts(run: &Run) {
    let columns: Vec<(Noise, usize)> =
        NOISES.iter().flat_map(|noise| WINDOWS.iter().map(move |bins| (*noise, *bins))).collect();
    // One of each is enough to see that it runs, and says nothing.
    if run.at_most(SERIES * 2) < SERIES * 2 {
        for (kind, (noise, bins)) in KINDS.iter().flat_map(|kind| columns.iter().map(move |of| (kind, of))) {
            for judge in [judge, textbook] {
                assert_eq!(score(judge, kind, *bins, *noise, 1, SEED).series, 1);
            }
            assert_eq!(score_adaptive(kind, ENDED, noise.variation, 1, SEED).series, 1);
        }
        return println!("{} kinds in {} cases each, judged", KINDS.len(), columns.len());
    }
    // Both judgements of every case once: what the tables show of them is all there.
    let scores: Vec<Vec<[Score; 2]>> = (KINDS.iter())
        .map(|kind| {
            let of = |(noise, bins): &(Noise, usize)| {
                [judge, textbook].map(|judge| score(judge, kind, *bins, *noise, SERIES as u32, SEED))
            };
            columns.iter().map(of).collect()
        })
        .collect();
    for (title, whose, read) in TABLES {
        let head = columns.iter().map(|(noise, bins)| format!(" {} %, {bins} s |", noise.variation * 100.0));
        println!("| {title} |{}\n|---|{}", head.collect::<String>(), "---|".repeat(columns.len()));
        for (kind, scores) in KINDS.iter().zip(&scores) {
            let cells = scores.iter().map(|scores| {
                let (count, of) = read(&scores[*whose]);
                cell(f64::from(count) * 100.0, of.into())
            });
            println!("| {} |{}", kind.name, cells.collect::<String>());
        }
    }
    ended_early();
}

/// A mean, or a dash where there is nothing to take it of.
fn cell(sum: f64, of: u64) -> String {
    let mean = format!("{:.1}", sum / of as f64);
    format!(" {} |", if of == 0 { "–" } else { mean.trim_end_matches(".0") })
}

/// What becomes of series that end as soon as they are known: seconds at least, and at most.
const ENDED: (u64, u64) = (Adaptive::LEAST.0.as_secs(), 60);

/// The table of windows that end by themselves: right, how often the interval holds the mean, both in per cent, and seconds.
fn ended_early() {
    let head = NOISES.iter().map(|noise| format!(" {} % |", noise.variation * 100.0));
    println!("| ended early |{}\n|---|{}", head.collect::<String>(), "---|".repeat(NOISES.len()));
    for kind in KINDS {
        let cells = NOISES.iter().map(|noise| {
            let score = score_adaptive(kind, ENDED, noise.variation, SERIES as u32, SEED);
            let [right, held, secs] = [
                (f64::from(score.right) * 100.0, score.series),
                (f64::from(score.held) * 100.0, score.holdable),
                (score.tenths as f64 / 10.0, score.series),
            ]
            .map(|(sum, of)| cell(sum, of.into()).trim_matches([' ', '|']).to_owned());
            format!(" {right}; {held}; {secs} |")
        });
        println!("| {} |{}", kind.name, cells.collect::<String>());
    }
}

/// MSER-5, a slope of at most 2 %, ten batches within ±5 % (of latency 10 %), an interval of ±1 % (2 %) with the effective
/// sample size by the batches' autocorrelation, each taken without asking what noise alone would make of it.
fn textbook(all: &[Series]) -> Verdict {
    const BATCHES: usize = 10;
    let mut reached = Reached { cut: 0, figures: Vec::new() };
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let deviations = |values: &[f64]| -> Vec<f64> {
        let mean = mean(values);
        values.iter().map(|value| value - mean).collect()
    };
    let squares = |values: &[f64]| deviations(values).iter().map(|of| of * of).sum::<f64>();
    for series in all {
        let fives: Vec<f64> = series.bins.chunks_exact(5).map(mean).collect();
        let error = |d: &usize| squares(&fives[*d..]) / ((fives.len() - d) as f64).powi(2);
        let allowed = fives.len() / 2;
        let cut = (0..=allowed).min_by(|a, b| error(a).total_cmp(&error(b))).unwrap_or(0);
        reached.cut = reached.cut.max(cut * 5);
        let bins = &series.bins[cut * 5..];
        let figure = Known {
            name: series.name,
            limits: series.limits,
            mean: mean(bins),
            interval: f64::INFINITY,
            drift: 0.0,
            drift_interval: f64::INFINITY,
            period: None,
            bias: 0.0,
        };
        let too_short = Verdict::TooShort { figure, reached: reached.clone(), bins_needed: 0.0 };
        if cut as f64 > 0.75 * allowed as f64 || bins.len() < BINS_LEAST {
            return too_short;
        }
        let middle = (bins.len() - 1) as f64 / 2.0;
        let places: Vec<f64> = (0..bins.len()).map(|i| i as f64 - middle).collect();
        let rise: f64 = places.iter().zip(deviations(bins)).map(|(place, of)| place * of).sum();
        let trend = rise / squares(&places) * bins.len() as f64 / mean(bins);
        let change = Change::Drift { share: trend };
        if trend.abs() > 0.02 {
            return Verdict::NotSteady { figure: series.name, change };
        }
        let batches: Vec<f64> = (0..BATCHES)
            .map(|i| mean(&bins[i * bins.len() / BATCHES..(i + 1) * bins.len() / BATCHES]))
            .collect();
        let off = deviations(&batches);
        if off.iter().any(|off| off.abs() > 5.0 * series.limits.interval * mean(bins)) {
            return Verdict::NotSteady { figure: series.name, change };
        }
        let products: f64 = off.windows(2).map(|pair| pair[0] * pair[1]).sum();
        let correlation = if squares(&batches) > 0.0 { products / squares(&batches) } else { 0.0 };
        let variance = squares(&batches) / (BATCHES - 1) as f64;
        let effective = BATCHES as f64 * (1.0 - correlation) / (1.0 + correlation);
        // Student's t of nine degrees of freedom.
        if 2.262 * (variance / effective).sqrt() > series.limits.interval * mean(bins) {
            return too_short;
        }
    }
    Verdict::Steady(reached)
}
