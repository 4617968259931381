//! A table that others made, as the store: its rows stay theirs, and what weir adds stands in the table `weir_versions`.
//!
//! A row of `weir_versions` has the SHA-256 of the value that it is about. While the value is still that one, the version, the
//! content type and the rest there are the row's. Otherwise somebody else has written the value: then its version is 43 bits of its
//! hash, in the epoch 0 that no lease has.
//!
//! So others may write at any time. A write that was decided by what was read locks what it read, and is rolled back if that
//! has changed; the batcher then decides anew.

use super::refuse;
use super::session::{by_key, row_of};
use crate::sql::{Failure, Meaning, Setup, Step};
use crate::store_url::StoreUrl;
use crate::{Answer, Error, Found, Kind, Listed, Listing, Session};
use kv::{Change, Key, Row, Write};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio::task::JoinHandle;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

/// The parameters of a URL that name it.
pub(super) const PARAMETERS: [&str; 3] = ["table", "key", "value"];

pub(super) const VERSIONS: &str = "weir_versions";
pub(super) const VERSIONS_TABLE: &str = "CREATE TABLE weir_versions (
        key bytea PRIMARY KEY,
        digest bytea NOT NULL,
        version bigint NOT NULL,
        content_type text NOT NULL,
        content_encoding text NOT NULL,
        expires bigint
    );
    CREATE INDEX weir_versions_expires ON weir_versions (expires) WHERE expires IS NOT NULL";

/// What the URL says of it.
#[derive(Debug)]
pub(super) struct Names {
    table: String,
    key: String,
    value: String,
}

impl Names {
    pub(super) fn of(url: &mut StoreUrl) -> Result<Option<Names>, String> {
        match PARAMETERS.map(|name| url.take(name)) {
            [None, None, None] => Ok(None),
            [Some(table), Some(key), Some(value)] => Ok(Some(Names { table, key, value })),
            _ => Err("table, key and value go together: write table=NAME&key=COLUMN&value=COLUMN".into()),
        }
    }
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Bytes,
    Text,
    Uuid,
    /// With so many bits.
    Integer(u32),
    Json,
    /// The database writes these values anew.
    Jsonb,
}

const TYPES: [(&str, Type); 8] = [
    ("bytea", Type::Bytes),
    ("text", Type::Text),
    ("varchar", Type::Text),
    ("uuid", Type::Uuid),
    ("int2", Type::Integer(16)),
    ("int4", Type::Integer(32)),
    ("int8", Type::Integer(64)),
    ("json", Type::Json),
];

#[derive(Clone, Debug)]
struct Column {
    name: String,
    /// What the database calls its type.
    type_name: String,
    kind: Type,
}

impl Column {
    /// Makes a value of the column of the bytes `expression`.
    fn value_of_bytes(&self, expression: &str) -> String {
        match self.kind {
            Type::Bytes => expression.to_owned(),
            // Its own collation would be that of the encoding's name, and an index has another one.
            _ => format!("(convert_from({expression}, 'UTF8') COLLATE \"default\")::{}", self.type_name),
        }
    }

    /// Makes bytes of a value of the column.
    fn to_bytes(&self, expression: &str) -> String {
        match self.kind {
            Type::Bytes => expression.to_owned(),
            _ => format!("convert_to({expression}::text, 'UTF8')"),
        }
    }
}

/// The table, and what can be in it.
#[derive(Debug)]
pub(super) struct UserTable {
    /// For messages.
    shown: String,
    /// Within statements.
    pub(super) table: String,
    key: Column,
    value: Column,
    /// The key and the value within statements, where the table is `t`.
    sql_key: String,
    sql_value: String,
}

/// An identifier, or a schema and one.
fn quoted(name: &str) -> String {
    let quote = |part: &str| format!("\"{}\"", part.replace('"', "\"\""));
    name.splitn(2, '.').map(quote).collect::<Vec<_>>().join(".")
}

impl UserTable {
    /// Looks at the table, and says what it lacks. `others_write`: nothing of it is cached.
    pub(super) async fn examine(client: &Client, names: &Names, others_write: bool) -> Setup<UserTable> {
        let (shown, table) = (&names.table, quoted(&names.table));
        let what = "SELECT c.oid, c.relkind::text, row_security_active(c.oid), current_user::text,
                has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
                AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE')
            FROM pg_class c WHERE c.oid = to_regclass($1)";
        let Some(found) = client.query_opt(what, &[&table]).await? else {
            return refuse(format!(
                "there is no table {shown}; names are exact, also in capitals and schema"
            ));
        };
        let (oid, kind, user): (u32, &str, &str) = (found.get(0), found.get(1), found.get(3));
        if !["r", "p"].contains(&kind) {
            return refuse(format!("{shown} is no plain table; give a table, not a view or an index"));
        }
        if !found.get::<_, bool>(4) {
            let grant = format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {}", quoted(user));
            return refuse(format!("{user} lacks rights on the table {shown}; run {grant}"));
        }
        if found.get(2) {
            return refuse(format!(
                "row-level security hides rows of {shown} from {user}; use its owner, or a role with BYPASSRLS"
            ));
        }
        let columns = "SELECT a.attname::text, t.typname::text, a.attnotnull,
                a.atthasdef OR a.attidentity <> '', a.attgenerated <> '', coalesce(c.collisdeterministic, true),
                EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid
                    AND i.indimmediate AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum)
            FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            LEFT JOIN pg_collation c ON c.oid = a.attcollation
            WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
        let columns = client.query(columns, &[&oid]).await?;
        let find = |name: &str| {
            let known =
                || columns.iter().map(|column| column.get::<_, &str>(0)).collect::<Vec<_>>().join(", ");
            columns.iter().find(|column| column.get::<_, &str>(0) == name).ok_or_else(|| {
                Error::new(Kind::Config, format!("{shown} has no column {name}; it has {}", known()))
            })
        };
        let column = |row: &tokio_postgres::Row| {
            let (name, type_name): (String, String) = (row.get(0), row.get(1));
            let kind = TYPES.iter().find(|(known, _)| *known == type_name).map(|(_, kind)| *kind);
            let kind = kind.or((type_name == "jsonb").then_some(Type::Jsonb));
            (name, type_name, kind)
        };
        let (key, value) = (find(&names.key)?, find(&names.value)?);
        if let Some(side) = [key, value].into_iter().find(|side| side.get(4)) {
            let name: &str = side.get(0);
            return refuse(format!(
                "the column {name} of {shown} is generated, so it cannot be written; name another"
            ));
        }
        let key = match (column(key), key.get::<_, bool>(5), key.get::<_, bool>(6)) {
            ((name, _, _), _, false) => {
                return refuse(format!(
                    "the column {name} of {shown} is not unique by itself; run CREATE UNIQUE INDEX ON {table} ({})",
                    quoted_column(&name)
                ));
            }
            ((name, ..), false, _) => {
                return refuse(format!(
                    "the column {name} of {shown} takes different keys as equal (its collation is not deterministic); give it another"
                ));
            }
            ((name, type_name, Some(kind)), ..) if !matches!(kind, Type::Json | Type::Jsonb) => {
                Column { name, type_name, kind }
            }
            ((name, type_name, _), ..) => {
                return refuse(format!(
                    "the column {name} of {shown} is {type_name}; keys are bytea, text, varchar, uuid, int2, int4 or int8"
                ));
            }
        };
        let value = match column(value) {
            (name, _, Some(Type::Jsonb)) if !others_write => {
                return refuse(format!(
                    "the database changes the bytes of the values in {name} of {shown}, which is jsonb; make it json, or add --foreign-writers, which caches nothing"
                ));
            }
            (name, type_name, Some(kind @ (Type::Bytes | Type::Text | Type::Json | Type::Jsonb))) => {
                Column { name, type_name, kind }
            }
            (name, type_name, _) => {
                return refuse(format!(
                    "the column {name} of {shown} is {type_name}; values are bytea, text, varchar, json or jsonb"
                ));
            }
        };
        for other in &columns {
            let name: &str = other.get(0);
            let is_filled = !other.get::<_, bool>(2) || other.get(3) || other.get(4);
            if !is_filled && name != key.name && name != value.name {
                return refuse(format!(
                    "the column {name} of {shown} is NOT NULL without a default, so no row can be made; run ALTER TABLE {table} ALTER {} SET DEFAULT …",
                    quoted_column(name)
                ));
            }
        }
        let (sql_key, sql_value) =
            (format!("t.{}", quoted_column(&key.name)), format!("t.{}", quoted_column(&value.name)));
        Ok(UserTable { shown: shown.clone(), table, key, value, sql_key, sql_value })
    }

    /// Why there is never such a row, if that is so.
    pub(super) fn refuses(&self, key: &Key, row: Option<&Row>) -> Option<Error> {
        let unfit = |what: &str, column: &Column| {
            let Column { name, type_name, .. } = column;
            let why =
                format!("the {what} does not fit the column {name} of {}, which is {type_name}", self.shown);
            Some(Error::new(Kind::Unfit, why))
        };
        if !fits(self.key.kind, key.as_bytes()) {
            return unfit("key", &self.key);
        }
        row.filter(|row| !fits(self.value.kind, row.value())).and_then(|_| unfit("value", &self.value))
    }

    /// What a row of the table `t` with `weir_versions` as `s` is to weir: the columns of [`row_of`], the value apart.
    fn columns(&self, value: &str) -> String {
        let (key, bytes) = (self.key.to_bytes(&self.sql_key), self.value.to_bytes(&self.sql_value));
        let default = match self.value.kind {
            Type::Json | Type::Jsonb => "application/json",
            Type::Text => "text/plain; charset=utf-8",
            _ => "",
        };
        let is_known = format!("s.digest = sha256({bytes})");
        format!(
            "{key}, {value}, CASE WHEN {is_known} THEN s.content_type ELSE '{default}' END,
            CASE WHEN {is_known} THEN s.version ELSE
                ('x' || substr(encode(sha256({bytes}), 'hex'), 1, 16))::bit(64)::bigint & 8796093022207 END,
            CASE WHEN {is_known} THEN s.content_encoding ELSE '' END, CASE WHEN {is_known} THEN s.expires END"
        )
    }

    /// The rows of both tables.
    fn rows(&self) -> String {
        let key = self.key.to_bytes(&self.sql_key);
        format!("{} t LEFT JOIN {VERSIONS} s ON s.key = {key}", self.table)
    }

    /// Whether the key is one of `list`, an array of bytes.
    fn is_in(&self, list: &str) -> String {
        format!(
            "{} = ANY (ARRAY(SELECT {} FROM unnest({list}::bytea[]) x))",
            self.sql_key,
            self.key.value_of_bytes("x")
        )
    }

    pub(super) async fn session(
        self: Arc<Self>,
        store: Arc<str>,
        client: Client,
        ended: JoinHandle<String>,
    ) -> Setup<Box<dyn Session>> {
        let UserTable { table, key, value, sql_key, sql_value, .. } = &*self;
        let (key_out, value_out) = (key.to_bytes(sql_key), value.to_bytes(sql_value));
        let (rows, there) = (self.rows(), format!("{sql_value} IS NOT NULL"));
        let (columns, sizes) =
            (self.columns(&value_out), self.columns(&format!("octet_length({value_out})")));
        let is_live = format!("(s.expires IS NULL OR s.expires > $3 OR s.digest <> sha256({value_out}))");
        let list = format!(
            "SELECT {sizes} FROM {rows} WHERE {there} AND {sql_key} >= $1 AND {sql_key} < $2 AND {is_live} ORDER BY {sql_key} LIMIT $4"
        );
        let list_expired = format!(
            "SELECT {sizes} FROM {VERSIONS} s JOIN {table} t ON {sql_key} = {}
            WHERE s.expires <= $1 AND s.expires IS NOT NULL AND s.digest = sha256({value_out}) LIMIT $2",
            key.value_of_bytes("s.key")
        );
        let (k, v) = (quoted_column(&key.name), quoted_column(&value.name));
        let write = format!(
            "WITH came AS (
                INSERT INTO {table} AS t ({k}, {v})
                SELECT {}, {} FROM unnest($1::bytea[], $2::bytea[]) x (k, v)
                ON CONFLICT ({k}) DO UPDATE SET {v} = excluded.{v}
                RETURNING {key_out} AS key, xmax <> 0 AS present, sha256({value_out}) AS digest
            ), noted AS (
                INSERT INTO {VERSIONS} (key, digest, version, content_type, content_encoding, expires)
                SELECT c.key, c.digest, x.version, x.type, x.encoding, x.expires
                FROM came c JOIN unnest($1::bytea[], $3::text[], $4::bigint[], $5::text[], $6::bigint[])
                    x (key, type, version, encoding, expires) ON x.key = c.key
                ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, version = excluded.version,
                    content_type = excluded.content_type, content_encoding = excluded.content_encoding,
                    expires = excluded.expires
            ), gone AS (
                DELETE FROM {table} t WHERE {} RETURNING {key_out} AS key
            ), forgotten AS (
                DELETE FROM {VERSIONS} WHERE key = ANY ($7)
            )
            SELECT key, present FROM came UNION ALL SELECT key, true FROM gone",
            key.value_of_bytes("x.k"),
            value.value_of_bytes("x.v"),
            self.is_in("$7"),
        );
        let read = format!("SELECT {columns} FROM {rows} WHERE {there} AND {}", self.is_in("$1"));
        let look = format!(
            "SELECT {key_out}, sha256({value_out}) FROM {table} t WHERE {} ORDER BY {sql_key} FOR UPDATE",
            self.is_in("$1")
        );
        let lists = key.kind == Type::Bytes;
        // It costs more than the statements, each of which is of few rows.
        client.batch_execute("SET jit = off").await?;
        Ok(Box::new(UserTableSession {
            read: client.prepare(&read).await?,
            look: client.prepare(&look).await?,
            write: client.prepare(&write).await?,
            list: if lists {
                Some((client.prepare(&list).await?, client.prepare(&list_expired).await?))
            } else {
                None
            },
            table: Arc::clone(&self),
            store,
            client,
            ended,
            decides: false,
            seen: HashMap::new(),
        }))
    }
}

fn quoted_column(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Whether a column of this type has exactly these bytes as the text of a value.
fn fits(kind: Type, bytes: &[u8]) -> bool {
    let text = || std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    match kind {
        Type::Bytes => true,
        Type::Text | Type::Json | Type::Jsonb => text().is_some(),
        Type::Integer(bits) => {
            let number =
                text().and_then(|text| text.parse::<i64>().ok().filter(|number| number.to_string() == text));
            number.is_some_and(|number| number >> (bits - 1) == number >> 63)
        }
        Type::Uuid => {
            let is_dash = |at| [8, 13, 18, 23].contains(&at);
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            bytes.len() == 36
                && bytes
                    .iter()
                    .enumerate()
                    .all(|(at, byte)| if is_dash(at) { *byte == b'-' } else { is_digit(*byte) })
        }
    }
}

struct UserTableSession {
    table: Arc<UserTable>,
    store: Arc<str>,
    client: Client,
    ended: JoinHandle<String>,
    read: Statement,
    look: Statement,
    write: Statement,
    /// Of rows that have not expired, and of those that have.
    list: Option<(Statement, Statement)>,
    /// Whether what is read now decides the next write.
    decides: bool,
    /// What that was: the versions that were found.
    seen: HashMap<Key, Option<Row>>,
}

impl UserTableSession {
    async fn read_now(&mut self, keys: &[Key]) -> Result<Vec<Option<Row>>, tokio_postgres::Error> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let bytes: Vec<&[u8]> = keys.iter().map(Key::as_bytes).collect();
        let found = self.client.query(&self.read, &[&bytes]).await?;
        let found = by_key(&found)?;
        let row = |key: &Key| {
            let Some(row) = found.get(key.as_bytes()) else { return Ok(None) };
            row_of(key, row.try_get(1)?, row).map(Some)
        };
        let rows: Vec<Option<Row>> = keys.iter().map(row).collect::<Result<_, _>>()?;
        if self.decides {
            self.seen.extend(keys.iter().cloned().zip(rows.iter().cloned()));
        }
        Ok(rows)
    }

    async fn list_now(&self, listing: &Listing) -> Result<Vec<Listed>, Error> {
        let Some((list, list_expired)) = &self.list else {
            let Column { name, type_name, .. } = &self.table.key;
            let why = format!(
                "keys are listed in the order of their bytes, which the column {name} does not have: it is {type_name}, not bytea"
            );
            return Err(Error::new(Kind::Rejected, why));
        };
        let (now, limit) = (listing.now.0 as i64, listing.limit as i64);
        let found = if listing.expired {
            self.client.query(list_expired, &[&now, &limit]).await
        } else {
            self.client.query(list, &[&listing.from, &listing.end(), &now, &limit]).await
        };
        let failed = |error: tokio_postgres::Error| Failure::from(error).of(&self.store, Step::Read);
        let mut listed = Vec::new();
        for row in &found.map_err(failed)? {
            let Some(key) = Key::new(row.try_get(0).map_err(failed)?) else { continue };
            let value_bytes = row.try_get::<_, i32>(1).map_err(failed)? as u64;
            listed.push(Listed { row: row_of(&key, b"", row).map_err(failed)?, value_bytes });
        }
        Ok(listed)
    }

    /// Locks what the writes were decided by. The keys of the rows that there are, also without a value; `None`: something has changed.
    async fn lock_seen(&self) -> Result<Option<HashSet<Vec<u8>>>, tokio_postgres::Error> {
        let keys: Vec<&[u8]> = self.seen.keys().map(Key::as_bytes).collect();
        let found = self.client.query(&self.look, &[&keys]).await?;
        let found = by_key(&found)?;
        for (key, seen) in &self.seen {
            let now = match found.get(key.as_bytes()) {
                Some(row) => row.try_get::<_, Option<&[u8]>>(1)?.map(<[u8]>::to_vec),
                None => None,
            };
            if now != seen.as_ref().map(|row| digest(row.value())) {
                return Ok(None);
            }
        }
        Ok(Some(found.keys().map(|key| key.to_vec()).collect()))
    }

    async fn write_now(&mut self, writes: &[Write]) -> Result<Vec<Found>, Error> {
        if writes.is_empty() {
            return Ok(Vec::new());
        }
        let is_decided = !self.seen.is_empty();
        if is_decided {
            let begun = self.client.batch_execute("BEGIN").await;
            begun.map_err(|error| Failure::from(error).of(&self.store, Step::Write))?;
        }
        let found = self.apply(writes).await;
        if !is_decided {
            return found;
        }
        match found {
            Ok(found) => {
                let done = self.client.batch_execute("COMMIT").await;
                done.map_err(|error| Failure::from(error).and_ended().of(&self.store, Step::Commit))?;
                Ok(found)
            }
            Err(error) if error.kind().ends_session() => Err(error),
            Err(error) => {
                let done = self.client.batch_execute("ROLLBACK").await;
                done.map_err(|error| Failure::from(error).and_ended().of(&self.store, Step::Write))?;
                Err(error)
            }
        }
    }

    /// The statement that writes; where something decided the writes, that comes first and a commit has to follow.
    async fn apply(&self, writes: &[Write]) -> Result<Vec<Found>, Error> {
        let step = if self.seen.is_empty() { Step::Commit } else { Step::Write };
        let failed = |error: tokio_postgres::Error| self.failure(error, step);
        let changed_since = || {
            let why = "another program changed a row meanwhile".to_owned();
            Failure::Database(Meaning::RolledBack, why).of(&self.store, Step::Write)
        };
        let mut locked = HashSet::new();
        if !self.seen.is_empty() {
            locked = self.lock_seen().await.map_err(failed)?.ok_or_else(changed_since)?;
        }
        let mut gone: Vec<&[u8]> = Vec::new();
        let (mut keys, mut values, mut types) = (vec![], vec![], vec![]);
        let (mut versions, mut encodings, mut ends) = (vec![], vec![], vec![]);
        for write in writes {
            match &write.change {
                Change::Put(row) => {
                    let attributes = row.attributes();
                    keys.push(write.key.as_bytes());
                    values.push(row.value());
                    types.push(attributes.content_type);
                    versions.push(write.version.0 as i64);
                    encodings.push(attributes.content_encoding);
                    ends.push(attributes.expires.map(|at| at.0 as i64));
                }
                Change::Delete => gone.push(write.key.as_bytes()),
            }
        }
        let all: [&(dyn ToSql + Sync); 7] = [&keys, &values, &types, &versions, &encodings, &ends, &gone];
        let changed = self.client.query(&self.write, &all).await.map_err(failed)?;
        let changed =
            by_key(&changed).map_err(|error| Failure::from(error).and_ended().of(&self.store, step))?;
        let mut found = Vec::with_capacity(writes.len());
        for write in writes {
            let is_present = changed.get(write.key.as_bytes()).is_some_and(|row| row.get(1));
            let is_put = matches!(write.change, Change::Put(_));
            // It came between the look, which cannot lock what is not there, and the write.
            let is_new = self.seen.contains_key(&write.key) && !locked.contains(write.key.as_bytes());
            if is_put && is_present && is_new {
                return Err(changed_since());
            }
            found.push(Found::present(is_present));
        }
        Ok(found)
    }

    /// What the table does not take is the fault of who sent it.
    fn failure(&self, error: tokio_postgres::Error, step: Step) -> Error {
        let refusal = error.as_db_error().map(|refusal| refusal.message().to_owned());
        match (Failure::from(error), refusal) {
            (Failure::Database(Meaning::Unfit, _), Some(why)) => {
                Error::new(Kind::Unfit, format!("the table {} refuses it: {why}", self.table.shown))
            }
            (failure, _) => failure.of(&self.store, step),
        }
    }
}

fn digest(value: &[u8]) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    Sha256::digest(value).to_vec()
}

impl Drop for UserTableSession {
    fn drop(&mut self) {
        self.ended.abort();
    }
}

impl Session for UserTableSession {
    fn read<'a>(&'a mut self, keys: &'a [Key]) -> Answer<'a, Vec<Option<Row>>> {
        Box::pin(async {
            let store = Arc::clone(&self.store);
            self.read_now(keys).await.map_err(|error| Failure::from(error).of(&store, Step::Read))
        })
    }

    fn begin_decision(&mut self) {
        self.decides = true;
        self.seen.clear();
    }

    fn write<'a>(&'a mut self, writes: &'a [Write]) -> Answer<'a, Vec<Found>> {
        Box::pin(async {
            let found = self.write_now(writes).await;
            self.decides = false;
            self.seen.clear();
            found
        })
    }

    fn list<'a>(&'a mut self, listing: &'a Listing) -> Answer<'a, Vec<Listed>> {
        Box::pin(self.list_now(listing))
    }

    fn clear(&mut self) -> Answer<'_, ()> {
        Box::pin(async {
            let both = format!(
                "SET enable_seqscan = on; WITH gone AS (DELETE FROM {VERSIONS}) DELETE FROM {}",
                self.table.table
            );
            let cleared = self.client.batch_execute(&both).await;
            cleared.map_err(|error| Failure::from(error).of(&self.store, Step::Commit))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_fits_a_column_only_in_the_form_that_comes_back() {
        for (kind, fit, unfit) in [
            (Type::Bytes, &["", "\0", "x"][..], &[][..]),
            (Type::Text, &["a", "ü"], &["a\0"]),
            (
                Type::Integer(16),
                &["0", "-32768", "32767"],
                &["32768", "-32769", "+1", "01", "-0", " 1", "", "x"],
            ),
            (Type::Integer(64), &["9223372036854775807"], &["9223372036854775808"]),
            (
                Type::Uuid,
                &["01234567-89ab-cdef-0123-456789abcdef"],
                &[
                    "01234567-89AB-cdef-0123-456789abcdef",
                    "0123456789abcdef0123456789abcdef",
                    "0123456-789ab-cdef-0123-456789abcdef",
                ],
            ),
        ] {
            assert!(fit.iter().all(|text| fits(kind, text.as_bytes())), "{kind:?}");
            assert!(unfit.iter().all(|text| !fits(kind, text.as_bytes())), "{kind:?}");
        }
        assert!(!fits(Type::Text, b"\xff"));
    }

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("app.my\"table"), "\"app\".\"my\"\"table\"");
    }
}
