//! Where clients pile up as there are more of them: of each client more, how many wait for what.
//!
//! In a closed loop beyond the knee every client that is added ends up in one queue, that of the bottleneck (Denning & Buzen
//! 1978). So the growth of a queue over the levels, and not its length, tells who limits.

use super::Growth;
use crate::population::Place;
use crate::rows::Row;

/// Two levels, and what became of the clients in between.
pub struct Queues {
    /// The lower level.
    pub low: u32,
    /// The higher one.
    pub high: u32,
    places: Vec<QueueGrowth>,
    /// Of each client more, so many are in no place that was read.
    pub unaccounted: f64,
    /// Clients that wait for anything at the higher level, as a share of them.
    pub waiting_share: f64,
    /// Goodput per client at the higher level over that of one client alone: 1 where every client gets the same
    /// however many there are. `None` where one alone was not measured.
    pub linearity: Option<f64>,
}

/// A place and what became of it for each client more.
pub struct QueueGrowth {
    /// The resource.
    pub resource: String,
    /// Whether another place counts its clients.
    pub inner: bool,
    /// So many more wait for it; `None` where its queue cannot be seen.
    pub waiting: Option<f64>,
    /// So many more are served by it.
    pub serving: Option<f64>,
    /// Those who wait at the higher level.
    pub waiting_at_high: f64,
}

impl Queues {
    /// Between the highest usable level and the lowest that decides and has at most half of its clients; the lowest usable
    /// one where none decides so. `None` where nobody counted.
    pub(super) fn of(rows: &[Row], deciding: &[&Row]) -> Option<Queues> {
        let counted = || rows.iter().filter(|row| row.usable() && row.population.is_some());
        let (first, high) = (counted().next()?, counted().next_back()?);
        let half = |row: &&&Row| 2 * row.level <= high.level && row.population.is_some();
        let low = deciding.iter().find(half).copied().unwrap_or(first);
        let (at_low, at_high) = (low.population.as_ref()?, high.population.as_ref()?);
        let added = at_high.clients - at_low.clients;
        let per_client = |low: f64, high: f64| if added > 0.0 { (high - low) / added } else { 0.0 };
        let growth = |place: &Place| {
            let before = at_low.places.iter().find(|of| of.resource == place.resource)?;
            let waiting = before.waiting.zip(place.waiting);
            let serving = before.serving.zip(place.serving);
            Some(QueueGrowth {
                resource: place.resource.clone(),
                inner: place.inner,
                waiting: waiting.map(|(low, high)| per_client(low, high)),
                serving: serving.map(|(low, high)| per_client(low, high)),
                waiting_at_high: place.waiting.unwrap_or(0.0),
            })
        };
        let places: Vec<QueueGrowth> = at_high.places.iter().filter_map(growth).collect();
        let waiting: f64 = places.iter().filter(|of| !of.inner).map(|of| of.waiting_at_high).sum();
        let each = |row: &Row| row.goodput_rps.map(|rps| rps.mean / f64::from(row.level.max(1)));
        Some(Queues {
            low: low.level,
            high: high.level,
            unaccounted: per_client(at_low.unaccounted, at_high.unaccounted),
            waiting_share: if at_high.clients > 0.0 { waiting / at_high.clients } else { 0.0 },
            linearity: each(high)
                .zip(each(first).filter(|rps| first.level == 1 && *rps > 0.0))
                .map(|(high, first)| high / first),
            places,
        })
    }

    /// Of each client more, `of_each` are at `resource`.
    pub(super) fn growth(&self, resource: &str, of_each: f64) -> Growth {
        Growth { resource: resource.to_owned(), of_each, low: self.low, high: self.high }
    }

    /// Of each client more, so many wait for `resource`.
    pub fn waiting(&self, resource: &str) -> Option<f64> {
        self.place(resource)?.waiting
    }

    /// Of each client more, so many are served by `resource`.
    pub fn serving(&self, resource: &str) -> Option<f64> {
        self.place(resource)?.serving
    }

    /// The place of `resource`.
    pub fn place(&self, resource: &str) -> Option<&QueueGrowth> {
        self.places.iter().find(|of| of.resource == resource)
    }

    /// The places of clients by how fast their queues grow, fastest first.
    pub fn outer(&self) -> Vec<(&str, f64)> {
        let outer = self.places.iter().filter(|of| !of.inner);
        let mut grown: Vec<(&str, f64)> =
            outer.filter_map(|of| Some((of.resource.as_str(), of.waiting?))).collect();
        grown.sort_by(|a, b| b.1.total_cmp(&a.1));
        grown
    }
}
