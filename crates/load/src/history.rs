//! What is known of the writes of a key, and what a request takes along of it until its answer is there.

/// Writes that are known of each key.
pub(super) const WRITES_MAX: usize = 8;

/// What is known of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyHistory {
    pub(super) number: u64,
    /// Whether the value of the preload is gone.
    pub(super) overwritten: bool,
    /// In no order; those without a count are free.
    pub(super) writes: [Write; WRITES_MAX],
}

/// A write that took effect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Write {
    pub(super) writer: u32,
    pub(super) count: u64,
    /// The tick at which it began; zero if it was never acknowledged, only read.
    pub(super) begun: u64,
    /// The tick at which it was known to have taken effect.
    pub(super) settled: u64,
}

/// What is to be kept of a request until it is over.
#[derive(Debug)]
pub(super) struct Watch {
    /// Which of the thread's clients asks.
    pub(super) place: usize,
    pub(super) number: u64,
    /// Its place in the record of calls, where there is one.
    pub(super) call: usize,
    pub(super) watched: Watched,
}

#[derive(Debug)]
pub(super) enum Watched {
    /// A read to be compared as a whole, and what was known before it was sent.
    Read(Box<KeyHistory>),
    /// A write: its number among its client's, and the tick at which it began.
    Write { count: u64, begun: u64 },
}

impl KeyHistory {
    pub(super) fn find(&self, writer: u32, count: u64) -> Option<&Write> {
        self.writes.iter().find(|write| write.writer == writer && write.count == count)
    }

    /// In place of what is known of the same write, or of the one settled longest.
    pub(super) fn add(&mut self, write: Write) {
        let same = |known: &&mut Write| known.writer == write.writer && known.count == write.count;
        if let Some(known) = self.writes.iter_mut().find(same) {
            known.begun = known.begun.max(write.begun);
        } else if let Some(oldest) = self.writes.iter_mut().min_by_key(|known| known.settled) {
            *oldest = write;
        }
    }
}
