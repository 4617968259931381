//! Whether somebody was held back for want of a resource: what the kernel counts of those who could go on and may not.

use crate::rows::Row;
use lab_data::results::Limit;

/// Those who are held back, as a share of the time; a mean over the levels that decide.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pressure {
    /// What the kernel counts: time in which some thread of the machine waited for a core (`CPU`) or for a disk (`I/O`), or [`THROTTLED`].
    pub of: &'static str,
    /// 0–1.
    pub share: f64,
}

/// Time in which the group was not let onto a core, because it had used up its quota.
pub const THROTTLED: &str = "throttled";

/// The pressure that belongs to `limit`; `None` where there is none of its kind, or it was not read.
pub fn pressure(limit: Limit, deciding: &[&Row]) -> Option<Pressure> {
    let (of, owner, figure) = match limit {
        Limit::ServerCpu | Limit::DatabaseCpu => ("CPU", "pressure cpu", "pressure_some_percent"),
        Limit::ServerQuota => (THROTTLED, "server", "throttled_percent"),
        Limit::DatabaseQuota => (THROTTLED, "database", "throttled_percent"),
        Limit::CommitPath | Limit::Bandwidth | Limit::Reads => {
            ("I/O", "pressure io", "pressure_some_percent")
        }
        _ => return None,
    };
    // Of several databases the one that is held back most.
    let is_meant =
        |of: &str| of.strip_prefix(owner).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    let read = |row: &&Row| {
        let of_it = row.figures.iter().filter(|known| known.figure == figure && is_meant(&known.of));
        of_it.map(|known| known.value / 100.0).max_by(f64::total_cmp)
    };
    // Time held back is summed over the cores that a group would have run on.
    let all: Vec<f64> = deciding.iter().filter_map(read).map(|share| share.min(1.0)).collect();
    let share = all.iter().sum::<f64>() / all.len() as f64;
    share.is_finite().then_some(Pressure { of, share })
}

impl Pressure {
    /// A quota that never held anybody back was no limit. Of a core or a disk it may be that the only one who wants it has it: nobody
    /// waits, and it is the limit all the same.
    pub(super) fn allows(&self) -> bool {
        self.of != THROTTLED || self.share >= HELD_BACK
    }
}

/// Less than this of the time is the end of a period, and not a limit.
const HELD_BACK: f64 = 0.05;
