//! Which row leaves a full shard: one file per policy, one row each in [`POLICIES`].
//!
//! A policy sees slot numbers and hashes only, never keys or rows, and runs under its shard's lock.

mod lru;
mod clock;
mod sieve;
mod s3fifo;
mod w_tinylfu;
mod list;
mod recent_evictions;
mod sketch;

/// A row's number in its shard. Slots are reused.
pub type Slot = u32;

/// Chooses which slot leaves a full shard. Called under the shard's lock.
///
/// Every call takes constant time, averaged over the calls, and a hit allocates nothing. A policy does not know how much
/// fits: limits count bytes too, so its segments are shares of what is held now.
pub trait Policy: Send {
    /// A row came into `slot`, which held none.
    fn on_insert(&mut self, slot: Slot, hash: u64);
    /// The row in `slot` was asked for or replaced.
    fn on_hit(&mut self, slot: Slot);
    /// These were asked for, one after the other. Together they cost less than one by one: what they wait for in memory
    /// they wait for at the same time.
    fn on_hits(&mut self, slots: &[Slot]) {
        slots.iter().for_each(|slot| self.on_hit(*slot));
    }
    /// The row in `slot` left, evicted or not.
    fn on_remove(&mut self, slot: Slot);
    /// The slot that should leave next; its `on_remove` follows. Called only when some slot is held, and before the
    /// row that needs the room is announced. It may be the slot of a row that was just replaced by a larger one.
    fn victim(&mut self) -> Slot;
}

/// A policy by name.
#[derive(Debug)]
pub struct PolicyRow {
    /// As written after `--cache-policy`.
    pub name: &'static str,
    /// One for an empty shard.
    pub new: fn() -> Box<dyn Policy>,
}

/// Every policy there is.
pub const POLICIES: &[PolicyRow] = &[
    PolicyRow { name: "lru", new: || Box::new(lru::Lru::default()) },
    PolicyRow { name: "fifo", new: || Box::new(lru::Fifo::default()) },
    PolicyRow { name: "clock", new: || Box::new(clock::Clock::default()) },
    PolicyRow { name: "sieve", new: || Box::new(sieve::Sieve::default()) },
    PolicyRow { name: "s3fifo", new: || Box::new(s3fifo::S3Fifo::default()) },
    PolicyRow { name: "w-tinylfu", new: || Box::new(w_tinylfu::WTinyLfu::default()) },
];

/// The policy called `name`.
pub fn find(name: &str) -> Option<&'static PolicyRow> {
    POLICIES.iter().find(|row| row.name == name)
}

/// The names of [`POLICIES`], as a sentence lists them.
pub fn names() -> String {
    POLICIES.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
}

/// What policies keep of a hash. The bits that chose the shard are the same for all its rows; the lower half is not.
fn fingerprint(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

/// Sets what a vector holds for `slot`, and makes it long enough with `filler`.
fn set<T: Clone>(values: &mut Vec<T>, slot: Slot, value: T, filler: T) {
    let index = slot as usize;
    if index >= values.len() {
        values.resize(index + 1, filler);
    }
    values[index] = value;
}

/// Runs `trace`, keys of one letter, through a shard of `capacity` slots and checks the keys evicted, in order. `-a`
/// takes a out if it is there.
#[cfg(test)]
fn check(policy: &str, capacity: usize, trace: &str, evicted: &str) {
    let mut policy = (find(policy).unwrap().new)();
    let mut slots: Vec<Option<&str>> = vec![None; capacity];
    let mut left = Vec::new();
    for step in trace.split_whitespace() {
        let key = step.trim_start_matches('-');
        let held = slots.iter().position(|held| *held == Some(key));
        match (step.starts_with('-'), held) {
            (true, None) => {}
            (true, Some(slot)) => {
                policy.on_remove(slot as Slot);
                slots[slot] = None;
            }
            (false, Some(slot)) => policy.on_hit(slot as Slot),
            (false, None) => {
                let free = slots.iter().position(Option::is_none).unwrap_or_else(|| {
                    let victim = policy.victim();
                    policy.on_remove(victim);
                    left.extend(slots[victim as usize].take());
                    victim as usize
                });
                slots[free] = Some(key);
                policy.on_insert(free as Slot, tests::hash(key.as_bytes()[0].into()));
            }
        }
    }
    assert_eq!(left.join(" "), evicted, "{trace}");
}

#[cfg(test)]
pub(super) mod tests;
