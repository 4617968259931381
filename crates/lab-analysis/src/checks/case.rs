//! What checks are asked of.

use crate::capacity::Capacity;
use crate::interventions::Effect;
use crate::rows::Row;
use lab_data::results::{Results, Run};

/// The runs of one workload at one level, and the rows of lower levels.
pub struct OfRow<'a> {
    /// Everything measured: resources and placements.
    pub results: &'a Results,
    /// The runs that delivered numbers; never empty.
    pub ran: &'a [Run<'a>],
    /// The row itself, without its checks.
    pub row: &'a Row,
    /// The rows of lower levels, ascending.
    pub below: &'a [Row],
}

/// One workload at all its levels.
pub struct OfWorkload<'a> {
    /// Everything measured.
    pub results: &'a Results,
    /// Its name.
    pub workload: &'a str,
    /// Its rows.
    pub rows: &'a [Row],
    /// What it gets through.
    pub capacity: &'a Capacity,
    /// What slowing the generator shows; `None` where it was not made slower.
    pub headroom: Option<&'a Effect>,
}
