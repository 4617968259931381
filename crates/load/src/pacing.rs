//! When requests are sent: the flags, which are the value.
//!
//! What follows from it for each client is `schedule`'s.

use super::stages::Stages;
use clap::ValueEnum;
use kv::units::{Rate, Span};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What decides when a client sends.
///
/// A closed loop unless there is a rate: a client sends again when its answer is there and it has thought. In an open loop
/// requests are sent at instants fixed beforehand, whatever became of those before.
#[derive(Clone, Copy, Debug, Default, PartialEq, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Pacing")]
pub struct Pacing {
    /// Send this many requests per second in total, at planned times (open loop). A request waits if all clients are busy; its latency counts from its planned time
    #[arg(long, value_name = "N", conflicts_with = "think", group = "open")]
    pub rate: Option<Rate>,

    /// Rates one after the other, as in 10s:100/s,30s:100/s..1000/s (.. is a ramp), in place of --rate, --warmup and --window
    #[arg(long, value_name = "TIME:RATE,…", conflicts_with_all = ["think", "rate", "window", "warmup"], group = "open")]
    pub stages: Option<Stages>,

    /// Times of the requests in an open loop: constant (even gaps) or poisson (random)
    #[arg(
        long,
        value_name = "HOW",
        default_value = "constant",
        hide_possible_values = true,
        requires = "open"
    )]
    pub arrivals: Arrivals,

    /// Let clients wait between an answer and the next request, as in 10ms or exponential:10ms
    #[arg(long, value_name = "TIME", default_value = "0s", hide_default_value = true)]
    pub think: Think,
}

impl Pacing {
    /// Whether instants are fixed beforehand.
    pub fn is_open(&self) -> bool {
        self.rate.is_some() || self.stages.is_some()
    }

    /// What an open loop offers.
    pub(super) fn offered(&self) -> Option<Stages> {
        self.stages.or(self.rate.map(Stages::of_rate))
    }

    /// Requests per second that an open loop offers on average over `window` after `warmup`.
    pub fn offered_rps(&self, warmup: Duration, window: Duration) -> Option<f64> {
        let (start, secs) = (warmup.as_secs_f64(), window.as_secs_f64());
        let mean = |offered: Stages| (offered.due(start + secs) - offered.due(start)) / secs;
        self.offered().map(|offered| offered.constant().unwrap_or_else(|| mean(offered)))
    }
}

impl fmt::Display for Pacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = self.stages.map(|stages| stages.to_string()).or(self.rate.map(|rate| rate.to_string()));
        match (rates, self.arrivals) {
            (Some(rate), Arrivals::Constant) => write!(f, "constant {rate}"),
            (Some(rate), Arrivals::Poisson) => write!(f, "poisson {rate}"),
            (None, _) if self.think == Think::default() => f.write_str("closed"),
            (None, _) => write!(f, "closed, think {}", self.think),
        }
    }
}

/// How the instants of an open loop lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Arrivals {
    /// Equal gaps
    #[default]
    Constant,
    /// Random gaps, exponentially distributed and independent of each other (a Poisson process)
    Poisson,
}

/// How long a client of a closed loop waits between an answer and its next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Think {
    /// The mean, or always; not at all where it is zero.
    pub mean: Duration,
    /// Whether it is exponentially distributed, as with people who do not know of each other.
    pub exponential: bool,
}

const EXPONENTIAL: &str = "exponential:";

impl FromStr for Think {
    type Err = String;

    /// `10ms`, or `exponential:10ms`.
    fn from_str(text: &str) -> Result<Think, String> {
        let (text, exponential) = text.strip_prefix(EXPONENTIAL).map_or((text, false), |mean| (mean, true));
        let Span(mean) = text.parse()?;
        Ok(Think { mean, exponential: exponential && !mean.is_zero() })
    }
}

impl fmt::Display for Think {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.exponential { EXPONENTIAL } else { "" }, Span(self.mean))
    }
}

kv::serde_as_text!(Think);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pacing_reads_as_its_flags_do() {
        let closed = |think: &str| Pacing { think: think.parse().unwrap(), ..Pacing::default() };
        let open = |rate, arrivals| Pacing { rate: Some(Rate(rate)), arrivals, ..Pacing::default() };
        for (pacing, shown) in [
            (Pacing::default(), "closed"),
            (closed("exponential:0s"), "closed"),
            (closed("10ms"), "closed, think 10ms"),
            (closed("exponential:10ms"), "closed, think exponential:10ms"),
            (open(1000.0, Arrivals::Constant), "constant 1000/s"),
            (open(0.5, Arrivals::Poisson), "poisson 0.5/s"),
        ] {
            assert_eq!(pacing.to_string(), shown);
        }
        for text in ["10ms", "exponential:10ms", "0s"] {
            assert_eq!(text.parse::<Think>().unwrap().to_string(), text);
        }
        for (text, why) in
            [("exp:10ms", "a duration is"), ("exponential:", "a duration is"), ("5", "a duration")]
        {
            assert!(text.parse::<Think>().unwrap_err().contains(why));
        }
    }
}
