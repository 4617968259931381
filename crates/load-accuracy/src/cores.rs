//! Which core runs what, and helper threads on each of them.

use kv::cores::{available, bind};
use rustix::process::setpriority_process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A core each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cores {
    /// The load generator's.
    pub generator: usize,
    /// The responder's.
    pub responder: usize,
}

impl Cores {
    /// The last two that this process may use, or one for both.
    pub fn usual() -> Option<Cores> {
        let ours = available().unwrap_or_default();
        let generator = *ours.last()?;
        Some(Cores { generator, responder: ours.len().checked_sub(2).map_or(generator, |place| ours[place]) })
    }
}

/// Does `what` beside a helper thread on each of the cores; gives the longest time that a helper gives.
pub(crate) fn beside<T>(
    cores: Option<Cores>,
    helper: fn(&AtomicBool) -> Duration,
    what: impl FnOnce() -> T,
) -> (T, Duration) {
    let mut cores: Vec<usize> = cores.into_iter().flat_map(|of| [of.generator, of.responder]).collect();
    cores.dedup();
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        let help = |core| scope.spawn(move || bind(&[core]).map_or(Duration::ZERO, |()| helper(stop)));
        let helpers: Vec<_> = cores.into_iter().map(help).collect();
        let done = what();
        stop.store(true, Ordering::Relaxed);
        (done, helpers.into_iter().filter_map(|of| of.join().ok()).max().unwrap_or_default())
    })
}

/// Keeps a core from going to sleep. A sleeping core takes time to wake up, the more the longer it slept (in a virtual
/// machine some 100 µs), so a client that waits 10 ms for an answer would see more on top of it than one that waits for
/// none, whatever the load generator does.
pub(crate) fn keep_awake(stop: &AtomicBool) -> Duration {
    // At any other priority it would take time from the two programs.
    if setpriority_process(None, 19).is_ok() {
        while !stop.load(Ordering::Relaxed) {
            thread::yield_now();
        }
    }
    Duration::ZERO
}

/// Measures the longest time in which a core did not run a thread that was ready: how late one that sleeps for a moment wakes
/// up.
pub(crate) fn longest_pause(stop: &AtomicBool) -> Duration {
    const TICK: Duration = Duration::from_millis(5);
    let mut longest = Duration::ZERO;
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(TICK);
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    longest
}
