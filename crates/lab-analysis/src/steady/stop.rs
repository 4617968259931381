//! When a window that may go on is long enough.
//!
//! Whoever looks after every bin, and ends with the first narrow interval, ends with one that is narrow by luck. So it is
//! looked at seldom, and each time by the same judgement that is made of the whole in the end. How often the interval then
//! holds the mean is the business of [`super::synthetic`].

use super::gate::moved_by_cut;
use super::{BINS_LEAST, Series, Verdict, judge};

/// A look is so many times as far from the beginning as the one before: often enough to waste little, seldom enough
/// that neighbours differ. It was chosen among 1.1, 1.25, 1.5 and 2.
const GROWTH: f64 = 1.25;

/// Whether a window of at least `least` bins is looked at after `bins`.
pub fn is_look(bins: usize, least: usize) -> bool {
    looks(least).take_while(|look| *look <= bins).any(|look| look == bins)
}

/// After how many bins it is looked at.
pub(super) fn looks(least: usize) -> impl Iterator<Item = usize> {
    let first = least.max(BINS_LEAST) as f64;
    (0..).map(move |look| (first * GROWTH.powi(look)).round() as usize)
}

/// Whether all figures are steady and known as well as was asked, and no warm-up in the window moves one of them.
pub fn is_known(all: &[Series]) -> bool {
    matches!(judge(all), Verdict::Steady(reached) if moved_by_cut(&reached).is_none())
}
