//! What Cassandra's nodes count, from their virtual tables.
//!
//! How much Paxos contends for rows no virtual table of version 5 says, but what it writes does: a write that nobody disturbs is a
//! promise, a proposal and a commit on each node, and one that is disturbed begins again with another promise.

use super::database::all;
use super::{Context, Node, Reading, Sampler};
use crate::cql::CqlSession;
use std::io;
use std::time::Duration;

/// Longer than any healthy answer; a node that takes longer has no counters in this reading.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What is asked, each for one row of one number, or several to be added: the counter.
const COUNTERS: [(&str, &str); 4] = [
    (
        "paxos_writes",
        "SELECT count FROM system_views.local_write_latency WHERE keyspace_name = 'system' AND table_name = 'paxos'",
    ),
    (
        "row_writes",
        "SELECT count FROM system_views.local_write_latency WHERE table_name = 'weir_rows' ALLOW FILTERING",
    ),
    (
        "compactions",
        "SELECT completed_tasks FROM system_views.thread_pools WHERE name = 'CompactionExecutor'",
    ),
    ("dropped_messages", "SELECT expired_count FROM system_views.internode_inbound"),
];

pub(super) fn make(context: &Context) -> Option<Sampler> {
    all(context.cassandra.iter().cloned().map(|node| -> Sampler {
        let mut session = None;
        Box::new(move |into| {
            let read = read(&node, &mut session, into);
            if read.is_err() {
                // It may be another one by now.
                session = None;
            }
            read.map_err(|error| io::Error::other(format!("{}: {error}", node.part)))
        })
    }))
}

fn read(node: &Node, session: &mut Option<CqlSession>, into: &mut Reading) -> io::Result<()> {
    let session = match session {
        Some(session) => session,
        none => none.insert(CqlSession::open(node.address, TIMEOUT)?),
    };
    for (name, cql) in COUNTERS {
        let rows = session.query(cql)?;
        let sum = rows.iter().flatten().filter_map(|number| number.parse::<f64>().ok()).sum();
        into.count(format!("{}.{name}", node.part), sum);
    }
    Ok(())
}
