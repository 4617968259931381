//! What PostgreSQL counts itself: log, commits, blocks, checkpoints.
//!
//! Bytes of the log and transactions that wrote are exact at the instant of the reading. The rest comes from
//! PostgreSQL's statistics, and these lag: a session hands in what it did when a transaction ends, at most once a
//! second, and within ten seconds of falling idle; nobody else can make it do so earlier. Each question is a transaction of
//! its own, so it sees what was handed in until then, whatever `stats_fetch_consistency` is.

use super::database::each_database;
use super::{Context, Database, Engine, Reading, Sampler};
use crate::session::Session;
use std::collections::BTreeMap;
use std::io;
use tokio_postgres::Config;

/// What to ask of which versions.
struct Question {
    /// `server_version_num` from which on it can be asked, and below which.
    versions: (i32, i32),
    /// Whether the columns are gauges.
    gauges: bool,
    /// One row; each column is named as the counter is, NULL where there is nothing to know. `{database}` is the one in use.
    sql: &'static str,
}

const ANY: i32 = i32::MAX;

const QUESTIONS: &[Question] = &[
    Question {
        versions: (130_000, ANY),
        gauges: false,
        // A standby writes no log of its own.
        sql: "SELECT (CASE WHEN NOT pg_is_in_recovery()
                      THEN pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0') END)::float8 AS wal_bytes,
                     pg_snapshot_xmax(pg_current_snapshot())::text::float8 AS write_transactions",
    },
    Question {
        versions: (140_000, 180_000),
        gauges: false,
        sql: "SELECT wal_write::float8 AS wal_writes, wal_sync::float8 AS wal_syncs,
                     (CASE WHEN current_setting('track_wal_io_timing')::bool
                      THEN wal_sync_time / 1000 END)::float8 AS wal_sync_secs,
                     (CASE WHEN current_setting('track_wal_io_timing')::bool
                      THEN wal_write_time / 1000 END)::float8 AS wal_write_secs
              FROM pg_stat_wal",
    },
    Question {
        versions: (180_000, ANY),
        gauges: false,
        sql: "SELECT sum(writes)::float8 AS wal_writes, sum(fsyncs)::float8 AS wal_syncs,
                     (CASE WHEN current_setting('track_wal_io_timing')::bool
                      THEN sum(fsync_time) / 1000 END)::float8 AS wal_sync_secs,
                     (CASE WHEN current_setting('track_wal_io_timing')::bool
                      THEN sum(write_time) / 1000 END)::float8 AS wal_write_secs
              FROM pg_stat_io WHERE object = 'wal'",
    },
    Question {
        versions: (0, ANY),
        gauges: false,
        sql: "SELECT xact_commit::float8 AS commits, xact_rollback::float8 AS rollbacks,
                     blks_read::float8 AS blocks_read, blks_hit::float8 AS blocks_hit
              FROM pg_stat_database WHERE datname = {database}",
    },
    Question {
        versions: (0, 170_000),
        gauges: false,
        sql: "SELECT (checkpoints_timed + checkpoints_req)::float8 AS checkpoints FROM pg_stat_bgwriter",
    },
    Question {
        versions: (170_000, ANY),
        gauges: false,
        sql: "SELECT (num_timed + num_requested)::float8 AS checkpoints FROM pg_stat_checkpointer",
    },
    Question {
        versions: (160_000, ANY),
        gauges: false,
        sql: "SELECT sum(reads)::float8 AS io_reads, sum(writes)::float8 AS io_writes,
                     sum(extends)::float8 AS io_extends, sum(fsyncs)::float8 AS io_syncs
              FROM pg_stat_io WHERE object <> 'wal'",
    },
    Question {
        versions: (100_000, ANY),
        gauges: true,
        sql: "SELECT count(*)::float8 AS connections FROM pg_stat_activity
              WHERE backend_type = 'client backend' AND application_name <> 'weir lab'",
    },
];

pub(super) fn make(context: &Context) -> Option<Sampler> {
    each_database(context, Engine::Postgres, |database| {
        let mut session = database.open()?;
        let questions = prepare(&mut session, database)?;
        let part = database.part.clone();
        Ok(Box::new(move |into| {
            questions.iter().try_for_each(|(sql, gauges)| take(&part, *gauges, &session.query(sql)?, into))
        }))
    })
}

/// What may be asked of the server, and whether the answers are gauges. Prepared, so that asking again costs the server no planning.
fn prepare(session: &mut Session, database: &Database) -> io::Result<Vec<(String, bool)>> {
    let config: Config = database.url.parse().map_err(io::Error::other)?;
    let in_use = config.get_dbname().or(config.get_user()).unwrap_or_default().replace('\'', "''");
    let version = session.query("SHOW server_version_num")?;
    let version: i32 = version.concat().first().and_then(|version| version.parse().ok()).unwrap_or(0);
    let mut questions = Vec::new();
    for (number, question) in QUESTIONS.iter().enumerate() {
        if !(question.versions.0..question.versions.1).contains(&version) {
            continue;
        }
        let sql = question.sql.replace("{database}", &format!("'{in_use}'"));
        match session
            .query(&format!("PREPARE question_{number} AS SELECT row_to_json(counted) FROM ({sql}) counted"))
        {
            Ok(_) => questions.push((format!("EXECUTE question_{number}"), question.gauges)),
            Err(error) => log::debug!("sampler postgres: {}: {error}", database.part),
        }
    }
    Ok(questions)
}

/// Rows of one cell, which is an object of the columns.
fn take(part: &str, gauges: bool, rows: &[Vec<String>], into: &mut Reading) -> io::Result<()> {
    for cell in rows.iter().flatten() {
        let values: BTreeMap<String, Option<f64>> = serde_json::from_str(cell)?;
        for (name, value) in values.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            let name = format!("{part}.{name}");
            if gauges { into.gauge(name, value) } else { into.count(name, value) }
        }
    }
    Ok(())
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
            for question in QUESTIONS.iter().filter(|of| (of.versions.0..of.versions.1).contains(&version)) {
                names(question.sql).for_each(|name| *asked.entry(name).or_insert(0) += 1);
            }
            assert!(asked.values().all(|times| *times == 1), "{version}: {asked:?}");
            for name in ["wal_bytes", "write_transactions", "commits", "checkpoints", "connections"] {
                assert!(asked.contains_key(name), "{version} lacks {name}");
            }
            assert_eq!(asked.contains_key("wal_syncs"), version >= 140_000, "{version}");
            assert_eq!(asked.contains_key("io_syncs"), version >= 160_000, "{version}");
        }
    }
}
