//! Whether memory was short: what is free, what waits to be written back, and what was swapped.

use super::{Context, Sampler, value_of};
use std::fs;

/// `/proc/meminfo` → gauge.
const GAUGES: &[(&str, &str)] = &[
    ("MemAvailable", "memory.available_bytes"),
    ("Dirty", "memory.dirty_bytes"),
    ("Writeback", "memory.writeback_bytes"),
];

/// `/proc/vmstat` → counter.
const COUNTERS: &[(&str, &str)] = &[
    ("pswpin", "memory.swap_in_pages"),
    ("pswpout", "memory.swap_out_pages"),
    ("pgmajfault", "memory.major_faults"),
];

pub(super) fn make(_: &Context) -> Option<Sampler> {
    Some(Box::new(|into| {
        let info = fs::read_to_string("/proc/meminfo")?;
        let gauges = GAUGES.iter().filter_map(|(key, name)| Some((*name, value_of(&info, key)?)));
        gauges.for_each(|(name, value)| into.gauge(name, value));
        let events = fs::read_to_string("/proc/vmstat")?;
        let counters = COUNTERS.iter().filter_map(|(key, name)| Some((*name, value_of(&events, key)?)));
        counters.for_each(|(name, value)| into.count(name, value));
        Ok(())
    }))
}
