//! What MariaDB and MySQL count themselves: commits, log, flushes, row locks, pages.
//!
//! `SHOW GLOBAL STATUS` is exact at the instant of the reading.

use super::database::each_database;
use super::{Context, Engine, Sampler};

/// Status variable → counter or gauge. Where PostgreSQL counts the same, it is called the same.
///
/// `Handler_commit` counts every transaction that the engine committed. A version that does not have a variable has no such counter:
/// MariaDB from 10.8 on has no `Innodb_os_log_fsyncs`, its log is among `Innodb_data_fsyncs`.
const VARIABLES: &[(&str, &str)] = &[
    ("Handler_commit", "commits"),
    ("Handler_rollback", "rollbacks"),
    ("Innodb_buffer_pool_reads", "blocks_read"),
    ("Innodb_data_fsyncs", "syncs"),
    ("Innodb_os_log_fsyncs", "wal_syncs"),
    ("Innodb_os_log_written", "wal_bytes"),
    ("Innodb_row_lock_waits", "row_lock_waits"),
    ("Threads_connected", "connections"),
];

pub(super) fn make(context: &Context) -> Option<Sampler> {
    each_database(context, Engine::MariaDb, |_, _| Ok(vec![question()]), parse)
}

fn question() -> String {
    let names: Vec<String> = VARIABLES.iter().map(|(variable, _)| format!("'{variable}'")).collect();
    format!("SHOW GLOBAL STATUS WHERE Variable_name IN ({})", names.join(", "))
}

fn parse(row: &[String]) -> Vec<(String, f64)> {
    let [variable, value] = row else { return Vec::new() };
    // Case differs between versions.
    let known = VARIABLES.iter().filter(|(known, _)| known.eq_ignore_ascii_case(variable));
    known.filter_map(|(_, name)| Some(((*name).to_owned(), value.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_become_counters_by_their_names_in_any_case() {
        for (variable, value, expected) in [
            ("Handler_commit", "7", Some(("commits", 7.0))),
            ("INNODB_ROW_LOCK_WAITS", "15", Some(("row_lock_waits", 15.0))),
            ("Threads_connected", "3", Some(("connections", 3.0))),
            ("Slave_running", "OFF", None),
            ("Innodb_os_log_fsyncs", "", None),
            ("Uptime", "9", None),
        ] {
            let found = parse(&[variable.to_owned(), value.to_owned()]);
            let expected = expected.map(|(name, value)| (name.to_owned(), value));
            assert_eq!(found, Vec::from_iter(expected), "{variable}");
        }
    }

    #[test]
    fn every_variable_is_asked_for_by_name() {
        let sql = question();
        assert!(sql.starts_with("SHOW GLOBAL STATUS WHERE Variable_name IN ('Handler_commit', "), "{sql}");
        assert!(sql.ends_with("'Threads_connected')"), "{sql}");
    }
}
