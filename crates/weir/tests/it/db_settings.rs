//! Databases whose administrator has set them up differently: what weir promises does not depend on it.

use crate::support::{Server, block_on, mariadb, postgres, until};
use kv::Key;
use lab_run::harness::DatabaseServer;
use store::{self, Part, contract};

/// Reads its configuration again, and sessions with it: a commit that was acknowledged was not flushed any more.
#[test]
fn commits_lost_their_flush_when_postgres_read_its_configuration_again() {
    let postgres = postgres();
    postgres.ask("ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'").unwrap();
    let server = Server::start(&postgres.url(), &[]);
    let mut client = server.client();
    for statement in [
        "CREATE TABLE seen (memory text, commits text, isolation text)",
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO seen SELECT current_setting('work_mem'), current_setting('synchronous_commit'),
                current_setting('transaction_isolation');
            RETURN NEW;
        END $$",
        "CREATE TRIGGER look BEFORE INSERT ON weir_kv FOR EACH ROW EXECUTE FUNCTION look()",
        // The other one shows that the session has read both.
        "ALTER SYSTEM SET synchronous_commit = off",
        "ALTER SYSTEM SET work_mem = '7MB'",
        "SELECT pg_reload_conf()",
    ] {
        postgres.ask(statement).unwrap();
    }
    let mut seen = Vec::new();
    until("the configuration is read", || {
        assert!([201, 204].contains(&client.put("/kv/a", b"v").status));
        seen = postgres.ask("SELECT commits, isolation FROM seen WHERE memory = '7MB'").unwrap();
        !seen.is_empty()
    });
    assert_eq!(seen[0], ["on", "read committed"]);
}

/// As the client's `--safe-updates` has them: rows beyond the limit counted as absent.
#[test]
fn a_mariadb_that_limits_statements_lost_rows() {
    let mariadb = mariadb();
    mariadb.ask("CREATE TABLE things (name VARBINARY(1024) PRIMARY KEY, body LONGBLOB NOT NULL)").unwrap();
    for setting in ["sql_select_limit = 1", "max_join_size = 1", "sql_safe_updates = 1"] {
        mariadb.ask(&format!("SET GLOBAL {setting}")).unwrap();
    }
    block_on(contract::all(store::open(&mariadb.url()).unwrap().as_ref()));
    let url = format!("{}?table=things&key=name&value=body", mariadb.url());
    block_on(contract::all(store::open(&url).unwrap().as_ref()));
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn clearing_a_large_table_of_mariadb_was_given_up() {
    let mariadb = mariadb();
    block_on(async {
        let store = store::open(&mariadb.url()).unwrap();
        let lease = store.acquire(Part::WHOLE).await.unwrap();
        let mut session = store.connect(lease.epoch).await.unwrap();
        let row = "INSERT INTO weir_kv VALUES ('a', 'v', '', 1, '', NULL)";
        let slow = "CREATE TRIGGER slow BEFORE DELETE ON weir_kv FOR EACH ROW DO SLEEP(31)";
        ask(&mariadb, row);
        ask(&mariadb, slow);
        session.clear().await.unwrap();
        let rows = session.read(&[Key::new(b"a").unwrap()]).await.unwrap();
        assert_eq!(rows, [None]);
    });
}

/// Asks a database from a thread that has no runtime yet.
fn ask(database: &DatabaseServer, sql: &str) {
    std::thread::scope(|scope| scope.spawn(|| database.ask(sql).unwrap()).join()).unwrap();
}
