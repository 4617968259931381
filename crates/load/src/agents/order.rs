//! A plan as data: all that an agent needs of it, without any file of the coordinator's.
//!
//! In the words of the command line where there are any; times and rates as numbers, which keep their last digit. What comes
//! from the wire is held to the same bounds as flags are.

use super::super::seconds::SECOND;
use super::super::{Connect, Dialect, Pacing, Plan, Think, Workload, is_bin};
use kv::units::Rate;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

/// Longest warm-up, window, think time or time-out.
const SPAN_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Most clients of one run, and most threads of one agent.
const CLIENTS_MAX: u32 = 100_000;
const THREADS_MAX: u32 = 1024;

/// What one agent is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Order {
    target: String,
    dialect: DialectText,
    workload: String,
    /// Of all agents together.
    clients: u32,
    /// This agent's: from the first to before the second.
    part: (u32, u32),
    threads: u32,
    warmup: Duration,
    window: Duration,
    seed: u64,
    mix: Option<String>,
    distribution: Option<String>,
    keys: u64,
    value_size: String,
    timeout: Duration,
    preload: bool,
    pacing: PacingText,
    connect: String,
    verify: String,
    histogram: bool,
    /// Only where it is no second: an agent that knows no other need not be told.
    #[serde(default = "second", skip_serializing_if = "is_second")]
    bin: Duration,
    #[serde(default)]
    added_cpu: Duration,
}

fn second() -> Duration {
    SECOND
}

fn is_second(bin: &Duration) -> bool {
    *bin == SECOND
}

/// A dialect by its name, and by its text where the name is not enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct DialectText {
    name: String,
    text: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum PacingText {
    Closed {
        think: Duration,
        exponential: bool,
    },
    /// The rate is that of all agents together.
    Open {
        rate: f64,
        arrivals: String,
    },
}

impl Order {
    /// That `part` of the clients of `plan`.
    pub(super) fn of(plan: &Plan, part: &Range<u32>) -> Order {
        let built_in =
            Dialect::named(&plan.dialect.name).is_some_and(|known| std::ptr::eq(known, plan.dialect));
        Order {
            target: plan.target.to_string(),
            dialect: DialectText {
                name: plan.dialect.name.clone(),
                text: (!built_in).then(|| plan.dialect.text.clone()),
            },
            workload: plan.workload.name.to_owned(),
            clients: plan.clients,
            part: (part.start, part.end),
            threads: plan.threads,
            warmup: plan.warmup,
            window: plan.window,
            seed: plan.seed,
            mix: plan.mix.as_ref().map(ToString::to_string),
            distribution: plan.distribution.map(|distribution| distribution.to_string()),
            keys: plan.keys,
            value_size: plan.value_size.to_string(),
            timeout: plan.timeout,
            preload: plan.preload,
            pacing: PacingText::of(plan.pacing),
            connect: plan.connect.to_string(),
            verify: plan.verify.to_string(),
            histogram: plan.histogram,
            bin: plan.bin,
            added_cpu: plan.added_cpu,
        }
    }

    /// The plan, and which of its clients are meant. `Err` is one line.
    pub(super) fn plan(self) -> Result<(Plan, Range<u32>), String> {
        let (first, end) = self.part;
        if !(first < end && end <= self.clients && self.clients <= CLIENTS_MAX) {
            return Err(format!("clients {first} to {end} of {} are none", self.clients));
        }
        if !(1..=THREADS_MAX).contains(&self.threads) || self.keys == 0 {
            return Err("threads or keys are out of bounds".into());
        }
        let too_long = [self.warmup, self.window, self.timeout].into_iter().any(|span| span > SPAN_MAX);
        if too_long || self.window.is_zero() || self.timeout.is_zero() {
            return Err("warm-up, window or time-out is out of bounds".into());
        }
        if !is_bin(self.bin) {
            return Err("bins are no whole part of a second".into());
        }
        let plan = Plan {
            target: parsed("target", &self.target)?,
            dialect: self.dialect.dialect()?,
            workload: Workload::named(&self.workload)
                .ok_or_else(|| format!("workload {} is not known", self.workload))?,
            clients: self.clients,
            threads: self.threads,
            warmup: self.warmup,
            window: self.window,
            seed: self.seed,
            mix: self.mix.map(|mix| parsed("mix", &mix)).transpose()?,
            distribution: self.distribution.map(|text| parsed("distribution", &text)).transpose()?,
            keys: self.keys,
            value_size: parsed("value size", &self.value_size)?,
            timeout: self.timeout,
            preload: self.preload,
            pacing: self.pacing.pacing()?,
            connect: parsed::<Connect>("connect", &self.connect)?,
            // As a run of its own: of what other agents write and when, an agent knows nothing.
            verify: parsed("verify", &self.verify)?,
            histogram: self.histogram,
            bin: self.bin,
            added_cpu: self.added_cpu,
        };
        Ok((plan, first..end))
    }
}

fn parsed<T: FromStr<Err = String>>(what: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|why| format!("{what} {text}: {why}"))
}

impl DialectText {
    fn dialect(&self) -> Result<&'static Dialect, String> {
        // Read once for each text, as a dialect lives as long as the process.
        static READ: Mutex<Vec<&Dialect>> = Mutex::new(Vec::new());
        let DialectText { name, text } = self;
        let Some(text) = text else {
            return Dialect::named(name).ok_or_else(|| format!("dialect {name} is not known"));
        };
        let mut read = READ.lock();
        if let Some(known) = read.iter().find(|known| known.name == *name && known.text == *text) {
            return Ok(known);
        }
        let dialect = Dialect::of_file(name, text).map_err(|why| format!("dialect {name}: {why}"))?;
        read.push(dialect);
        Ok(dialect)
    }
}

impl PacingText {
    fn of(pacing: Pacing) -> PacingText {
        let closed = |think, exponential| PacingText::Closed { think, exponential };
        match pacing {
            Pacing::Closed { think: Think::None } => closed(Duration::ZERO, false),
            Pacing::Closed { think: Think::Constant(time) } => closed(time, false),
            Pacing::Closed { think: Think::Exponential(mean) } => closed(mean, true),
            Pacing::Open { rate, arrivals } => {
                PacingText::Open { rate: rate.0, arrivals: arrivals.to_string() }
            }
        }
    }

    fn pacing(&self) -> Result<Pacing, String> {
        match self {
            PacingText::Closed { think, .. } if *think > SPAN_MAX => {
                Err("think time is out of bounds".into())
            }
            PacingText::Closed { think, .. } if think.is_zero() => Ok(Pacing::Closed { think: Think::None }),
            PacingText::Closed { think, exponential: true } => {
                Ok(Pacing::Closed { think: Think::Exponential(*think) })
            }
            PacingText::Closed { think, .. } => Ok(Pacing::Closed { think: Think::Constant(*think) }),
            PacingText::Open { rate, .. } if !(1e-3..=1e9).contains(rate) => {
                Err("rate is out of bounds".into())
            }
            PacingText::Open { rate, arrivals } => {
                Ok(Pacing::Open { rate: Rate(*rate), arrivals: parsed("arrivals", arrivals)? })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Arrivals, Mix};
    use super::*;

    fn there_and_back(plan: &Plan, part: Range<u32>) -> (Plan, Range<u32>) {
        let text = serde_json::to_string(&Order::of(plan, &part)).unwrap();
        serde_json::from_str::<Order>(&text).unwrap().plan().unwrap()
    }

    fn check(plan: &Plan) {
        let (back, part) = there_and_back(plan, 2..5);
        assert_eq!(part, 2..5);
        assert_eq!(format!("{back:?}"), format!("{plan:?}"));
    }

    #[test]
    fn a_plan_arrives_as_it_was() {
        let plan = Plan { clients: 7, seed: u64::MAX, ..Plan::example("ycsb_d") };
        check(&plan);
        for pacing in [
            Pacing::Closed { think: Think::Constant(Duration::from_nanos(1_234_567)) },
            Pacing::Closed { think: Think::Exponential(Duration::from_millis(10)) },
            Pacing::Open { rate: Rate(1000.0 / 3.0), arrivals: Arrivals::Poisson },
            Pacing::Open { rate: Rate(20e3), arrivals: Arrivals::Constant },
        ] {
            check(&Plan { pacing, ..plan.clone() });
        }
        let verify = "2.5%".parse().unwrap();
        let (verified, _) = there_and_back(&Plan { verify, ..plan.clone() }, 2..5);
        assert_eq!(verified.verify.to_string(), "2.5%");
        let mix: Mix = "get=50,read_modify_write=3,put=30".parse().unwrap();
        check(&Plan {
            mix: Some(mix),
            distribution: Some("zipfian:0.8".parse().unwrap()),
            value_size: "zipfian:100-100000".parse().unwrap(),
            connect: Connect::Each,
            timeout: Duration::from_nanos(1),
            preload: false,
            histogram: true,
            bin: Duration::from_millis(250),
            added_cpu: Duration::from_nanos(300),
            ..plan
        });
    }

    #[test]
    fn a_dialect_of_a_file_needs_no_file_there_and_is_read_once() {
        let dialect = Dialect::of_file("my.toml", "[get]\npath = \"/{key}\"\n").unwrap();
        let plan = Plan { dialect, clients: 7, ..Plan::example("get_all") };
        let (first, _) = there_and_back(&plan, 0..7);
        let (second, _) = there_and_back(&plan, 0..7);
        assert_eq!(format!("{:?}", first.dialect), format!("{dialect:?}"));
        assert!(std::ptr::eq(first.dialect, second.dialect));
    }

    #[test]
    fn what_is_no_plan_says_why() {
        let order = Order::of(&Plan { clients: 7, ..Plan::example("get_all") }, &(0..7));
        for (order, why) in [
            (Order { part: (3, 3), ..order.clone() }, "clients 3 to 3"),
            (Order { part: (5, 3), ..order.clone() }, "clients 5 to 3"),
            (Order { part: (0, 8), ..order.clone() }, "clients 0 to 8 of 7"),
            (Order { clients: u32::MAX, ..order.clone() }, "are none"),
            (Order { threads: 0, ..order.clone() }, "threads or keys"),
            (Order { keys: 0, ..order.clone() }, "threads or keys"),
            (Order { window: Duration::ZERO, ..order.clone() }, "window"),
            (Order { bin: Duration::ZERO, ..order.clone() }, "bins are no whole part"),
            (Order { warmup: Duration::MAX, ..order.clone() }, "warm-up"),
            (Order { timeout: Duration::ZERO, ..order.clone() }, "time-out"),
            (Order { workload: "none".into(), ..order.clone() }, "workload none is not known"),
            (Order { target: "file:///".into(), ..order.clone() }, "target file:///"),
            (Order { verify: "-1%".into(), ..order.clone() }, "verify -1%: write"),
            (Order { connect: "often".into(), ..order.clone() }, "connect often: known are"),
            (Order { value_size: "-1".into(), ..order.clone() }, "value size -1"),
            (
                Order {
                    pacing: PacingText::Open { rate: -1.0, arrivals: "poisson".into() },
                    ..order.clone()
                },
                "rate",
            ),
            (
                Order { pacing: PacingText::Open { rate: 1.0, arrivals: "x".into() }, ..order.clone() },
                "arrivals x",
            ),
            (
                Order { dialect: DialectText { name: "x".into(), text: None }, ..order.clone() },
                "dialect x is not known",
            ),
            (
                Order { dialect: DialectText { name: "x".into(), text: Some("[".into()) }, ..order.clone() },
                "dialect x: ",
            ),
        ] {
            let told = order.plan().expect_err(why);
            assert!(told.contains(why) && !told.contains('\n'), "{told}");
        }
    }
}
