//! Whether a quota of processor time held somebody back.

use crate::rows::Row;
use lab_data::results::Limit;

/// Of the time, 0–1, the share in which the part of this quota was not let onto a core because it had used it up: the mean over the
/// levels that decide. `None` of other limits, and where it was not read.
pub(super) fn throttled(limit: Limit, deciding: &[&Row]) -> Option<f64> {
    let part = match limit {
        Limit::ServerQuota => "server",
        Limit::DatabaseQuota => "database",
        _ => return None,
    };
    // Of several databases the one that is held back most.
    let is_meant =
        |of: &str| of.strip_prefix(part).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    let read = |row: &&Row| {
        let of_it =
            row.figures.iter().filter(|known| known.figure == "throttled_percent" && is_meant(&known.of));
        of_it.map(|known| known.value / 100.0).max_by(f64::total_cmp)
    };
    // Time held back is summed over the cores that a group would have run on.
    let all: Vec<f64> = deciding.iter().filter_map(read).map(|share| share.min(1.0)).collect();
    let share = all.iter().sum::<f64>() / all.len() as f64;
    share.is_finite().then_some(share)
}
