//! What the samplers of databases share.
//!
//! Their sessions stand apart from what they look at: in PostgreSQL under a name of their own and in the database that every
//! server has, in MariaDB and MySQL in `information_schema`. So neither the counts nor the sessions of the database
//! in use contain them.

use super::{Context, Database, Engine, Sampler, value_of};
use crate::session::{Patience, Session};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

/// Where the lab's sessions stand in MariaDB and MySQL.
pub(super) const SCHEMA: &str = "information_schema";

/// What is counted of a database and does not only grow.
const GAUGE: &str = "connections";

/// Longer than any healthy answer; a database that takes longer has no counters in this reading.
const TIMEOUT: Duration = Duration::from_secs(2);

impl Database {
    pub(super) fn open(&self) -> io::Result<Session> {
        let apart = match self.engine {
            Engine::Postgres => "postgres",
            Engine::MariaDb => SCHEMA,
        };
        Session::open(self.engine, &self.url, apart, Patience { timeout: TIMEOUT, stop: Arc::default() })
    }
}

/// A sampler that asks every database of `engine` what `prepare` says, and takes from each row of an answer what `parse` finds there:
/// names without the part, and values. `None` where no database can be asked.
pub(super) fn each_database(
    context: &Context,
    engine: Engine,
    prepare: fn(&mut Session, &Database) -> io::Result<Vec<String>>,
    parse: fn(&[String]) -> Vec<(String, f64)>,
) -> Option<Sampler> {
    all(context.databases.iter().filter(|database| database.engine == engine).filter_map(|database| {
        let opened = database.open().and_then(|mut session| Ok((prepare(&mut session, database)?, session)));
        let opened = opened.inspect_err(|error| log::debug!("{}: {error}", database.part));
        let ((questions, mut session), part) = (opened.ok()?, database.part.clone());
        let sampler: Sampler = Box::new(move |into| {
            for sql in &questions {
                let answer = session.query(sql);
                let rows = answer.map_err(|error| io::Error::other(format!("{part}: {error}")))?;
                for (name, value) in rows.iter().flat_map(|row| parse(row)) {
                    let values = if name == GAUGE { &mut into.gauges } else { &mut into.counters };
                    values.insert(format!("{part}.{name}"), value);
                }
            }
            Ok(())
        });
        Some(sampler)
    }))
}

/// One sampler of all; one that fails does not hide the others. `None` where there are none.
pub(super) fn all(samplers: impl Iterator<Item = Sampler>) -> Option<Sampler> {
    let samplers: Vec<Sampler> = samplers.collect();
    let mut samplers = Some(samplers).filter(|samplers| !samplers.is_empty())?;
    Some(Box::new(move |into| {
        let read: Vec<_> = samplers.iter_mut().map(|read| read(into)).collect();
        read.into_iter().collect()
    }))
}

/// Processor time of the process or thread of `root`'s that serves a session. `None` where it is not one of them: the
/// server may run on another machine, and this one's process of that number be somebody else's.
pub(super) fn cpu_secs_of(worker: u32, root: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{worker}/status")).ok()?;
    let is_root = |key: &str| value_of(&status, key) == Some(f64::from(root));
    let schedstat = fs::read_to_string(format!("/proc/{worker}/schedstat")).ok()?;
    let nanos: f64 = schedstat.split(' ').next()?.parse().ok()?;
    (is_root("PPid") || is_root("Tgid")).then_some(nanos / 1e9)
}
