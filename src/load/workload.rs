//! What the clients ask for: operation mix × key distribution × value size, as a table.
//!
//! A new workload is a row of [`WORKLOADS`]. Knows neither sockets nor bytes on the wire.

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Read.
    Get,
    /// Create or replace.
    Put,
    /// Remove.
    Delete,
}

impl Operation {
    /// All of them, in the order of reports; an operation's place here is `operation as usize`.
    pub const ALL: [Operation; 3] = [Operation::Get, Operation::Put, Operation::Delete];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Get => "get",
            Operation::Put => "put",
            Operation::Delete => "delete",
        }
    }

    /// Its method on the wire.
    pub fn method(self) -> &'static str {
        match self {
            Operation::Get => "GET",
            Operation::Put => "PUT",
            Operation::Delete => "DELETE",
        }
    }
}

/// Which keys requests name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Every key equally likely, whoever asks.
    Uniform,
    /// Each client writes its own keys in sequence, over and over, and deletes one of those it wrote last.
    OwnSequence,
}

/// A row of [`WORKLOADS`].
#[derive(Debug)]
pub struct Workload {
    /// What `--workload` calls it.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// Per cent of the requests by operation; they add up to 100.
    pub mix: &'static [(Operation, u32)],
    /// Which keys they name.
    pub distribution: Distribution,
    /// What the keys' names begin with; the key's number follows.
    pub key_prefix: &'static str,
    /// How many keys, unless told.
    pub keys_default: u64,
    /// How long the values are, unless told.
    pub value_bytes_default: u64,
    /// Whether a read that finds nothing is a good answer.
    pub absent_is_fine: bool,
}

/// Every workload, in the order people should meet them.
pub static WORKLOADS: &[Workload] = &[
    Workload {
        name: "get_popular",
        about: "Reads of a few hot keys: what a cache answers.",
        mix: &[(Operation::Get, 100)],
        distribution: Distribution::Uniform,
        key_prefix: "popular_",
        keys_default: 10,
        value_bytes_default: 100,
        absent_is_fine: false,
    },
    Workload {
        name: "get_all",
        about: "Reads spread evenly over many keys: what a small cache misses.",
        mix: &[(Operation::Get, 100)],
        distribution: Distribution::Uniform,
        key_prefix: "all_",
        keys_default: 10_000,
        value_bytes_default: 100,
        absent_is_fine: false,
    },
    Workload {
        name: "put_all",
        about: "Writes, nine PUT to one DELETE, each client over keys of its own: what the store must make durable.",
        mix: &[(Operation::Put, 90), (Operation::Delete, 10)],
        distribution: Distribution::OwnSequence,
        key_prefix: "put_",
        keys_default: 100_000,
        value_bytes_default: 100,
        absent_is_fine: true,
    },
    Workload {
        name: "mixed",
        about: "Half reads, 30 % PUT and 20 % DELETE over the same keys; a read may find nothing.",
        mix: &[(Operation::Get, 50), (Operation::Put, 30), (Operation::Delete, 20)],
        distribution: Distribution::Uniform,
        key_prefix: "mixed_",
        keys_default: 10_000,
        value_bytes_default: 100,
        absent_is_fine: true,
    },
];

impl Workload {
    /// The row called `name`.
    pub fn named(name: &str) -> Option<&'static Workload> {
        WORKLOADS.iter().find(|row| row.name == name)
    }

    /// Whether any of its requests is a read: only then must keys be there beforehand.
    pub fn reads(&self) -> bool {
        self.mix.iter().any(|&(operation, percent)| operation == Operation::Get && percent > 0)
    }

    /// The operation of the `point`-th of a hundred requests; `point` is below 100.
    pub(super) fn operation_at(&self, point: u64) -> Operation {
        let mut below = 0;
        for &(operation, percent) in self.mix {
            below += u64::from(percent);
            if point < below {
                return operation;
            }
        }
        unreachable!("the mix of {} does not add up to 100", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mix_adds_up_to_a_hundred() {
        for row in WORKLOADS {
            assert_eq!(row.mix.iter().map(|&(_, percent)| percent).sum::<u32>(), 100, "{}", row.name);
            for &(operation, percent) in row.mix {
                let drawn = (0..100).filter(|&point| row.operation_at(point) == operation).count();
                assert_eq!(drawn as u32, percent, "{} {}", row.name, operation.name());
            }
        }
    }

    #[test]
    fn names_and_key_prefixes_are_unique_and_need_no_encoding() {
        for (place, row) in WORKLOADS.iter().enumerate() {
            assert!(std::ptr::eq(Workload::named(row.name).unwrap(), row));
            assert!(WORKLOADS[..place].iter().all(|other| other.key_prefix != row.key_prefix));
            assert!(row.key_prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
            assert!(row.about.ends_with('.') && row.keys_default > 0);
        }
        assert!(Workload::named("get_nothing").is_none());
    }
}
