//! Vertical axes: their ends and ticks.

use crate::series::{Kind, Series};

/// How a vertical axis runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// From zero to a little above the largest value.
    Linear,
    /// From 0 to 1.
    Share,
    /// By powers of ten; values that are not positive are left out.
    Log,
    /// As far below zero as above it, and at least this far.
    Around(f64),
}

/// A vertical axis.
pub(crate) struct Axis {
    /// At its lower and its upper end, as values or as their logarithms.
    ends: (f64, f64),
    is_log: bool,
    /// The values with a tick, ascending.
    pub(crate) ticks: Vec<f64>,
}

impl Axis {
    /// The axis that shows all of `series`.
    pub(crate) fn of(scale: Scale, series: &[Series]) -> Axis {
        let values = |is_shown: fn(Kind) -> bool| {
            let points = series.iter().filter(move |of| is_shown(of.kind)).flat_map(|of| &of.points);
            let ends = points.flat_map(|point| [Some(point.value), point.interval.map(|(_, high)| high)]);
            ends.flatten().filter(|value| value.is_finite())
        };
        // A ceiling far above all that was measured is left out, so that it does not press the curves down.
        const CEILING_MAX: f64 = 1.6;
        let mut all: Vec<f64> = values(|kind| kind != Kind::Ceiling).collect();
        let most = all.iter().copied().fold(0.0, f64::max);
        all.extend(values(|kind| kind == Kind::Ceiling).filter(|value| *value <= CEILING_MAX * most));
        Axis::of_values(scale, &all)
    }

    /// The axis that shows all of `values`.
    pub(crate) fn of_values(scale: Scale, values: &[f64]) -> Axis {
        let finite = values.iter().copied().filter(|value| value.is_finite());
        let most = finite.clone().map(f64::abs).fold(0.0, f64::max);
        let is_log = scale == Scale::Log;
        let (ends, ticks): (_, Vec<f64>) = match scale {
            // A figure above 1 is an error of a sampler; it must be seen.
            Scale::Share => ((0.0, most.max(1.0) * 1.04), vec![0.0, 0.25, 0.5, 0.75, 1.0]),
            Scale::Linear => {
                let most = if most > 0.0 { most * 1.12 } else { 1.0 };
                ((0.0, most), (0..=5).map(|i| f64::from(i) * step(most)).collect())
            }
            Scale::Around(least) => {
                let most = most.max(least) * 1.2;
                ((-most, most), (-5..=5).map(|i| f64::from(i) * step(most * 2.0)).collect())
            }
            Scale::Log => {
                let logs = || finite.clone().filter(|value| *value > 0.0).map(f64::log10);
                let ends = (logs().fold(f64::MAX, f64::min) - 0.12, logs().fold(f64::MIN, f64::max) + 0.12);
                let ends = if ends.0 < ends.1 { ends } else { (0.0, 1.0) };
                let steps: &[f64] = if ends.1 - ends.0 < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let decades = ends.0.floor() as i32..=ends.1.ceil() as i32;
                (
                    ends,
                    decades.flat_map(|decade| steps.iter().map(move |of| of * 10f64.powi(decade))).collect(),
                )
            }
        };
        let mut axis = Axis { ends, is_log, ticks: Vec::new() };
        axis.ticks = ticks.into_iter().filter(|tick| axis.shows(*tick)).collect();
        axis
    }

    fn place(&self, value: f64) -> f64 {
        if self.is_log { value.log10() } else { value }
    }

    /// Whether `value` lies between its ends.
    pub(crate) fn shows(&self, value: f64) -> bool {
        (self.ends.0..=self.ends.1).contains(&self.place(value))
    }

    /// The share of the axis that is below `value`, 0–1.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let (least, most) = self.ends;
        (self.place(value).max(least).min(most) - least) / (most - least)
    }
}

/// The distance of the ticks on an axis from zero to `most`, so that there are at most five: 1, 2, 2.5 or 5 times a power
/// of ten.
pub(crate) fn step(most: f64) -> f64 {
    let magnitude = 10f64.powf((most / 4.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|of| of * magnitude);
    steps.into_iter().find(|step| most / step < 5.0).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside_the_axis() {
        let ticks = |scale, values: &[f64]| {
            let axis = Axis::of_values(scale, values);
            assert!(axis.ticks.iter().all(|tick| axis.shows(*tick)) && axis.ends.0 < axis.ends.1);
            axis.ticks
        };
        assert_eq!(ticks(Scale::Linear, &[920.0]), [0.0, 250.0, 500.0, 750.0, 1000.0]);
        assert_eq!(ticks(Scale::Linear, &[]), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(ticks(Scale::Log, &[100.0, 100_000.0]), [100.0, 1e3, 1e4, 1e5]);
        assert_eq!(ticks(Scale::Share, &[0.2]).len(), 5);
        assert_eq!(ticks(Scale::Around(0.02), &[0.001, -0.002]), [-0.02, -0.01, 0.0, 0.01, 0.02]);
        assert!(!ticks(Scale::Log, &[0.0, f64::NAN]).is_empty());
    }
}
