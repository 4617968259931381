//! For each resource the throughput at which it would be full.
//!
//! Source: the utilization law, U = X·D / m (Denning & Buzen, The Operational Analysis of Queueing Network Models, 1978). What a request
//! takes of a resource may change with load, so it is read at the level with the most goodput and nowhere else.

use super::rows::Row;
use lab_data::results::{Limit, Resource, ResourceKind};
use serde::Serialize;

/// The throughput at which one resource would be full.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ceiling {
    /// The resource's name in the results.
    pub resource: String,
    /// What it is called as a bottleneck.
    pub limit: Option<Limit>,
    /// Busy share at the best level, 0–1.
    pub utilization: f64,
    /// Goodput of that level over this share.
    pub ceiling_rps: f64,
}

/// A resource that is hardly busy has a ceiling that is mostly noise.
const BUSY_MIN: f64 = 0.02;

/// The ceilings of a closed loop, lowest first.
pub(super) fn ceilings(rows: &[Row], resources: &[Resource]) -> Vec<Ceiling> {
    let goodput = |row: &Row| row.goodput_rps.map(|rps| rps.mean).filter(|_| row.offered_rps.is_none());
    let usable = rows.iter().filter(|row| row.usable()).filter_map(|row| Some((row, goodput(row)?)));
    let Some((best, rps)) = usable.max_by(|(_, a), (_, b)| a.total_cmp(b)) else { return Vec::new() };
    let ceiling = |(of, used): (&Resource, &super::rows::Use)| {
        let utilization = used.utilization.filter(|share| *share >= BUSY_MIN)?;
        // A busy disk may still take more at once: its share of time says nothing of what it could do.
        (of.kind != ResourceKind::Indication).then(|| Ceiling {
            resource: of.name.clone(),
            limit: of.limit.or((of.kind == ResourceKind::Generator).then_some(Limit::Generator)),
            utilization,
            ceiling_rps: rps / utilization,
        })
    };
    let mut all: Vec<Ceiling> = resources.iter().zip(&best.resources).filter_map(ceiling).collect();
    all.sort_by(|a, b| a.ceiling_rps.total_cmp(&b.ceiling_rps));
    all
}

/// What would limit next, if none of the resources that are `named` limited any more: of the others that `may` be it the one with
/// the lowest ceiling. One that is full below the capacity, or below what is named, is no such limit.
pub(super) fn next(
    ceilings: &[Ceiling],
    capacity_rps: f64,
    named: &[&str],
    may: impl Fn(&Ceiling) -> bool,
) -> Option<Ceiling> {
    let is_named = |of: &Ceiling| named.contains(&of.resource.as_str());
    let of_named = ceilings.iter().filter(|of| is_named(of)).map(|of| of.ceiling_rps).fold(0.0, f64::max);
    let is_above = |of: &&Ceiling| of.ceiling_rps > capacity_rps && of.ceiling_rps >= of_named;
    let others = ceilings.iter().filter(|of| !is_named(of) && may(of)).filter(is_above);
    others.min_by(|a, b| a.ceiling_rps.total_cmp(&b.ceiling_rps)).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings;
    use lab_data::simulated::tests::{model, sweep};

    #[test]
    fn a_ceiling_is_goodput_over_utilization_at_the_best_level() {
        let results =
            sweep(&model("cpu 1 =2ms, disk 2 =1ms, net 0 =5ms"), &["w"], &[1, 2, 4, 8, 16], 1, "1s");
        let found = findings(&results).workloads.remove(0);
        let seen: Vec<(&str, f64)> =
            found.ceilings.iter().map(|of| (of.resource.as_str(), of.ceiling_rps.round())).collect();
        assert_eq!(seen, [("cpu", 500.0), ("disk", 2000.0)]);
    }

    #[test]
    fn what_is_hardly_busy_or_was_not_measured_has_no_ceiling() {
        let mut results = sweep(&model("cpu 1 =2ms, disk 1 =20us"), &["w"], &[1, 2, 4], 1, "1s");
        let of = |results: &_| {
            let ceilings = findings(results).workloads.remove(0).ceilings;
            ceilings.into_iter().map(|of| of.resource).collect::<Vec<_>>()
        };
        assert_eq!(of(&results), ["cpu"]);
        results.trials.clear();
        assert!(of(&results).is_empty());
    }

    fn ceiling(resource: &str, ceiling_rps: f64) -> Ceiling {
        Ceiling { resource: resource.into(), limit: None, utilization: 0.5, ceiling_rps }
    }

    #[test]
    fn the_next_limit_is_never_below_the_named_one_nor_the_capacity() {
        let levels = [50.0, 90.0, 100.0, 101.0, 110.0, 250.0];
        let names = ["a", "b", "c"];
        for (a, b, c) in
            levels.iter().flat_map(|a| levels.iter().flat_map(move |b| levels.map(|c| (*a, *b, c))))
        {
            let all = [a, b, c];
            let ceilings: Vec<Ceiling> =
                names.iter().zip(all).map(|(name, rps)| ceiling(name, rps)).collect();
            for named in [&names[..0], &names[..1], &names[..2], &names[..]] {
                let floor = all[..named.len()].iter().copied().fold(100.0, f64::max);
                let expected = all[named.len()..].iter().filter(|of| **of > 100.0 && **of >= floor);
                let found = next(&ceilings, 100.0, named, |_| true).map(|of| of.ceiling_rps);
                assert_eq!(found, expected.copied().min_by(f64::total_cmp), "{all:?}, named {named:?}");
            }
        }
        let two = [ceiling("a", 100.0), ceiling("b", 120.0), ceiling("c", 130.0)];
        assert_eq!(next(&two, 99.0, &["a"], |of| of.resource != "b").unwrap().resource, "c");
    }
}
