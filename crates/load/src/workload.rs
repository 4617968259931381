//! What the clients ask for: operation mix × key distribution × value size, as a table.
//!
//! A new workload is a row of [`WORKLOADS`]. Knows neither sockets nor bytes on the wire.

use super::distribution::{Distribution, THETA_DEFAULT};
use super::mix::{
    COMPUTE_HASH, COMPUTE_PRIME, DELETE, GET, MixEntry, PUT, PUT_PUT_DELETE, READ_MODIFY_WRITE, turn,
};
use super::value_size::ValueSize;

/// A row of [`WORKLOADS`].
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// What `--workload` calls it.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// Which operations, in which shares.
    pub mix: &'static [MixEntry],
    /// Which keys are named, where a turn does not say.
    pub distribution: Distribution,
    /// What the keys' names begin with; the key's number follows.
    pub key_prefix: &'static str,
    /// How many keys, unless --keys says it.
    pub keys_default: u64,
    /// How long the values are, unless --value-size says it.
    pub value_size_default: ValueSize,
    /// How many keys, from the first on, are written before a run that reads; `None` for all.
    pub preload_keys_max: Option<u64>,
    /// Whether a read that finds nothing is a good answer.
    pub absent_is_success: bool,
}

/// What most workloads have in common.
const BASE: Workload = Workload {
    name: "",
    about: "",
    mix: &[turn(1, GET)],
    distribution: Distribution::Uniform,
    key_prefix: "",
    keys_default: 10_000,
    value_size_default: ValueSize::Fixed(100),
    preload_keys_max: None,
    absent_is_success: false,
};

/// What the YCSB core workloads have in common: rows of ten fields of 100 bytes, and a skew.
///
/// Source: Cooper et al., Benchmarking Cloud Serving Systems with YCSB (2010). Its workload E scans ranges of keys,
/// and there is no request for that.
const YCSB: Workload = Workload {
    distribution: Distribution::Zipfian { theta: THETA_DEFAULT },
    value_size_default: ValueSize::Fixed(1000),
    ..BASE
};

/// Every workload, in the order people should meet them. The first four have mixes that add up to 100, and must keep
/// them: their streams are drawn by these numbers.
pub static WORKLOADS: &[Workload] = &[
    Workload {
        name: "get_popular",
        about: "Reads of a few hot keys: what a cache answers.",
        mix: &[turn(100, GET)],
        key_prefix: "popular_",
        keys_default: 10,
        ..BASE
    },
    Workload {
        name: "get_all",
        about: "Reads spread evenly over many keys: what a small cache misses.",
        mix: &[turn(100, GET)],
        key_prefix: "all_",
        ..BASE
    },
    Workload {
        name: "put_all",
        about: "Writes, nine PUT to one DELETE, each client over keys of its own: what the store must make durable.",
        mix: &[turn(90, PUT), turn(10, DELETE)],
        distribution: Distribution::OwnSequence,
        key_prefix: "put_",
        keys_default: 100_000,
        absent_is_success: true,
        ..BASE
    },
    Workload {
        name: "mixed",
        about: "Half reads, 30 % PUT and 20 % DELETE over the same keys; a read may find nothing.",
        mix: &[turn(50, GET), turn(30, PUT), turn(20, DELETE)],
        key_prefix: "mixed_",
        absent_is_success: true,
        ..BASE
    },
    Workload {
        name: "get_popular_1000",
        about: "Reads of a thousand hot keys: what a cache of a thousand rows just answers.",
        key_prefix: "popular_1000_",
        keys_default: 1000,
        ..BASE
    },
    Workload {
        name: "get_zipfian",
        about: "Reads, few keys often and many seldom: how much a cache gains from skew.",
        distribution: Distribution::Zipfian { theta: THETA_DEFAULT },
        key_prefix: "zipfian_",
        ..BASE
    },
    Workload {
        name: "get_hotspot",
        about: "Reads, 80 % of them of 20 % of the keys.",
        distribution: Distribution::Hotspot { operations_percent: 80.0, keys_percent: 20.0 },
        key_prefix: "hotspot_",
        ..BASE
    },
    Workload {
        name: "get_scan",
        about: "Reads of all keys in their order, over and over: what makes a cache forget.",
        distribution: Distribution::Scan,
        key_prefix: "scan_",
        ..BASE
    },
    Workload {
        name: "put_sequential",
        about: "PUT only; all clients walk the keys together, over and over.",
        mix: &[turn(1, PUT)],
        distribution: Distribution::Sequence,
        key_prefix: "sequential_",
        keys_default: 1000,
        ..BASE
    },
    Workload {
        name: "put_delete_67_33",
        about: "Two PUT, then a DELETE of the first of them, each client over keys of its own: half of the keys stay.",
        mix: &[turn(1, PUT_PUT_DELETE)],
        distribution: Distribution::OwnSequence,
        key_prefix: "put_delete_",
        keys_default: 100_000,
        absent_is_success: true,
        ..BASE
    },
    Workload {
        name: "put_only",
        about: "PUT only, spread evenly over ten million keys: nearly every one is new.",
        mix: &[turn(1, PUT)],
        key_prefix: "put_only_",
        keys_default: 10_000_000,
        ..BASE
    },
    Workload {
        name: "put_all_big",
        about: "PUT only, of 20,480 bytes, every one of a new key: the bytes are the work.",
        mix: &[turn(1, PUT)],
        distribution: Distribution::Sequence,
        key_prefix: "big_",
        // More than any run writes, so that no key comes twice.
        keys_default: 1_000_000_000,
        value_size_default: ValueSize::Fixed(20_480),
        ..BASE
    },
    Workload {
        name: "put_key_1",
        about: "PUT only, all clients to one key: what a row's lock makes of them.",
        mix: &[turn(1, PUT)],
        distribution: Distribution::Single,
        key_prefix: "key_",
        keys_default: 1,
        ..BASE
    },
    Workload {
        name: "delete_all",
        about: "DELETE only, spread evenly over keys that nobody writes: the price of asking.",
        mix: &[turn(1, DELETE)],
        key_prefix: "delete_",
        absent_is_success: true,
        ..BASE
    },
    Workload {
        name: "mixed_thirds",
        about: "A third each of GET, PUT and DELETE over the same keys; a read may find nothing.",
        mix: &[turn(1, GET), turn(1, PUT), turn(1, DELETE)],
        key_prefix: "mixed_thirds_",
        absent_is_success: true,
        ..BASE
    },
    Workload {
        name: "mixed_70_20_10",
        about: "70 % GET (three in ten of 20 popular keys), 20 % PUT, 10 % DELETE over a million keys; only the popular ones are preloaded, other reads mostly find nothing.",
        mix: &[popular(21, 20), turn(49, GET), turn(20, PUT), turn(10, DELETE)],
        key_prefix: "mixed_70_",
        keys_default: 1_000_000,
        preload_keys_max: Some(20),
        absent_is_success: true,
        ..BASE
    },
    Workload {
        name: "mixed_40_30_30",
        about: "40 % GET of 10 popular keys, 30 % GET and 30 % PUT over ten million; only the popular ones are preloaded, other reads mostly find nothing.",
        mix: &[popular(40, 10), turn(30, GET), turn(30, PUT)],
        key_prefix: "mixed_40_",
        keys_default: 10_000_000,
        preload_keys_max: Some(10),
        absent_is_success: true,
        ..BASE
    },
    Workload {
        name: "compute_prime",
        about: "The first 100 to 1000 primes: the server’s processor and nothing else.",
        mix: &[turn(1, COMPUTE_PRIME)],
        key_prefix: "prime_",
        ..BASE
    },
    Workload {
        name: "compute_hash",
        about: "The hash of 100 random characters: a request with hardly any work behind it.",
        mix: &[turn(1, COMPUTE_HASH)],
        key_prefix: "hash_",
        ..BASE
    },
    Workload {
        name: "compute_mixed",
        about: "60 % hashes and 40 % primes.",
        mix: &[turn(60, COMPUTE_HASH), turn(40, COMPUTE_PRIME)],
        key_prefix: "compute_",
        ..BASE
    },
    Workload {
        name: "ycsb_a",
        about: "YCSB A, update heavy: half GET, half PUT of the same keys, zipfian.",
        mix: &[turn(50, GET), turn(50, PUT)],
        key_prefix: "ycsb_a_",
        ..YCSB
    },
    Workload {
        name: "ycsb_b",
        about: "YCSB B, read mostly: 95 % GET, 5 % PUT of the same keys, zipfian.",
        mix: &[turn(95, GET), turn(5, PUT)],
        key_prefix: "ycsb_b_",
        ..YCSB
    },
    Workload { name: "ycsb_c", about: "YCSB C, read only, zipfian.", key_prefix: "ycsb_c_", ..YCSB },
    Workload {
        name: "ycsb_d",
        about: "YCSB D, read latest: 95 % GET of the newest keys, 5 % PUT of new ones.",
        mix: &[turn(95, GET), turn(5, PUT)],
        distribution: Distribution::Latest,
        key_prefix: "ycsb_d_",
        ..YCSB
    },
    Workload {
        name: "ycsb_f",
        about: "YCSB F, read-modify-write: half GET, half GET followed by PUT of the same key, zipfian.",
        mix: &[turn(50, GET), turn(50, READ_MODIFY_WRITE)],
        key_prefix: "ycsb_f_",
        ..YCSB
    },
];

/// Reads of the first `keys` keys.
const fn popular(weight: u32, keys: u64) -> MixEntry {
    MixEntry { weight, steps: GET, distribution: Some(Distribution::Popular(keys)) }
}

/// Workloads in messages between processes.
pub(super) mod as_name {
    use super::Workload;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(workload: &Workload, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(workload.name)
    }

    pub(crate) fn deserialize<'de, D>(deserializer: D) -> Result<&'static Workload, D::Error>
    where
        D: Deserializer<'de>,
    {
        let name = String::deserialize(deserializer)?;
        Workload::named(&name).ok_or_else(|| D::Error::custom(format!("unknown workload {name:?}")))
    }
}

impl Workload {
    /// The row called `name`.
    pub fn named(name: &str) -> Option<&'static Workload> {
        WORKLOADS.iter().find(|row| row.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::mix::{Operation, shares};
    use super::*;

    #[test]
    fn every_mix_is_what_its_workload_promises() {
        const GET: Operation = Operation::Get;
        const PUT: Operation = Operation::Put;
        const DELETE: Operation = Operation::Delete;
        const PRIME: Operation = Operation::ComputePrime;
        const HASH: Operation = Operation::ComputeHash;
        let third = 1.0 / 3.0;
        for (name, expected) in [
            ("get_popular", &[(GET, 1.0)][..]),
            ("get_all", &[(GET, 1.0)]),
            ("put_all", &[(PUT, 0.9), (DELETE, 0.1)]),
            ("mixed", &[(GET, 0.5), (PUT, 0.3), (DELETE, 0.2)]),
            ("get_popular_1000", &[(GET, 1.0)]),
            ("get_zipfian", &[(GET, 1.0)]),
            ("get_hotspot", &[(GET, 1.0)]),
            ("get_scan", &[(GET, 1.0)]),
            ("put_sequential", &[(PUT, 1.0)]),
            ("put_delete_67_33", &[(PUT, 2.0 * third), (DELETE, third)]),
            ("put_only", &[(PUT, 1.0)]),
            ("put_all_big", &[(PUT, 1.0)]),
            ("put_key_1", &[(PUT, 1.0)]),
            ("delete_all", &[(DELETE, 1.0)]),
            ("mixed_thirds", &[(GET, third), (PUT, third), (DELETE, third)]),
            ("mixed_70_20_10", &[(GET, 0.7), (PUT, 0.2), (DELETE, 0.1)]),
            ("mixed_40_30_30", &[(GET, 0.7), (PUT, 0.3)]),
            ("compute_prime", &[(PRIME, 1.0)]),
            ("compute_hash", &[(HASH, 1.0)]),
            ("compute_mixed", &[(HASH, 0.6), (PRIME, 0.4)]),
            ("ycsb_a", &[(GET, 0.5), (PUT, 0.5)]),
            ("ycsb_b", &[(GET, 0.95), (PUT, 0.05)]),
            ("ycsb_c", &[(GET, 1.0)]),
            ("ycsb_d", &[(GET, 0.95), (PUT, 0.05)]),
            ("ycsb_f", &[(GET, 2.0 * third), (PUT, third)]),
        ] {
            assert_eq!(shares(Workload::named(name).unwrap().mix), expected, "{name}");
        }
        assert!(WORKLOADS[..4].iter().all(|row| row.mix.iter().map(|turn| turn.weight).sum::<u32>() == 100));
    }

    #[test]
    fn names_and_key_prefixes_are_unique_and_need_no_encoding() {
        for (place, row) in WORKLOADS.iter().enumerate() {
            assert!(std::ptr::eq(Workload::named(row.name).unwrap(), row));
            assert!(WORKLOADS[..place].iter().all(|other| other.key_prefix != row.key_prefix));
            assert!(!row.key_prefix.is_empty());
            assert!(row.key_prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
            assert!(row.about.ends_with('.') && row.keys_default > 0);
            assert!(row.mix.iter().all(|turn| turn.weight > 0 && !turn.steps.is_empty()), "{}", row.name);
        }
        assert!(Workload::named("get_nothing").is_none());
    }

    #[test]
    fn reads_of_deleted_keys_are_fine() {
        for row in WORKLOADS {
            let deletes = shares(row.mix).iter().any(|(operation, _)| *operation == Operation::Delete);
            assert!(row.absent_is_success || !deletes && row.preload_keys_max.is_none(), "{}", row.name);
        }
    }
}
