//! Where a database's sessions are: what each waits for, asked again and again while a trial runs.
//!
//! A thread for each database asks from the first reading on until the sampler is dropped. Each answer stands for the
//! time since the one before, so the counters are session-seconds by state, and over `waits.observed_secs` they are the
//! mean number of sessions in that state. What the asking costs is counted too: it is in the database's own processor
//! time. States not seen since the first reading have no counter; where there are `waits.samples`, that means zero.

use super::database::{APPLICATION, MysqlSession, PostgresSession, SCHEMA, cpu_secs_of, of_part};
use super::{Context, Database, Engine, Reading, Sampler};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use tokio_postgres::Statement;

/// 25 times a second: cheap enough (records/2026-11-21-method-studies.md, Database waits).
const PERIOD: Duration = Duration::from_millis(40);
/// After a session that failed.
const RETRY: Duration = Duration::from_millis(500);

/// A session that sends nothing waits for its client; in a transaction that is another matter.
const POSTGRES: &str = "
    SELECT CASE
        WHEN state IN ('active', 'fastpath function call') AND wait_event IS NULL THEN 'CPU'
        WHEN state IN ('active', 'fastpath function call') THEN wait_event_type || ':' || wait_event
        WHEN state LIKE 'idle in transaction%' THEN 'idle_in_transaction'
        WHEN state = 'idle' THEN 'idle'
        ELSE 'unknown' END, count(*)
    FROM pg_stat_activity
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name <> $1
    GROUP BY 1";

/// MariaDB and MySQL name what a statement is doing, not what it waits for.
fn mysql() -> String {
    format!(
        "SELECT CASE
            WHEN command = 'Sleep' THEN 'idle'
            WHEN COALESCE(state, '') = '' THEN 'State:unnamed'
            ELSE CONCAT('State:', state) END AS class, COUNT(*)
        FROM information_schema.processlist
        WHERE command NOT IN ('Daemon', 'Binlog Dump', 'Connect') AND command NOT LIKE 'Slave%'
            AND COALESCE(db, '') <> '{SCHEMA}'
        GROUP BY class"
    )
}

/// How many sessions wait for a row's lock, not which. `information_schema.innodb_trx` would say which, but InnoDB makes
/// its contents anew only if nobody has read them for 100 ms: asked as often as here, it never changes.
const MYSQL_ROW_LOCKS: &str = "SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'";

/// What MariaDB and MySQL call statements that lock rows.
const MYSQL_LOCKING: &[&str] = &[
    "State:Updating",
    "State:updating",
    "State:Update",
    "State:update",
    "State:Deleting from main table",
    "State:deleting from main table",
    "State:Sending data",
    "State:Statistics",
    "State:statistics",
    "State:executing",
    "State:Executing",
];

/// Takes as many sessions as wait for row locks out of the states in which statements do that, from the fullest first.
fn with_row_locks(mut states: Vec<(String, f64)>, waiting: f64) -> Vec<(String, f64)> {
    states.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut left = waiting;
    for (_, count) in states.iter_mut().filter(|(state, _)| MYSQL_LOCKING.contains(&state.as_str())) {
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
    let root = |part: &str| context.parts.iter().find(|(name, _)| name == part).map(|(_, root)| *root);
    let watches: Vec<Watch> =
        context.databases.iter().map(|database| Watch::start(database, root(&database.part))).collect();
    let mut watches = Some(watches).filter(|watches| !watches.is_empty())?;
    Some(Box::new(move |into| {
        // One that is gone does not hide the others.
        let read = watches.iter_mut().map(|watch| watch.read(into));
        read.collect::<Vec<_>>().into_iter().collect()
    }))
}

/// The thread that asks one database.
struct Watch {
    part: String,
    /// Says that the first reading is being taken; dropped, it ends the thread.
    begin: Option<Sender<()>>,
    begun: bool,
    /// Written by the thread, read here.
    seen: Arc<Mutex<Observed>>,
    thread: Option<JoinHandle<()>>,
}

/// What was seen since the first reading.
#[derive(Clone, Debug, Default, PartialEq)]
struct Observed {
    /// Whether the database can be asked.
    live: bool,
    samples: f64,
    observed_secs: f64,
    /// Session-seconds by state.
    sessions_secs: BTreeMap<String, f64>,
    /// Processor time of our own session, where it can be read.
    cost_secs: Option<f64>,
}

impl Observed {
    /// Takes in who was where at the end of `gap_secs`.
    fn add(&mut self, gap_secs: f64, sessions: Vec<(String, f64)>) {
        self.samples += 1.0;
        self.observed_secs += gap_secs;
        for (state, count) in sessions {
            *self.sessions_secs.entry(state).or_insert(0.0) += count * gap_secs;
        }
    }

    fn show(&self, part: &str, into: &mut Reading) {
        into.count(format!("{part}.waits.samples"), self.samples);
        into.count(format!("{part}.waits.observed_secs"), self.observed_secs);
        if let Some(secs) = self.cost_secs {
            into.count(format!("{part}.waits.cost_secs"), secs);
        }
        for (state, secs) in &self.sessions_secs {
            into.count(format!("{part}.waits.{state}_secs"), *secs);
        }
    }
}

impl Watch {
    /// Connects at once, but does not ask before the first reading: a preload may be long.
    fn start(database: &Database, root: Option<u32>) -> Watch {
        let seen = Arc::new(Mutex::new(Observed::default()));
        let (begin, begins) = mpsc::channel();
        let (shared, database_of_thread) = (Arc::clone(&seen), database.clone());
        let thread = thread::spawn(move || watch(&database_of_thread, root, &begins, &shared));
        Watch { part: database.part.clone(), begin: Some(begin), begun: false, seen, thread: Some(thread) }
    }

    fn read(&mut self, into: &mut Reading) -> io::Result<()> {
        if let Some(begin) = self.begin.as_ref().filter(|_| !self.begun) {
            self.begun = true;
            // A thread that ended has said why.
            let _ = begin.send(());
        }
        let seen = self.seen.lock().clone();
        if !seen.live {
            return Err(of_part(&self.part, "its sessions cannot be asked"));
        }
        seen.show(&self.part, into);
        Ok(())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.begin = None;
        if let Some(thread) = self.thread.take() {
            // It waits for nothing longer than the timeout of a session.
            let _ = thread.join();
        }
    }
}

/// Asks until the other end of `begins` is dropped. A session that fails is replaced; the time without one is not
/// observed.
fn watch(database: &Database, root: Option<u32>, begins: &Receiver<()>, seen: &Mutex<Observed>) {
    let mut begun = false;
    loop {
        let Err(error) = ask(database, root, begins, &mut begun, seen) else { return };
        log::debug!("sampler waits: {}: {error}", database.part);
        seen.lock().live = false;
        match begins.recv_timeout(RETRY) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) => begun = true,
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// The same with one session.
fn ask(
    database: &Database,
    root: Option<u32>,
    begins: &Receiver<()>,
    begun: &mut bool,
    seen: &Mutex<Observed>,
) -> io::Result<()> {
    let mut asked = Asked::open(database)?;
    // The first question fills the server's caches, and shows whether it is answered at all.
    asked.sessions()?;
    let cost_secs = |asked: &Asked| cpu_secs_of(asked.worker?, root?);
    let mut paid_secs = cost_secs(&asked);
    {
        let mut seen = seen.lock();
        seen.cost_secs = seen.cost_secs.or(paid_secs.map(|_| 0.0));
        seen.live = true;
    }
    if !*begun && begins.recv().is_err() {
        return Ok(());
    }
    *begun = true;
    let mut last = Instant::now();
    loop {
        match begins.recv_timeout(PERIOD.saturating_sub(last.elapsed())) {
            Err(RecvTimeoutError::Timeout) | Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        let sessions = asked.sessions()?;
        let now = Instant::now();
        let cost_now = cost_secs(&asked);
        let mut seen = seen.lock();
        seen.add((now - last).as_secs_f64(), sessions);
        if let (Some(sum), Some(before), Some(after)) = (&mut seen.cost_secs, paid_secs, cost_now) {
            *sum += after - before;
        }
        (last, paid_secs) = (now, cost_now);
    }
}

/// A session that asks where the others are.
struct Asked {
    session: Session,
    /// The process or thread that serves it.
    worker: Option<u32>,
}

enum Session {
    Postgres(PostgresSession, Statement),
    Mysql(MysqlSession, String),
}

impl Asked {
    fn open(database: &Database) -> io::Result<Asked> {
        match database.engine {
            Engine::Postgres => {
                let session = PostgresSession::open(&database.url)?;
                let worker = session.query(&session.prepare("SELECT pg_backend_pid()")?, &[])?;
                let worker = worker.first().and_then(|row| row.try_get::<_, i32>(0).ok());
                let statement = session.prepare(POSTGRES)?;
                let worker = worker.map(i32::cast_unsigned);
                Ok(Asked { session: Session::Postgres(session, statement), worker })
            }
            Engine::MariaDb => {
                let mut session = MysqlSession::open(&database.url)?;
                // MariaDB says which thread of the machine it is; MySQL does not.
                let sql = "SELECT tid FROM information_schema.processlist WHERE id = CONNECTION_ID()";
                let worker = session.query::<u32>(sql).unwrap_or_default();
                Ok(Asked { session: Session::Mysql(session, mysql()), worker: worker.first().copied() })
            }
        }
    }

    /// The states of all other sessions, each with the number in it.
    fn sessions(&mut self) -> io::Result<Vec<(String, f64)>> {
        match &mut self.session {
            Session::Postgres(session, statement) => {
                let rows = session.query(statement, &[&APPLICATION])?;
                let state = |row: tokio_postgres::Row| {
                    Some((row.try_get(0).ok()?, row.try_get::<_, i64>(1).ok()? as f64))
                };
                Ok(rows.into_iter().filter_map(state).collect())
            }
            Session::Mysql(session, sql) => {
                let rows: Vec<(String, u64)> = session.query(sql.as_str())?;
                let waiting: Vec<(String, f64)> = session.query(MYSQL_ROW_LOCKS)?;
                let states = rows.into_iter().map(|(state, count)| (state, count as f64)).collect();
                Ok(with_row_locks(states, waiting.first().map_or(0.0, |(_, count)| *count)))
            }
        }
    }
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
