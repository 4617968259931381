//! What is shown while `weir load` runs, on standard error: a view of a few lines that stays in its place on a terminal,
//! a line every now and then elsewhere.
//!
//! The view is made of a [`State`] and a width, without a clock or a terminal.

use super::note;
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
    place: Place,
}

enum Place {
    Nowhere,
    /// On a terminal, with the time between two redraws and that of the last one; it counts only while there are no seconds.
    Screen(ProgressBar, Duration, Instant),
    /// Elsewhere, with the time between two lines and that of the last one, likewise.
    Lines(Duration, Instant),
}

impl Live {
    /// For a run of `plan`. Without an interval the usual one; nothing at all if it is zero.
    pub(super) fn start(plan: &Plan, interval: Option<Duration>) -> Live {
        let terminal = ProgressDrawTarget::stderr();
        let place = match (interval, terminal.is_hidden()) {
            (Some(Duration::ZERO), _) => Place::Nowhere,
            (_, false) => {
                let style = ProgressStyle::with_template("{msg}").expect("a constant that parses");
                let bar = ProgressBar::with_draw_target(None, terminal).with_style(style);
                Place::Screen(bar, interval.unwrap_or(REDRAW_EVERY), Instant::now())
            }
            (_, true) => Place::Lines(interval.unwrap_or(LINE_EVERY), Instant::now()),
        };
        let mut live = Live { state: State::new(plan.warmup, plan.window), place };
        if plan.preload_keys() == 0 {
            live.state.phase = Phase::timed(WARMUP, 0, plan.warmup);
        }
        if let Place::Screen(bar, ..) = &live.place {
            bar.set_message(view(&live.state, width()).join("\n"));
        }
        live
    }

    /// Shows nothing.
    pub(super) fn silent() -> Live {
        Live { state: State::new(Duration::ZERO, Duration::ZERO), place: Place::Nowhere }
    }

    pub(super) fn hear(&mut self, event: &LoadEvent) {
        let before = self.state.phase.name;
        self.state.hear(event);
        match &mut self.place {
            Place::Nowhere => {}
            Place::Screen(bar, every, drawn) => {
                // By seconds, not by the clock: a second that is reported late is followed by one in time.
                let is_due = match self.state.phase.name {
                    PRELOAD => drawn.elapsed() >= *every,
                    _ => self.state.untold(whole_seconds(*every)).is_some(),
                };
                if is_due || self.state.phase.name != before {
                    bar.set_message(view(&self.state, width()).join("\n"));
                    *drawn = Instant::now();
                }
            }
            Place::Lines(every, told) => {
                if let Some(line) = self.state.line(whole_seconds(*every)) {
                    note(line);
                } else if self.state.phase.name == PRELOAD && told.elapsed() >= *every {
                    note(format!("{PRELOAD:<7}  {}", self.state.phase.progress));
                    *told = Instant::now();
                }
            }
        }
    }

    /// Takes the view off the screen; lines stay.
    pub(super) fn end(&self) {
        if let Place::Screen(bar, ..) = &self.place {
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
    let told = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(0, |size| usize::from(size.ws_col));
    if told == 0 { WIDTH_USUAL } else { told }
}

/// What is known of a run so far.
struct State {
    warmup: Duration,
    window: Duration,
    phase: Phase,
    /// The last seconds, warm-up included, the latest at the end.
    seconds: VecDeque<SecondReport>,
    /// What the latest of them belongs to, and how many seconds of that are over.
    part: &'static str,
    over: i64,
    /// Failed requests of that part.
    failures: u64,
    /// The seconds of that part that no line and no redraw has shown.
    untold: Vec<SecondReport>,
}

const PRELOAD: &str = "preload";
const WARMUP: &str = "warm-up";
const WINDOW: &str = "window";

/// Where a run is, and how far.
#[derive(Clone, Debug)]
struct Phase {
    name: &'static str,
    /// How much of it is over, 0–1.
    share: f64,
    /// The same in words.
    progress: String,
}

impl Phase {
    fn timed(name: &'static str, over: i64, of: Duration) -> Phase {
        let share = over as f64 / of.as_secs_f64().max(1e-9);
        Phase { name, share, progress: format!("{over}s of {}", units::Span(of)) }
    }
}

impl State {
    fn new(warmup: Duration, window: Duration) -> State {
        State {
            warmup,
            window,
            phase: Phase { name: "connecting", share: 0.0, progress: String::new() },
            seconds: VecDeque::new(),
            part: "",
            over: 0,
            failures: 0,
            untold: Vec::new(),
        }
    }

    fn hear(&mut self, event: &LoadEvent) {
        match *event {
            LoadEvent::Preloading { requests, of } => {
                let (requests, of) = (requests as f64, of as f64);
                let progress = format!("{} of {} requests", units::short(requests), units::short(of));
                self.phase = Phase { name: PRELOAD, share: requests / of.max(1.0), progress };
            }
            LoadEvent::Preloaded { .. } => self.phase = Phase::timed(WARMUP, 0, self.warmup),
            LoadEvent::WindowStart => self.phase = Phase::timed(WINDOW, 0, self.window),
            LoadEvent::Second { second, report } => self.count(second, report),
            LoadEvent::WindowEnd | LoadEvent::Bin { .. } | LoadEvent::Report(_) => {}
        }
    }

    fn count(&mut self, second: i64, report: SecondReport) {
        let (part, over, of) = match second {
            ..0 => (WARMUP, self.warmup.as_secs_f64().ceil() as i64 + second + 1, self.warmup),
            0.. => (WINDOW, second + 1, self.window),
        };
        // The last second of the warm-up is reported when the window has begun.
        if part == WINDOW || self.phase.name != WINDOW {
            self.phase = Phase::timed(part, over, of);
        }
        if part != self.part {
            self.untold.clear();
            self.failures = 0;
        }
        (self.part, self.over) = (part, over);
        self.failures += failures(&report);
        self.untold.push(report);
        self.seconds.push_back(report);
        if self.seconds.len() > SPARKS_MAX {
            self.seconds.pop_front();
        }
    }

    /// Takes the seconds that were not shown, if there are at least `every`.
    fn untold(&mut self, every: usize) -> Option<Vec<SecondReport>> {
        (self.untold.len() >= every).then(|| std::mem::take(&mut self.untold))
    }

    /// A line on the last `every` seconds, if it is time for one.
    fn line(&mut self, every: usize) -> Option<String> {
        let seconds = self.untold(every)?;
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
        errors(sum(failures)),
    )
}

fn errors(count: u64) -> String {
    format!("{count} error{}", if count == 1 { "" } else { "s" })
}

/// The view: at most four lines, each shorter than `width`, so that none is ever wrapped. What has no room is left out whole: half
/// a figure is another one.
fn view(state: &State, width: usize) -> Vec<String> {
    // A full line already wraps on some terminals.
    let width = width.saturating_sub(1);
    let mut lines = vec![headline(&state.phase, width)];
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
        let failed = format!("  {} in 1 s", errors(failures(last)));
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
fn headline(phase: &Phase, width: usize) -> String {
    let Phase { name, share, progress } = phase;
    let name = format!("{name:<7}");
    let room = width.saturating_sub(name.chars().count() + progress.chars().count() + 4).min(BAR_MAX);
    if room >= SPARKS_MIN && !progress.is_empty() {
        let full = ((share * room as f64) as usize).min(room);
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
        assert_eq!(state.untold(1).map(|seconds| seconds.len()), Some(2));
        assert!(state.untold(1).is_none());
        state.hear(&LoadEvent::Second { second: 2, report: second(3, 0, 1.0) });
        assert!(state.untold(2).is_none() && state.untold(1).is_some());
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
