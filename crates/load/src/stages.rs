//! Stages of an open loop: rates one after the other, constant or rising or falling.
//!
//! Pure: what is due at which instant, and the other way round.

use kv::units::{Rate, Span};
use std::fmt;
use std::str::FromStr;

/// What an open loop offers: stages, written `10s:100/s,30s:100/s..1000/s`. After the last one its rate goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stages {
    stages: &'static [Stage],
    /// What is offered behind them, per second.
    last: f64,
}

/// A time with a rate at its beginning and one at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stage {
    secs: f64,
    from: f64,
    to: f64,
}

impl Stage {
    /// Requests that are due after this time of it.
    fn due(&self, secs: f64) -> f64 {
        self.from * secs + (self.to - self.from) * secs * secs / (2.0 * self.secs)
    }

    /// When so many are due.
    fn at(&self, count: f64) -> f64 {
        let slope = (self.to - self.from) / self.secs;
        // Of the two forms of the solution the one that is exact also without a slope.
        let root = (self.from * self.from + 2.0 * slope * count).max(0.0).sqrt();
        if self.from + root > 0.0 { 2.0 * count / (self.from + root) } else { 0.0 }
    }
}

impl Stages {
    /// One rate without an end.
    pub(super) fn of_rate(rate: Rate) -> Stages {
        Stages { stages: &[], last: rate.0 }
    }

    /// How long all of them take.
    pub fn secs(&self) -> f64 {
        self.stages.iter().map(|stage| stage.secs).sum()
    }

    /// The rate, if it is always the same.
    pub(super) fn constant(&self) -> Option<f64> {
        self.stages.is_empty().then_some(self.last)
    }

    /// Requests that are due in this time from the beginning of the run.
    pub(super) fn due(&self, mut secs: f64) -> f64 {
        let mut due = 0.0;
        for stage in self.stages {
            if secs < stage.secs {
                return due + stage.due(secs.max(0.0));
            }
            due += stage.due(stage.secs);
            secs -= stage.secs;
        }
        due + self.last * secs.max(0.0)
    }

    /// When request `count`, counted from 0, is due, in seconds.
    pub(super) fn at(&self, mut count: f64) -> f64 {
        let mut secs = 0.0;
        for stage in self.stages {
            let own = stage.due(stage.secs);
            if count < own {
                return secs + stage.at(count);
            }
            count -= own;
            secs += stage.secs;
        }
        // Behind a last stage that ends at nothing, nothing is due any more.
        secs + if self.last > 0.0 { count / self.last } else { f64::from(u32::MAX) }
    }
}

impl FromStr for Stages {
    type Err = String;

    fn from_str(text: &str) -> Result<Stages, String> {
        const FORM: &str =
            "write TIME:RATE or TIME:RATE..RATE with commas, as in 10s:100/s,30s:100/s..1000/s";
        let rate = |text: &str| match text.trim() {
            "0" | "0/s" => Ok(0.0),
            text => {
                text.parse().map(|Rate(rate)| rate).map_err(|_| format!("`{text}` is no rate; hint: {FORM}"))
            }
        };
        let stage = |part: &str| {
            let (time, rates) =
                part.split_once(':').ok_or_else(|| format!("`{part}` has no colon; hint: {FORM}"))?;
            let Span(time) =
                time.trim().parse().map_err(|_| format!("`{time}` is no duration; hint: {FORM}"))?;
            let (from, to) = rates.split_once("..").unwrap_or((rates, rates));
            let stage = Stage { secs: time.as_secs_f64(), from: rate(from)?, to: rate(to)? };
            if stage.secs > 0.0 { Ok(stage) } else { Err(format!("`{part}` takes no time; hint: {FORM}")) }
        };
        let stages = text.split(',').map(stage).collect::<Result<Vec<Stage>, String>>()?;
        if stages.iter().all(|stage| stage.from.max(stage.to) == 0.0) {
            return Err(format!("nothing is sent; hint: {FORM}"));
        }
        // There is at least one.
        let last = stages.last().map_or(1.0, |stage| stage.to);
        // Never freed: a run has one.
        Ok(Stages { stages: Vec::leak(stages), last })
    }
}

impl fmt::Display for Stages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, stage) in self.stages.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            let time = Span(std::time::Duration::from_secs_f64(stage.secs));
            write!(f, "{comma}{time}:{}", Rate(stage.from))?;
            if stage.to != stage.from {
                write!(f, "..{}", Rate(stage.to))?;
            }
        }
        Ok(())
    }
}

kv::serde_as_text!(Stages);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_and_when_are_inverse_to_each_other() {
        for text in [
            "10s:100/s",
            "10s:100/s,30s:100/s..1000/s,5s:1000/s",
            "4s:0..80/s,2s:0,4s:80/s..0",
            "1s:5/s..1/s",
        ] {
            let stages: Stages = text.parse().unwrap();
            assert_eq!(stages.to_string().parse::<Stages>().unwrap(), stages);
            let all = stages.due(stages.secs());
            let mut last = -1.0;
            for count in 0..all as u64 {
                let at = stages.at(count as f64);
                assert!(
                    at > last && at <= stages.secs() && (stages.due(at) - count as f64).abs() < 1e-6,
                    "{text} {count}: {at}"
                );
                last = at;
            }
        }
        let stages: Stages = "10s:100/s,30s:100/s..1000/s".parse().unwrap();
        assert_eq!((stages.secs(), stages.due(40.0)), (40.0, 1000.0 + 16_500.0));
        let offered = Stages::of_rate(Rate(50.0));
        assert_eq!((offered.due(2.0), offered.at(100.0)), (100.0, 2.0));
        for (wrong, why) in [
            ("", "has no colon"),
            ("10s", "has no colon"),
            ("10:5/s", "`10` is no duration"),
            ("10s:fast", "`fast` is no rate"),
            ("0s:5/s", "takes no time"),
            ("5s:0", "nothing is sent"),
        ] {
            assert!(wrong.parse::<Stages>().unwrap_err().contains(why), "{wrong}");
        }
    }
}
