//! Mean value analysis of a closed network: how long a cycle takes with so many clients.
//!
//! Source: Reiser & Lavenberg, Mean-Value Analysis of Closed Multichain Queuing Networks (1980): exact for exponential service,
//! for one server and for many. The lane that gathers is an approximation of ours, see [`Service::Gathers`].

/// A closed network: every request visits each station once, and then waits a while outside.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Network {
    /// In any order.
    pub stations: Vec<Station>,
    /// What a cycle takes besides, however many clients there are: a delay, and what clients think.
    pub delay_us: f64,
}

/// A station and what a request takes of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Station {
    /// Mean service time of a request.
    pub demand_us: f64,
    /// How it serves.
    pub service: Service,
}

/// How a station serves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Service {
    /// One request after the other, by each of so many servers. A share of a server is one that is slower, as a quota makes it.
    Queue {
        /// How many.
        servers: f64,
    },
    /// By lanes that take all who wait at once: everybody who comes while a batch is in flight is in the next one, and a batch
    /// takes the same time however many it carries. So there is no queue that grows, and no limit: who finds the lane busy
    /// waits for what is left of its batch, half of one in the mean, and then for the own.
    Gathers {
        /// How many; a request is the business of one of them.
        lanes: f64,
    },
}

/// How long a cycle of each of `clients` takes, in microseconds: clients over throughput.
pub(super) fn cycle_us(network: &Network, clients: u32) -> f64 {
    let mut queues: Vec<Queue> = network.stations.iter().map(Queue::empty).collect();
    let mut cycle_us = network.delay_us;
    for clients in 1..=clients {
        let times: Vec<f64> = queues.iter().map(|queue| queue.time_us(clients - 1)).collect();
        cycle_us = network.delay_us + times.iter().sum::<f64>();
        if cycle_us <= 0.0 {
            return 0.0;
        }
        let per_us = f64::from(clients) / cycle_us;
        queues.iter_mut().zip(times).for_each(|(queue, time_us)| queue.update(per_us, time_us));
    }
    cycle_us
}

/// A station with so many clients in the network.
struct Queue<'a> {
    station: &'a Station,
    /// Mean number there.
    length: f64,
    /// The probability that 0, 1, … are there, as far as fewer than all servers work.
    partly: Vec<f64>,
}

impl<'a> Queue<'a> {
    fn empty(station: &'a Station) -> Queue<'a> {
        let states = match station.service {
            Service::Queue { servers } => servers.ceil().max(1.0) as usize,
            Service::Gathers { .. } => 0,
        };
        let mut partly = vec![0.0; states];
        partly.iter_mut().take(1).for_each(|empty| *empty = 1.0);
        Queue { station, length: 0.0, partly }
    }

    /// How long the next client is there, who sees what `others` in the network have made of it.
    fn time_us(&self, others: u32) -> f64 {
        let demand_us = self.station.demand_us;
        match self.station.service {
            Service::Queue { servers } => {
                // Those who come to an idle server do not share in the others' work.
                let idle = self.partly.iter().enumerate().take(self.partly.len() - 1);
                let idle: f64 = idle.map(|(there, share)| (servers - 1.0 - there as f64) * share).sum();
                demand_us / servers * (1.0 + self.length + idle)
            }
            Service::Gathers { lanes } => {
                let each = self.length / f64::from(others.max(1)) / lanes;
                let busy = 1.0 - (1.0 - each.clamp(0.0, 1.0)).powf(f64::from(others));
                demand_us * (1.0 + busy / 2.0)
            }
        }
    }

    /// With one client more: throughput, and how long each was there.
    fn update(&mut self, per_us: f64, time_us: f64) {
        self.length = per_us * time_us;
        let Service::Queue { servers } = self.station.service else { return };
        let offered = per_us * self.station.demand_us;
        for there in (1..self.partly.len()).rev() {
            self.partly[there] = offered / (there as f64).min(servers) * self.partly[there - 1];
        }
        let working = self.partly.iter().enumerate().skip(1);
        let idle: f64 = working.map(|(there, share)| (servers - there as f64) * share).sum();
        // Rounding may leave less than nothing of a station that is never idle.
        self.partly[0] = (1.0 - (offered + idle) / servers).max(0.0);
    }
}
