//! When requests are sent: a value, as the flags state it.
//!
//! What follows from it for each client is `schedule`'s.

use kv::units::{Rate, Span};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What decides when a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Pacing {
    /// A closed loop: a client sends again when its answer is there and it has thought.
    Closed {
        /// Between an answer and the next request.
        think: Think,
    },
    /// An open loop: requests are sent at instants fixed beforehand, whatever became of those before.
    Open {
        /// Of all clients together; positive and finite.
        rate: Rate,
        /// How the instants lie.
        arrivals: Arrivals,
    },
}

impl Default for Pacing {
    /// A closed loop without think time.
    fn default() -> Pacing {
        Pacing::Closed { think: Think::None }
    }
}

impl fmt::Display for Pacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pacing::Closed { think: Think::None } => f.write_str("closed"),
            Pacing::Closed { think } => write!(f, "closed, think {think}"),
            Pacing::Open { rate, arrivals } => write!(f, "{arrivals} {rate}"),
        }
    }
}

/// How long a client of a closed loop waits between an answer and its next request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Think {
    /// Not at all.
    #[default]
    None,
    /// Always as long.
    Constant(Duration),
    /// Exponentially distributed with this mean, as people who do not know of each other.
    Exponential(Duration),
}

const EXPONENTIAL: &str = "exponential:";

impl FromStr for Think {
    type Err = String;

    /// `10ms`, or `exponential:10ms`.
    fn from_str(text: &str) -> Result<Think, String> {
        let (text, exponential) = text.strip_prefix(EXPONENTIAL).map_or((text, false), |mean| (mean, true));
        let Span(time) = text.parse()?;
        Ok(match exponential {
            _ if time.is_zero() => Think::None,
            true => Think::Exponential(time),
            false => Think::Constant(time),
        })
    }
}

impl fmt::Display for Think {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Think::None => write!(f, "0s"),
            Think::Constant(time) => write!(f, "{}", Span(*time)),
            Think::Exponential(mean) => write!(f, "{EXPONENTIAL}{}", Span(*mean)),
        }
    }
}

/// How the instants of an open loop lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arrivals {
    /// Evenly.
    #[default]
    Constant,
    /// As a Poisson process has them: gaps are exponentially distributed, and none knows of another.
    Poisson,
}

crate::named_values!(Arrivals: "constant" = Arrivals::Constant, "poisson" = Arrivals::Poisson);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pacing_reads_as_its_flags_do() {
        let ms = Duration::from_millis(10);
        for (pacing, shown) in [
            (Pacing::default(), "closed"),
            (Pacing::Closed { think: Think::Constant(ms) }, "closed, think 10ms"),
            (Pacing::Closed { think: Think::Exponential(ms) }, "closed, think exponential:10ms"),
            (Pacing::Open { rate: Rate(1000.0), arrivals: Arrivals::Constant }, "constant 1000/s"),
            (Pacing::Open { rate: Rate(0.5), arrivals: Arrivals::Poisson }, "poisson 0.5/s"),
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
        for (name, arrivals) in [("constant", Arrivals::Constant), ("poisson", Arrivals::Poisson)] {
            assert_eq!(name.parse(), Ok(arrivals));
            assert_eq!(arrivals.to_string(), name);
        }
        assert_eq!("even".parse::<Arrivals>(), Err("expected one of: constant, poisson".into()));
    }
}
