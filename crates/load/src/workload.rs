//! What the clients ask for: operation mix × key distribution × value size, as the table in `workloads.toml`.
//!
//! A new workload is a section of that file. Knows neither sockets nor bytes on the wire.

use super::distribution::Distribution;
use super::mix::Mix;
use super::value_size::ValueSize;
use kv::named;
use serde::Deserialize;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

/// A row of [`WORKLOADS`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// What `--workload` calls it.
    pub name: String,
    /// What it does, in one sentence.
    pub about: String,
    /// Which operations, in which shares.
    pub mix: Mix,
    /// Which keys are named, where an entry of the mix does not say.
    #[serde(default)]
    pub distribution: Distribution,
    /// What the keys' names begin with; the key's number follows.
    pub key_prefix: String,
    /// How many keys, unless --keys says it.
    pub keys: u64,
    /// How long the values are, unless --value-size says it.
    #[serde(default)]
    pub value_size: ValueSize,
    /// How many keys, from the first on, are written before a run that reads; `None` for all.
    pub preload_keys_max: Option<u64>,
    /// Whether a read that finds nothing is a good answer.
    #[serde(default)]
    pub absent_is_success: bool,
}

#[derive(Deserialize)]
struct File {
    workload: Vec<Workload>,
}

/// Every workload, in the order people should meet them.
pub static WORKLOADS: LazyLock<Vec<Workload>> = LazyLock::new(|| {
    let file: File = toml::from_str(include_str!("workloads.toml")).expect("the tests have parsed it");
    file.workload
});

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for &'static Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<&'static Workload, String> {
        let found = named(&WORKLOADS, |row| &row.name, name);
        found.map_err(|known| format!("expected one of: {known}"))
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
            let workload: &Workload = name.parse().unwrap();
            assert_eq!(shares(&workload.mix.entries), expected, "{name}");
        }
        assert!(
            WORKLOADS[..4]
                .iter()
                .all(|row| row.mix.entries.iter().map(|entry| entry.weight).sum::<u32>() == 100)
        );
    }

    #[test]
    fn names_and_key_prefixes_are_unique_and_need_no_encoding() {
        for (place, row) in WORKLOADS.iter().enumerate() {
            assert!(std::ptr::eq(row.name.parse::<&Workload>().unwrap(), row));
            assert!(WORKLOADS[..place].iter().all(|other| other.key_prefix != row.key_prefix));
            assert!(!row.key_prefix.is_empty());
            assert!(row.key_prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
            assert!(row.about.ends_with('.') && row.keys > 0);
        }
        assert!("get_nothing".parse::<&Workload>().is_err());
    }

    #[test]
    fn reads_of_deleted_keys_are_fine() {
        for row in WORKLOADS.iter() {
            let deletes =
                shares(&row.mix.entries).iter().any(|(operation, _)| *operation == Operation::Delete);
            assert!(row.absent_is_success || !deletes && row.preload_keys_max.is_none(), "{}", row.name);
        }
    }
}
