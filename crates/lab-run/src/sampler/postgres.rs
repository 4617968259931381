//! What PostgreSQL counts itself: log, commits, blocks, checkpoints.
//!
//! Bytes of the log and transactions that wrote are exact at the instant of the reading. The rest comes from
//! PostgreSQL's statistics, and these lag: a session hands in what it did when a transaction ends, at most once a
//! second, and within ten seconds of falling idle; nobody else can make it do so earlier. Each question is a transaction of
//! its own, so it sees what was handed in until then, whatever `stats_fetch_consistency` is.

use super::database::each_database;
use super::{Context, Database, Engine, Sampler};
use crate::session::Session;
use std::collections::BTreeMap;
use std::io;

const ANY: i32 = i32::MAX;

/// What to ask of which versions: `server_version_num` from which on it can be asked, and below which; and one row, in which each column
/// is named as the counter is, NULL where there is nothing to know. `{database}` is the one in use.
const QUESTIONS: &[(i32, i32, &str)] = &[
    (
        130_000,
        ANY,
        // A standby writes no log of its own.
        "SELECT CASE WHEN NOT pg_is_in_recovery()
                THEN pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') END AS wal_bytes,
            pg_snapshot_xmax(pg_current_snapshot())::text::int8 AS write_transactions",
    ),
    (
        140_000,
        180_000,
        "SELECT wal_sync AS wal_syncs,
            CASE WHEN current_setting('track_wal_io_timing')::bool THEN wal_sync_time / 1000 END AS wal_sync_secs
         FROM pg_stat_wal",
    ),
    (
        180_000,
        ANY,
        "SELECT sum(fsyncs) AS wal_syncs,
            CASE WHEN current_setting('track_wal_io_timing')::bool THEN sum(fsync_time) / 1000 END AS wal_sync_secs
         FROM pg_stat_io WHERE object = 'wal'",
    ),
    (
        0,
        ANY,
        "SELECT xact_commit AS commits, xact_rollback AS rollbacks, blks_read AS blocks_read
         FROM pg_stat_database WHERE datname = '{database}'",
    ),
    (0, 170_000, "SELECT (checkpoints_timed + checkpoints_req) AS checkpoints FROM pg_stat_bgwriter"),
    (170_000, ANY, "SELECT (num_timed + num_requested) AS checkpoints FROM pg_stat_checkpointer"),
    (
        100_000,
        ANY,
        "SELECT count(*) AS connections FROM pg_stat_activity
         WHERE backend_type = 'client backend' AND application_name <> 'weir lab'",
    ),
];

pub(super) fn make(context: &Context) -> Option<Sampler> {
    each_database(context, Engine::Postgres, prepare, parse)
}

/// What may be asked of the server. Prepared, so that asking again costs the server no planning.
fn prepare(session: &mut Session, database: &Database) -> io::Result<Vec<String>> {
    let in_use = database.url.rsplit('/').next().unwrap_or_default();
    let version = session.query("SHOW server_version_num")?.concat();
    let version: i32 = version.first().and_then(|version| version.parse().ok()).unwrap_or(0);
    let mut questions = Vec::new();
    for (.., sql) in QUESTIONS.iter().filter(|(from, below, _)| (*from..*below).contains(&version)) {
        let (name, sql) = (format!("question_{}", questions.len()), sql.replace("{database}", in_use));
        let prepare = format!("PREPARE {name} AS SELECT row_to_json(counted) FROM ({sql}) counted");
        match session.query(&prepare) {
            Ok(_) => questions.push(format!("EXECUTE {name}")),
            Err(error) => log::debug!("sampler postgres: {}: {error}", database.part),
        }
    }
    Ok(questions)
}

/// A row of one cell, which is an object of the columns.
fn parse(row: &[String]) -> Vec<(String, f64)> {
    let object = |cell: &String| serde_json::from_str::<BTreeMap<String, Option<f64>>>(cell).ok();
    let columns = row.iter().filter_map(object).flatten();
    columns.filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_asked_everything_once() {
        let names = |sql: &'static str| {
            sql.split(" AS ").skip(1).filter_map(|rest| rest.split([',', ' ', '\n']).next())
        };
        for version in [130_000, 140_005, 150_018, 160_002, 170_000, 180_001] {
            let mut asked: BTreeMap<&str, u32> = BTreeMap::new();
            for (_, _, sql) in QUESTIONS.iter().filter(|of| (of.0..of.1).contains(&version)) {
                names(sql).for_each(|name| *asked.entry(name).or_insert(0) += 1);
            }
            assert!(asked.values().all(|times| *times == 1), "{version}: {asked:?}");
            for name in ["wal_bytes", "write_transactions", "commits", "checkpoints", "connections"] {
                assert!(asked.contains_key(name), "{version} lacks {name}");
            }
            assert_eq!(asked.contains_key("wal_syncs"), version >= 140_000, "{version}");
        }
    }
}
