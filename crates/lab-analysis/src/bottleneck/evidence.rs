//! What is known of every resource at the levels that decide: the numbers the rules are asked with.

use super::{CONFLICTS, CONSTANT, EARLY, Evidence, RISES, Reason, SHOULDER_FALL};
use crate::capacity::{Capacity, SHOULDER};
use crate::knee::Knee;
use crate::rows::{POOL_SEEN, Row, SATURATED, Use, best, usable};
use crate::waiting::holding;
use lab_data::experiment::{DATABASE, REPLICA, SERVER};
use lab_data::results::{Limit, Resource, ResourceKind};
use stats::{mean, variation};

/// So many levels with at least twice the clients of the best one mean that the best one came too early to decide.
const PAST_BEST_MIN: usize = 3;

/// The rows that decide, ascending.
pub(super) fn deciding<'a>(rows: &'a [Row], capacity: &Capacity, knee: Option<&Knee>) -> Vec<&'a Row> {
    let on_plateau: Vec<&Row> = usable(rows).filter(|row| capacity.levels().contains(&row.level)).collect();
    if let Capacity::NotReached { level, .. } = capacity {
        // Many more clients, and goodput only falls: they are all past the limit.
        let past: Vec<&Row> = usable(rows).filter(|row| row.level >= 2 * level).collect();
        return if past.len() >= PAST_BEST_MIN { past } else { shoulder(rows, *level) };
    }
    let is_past = |row: &&Row| knee.is_some_and(|knee| f64::from(row.level) >= 2.0 * knee.clients);
    let past_knee: Vec<&Row> = on_plateau.iter().copied().filter(is_past).collect();
    if past_knee.len() >= 2 { past_knee } else { on_plateau }
}

/// The usable levels around the best one whose goodput is hardly less than its; only that level where the clients do not
/// double over them, since then too little was asked of the target to tell.
fn shoulder(rows: &[Row], best_level: u32) -> Vec<&Row> {
    let Some(at) = rows.iter().position(|row| row.level == best_level) else { return Vec::new() };
    let near = |row: &&Row| row.usable() && row.rps() >= SHOULDER * rows[at].rps();
    let below = rows[..at].iter().rev().take_while(near).count();
    let above = rows[at + 1..].iter().take_while(near).count();
    let around: Vec<&Row> = rows[at - below..=at + above].iter().collect();
    // As on a plateau: below twice the crossing of the bounds nobody need wait yet.
    let alone_us = usable(rows).find(|row| row.level == 1).and_then(Row::cycle_us);
    let knee = alone_us.map_or(0.0, |us| rows[at].rps() * us / 1e6);
    let past = around.iter().copied().filter(|row| f64::from(row.level) >= 2.0 * knee).collect();
    let doubles = |rows: &Vec<&Row>| matches!(rows[..], [first, .., last] if last.level >= 2 * first.level);
    [past, around].into_iter().find(doubles).unwrap_or_else(|| vec![&rows[at]])
}

/// The usable levels with at least a quarter of the most clients, where there are two and more.
pub(super) fn upper(rows: &[Row]) -> Option<Vec<&Row>> {
    let most = usable(rows).map(|row| row.level).max()?;
    let upper: Vec<&Row> = usable(rows).filter(|row| 4 * row.level >= most).collect();
    (upper.len() >= 2).then_some(upper)
}

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
    mean(deciding.iter().filter_map(read))
}

/// Resource `i` over the `deciding` rows. `None` where its utilization was not read at one of them.
pub(super) fn evidence(
    i: usize,
    of: &Resource,
    deciding: &[&Row],
    rows: &[Row],
    capacity: &Capacity,
) -> Option<Evidence> {
    let uses: Vec<&Use> = deciding.iter().map(|row| &row.resources[i]).collect();
    let first = uses.first()?;
    let utilizations: Vec<f64> = uses.iter().map(|of| of.utilization).collect::<Option<_>>()?;
    let demands: Vec<f64> = uses.iter().map(|of| of.demand_us).collect::<Option<_>>().unwrap_or_default();
    let demand_us = mean(&demands);
    let demand_variation = variation(&demands);
    let falls_by = |factor: f64| matches!(demands[..], [first, .., last] if first > factor * last);
    // Without a plateau goodput rises a little over these levels: at full use that is a demand which falls from level to level. One that
    // goes up and down is noise.
    let falls_always = demands.windows(2).all(|pair| pair[0] >= pair[1]);
    // Where batches are counted, one whose batches do not grow is noise, too.
    let most = uses.last()?.per_batch;
    let may_batch =
        |row: &Row| row.resources[i].per_batch.zip(most).is_none_or(|(few, most)| most > SHOULDER_FALL * few);
    let falls = matches!(capacity, Capacity::NotReached { .. }) && falls_by(SHOULDER_FALL) && falls_always
        || demand_variation > Some(CONSTANT) && falls_by(1.0);
    let is_saturated = |row: &Row| row.resources[i].utilization >= Some(SATURATED);
    // U = X·D: saturated long before the capacity is reached means that D was larger there.
    let early = capacity.rps().is_some_and(|rps| {
        // Past the plateau a saturated resource may well do less: that is thrashing, not batching.
        let below = usable(rows).take_while(|row| row.level < deciding[0].level);
        below.filter(|row| is_saturated(row) && may_batch(row)).any(|row| row.rps() < EARLY * rps.mean)
    });
    // Cores that parts share are named after the part that uses them, where there is one.
    let alone = first.mostly.as_ref().filter(|part| uses.iter().all(|of| of.mostly.as_ref() == Some(part)));
    let most_clients = usable(rows)
        .next_back()
        .filter(|row| capacity.rps().is_some_and(|rps| row.rps() >= EARLY * rps.mean))
        .and_then(|row| Some((row, row.resources[i].utilization?)));
    let least_rps = best(deciding.iter().copied())
        .and_then(|row| Some(row.rps() / row.resources[i].utilization.filter(|share| *share > 0.0)?));
    Some(Evidence {
        resource: alone.map_or_else(|| first.name.clone(), |part| format!("{part} CPU")),
        id: first.name.clone(),
        is_hard: is_hard(of),
        kind: first.kind,
        utilization: mean(&utilizations)?,
        demand_us,
        demand_variation,
        servers: first.servers,
        ceiling_rps: demand_us.filter(|us| *us > 0.0).map(|us| first.servers * 1e6 / us),
        least_rps,
        load_dependent: first.kind != ResourceKind::Cap && (falls && may_batch(deciding[0]) || early),
        rises: most_clients
            .zip(least_rps)
            .is_some_and(|((row, utilization), rps)| rps * utilization > RISES * row.rps()),
        at_most_clients: most_clients.map(|(row, utilization)| (row.level, utilization)),
        reached_at: usable(rows).filter(|row| is_saturated(row)).count(),
        computing: mean(uses.iter().filter_map(|of| of.computing)),
        limit: limit_of(of, alone.map(String::as_str)),
        within: of.within.clone(),
        ..Evidence::default()
    })
}

/// The class of database waits that holds most of those who can be there at every one of the `deciding` rows.
pub(super) fn wait(deciding: &[&Row]) -> Option<Evidence> {
    let places = |row: &Row| {
        let busy = |share: f64| {
            let pools = row.resources.iter().filter(|of| of.kind == ResourceKind::Pool);
            pools.filter(move |of| of.utilization >= Some(share))
        };
        let clients = f64::from(row.level);
        // Waits are counted over the sessions of all pools, so these are the places once one pool is full.
        let is_full = busy(SATURATED).next().is_some();
        if is_full { clients.min(busy(POOL_SEEN).map(|of| of.servers).sum()) } else { clients }
    };
    // At a single level it is a delay and nobody's limit.
    if deciding.len() < 2 {
        return None;
    }
    let deciding: Vec<(&Row, f64)> = deciding.iter().map(|row| (*row, places(row))).collect();
    let waiting = holding(&deciding)?;
    Some(Evidence {
        resource: format!("{} {}", waiting.parts.join(" + "), waiting.class),
        // The utilization law says nothing of it; only the rule for waits may name it.
        kind: ResourceKind::Indication,
        utilization: waiting.share,
        limit: limit_of_class(waiting.class),
        waiting: Some(waiting),
        ..Evidence::default()
    })
}

/// What several servers write at the same time, where they are in each other's way.
pub(super) fn conflicts(rows: &[Row]) -> Option<Evidence> {
    let Reason::Conflicts { share, .. } = Reason::conflicts(rows)? else { return None };
    Some(Evidence {
        resource: CONFLICTS.to_owned(),
        id: CONFLICTS.to_owned(),
        kind: ResourceKind::Indication,
        utilization: share,
        limit: Some(Limit::Other),
        ..Evidence::default()
    })
}

/// What it is called as a bottleneck. Cores that several parts share are called after the part that uses them, and where none has nearly
/// all of their time they are no part's.
fn limit_of(of: &Resource, mostly: Option<&str>) -> Option<Limit> {
    match (of.kind, mostly) {
        (ResourceKind::Generator, _) => Some(Limit::Generator),
        (_, Some(part)) if part.starts_with(DATABASE) || part == REPLICA => Some(Limit::DatabaseCpu),
        (_, Some(part)) if !part.starts_with(SERVER) => Some(Limit::Other),
        (_, None) if of.busy.len() > 1 => None,
        _ => of.limit,
    }
}

/// [`Evidence::is_hard`].
fn is_hard(of: &Resource) -> bool {
    use Limit::{Bandwidth, DatabaseCpu, DatabaseQuota, Network, ServerCpu, ServerQuota};
    let hard = [ServerCpu, ServerQuota, DatabaseCpu, DatabaseQuota, Bandwidth, Network];
    // Of other parts the processors: their cores are cores, too.
    let computes = !of.busy.is_empty() && of.busy.iter().all(|busy| busy.ends_with(".cpu_secs"));
    of.limit.is_some_and(|limit| hard.contains(&limit) || limit == Limit::Other && computes)
}

/// What a class of database waits is called as a bottleneck.
fn limit_of_class(class: &str) -> Option<Limit> {
    match class {
        "row lock" => Some(Limit::RowLock),
        "commit path" => Some(Limit::CommitPath),
        "reads" | "data writes" => Some(Limit::Reads),
        _ => None,
    }
}
