//! The check of the steady state: does the window show one?

use super::window::Window;
use super::{BINS_LEAST, Change, GOODPUT, Known, LATENCY, Limits, Reached, Verdict, stop};
use crate::checks::{Checked, OfRow};
use crate::little::is_open;
use kv::proto::{LoadReport, ScheduleReport, SecondReport};
use kv::units::{micros, short};
use std::time::Duration;

/// The worst run decides.
pub(crate) fn check(case: &OfRow) -> Checked {
    let worst = || case.ran.iter().map(|(_, load)| Judged::of(load)).max_by_key(Judged::gravity);
    let said = over_capacity(case).or_else(|| Some(worst()?.in_words()));
    said.unwrap_or_else(|| Checked::not_checked("no run"))
}

/// In an open loop in which more is offered than goes through, a queue grows as long as it runs.
fn over_capacity(case: &OfRow) -> Option<Checked> {
    let schedules = case.ran.iter().filter_map(|(_, load)| Some((load.schedule.as_ref()?, *load)));
    let growth = |of: &ScheduleReport| of.behind_secs_at_end - of.behind_secs_at_start;
    let over = schedules.filter(|(of, _)| of.over_capacity);
    let (of, load) = over.max_by(|(a, _), (b, _)| growth(a).total_cmp(&growth(b)))?;
    Some(Checked::fail(
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

/// What has to be known before a window that may go on is ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// How long it lasts in any case.
    pub least: Duration,
    /// Half of the 95 % interval of goodput, as a share of it.
    pub goodput: f64,
    /// The same of the mean latency.
    pub latency: f64,
    /// Whether requests are sent at a rate, so that goodput says nothing.
    pub is_open: bool,
}

/// Whether a window with these bins, each of so many seconds, may be ended: to be asked after each of them.
pub fn enough(bins: &[SecondReport], secs: f64, wanted: &Wanted) -> bool {
    let Wanted { least, goodput, latency, is_open } = *wanted;
    // A begun one counts: the window is no shorter than was asked. But 0.3 / 0.1 is more than 3.
    let least = (least.as_secs_f64() / secs - 1e-6).ceil() as usize;
    let limits = (Limits { interval: goodput, ..GOODPUT }, Limits { interval: latency, ..LATENCY });
    stop::is_look(bins.len(), least) && Window::told(secs, bins).judged(is_open, limits, stop::is_known)
}

/// A run and what its window shows.
pub(crate) struct Judged<'a> {
    load: &'a LoadReport,
    /// In the bins it was judged by.
    pub(super) window: Window,
    pub(super) verdict: Verdict,
}

/// The figure that a warm-up in the window moves by more than is asked of its mean, and than its mean is known to.
pub(super) fn moved_by_cut(reached: &Reached) -> Option<&Known> {
    let least = |known: &Known| known.limits.interval.max(known.interval);
    reached.figures.iter().find(|known| known.moved_by_cut.abs() > least(known))
}

impl<'a> Judged<'a> {
    pub(crate) fn of(load: &'a LoadReport) -> Judged<'a> {
        let window = Window::of(load);
        let verdict = window.verdict(is_open(load));
        Judged { load, window, verdict }
    }

    /// Which of several verdicts decides, and how many seconds it asks for: the highest.
    pub(crate) fn gravity(&self) -> (u8, u64) {
        match &self.verdict {
            Verdict::NotSteady { .. } => (4, 0),
            Verdict::Steady(reached) | Verdict::TooShort { reached, .. }
                if moved_by_cut(reached).is_some() =>
            {
                (3, 0)
            }
            Verdict::TooFew => (2, 0),
            Verdict::TooShort { bins_needed, .. } => (1, (*bins_needed * self.window.secs) as u64),
            Verdict::Steady(_) => (0, 0),
        }
    }

    /// How long so many bins are, in seconds, in digits.
    fn secs(&self, bins: usize) -> String {
        let secs = bins as f64 * self.window.secs;
        // Whole tenths, and no `.0`.
        format!("{}", (secs * 10.0).round() / 10.0)
    }

    /// What it means for the gate.
    pub(crate) fn in_words(&self) -> Checked {
        let window = self.secs(self.window.goodput_rps.len());
        match &self.verdict {
            Verdict::TooFew if self.window.goodput_rps.len() < BINS_LEAST => Checked::not_checked(format!(
                "a window of {} s has too few seconds (--window {BINS_LEAST}s is the least; with [adaptive] it is as long as it has to be)",
                (self.load.window_secs * 10.0).round() / 10.0
            )),
            Verdict::TooFew => Checked::not_checked("no request succeeded"),
            Verdict::Steady(reached) | Verdict::TooShort { reached, .. }
                if let Some(known) = moved_by_cut(reached) =>
            {
                Checked::fail(
                    format!(
                        "the first {} of {window} s still belong to the warm-up, and move {} by {}",
                        self.secs(reached.cut),
                        known.name,
                        signed(known.moved_by_cut)
                    ),
                    &self.longer_warmup(reached.cut),
                )
            }
            Verdict::Steady(_) => Checked::pass(format!("nothing moves within {window} s")),
            Verdict::NotSteady { figure, change } => self.not_steady(figure, *change),
            Verdict::TooShort { figure, reached, bins_needed } => {
                let known = reached.figures.iter().find(|known| known.name == *figure);
                let missing = known.map_or_else(String::new, |known| self.too_short(known, *bins_needed));
                Checked::not_checked(format!(
                    "nothing moves within {window} s by more than noise, but {missing}"
                ))
            }
        }
    }

    fn too_short(&self, known: &Known, bins_needed: f64) -> String {
        // Less of a window of fixed length is not judged at all.
        let secs = round_up(bins_needed * self.window.secs).max(BINS_LEAST as f64);
        let longer =
            format!("a window of about {secs:.0} s (--window {secs:.0}s; with [adaptive] it is the least)");
        let Known { name, interval, limits, trend, .. } = known;
        match *interval > limits.interval {
            true => format!(
                "{name} is known to ±{:.1} %; ±{:.0} % takes {longer}",
                interval * 100.0,
                limits.interval * 100.0
            ),
            false => format!("a trend of {} in {name} may be noise; {longer} would tell", signed(*trend)),
        }
    }

    fn not_steady(&self, figure: &str, change: Change) -> Checked {
        let bins = self.window.goodput_rps.len();
        let window = self.secs(bins);
        match change {
            Change::Settles { at } => Checked::fail(
                format!("{figure} settles only after {} of {window} s", self.secs(at)),
                &self.longer_warmup(at),
            ),
            Change::Trend { share } => Checked::fail(
                format!(
                    "{figure} {} by {:.1} % within the window of {window} s",
                    if share < 0.0 { "falls" } else { "rises" },
                    share.abs() * 100.0
                ),
                &format!(
                    "{} What goes on for minutes, as in a store that fills, has no steady state: say when the figure was taken.",
                    self.longer_warmup(bins)
                ),
            ),
            Change::Apart { from, to, share } => Checked::fail(
                format!(
                    "{figure} from second {} to {} of {window} lies {:.1} % {} the mean",
                    self.secs(from),
                    self.secs(to),
                    share.abs() * 100.0,
                    if share < 0.0 { "below" } else { "above" }
                ),
                &format!(
                    "See what happened then: a checkpoint, a compaction, a stall of the machine. Take a window that holds four or more of them, \
                     as with --window {}s, or repeat when the machine is quiet.",
                    (4.0 * self.window.length()).ceil()
                ),
            ),
        }
    }

    /// By so many bins at least.
    fn longer_warmup(&self, bins: usize) -> String {
        let longer = self.load.warmup_secs.ceil() + (bins as f64 * self.window.secs - 1e-6).ceil();
        format!(
            "Lengthen the warm-up to {longer} s or more (--warmup {longer}s, or warmup = \"{longer}s\" in the experiment file)."
        )
    }
}

fn signed(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

/// To two digits: nobody knows more of it.
fn round_up(value: f64) -> f64 {
    let step = 10f64.powf(value.max(1.0).log10().floor() - 1.0).max(1.0);
    (value / step).ceil() * step
}
