//! Axes: the one that panels share, and the upright one of each.

use super::Scale;
use super::ink::{LEFT, RIGHT, WIDTH, ZOOM};
use crate::series::{Kind, Series};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// An axis with the ticks we choose; the library's own choice knows neither levels nor 1-2-5.
pub(super) struct Axis {
    pub(super) ends: (f64, f64),
    pub(super) ticks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let share = (value - self.ends.0) / (self.ends.1 - self.ends.0);
        low + (f64::from(high - low) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.ends.0..self.ends.1
    }
}

/// The shared axis: its ends, and where on it a point lies.
#[derive(Clone, Copy)]
pub(crate) struct Shared {
    pub(crate) ends: (f64, f64),
    pub(crate) place: fn(f64) -> f64,
}

impl Shared {
    /// Where in the drawing a point lies.
    pub(crate) fn x(&self, at: f64) -> i32 {
        let width = f64::from((WIDTH - LEFT - RIGHT) * ZOOM);
        LEFT * ZOOM + (((self.place)(at) - self.ends.0) / (self.ends.1 - self.ends.0) * width).round() as i32
    }
}

/// The ends of a vertical axis and its ticks, as coordinates of that axis.
pub(crate) fn vertical(scale: Scale, series: &[Series]) -> (f64, f64, Vec<f64>) {
    let value_of = |kind: fn(Kind) -> bool| {
        let of = series.iter().filter(move |series| kind(series.kind)).flat_map(|series| &series.points);
        of.flat_map(|point| [Some(point.value), point.interval.map(|(_, high)| high)])
            .flatten()
            .filter(|value| value.is_finite())
    };
    let values: Vec<f64> = value_of(|kind| kind != Kind::Bound).collect();
    match scale {
        // A figure above 1 is an error of a sampler; it must be seen.
        Scale::Share => {
            let most = values.iter().copied().fold(1.0, f64::max);
            (0.0, most * 1.04, vec![0.0, 0.25, 0.5, 0.75, 1.0])
        }
        Scale::Linear => {
            let most = values.iter().copied().fold(0.0, f64::max);
            let most = if most > 0.0 { most * 1.12 } else { 1.0 };
            let step = step(most);
            (0.0, most, (0..=5).map(|i| f64::from(i) * step).filter(|tick| *tick <= most).collect())
        }
        Scale::Around(least) => {
            let most = values.iter().map(|value| value.abs()).fold(least, f64::max) * 1.2;
            let step = step(most * 2.0);
            (-most, most, (-5..=5).map(|i| f64::from(i) * step).filter(|tick| tick.abs() <= most).collect())
        }
        Scale::Log => {
            let positive: Vec<f64> =
                values.into_iter().filter(|value| *value > 0.0).map(f64::log10).collect();
            if positive.is_empty() {
                return (0.0, 1.0, vec![0.0, 1.0]);
            }
            let least = positive.iter().copied().fold(f64::MAX, f64::min) - 0.12;
            let most = positive.iter().copied().fold(f64::MIN, f64::max) + 0.12;
            let steps: &[f64] = if most - least < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let ticks = (least.floor() as i32..=most.ceil() as i32)
                .flat_map(|decade| steps.iter().map(move |step| f64::from(decade) + step.log10()))
                .filter(|tick| (least..=most).contains(tick))
                .collect();
            (least, most, ticks)
        }
    }
}

/// Between the ticks of an axis from zero to `most`, at most five of them: 1, 2, 2.5 or 5 times a power of ten.
pub(crate) fn step(most: f64) -> f64 {
    let magnitude = 10f64.powf((most / 4.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|of| of * magnitude);
    steps.into_iter().find(|step| most / step < 5.0).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plots::ink::trimmed;
    use crate::series::{Colour, Point};

    #[test]
    fn ticks_are_round_and_inside_the_axis() {
        let ticks = |scale, values: &[f64]| {
            let point = |value: &f64| Point { at: 1.0, value: *value, interval: None, usable: true };
            let points = values.iter().map(point).collect();
            let series = Series { label: String::new(), colour: Colour::Ink, kind: Kind::Measured, points };
            let (least, most, ticks) = vertical(scale, &[series]);
            assert!(ticks.iter().all(|tick| (least..=most).contains(tick)) && least < most);
            ticks
        };
        assert_eq!(ticks(Scale::Linear, &[920.0]), [0.0, 250.0, 500.0, 750.0, 1000.0]);
        assert_eq!(ticks(Scale::Linear, &[]), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(ticks(Scale::Log, &[100.0, 100_000.0]), [2.0, 3.0, 4.0, 5.0]);
        assert_eq!(ticks(Scale::Share, &[0.2]).len(), 5);
        assert_eq!(ticks(Scale::Around(0.02), &[0.001, -0.002]), [-0.02, -0.01, 0.0, 0.01, 0.02]);
        assert!(!ticks(Scale::Log, &[0.0, f64::NAN]).is_empty());
        assert_eq!(
            (trimmed("5.00k"), trimmed("1.50 ms"), trimmed("100 µs")),
            ("5k".into(), "1.5 ms".into(), "100 µs".into())
        );
    }
}
