//! The straight line through values at equal distances.

/// A line by least squares.
pub(super) struct Line {
    /// The mean of the values.
    pub(super) mean: f64,
    /// By how much it rises from one value to the next.
    pub(super) slope: f64,
    /// What is left of the values around their mean, and around the line: sums of squares.
    pub(super) squares: (f64, f64),
}

/// The line through `values`; of fewer than two it is level.
pub(super) fn line(values: &[f64]) -> Line {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let around_mean: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let rise: f64 = values.iter().enumerate().map(|(i, value)| place(i, values.len()) * (value - mean)).sum();
    let spread = spread(values.len());
    let slope = if spread > 0.0 { rise / spread } else { 0.0 };
    Line { mean, slope, squares: (around_mean, around_mean - slope * rise) }
}

/// The sum of the squares of the places, so that a slope has the variance of a value over this.
pub(super) fn spread(count: usize) -> f64 {
    let n = count as f64;
    n * (n * n - 1.0) / 12.0
}

/// What lies beside the line, value by value.
pub(super) fn beside(values: &[f64]) -> Vec<f64> {
    let Line { mean, slope, .. } = line(values);
    values.iter().enumerate().map(|(i, value)| value - mean - slope * place(i, values.len())).collect()
}

/// Where a value stands, counted from the middle.
fn place(i: usize, count: usize) -> f64 {
    i as f64 - (count as f64 - 1.0) / 2.0
}
