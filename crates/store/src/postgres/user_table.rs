//! A table of PostgreSQL that others made: what it has to be like, and the statements over it.

use super::{IS_MARKED, Table};
use crate::sql::Setup;
use crate::user_table::{Column, Described, Length, Names, Type, UserTable, VERSIONS, refuse};
use kv::KEY_BYTES_MAX;
use tokio_postgres::{Client, Row};

pub(super) const VERSIONS_TABLE: Table = (
    VERSIONS,
    "key bytea PRIMARY KEY, digest bytea NOT NULL, version bigint NOT NULL, content_type text NOT NULL,
    content_encoding text NOT NULL, expires bigint",
    "CREATE INDEX weir_versions_expires ON weir_versions (expires) WHERE expires IS NOT NULL",
);

const TYPES: [(&str, Type); 9] = [
    ("bytea", Type::Bytes),
    ("text", Type::Text),
    ("varchar", Type::Text),
    ("uuid", Type::Uuid),
    ("int2", Type::Integer(16)),
    ("int4", Type::Integer(32)),
    ("int8", Type::Integer(64)),
    ("json", Type::Json),
    ("jsonb", Type::Jsonb),
];

/// Text as the database takes it, byte by byte in hexadecimal.
const UTF_8: &str = "^(0[1-9a-f]|[1-7].|(c[2-9a-f]|d.|(e0[ab]|e[1-9a-cef][89ab]|ed[89]).|(f0[9ab]|f[1-3][89ab]|f48).[89ab].)[89ab].)*$";

/// Why a row that was written is not there.
pub(super) const LEFT_OUT: &str = "a trigger left a row out, or changed its key";

/// Makes a value of `column` of the bytes `expression`.
fn value_of_bytes(column: &Column, expression: &str) -> String {
    match column.kind {
        Type::Bytes => expression.to_owned(),
        // Its own collation would be that of the encoding's name, and an index has another one.
        _ => format!("(convert_from({expression}, 'UTF8') COLLATE \"default\")::{}", column.type_name),
    }
}

/// Makes bytes of a value of `column`.
fn to_bytes(column: &Column, expression: &str) -> String {
    match column.kind {
        Type::Bytes => expression.to_owned(),
        _ => format!("convert_to({expression}::text, 'UTF8')"),
    }
}

/// What is asked of the table.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) read: String,
    pub(super) value_bytes: String,
    /// Keys, and digests of their values; locks the rows.
    pub(super) look: String,
    /// Rows with keys among the last parameter are written only where there are none, and else left out.
    pub(super) write: String,
    /// Where keys have the order of their bytes.
    pub(super) list: Option<String>,
    pub(super) list_expired: String,
    /// Removes what is kept of values that others have removed, once their lifetimes have ended.
    pub(super) forget_expired: String,
}

/// An identifier.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl UserTable<Statements> {
    /// Looks at the table, and says what it lacks. `others_write`: nothing of it is cached.
    pub(super) async fn examine(client: &Client, names: &Names, others_write: bool) -> Setup<Self> {
        let (shown, table) = (&names.table, names.quoted_table(quoted));
        let what = "SELECT c.oid, c.relkind::text, row_security_active(c.oid), current_user::text,
                has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT')
                AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'),
                c.relpersistence = 'u' OR EXISTS (SELECT FROM pg_partition_tree(c.oid) p JOIN pg_class l ON l.oid = p.relid
                    WHERE l.relpersistence = 'u'),
                c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid),
                (SELECT n.nspname::text FROM pg_namespace n WHERE n.oid = c.relnamespace), c.relname::text
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
        if found.get(5) {
            return refuse(format!(
                "{shown} is unlogged: a crash of the server empties it; run ALTER TABLE {table} SET LOGGED"
            ));
        }
        if found.get(6) {
            return refuse(format!(
                "other tables inherit from {shown}: a key may be in several of them; give a table without such"
            ));
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
                a.atthasdef OR a.attidentity <> '', a.attgenerated <> '' OR a.attidentity = 'a',
                coalesce(c.collisdeterministic, true),
                EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indisvalid
                    AND i.indimmediate AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum),
                CASE WHEN t.typname = 'varchar' AND a.atttypmod > 0 THEN a.atttypmod - 4 END
            FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
            LEFT JOIN pg_collation c ON c.oid = a.attcollation
            WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
        let columns = client.query(columns, &[&oid]).await?;
        let described: Vec<Described> = columns.iter().map(described).collect();
        let find = |name: &str| {
            let remedy = "name another, or make an identity GENERATED BY DEFAULT";
            Described::find(&described, shown, name, remedy)
        };
        let (key, value) = (find(&names.key)?, find(&names.value)?);
        let name = &key.name;
        let of_key = columns.iter().find(|column| column.get::<_, &str>(0) == names.key);
        let (is_deterministic, is_unique) =
            of_key.map_or((false, false), |column| (column.get(5), column.get(6)));
        if !is_unique {
            return refuse(format!(
                "the column {name} of {shown} is not unique by itself; run CREATE UNIQUE INDEX ON {table} ({})",
                quoted(name)
            ));
        }
        if !is_deterministic {
            return refuse(format!(
                "the column {name} of {shown} takes different keys as equal (its collation is not deterministic); give it another"
            ));
        }
        let is_key = |kind: Type| !matches!(kind, Type::Json | Type::Jsonb);
        let keys = "keys are bytea, text, varchar, uuid, int2, int4 or int8";
        let key = key.column(shown, is_key, keys)?;
        if value.kind == Some(Type::Jsonb) && !others_write {
            return refuse(format!(
                "the database changes the bytes of the values in {} of {shown}, which is jsonb; make it json, or add --foreign-writers, which caches nothing",
                value.name
            ));
        }
        let is_value = |kind: Type| matches!(kind, Type::Bytes | Type::Text | Type::Json | Type::Jsonb);
        let value = value.column(shown, is_value, "values are bytea, text, varchar, json or jsonb")?;
        names.check_others(&described, &table, quoted)?;
        let mark = names.mark(found.get(7), found.get(8));
        let statements = Statements::of(&table, &key, &value);
        Ok(UserTable { shown: shown.clone(), table, key, value, mark, statements })
    }

    /// Refuses `weir_versions` of the store `store` if it is marked as that of another table.
    pub(super) async fn check_versions(&self, client: &Client, store: &str) -> Setup<()> {
        match client.query_opt("SELECT digest FROM weir_versions WHERE key = ''", &[]).await? {
            Some(marked) => self.check_mark(marked.try_get(0)?, store, "key"),
            None => Ok(()),
        }
    }

    /// Marks it as that of this table, and the events that are kept as those of its rows: those of others go.
    pub(super) async fn take_versions(&self, client: &Client) -> Setup<()> {
        client.execute(&format!("DELETE FROM weir_events WHERE NOT {IS_MARKED}"), &[]).await?;
        let mark = "INSERT INTO weir_versions VALUES ('', $1, 0, '', '', NULL) ON CONFLICT (key) DO UPDATE SET version = 0";
        client.execute(mark, &[&self.mark]).await?;
        Ok(())
    }
}

/// A row of what is asked of the columns.
fn described(row: &Row) -> Described {
    let type_name: String = row.get(1);
    let kind = TYPES.iter().find(|(known, _)| *known == type_name).map(|(_, kind)| *kind);
    let is_generated: bool = row.get(4);
    Described {
        name: row.get(0),
        type_name,
        kind,
        length_max: row.get::<_, Option<i32>>(7).map(|most| Length::Characters(most as u64)),
        is_filled: !row.get::<_, bool>(2) || row.get(3) || is_generated,
        is_generated,
    }
}

impl Statements {
    fn of(table: &str, key: &Column, value: &Column) -> Statements {
        let (k, v) = (quoted(&key.name), quoted(&value.name));
        // Within statements the table is `t`, and `weir_versions` is `s`.
        let (sql_key, sql_value) = (format!("t.{k}"), format!("t.{v}"));
        let (key_out, value_out) = (to_bytes(key, &sql_key), to_bytes(value, &sql_value));
        let there = format!("{sql_value} IS NOT NULL");
        // What is noted of another value is not joined: so the digest, which costs most, is computed once for a row.
        let rows = format!(
            "{table} t LEFT JOIN {VERSIONS} s ON s.key = {key_out} AND s.digest = sha256({value_out})"
        );
        let default = value.kind.content_type();
        // What a row is to weir: the columns of [`row_of`], the value apart.
        let columns = |value: &str| {
            format!(
                "{key_out}, {value}, coalesce(s.content_type, '{default}'), coalesce(s.version,
                ('x' || substr(encode(sha256({value_out}), 'hex'), 1, 16))::bit(64)::bigint & 8796093022207),
            coalesce(s.content_encoding, ''), s.expires"
            )
        };
        // Whether the key is one of `list`, an array of bytes.
        let is_in = |list: &str| {
            let key = value_of_bytes(key, "x");
            format!("{sql_key} = ANY (ARRAY(SELECT {key} FROM unnest({list}::bytea[]) x))")
        };
        let (all, sizes) = (columns(&value_out), columns(&format!("octet_length({value_out})")));
        // A column: in a comparison it takes the collation of the table's key, and so its index.
        let noted = format!("(SELECT *, {} AS noted FROM {VERSIONS} s) s", noted_key(key));
        let is_live = "(s.expires IS NULL OR s.expires > $3)";
        // One that is no key of weir's does not count.
        let list = format!(
            "SELECT {sizes} FROM {rows} WHERE {there} AND {sql_key} >= $1 AND {sql_key} < $2
            AND octet_length({sql_key}) BETWEEN 1 AND {KEY_BYTES_MAX} AND {is_live} ORDER BY {sql_key} LIMIT $4"
        );
        let list_expired = format!(
            "SELECT {sizes} FROM {noted} JOIN {table} t ON {sql_key} = s.noted
            WHERE s.expires <= $1 AND s.expires IS NOT NULL AND s.digest = sha256({value_out}) LIMIT $2"
        );
        // Only what was seen: a write may have come between.
        let forget_expired = format!(
            "DELETE FROM {VERSIONS} o USING (SELECT s.key, s.version FROM {noted}
                WHERE s.expires <= $1 AND s.expires IS NOT NULL AND NOT EXISTS
                    (SELECT FROM {table} t WHERE {sql_key} = s.noted AND s.digest = sha256({value_out})) LIMIT $2) x
            WHERE o.key = x.key AND o.version = x.version AND o.expires <= $1"
        );
        let may_replace = format!("{key_out} <> ALL ($8::bytea[])");
        let written = format!(
            "{key_out} AS key, sha256({value_out}) AS digest,
            EXISTS (SELECT FROM {table} b WHERE b.{k} = t.{k} AND b.{v} IS NOT NULL) AS present"
        );
        // An insert takes a number of a sequence also for a row that is there, so it is only of those that are not; it replaces what
        // others make meanwhile. Not by a join: its plan depends on how many rows there were when it was made.
        let write = format!(
            "WITH replaced AS (
                UPDATE {table} t SET {v} = {} WHERE {} AND {may_replace} RETURNING {written}
            ), made AS (
                INSERT INTO {table} AS t ({k}, {v})
                SELECT {}, {} FROM unnest($1::bytea[], $2::bytea[]) x (k, v)
                WHERE x.k NOT IN (SELECT key FROM replaced)
                ON CONFLICT ({k}) DO UPDATE SET {v} = excluded.{v} WHERE {may_replace} RETURNING {written}
            ), came AS (
                TABLE replaced UNION ALL TABLE made
            ), noted AS (
                INSERT INTO {VERSIONS} (key, digest, version, content_type, content_encoding, expires)
                SELECT c.key, c.digest, x.version, x.type, x.encoding, x.expires
                FROM came c JOIN unnest($1::bytea[], $3::text[], $4::bigint[], $5::text[], $6::bigint[])
                    x (key, type, version, encoding, expires) ON x.key = c.key
                ON CONFLICT (key) DO UPDATE SET digest = excluded.digest, version = excluded.version,
                    content_type = excluded.content_type, content_encoding = excluded.content_encoding,
                    expires = excluded.expires
                RETURNING key
            ), gone AS (
                DELETE FROM {table} t WHERE {} RETURNING {key_out} AS key, {there} AS present
            ), forgotten AS (
                DELETE FROM {VERSIONS} WHERE key = ANY ($7)
            )
            SELECT key, present FROM came UNION ALL SELECT key, present FROM gone
            UNION ALL SELECT ''::bytea, false WHERE NOT (CASE
                WHEN (SELECT count(*) FROM noted) = cardinality($1::bytea[]) OR cardinality($8::bytea[]) > 0
                THEN 'true' ELSE '{LEFT_OUT}' END)::boolean",
            value_of_bytes(value, &format!("($2::bytea[])[array_position($1::bytea[], {key_out})]")),
            is_in("$1"),
            value_of_bytes(key, "x.k"),
            value_of_bytes(value, "x.v"),
            is_in("$7"),
        );
        let read = format!("SELECT {all} FROM {rows} WHERE {there} AND {}", is_in("$1"));
        let look = format!(
            "SELECT {key_out}, sha256({value_out}) FROM {table} t WHERE {} ORDER BY {sql_key} FOR UPDATE",
            is_in("$1")
        );
        let list = (key.kind == Type::Bytes).then_some(list);
        let value_bytes = format!(
            "SELECT coalesce(sum(octet_length({value_out})), 0)::bigint FROM {table} t WHERE {there} AND {}",
            is_in("$1")
        );
        Statements { read, value_bytes, look, write, list, list_expired, forget_expired }
    }
}

/// The key of a row of `weir_versions`, as `s`. `NULL`: of an earlier table, and no key of this one.
fn noted_key(key: &Column) -> String {
    let text = "encode(s.key, 'escape')";
    match key.kind {
        Type::Integer(_) => format!(
            "CASE WHEN {text} !~ '^-?[0-9]{{1,19}}$' THEN NULL
                WHEN {text}::numeric BETWEEN {} AND {} THEN {text}::bigint END",
            i64::MIN,
            i64::MAX
        ),
        Type::Uuid => format!(
            "CASE WHEN {text} ~ '^[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}$' THEN {text}::uuid END"
        ),
        Type::Bytes => "s.key".to_owned(),
        _ => {
            format!("CASE WHEN encode(s.key, 'hex') ~ '{UTF_8}' THEN {} END", value_of_bytes(key, "s.key"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("my\"table"), "\"my\"\"table\"");
    }
}
