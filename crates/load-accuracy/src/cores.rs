//! Which core runs what, and helper threads on each of them.

use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
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
    /// Those that this process may use; none where the kernel does not say.
    pub fn available() -> Vec<usize> {
        let ours = sched_getaffinity(None);
        ours.map(|ours| (0..CpuSet::MAX_CPU).filter(|core| ours.is_set(*core)).collect()).unwrap_or_default()
    }

    /// The last two that this process may use, or one for both.
    pub fn usual() -> Option<Cores> {
        let ours = Cores::available();
        let generator = *ours.last()?;
        Some(Cores { generator, responder: ours.len().checked_sub(2).map_or(generator, |place| ours[place]) })
    }
}

/// Moves this thread to `core`; processes and threads that it starts inherit that.
pub(crate) fn pin(core: usize) -> io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::Error::other(format!("there is no core {core}")));
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
        .map_err(|error| io::Error::other(format!("cannot run on core {core}: {error}")))
}

/// Does `what` in a thread on `core`.
pub(crate) fn on_core<T: Send>(
    core: Option<usize>,
    what: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let pinned = || core.map_or(Ok(()), pin).and_then(|()| what());
    thread::scope(|scope| scope.spawn(pinned).join())
        .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
}

/// A helper thread on each core, until dropped.
pub(crate) struct OnEachCore {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Duration>>,
}

impl OnEachCore {
    /// Keeps the cores from going to sleep. A sleeping core takes time to wake up, the more the longer it slept (in a virtual
    /// machine some 100 µs), so a client that waits 10 ms for an answer would see more on top of it than one that waits for
    /// none, whatever the load generator does.
    pub(crate) fn awake(cores: Option<Cores>) -> OnEachCore {
        OnEachCore::start(cores, |stop| {
            // At any other priority it would take time from the two programs.
            if setpriority_process(None, 19).is_ok() {
                while !stop.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            }
            Duration::ZERO
        })
    }

    /// Measures how late a thread that sleeps for a moment wakes up: [`OnEachCore::longest_pause`].
    pub(crate) fn pauses(cores: Option<Cores>) -> OnEachCore {
        const TICK: Duration = Duration::from_millis(5);
        OnEachCore::start(cores, |stop| {
            let mut longest = Duration::ZERO;
            let mut last = Instant::now();
            while !stop.load(Ordering::Relaxed) {
                thread::sleep(TICK);
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            longest
        })
    }

    fn start(cores: Option<Cores>, work: fn(&AtomicBool) -> Duration) -> OnEachCore {
        let stop = Arc::new(AtomicBool::new(false));
        let mut cores: Vec<usize> =
            cores.into_iter().flat_map(|cores| [cores.generator, cores.responder]).collect();
        cores.dedup();
        let thread = |core| {
            let stop = Arc::clone(&stop);
            thread::spawn(move || pin(core).map_or(Duration::ZERO, |()| work(&stop)))
        };
        OnEachCore { threads: cores.into_iter().map(thread).collect(), stop }
    }

    /// The longest time in which a core did not run a thread that was ready.
    pub(crate) fn longest_pause(mut self) -> Duration {
        self.join()
    }

    fn join(&mut self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).filter_map(|thread| thread.join().ok()).max().unwrap_or_default()
    }
}

impl Drop for OnEachCore {
    fn drop(&mut self) {
        self.join();
    }
}
