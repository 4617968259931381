//! Cassandra as a store: any number of servers share a keyspace, and none of them owns it.
//!
//! **Writes.** Each is one conditional statement, which Paxos puts into an order with all others of its key. The condition is the
//! version: a write replaces a row with a lower one, or exactly the row by which it was decided. So versions of a key only grow,
//! whatever the clocks of the servers say.
//!
//! **Rows that are gone.** A row that was removed leaves its version for a day, and so does one that has expired: a clock that is
//! less than a day late gives no version twice. The engine removes value and version by their TTL.
//!
//! **Reads** are SERIAL unless the URL says otherwise; those that decide a write always are.

mod config;
mod failure;
mod session;

use async_trait::async_trait;
use config::Config;
use failure::Failed;
use kv::{Clock, Timestamp};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session as Driver;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{
    BrokenConnectionErrorKind, ConnectionError, ConnectionPoolError, ConnectionSetupRequestError,
    ConnectionSetupRequestErrorKind, FrameHeaderParseError, MetadataError, NewSessionError,
};
use scylla::policies::load_balancing::{DefaultPolicy, NodeIdentifier, SingleTargetLoadBalancingPolicy};
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use session::{CassandraSession, Connected, Statements};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use store::{
    Answer, Capabilities, Conflicts, Error, Kind, Lease, Part, Scheme, Session, Store, Workers, Writers,
    cluster_tls_failure, in_setup_time,
};

/// The kind of store in this crate.
pub const SCHEME: Scheme = Scheme {
    prefix: "cassandra://",
    example: "cassandra://host1,host2:9042/keyspace?dc=dc1",
    open: |url| Ok(Box::new(Cassandra::open(url)?)),
};

/// How often it is looked whether there is a node that answers.
const LOOK: Duration = Duration::from_millis(250);
/// After so many looks, a minute, the clock is read: on a machine that its host stopped for a while it is late.
const CLOCK_LOOKS: u32 = 240;
/// A connection is given up if its node has not answered for so long: it was stopped, or cannot be reached.
const KEEPALIVE: Duration = Duration::from_secs(1);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Every key is on its own way to the cluster, and a worker waits for the slowest of its batch. Under many clients one worker writes all
/// keys, as where flushes are slow: two servers that write a hot key wait less for each other. See docs/decisions/0032-cassandra.md.
const WORKERS: Workers = Workers { read: 16, write: 32 };

/// Names and columns.
const TABLES: [(&str, &str); 2] = [
    (
        "weir_rows",
        "key blob PRIMARY KEY, version bigint, expires bigint, content_type text, content_encoding text, value blob",
    ),
    ("weir_map", "one boolean PRIMARY KEY, map text"),
];

struct Cassandra {
    config: Config,
    /// From the first lease on.
    connected: OnceLock<Arc<Connected>>,
    leases: AtomicU64,
    clock: Arc<Clock>,
    conflicts: Arc<Conflicts>,
}

impl Cassandra {
    fn open(url: &str) -> Result<Cassandra, Error> {
        let config = Config::of(url)?;
        Ok(Cassandra {
            config,
            connected: OnceLock::new(),
            leases: AtomicU64::new(0),
            clock: Arc::default(),
            conflicts: Arc::default(),
        })
    }

    /// Connects, once; later a driver finds nodes that come back by itself.
    async fn connected(&self, part: Part) -> Result<&Arc<Connected>, Error> {
        if let Some(connected) = self.connected.get() {
            return Ok(connected);
        }
        let driver = self.dial().await?;
        let is_there = driver.get_cluster_state().get_keyspace(&self.config.keyspace).is_some();
        if !is_there {
            let Config { shown, keyspace, .. } = &self.config;
            let make = format!(
                "CREATE KEYSPACE \"{keyspace}\" WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': 3}}"
            );
            let what = format!("the store {shown} has no keyspace {keyspace}; make it, with: {make}");
            return Err(Error::new(Kind::Config, what));
        }
        let used = driver.use_keyspace(&self.config.keyspace, true).await;
        used.map_err(|error| self.failed("make its tables", error))?;
        self.make_tables(&driver).await?;
        self.admit(&driver, part).await?;
        let statements = Statements::prepare(&driver, self.config.reads).await;
        let statements = statements.map_err(|failed| self.failed("make its tables", failed))?;
        let (shown, conflicts) = (Arc::clone(&self.config.shown), Arc::clone(&self.conflicts));
        let clock = Arc::clone(&self.clock);
        let connected = Connected { driver, statements, clock, shown, conflicts };
        Ok(self.connected.get_or_init(|| Arc::new(connected)))
    }

    async fn dial(&self) -> Result<Driver, Error> {
        let Config { hosts, login, datacenter, keyspace, tls, shown, .. } = &self.config;
        let policy = DefaultPolicy::builder().token_aware(true);
        let policy = match datacenter {
            Some(name) => policy.prefer_datacenter(name.clone()).permit_dc_failover(true),
            None => policy,
        };
        let profile = ExecutionProfile::builder()
            .load_balancing_policy(policy.build())
            .retry_policy(Arc::new(failure::SafeRetries))
            .consistency(Consistency::Quorum)
            // The server's own deadline comes first.
            .request_timeout(Some(Duration::from_secs(60)));
        let mut builder = SessionBuilder::new()
            .known_nodes(hosts)
            .default_execution_profile_handle(profile.build().into_handle())
            .keyspaces_to_fetch([keyspace])
            .connection_timeout(KEEPALIVE_TIMEOUT)
            .keepalive_interval(KEEPALIVE)
            .keepalive_timeout(KEEPALIVE_TIMEOUT)
            .tls_context(tls.clone());
        if let Some((user, password)) = login {
            builder = builder.user(user, password);
        }
        let driver = builder.build().await.map_err(|error| {
            let (kind, why) = self.why_not_reached(&error);
            Error::new(kind, format!("cannot reach store {shown}: {why}"))
        })?;
        let state = driver.get_cluster_state();
        let known: BTreeSet<&str> =
            state.get_nodes_info().iter().filter_map(|node| node.datacenter.as_deref()).collect();
        match datacenter {
            Some(name) if !known.contains(name.as_str()) => {
                let known: Vec<&str> = known.into_iter().collect();
                let what = format!("{shown} has no data center {name}; there are {}", known.join(", "));
                Err(Error::new(Kind::Config, what))
            }
            _ => Ok(driver),
        }
    }

    /// Whether it helps to try again, and why no node was reached.
    fn why_not_reached(&self, error: &NewSessionError) -> (Kind, String) {
        // The driver's errors hide this one from `source`.
        if let NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
            ConnectionPoolError::Broken { last_connection_error },
        )) = error
            && let Some(why) = io_error_in(last_connection_error).and_then(|error| cluster_tls_failure(error))
        {
            return (Kind::Config, why);
        }
        let said = failure::said(error);
        match &self.config.login {
            None if said.contains("uthentication") => {
                (Kind::Config, "it asks for a login; write cassandra://USER:PASSWORD@HOST".to_owned())
            }
            Some((user, _)) if said.contains("uthentication") => {
                (Kind::Config, format!("it refuses the user {user} with this password: {said}"))
            }
            // Whoever refuses a client's certificate may close the connection before that is read.
            _ if self.config.tls.is_some() && said.contains("Connection broken") => {
                let why = "the server may not accept the certificate that it was shown";
                (Kind::Unavailable, format!("{said}; {why}: give one that it trusts with sslcert and sslkey"))
            }
            _ => (Kind::Unavailable, said),
        }
    }

    /// Makes the tables that are not there, on one node, always the same: Cassandra does not order changes of the schema by several
    /// nodes. A server that finds its tables does not need that node, nor the right to make them.
    async fn make_tables(&self, driver: &Driver) -> Result<(), Error> {
        let state = driver.get_cluster_state();
        let keyspace = state.get_keyspace(&self.config.keyspace);
        let is_there = |name: &str| keyspace.is_some_and(|keyspace| keyspace.tables.contains_key(name));
        let Some(node) = state.get_nodes_info().iter().min_by_key(|node| node.host_id) else { return Ok(()) };
        for (name, columns) in TABLES.iter().filter(|(name, _)| !is_there(name)) {
            let mut statement = Statement::new(format!("CREATE TABLE IF NOT EXISTS {name} ({columns})"));
            let target = NodeIdentifier::Node(Arc::clone(node));
            statement.set_load_balancing_policy(Some(SingleTargetLoadBalancingPolicy::new(target, None)));
            let made = driver.query_unpaged(statement, ()).await;
            made.map_err(|error| self.failed("make its tables", error))?;
        }
        Ok(())
    }

    /// Writes down which part of the keys is here, the first time, and compares it from then on.
    async fn admit(&self, driver: &Driver, part: Part) -> Result<(), Error> {
        let mut read = Statement::new("SELECT map FROM weir_map WHERE one = true");
        read.set_consistency(Consistency::Serial);
        for _ in 0..2 {
            let found = async {
                let rows = driver.query_unpaged(read.clone(), ()).await?.into_rows_result();
                let rows = rows.map_err(|error| Failed::odd(&error))?;
                rows.maybe_first_row::<(String,)>().map_err(|error| Failed::odd(&error))
            };
            let found = found.await.map_err(|failed| self.failed("read weir_map", failed))?;
            let map = found.map(|(map,)| map);
            if !part.admit(map.as_deref(), false, &self.config.shown)? {
                return Ok(());
            }
            let write = Statement::new("INSERT INTO weir_map (one, map) VALUES (true, ?) IF NOT EXISTS");
            let written = driver.query_unpaged(write, (part.map(),)).await;
            written.map_err(|error| self.failed("write weir_map", error))?;
        }
        Ok(())
    }

    fn failed(&self, what: &str, failed: impl Into<Failed>) -> Error {
        let Failed { meaning, cause } = failed.into();
        let shown = &self.config.shown;
        let kind = if meaning == failure::Meaning::Refused { Kind::Config } else { Kind::Unavailable };
        Error::new(kind, format!("cannot {what} in {shown}: {cause}"))
    }

    async fn take(&self, part: Part) -> Result<Lease, Error> {
        let connected = Arc::clone(self.connected(part).await?);
        let now =
            read_clock(&connected.driver).await.map_err(|failed| self.failed("read the time", failed))?;
        connected.clock.advance_to(now);
        let epoch = self.leases.fetch_add(1, Relaxed) + 1;
        let lost = Box::pin(async move {
            let Connected { driver, shown, clock, .. } = &*connected;
            let mut looks = 0_u32;
            while driver.get_cluster_state().get_nodes_info().iter().any(|node| node.is_connected()) {
                tokio::time::sleep(LOOK).await;
                looks = looks.wrapping_add(1);
                if looks.is_multiple_of(CLOCK_LOOKS)
                    && let Ok(Ok(now)) = tokio::time::timeout(LOOK, read_clock(driver)).await
                {
                    clock.advance_to(now);
                }
            }
            format!("no node of {shown} can be reached")
        });
        Ok(Lease { epoch, now, may_expire: true, was_released: true, lost, owner: None })
    }
}

#[async_trait]
impl Store for Cassandra {
    /// Nobody owns it: any number of servers may do this.
    async fn acquire(&self, part: Part) -> Answer<Lease> {
        in_setup_time(&self.config.shown, self.take(part)).await
    }

    async fn connect(&self, _epoch: u64) -> Answer<Box<dyn Session>> {
        let none = || Error::new(Kind::Unavailable, format!("{} was not acquired", self.config.shown));
        let connected = Arc::clone(self.connected.get().ok_or_else(none)?);
        Ok(Box::new(CassandraSession { connected, seen: None }))
    }

    fn clock(&self) -> Arc<Clock> {
        Arc::clone(&self.clock)
    }

    fn workers(&self) -> Workers {
        WORKERS
    }

    fn conflicts(&self) -> Option<Arc<Conflicts>> {
        Some(Arc::clone(&self.conflicts))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            writers: Writers::Servers,
            no_lists: Some(
                "this store has no list of keys: it places them by a hash, and so has no order of them",
            ),
            no_atomic_batches: Some(
                "this store commits each key for itself; send the batch without atomic=true",
            ),
            no_clear: Some(
                "this store is shared by several servers and is not cleared; delete the keys one by one",
            ),
            weak_reads: self.config.reads.name(),
        }
    }
}

/// The cluster's clock.
async fn read_clock(driver: &Driver) -> Result<Timestamp, Failed> {
    let mut clock = Statement::new("SELECT toUnixTimestamp(now()) FROM system.local");
    clock.set_consistency(Consistency::One);
    let rows = driver.query_unpaged(clock, ()).await?.into_rows_result();
    let rows = rows.map_err(|error| Failed::odd(&error))?;
    let (at,) = rows.first_row::<(i64,)>().map_err(|error| Failed::odd(&error))?;
    Ok(Timestamp(at as u64))
}

/// The failure of the socket or of TLS: while connecting, or, where a node refuses the client's certificate, at the first answer.
fn io_error_in(error: &ConnectionError) -> Option<&std::io::Error> {
    let broken = match error {
        ConnectionError::IoError(error) => return Some(error),
        ConnectionError::ConnectionSetupRequestError(ConnectionSetupRequestError {
            error: ConnectionSetupRequestErrorKind::BrokenConnection(broken),
            ..
        }) => broken,
        _ => return None,
    };
    match broken.downcast_ref()? {
        BrokenConnectionErrorKind::FrameHeaderParseError(FrameHeaderParseError::HeaderIoError(error)) => {
            Some(error)
        }
        _ => None,
    }
}

/// How long the version of a row that is gone stays.
const VERSION_STAYS: Duration = Duration::from_secs(24 * 3600);
