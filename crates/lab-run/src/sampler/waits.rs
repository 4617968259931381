//! Where a database's sessions are: what each waits for, asked again and again while a trial runs.
//!
//! A thread for each database asks until the sampler is dropped. Each answer stands for the
//! time since the one before, so the counters are session-seconds by state, and over `waits.observed_secs` they are the
//! mean number of sessions in that state. What the asking costs is counted too: it is in the database's own processor
//! time. States that were not seen have no counter; where there are `waits.samples`, that means zero.

use super::background::{Background, Foreground};
use super::database::{SCHEMA, all, cpu_secs_of};
use super::{Context, Database, Engine, Reading, Sampler};
use crate::session::APPLICATION;
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// 25 times a second: cheap enough (records/2026-11-21-method-studies.md, Database waits).
const PERIOD: Duration = Duration::from_millis(40);
/// After a session that failed.
const RETRY: Duration = Duration::from_millis(500);

/// A session that sends nothing waits for its client; in a transaction that is another matter. `{ours}` is how ours call themselves.
const POSTGRES: &str = "SELECT CASE
        WHEN state IN ('active', 'fastpath function call') AND wait_event IS NULL THEN 'CPU'
        WHEN state IN ('active', 'fastpath function call') THEN wait_event_type || ':' || wait_event
        WHEN state LIKE 'idle in transaction%' THEN 'idle_in_transaction'
        WHEN state = 'idle' THEN 'idle'
        ELSE 'unknown' END, count(*)
    FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name <> '{ours}'
    GROUP BY 1";

/// MariaDB and MySQL name what a statement is doing, not what it waits for. `{ours}` is where our sessions are.
const MYSQL: &str = "SELECT CASE
        WHEN command = 'Sleep' THEN 'idle'
        WHEN COALESCE(state, '') = '' THEN 'State:unnamed'
        ELSE CONCAT('State:', state) END AS class, COUNT(*)
    FROM information_schema.processlist
    WHERE command NOT IN ('Daemon', 'Binlog Dump', 'Connect') AND command NOT LIKE 'Slave%'
        AND COALESCE(db, '') <> '{ours}'
    GROUP BY class";

/// Which thread of the machine serves the session.
const MYSQL_THREAD: &str = "SELECT tid FROM information_schema.processlist WHERE id = CONNECTION_ID()";

/// How many sessions wait for a row's lock, not which. `information_schema.innodb_trx` would say which, but InnoDB makes
/// its contents anew only if nobody has read them for 100 ms: asked as often as here, it never changes.
const MYSQL_ROW_LOCKS: &str = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'";

/// What MariaDB and MySQL call statements that lock rows, in one case or the other.
const MYSQL_LOCKING: &[&str] = &[
    "State:Updating",
    "State:Update",
    "State:Deleting from main table",
    "State:Sending data",
    "State:Statistics",
    "State:Executing",
];

/// Takes as many sessions as wait for row locks out of the states in which statements do that, from the fullest first.
fn with_row_locks(mut states: Vec<(String, f64)>, waiting: f64) -> Vec<(String, f64)> {
    states.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut left = waiting;
    let locks = |state: &str| MYSQL_LOCKING.iter().any(|name| name.eq_ignore_ascii_case(state));
    for (_, count) in states.iter_mut().filter(|(state, _)| locks(state)) {
        let taken = left.min(*count);
        *count -= taken;
        left -= taken;
    }
    // The two questions are asked one after the other: more may wait than were in such a state a moment before.
    states.push(("Lock:row".to_owned(), waiting - left));
    states.retain(|(_, count)| *count > 0.0);
    states
}

pub(super) fn make(context: &Context) -> Option<Sampler> {
    all(context.databases.iter().cloned().map(|database| -> Sampler {
        let root = context.parts.iter().find(|(name, _)| *name == database.part).map(|(_, root)| *root);
        let part = database.part.clone();
        let watch = Background::start(Observed::default(), move |seen| watch(&database, root, seen));
        Box::new(move |into| {
            let seen = watch.seen.lock();
            if !seen.live {
                return Err(io::Error::other(format!("{part}: its sessions cannot be asked")));
            }
            seen.show(&part, into);
            Ok(())
        })
    }))
}

/// What was seen so far.
#[derive(Debug, Default)]
struct Observed {
    /// Whether the database can be asked.
    live: bool,
    /// Samples, the time they stand for, session-seconds by state, and processor time of our own session, where that can be read.
    counters: BTreeMap<String, f64>,
}

impl Observed {
    fn count(&mut self, name: &str, more: f64) {
        *self.counters.entry(name.to_owned()).or_default() += more;
    }

    /// Takes in who was where at the end of `gap_secs`.
    fn add(&mut self, gap_secs: f64, sessions: Vec<(String, f64)>) {
        self.count("samples", 1.0);
        self.count("observed_secs", gap_secs);
        sessions.iter().for_each(|(state, count)| self.count(&format!("{state}_secs"), count * gap_secs));
    }

    fn show(&self, part: &str, into: &mut Reading) {
        self.counters.iter().for_each(|(name, value)| into.count(format!("{part}.waits.{name}"), *value));
    }
}

/// Asks until nobody wants to know. A session that fails is replaced; the time without one is not observed.
fn watch(database: &Database, root: Option<u32>, watch: &Foreground<Observed>) {
    while let Err(error) = ask(database, root, watch) {
        log::debug!("sampler waits: {}: {error}", database.part);
        watch.seen.lock().live = false;
        if !watch.goes_on_after(RETRY) {
            return;
        }
    }
}

/// The same with one session.
fn ask(database: &Database, root: Option<u32>, watch: &Foreground<Observed>) -> io::Result<()> {
    let mut session = database.open()?;
    let (worker, sql) = match database.engine {
        Engine::Postgres => {
            // Prepared, so that asking again costs the server no planning.
            session.query(&format!("PREPARE sessions AS {}", POSTGRES.replace("{ours}", APPLICATION)))?;
            (session.query("SELECT pg_backend_pid()")?, "EXECUTE sessions".to_owned())
        }
        // MariaDB says which thread of the machine it is; MySQL does not.
        Engine::MariaDb => (session.query(MYSQL_THREAD).unwrap_or_default(), MYSQL.replace("{ours}", SCHEMA)),
    };
    let worker = worker.concat().first().and_then(|worker| worker.parse().ok());
    let cost_secs = || cpu_secs_of(worker?, root?);
    // The first question fills the server's caches, and shows whether it is answered at all.
    session.query(&sql)?;
    let mut paid_secs = cost_secs();
    {
        let mut seen = watch.seen.lock();
        // What is zero is counted, too: a window may begin before the first sample.
        let known = ["samples", "observed_secs"].into_iter().chain(paid_secs.map(|_| "cost_secs"));
        known.for_each(|name| seen.count(name, 0.0));
        seen.live = true;
    }
    let mut last = Instant::now();
    while watch.goes_on_after(PERIOD.saturating_sub(last.elapsed())) {
        let mut sessions = counts(session.query(&sql)?);
        if database.engine == Engine::MariaDb {
            let waiting = counts(session.query(MYSQL_ROW_LOCKS)?);
            sessions = with_row_locks(sessions, waiting.first().map_or(0.0, |(_, count)| *count));
        }
        let now = Instant::now();
        let cost_now = cost_secs();
        let mut seen = watch.seen.lock();
        seen.add((now - last).as_secs_f64(), sessions);
        if let (Some(before), Some(after)) = (paid_secs, cost_now) {
            seen.count("cost_secs", after - before);
        }
        (last, paid_secs) = (now, cost_now);
    }
    Ok(())
}

/// Rows of a name and a number.
fn counts(rows: Vec<Vec<String>>) -> Vec<(String, f64)> {
    let count = |row: Vec<String>| match <[String; 2]>::try_from(row) {
        Ok([name, count]) => Some((name, count.parse().ok()?)),
        Err(_) => None,
    };
    rows.into_iter().filter_map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_stands_for_the_time_since_the_one_before() {
        let at = |state: &str, count| (state.to_owned(), count);
        let mut seen = Observed::default();
        seen.add(0.5, vec![at("Lock:tuple", 3.0), at("idle", 1.0)]);
        seen.add(0.25, vec![at("Lock:tuple", 1.0), at("CPU", 2.0)]);
        let mut reading = Reading::default();
        seen.show("database", &mut reading);
        let read: Vec<_> = reading.counters.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(
            read,
            [
                ("database.waits.CPU_secs", 0.5),
                ("database.waits.Lock:tuple_secs", 1.75),
                ("database.waits.idle_secs", 0.5),
                ("database.waits.observed_secs", 0.75),
                ("database.waits.samples", 2.0),
            ]
        );
    }

    #[test]
    fn sessions_that_wait_for_a_row_are_taken_from_those_that_lock_rows() {
        let check = |states: &[(&str, f64)], waiting, expected: &[(&str, f64)]| {
            let states = states.iter().map(|(state, count)| ((*state).to_owned(), *count)).collect();
            let found = with_row_locks(states, waiting);
            let found: Vec<(&str, f64)> =
                found.iter().map(|(state, count)| (state.as_str(), *count)).collect();
            assert_eq!(found, expected);
        };
        let states = [("State:Commit", 9.0), ("State:Update", 2.0), ("State:Updating", 5.0), ("idle", 1.0)];
        check(
            &states,
            6.0,
            &[("State:Commit", 9.0), ("State:Update", 1.0), ("idle", 1.0), ("Lock:row", 6.0)],
        );
        check(&states, 0.0, &[states[0], states[2], states[1], states[3]]);
        check(&[("State:Commit", 3.0)], 2.0, &[("State:Commit", 3.0)]);
    }

    #[test]
    fn a_database_that_is_not_there_has_no_counters() {
        for engine in [Engine::Postgres, Engine::MariaDb] {
            let scheme = if engine == Engine::Postgres { "postgres" } else { "mysql" };
            let url = format!("{scheme}://nobody@127.0.0.1:1/none");
            let databases = vec![Database { part: "database".into(), engine, url }];
            let mut sampler = make(&Context { databases, ..Context::default() }).unwrap();
            let mut reading = Reading::default();
            assert!(sampler(&mut reading).is_err());
            assert_eq!(reading, Reading::default());
        }
    }
}
