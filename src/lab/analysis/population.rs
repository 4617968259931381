//! Where the clients are: how many wait for each resource and how many it serves (E2 of docs/method.md, section 6).
//!
//! A client is in one place at a time, so the places add up to the clients there are; what is left over is said.

use super::stats::mean;
use crate::lab::results::{Limit, Resource, ResourceKind, Results, Trial};
use crate::proto::LoadReport;
use serde::Serialize;

/// The clients of a row by where they are, means over its runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Population {
    /// All of them.
    pub clients: f64,
    /// Those who think or rest, and ask for nothing.
    pub away: f64,
    /// The others by resource, in the order of the results; what was not read is not in it.
    pub places: Vec<Place>,
    /// The clients that no place accounts for; negative where places count some twice.
    pub unlocated: f64,
}

/// One resource and who is there.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Place {
    /// The resource's name.
    pub resource: String,
    /// What it is called as a bottleneck.
    pub limit: Option<Limit>,
    /// Whether it is used while another is held, whose place counts the client: then it is no part of the sum.
    pub inner: bool,
    /// Clients that wait for it; `None` where its queue cannot be seen.
    pub waiting: Option<f64>,
    /// Clients it serves.
    pub serving: Option<f64>,
}

/// Where the clients of the runs were; `None` where no resource tells.
pub(super) fn population(results: &Results, ran: &[(&Trial, &LoadReport)]) -> Option<Population> {
    let over_runs = |figure: &dyn Fn(&Trial, &LoadReport) -> Option<f64>| {
        let of_runs: Option<Vec<f64>> = ran.iter().map(|(trial, load)| figure(trial, load)).collect();
        of_runs.as_deref().and_then(mean)
    };
    let counted = |names: &[String]| {
        let grown =
            |trial: &Trial, _: &LoadReport| names.iter().map(|name| trial.per_sec(name)).sum::<Option<f64>>();
        (!names.is_empty()).then(|| over_runs(&grown)).flatten()
    };
    let place = |resource: &Resource| {
        let (waiting, serving) = (counted(&resource.waiting), counted(&resource.serving));
        (waiting.is_some() || serving.is_some()).then(|| Place {
            resource: resource.name.clone(),
            limit: resource.limit.or((resource.kind == ResourceKind::Generator).then_some(Limit::Generator)),
            inner: !resource.within.is_empty(),
            waiting,
            serving,
        })
    };
    let places: Vec<Place> = results.resources.iter().filter_map(place).collect();
    if places.iter().all(|place| place.limit == Some(Limit::Generator)) {
        return None;
    }
    let clients = over_runs(&|trial, _| Some(f64::from(trial.level)))?;
    let away = over_runs(&|_, load| Some((load.think_secs + load.backoff_secs) / load.window_secs))?;
    let located: f64 = places.iter().filter(|place| !place.inner).map(Place::clients).sum();
    Some(Population { clients, away, unlocated: clients - away - located, places })
}

impl Place {
    /// All clients there.
    pub fn clients(&self) -> f64 {
        self.waiting.unwrap_or(0.0) + self.serving.unwrap_or(0.0)
    }
}
