//! What MariaDB and MySQL count themselves: commits, log, flushes, row locks, pages.
//!
//! `SHOW GLOBAL STATUS` is exact at the instant of the reading, and the lab's own questions are among the `questions`.

use super::database::each_database;
use super::{Context, Engine, Reading, Sampler};

/// Status variable → counter, and its unit. Where PostgreSQL counts the same, the counter is called the same.
///
/// `Handler_commit` counts every transaction that the engine committed; `Com_commit` only the statements COMMIT, of which
/// a session in autocommit has none. A version that does not have a variable has no such counter: MariaDB
/// from 10.8 on has no `Innodb_os_log_fsyncs`, its log is among `Innodb_data_fsyncs`.
const COUNTERS: &[(&str, &str, f64)] = &[
    ("Com_commit", "commit_statements", 1.0),
    ("Handler_commit", "commits", 1.0),
    ("Handler_rollback", "rollbacks", 1.0),
    ("Innodb_buffer_pool_read_requests", "blocks_requested", 1.0),
    ("Innodb_buffer_pool_reads", "blocks_read", 1.0),
    ("Innodb_data_fsyncs", "syncs", 1.0),
    ("Innodb_log_writes", "wal_writes", 1.0),
    ("Innodb_os_log_fsyncs", "wal_syncs", 1.0),
    ("Innodb_os_log_written", "wal_bytes", 1.0),
    ("Innodb_row_lock_time", "row_lock_secs", 1e-3),
    ("Innodb_row_lock_waits", "row_lock_waits", 1.0),
    ("Questions", "questions", 1.0),
];

/// Status variable → gauge.
const GAUGES: &[(&str, &str)] = &[
    ("Innodb_row_lock_current_waits", "row_lock_waiting"),
    ("Threads_connected", "connections"),
    ("Threads_running", "running"),
];

pub(super) fn make(context: &Context) -> Option<Sampler> {
    each_database(context, Engine::MariaDb, |database| {
        let (part, mut session, sql) = (database.part.clone(), database.open()?, question());
        Ok(Box::new(move |into| {
            take(&part, &session.query(&sql)?, into);
            Ok(())
        }))
    })
}

fn question() -> String {
    let names = COUNTERS.iter().map(|row| row.0).chain(GAUGES.iter().map(|row| row.0));
    let names: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    format!("SHOW GLOBAL STATUS WHERE Variable_name IN ({})", names.join(", "))
}

fn take(part: &str, rows: &[Vec<String>], into: &mut Reading) {
    for row in rows {
        let [variable, value] = &row[..] else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        // Case differs between versions.
        let called = |name: &str| name.eq_ignore_ascii_case(variable);
        if let Some((_, name, unit)) = COUNTERS.iter().find(|row| called(row.0)) {
            into.count(format!("{part}.{name}"), value * unit);
        }
        if let Some((_, name)) = GAUGES.iter().find(|row| called(row.0)) {
            into.gauge(format!("{part}.{name}"), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_become_counters_and_gauges_of_their_part() {
        let row = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
        let rows = [
            row("Handler_commit", "7"),
            row("INNODB_ROW_LOCK_TIME", "1500"),
            row("Threads_running", "3"),
            row("Slave_running", "OFF"),
            row("Innodb_os_log_fsyncs", ""),
            row("Uptime", "9"),
        ];
        let mut reading = Reading::default();
        take("database-2", &rows, &mut reading);
        let counters: Vec<_> = reading.counters.into_iter().collect();
        assert_eq!(counters, [("database-2.commits".into(), 7.0), ("database-2.row_lock_secs".into(), 1.5)]);
        assert_eq!(reading.gauges.into_iter().collect::<Vec<_>>(), [("database-2.running".into(), 3.0)]);
    }

    #[test]
    fn every_variable_is_asked_for_by_name() {
        let sql = question();
        assert!(sql.starts_with("SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_commit', "), "{sql}");
        assert!(sql.ends_with("'Threads_running')"), "{sql}");
    }
}
