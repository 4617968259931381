//! Pressure stall information: time in which some or all tasks of the machine waited for a resource.
//!
//! Source: Linux `Documentation/accounting/psi.rst`. Kernels without it have no such files.

use super::{Context, Reading, Sampler};
use std::fs;

pub(super) fn make(_: &Context) -> Option<Sampler> {
    Some(Box::new(|into| {
        for resource in ["cpu", "io", "memory"] {
            parse(resource, &fs::read_to_string(format!("/proc/pressure/{resource}"))?, into);
        }
        Ok(())
    }))
}

fn parse(resource: &str, text: &str, into: &mut Reading) {
    for line in text.lines() {
        let Some((share @ ("some" | "full"), rest)) = line.split_once(' ') else { continue };
        let total = rest.split(' ').find_map(|word| word.strip_prefix("total="));
        if let Some(Ok(micros)) = total.map(str::parse::<f64>) {
            into.count(format!("pressure.{resource}.{share}_secs"), micros / 1e6);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_become_seconds() {
        let text = "some avg10=1.63 avg60=0.35 avg300=0.28 total=4780870\n\
                    full avg10=1.45 avg60=0.32 avg300=0.27 total=4500000\n";
        let mut reading = Reading::default();
        parse("io", text, &mut reading);
        let read: Vec<_> = reading.counters.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(read, [("pressure.io.full_secs", 4.5), ("pressure.io.some_secs", 4.78087)]);
    }
}
