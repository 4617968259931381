//! Whether memory was short: pages that were swapped.

use super::{Context, Sampler, of_file, value_of};

/// `/proc/vmstat` → counter.
const COUNTERS: &[(&str, &str)] = &[("pswpin", "memory.swap_in_pages"), ("pswpout", "memory.swap_out_pages")];

pub(super) fn make(_: &Context) -> Option<Sampler> {
    Some(of_file("/proc/vmstat", |text, into| {
        let counters = COUNTERS.iter().filter_map(|(key, name)| Some((*name, value_of(text, key)?)));
        counters.for_each(|(name, value)| into.count(name, value));
    }))
}
