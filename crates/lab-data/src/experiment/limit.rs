//! A limit on latency, under which the highest rate is searched for: `[workload.limit]`.
//!
//! Only what may stand in the file; how it is searched for is the business of [`super::super::search`].

use crate::results::SearchPlan;
use kv::units::Span;
use serde::{Deserialize, Deserializer};
use std::time::Duration;

/// How requests may be spread over time, as `weir load --arrivals` knows it.
pub(super) const ARRIVALS: &[&str] = &["poisson", "constant"];

/// So many trials have to have room in the time of a search: fewer decide nothing.
pub(super) const TRIALS_LEAST: u32 = 20;

/// What has to hold, and how long may be searched for where it does.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LatencyLimit {
    /// The 99th percentile that must not be passed.
    pub p99: Span,
    /// Failed attempts over attempts that must not be passed, 0–1.
    #[serde(deserialize_with = "share")]
    pub errors: f64,
    /// Connections.
    pub clients: u32,
    /// How requests are spread over time.
    pub arrivals: String,
    /// How long a trial that counts is measured.
    pub trial: Span,
    /// Time for all trials of a repetition together.
    pub most: Span,
    /// How near the two bounds are to come, as a share.
    #[serde(deserialize_with = "share")]
    pub goal: f64,
}

impl Default for LatencyLimit {
    fn default() -> LatencyLimit {
        LatencyLimit {
            p99: Span(Duration::ZERO),
            errors: 0.001,
            clients: 64,
            arrivals: ARRIVALS[0].to_owned(),
            trial: Span(Duration::from_secs(2)),
            most: Span(Duration::from_secs(120)),
            goal: 0.02,
        }
    }
}

impl LatencyLimit {
    /// The shortest time in which a search may decide anything.
    pub(super) fn shortest(&self) -> Duration {
        self.trial.0 * TRIALS_LEAST
    }

    /// The same for the search, in seconds and microseconds.
    pub fn plan(&self) -> SearchPlan {
        SearchPlan {
            p99_us: self.p99.secs() * 1e6,
            error_ratio: self.errors,
            clients: self.clients,
            arrivals: self.arrivals.clone(),
            trial_secs: self.trial.secs(),
            most_secs: self.most.secs(),
            goal: self.goal,
        }
    }
}

/// A share as people write it: `0.1%`.
fn share<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let text = String::deserialize(deserializer)?;
    let percent = text.strip_suffix('%').and_then(|percent| percent.trim().parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    let wrong = || serde::de::Error::custom(format!("`{text}` is no share, as in \"0.1%\""));
    percent.map(|percent| percent / 100.0).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use crate::experiment::Experiment;
    use kv::Error;

    fn parsed(limit: &str) -> Result<Experiment, Error> {
        let quick = include_str!("../../../../experiments/quick.toml");
        Experiment::parse(&format!("{quick}\n[workload.limit]\n{limit}\n"))
    }

    #[test]
    fn a_limit_needs_no_more_than_its_latency() {
        let experiment = parsed("p99 = \"5ms\"").unwrap();
        assert!(experiment.workloads[0].limit.is_none());
        let plan = experiment.workloads[2].limit.as_ref().unwrap().plan();
        assert_eq!((plan.p99_us, plan.error_ratio, plan.clients), (5000.0, 0.001, 64));
        assert_eq!((plan.trial_secs, plan.most_secs, plan.goal), (2.0, 120.0, 0.02));
        let said = parsed("p99 = \"1ms\"\nerrors = \"0%\"\ngoal = \"5%\"\narrivals = \"constant\"").unwrap();
        let plan = said.workloads[2].limit.as_ref().unwrap().plan();
        assert_eq!((plan.error_ratio, plan.goal, plan.arrivals.as_str()), (0.0, 0.05, "constant"));
    }

    #[test]
    fn what_a_limit_cannot_be_is_said_in_one_line() {
        for (limit, why) in [
            ("", "p99 is missing, or zero; write p99"),
            ("p99 = \"0s\"", "p99 is missing, or zero; write"),
            ("p99 = \"5ms\"\nclients = 0", "nothing would be sent"),
            ("p99 = \"5ms\"\nmost = \"30s\"", "no room for 20 trials of 2s"),
            ("p99 = \"5ms\"\ngoal = \"0%\"", "write goal = \"2%\""),
            ("p99 = \"5ms\"\nerrors = \"0.1\"", "`0.1` is no share"),
            (
                "p99 = \"5ms\"\narrivals = \"bursts\"",
                "arrivals `bursts` is unknown; use one of poisson, constant",
            ),
            ("p99 = \"5ms\"\nrate = 5", "unknown field `rate`"),
        ] {
            let said = parsed(limit).unwrap_err().to_string().replace("; hint: ", "; ");
            assert!(said.contains(why) && !said.contains('\n'), "{said}");
        }
    }

    #[test]
    fn a_limit_is_for_closed_loops_of_targets_that_are_there() {
        let limited = |head: &str, args: &str| {
            Experiment::parse(&format!(
                "name = \"x\"\ntitle = \"x\"\nlevels = [1]\nrepetitions = 1\nwarmup = \"1s\"\nwindow = \"1s\"\n{head}\n\
                 [[workload]]\nname = \"w\"\nargs = [{args}]\nlimit = {{ p99 = \"5ms\" }}\n"
            ))
        };
        let (weir, model) = (
            "[target]\nkind = \"weir\"",
            "[target]\nkind = \"simulated\"\n[[target.station]]\nname = \"a\"\nservers = 1\ndemand = \"1ms\"",
        );
        assert!(limited(weir, "").is_ok());
        assert!(
            limited(weir, "\"--rate=5\"")
                .unwrap_err()
                .to_string()
                .contains("the search sets the rate itself")
        );
        let paced = format!("{weir}\nload = [\"--think\", \"5ms\"]");
        assert!(
            limited(&paced, "")
                .unwrap_err()
                .to_string()
                .contains("target.load has --think, but the search sets the rate itself")
        );
        let elsewhere = format!(
            "{paced}\nworkloads = [\"other\"]\nname = \"a\"\n[[target]]\nname = \"b\"\nkind = \"weir\""
        );
        let elsewhere = elsewhere.replacen("[target]", "[[target]]", 1) + "\n[[workload]]\nname = \"other\"";
        assert!(limited(&elsewhere, "").is_ok(), "a target that does not take part");
        assert!(limited(model, "").unwrap_err().to_string().contains("a simulated target has no open loop"));
    }
}
