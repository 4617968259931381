//! What is shown while `weir load` runs, on standard error: a view of a few lines that stays in its place on a terminal,
//! a line every now and then elsewhere.
//!
//! The view is made of a [`State`] and a width, without a clock or a terminal.

use crate::cmd::{counted, note};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use kv::proto::{LoadEvent, SecondReport};
use kv::units;
use load::Plan;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Between two redraws on a terminal, unless something else is asked for.
const REDRAW_EVERY: Duration = Duration::from_secs(1);
/// Between two lines elsewhere.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Columns of a terminal that does not report its width.
const WIDTH_USUAL: usize = 80;
/// Seconds that are drawn.
const SPARKS_MAX: usize = 40;
/// Fewer show nothing.
const SPARKS_MIN: usize = 8;
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const BAR_MAX: usize = 30;

/// Shows how a run goes.
pub(super) struct Live {
    state: State,
    /// On a terminal; elsewhere there are lines.
    bar: Option<ProgressBar>,
    /// Between two redraws or two lines; zero: nothing is shown.
    every: Duration,
    /// When something was shown last; it counts only while there are no seconds.
    shown_at: Instant,
}

impl Live {
    /// For a run of `plan`. Without an interval the usual one; nothing at all if it is zero.
    pub(super) fn start(plan: &Plan, interval: Option<Duration>) -> Live {
        let terminal = ProgressDrawTarget::stderr();
        let usual = if terminal.is_hidden() { LINE_EVERY } else { REDRAW_EVERY };
        let every = interval.unwrap_or(usual);
        let bar = (!every.is_zero() && !terminal.is_hidden()).then(|| {
            let style = ProgressStyle::with_template("{msg}").expect("a constant that parses");
            ProgressBar::with_draw_target(None, terminal).with_style(style)
        });
        let mut state = State::new(plan.warmup, plan.window);
        if plan.preload_keys() == 0 {
            state.begin(WARMUP);
        }
        if let Some(bar) = &bar {
            bar.set_message(view(&state, width()).join("\n"));
        }
        Live { state, bar, every, shown_at: Instant::now() }
    }

    pub(super) fn hear(&mut self, event: &LoadEvent) {
        if self.every.is_zero() {
            return;
        }
        let before = self.state.phase;
        self.state.hear(event);
        // By seconds, not by the clock: a second that is reported late is followed by one in time.
        let line = self.state.line(whole_seconds(self.every));
        let in_preload = self.state.phase == PRELOAD && self.shown_at.elapsed() >= self.every;
        match (&self.bar, line) {
            (Some(bar), line) if line.is_some() || in_preload || self.state.phase != before => {
                bar.set_message(view(&self.state, width()).join("\n"));
            }
            (None, Some(line)) => note(line),
            (None, None) if in_preload => note(format!("{PRELOAD:<7}  {}", self.state.progress())),
            _ => return,
        }
        self.shown_at = Instant::now();
    }

    /// Takes the view off the screen; lines stay.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Figures are of whole seconds.
fn whole_seconds(every: Duration) -> usize {
    (every.as_secs_f64().ceil() as usize).max(1)
}

/// Columns of the terminal at standard error.
fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { WIDTH_USUAL } else { columns }
}

/// What is known of a run so far.
struct State {
    warmup: Duration,
    window: Duration,
    /// Where the run is, how much of it is over, and of how much: requests of the preload, seconds of anything else.
    phase: &'static str,
    done: f64,
    of: f64,
    /// The last seconds, warm-up included, the latest at the end.
    seconds: VecDeque<SecondReport>,
    /// What the latest of them belongs to, and how many seconds of that are over.
    part: &'static str,
    over: i64,
    /// Failed requests of that part.
    failures: u64,
    /// The seconds of that part that no line and no redraw has shown.
    not_shown: Vec<SecondReport>,
}

const CONNECTING: &str = "connecting";
const PRELOAD: &str = "preload";
const WARMUP: &str = "warm-up";
const WINDOW: &str = "window";

impl State {
    fn new(warmup: Duration, window: Duration) -> State {
        State {
            warmup,
            window,
            phase: CONNECTING,
            done: 0.0,
            of: 0.0,
            seconds: VecDeque::new(),
            part: "",
            over: 0,
            failures: 0,
            not_shown: Vec::new(),
        }
    }

    /// Begins the warm-up or the window.
    fn begin(&mut self, phase: &'static str) {
        let of = if phase == WARMUP { self.warmup } else { self.window };
        (self.phase, self.done, self.of) = (phase, 0.0, of.as_secs_f64());
    }

    /// How far the phase is, in words.
    fn progress(&self) -> String {
        let State { phase, done, of, .. } = *self;
        match phase {
            CONNECTING => String::new(),
            PRELOAD => format!("{} of {} requests", units::short(done), units::short(of)),
            _ => format!("{done}s of {}", units::Span(Duration::from_secs_f64(of))),
        }
    }

    fn hear(&mut self, event: &LoadEvent) {
        match *event {
            LoadEvent::Preloading { requests, of } => {
                (self.phase, self.done, self.of) = (PRELOAD, requests as f64, of as f64);
            }
            LoadEvent::Preloaded { .. } => self.begin(WARMUP),
            LoadEvent::WindowStart => self.begin(WINDOW),
            LoadEvent::Second { second, report } => self.count(second, report),
            LoadEvent::WindowEnd | LoadEvent::Bin { .. } | LoadEvent::Report(_) => {}
        }
    }

    fn count(&mut self, second: i64, report: SecondReport) {
        let (part, over) = match second {
            ..0 => (WARMUP, self.warmup.as_secs_f64().ceil() as i64 + second + 1),
            0.. => (WINDOW, second + 1),
        };
        // The last second of the warm-up is reported when the window has begun.
        if part == WINDOW || self.phase != WINDOW {
            self.begin(part);
            self.done = over as f64;
        }
        if part != self.part {
            self.not_shown.clear();
            self.failures = 0;
        }
        (self.part, self.over) = (part, over);
        self.failures += failures(&report);
        self.not_shown.push(report);
        self.seconds.push_back(report);
        if self.seconds.len() > SPARKS_MAX {
            self.seconds.pop_front();
        }
    }

    /// A line on the seconds that were not shown, if there are at least `every`.
    fn line(&mut self, every: usize) -> Option<String> {
        let seconds = std::mem::take(&mut self.not_shown);
        if seconds.len() < every {
            self.not_shown = seconds;
            return None;
        }
        Some(line(self.over, self.part, &seconds))
    }
}

fn failures(second: &SecondReport) -> u64 {
    second.attempts.saturating_sub(second.successes)
}

/// One line on some seconds, the last of which was over at `at` seconds.
///
/// The percentiles of several seconds together are not known: they are at most the highest of them, and that is what
/// stands there.
fn line(at: i64, phase: &str, seconds: &[SecondReport]) -> String {
    let sum = |figure: fn(&SecondReport) -> u64| seconds.iter().map(figure).sum::<u64>();
    let rate = sum(|second| second.successes) as f64 / seconds.len() as f64;
    let at_most = if seconds.len() > 1 { "≤ " } else { "" };
    let highest = |sign: &str, figure: fn(&SecondReport) -> f64| {
        let highest = seconds.iter().map(figure).fold(0.0, f64::max);
        let none = sum(|second| second.attempts) == 0;
        if none { "–".to_owned() } else { format!("{sign}{}", units::micros(highest)) }
    };
    format!(
        "{at:>5} s  {phase:<7}  {:>5} req/s  p50 {}  p99 {}  max {}  {}",
        units::short(rate),
        highest(at_most, |second| second.latency_us_p50),
        highest(at_most, |second| second.latency_us_p99),
        highest("", |second| second.latency_us_max),
        counted(sum(failures), "error"),
    )
}

/// The view: at most four lines, each shorter than `width`, so that none is ever wrapped. What has no room is left out whole: half
/// a figure is another one.
fn view(state: &State, width: usize) -> Vec<String> {
    // A full line already wraps on some terminals.
    let width = width.saturating_sub(1);
    let mut lines = vec![headline(state, width)];
    if let Some(last) = state.seconds.back() {
        let shown = |us: f64| if last.attempts == 0 { "–".to_owned() } else { units::micros(us) };
        let rate = format!("{} req/s", units::short(last.successes as f64));
        let [p50, p99, max] =
            [("p50", last.latency_us_p50), ("p99", last.latency_us_p99), ("max", last.latency_us_max)]
                .map(|(name, us)| format!("  {name} {:>7}", shown(us)));
        let latency = format!("{p50}{max}{p99}");
        let rates = state.seconds.iter().map(|second| Some(second.successes as f64));
        let p99s =
            (state.seconds.iter()).map(|second| (second.attempts > 0).then_some(second.latency_us_p99));
        // Each figure is beside its curve, and the curves are aligned.
        let column = latency.chars().count();
        let room = width.saturating_sub(column + 2);
        if room >= SPARKS_MIN {
            lines.push(format!("{rate:>column$}  {}", sparks(rates, room)));
            lines.push(format!("{latency:>column$}  {}", sparks(p99s, room)));
        } else {
            let room = width.saturating_sub(rate.chars().count() + 4);
            let curve = if room >= SPARKS_MIN { sparks(rates, room) } else { String::new() };
            lines.push(fitting(width, &[format!("  {rate}"), format!("  {curve}")]));
            lines.push(fitting(width, &[p50, p99, max]));
        }
        let failed = format!("  {} in 1 s", counted(failures(last), "error"));
        lines.push(fitting(width, &[failed, format!(", {} in the {}", state.failures, state.part)]));
    }
    lines.iter().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// The first of `parts`, as many as there is room for.
fn fitting(width: usize, parts: &[String]) -> String {
    let mut line = String::new();
    let mut columns = 0;
    for part in parts {
        columns += part.trim_end().chars().count();
        if columns > width {
            break;
        }
        line += part;
    }
    line
}

/// Which phase it is and how far, with a bar if there is room.
fn headline(state: &State, width: usize) -> String {
    let (name, progress) = (format!("{:<7}", state.phase), state.progress());
    let room = width.saturating_sub(name.chars().count() + progress.chars().count() + 4).min(BAR_MAX);
    if room >= SPARKS_MIN && !progress.is_empty() {
        let full = ((state.done / state.of.max(1e-9) * room as f64) as usize).min(room);
        return format!("{name}  {}{}  {progress}", "█".repeat(full), "░".repeat(room - full));
    }
    fitting(width, &[name, format!("  {progress}")])
}

/// The last of `values` as a curve of at most `room` signs, from zero to the highest; a blank where there is no value.
fn sparks(values: impl DoubleEndedIterator<Item = Option<f64>> + Clone, room: usize) -> String {
    let values = values.rev().take(room.min(SPARKS_MAX));
    let highest = values.clone().flatten().fold(0.0, f64::max);
    let sign = |value: Option<f64>| match value {
        None => ' ',
        Some(value) if value > 0.0 => {
            SPARKS[((value / highest * SPARKS.len() as f64).ceil() as usize).clamp(1, SPARKS.len()) - 1]
        }
        Some(_) => SPARKS[0],
    };
    let latest_first: Vec<char> = values.map(sign).collect();
    latest_first.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WARMUP_TIME: Duration = Duration::from_secs(2);
    const WINDOW_TIME: Duration = Duration::from_secs(30);

    fn second(successes: u64, failures: u64, p99_us: f64) -> SecondReport {
        SecondReport {
            attempts: successes + failures,
            successes,
            latency_us_mean: p99_us / 4.0,
            latency_us_p50: p99_us / 4.0,
            latency_us_p99: p99_us,
            latency_us_max: p99_us * 2.0,
        }
    }

    /// A run whose window had these seconds.
    fn state(seconds: &[SecondReport]) -> State {
        let mut state = State::new(WARMUP_TIME, WINDOW_TIME);
        state.hear(&LoadEvent::WindowStart);
        for (second, report) in seconds.iter().enumerate() {
            state.hear(&LoadEvent::Second { second: second as i64, report: *report });
        }
        state
    }

    #[test]
    fn the_view_has_each_figure_beside_its_curve() {
        let seconds = [second(48_200, 0, 4000.0), second(24_100, 3, 8000.0), second(48_200, 1, 1000.0)];
        assert_eq!(
            view(&state(&seconds), 60),
            [
                "window   ███░░░░░░░░░░░░░░░░░░░░░░░░░░░  3s of 30s",
                "                            48.2k req/s  █▄█",
                "  p50  250 µs  max 2.00 ms  p99 1.00 ms  ▄█▁",
                "  1 error in 1 s, 4 in the window",
            ]
        );
    }

    #[test]
    fn a_narrow_terminal_loses_the_curve_of_latencies_and_keeps_the_figures() {
        let seconds = [second(48_200, 0, 4000.0), second(24_100, 3, 8000.0)];
        assert_eq!(
            view(&state(&seconds), 40),
            [
                "window   █░░░░░░░░░░░░░░░░░░  2s of 30s",
                "  24.1k req/s  █▄",
                "  p50 2.00 ms  p99 8.00 ms  max 16.0 ms",
                "  3 errors in 1 s, 3 in the window",
            ]
        );
    }

    #[test]
    fn what_has_no_room_is_left_out_whole() {
        let seconds = [second(48_200, 0, 4000.0), second(24_100, 3, 8000.0)];
        assert_eq!(
            view(&state(&seconds), 30),
            [
                "window   ░░░░░░░░░  2s of 30s",
                "  24.1k req/s  █▄",
                "  p50 2.00 ms  p99 8.00 ms",
                "  3 errors in 1 s"
            ]
        );
        assert_eq!(view(&state(&seconds), 15), ["window", "  24.1k req/s", "  p50 2.00 ms"]);
        assert_eq!(view(&state(&seconds), 8), ["window"]);
        assert!(view(&state(&seconds), 5).is_empty());
    }

    #[test]
    fn a_redraw_is_due_by_the_seconds_and_not_by_when_they_are_heard_of() {
        let mut state = state(&[second(1, 0, 1.0), second(2, 0, 1.0)]);
        // Both at once: one redraw shows them, and the next second has its own.
        assert!(state.line(1).is_some_and(|line| line.starts_with("    2 s")));
        assert!(state.line(1).is_none());
        state.hear(&LoadEvent::Second { second: 2, report: second(3, 0, 1.0) });
        assert!(state.line(2).is_none() && state.line(1).is_some());
    }

    #[test]
    fn no_line_is_ever_as_wide_as_the_terminal() {
        let huge = second(u64::MAX / 1000, u64::MAX / 1000, 1e18);
        for seconds in [vec![], vec![huge; 200], vec![second(0, 0, 0.0); 3], vec![second(7, 1, 85.2); 50]] {
            for width in [0, 1, 9, 40, 60, 120, 500] {
                for line in view(&state(&seconds), width) {
                    let columns = line.chars().count();
                    assert!(columns < width.max(1), "{columns} columns of {width}: {line}");
                }
            }
        }
    }

    #[test]
    fn curves_have_forty_seconds_where_there_is_room() {
        let seconds: Vec<SecondReport> = (1..=60).map(|n| second(n * 100, 0, 100.0)).collect();
        for (width, signs) in [(60, 18), (120, 40)] {
            let lines = view(&state(&seconds), width);
            assert_eq!(lines[1].chars().filter(|sign| SPARKS.contains(sign)).count(), signs, "{}", lines[1]);
            assert!(lines[1].ends_with('█') && lines[2].ends_with("██"), "{lines:?}");
        }
    }

    #[test]
    fn before_the_first_second_there_is_only_the_phase() {
        let mut state = State::new(WARMUP_TIME, WINDOW_TIME);
        assert_eq!(view(&state, 60), ["connecting"]);
        state.hear(&LoadEvent::Preloading { requests: 5000, of: 20_000 });
        assert_eq!(view(&state, 60), ["preload  ██████░░░░░░░░░░░░░░░░░░░  5.00k of 20.0k requests"]);
        state.hear(&LoadEvent::Preloaded { keys: 10_000, secs: 1.5 });
        assert_eq!(view(&state, 40), ["warm-up  ░░░░░░░░░░░░░░░░░░░░  0s of 2s"]);
    }

    #[test]
    fn a_second_without_requests_has_no_latency_and_leaves_a_gap() {
        let seconds = [second(10, 0, 100.0), second(0, 0, 0.0), second(0, 0, 0.0)];
        let lines = view(&state(&seconds), 60);
        assert_eq!(lines[1].trim_start(), "0 req/s  █▁▁");
        assert_eq!(lines[2], "  p50       –  max       –  p99       –  █");
        let state = &mut state(&seconds[1..]);
        assert_eq!(state.line(2).unwrap(), "    2 s  window       0 req/s  p50 –  p99 –  max –  0 errors");
    }

    #[test]
    fn a_line_tells_of_the_seconds_since_the_last_one() {
        let mut state = State::new(WARMUP_TIME, WINDOW_TIME);
        let mut lines = Vec::new();
        for (at, report) in [
            (-2, second(100, 5, 100.0)),
            (-1, second(100, 0, 100.0)),
            (0, second(1000, 0, 4000.0)),
            (1, second(2000, 1, 8000.0)),
            (2, second(3000, 0, 1000.0)),
        ] {
            state.hear(&LoadEvent::Second { second: at, report });
            lines.extend(state.line(2));
        }
        assert_eq!(
            lines,
            [
                "    2 s  warm-up    100 req/s  p50 ≤ 25.0 µs  p99 ≤ 100 µs  max 200 µs  5 errors",
                "    2 s  window   1.50k req/s  p50 ≤ 2.00 ms  p99 ≤ 8.00 ms  max 16.0 ms  1 error",
            ]
        );
        assert_eq!(
            state.line(1).unwrap(),
            "    3 s  window   3.00k req/s  p50 250 µs  p99 1.00 ms  max 2.00 ms  0 errors"
        );
    }
}
