//! The cores that a process may use, and threads that are bound to some of them.

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::{io, thread};

/// Those this process may use, ascending: a container or `taskset` may have taken some away.
pub fn available() -> io::Result<Vec<usize>> {
    let mask = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| mask.is_set(*core)).collect())
}

/// Lets this thread, and what it starts, run on `cores` only.
pub fn bind(cores: &[usize]) -> io::Result<()> {
    let set = || {
        let mut mask = CpuSet::new();
        for core in cores {
            if *core >= CpuSet::MAX_CPU {
                return Err(Errno::INVAL);
            }
            mask.set(*core);
        }
        sched_setaffinity(None, &mask)
    };
    set().map_err(|error| io::Error::other(format!("it cannot run on the cores {cores:?}: {error}")))
}

/// Does `what` in a thread of its own on `cores`, on all that we have where that is empty: what it starts is there from its first
/// instruction, and our own threads stay where they are.
pub fn on<T: Send>(cores: &[usize], what: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let bound = || {
        if !cores.is_empty() {
            bind(cores)?;
        }
        what()
    };
    thread::scope(|scope| scope.spawn(bound).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_thread_is_where_it_was_told_and_its_starter_is_not() {
        let before = available().unwrap();
        let last = *before.last().unwrap();
        assert_eq!(on(&[last], available).unwrap(), [last]);
        assert_eq!(available().unwrap(), before);
        let why = on(&[CpuSet::MAX_CPU], available).unwrap_err().to_string();
        assert!(why.starts_with("it cannot run on the cores [1024]: "), "{why}");
    }
}
