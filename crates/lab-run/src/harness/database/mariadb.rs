//! MariaDB as a private server: its programs and its settings.

use super::{DatabaseServer, Product, USER, program};
use kv::Error;
use lab_data::experiment::Engine;
use rustix::process::Signal;
use std::process::Command;

pub(super) const PRODUCT: Product = Product {
    engine: Engine::MariaDb,
    name: "MariaDB",
    scheme: "mysql",
    users: &["mysql", "nobody"],
    ends_with: Signal::TERM,
    database: DATABASE,
    data_directory: "SELECT @@datadir",
    show: "SHOW GLOBAL VARIABLES LIKE '{name}'",
    settings: &[
        "innodb_flush_log_at_trx_commit",
        "innodb_doublewrite",
        "innodb_flush_method",
        "innodb_buffer_pool_size",
        "innodb_log_file_size",
        "sync_binlog",
    ],
    install,
    serve,
};

/// Made at each start.
const DATABASE: &str = "weir";
/// The program's names: MariaDB's own, and the one from before the fork.
const SERVERS: &[&str] = &["mariadbd", "mysqld"];
const INSTALLERS: &[&str] = &["mariadb-install-db", "mysql_install_db"];

fn install(server: &DatabaseServer) -> Result<Command, Error> {
    let mut install = command(server, INSTALLERS)?;
    install.arg(format!("--datadir={}", server.data().display()));
    install.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]);
    Ok(install)
}

fn serve(server: &DatabaseServer) -> Result<Command, Error> {
    // Read before the first connection is taken, at each start.
    let account = format!(
        "CREATE DATABASE IF NOT EXISTS {DATABASE};\n\
         CREATE USER IF NOT EXISTS {USER}@'127.0.0.1';\n\
         GRANT ALL ON *.* TO {USER}@'127.0.0.1' WITH GRANT OPTION;\n"
    );
    let account = server.write("account.sql", &account)?;
    let mut command = command(server, SERVERS)?;
    for (name, value) in &server.options.settings {
        command.arg(format!("--{name}={value}"));
    }
    command.arg(format!("--datadir={}", server.data().display()));
    command.arg(format!("--init-file={}", account.display()));
    command.arg(format!("--pid-file={}", server.dir().join("pid").display()));
    command.arg(format!("--port={}", server.port));
    // A session of ours that just ends is no line in its log.
    command.args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--log-warnings=1"]);
    // No socket file: its path may be too long, its folder not ours, and nobody needs it.
    command.arg("--socket=");
    Ok(command)
}

/// The first of its programs called so, with none of this machine's settings: `--no-defaults` has to stand first.
fn command(server: &DatabaseServer, names: &[&str]) -> Result<Command, Error> {
    let program = program(names).ok_or_else(|| {
        let names = names.join(" or ");
        Error::new(format_args!("MariaDB is not installed (no {names} in PATH, /usr/sbin or /usr/bin)"))
            .hint("run apt-get install mariadb-server")
    })?;
    let mut command = server.command(&program);
    // A server that starts removes what it takes for its own leftovers there, and so its neighbour's tables.
    command.arg("--no-defaults").env("TMPDIR", server.dir());
    Ok(command)
}
