//! The check "steady": is the window of every run in a steady state? And when a window may be ended.

pub mod time_series;

use crate::checks::{Checked, OfRow};
use kv::proto::{LoadReport, ScheduleReport, SecondReport};
use kv::units::{micros, short};
pub use stats::steady::Goal;
use stats::steady::{BINS_LEAST, Bin, Change, Known, Verdict, Window};

/// Whether a window with these bins, each `secs` long, may be ended. To be called after each bin.
pub fn long_enough(bins: &[SecondReport], secs: f64, goal: &Goal) -> bool {
    stats::steady::long_enough(&bins.iter().map(bin).collect::<Vec<_>>(), secs, goal)
}

fn bin(of: &SecondReport) -> Bin {
    Bin { attempts: of.attempts, successes: of.successes, latency_us_mean: of.latency_us_mean }
}

/// The worst run decides.
pub(crate) fn check(case: &OfRow) -> Checked {
    over_capacity(case).unwrap_or_else(|| {
        let worst = case.ran.iter().map(|(_, load)| Judged::of(load)).max_by_key(Judged::severity);
        worst.map_or(Checked::not_checked("no trial"), |worst| worst.as_check())
    })
}

/// In an open loop in which more is offered than goes through, a queue grows as long as it runs.
fn over_capacity(case: &OfRow) -> Option<Checked> {
    let growth = |of: &ScheduleReport| of.behind_secs_at_end - of.behind_secs_at_start;
    let schedules = case.ran.iter().filter_map(|(_, load)| Some((load.schedule.as_ref()?, *load)));
    let over = schedules.filter(|(of, _)| of.over_capacity);
    let (of, load) = over.max_by(|(a, _), (b, _)| growth(a).total_cmp(&growth(b)))?;
    let (offered, through) = (short(of.offered_rps), short(load.attempts as f64 / load.window_secs));
    let (due, more) = (micros(of.behind_secs_at_end * 1e6), micros(growth(of).max(0.0) * 1e6));
    Some(Checked::fail(
        format!(
            "over capacity: latency is a queue’s length, not a property of the target ({offered} req/s offered, \
             {through} went through; at the end the oldest request was {due} overdue, {more} more than at the start)"
        ),
        "Offer less, or use more connections if the target can take it; until then use only the service times.",
    ))
}

/// A run and whether its window is steady.
struct Judged<'a> {
    load: &'a LoadReport,
    window: Window,
    verdict: Verdict,
}

impl<'a> Judged<'a> {
    fn of(load: &'a LoadReport) -> Judged<'a> {
        let (secs, bins) = load.finest();
        let window = Window::of(secs, &bins.iter().map(bin).collect::<Vec<_>>());
        let verdict = window.verdict(load.is_open());
        Judged { load, window, verdict }
    }

    /// Orders verdicts: the worst is the highest, of windows that are too short the one that needs the longest.
    fn severity(&self) -> (u8, u64) {
        match &self.verdict {
            Verdict::NotSteady { .. } => (4, 0),
            Verdict::Steady(reached) | Verdict::TooShort { reached, .. } if reached.biased().is_some() => {
                (3, 0)
            }
            Verdict::TooFew => (2, 0),
            Verdict::TooShort { bins_needed, .. } => (1, (*bins_needed * self.window.secs) as u64),
            Verdict::Steady(_) => (0, 0),
        }
    }

    /// So many bins in seconds.
    fn secs(&self, bins: usize) -> String {
        tenths(bins as f64 * self.window.secs)
    }

    /// As the outcome of the check.
    fn as_check(&self) -> Checked {
        let bins = self.window.goodput_rps.len();
        let window = self.secs(bins);
        match &self.verdict {
            Verdict::TooFew if bins >= BINS_LEAST => Checked::not_checked("no request succeeded"),
            Verdict::TooFew => Checked::not_checked(format!(
                "a window of {} s is too short for this check: use --window {BINS_LEAST}s or longer, or add [adaptive] to the experiment file, which measures until the means are precise",
                tenths(self.load.window_secs)
            )),
            Verdict::NotSteady { figure, change } => self.not_steady(figure, *change),
            Verdict::Steady(reached) | Verdict::TooShort { reached, .. }
                if let Some(Known { name, bias, .. }) = reached.biased() =>
            {
                let (cut, bias) = (self.secs(reached.cut), signed(*bias));
                let why = format!(
                    "the first {cut} of {window} s still belong to the warm-up, and change {name} by {bias} on average"
                );
                Checked::fail(why, self.longer_warm_up(reached.cut))
            }
            Verdict::Steady(_) => Checked::pass(format!("no trend within {window} s")),
            Verdict::TooShort { figure, bins_needed, .. } => Checked::not_checked(format!(
                "no trend within {window} s, but {}",
                self.too_short(figure, *bins_needed)
            )),
        }
    }

    fn too_short(&self, known: &Known, bins_needed: f64) -> String {
        // A shorter window of fixed length is not checked at all.
        let secs = round_up(bins_needed * self.window.secs).max(BINS_LEAST as f64);
        let longer =
            format!("a window of about {secs:.0} s (--window {secs:.0}s, or the minimum in [adaptive])");
        let Known { name, interval, limits, drift, .. } = known;
        if *interval <= limits.interval {
            return format!("a drift of {} in {name} may be noise; {longer} would tell", signed(*drift));
        }
        let (interval, asked) = (interval * 100.0, limits.interval * 100.0);
        format!("{name} is known to ±{interval:.1} %; ±{asked:.0} % takes {longer}")
    }

    fn not_steady(&self, figure: &str, change: Change) -> Checked {
        let bins = self.window.goodput_rps.len();
        let window = self.secs(bins);
        match change {
            Change::LateWarmUp { at } => Checked::fail(
                format!("{figure} settles only after {} of {window} s", self.secs(at)),
                self.longer_warm_up(at),
            ),
            Change::Drift { share } => {
                let (moves, percent) = (if share < 0.0 { "falls" } else { "rises" }, share.abs() * 100.0);
                let longer = self.longer_warm_up(bins);
                Checked::fail(
                    format!("{figure} {moves} by {percent:.1} % within the window of {window} s"),
                    format!(
                        "{longer} A store that fills for minutes has no steady state: say when the figure was taken."
                    ),
                )
            }
            Change::Shift { from, to, share } => {
                let (from, to) = (self.secs(from), self.secs(to));
                let (side, percent) = (if share < 0.0 { "below" } else { "above" }, share.abs() * 100.0);
                let longer = (4.0 * self.window.length()).ceil();
                Checked::fail(
                    format!(
                        "{figure} from second {from} to {to} of {window} lies {percent:.1} % {side} the mean"
                    ),
                    format!(
                        "See what happened then: a checkpoint, a compaction, a stall of the machine. Take a window that \
                         holds four or more of them, as with --window {longer}s, or repeat when the machine is quiet."
                    ),
                )
            }
        }
    }

    /// Longer by so many bins at least.
    fn longer_warm_up(&self, bins: usize) -> String {
        let longer = self.load.warmup_secs.ceil() + (bins as f64 * self.window.secs - 1e-6).ceil();
        format!(
            "Lengthen the warm-up to {longer} s or more (--warmup {longer}s, or warmup = \"{longer}s\" in the experiment file)."
        )
    }
}

fn signed(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// Seconds with one decimal, and none where it is zero.
fn tenths(secs: f64) -> String {
    format!("{}", (secs * 10.0).round() / 10.0)
}

/// To two digits: more is not known.
fn round_up(value: f64) -> f64 {
    let step = 10f64.powf(value.max(1.0).log10().floor() - 1.0).max(1.0);
    (value / step).ceil() * step
}

#[cfg(test)]
mod tests;
