//! A replica: one more PostgreSQL, fed from every store by logical replication, and only ever read.
//!
//! Its names are fixed: the publication `weir` in every store, and on the replica one subscription for each, `weir_0`,
//! `weir_1` and so on, whose slot in the store has the same name. If another database of the store's server has a slot of that name,
//! the store's is called `weir_0_` and its database's OID. Shards hold distinct keys, so one table takes all.

use super::connect::text;
use super::session::PostgresSession;
use super::{OTHER_TABLES, Postgres, ROWS, ROWS_TABLE, TIME, cause, make_tables, refuse, until_closed};
use crate::batcher::start_thread;
use crate::sql::{Failure, Setup, Step};
use crate::{Answer, Error, Kind, Lease, Part, Session, Store, Workers};
use async_trait::async_trait;
use kv::Timestamp;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_postgres::Client;

/// Time between two checks of a copy.
const CHECK_EVERY: Duration = Duration::from_millis(100);
/// A copy that failed this often will not succeed.
const COPY_FAILURES_MAX: i64 = 3;
/// Time between two measurements of the lag.
const LAG_EVERY: Duration = Duration::from_secs(1);
/// Most time for a store to answer how large the lag is.
const LAG_TIMEOUT: Duration = Duration::from_secs(5);

/// The slot of the store that is asked, where the parameter is the name of the subscription.
const SLOT: &str = "pg_replication_slots s JOIN pg_database d ON d.datname = s.database
    WHERE d.datname = current_database() AND s.slot_name IN ($1::text, $1::text || '_' || d.oid)";

/// Whether a copy can no longer follow by that slot: what it had still to get is gone from the log, or the rows are not published, so that
/// they count as got. Before PostgreSQL 13 there is no `wal_status`.
const IS_CUT_OFF: &str = "coalesce(to_jsonb(s) ->> 'wal_status' = 'lost', false) OR NOT EXISTS
    (SELECT FROM pg_publication_tables WHERE pubname = 'weir' AND tablename = 'weir_kv')";

/// The subscription of a shard.
fn name_of(index: usize) -> String {
    format!("weir_{index}")
}

fn open_each(urls: &[impl AsRef<str>]) -> Result<Vec<Postgres>, Error> {
    urls.iter().map(|url| parse(url.as_ref())).collect()
}

fn parse(url: &str) -> Result<Postgres, Error> {
    if url.starts_with("postgres://") || url.starts_with("postgresql://") {
        let postgres = Postgres::open(url)?;
        if postgres.rows.names.is_some() {
            let message =
                format!("{} has its rows in a table of others, which no replica follows", postgres.shown);
            return Err(Error::new(Kind::Config, message));
        }
        if postgres.has_several_hosts() {
            // A slot for logical replication does not fail over.
            let message =
                format!("{} names several hosts; a replica follows one, and is one", postgres.shown);
            return Err(Error::new(Kind::Config, message));
        }
        return Ok(postgres);
    }
    let shown = crate::redacted(url);
    let message = format!("{shown} can neither be nor have a replica; only postgres:// stores can");
    Err(Error::new(Kind::Config, message))
}

/// What the steps of the setup are for, in messages.
const SETUP: Step = Step::Setup("set up the replica");

/// Makes `replica` follow the stores `primaries`, which are given in the order of their shards, and waits until it has
/// copied their rows. Returns a line for each.
///
/// What exists already stays, except the address of a store, which is taken from its URL. So this may be repeated.
/// Errors: [`Kind::Unavailable`] where one of them cannot be reached, [`Kind::Config`] with the remedy otherwise.
pub async fn init(replica: &str, primaries: &[impl AsRef<str>]) -> Result<Vec<String>, Error> {
    let (replica, primaries) = (parse(replica)?, open_each(primaries)?);
    let lines = async {
        let (client, _) = replica.setup("connect", replica.dial(&replica.hosts[0], "replica init")).await?;
        check_workers(&replica, &client, primaries.len()).await?;
        prepare(&replica, &client).await?;
        for (index, primary) in primaries.iter().enumerate() {
            let source = publish(primary, Part { index, of: primaries.len() }).await;
            let source = source.map_err(|why| why.of(&primary.shown, Step::Setup("publish weir_kv")))?;
            subscribe(&replica, &client, &name_of(index), &primary.shown, &source).await?;
        }
        let mut lines = Vec::new();
        for (index, primary) in primaries.iter().enumerate() {
            let (from, to) = (&primary.shown, &replica.shown);
            until_copied(&client, index, from, to).await?;
            let line = line(index, &primaries);
            lines.push(format!("{line} to {to}: copied, and followed from now on"));
        }
        Ok(lines)
    };
    lines.await.map_err(|failure: Failure| failure.of(&replica.shown, SETUP))
}

/// How `replica` follows the stores `primaries`, a line for each.
pub async fn status(replica: &str, primaries: &[impl AsRef<str>]) -> Result<Vec<String>, Error> {
    let (replica, primaries) = (parse(replica)?, open_each(primaries)?);
    let (client, _) = replica.setup("connect", replica.dial(&replica.hosts[0], "replica status")).await?;
    let mut lines = Vec::new();
    for (index, primary) in primaries.iter().enumerate() {
        let state = state(&client, index).await.map_err(|failure| failure.of(&replica.shown, SETUP))?;
        let is_copied = state.as_ref().is_some_and(|state| state.is_copied);
        let follows = state.map_or("not followed; run weir replica init".to_owned(), |state| {
            let copied = if state.is_copied { "copied" } else { "being copied" };
            let held = if state.is_enabled { "" } else { ", held back (its subscription is disabled)" };
            format!("{copied}{held}")
        });
        let lag = match primary.setup("connect", primary.dial(&primary.hosts[0], "replica status")).await {
            // While it copies, nobody knows.
            Ok(_) if !is_copied => None,
            Ok((client, _)) => lag(&client, &name_of(index)).await.ok().flatten(),
            Err(_) => None,
        };
        let lag = match lag {
            Some(Lagging::By(bytes)) => format!("{bytes} bytes behind"),
            Some(Lagging::CutOff) => "cut off for good; weir replica init says what to do".to_owned(),
            None => "lag unknown".to_owned(),
        };
        lines.push(format!("{}: {follows}, {lag}", line(index, &primaries)));
    }
    Ok(lines)
}

fn line(index: usize, primaries: &[Postgres]) -> String {
    format!("shard {} of {}, {}", index + 1, primaries.len(), primaries[index].shown)
}

/// A store that is to be followed.
struct Source {
    /// What the replica is to connect with.
    connection: String,
    /// Which server it is in.
    system: String,
    /// Its name, also if it is not there yet.
    slot: String,
    has_slot: bool,
}

/// Checks a store and publishes its rows.
async fn publish(primary: &Postgres, part: Part) -> Setup<Source> {
    let shown = &primary.shown;
    let (client, _) = primary.setup("connect", primary.dial(&primary.hosts[0], "replica init")).await?;
    make_tables(&client, &[&[ROWS_TABLE], &OTHER_TABLES[..]].concat(), shown).await?;
    primary.admits(&client, part, ROWS).await?;
    let what = "SELECT current_setting('wal_level'),
        (SELECT system_identifier::text FROM pg_control_system()),
        (SELECT min(s.slot_name::text) FROM {SLOT}),
        EXISTS (SELECT FROM pg_publication WHERE pubname = 'weir'),
        EXISTS (SELECT FROM pg_publication_tables WHERE pubname = 'weir' AND tablename = 'weir_kv'),
        session_user::text, current_database()::text,
        (SELECT CASE WHEN EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $1::text)
            THEN $1::text || '_' || oid ELSE $1::text END FROM pg_database WHERE datname = current_database()),
        (SELECT bool_or({IS_CUT_OFF}) FROM {SLOT})";
    let what = what.replace("{SLOT}", SLOT).replace("{IS_CUT_OFF}", IS_CUT_OFF);
    let row = client.query_one(&what, &[&name_of(part.index)]).await?;
    let level: &str = row.get(0);
    if level != "logical" {
        return refuse(format!(
            "{shown} runs with wal_level = {level}, which replicas cannot follow; \
             run ALTER SYSTEM SET wal_level = 'logical' there and restart it"
        ));
    }
    if let (Some(slot), Some(true)) = (row.get::<_, Option<&str>>(2), row.get(8)) {
        return refuse(format!(
            "the copy of {shown} cannot go on where it was: the log that it needs is gone, or weir_kv was not published meanwhile; run \
             ALTER SUBSCRIPTION {name} DISABLE, ALTER SUBSCRIPTION {name} SET (slot_name = NONE) and DROP SUBSCRIPTION {name} in the \
             replica, or it takes what is for the next one, and SELECT pg_drop_replication_slot('{slot}') in the store; then begin anew \
             with an empty database as --replica",
            name = name_of(part.index)
        ));
    }
    if !row.get::<_, bool>(3) {
        // A TRUNCATE by hand would take the rows of all shards with it on the other side.
        let publish = "CREATE PUBLICATION weir FOR TABLE weir_kv WITH (publish = 'insert, update, delete')";
        client.batch_execute(publish).await?;
    } else if !row.get::<_, bool>(4) {
        return refuse(format!(
            "the publication weir in {shown} is without weir_kv; run ALTER PUBLICATION weir ADD TABLE weir_kv there"
        ));
    }
    let connection = connection(primary, row.get(5), row.get(6))?;
    let there: Option<String> = row.get(2);
    let has_slot = there.is_some();
    Ok(Source { connection, system: row.get(1), slot: there.unwrap_or_else(|| row.get(7)), has_slot })
}

/// Refuses a replica that follows all stores with all of its workers: none is left to copy the rows, and it waits without a word.
async fn check_workers(replica: &Postgres, client: &Client, stores: usize) -> Setup<()> {
    for (setting, needed) in
        [("max_logical_replication_workers", stores + 1), ("max_worker_processes", stores + 2)]
    {
        let there: i32 = client.query_one("SELECT current_setting($1)::int", &[&setting]).await?.get(0);
        if (there as usize) < needed {
            return refuse(format!(
                "{} runs with {setting} = {there}, too few to follow {stores} stores; \
                 run ALTER SYSTEM SET {setting} = {needed} there and restart it",
                replica.shown
            ));
        }
    }
    Ok(())
}

/// Makes the table of the replica. A database that holds other rows is refused.
async fn prepare(replica: &Postgres, client: &Client) -> Setup<()> {
    let other = |what: &str| refuse(format!("{} {what}; give --replica an empty database", replica.shown));
    // Before a table is made: it may be a store that has lost that.
    if client.query_one("SELECT to_regclass('weir_owner') IS NOT NULL", &[]).await?.get(0) {
        return other("is a store itself (it has the table weir_owner)");
    }
    make_tables(client, &[ROWS_TABLE], &replica.shown).await?;
    let what = "SELECT EXISTS (SELECT FROM weir_kv),
        EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = 'weir_kv'::regclass)";
    let row = client.query_one(what, &[]).await?;
    match (row.get(0), row.get(1)) {
        (true, false) => other("holds rows of its own in weir_kv"),
        _ => Ok(()),
    }
}

/// Makes the replica follow a store, or follow it again from where it was.
async fn subscribe(
    replica: &Postgres,
    client: &Client,
    name: &str,
    primary: &str,
    source: &Source,
) -> Setup<()> {
    let replica = &replica.shown;
    let what = "SELECT (SELECT system_identifier::text FROM pg_control_system()),
        EXISTS (SELECT FROM pg_subscription WHERE subname = $1 AND subdbid =
            (SELECT oid FROM pg_database WHERE datname = current_database()))";
    let row = client.query_one(what, &[&name]).await?;
    let system: &str = row.get(0);
    if system == source.system {
        // Making the slot would wait for the very transaction that makes it.
        return refuse(format!(
            "{replica} and {primary} are on the same PostgreSQL server; a replica needs one of its own"
        ));
    }
    let statements: &[&str] = match (row.get(1), source.has_slot) {
        (false, false) => {
            &["CREATE SUBSCRIPTION %1$I CONNECTION %2$L PUBLICATION weir WITH (slot_name = %3$L)"]
        }
        (true, true) => &[
            "ALTER SUBSCRIPTION %1$I CONNECTION %2$L",
            "ALTER SUBSCRIPTION %1$I ENABLE",
            "ALTER SUBSCRIPTION %1$I REFRESH PUBLICATION",
        ],
        (false, true) => {
            let slot = &source.slot;
            return refuse(format!(
                "{primary} has a slot {slot} for another replica; if that one is gone for good, \
                 run SELECT pg_drop_replication_slot('{slot}') there"
            ));
        }
        (true, false) => {
            return refuse(format!(
                "{replica} has a subscription {name}, but {primary} has no such slot; give the --store URLs in their first \
                 order, or if the slot is gone, give --replica an empty database and begin anew"
            ));
        }
    };
    for form in statements {
        // These take no parameters: the server itself quotes what goes into their text.
        let quote = "SELECT format($1::text, $2::text, $3::text, $4::text)";
        let quoted = client.query_one(quote, &[form, &name, &source.connection, &source.slot]).await;
        let statement: String = quoted?.get(0);
        client.batch_execute(&statement).await?;
    }
    Ok(())
}

/// How a subscription stands.
struct State {
    is_enabled: bool,
    is_copied: bool,
}

async fn state(client: &Client, index: usize) -> Setup<Option<State>> {
    let what = "SELECT s.subenabled, coalesce(r.srsubstate::text = 'r', false)
        FROM pg_subscription s LEFT JOIN pg_subscription_rel r
          ON r.srsubid = s.oid AND r.srrelid = to_regclass('weir_kv')
        WHERE s.subname = $1 AND s.subdbid = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let row = client.query_opt(what, &[&name_of(index)]).await?;
    Ok(row.map(|row| State { is_enabled: row.get(0), is_copied: row.get(1) }))
}

async fn until_copied(client: &Client, index: usize, from: &str, to: &str) -> Setup<()> {
    let failures_before = failures(client, index).await;
    while state(client, index).await?.is_none_or(|state| !state.is_copied) {
        if failures(client, index).await - failures_before >= COPY_FAILURES_MAX {
            return refuse(format!(
                "copying {from} to {to} fails again and again; the log of the latter says why"
            ));
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
    Ok(())
}

/// How often it failed to follow; always 0 before PostgreSQL 15, which does not count.
async fn failures(client: &Client, index: usize) -> i64 {
    let count = "SELECT apply_error_count + sync_error_count FROM pg_stat_subscription_stats
        WHERE subname = $1";
    let row = client.query_opt(count, &[&name_of(index)]).await;
    row.ok().flatten().map_or(0, |row| row.get(0))
}

/// A connection string as libpq reads it, for the replica to reach a store with. User and database are those of our own
/// session: their defaults would be others there.
fn connection(primary: &Postgres, user: &str, database: &str) -> Result<String, Error> {
    let super::Host { fields, password, .. } = &primary.hosts[0];
    let mut fields = fields.clone();
    // The replica may be older than PostgreSQL 17.
    fields.remove("sslnegotiation");
    fields.extend([("user", user.to_owned()), ("dbname", database.to_owned())]);
    fields.extend(password.read()?.map(|password| ("password", password)));
    // Files are those of the replica's machine.
    fields.extend(primary.tls.given.clone());
    Ok(text(&fields))
}

/// Makes sense of a replica's URL. What it gives is only read: its lease takes no locks and raises no epoch in the
/// database, and every session is read-only.
pub fn open(url: &str) -> Result<Box<dyn Store>, Error> {
    Ok(Box::new(Replica { postgres: parse(url)?, leases: AtomicU64::new(0) }))
}

struct Replica {
    postgres: Postgres,
    leases: AtomicU64,
}

impl Replica {
    async fn watch(&self) -> Setup<Lease> {
        let postgres = &self.postgres;
        let (client, ended) = postgres.dial(&postgres.hosts[0], "replica").await?;
        // Rows without a subscription are not a copy of the stores. A standby replicates by other means, which is as good.
        let follows = "SELECT to_regclass('weir_kv') IS NOT NULL AND (pg_is_in_recovery()
            OR EXISTS (SELECT FROM pg_subscription_rel WHERE srrelid = to_regclass('weir_kv')))";
        if !client.query_one(follows, &[]).await?.get::<_, bool>(0) {
            return refuse(format!(
                "{} is no replica yet: nothing follows a store into its table weir_kv; run weir replica init",
                postgres.shown
            ));
        }
        let time = client.query_one(TIME, &[]).await?;
        let (now, may_expire) = (Timestamp(time.try_get::<_, i64>(0)? as u64), time.try_get(1)?);
        let epoch = self.leases.fetch_add(1, Relaxed) + 1;
        // It lasts as long as the connection, and the connection as long as its client.
        let lost = async move {
            let _held = client;
            until_closed(ended).await
        };
        Ok(Lease { epoch, now, may_expire, was_released: true, lost: Box::pin(lost), owner: None })
    }

    async fn session(&self, epoch: u64) -> Setup<Box<dyn Session>> {
        if epoch != self.leases.load(Relaxed) {
            return Err(Error::new(Kind::Unavailable, "the replica was lost meanwhile").into());
        }
        let (client, ended) = self.postgres.dial(&self.postgres.hosts[0], "replica session").await?;
        client.batch_execute("SET default_transaction_read_only = on").await?;
        let shown = Arc::clone(&self.postgres.shown);
        Ok(Box::new(PostgresSession::prepare(shown, client, ended).await?))
    }
}

#[async_trait]
impl Store for Replica {
    async fn acquire(&self, _part: Part) -> Answer<Lease> {
        self.postgres.setup("watch the replica", self.watch()).await
    }

    async fn connect(&self, epoch: u64) -> Answer<Box<dyn Session>> {
        self.postgres.setup("start a session", self.session(epoch)).await
    }

    fn workers(&self) -> Workers {
        Workers { read: 2, write: 0 }
    }
}

/// How far the replica is behind each store: one thread that asks them about once a second, until this is dropped.
pub struct Lag {
    bytes: Arc<Mutex<Vec<Option<u64>>>>,
    _stop: oneshot::Sender<()>,
}

impl Lag {
    /// Starts to ask the stores `primaries`, which are given in the order of their shards.
    pub fn watch(primaries: &[impl AsRef<str>]) -> Result<Lag, Error> {
        let primaries = open_each(primaries)?;
        let bytes = Arc::new(Mutex::new(vec![None; primaries.len()]));
        let (stop, stopped) = oneshot::channel();
        let shown = Arc::clone(&bytes);
        start_thread("weir-lag", move |runtime| {
            for (index, primary) in primaries.into_iter().enumerate() {
                let shown = Arc::clone(&shown);
                runtime.spawn(async move {
                    loop {
                        let why = ask(&primary, index, |lag| shown.lock()[index] = lag).await;
                        // Of a store that is away nothing is known: that is not zero.
                        shown.lock()[index] = None;
                        log::debug!("the lag behind shard {} is not known: {why}", index + 1);
                        tokio::time::sleep(LAG_EVERY).await;
                    }
                });
            }
            // What it waits for is never sent, but dropped.
            runtime.block_on(stopped).unwrap_or_default();
        })?;
        Ok(Lag { bytes, _stop: stop })
    }

    /// What the replica has not confirmed of the store's log, in bytes; `None` where that is unknown now.
    pub fn bytes(&self, index: usize) -> Option<u64> {
        self.bytes.lock().get(index).copied().flatten()
    }
}

/// Tells the lag again and again until the store is lost; why that was.
async fn ask(primary: &Postgres, index: usize, tell: impl Fn(Option<u64>)) -> String {
    let name = name_of(index);
    let (client, mut ended) =
        match primary.setup("connect", primary.dial(&primary.hosts[0], "replica lag")).await {
            Ok(connected) => connected,
            Err(error) => return error.to_string(),
        };
    loop {
        match tokio::time::timeout(LAG_TIMEOUT, lag(&client, &name)).await {
            Ok(Ok(Some(Lagging::By(bytes)))) => tell(Some(bytes)),
            Ok(Ok(Some(Lagging::CutOff) | None)) => tell(None),
            Ok(Err(error)) => return cause(&error),
            Err(_) => return format!("{} does not answer", primary.shown),
        }
        tokio::select! {
            () = tokio::time::sleep(LAG_EVERY) => {}
            why = &mut ended => return why.unwrap_or_else(|_| "the connection was dropped".to_owned()),
        }
    }
}

/// What a copy has still to get.
enum Lagging {
    By(u64),
    /// It gets no more.
    CutOff,
}

/// `None` without a slot for the subscription `name`.
async fn lag(client: &Client, name: &str) -> Result<Option<Lagging>, tokio_postgres::Error> {
    let behind =
        "SELECT {IS_CUT_OFF}, pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint FROM {SLOT}";
    let behind = behind.replace("{SLOT}", SLOT).replace("{IS_CUT_OFF}", IS_CUT_OFF);
    let Some(row) = client.query_opt(&behind, &[&name]).await? else { return Ok(None) };
    Ok(match (row.get(0), row.get::<_, Option<i64>>(1)) {
        (true, _) => Some(Lagging::CutOff),
        // Both ends move while they are read.
        (false, bytes) => bytes.map(|bytes| Lagging::By(bytes.max(0) as u64)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_connects_with_what_the_url_says() {
        for (url, expected) in [
            ("postgres://h/db", "dbname='d' host='h' port='5432' user='u'"),
            (
                "postgres://x:se%27c%5Cret@h:5433/db?sslmode=disable&hostaddr=127.0.0.1",
                r"dbname='d' host='h' hostaddr='127.0.0.1' password='se\'c\\ret' port='5433' sslmode='disable' user='u'",
            ),
            (
                "postgres://h/db?options=-c%20x%3D1&port=&sslmode=&sslnegotiation=direct",
                "dbname='d' host='h' options='-c x=1' port='5432' user='u'",
            ),
            ("postgres://%2Frun%2Fx/db", "dbname='d' host='/run/x' port='5432' user='u'"),
        ] {
            assert_eq!(connection(&parse(url).unwrap(), "u", "d").unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn only_postgres_has_replicas() {
        for url in ["file:./x", "memory:", "", "postgres://["] {
            let error = open(url).err().unwrap();
            assert_eq!(error.kind(), Kind::Config, "{url}: {error}");
        }
        assert!(open("postgres://u@h/db").is_ok());
    }
}
