//! What the workers of a batcher count.

use kv::counters::{Counter, Histogram};

/// What the workers count.
#[derive(Debug, Default)]
pub struct WorkerMeters {
    /// Requests per batch.
    pub batch_size: Histogram,
    /// Time of a batch in the store, in microseconds.
    pub duration: Histogram,
    /// Time of a request in the queue, in microseconds.
    pub queued: Histogram,
    /// Nanoseconds in which a batch was in the store, over all workers.
    pub busy_nanos: Counter,
    /// For how long requests were in the store, up to their answers, summed over them.
    pub request_nanos: Counter,
    /// Requests refused or given up because too many waited, or too long.
    pub shed: Counter,
}

/// What the workers count, by what they do.
#[derive(Debug, Default)]
pub struct Meters {
    /// Of the workers for reads.
    pub read: WorkerMeters,
    /// Of the worker for lists and atomic batches.
    pub long: WorkerMeters,
    /// Rows that had expired and were removed.
    pub expired: Counter,
    /// Of the workers for writes.
    pub write: WorkerMeters,
    /// Leases acquired.
    pub leases: Counter,
}
