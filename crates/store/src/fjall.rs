//! The embedded store: a directory, on the LSM engine `fjall`.
//!
//! One batch is one journal write and one flush. The engine makes a batch readable only after its flush.

use super::{Answer, Error, Flush, Found, Kind, Lease, Part, Session, Store, Workers};
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use kv::{Change, Key, Row, Version, Write};
use parking_lot::Mutex;
use std::future::ready;
use std::path::PathBuf;
use std::sync::Arc;

const EPOCH: &str = "epoch";
const MAP: &str = "map";

pub(super) struct Fjall {
    directory: PathBuf,
    /// The lease in force; sessions of an earlier one are refused.
    owned: Mutex<Option<(u64, Arc<Tables>)>>,
    flush: Arc<Flush>,
}

/// The open engine.
struct Tables {
    database: Database,
    rows: Keyspace,
}

impl Fjall {
    pub(super) fn open(url: &str) -> Result<Fjall, Error> {
        match url.strip_prefix("fjall:") {
            Some(directory) if !directory.is_empty() => {
                let (owned, flush) = (Mutex::new(None), Arc::default());
                Ok(Fjall { directory: directory.into(), owned, flush })
            }
            _ => Err(Error::new(Kind::Config, format!("{url} names no directory; write fjall:./weir-data"))),
        }
    }

    fn begin_epoch(&self, part: Part) -> Result<Lease, Error> {
        // The engine locks its directory: the handle of an earlier lease has to go first.
        *self.owned.lock() = None;
        let opened = self.open_tables(part).map_err(|error| self.cannot_open(&error))?;
        let (epoch, tables) = opened?;
        *self.owned.lock() = Some((epoch, Arc::new(tables)));
        Ok(Lease { epoch, lost: Box::pin(std::future::pending()) })
    }

    /// Opens the engine and raises the epoch. The inner error: it is not this part.
    fn open_tables(&self, part: Part) -> fjall::Result<Result<(u64, Tables), Error>> {
        let database = Database::builder(&self.directory).open()?;
        let meta = database.keyspace("meta", KeyspaceCreateOptions::default)?;
        let rows = database.keyspace("rows", KeyspaceCreateOptions::default)?;
        let map = meta.get(MAP)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        match part.admit(map.as_deref(), !rows.is_empty()?, &self.shown()) {
            Ok(true) => meta.insert(MAP, part.map())?,
            Ok(false) => {}
            Err(error) => return Ok(Err(error)),
        }
        let last = meta.get(EPOCH)?.and_then(|bytes| bytes.as_ref().try_into().ok());
        let epoch = last.map_or(0, u64::from_be_bytes) + 1;
        meta.insert(EPOCH, epoch.to_be_bytes())?;
        database.persist(PersistMode::SyncAll)?;
        Ok(Ok((epoch, Tables { database, rows })))
    }

    fn shown(&self) -> String {
        format!("fjall:{}", self.directory.display())
    }

    fn cannot_open(&self, error: &fjall::Error) -> Error {
        let shown = self.shown();
        let cause = match error {
            fjall::Error::Locked => {
                let what =
                    format!("another server holds the store {shown}; stop it, or use another directory");
                return Error::new(Kind::Taken, what);
            }
            fjall::Error::Io(cause) => format!("{cause}; name a directory that can be written"),
            other => format!("{other:?}"),
        };
        Error::new(Kind::Config, format!("cannot open the store {shown}: {cause}"))
    }
}

impl Store for Fjall {
    fn acquire(&self, part: Part) -> Answer<'_, Lease> {
        Box::pin(async move { self.begin_epoch(part) })
    }

    fn connect(&self, epoch: u64) -> Answer<'_, Box<dyn Session>> {
        Box::pin(async move {
            match &*self.owned.lock() {
                Some((current, tables)) if *current == epoch => {
                    let (tables, flush) = (Arc::clone(tables), Arc::clone(&self.flush));
                    Ok(Box::new(FjallSession { tables, flush }) as Box<dyn Session>)
                }
                _ => Err(Error::new(Kind::Unavailable, "the embedded store is being opened anew")),
            }
        })
    }

    fn workers(&self) -> Workers {
        // The engine has one journal: a second write worker would only halve the batches.
        Workers { read: 1, write: 1 }
    }

    fn flush(&self) -> Option<Arc<Flush>> {
        Some(Arc::clone(&self.flush))
    }
}

struct FjallSession {
    tables: Arc<Tables>,
    flush: Arc<Flush>,
}

impl FjallSession {
    fn read_now(&self, keys: &[Key]) -> Result<Vec<Option<Row>>, Error> {
        let damaged = || Error::new(Kind::Rejected, "the embedded store holds a damaged row under this key");
        let read = |key: &Key| {
            let found = self.tables.rows.get(key.as_bytes()).map_err(|error| unread(&error))?;
            found.map(|bytes| decode(key, &bytes).ok_or_else(damaged)).transpose()
        };
        keys.iter().map(read).collect()
    }

    fn write_now(&self, writes: &[Write]) -> Result<Vec<Found>, Error> {
        let mut found = Vec::with_capacity(writes.len());
        let mut batch = self.tables.database.batch().durability(Some(PersistMode::SyncData));
        for write in writes {
            let present =
                self.tables.rows.contains_key(write.key.as_bytes()).map_err(|error| unread(&error))?;
            found.push(Found::present(present));
            match &write.change {
                Change::Put(row) => batch.insert(&self.tables.rows, write.key.as_bytes(), encode(row)),
                Change::Delete => batch.remove(&self.tables.rows, write.key.as_bytes()),
            }
        }
        self.flush.in_turn(|| batch.commit()).map_err(|error| uncommitted(&error))?;
        Ok(found)
    }

    fn clear_now(&self) -> Result<(), Error> {
        let clear = || {
            self.tables.rows.clear()?;
            self.tables.database.persist(PersistMode::SyncData)
        };
        self.flush.in_turn(clear).map_err(|error| uncommitted(&error))
    }
}

impl Session for FjallSession {
    fn read<'a>(&'a mut self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Row>>> {
        Box::pin(ready(self.read_now(keys)))
    }

    fn write<'a>(&'a mut self, writes: &'a [Write]) -> Answer<'a, Vec<Found>> {
        Box::pin(ready(self.write_now(writes)))
    }

    fn clear(&mut self) -> Answer<'_, ()> {
        Box::pin(ready(self.clear_now()))
    }
}

fn uncommitted(error: &fjall::Error) -> Error {
    Error::new(Kind::Unknown, format!("the embedded store could not commit: {error:?}"))
}

/// A block that cannot be read fails the reads of its keys. Opening the store anew would not mend it.
fn unread(error: &fjall::Error) -> Error {
    Error::new(Kind::Rejected, format!("the embedded store cannot read: {error:?}"))
}

/// `version` (8 bytes, big endian), length of the content type (1 byte), content type, value.
fn encode(row: &Row) -> Vec<u8> {
    let content_type = row.content_type();
    let mut bytes = Vec::with_capacity(9 + content_type.len() + row.value().len());
    bytes.extend_from_slice(&row.version().0.to_be_bytes());
    bytes.push(content_type.len() as u8);
    bytes.extend_from_slice(content_type);
    bytes.extend_from_slice(row.value());
    bytes
}

/// `None` for what [`encode`] cannot have written.
fn decode(key: &Key, bytes: &[u8]) -> Option<Row> {
    let (version, rest) = bytes.split_first_chunk()?;
    let (&content_type_bytes, rest) = rest.split_first()?;
    let (content_type, value) = rest.split_at_checked(usize::from(content_type_bytes))?;
    let content_type = std::str::from_utf8(content_type).ok()?;
    Some(Row::new(key, content_type, value, Version(u64::from_be_bytes(*version))))
}

#[cfg(test)]
mod tests {
    use super::super::{contract, open};
    use super::*;

    fn url(directory: &tempfile::TempDir) -> String {
        format!("fjall:{}", directory.path().join("store").display())
    }

    #[tokio::test]
    async fn the_embedded_store_keeps_the_contract() {
        let directory = tempfile::tempdir().unwrap();
        contract::all(open(&url(&directory)).unwrap().as_ref()).await;
    }

    #[tokio::test]
    async fn rows_and_epoch_outlive_the_process() {
        let directory = tempfile::tempdir().unwrap();
        contract::survives_reopening(|| open(&url(&directory)).unwrap()).await;
    }

    #[tokio::test]
    async fn a_directory_remembers_which_shard_it_is() {
        let directory = tempfile::tempdir().unwrap();
        contract::remembers_its_part(|| open(&url(&directory)).unwrap()).await;
    }

    /// Directories written before there were maps hold all keys of their server.
    #[tokio::test]
    async fn rows_without_a_map_are_a_whole_store() {
        let directory = tempfile::tempdir().unwrap();
        let half = Part { index: 0, of: 2 };
        {
            let store = Fjall::open(&url(&directory)).unwrap();
            let lease = store.acquire(Part::WHOLE).await.unwrap();
            let key = Key::new(b"a").unwrap();
            let row = Row::new(&key, "", b"1", Version(1));
            let write = Write { key, version: Version(1), change: Change::Put(row) };
            store.connect(lease.epoch).await.unwrap().write(&[write]).await.unwrap();
            let database = store.owned.lock().as_ref().unwrap().1.database.clone();
            let meta = database.keyspace("meta", KeyspaceCreateOptions::default).unwrap();
            meta.remove(MAP).unwrap();
            database.persist(PersistMode::SyncAll).unwrap();
        }
        let refused = open(&url(&directory)).unwrap().acquire(half).await.err().unwrap();
        assert!(refused.to_string().contains("is a whole store, but was given as shard 1 of 2"), "{refused}");
        open(&url(&directory)).unwrap().acquire(Part::WHOLE).await.unwrap();
    }

    #[tokio::test]
    async fn a_directory_in_use_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let first = open(&url(&directory)).unwrap();
        let _held = first.acquire(Part::WHOLE).await.unwrap();
        let second = open(&url(&directory)).unwrap().acquire(Part::WHOLE).await.err().unwrap();
        assert_eq!(second.kind(), Kind::Taken);
        assert!(second.to_string().contains("another server holds"), "{second}");
    }
}
