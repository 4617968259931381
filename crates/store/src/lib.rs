//! The durable tier: what a store is, and how one is opened from its URL.
//!
//! A store is owned by one server at a time and spoken to in sessions, in batches: one commit for many writes is
//! what makes a durable store fast. [`Batcher`] makes batches of single requests. Knows no cache, HTTP or flags.

#[cfg(any(test, feature = "test-support"))]
#[path = "../tests/contract/mod.rs"]
pub mod contract;
mod error;
mod embedded;
mod events;
mod flush;
mod batcher;
mod memory;
mod mysql;
mod part;
mod password;
mod postgres;
mod sql;
mod store_url;
mod tables;
mod url_tls;
mod user_table;

/// Conditional statements of all sessions of a store that others write, too.
#[derive(Debug, Default)]
pub struct Conflicts {
    /// All of them.
    pub statements: Counter,
    /// Those that did not get through: another server wrote the same key, or a node was lost.
    pub lost: Counter,
}

pub use batcher::{
    AtomicAnswer, AtomicOperation, AtomicOutcome, Batcher, Batching, Config, Event, EventLog, Intent,
    LIST_BYTES_MAX, LIST_TIME_MAX, LastError, Meters, Next, Observer, Page, Receiver, Reply, Sender, Status,
    Watch, Watched, WorkerMeters, WriteRequest, Written, channel,
};
#[cfg(feature = "test-support")]
pub use embedded::fuzz;
pub use embedded::{Checked, Damage, Lost, Repaired, backup, check, repair};
pub use error::{Error, Kind};
pub use events::{EventBlock, EventKind, Idempotency, Position};
pub use flush::Flush;
pub use part::{Part, Role, SHARDS_MAX, shard_of};
pub use postgres::replica;
pub use sql::in_setup_time;
pub use store_url::{Place, StoreUrl};
pub use url_tls::{TLS_PARAMETERS, cluster_tls, cluster_tls_failure};

use async_trait::async_trait;
use embedded::Embedded;
use kv::counters::Counter;
use kv::{Clock, Key, Row, Timestamp, Write};
use memory::Memory;
use mysql::Mysql;
use postgres::Postgres;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::Arc;

/// What a store's calls return.
pub type Answer<T> = Result<T, Error>;

/// A place where rows outlive the server.
///
/// Calls may block their thread: [`Batcher`] gives every session a thread of its own.
#[async_trait]
pub trait Store: Send + Sync {
    /// Takes the store for this server alone, makes its tables on the first start, and begins a new epoch.
    ///
    /// `part` is what it is to hold. That is written into the store the first time, and judged by [`Part::admit`] from
    /// then on, before the epoch begins. Returns only when no statement of an earlier lease, can take effect
    /// any more. Errors: [`Kind::Taken`] or [`Kind::Ending`] while another server holds it, [`Kind::Unavailable`], [`Kind::Config`].
    async fn acquire(&self, part: Part) -> Answer<Lease>;

    /// Opens a session under the lease that began `epoch`; refuses ([`Kind::Unavailable`]) if a later one exists.
    async fn connect(&self, epoch: u64) -> Answer<Box<dyn Session>>;

    /// Whether a session may answer although another server owns the store by now, and this one cannot know. Then an answer
    /// counts only once the lease was confirmed.
    fn sessions_may_outlive_lease(&self) -> bool {
        false
    }

    /// Says to a server that stands by that this one ends soon: of a store whose leases have no [`Owner`].
    fn note_end(&self) {}

    /// Its clock, which is set with each lease. A store that is acquired once and for all may advance it later.
    fn clock(&self) -> Arc<Clock> {
        Arc::default()
    }

    /// How many sessions serve it best.
    fn workers(&self) -> Workers;

    /// Where its sessions flush, if that is in this process.
    fn flush(&self) -> Option<Arc<Flush>> {
        None
    }

    /// How often its servers get in each other's way, where several write the same keys.
    fn conflicts(&self) -> Option<Arc<Conflicts>> {
        None
    }

    /// Lets others write the rows while it is acquired: the caller caches none. Whether it can: not if the rows are weir's own.
    fn allow_foreign_writers(&mut self) -> bool {
        false
    }

    /// Takes several hosts also if a failover may lose acknowledged writes. Whether it has several.
    fn allow_asynchronous_failover(&mut self) -> bool {
        false
    }

    /// Why there can be no row under `key`, or not this one, if that is so: [`Kind::Unfit`]. Once it was acquired.
    fn refuses(&self, _key: &Key, _row: Option<&Row>) -> Option<Error> {
        None
    }

    /// What it can do. Generic code asks this, and never which store it is.
    fn capabilities(&self) -> Capabilities {
        Capabilities::OWNED
    }
}

/// What a store can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Who writes its rows.
    pub writers: Writers,
    /// Why it cannot list rows in the order of their keys, if that is so.
    pub no_lists: Option<&'static str>,
    /// Why it cannot write several keys in one commit, if that is so.
    pub no_atomic_batches: Option<&'static str>,
    /// Why it cannot remove all rows at once, if that is so.
    pub no_clear: Option<&'static str>,
    /// The consistency of its reads, if they are not linearizable.
    pub weak_reads: Option<&'static str>,
}

impl Capabilities {
    /// What most stores can do: everything.
    pub const OWNED: Capabilities = Capabilities {
        writers: Writers::Owner,
        no_lists: None,
        no_atomic_batches: None,
        no_clear: None,
        weak_reads: None,
    };

    /// Whether every write of its rows is told as an event, which it can keep: nobody else writes them.
    pub fn has_events(&self) -> bool {
        self.writers == Writers::Owner
    }
}

/// Who writes the rows of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// The server that owns it, and nobody else: what that server knows of a row is so.
    Owner,
    /// The server that owns it, and other programs.
    OwnerAndPrograms,
    /// Any number of servers, none of which owns it. Every write stands alone, with an outcome of its own, and a version made of
    /// the time: the store refuses one that is not greater than the row's, also of a row that was removed.
    Servers,
}

/// The epoch before the first one of a store that is empty: any, so that the versions and ids of a store that it takes the place of
/// hardly come again for other values.
fn any_epoch() -> u64 {
    RandomState::new().hash_one(()) % (kv::Version::EPOCH_MAX / 2)
}

/// A store held for this server alone, until dropped.
pub struct Lease {
    /// Greater than that of every lease before.
    pub epoch: u64,
    /// The time by the store's clock when it was acquired.
    pub now: Timestamp,
    /// Whether the store may hold rows that expire.
    pub may_expire: bool,
    /// Whether the server that held the store before had said that no server answers older hits any more, or there was none.
    pub was_released: bool,
    /// Ends when the store is lost, with the reason.
    pub lost: Pin<Box<dyn Future<Output = String> + Send>>,
    /// Who holds it, where that may end without this server noticing.
    pub owner: Option<Box<dyn Owner>>,
}

/// The session that holds a lease.
#[async_trait]
pub trait Owner: Send {
    /// Asks whether the lease is still held. The error says why not.
    async fn confirm(&mut self) -> Answer<()>;

    /// Says in the store that no more hits are answered under this lease or one before it, and that it ends soon.
    async fn release(&mut self) -> Answer<()>;
}

/// Sessions by what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers {
    /// For reads.
    pub read: usize,
    /// For writes.
    pub write: usize,
}

/// A conversation with a store: one batch at a time.
///
/// After an error for which [`Kind::ends_session`] holds it must be dropped.
#[async_trait]
pub trait Session: Send {
    /// The rows under `keys`, which are distinct, in their order; `None` where absent. Of several keys it may answer only the
    /// first ones, at least one, if their rows are large.
    async fn read(&mut self, keys: &[Key]) -> Answer<Vec<Option<Row>>>;

    /// How many bytes the values under `keys` have together, where [`Session::read`] answers all keys however large their rows are;
    /// 0 elsewhere.
    async fn value_bytes(&mut self, keys: &[Key]) -> Answer<u64>;

    /// What is read of the keys `by` from here to the next write decides it: if that has changed meanwhile, the write fails with
    /// [`Kind::Retry`]. Of a store that nobody owns, such a read answers a row that was removed as one that has expired: its version counts.
    /// `is_part`: the write is a part of the one before, which was refused.
    fn begin_decision(&mut self, _is_part: bool, _by: &[Key]) {
        // Nobody else writes the rows.
    }

    /// Applies `writes`, whose keys are distinct and ascending. `Ok` means durable, and says of each what it found; an
    /// error says by its kind whether they may have happened, and holds for all of them.
    async fn write(&mut self, writes: &[Write]) -> Answer<Vec<Found>> {
        self.write_with(writes, None).await
    }

    /// The same, and keeps a block of events in the same commit. Where one of the writes finds a newer row, none is applied then
    /// ([`Kind::Rejected`]): the block says of all that they were.
    async fn write_with(&mut self, writes: &[Write], events: Option<&EventBlock>) -> Answer<Vec<Found>>;

    /// The first of the blocks behind the one with the id `behind`, in their order; none if there are none.
    async fn events(&mut self, _behind: u64) -> Answer<Vec<EventBlock>> {
        // None are kept.
        Ok(Vec::new())
    }

    /// Forgets the blocks up to the one with the id `until`.
    async fn trim_events(&mut self, _until: u64) -> Answer<()> {
        Ok(())
    }

    /// Some of the rows, in the order of their keys and without their values. Rows that were removed or written meanwhile may
    /// be missing or there.
    async fn list(&mut self, listing: &Listing) -> Answer<Vec<Listed>>;

    /// Removes every row and all events. `Ok` means durable; the kind of an error says whether it may have happened.
    async fn clear(&mut self) -> Answer<()>;
}

/// Which rows are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Not before this key, if it were one.
    pub from: Vec<u8>,
    /// Only before this key, if it were one; `None` for no end.
    pub until: Option<Vec<u8>>,
    /// At most so many.
    pub limit: usize,
    /// The time by which rows have expired.
    pub now: Timestamp,
    /// Those that have expired, in any order, instead of those that have not.
    pub expired: bool,
}

/// More than every key.
pub const BEHIND_ALL_KEYS: [u8; kv::KEY_BYTES_MAX + 1] = [0xff; kv::KEY_BYTES_MAX + 1];

impl Listing {
    /// [`Listing::until`], or what is more than every key.
    pub fn end(&self) -> &[u8] {
        self.until.as_deref().unwrap_or(&BEHIND_ALL_KEYS)
    }
}

/// A row in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The row; its value is empty if that was not asked for.
    pub row: Row,
    /// The length of its value.
    pub value_bytes: u64,
}

/// What a write found under its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Absent,
    /// A row, which it replaced or removed; also one that has expired.
    Present,
    /// A row with a greater version, which stays: the write was not applied. Somebody else writes the store. Where anybody may
    /// ([`Writers::Servers`]), the row's version may also be the same.
    Newer,
}

impl Found {
    /// What a write that was applied found.
    pub fn present(present: bool) -> Found {
        if present { Found::Present } else { Found::Absent }
    }
}

/// A kind of store.
pub struct Scheme {
    /// What its URLs begin with.
    pub prefix: &'static str,
    /// A URL of this kind.
    pub example: &'static str,
    /// Makes sense of such a URL.
    pub open: fn(&str) -> Result<Box<dyn Store>, Error>,
}

/// Every kind of store in this crate.
pub const SCHEMES: &[Scheme] = &[
    Scheme { prefix: "file:", example: "file:./weir-data", open: |url| Ok(Box::new(Embedded::open(url)?)) },
    Scheme {
        prefix: "postgres://",
        example: "postgres://user:password@127.0.0.1:5432/database",
        open: |url| Ok(Box::new(Postgres::open(url)?)),
    },
    Scheme {
        prefix: "postgresql://",
        example: "postgresql://user:password@127.0.0.1:5432/database",
        open: |url| Ok(Box::new(Postgres::open(url)?)),
    },
    Scheme {
        prefix: "mysql://",
        example: "mysql://user:password@127.0.0.1:3306/database",
        open: |url| Ok(Box::new(Mysql::open(url)?)),
    },
    Scheme {
        prefix: "mariadb://",
        example: "mariadb://user:password@127.0.0.1:3306/database",
        open: |url| Ok(Box::new(Mysql::open(url)?)),
    },
    Scheme { prefix: "memory:", example: "memory:", open: |url| Ok(Box::new(Memory::open(url)?)) },
];

/// Makes sense of a store's URL. Touches neither disk nor network: that is [`Store::acquire`]'s.
pub fn open(url: &str) -> Result<Box<dyn Store>, Error> {
    open_with(url, &[])
}

/// The same where there are `others`, of other crates.
pub fn open_with(url: &str, others: &[Scheme]) -> Result<Box<dyn Store>, Error> {
    match SCHEMES.iter().chain(others).find(|scheme| url.starts_with(scheme.prefix)) {
        Some(scheme) => (scheme.open)(url),
        None => {
            let known: Vec<&str> = SCHEMES.iter().chain(others).map(|scheme| scheme.example).collect();
            let what = match url.split_once("://") {
                Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                    format!("{scheme}:// is no kind of store")
                }
                _ => format!("{} is no store", redacted(url)),
            };
            Err(Error::new(Kind::Config, format!("{what}; known are {}", known.join(", "))))
        }
    }
}

/// A store's URL without its password, for messages; also one that is none, as users mistype them.
///
/// A password may hold any character, `/` and `@` too: rather too much is dropped.
pub fn redacted(url: &str) -> String {
    // A directory may be called anything.
    if url.strip_prefix("file:").is_some_and(|directory| !directory.contains(":/")) {
        return url.to_owned();
    }
    // `host=… password=…`, or a parameter.
    let url = match url.to_ascii_lowercase().find("passw") {
        Some(at) => url[..at].trim_end_matches(['?', '&', ' ']),
        None => url,
    };
    // Without a slash behind it, it is a user's name.
    let schemes = ["postgres:/", "postgresql:/", "mysql:/", "mariadb:/", "cassandra:/"];
    let scheme = schemes.into_iter().find(|scheme| url.starts_with(scheme)).unwrap_or_default();
    let rest = url[scheme.len()..].trim_start_matches('/');
    let scheme = &url[..url.len() - rest.len()];
    let name = rest.split([':', '/']).next().unwrap_or_default();
    match rest.rsplit_once('@') {
        Some((user, place)) if user.contains(':') => format!("{scheme}{name}@{place}"),
        // `user:password` without a host: the password stands where a port would.
        None if !scheme.is_empty() && !has_port(rest) => format!("{scheme}{name}"),
        _ => url.to_owned(),
    }
}

/// Whether `HOST:PORT/…` has a number as its port, or none.
fn has_port(rest: &str) -> bool {
    let place = rest.split('/').next().unwrap_or_default();
    match place.rsplit_once(':') {
        Some((_, port)) => port.ends_with(']') || port.bytes().all(|byte| byte.is_ascii_digit()),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_url_names_the_right_ones() {
        for url in ["", "redis://x", "file", "file:", "postgres://[", "mysql://u@h", "memory:x"] {
            let error = open(url).err().map(|error| (error.kind(), error.to_string()));
            assert!(matches!(&error, Some((Kind::Config, text)) if !text.contains('\n')), "{url}: {error:?}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for (url, shown) in [
            ("postgres://u:secret@h:5432/db", "postgres://u@h:5432/db"),
            ("postgres://u:se@cret@h/db?password=secret", "postgres://u@h/db"),
            ("postgres://h/db?password=secret", "postgres://h/db"),
            ("postgres://u:sec/ret@h/db", "postgres://u@h/db"),
            ("mysql://u:se:cret@h:3306/db", "mysql://u@h:3306/db"),
            ("file:./dir", "file:./dir"),
            ("file:./password@u:h", "file:./password@u:h"),
            // As users mistype them.
            ("postgres:/u:secret@h/d", "postgres:/u@h/d"),
            ("postgresql://u:secret@h/d", "postgresql://u@h/d"),
            ("postgresql:/u:secret@h/d", "postgresql:/u@h/d"),
            ("mysql:/u:secret@h/d", "mysql:/u@h/d"),
            ("mysql://u:se?cret@h/d", "mysql://u@h/d"),
            ("postgres://u@h/d?password=se@cret", "postgres://u@h/d"),
            ("postgres://u:secret", "postgres://u"),
            ("postgres://u:secret/d", "postgres://u"),
            ("postgres:secret@h/d", "postgres@h/d"),
            ("u:secret@h/d", "u@h/d"),
            ("u:/secret@h/d", "u@h/d"),
            ("redis://u:secret@h", "redis@h"),
            ("host=h user=u password=secret", "host=h user=u"),
            ("host=h Password = 'sec ret' user=u", "host=h"),
            ("file:a postgres://u:secret@h/d", "file@h/d"),
            // Nothing to hide.
            ("postgres://[::1]:5432/d", "postgres://[::1]:5432/d"),
            ("me@host", "me@host"),
            ("./a@b/c", "./a@b/c"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }
}
