//! MariaDB as a private server: its programs and its settings.

use super::database::{DatabaseServer, Product, USER, answer_of};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder, Value};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;

pub(super) const PRODUCT: Product = Product {
    name: "MariaDB",
    short: "mariadb",
    scheme: "mysql",
    users: &["mysql", "nobody"],
    ends_with: Signal::TERM,
    database: DATABASE,
    data_directory: "SELECT @@datadir",
    install,
    serve,
    query,
};

/// Made at each start.
const DATABASE: &str = "weir";
/// The program's names: MariaDB's own, and the one from before the fork.
const SERVERS: &[&str] = &["mariadbd", "mysqld"];
const INSTALLERS: &[&str] = &["mariadb-install-db", "mysql_install_db"];
/// Where packages put the programs that are not in every user's PATH.
const PACKAGED: &[&str] = &["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];

fn install(server: &DatabaseServer) -> Result<Command, String> {
    let mut install = command(server, INSTALLERS)?;
    install.arg(format!("--datadir={}", server.data().display()));
    install.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
    Ok(install)
}

fn serve(server: &DatabaseServer) -> Result<Command, String> {
    // Read before the first connection is taken, at each start.
    let account = format!(
        "CREATE DATABASE IF NOT EXISTS {DATABASE};\n\
         CREATE USER IF NOT EXISTS {USER}@'127.0.0.1';\n\
         GRANT ALL ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION;\n"
    );
    let account = server.write("account.sql", &account)?;
    let mut command = command(server, SERVERS)?;
    for (name, value) in server.settings() {
        command.arg(format!("--{name}={value}"));
    }
    command.arg(format!("--datadir={}", server.data().display()));
    command.arg(format!("--init-file={}", account.display()));
    command.arg(format!("--pid-file={}", server.dir().join("pid").display()));
    command.arg(format!("--port={}", server.port()));
    command.args(["--bind-address=127.0.0.1", "--skip-name-resolve"]);
    // No socket file: its path may be too long, its folder not ours, and nobody needs it.
    command.arg("--socket=");
    Ok(command)
}

/// One of its programs, with none of this machine's settings: `--no-defaults` has to stand first.
fn command(server: &DatabaseServer, names: &[&str]) -> Result<Command, String> {
    let mut command = server.command(&program(names)?);
    // A server that starts removes what it takes for its own leftovers there, and so its neighbour's tables.
    command.arg("--no-defaults").env("TMPDIR", server.dir());
    Ok(command)
}

fn query(port: u16, database: &str, sql: &str) -> Result<Option<Vec<Vec<String>>>, String> {
    let options = OptsBuilder::default()
        .ip_or_hostname("127.0.0.1")
        .tcp_port(port)
        .user(Some(USER))
        .db_name(Some(database))
        .prefer_socket(false);
    let answered = answer_of(async {
        let mut connection = Conn::new(options).await?;
        let rows: Vec<mysql_async::Row> = connection.query(sql).await?;
        // The next question should not find this connection still there.
        connection.disconnect().await?;
        Ok(rows)
    })?;
    let Some(rows) = answered else { return Ok(None) };
    let rows = rows.map_err(|error: mysql_async::Error| error.to_string())?;
    let text = |value: Value| match value {
        Value::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        // Nothing else comes in answers to plain text.
        _ => String::new(),
    };
    Ok(Some(rows.into_iter().map(|row| row.unwrap().into_iter().map(text).collect()).collect()))
}

/// The first of the programs called so: in the PATH, else where packages put it.
fn program(names: &[&str]) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> =
        std::env::split_paths(&path).chain(PACKAGED.iter().map(PathBuf::from)).collect();
    let there = |name: &&str| folders.iter().map(|dir| dir.join(name)).find(|path| path.is_file());
    names.iter().find_map(there).ok_or_else(|| {
        format!(
            "MariaDB is not installed (no {} in PATH, /usr/sbin or /usr/bin); run apt-get install mariadb-server",
            names.join(" or ")
        )
    })
}
