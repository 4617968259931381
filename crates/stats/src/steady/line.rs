//! The straight line through values at equal distances, by least squares.

/// A line and what it leaves.
pub(super) struct Line {
    /// The mean of the values.
    pub(super) mean: f64,
    /// By how much it rises from one value to the next.
    pub(super) slope: f64,
    /// The sum of squares around the mean.
    pub(super) deviations: f64,
    /// The sum of squares around the line.
    pub(super) residuals: f64,
}

impl Line {
    /// The line through `values`; through fewer than two it is level.
    pub(super) fn through(values: &[f64]) -> Line {
        let mean = super::average(values);
        let deviations = values.iter().map(|value| (value - mean).powi(2)).sum();
        let rise: f64 = (0..values.len()).map(|i| place(i, values.len()) * (values[i] - mean)).sum();
        let slope = if values.len() > 1 { rise / spread(values.len()) } else { 0.0 };
        Line { mean, slope, deviations, residuals: deviations - slope * rise }
    }

    /// Its height at the i-th of `count` values.
    pub(super) fn at(&self, i: usize, count: usize) -> f64 {
        self.mean + self.slope * place(i, count)
    }
}

/// The sum of squares of the places: a slope has the variance of a value divided by this.
pub(super) fn spread(count: usize) -> f64 {
    let n = count as f64;
    n * (n * n - 1.0) / 12.0
}

/// Where a value stands, counted from the middle.
fn place(i: usize, count: usize) -> f64 {
    i as f64 - (count as f64 - 1.0) / 2.0
}
