//! Who leaves a full shard: one file per policy, one row each in [`POLICIES`].
//!
//! A policy sees slot numbers and hashes only, never keys or rows, and runs under its shard's lock.

mod fifo;
mod list;
mod lru;

pub use fifo::Fifo;
pub use lru::Lru;

/// A row's number in its shard. Slots are reused.
pub type Slot = u32;

/// Chooses which slot leaves a full shard. Called under the shard's lock.
pub trait Policy: Send {
    /// A row came into `slot`, which held none.
    fn on_insert(&mut self, slot: Slot, hash: u64);
    /// The row in `slot` was asked for or replaced.
    fn on_hit(&mut self, slot: Slot);
    /// The row in `slot` left, evicted or not.
    fn on_remove(&mut self, slot: Slot);
    /// The slot that should leave next; `on_remove` follows. Called only when some slot is held.
    fn victim(&mut self) -> Slot;
}

/// A policy by name.
#[derive(Debug)]
pub struct PolicyRow {
    /// As written after `--cache-policy`.
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// One for an empty shard.
    pub new: fn() -> Box<dyn Policy>,
}

/// Every policy there is.
pub const POLICIES: &[PolicyRow] = &[
    PolicyRow {
        name: "lru",
        about: "the row not asked for the longest leaves",
        new: || Box::new(Lru::default()),
    },
    PolicyRow {
        name: "fifo",
        about: "the row that came in first leaves, asked for or not",
        new: || Box::new(Fifo::default()),
    },
];

/// The policy called `name`.
pub fn find(name: &str) -> Option<&'static PolicyRow> {
    POLICIES.iter().find(|row| row.name == name)
}

/// Runs `trace`, keys of one letter, through a shard of `capacity` slots and checks the keys evicted, in order.
#[cfg(test)]
fn check(policy: &str, capacity: usize, trace: &str, evicted: &str) {
    let mut policy = (find(policy).unwrap().new)();
    let mut slots: Vec<Option<&str>> = vec![None; capacity];
    let mut left = Vec::new();
    for key in trace.split_whitespace() {
        if let Some(slot) = slots.iter().position(|held| *held == Some(key)) {
            policy.on_hit(slot as Slot);
            continue;
        }
        let free = slots.iter().position(Option::is_none).unwrap_or_else(|| {
            let victim = policy.victim();
            policy.on_remove(victim);
            left.extend(slots[victim as usize].take());
            victim as usize
        });
        slots[free] = Some(key);
        policy.on_insert(free as Slot, 0);
    }
    assert_eq!(left.join(" "), evicted, "{trace}");
}
