//! Which of the parts that were placed on cores are the target's.

use lab_data::experiment::{GENERATOR, LINK};
use lab_data::results::{Placement, Results};

/// The parts of the target, in the order of the placements; none where the lab did not start it.
pub(super) fn of_target(results: &Results) -> impl Iterator<Item = &Placement> {
    results.placements.iter().filter(|placed| ![GENERATOR, LINK].contains(&&*placed.part))
}
