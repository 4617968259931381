//! Binding a thread to cores.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;

/// Lets this thread, and what it starts, run on `cores` only.
pub(crate) fn bind(cores: &[usize]) -> io::Result<()> {
    let mut mask = CpuSet::new();
    cores.iter().for_each(|&core| mask.set(core));
    Ok(sched_setaffinity(None, &mask)?)
}
