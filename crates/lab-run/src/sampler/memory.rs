//! Whether memory was short: what is free, what waits to be written back, and what was swapped.

use super::{Context, Reading, Sampler, value_of};
use std::{fs, io};

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

pub(super) fn make(_: &Context) -> Option<Box<dyn Sampler>> {
    Some(Box::new(Memory))
}

struct Memory;

impl Sampler for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn read(&mut self, into: &mut Reading) -> io::Result<()> {
        let info = fs::read_to_string("/proc/meminfo")?;
        for (key, name) in GAUGES {
            if let Some(value) = value_of(&info, key) {
                into.gauge(*name, value);
            }
        }
        let events = fs::read_to_string("/proc/vmstat")?;
        for (key, name) in COUNTERS {
            if let Some(value) = value_of(&events, key) {
                into.count(*name, value);
            }
        }
        Ok(())
    }
}
