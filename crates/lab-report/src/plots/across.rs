//! The horizontal axis that the panels of a figure share.

use super::axis::step;
use crate::svg::{Anchor, Colour, Svg};

/// A horizontal axis, and how much room there is beside the panels.
pub(super) struct Across {
    pub(super) width: f64,
    /// For the names of the lines.
    pub(super) right: f64,
    /// The values at its ends.
    pub(super) ends: (f64, f64),
    ticks: Vec<f64>,
    unit: &'static str,
    is_log: bool,
}

/// Room for the ticks of the panels.
const LEFT: f64 = 60.0;

impl Across {
    /// Clients, by powers of two.
    pub(super) fn clients(width: f64, right: f64, levels: impl Iterator<Item = f64>) -> Across {
        let ticks: Vec<f64> = levels.collect();
        let (first, last) = (ticks.first().copied().unwrap_or(1.0), ticks.last().copied().unwrap_or(1.0));
        // A quarter of an octave of air, so that a single level has a place too.
        const AIR: f64 = 1.19;
        Across { width, right, ends: (first / AIR, last * AIR), ticks, unit: "clients", is_log: true }
    }

    /// Seconds of a window.
    pub(super) fn seconds(width: f64, right: f64, seconds: f64) -> Across {
        let step = step(seconds);
        let ticks = (0..).map(|i| f64::from(i) * step).take_while(|tick| *tick <= seconds).collect();
        Across { width, right, ends: (0.0, seconds), ticks, unit: "seconds", is_log: false }
    }

    /// Where a value lies.
    pub(super) fn x(&self, value: f64) -> f64 {
        let of = |value: f64| if self.is_log { value.log2() } else { value };
        let (first, last) = (of(self.ends.0), of(self.ends.1));
        LEFT + (of(value) - first) / (last - first) * (self.width - self.right - LEFT)
    }

    /// Where the panels begin and end.
    pub(super) fn sides(&self) -> (f64, f64) {
        (LEFT, self.width - self.right)
    }

    /// Draws the ticks below what ends at `bottom`.
    pub(super) fn draw(&self, svg: &mut Svg, bottom: f64) {
        let mut free = f64::MIN;
        for tick in &self.ticks {
            let (x, words) = (self.x(*tick), tick.to_string());
            svg.line(&[(x, bottom), (x, bottom + 4.0)], Colour::Ink, 1.0);
            let half = words.len() as f64 * 4.0;
            // One without room for its words keeps its line.
            if x - half > free {
                svg.text(&words, (x, bottom + 14.0), 12.0, Colour::Ink, Anchor::Middle);
                free = x + half + 4.0;
            }
        }
        svg.text(self.unit, (0.0, bottom + 14.0), 12.0, Colour::Ink, Anchor::Start);
    }
}
