//! How often each status was answered.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts of complete answers by their status; few differ. An attempt without one counts for status 0.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct StatusCounts(Vec<(u16, u64)>);

impl StatusCounts {
    #[inline]
    pub(super) fn count(&mut self, status: u16, more: u64) {
        match self.0.iter_mut().find(|(known, _)| *known == status) {
            Some((_, count)) => *count += more,
            None => self.0.push((status, more)),
        }
    }

    pub(super) fn add(&mut self, other: &StatusCounts) {
        other.0.iter().for_each(|(status, count)| self.count(*status, *count));
    }

    /// Without those that had no answer.
    pub(super) fn report(&self) -> BTreeMap<String, u64> {
        let answered = self.0.iter().filter(|(status, _)| *status > 0);
        answered.map(|(status, count)| (status.to_string(), *count)).collect()
    }
}
