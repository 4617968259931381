//! What one request took of every resource, from the counters of one trial.
//!
//! Source: the utilization law, Denning & Buzen, The Operational Analysis of Queueing Network Models (1978): D = busy time over
//! completions, of what was counted, and without assumptions.

use super::mva::{Service, Station};
use crate::lab::results::{Resource, ResourceKind, Results, Trial};

/// What a trial says of a closed loop.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    /// Clients.
    pub level: u32,
    /// From one request of a client to its next: clients over attempts per second.
    pub cycle_us: f64,
    /// What of it the client did not ask for anything: it thought or rested.
    pub away_us: f64,
    /// What a request took of each of the resources, in the results' order.
    pub demands: Vec<Demand>,
}

impl Point {
    /// Of the resources whose demands are known.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.demands.iter().map(|demand| demand.name.as_str())
    }
}

/// What a request took of a resource.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Demand {
    /// The resource.
    pub name: String,
    /// How many requests it works on at once.
    pub servers: f64,
    /// Whether it takes all who wait at once.
    pub gathers: bool,
    /// Busy time per request.
    pub us: f64,
    /// The same without what was taken of other resources meanwhile.
    pub own_us: f64,
}

impl Demand {
    /// Whether it is held while others work. Under load that takes longer because they have queues, which is no more of it.
    pub(super) fn is_held(&self) -> bool {
        self.gathers || self.own_us < self.us
    }

    /// It as a station that a request visits for `own_us`.
    pub(super) fn station(&self, own_us: f64) -> Station {
        let service = match self.gathers {
            true => Service::Gathers { lanes: self.servers },
            false => Service::Queue { servers: self.servers },
        };
        Station { demand_us: own_us, service }
    }
}

/// What `trial` says; `None` of one that failed, and of an open loop: nobody waits there for an answer to send again.
pub(super) fn point(results: &Results, trial: &Trial) -> Option<Point> {
    let load = trial.numbers()?;
    if load.schedule.is_some() || load.attempts == 0 {
        return None;
    }
    let per_sec = load.attempts as f64 / load.window_secs;
    if !(per_sec.is_finite() && per_sec > 0.0 && trial.elapsed_secs > 0.0) {
        return None;
    }
    let gathered = gathered(results, &trial.workload);
    let counted: Vec<(&Resource, Demand)> = results
        .resources
        .iter()
        .filter(|resource| resource.kind != ResourceKind::Indication && !is_part(resource, results))
        .filter_map(|resource| {
            let servers = trial.servers(resource);
            let us = trial.utilization(resource)? * servers / per_sec * 1e6;
            let name = resource.name.clone();
            let demand = Demand { gathers: gathered.contains(&name), name, servers, us, own_us: us };
            (us.is_finite() && us >= 0.0 && servers > 0.0).then_some((resource, demand))
        })
        .collect();
    let held = |holder: &Resource| {
        let inside = counted.iter().filter(|(inner, _)| is_within(inner, holder));
        inside.map(|(_, demand)| demand.us).sum::<f64>()
    };
    let demands = counted
        .iter()
        .map(|(resource, demand)| Demand { own_us: (demand.us - held(resource)).max(0.0), ..demand.clone() })
        .collect();
    let made = load.attempts as f64;
    Some(Point {
        level: trial.level,
        cycle_us: f64::from(trial.level) / per_sec * 1e6,
        away_us: (load.think_secs + load.backoff_secs) / made * 1e6,
        demands,
    })
}

/// Whether what `resource` counts is counted by another one, too: processors that the generator shares are its own load.
fn is_part(resource: &Resource, results: &Results) -> bool {
    let has_all = |other: &Resource| {
        other.busy.len() > resource.busy.len() && resource.busy.iter().all(|name| other.busy.contains(name))
    };
    results.resources.iter().any(has_all)
}

/// Whether `inner` is used while `holder` is held, and its time is part of the holder's.
///
/// Where nobody says so, sessions are held while processors work: all of that work is taken for theirs, so that nothing
/// counts twice. What is not, is part of the delay then.
fn is_within(inner: &Resource, holder: &Resource) -> bool {
    let untold = inner.within.is_empty() && holder.kind == ResourceKind::Pool;
    let computes = inner.kind == ResourceKind::Station && inner.name.ends_with(" CPU");
    inner.within.contains(&holder.name) || (untold && computes)
}

/// The names of the resources that take all who wait at once, under `workload`.
pub(super) fn gathered(results: &Results, workload: &str) -> Vec<String> {
    let is_lane = |name: &str| name.starts_with("store ") && name.contains(" lanes");
    let lanes = results.resources.iter().filter(|of| of.kind == ResourceKind::Pool && is_lane(&of.name));
    let lanes = lanes.map(|lane| lane.name.clone());
    if batches(results, workload) { lanes.collect() } else { Vec::new() }
}

/// Whether the server's lanes gather: they do, unless the flags of the target or of the workload say `--batching off`.
fn batches(results: &Results, workload: &str) -> bool {
    let Ok(file) = results.experiment_toml.parse::<toml::Table>() else { return true };
    let is_called =
        |of: &&toml::Value, name: &str| of.get("name").and_then(toml::Value::as_str) == Some(name);
    let measured = results.measured.as_ref().map(|measured| measured.target.as_str());
    let is_meant = |target: &&toml::Value| measured.is_none_or(|name| is_called(target, name));
    let target = match file.get("target") {
        Some(toml::Value::Array(targets)) => targets.iter().find(is_meant),
        one => one,
    };
    let workloads = file.get("workload").and_then(toml::Value::as_array);
    let workload = workloads.into_iter().flatten().find(|of| is_called(of, workload));
    let is_off = |flags: Option<&toml::Value>| {
        let flags = flags.and_then(toml::Value::as_array).into_iter().flatten();
        let flags: Vec<&str> = flags.filter_map(toml::Value::as_str).collect();
        flags.contains(&"--batching=off") || flags.windows(2).any(|pair| pair == ["--batching", "off"])
    };
    !is_off(target.and_then(|target| target.get("args"))) && !is_off(workload.and_then(|of| of.get("serve")))
}
