//! Gate G5: does the window show a steady state?

use super::{BINS_LEAST, Change, GOODPUT, Known, LATENCY, Limits, Reached, Series, Verdict, stop};
use crate::lab::analysis::checks::{self, Seen};
use crate::lab::analysis::little::is_open;
use crate::lab::analysis::rows::Standing;
use crate::proto::{LoadReport, ScheduleReport, SecondReport};
use crate::units::{micros, short};

/// The worst run decides.
pub(in crate::lab::analysis) fn judge(seen: &Seen) -> checks::Verdict {
    if let Some(verdict) = over_capacity(seen) {
        return verdict;
    }
    let verdicts = seen.ran.iter().map(|(_, load)| verdict(load));
    let worst = verdicts.zip(seen.ran).max_by_key(|(verdict, _)| gravity(verdict));
    let said = worst.map(|(verdict, (_, load))| in_words(&verdict, load));
    match said.unwrap_or_else(|| checks::Verdict::NotChecked("no run".into())) {
        checks::Verdict::NotChecked(missing) if seen.ran.iter().any(|(_, load)| is_open(load)) => {
            checks::Verdict::Partly { holds: "what was offered went through".into(), missing }
        }
        said => said,
    }
}

/// A queue's length is no latency; a mean over something that moves is still the mean of its window.
pub(in crate::lab::analysis) fn failed(seen: &Seen) -> Standing {
    if over_capacity(seen).is_some() { Standing::Invalid } else { Standing::Valid }
}

/// In an open loop in which more is offered than goes through, a queue grows as long as it runs.
fn over_capacity(seen: &Seen) -> Option<checks::Verdict> {
    let schedules = seen.ran.iter().filter_map(|(_, load)| Some((load.schedule.as_ref()?, *load)));
    let growth = |of: &ScheduleReport| of.behind_secs_at_end - of.behind_secs_at_start;
    let over = schedules.filter(|(of, _)| of.over_capacity);
    let (of, load) = over.max_by(|(a, _), (b, _)| growth(a).total_cmp(&growth(b)))?;
    Some(checks::failed(
        format!(
            "over capacity: latency is a queue’s length, not a property of the target ({} req/s offered, {} went \
             through; the longest waiting request was due for {} at the end, {} more than at the start)",
            short(of.offered_rps),
            short(load.attempts as f64 / load.window_secs),
            micros(of.behind_secs_at_end * 1e6),
            micros(growth(of).max(0.0) * 1e6),
        ),
        "Offer less, or use more connections if the target can take it; until then only service times say something of it.",
    ))
}

/// What the seconds of a run show.
pub(in crate::lab::analysis) fn verdict(load: &LoadReport) -> Verdict {
    of_seconds(&load.seconds, is_open(load), GOODPUT, LATENCY, super::judge)
}

/// What has to be known before a window that may go on is ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// Seconds that it lasts in any case.
    pub least: usize,
    /// Half of the 95 % interval of goodput, as a share of it.
    pub goodput: f64,
    /// The same of the mean latency.
    pub latency: f64,
    /// Whether requests are sent at a rate, so that goodput says nothing.
    pub is_open: bool,
}

/// Whether a window with these seconds may be ended: to be asked after each of them.
pub fn enough(seconds: &[SecondReport], wanted: &Wanted) -> bool {
    let Wanted { least, goodput, latency, is_open } = *wanted;
    let limits = |of: Limits, interval: f64| Limits { interval, ..of };
    stop::is_look(seconds.len(), least)
        && of_seconds(seconds, is_open, limits(GOODPUT, goodput), limits(LATENCY, latency), stop::is_known)
}

/// What `judge` says of the figures of some seconds.
fn of_seconds<T>(
    seconds: &[SecondReport],
    is_open: bool,
    goodput_limits: Limits,
    latency_limits: Limits,
    judge: impl Fn(&[Series]) -> T,
) -> T {
    let goodput: Vec<f64> = seconds.iter().map(|second| second.successes as f64).collect();
    let latency = latencies_us(seconds);
    let both = [
        Series { name: "goodput", bins: &goodput, limits: goodput_limits },
        Series { name: "mean latency", bins: &latency, limits: latency_limits },
    ];
    // The goodput of an open loop is what was asked for: it says how evenly that was, not what the target does.
    judge(if is_open { &both[1..] } else { &both })
}

/// Which of several verdicts decides, and how many bins it asks for: the highest.
pub(in crate::lab::analysis) fn gravity(verdict: &Verdict) -> (u8, u64) {
    match verdict {
        Verdict::NotSteady { .. } => (4, 0),
        Verdict::Steady(reached) | Verdict::TooShort { reached, .. } if moved_by_cut(reached).is_some() => {
            (3, 0)
        }
        Verdict::TooFew => (2, 0),
        Verdict::TooShort { bins_needed, .. } => (1, *bins_needed as u64),
        Verdict::Steady(_) => (0, 0),
    }
}

/// The mean latency of every second; where no request ended, that of the second before.
fn latencies_us(seconds: &[SecondReport]) -> Vec<f64> {
    let mut last = seconds.iter().find(|second| second.attempts > 0).map_or(0.0, |of| of.latency_us_mean);
    let of_second = |second: &SecondReport| {
        last = if second.attempts > 0 { second.latency_us_mean } else { last };
        last
    };
    seconds.iter().map(of_second).collect()
}

/// The figure that a warm-up in the window moves by more than is asked of its mean, and than its mean is known to.
pub(super) fn moved_by_cut(reached: &Reached) -> Option<&Known> {
    let least = |known: &Known| known.limits.interval.max(known.interval);
    reached.figures.iter().find(|known| known.moved_by_cut.abs() > least(known))
}

/// What a verdict on a run means for the gate.
pub(in crate::lab::analysis) fn in_words(verdict: &Verdict, load: &LoadReport) -> checks::Verdict {
    let window = load.seconds.len();
    match verdict {
        Verdict::TooFew if window < BINS_LEAST => checks::Verdict::NotChecked(format!(
            "a window of {} s has too few seconds (--window {BINS_LEAST}s is the least; with [adaptive] it is as long as it has to be)",
            (load.window_secs * 10.0).round() / 10.0
        )),
        Verdict::TooFew => checks::Verdict::NotChecked("no request succeeded".into()),
        Verdict::Steady(reached) | Verdict::TooShort { reached, .. }
            if let Some(known) = moved_by_cut(reached) =>
        {
            checks::failed(
                format!(
                    "the first {} of {window} s still belong to the warm-up, and move {} by {}",
                    reached.cut,
                    known.name,
                    signed(known.moved_by_cut)
                ),
                &longer_warmup(reached.cut, load),
            )
        }
        Verdict::Steady(_) => checks::Verdict::Passed,
        Verdict::NotSteady { figure, change } => not_steady(figure, *change, load),
        Verdict::TooShort { figure, reached, bins_needed } => checks::Verdict::Partly {
            holds: format!("nothing moves within {window} s by more than noise"),
            missing: reached.figures.iter().find(|known| known.name == *figure).map_or_else(
                String::new,
                |known| {
                    let secs = round_up(*bins_needed);
                    let longer = format!("a window of about {secs:.0} s (--window {secs:.0}s, or most = \"{secs:.0}s\" in [adaptive])");
                    match known.interval > known.limits.interval {
                        true => format!(
                            "{figure} is known to ±{:.1} %; ±{:.0} % takes {longer}",
                            known.interval * 100.0,
                            known.limits.interval * 100.0
                        ),
                        false => format!(
                            "a trend of {} in {figure} may be noise; {longer} would tell",
                            signed(known.trend)
                        ),
                    }
                },
            ),
        },
    }
}

fn not_steady(figure: &str, change: Change, load: &LoadReport) -> checks::Verdict {
    let window = load.seconds.len();
    match change {
        Change::Settles { at } => checks::failed(
            format!("{figure} settles only after {at} of {window} s"),
            &longer_warmup(at, load),
        ),
        Change::Trend { share } => checks::failed(
            format!(
                "{figure} {} by {:.1} % within the window of {window} s",
                if share < 0.0 { "falls" } else { "rises" },
                share.abs() * 100.0
            ),
            &format!(
                "{} What goes on for minutes, as in a store that fills, has no steady state: say when the figure was taken.",
                longer_warmup(window, load)
            ),
        ),
        Change::Apart { from, to, share } => checks::failed(
            format!(
                "{figure} from second {from} to {to} of {window} lies {:.1} % {} the mean",
                share.abs() * 100.0,
                if share < 0.0 { "below" } else { "above" }
            ),
            &format!(
                "See what happened then: a checkpoint, a compaction, a stall of the machine. Take a window that holds four or more of them, \
                 as with --window {}s, or repeat when the machine is quiet.",
                4 * window
            ),
        ),
    }
}

/// By so many seconds at least.
fn longer_warmup(secs: usize, load: &LoadReport) -> String {
    let longer = load.warmup_secs.ceil() as usize + secs;
    format!(
        "Lengthen the warm-up to {longer} s or more (--warmup {longer}s, or warmup = \"{longer}s\" in the experiment file)."
    )
}

fn signed(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// To two digits: nobody knows more of it.
fn round_up(value: f64) -> f64 {
    let step = 10f64.powf(value.max(1.0).log10().floor() - 1.0).max(1.0);
    (value / step).ceil() * step
}
