//! A table of MySQL or MariaDB that others made: what it has to be like, and the statements over it.

use super::{IS_MARKED, Table, first};
use crate::sql::Setup;
use crate::user_table::{Column, Described, Length, Names, Type, UserTable, VERSIONS, refuse};
use kv::KEY_BYTES_MAX;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;

pub(super) const VERSIONS_TABLE: Table = (
    VERSIONS,
    "`key` VARBINARY(1024) NOT NULL PRIMARY KEY, digest BINARY(32) NOT NULL, version BIGINT NOT NULL,
    content_type VARBINARY(255) NOT NULL, content_encoding VARBINARY(64) NOT NULL, expires BIGINT,
    INDEX weir_versions_expires (expires)",
);

/// What is asked of the table `t` with `weir_versions` as `s`. Those that end with a column go on with keys.
#[derive(Debug)]
pub(super) struct Statements {
    /// Makes a key of a parameter, which has its bytes.
    pub(super) key: String,
    pub(super) read: String,
    pub(super) value_bytes: String,
    /// Key and digest, `NULL` without a value.
    pub(super) look: String,
    pub(super) list: String,
    pub(super) list_expired: String,
    /// Keys and versions of values that others have removed, once their lifetimes have ended.
    pub(super) list_forgotten: String,
    /// Followed by rows.
    pub(super) insert: String,
    pub(super) insert_row: String,
    /// And then this, where the row is there.
    pub(super) replace: String,
    pub(super) delete: String,
}

/// An identifier.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

impl UserTable<Statements> {
    /// Looks at the table, and says what it lacks.
    pub(super) async fn examine(connection: &mut Conn, names: &Names) -> Setup<Self> {
        let shown = &names.table;
        let (schema, name) = match names.table.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, names.table.as_str()),
        };
        let table = names.quoted_table(quoted);
        // Its own database may be restored under another name.
        let what = "SELECT table_type, engine, CURRENT_USER(), IF(table_schema = DATABASE(), '', table_schema), table_name
            FROM information_schema.tables WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?";
        let found: Option<(String, Option<String>, String, String, String)> =
            connection.exec_first(what, (schema, name)).await?;
        let Some((kind, engine, user, schema_found, name_found)) = found else {
            return refuse(format!("there is no table {shown}, or this user has no right on it"));
        };
        if kind != "BASE TABLE" {
            return refuse(format!("{shown} is no plain table; give a table, not a view"));
        }
        if engine.as_deref() != Some("InnoDB") {
            let engine = engine.unwrap_or_default();
            return refuse(format!(
                "the table {shown} has the engine {engine}, without transactions; run ALTER TABLE {table} ENGINE = InnoDB"
            ));
        }
        let columns = "SELECT column_name, data_type, character_set_name, collation_name,
                is_nullable = 'YES' OR column_default IS NOT NULL OR extra LIKE '%auto_increment%',
                COALESCE(generation_expression, '') <> '', column_type LIKE '%unsigned%', character_maximum_length
            FROM information_schema.columns WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?
            ORDER BY ordinal_position";
        let columns: Vec<Fields> = connection.exec(columns, (schema, name)).await?;
        // Of a key that is text: its character set and collation.
        let of_key = columns.iter().find(|(name, ..)| *name == names.key);
        let set = of_key.and_then(|(_, _, charset, collation, ..)| charset.clone().zip(collation.clone()));
        let columns: Vec<Described> = columns.into_iter().map(described).collect();
        let find = |name: &str| Described::find(&columns, shown, name, "name another");
        let (key, value) = (find(&names.key)?, find(&names.value)?);
        // Which unique indexes there are; whether the key is in them as a whole, and whether alone.
        let unique =
            "SELECT index_name, SUM(COALESCE(column_name = ? AND sub_part IS NULL, FALSE)) > 0, COUNT(*) = 1
            FROM information_schema.statistics
            WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ? AND non_unique = 0
            GROUP BY index_name";
        let unique: Vec<(String, bool, bool)> = connection.exec(unique, (&key.name, schema, name)).await?;
        if !unique.iter().any(|(_, has_key, is_single)| *has_key && *is_single) {
            let index = quoted(&key.name);
            return refuse(format!(
                "the column {} of {shown} is not unique by itself; run CREATE UNIQUE INDEX {index} ON {table} ({index})",
                key.name
            ));
        }
        if let Some((index, ..)) = unique.iter().find(|(_, has_key, _)| !has_key) {
            return refuse(format!(
                "the index {index} of {shown} is unique without the column {}: a write of one key might change the row of another; drop it",
                key.name
            ));
        }
        let keys = "keys are varbinary, varchar, smallint, int or bigint";
        let mut key_column = key.column(shown, |_| true, keys)?;
        if let Some((charset, collation)) = &set {
            let why = match (charset.as_str(), collation.ends_with("_bin")) {
                // What it lacks would be a `?`, also in another key.
                ("utf8mb4", true) => None,
                ("utf8mb4", false) => {
                    Some(format!("takes different keys as equal (its collation is {collation})"))
                }
                _ => Some(format!("cannot hold all characters (its character set is {charset})")),
            };
            if let Some(why) = why {
                let name = quoted(&key.name);
                return refuse(format!(
                    "the column {} of {shown} {why}; run ALTER TABLE {table} MODIFY {name} … CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
                    key.name
                ));
            }
            // Most collations add spaces before they compare.
            if !collation.contains("nopad") && !collation.contains("0900") {
                key_column.kind = Type::PaddedText;
            }
        }
        let is_value = |kind: Type| !matches!(kind, Type::Integer(_));
        let values = "values are varbinary, varchar, or one of the texts and blobs";
        let value_column = value.column(shown, is_value, values)?;
        names.check_others(&columns, &table, quoted)?;
        let (k, v) = (quoted(&key.name), quoted(&value.name));
        // Rights are checked also where nothing is done.
        for statement in [
            format!("INSERT INTO {table} ({k}, {v}) SELECT {k}, {v} FROM {table} WHERE FALSE"),
            format!("UPDATE {table} SET {v} = {v} WHERE FALSE"),
            format!("DELETE FROM {table} WHERE FALSE"),
        ] {
            match connection.query_drop(statement).await {
                Err(mysql_async::Error::Server(refusal)) if [1142, 1143].contains(&refusal.code) => {
                    return refuse(format!(
                        "{user} lacks rights on the table {shown}; run GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {}",
                        user.split('@').map(quoted).collect::<Vec<_>>().join("@")
                    ));
                }
                done => done?,
            }
        }
        let collation = set.as_ref().map(|(_, collation)| collation.as_str());
        let statements = Statements::of(&table, &key_column, &value_column, collation);
        let mark = names.mark(&schema_found, &name_found);
        Ok(UserTable { shown: shown.clone(), table, key: key_column, value: value_column, mark, statements })
    }

    /// Refuses `weir_versions` of the store `store` if it is marked as that of another table.
    pub(super) async fn check_versions(&self, connection: &mut Conn, store: &str) -> Setup<()> {
        match first::<Vec<u8>>(connection, "SELECT digest FROM weir_versions WHERE `key` = ''").await? {
            Some(marked) => self.check_mark(&marked, store, "`key`"),
            None => Ok(()),
        }
    }

    /// Marks it as that of this table, and the events that are kept as those of its rows: those of others go.
    pub(super) async fn take_versions(&self, connection: &mut Conn) -> Setup<()> {
        connection.query_drop(format!("DELETE FROM weir_events WHERE NOT {IS_MARKED}")).await?;
        let mark =
            "INSERT INTO weir_versions VALUES ('', ?, 0, '', '', NULL) ON DUPLICATE KEY UPDATE version = 0";
        connection.exec_drop(mark, (&self.mark,)).await?;
        Ok(())
    }
}

/// A row of what is asked of the columns.
type Fields = (String, String, Option<String>, Option<String>, bool, bool, bool, Option<u64>);

fn described(
    (name, data_type, charset, _, is_filled, is_generated, is_unsigned, length): Fields,
) -> Described {
    let kind = match data_type.as_str() {
        _ if is_unsigned => None,
        "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Some(Type::Bytes),
        "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => Some(Type::Text),
        "smallint" => Some(Type::Integer(16)),
        "int" => Some(Type::Integer(32)),
        "bigint" => Some(Type::Integer(64)),
        _ => None,
    };
    let length_max = charset.zip(length).map(|(charset, most)| {
        // The texts are limited in bytes, which are characters in most other sets.
        let is_in_bytes = data_type != "varchar" && charset.starts_with("utf8");
        if is_in_bytes { Length::Bytes(most) } else { Length::Characters(most) }
    });
    Described {
        name,
        kind,
        type_name: if is_unsigned { data_type + " unsigned" } else { data_type },
        length_max,
        is_filled: is_filled || is_generated,
        is_generated,
    }
}

impl Statements {
    /// `collation`: that of a key that is text.
    fn of(table: &str, key: &Column, value: &Column, collation: Option<&str>) -> Statements {
        // Makes a key of the column of the bytes `expression`.
        let key_of_bytes = |expression: &str| match (collation, key.kind) {
            // A binary string is compared as such, without the index.
            (Some(collation), _) => format!("CONVERT({expression} USING utf8mb4) COLLATE {collation}"),
            (None, Type::Integer(_)) => format!("CAST({expression} AS SIGNED)"),
            (None, _) => expression.to_owned(),
        };
        let (k, v) = (quoted(&key.name), quoted(&value.name));
        let (sql_key, sql_value) = (format!("t.{k}"), format!("t.{v}"));
        // The session's character set is binary: what is converted arrives as its bytes.
        let (key_out, value_out) = (to_bytes(key, &sql_key), to_bytes(value, &sql_value));
        let key_bytes = format!("CAST({key_out} AS BINARY)");
        let digest = format!("UNHEX(SHA2({value_out}, 256))");
        let is_known = format!("s.digest = {digest}");
        let default = value.kind.content_type();
        let columns = |value: &str| {
            format!(
                "{key_bytes}, {value}, COALESCE(s.content_type, CAST('{default}' AS BINARY)),
                CAST(COALESCE(s.version,
                    CAST(CONV(LEFT(SHA2({value_out}, 256), 16), 16, 10) AS UNSIGNED) & 8796093022207) AS SIGNED),
                COALESCE(s.content_encoding, CAST('' AS BINARY)), s.expires"
            )
        };
        // What is noted of another value is not joined: so the digest, which costs most, is computed once for a row.
        let rows = format!("{table} t LEFT JOIN {VERSIONS} s ON s.`key` = {key_bytes} AND {is_known}");
        let size = format!("LENGTH({value_out})");
        let is_live = "(s.expires IS NULL OR s.expires > ?)";
        Statements {
            key: key_of_bytes("?"),
            read: format!(
                "SELECT {} FROM {rows} WHERE {sql_value} IS NOT NULL AND {sql_key}",
                // Not cast to bytes, which it is as it arrives: a cast of more than max_allowed_packet is NULL.
                columns(&value_out)
            ),
            value_bytes: format!(
                "SELECT CAST(COALESCE(SUM({size}), 0) AS UNSIGNED) FROM {table} t WHERE {sql_value} IS NOT NULL AND {sql_key}"
            ),
            look: format!("SELECT {key_bytes}, {digest} FROM {table} t WHERE {sql_key}"),
            // One that is no key of weir's does not count.
            list: format!(
                "SELECT {} FROM {rows} WHERE {sql_value} IS NOT NULL AND {sql_key} >= ? AND {sql_key} < ?
                AND LENGTH({sql_key}) BETWEEN 1 AND {KEY_BYTES_MAX} AND {is_live} ORDER BY {sql_key} LIMIT ?",
                columns(&size)
            ),
            list_expired: format!(
                "SELECT {} FROM {VERSIONS} s JOIN {table} t ON {sql_key} = {}
                WHERE s.expires <= ? AND {is_known} LIMIT ?",
                columns(&size),
                key_of_bytes("s.`key`")
            ),
            list_forgotten: format!(
                "SELECT s.`key`, s.version FROM {VERSIONS} s LEFT JOIN {table} t ON {sql_key} = {} AND {is_known}
                WHERE s.expires <= ? AND {sql_key} IS NULL LIMIT ?",
                key_of_bytes("s.`key`")
            ),
            insert: format!("INSERT INTO {table} ({k}, {v}) VALUES "),
            insert_row: format!(
                "({}, {})",
                key_of_bytes("?"),
                match value.kind {
                    Type::Bytes => "?",
                    _ => "CONVERT(? USING utf8mb4)",
                }
            ),
            replace: format!(" ON DUPLICATE KEY UPDATE {v} = VALUES({v})"),
            delete: format!("DELETE t FROM {table} AS t WHERE {sql_key}"),
        }
    }
}

/// Makes bytes of a value of `column`.
fn to_bytes(column: &Column, expression: &str) -> String {
    match column.kind {
        Type::Bytes => expression.to_owned(),
        Type::Integer(_) => format!("CAST({expression} AS CHAR CHARACTER SET utf8mb4)"),
        _ => format!("CONVERT({expression} USING utf8mb4)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(quoted("my`table"), "`my``table`");
    }
}
