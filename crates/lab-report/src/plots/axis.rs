//! Axes: which values they show, where each is drawn, and the ticks.

/// How an axis runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// From zero to a little above the largest value and at least this.
    Linear(f64),
    /// By powers of ten; values that are not positive are left out.
    Log,
}

/// An axis of a drawing.
pub(crate) struct Axis {
    /// Where its lower and its upper end are drawn.
    pub(crate) places: (f64, f64),
    /// At its lower and its upper end, as values or as their logarithms.
    ends: (f64, f64),
    is_log: bool,
    /// The values with a tick, ascending, and what is written there.
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// The axis that shows all of `values`, with ticks that are written by `tick`.
    pub(crate) fn of(
        scale: Scale,
        values: impl Iterator<Item = f64>,
        places: (f64, f64),
        tick: fn(f64) -> String,
    ) -> Axis {
        let values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        let (ends, ticks): (_, Vec<f64>) = match scale {
            Scale::Linear(most) => {
                let most = values.into_iter().fold(most, f64::max);
                let most = if most > 0.0 { most * 1.12 } else { 1.0 };
                ((0.0, most), (0..=5).map(|i| f64::from(i) * step(most)).collect())
            }
            Scale::Log => {
                let logs = values.into_iter().filter(|value| *value > 0.0).map(f64::log10);
                let (least, most) =
                    logs.fold((f64::MAX, f64::MIN), |(least, most), log| (least.min(log), most.max(log)));
                let (least, most) = if least <= most { (least - 0.12, most + 0.12) } else { (0.0, 1.0) };
                let steps: &[f64] = if most - least < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let decades = least.floor() as i32..=most.ceil() as i32;
                let ticks = decades.flat_map(|decade| steps.iter().map(move |of| of * 10f64.powi(decade)));
                ((least, most), ticks.collect())
            }
        };
        let mut axis = Axis { places, ends, is_log: scale == Scale::Log, ticks: Vec::new() };
        axis.ticks = ticks.into_iter().filter(|at| axis.shows(*at)).map(|at| (at, tick(at))).collect();
        axis
    }

    fn scaled(&self, value: f64) -> f64 {
        if self.is_log { value.log10() } else { value }
    }

    /// Whether `value` lies between its ends.
    pub(crate) fn shows(&self, value: f64) -> bool {
        (self.ends.0..=self.ends.1).contains(&self.scaled(value))
    }

    /// Where `value` is drawn; at the nearest end what lies beyond it.
    pub(crate) fn at(&self, value: f64) -> f64 {
        let ((least, most), (first, last)) = (self.ends, self.places);
        first + (self.scaled(value).max(least).min(most) - least) / (most - least) * (last - first)
    }
}

/// The distance of the ticks on an axis of this length, so that there are at most five: 1, 2, 2.5 or 5 times a power of ten.
fn step(length: f64) -> f64 {
    let magnitude = 10f64.powf((length / 4.0).log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|of| of * magnitude);
    steps.into_iter().find(|step| length / step < 5.0).unwrap_or(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside_the_axis() {
        let ticks = |scale, values: &[f64]| {
            let axis = Axis::of(scale, values.iter().copied(), (0.0, 1.0), |tick| tick.to_string());
            assert!(axis.ticks.iter().all(|(tick, _)| axis.shows(*tick)) && axis.ends.0 < axis.ends.1);
            axis.ticks.into_iter().map(|(tick, _)| tick).collect::<Vec<_>>()
        };
        assert_eq!(ticks(Scale::Linear(0.0), &[920.0]), [0.0, 250.0, 500.0, 750.0, 1000.0]);
        assert_eq!(ticks(Scale::Linear(0.0), &[]), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(ticks(Scale::Log, &[100.0, 100_000.0]), [100.0, 1e3, 1e4, 1e5]);
        assert_eq!(ticks(Scale::Linear(1.0), &[0.2]).len(), 5);
        assert!(!ticks(Scale::Log, &[0.0, f64::NAN]).is_empty());
    }
}
