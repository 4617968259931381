//! TLS to databases, and their passwords: real servers with certificates made here.

use crate::support::{Client, Server, acquire_from, mariadb_with, postgres_with, runtime, until, weir};
use lab_run::harness::DatabaseServer;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use store::{self, Kind};
use tempfile::TempDir;

/// Certificates in a directory that database servers can read: of two authorities, a server called `localhost`, and clients.
pub(crate) struct Certificates(TempDir);

impl Certificates {
    pub(crate) fn new() -> Certificates {
        let dir = tempfile::Builder::new().prefix("weir-tls-").tempdir_in("/var/tmp").unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let certificates = Certificates(dir);
        let authority = |name: &str| {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.distinguished_name.push(DnType::CommonName, name);
            let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            fs::write(certificates.path(&format!("{name}.crt")), authority.pem()).unwrap();
            authority
        };
        let (ours, other) = (authority("ca"), authority("other-ca"));
        for (name, issuer) in
            [("localhost", &ours), ("127.0.0.1", &ours), ("weir", &ours), ("stranger", &other)]
        {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.distinguished_name.push(DnType::CommonName, name);
            let signed = params.signed_by(&key, issuer).unwrap();
            fs::write(certificates.path(&format!("{name}.crt")), signed.pem()).unwrap();
            certificates.write(&format!("{name}.key"), &key.serialize_pem(), 0o600);
        }
        certificates
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// Gives a file to the first of these users that there is, if we are root.
    fn give_to(&self, name: &str, users: [&str; 2]) -> String {
        let passwd = fs::read_to_string("/etc/passwd").unwrap();
        let id = |user: &&str| {
            let line = passwd.lines().find_map(|line| line.strip_prefix(&format!("{user}:")))?;
            line.split(':').nth(1)?.parse::<u32>().ok()
        };
        if rustix::process::geteuid().is_root() {
            chown(self.path(name), users.iter().find_map(id), None).unwrap();
        }
        self.shown(name)
    }
}

/// A PostgreSQL with TLS. `weir` gets in anyhow, `safe` only with TLS and the password `secret`, `known` only with a certificate.
fn postgres(certificates: &Certificates) -> DatabaseServer {
    let hba = "host all weir 127.0.0.1/32 trust\n\
        hostssl all safe 127.0.0.1/32 scram-sha-256\n\
        hostssl all known 127.0.0.1/32 cert map=any\n\
        hostnossl all plain 127.0.0.1/32 trust\n";
    certificates.write("hba", hba, 0o644);
    certificates.write("ident", "any weir known\n", 0o644);
    let key = certificates.give_to("localhost.key", ["postgres", "nobody"]);
    let file = |name| certificates.shown(name);
    let server = postgres_with(&[
        ("ssl", "on"),
        ("wal_level", "logical"),
        ("ssl_cert_file", &file("localhost.crt")),
        ("ssl_key_file", &key),
        ("ssl_ca_file", &file("ca.crt")),
        ("hba_file", &file("hba")),
        ("ident_file", &file("ident")),
    ]);
    for user in ["safe PASSWORD 'secret'", "known", "plain"] {
        server.ask(&format!("CREATE ROLE {user} LOGIN SUPERUSER")).unwrap();
    }
    server
}

/// A MariaDB with TLS and users alike: `safe` needs TLS and the password, `known` a certificate.
fn mariadb(certificates: &Certificates) -> DatabaseServer {
    let key = certificates.give_to("localhost.key", ["mysql", "nobody"]);
    let file = |name| certificates.shown(name);
    let server =
        mariadb_with(&[("ssl-cert", &file("localhost.crt")), ("ssl-key", &key), ("ssl-ca", &file("ca.crt"))]);
    for user in ["safe@'127.0.0.1' IDENTIFIED BY 'secret' REQUIRE SSL", "known@'127.0.0.1' REQUIRE X509"] {
        server.ask(&format!("CREATE USER {user}")).unwrap();
        let name = user.split(' ').next().unwrap();
        server.ask(&format!("GRANT ALL ON *.* TO {name}")).unwrap();
    }
    server
}

/// The URL of its database for another user at `host`.
fn url_for(server: &DatabaseServer, login: &str, host: &str, parameters: &str) -> String {
    let url = server.url().replace("weir@127.0.0.1", &format!("{login}@{host}"));
    format!("{url}?{parameters}")
}

/// Takes the store and asks something while it is held.
fn taken<T>(url: &str, ask: impl FnOnce() -> T) -> Result<T, store::Error> {
    let (runtime, store) = (runtime(), store::open(url)?);
    let lease = runtime.block_on(acquire_from(store.as_ref()))?;
    let answer = ask();
    drop(lease);
    Ok(answer)
}

/// Checks that the store cannot be taken, and is told why in one line of the kind that says that trying again does not help.
fn check_refused(url: &str, parts: &[&str]) {
    let error = taken(url, || ()).err().unwrap_or_else(|| panic!("{url} is refused"));
    let said = error.to_string();
    assert_eq!(error.kind(), Kind::Config, "{url}: {said}");
    assert!(parts.iter().all(|part| said.contains(part)), "{url}: {said}");
    assert!(!said.contains("secret") && !said.contains('\n'), "{url}: {said}");
}

#[test]
fn sslmode_means_what_libpq_means_by_it() {
    let certificates = Certificates::new();
    let server = postgres(&certificates);
    let file = |name| certificates.shown(name);
    let has_tls = || {
        let sql = "SELECT s.ssl FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
            WHERE a.application_name LIKE 'weir owner%'";
        server.ask(sql).unwrap()[0][0] == "t"
    };
    let (ca, other) = (file("ca.crt"), file("other-ca.crt"));
    let key = certificates.path("weir.key");
    for (login, host, parameters, expected) in [
        ("weir", "127.0.0.1", "sslmode=disable".to_owned(), false),
        ("weir", "127.0.0.1", "sslmode=allow".to_owned(), false),
        ("weir", "127.0.0.1", "sslmode=prefer".to_owned(), true),
        ("weir", "127.0.0.1", String::new(), true),
        ("weir", "127.0.0.1", "sslmode=require".to_owned(), true),
        // The other way, where the first is refused.
        ("safe:secret", "127.0.0.1", "sslmode=allow".to_owned(), true),
        ("plain", "127.0.0.1", "sslmode=prefer".to_owned(), false),
        ("safe:secret", "127.0.0.1", "sslmode=require&channel_binding=require".to_owned(), true),
        ("weir", "127.0.0.1", format!("sslmode=verify-ca&sslrootcert={ca}"), true),
        ("weir", "localhost", format!("sslmode=verify-full&sslrootcert={ca}"), true),
        ("weir", "localhost", format!("sslmode=verify-full&sslrootcert={}", file("localhost.crt")), true),
        ("weir", "localhost", format!("hostaddr=127.0.0.1&sslmode=verify-full&sslrootcert={ca}"), true),
        (
            "known",
            "127.0.0.1",
            format!("sslmode=require&sslcert={}&sslkey={}", file("weir.crt"), key.display()),
            true,
        ),
    ] {
        let url = url_for(&server, login, host, &parameters);
        assert_eq!(taken(&url, has_tls), Ok(expected), "{url}");
    }
    for (login, host, parameters, parts) in [
        (
            "weir",
            "127.0.0.1",
            format!("sslmode=verify-ca&sslrootcert={other}"),
            &["signed by none", "sslrootcert"][..],
        ),
        ("weir", "127.0.0.1", format!("sslmode=require&sslrootcert={other}"), &["signed by none"]),
        ("weir", "localhost", "sslrootcert=system".to_owned(), &["signed by none"]),
        (
            "weir",
            "127.0.0.1",
            format!("sslmode=verify-full&sslrootcert={ca}"),
            &["is for localhost, not for 127.0.0.1", "sslmode=verify-ca"],
        ),
        (
            "safe:secret",
            "127.0.0.1",
            "sslmode=disable".to_owned(),
            &["no encryption", "write sslmode=require"],
        ),
        ("plain", "127.0.0.1", "sslmode=require".to_owned(), &["no pg_hba.conf entry"]),
        ("safe:secrets", "127.0.0.1", "sslmode=require".to_owned(), &["password authentication failed"]),
        ("weir", "127.0.0.1", "channel_binding=require".to_owned(), &["channel binding"]),
        (
            "known",
            "127.0.0.1",
            format!("sslmode=require&sslcert={}&sslkey={}", file("stranger.crt"), file("stranger.key")),
            &["does not accept the certificate", "sslcert"],
        ),
        ("known", "127.0.0.1", "sslmode=require".to_owned(), &["valid client certificate"]),
    ] {
        check_refused(&url_for(&server, login, host, &parameters), parts);
    }
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let open_key = format!("sslmode=require&sslcert={}&sslkey={}", file("weir.crt"), key.display());
    check_refused(&url_for(&server, "known", "127.0.0.1", &open_key), &["sslkey=", "chmod 0600"]);
}

#[test]
fn a_postgres_without_tls_is_refused_where_it_is_demanded() {
    let server = postgres_with(&[]);
    assert_eq!(taken(&server.url(), || ()), Ok(()));
    for mode in ["allow", "prefer"] {
        assert_eq!(taken(&url_for(&server, "weir", "127.0.0.1", &format!("sslmode={mode}")), || ()), Ok(()));
    }
    check_refused(
        &url_for(&server, "weir", "127.0.0.1", "sslmode=require"),
        &["the server offers no TLS, which sslmode=require demands", "ssl = on"],
    );
}

#[test]
fn ssl_mode_of_mariadb_means_what_its_clients_mean_by_it() {
    let certificates = Certificates::new();
    let server = mariadb(&certificates);
    let file = |name| certificates.shown(name);
    let (ca, other) = (file("ca.crt"), file("other-ca.crt"));
    let own = format!("ssl-cert={}&ssl-key={}", file("weir.crt"), file("weir.key"));
    for (login, host, parameters) in [
        ("weir", "127.0.0.1", "ssl-mode=DISABLED".to_owned()),
        ("safe:secret", "127.0.0.1", String::new()),
        ("safe:secret", "127.0.0.1", "ssl-mode=required".to_owned()),
        ("safe:secret", "127.0.0.1", format!("ssl-ca={ca}")),
        ("safe:secret", "localhost", format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={ca}")),
        ("known", "127.0.0.1", own.clone()),
    ] {
        let url = url_for(&server, login, host, &parameters);
        assert_eq!(taken(&url, || ()), Ok(()), "{url}");
        let url = url.replace("mysql://", "mariadb://");
        assert_eq!(taken(&url, || ()), Ok(()), "{url}");
    }
    for (login, host, parameters, parts) in [
        (
            "weir",
            "127.0.0.1",
            format!("ssl-mode=VERIFY_CA&ssl-ca={other}"),
            &["signed by none", "ssl-ca"][..],
        ),
        ("weir", "localhost", "ssl-mode=VERIFY_IDENTITY".to_owned(), &["signed by none"]),
        (
            "weir",
            "127.0.0.1",
            format!("ssl-mode=VERIFY_IDENTITY&ssl-ca={ca}"),
            &["is for localhost, not for 127.0.0.1", "ssl-mode=VERIFY_CA"],
        ),
        ("safe:secret", "127.0.0.1", "ssl-mode=DISABLED".to_owned(), &["Access denied"]),
        ("safe:secrets", "127.0.0.1", "ssl-mode=REQUIRED".to_owned(), &["Access denied"]),
        ("known", "127.0.0.1", "ssl-mode=REQUIRED".to_owned(), &["Access denied"]),
    ] {
        check_refused(&url_for(&server, login, host, &parameters), parts);
    }
    server.ask("SET GLOBAL require_secure_transport = ON").unwrap();
    let plain = url_for(&server, "weir", "127.0.0.1", "ssl-mode=DISABLED");
    check_refused(&plain, &["write ssl-mode=REQUIRED"]);
}

#[test]
fn a_mariadb_without_tls_is_refused_where_it_is_demanded() {
    let server = mariadb_with(&[]);
    for mode in ["PREFERRED", "DISABLED"] {
        let url = url_for(&server, "weir", "127.0.0.1", &format!("ssl-mode={mode}"));
        assert_eq!(taken(&url, || ()), Ok(()), "{url}");
    }
    check_refused(
        &url_for(&server, "weir", "127.0.0.1", "ssl-mode=REQUIRED"),
        &["the server offers no TLS, which ssl-mode=REQUIRED demands"],
    );
}

#[test]
fn a_server_works_over_tls_and_survives_a_restart_of_its_postgres() {
    let certificates = Certificates::new();
    let mut server = postgres(&certificates);
    let parameters = format!("sslmode=verify-full&sslrootcert={}", certificates.shown("ca.crt"));
    let weir = Server::start(&url_for(&server, "safe:secret", "localhost", &parameters), &[]);
    let large = vec![7; 3 << 20];
    assert_eq!(weir.client().put("/kv/large", &large).status, 201);
    server.restart().unwrap();
    until("the server is back", || weir.client().get("/readyz").status == 200);
    assert!(weir.client().get("/kv/large").body == large);
    let plain = "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
        WHERE a.application_name LIKE 'weir %' AND a.application_name <> 'weir lab' AND NOT s.ssl";
    assert_eq!(server.ask(plain).unwrap()[0][0], "0");
}

#[test]
fn a_replica_follows_a_store_over_tls() {
    let certificates = Certificates::new();
    let (primary, replica) = (postgres(&certificates), postgres_with(&[]));
    let parameters = format!("sslmode=verify-full&sslrootcert={}", certificates.shown("ca.crt"));
    let url = url_for(&primary, "safe:secret", "localhost", &parameters);
    let init =
        weir().args(["replica", "init", "--replica", &replica.url(), "--store", &url]).output().unwrap();
    let said = String::from_utf8_lossy(&init.stdout) + String::from_utf8_lossy(&init.stderr);
    assert!(init.status.success() && !said.contains("secret"), "{said}");
    let follower = "SELECT s.ssl FROM pg_stat_ssl s JOIN pg_stat_replication USING (pid)";
    assert_eq!(primary.ask(follower).unwrap(), [["t"]]);
}

/// A `weir serve` whose every word is kept.
struct Witnessed {
    server: std::process::Child,
    client: Client,
    log: std::thread::JoinHandle<String>,
}

fn witnessed(mut command: Command) -> Witnessed {
    let mut server = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = server.stderr.take().unwrap();
    let log = std::thread::spawn(move || {
        let mut text = String::new();
        errors.read_to_string(&mut text).unwrap();
        text
    });
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening ").map(|address| address.parse().unwrap());
    let Some(address) = address else { panic!("{}", log.join().unwrap()) };
    Witnessed { client: Client::connect(address).unwrap(), server, log }
}

impl Witnessed {
    /// Everything that it says to anybody.
    fn words(mut self) -> String {
        assert_eq!(self.client.put("/kv/a", b"b").status / 100, 2);
        let pages = ["/stats", "/metrics", "/readyz", "/healthz"];
        let mut said: String = pages.iter().map(|page| self.client.get(page).text()).collect();
        said += &fs::read_to_string(format!("/proc/{}/cmdline", self.server.id())).unwrap();
        let pid = rustix::process::Pid::from_child(&self.server);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.server.wait().unwrap();
        said + &self.log.join().unwrap()
    }
}

/// The password gets in by every way there is, and out by none.
#[test]
fn passwords_come_from_files_and_variables_and_are_never_shown() {
    const SECRET: &str = "s3cr3t-b@r";
    const WRONG: &str = "wr0ng-b@r";
    let certificates = Certificates::new();
    let (postgres, mariadb) = (postgres(&certificates), mariadb(&certificates));
    postgres.ask(&format!("ALTER ROLE safe PASSWORD '{SECRET}'")).unwrap();
    mariadb.ask(&format!("ALTER USER safe@'127.0.0.1' IDENTIFIED BY '{SECRET}'")).unwrap();
    let file = |name: &str, text: String| certificates.write(name, &text, 0o600).display().to_string();
    for (database, variable) in [(&postgres, "PGPASSWORD"), (&mariadb, "MYSQL_PWD")] {
        let url = url_for(database, "safe", "127.0.0.1", "");
        let url = url.trim_end_matches('?');
        for secret in [SECRET, WRONG] {
            let in_url = url.replace("safe@", &format!("safe:{}@", secret.replace('@', "%40")));
            let password_file = file("password", format!("{secret}\n"));
            let config = file("weir.toml", format!("store = {in_url:?}\n"));
            let store = |url: &str| vec!["--store".to_owned(), url.to_owned()];
            let mut ways = vec![
                (vec![], Some(("WEIR_STORE", in_url))),
                (vec!["--config".to_owned(), config], None),
                (store(url), Some((variable, secret.to_owned()))),
                (store(&format!("{url}?password-file={password_file}")), None),
            ];
            if variable == "PGPASSWORD" {
                let line = format!("127.0.0.1:*:postgres:safe:{secret}\n");
                ways.push((store(url), Some(("PGPASSFILE", file("pgpass", line.clone())))));
                let home = certificates.path("home");
                fs::create_dir_all(&home).unwrap();
                file("home/.pgpass", line);
                ways.push((store(url), Some(("HOME", home.display().to_string()))));
            }
            for (flags, variable) in ways {
                let mut command = weir();
                for name in ["PGPASSWORD", "MYSQL_PWD", "PGPASSFILE"] {
                    command.env_remove(name);
                }
                command.envs(variable).args(["serve", "--listen", "127.0.0.1:0"]).args(&flags);
                let said = if secret == SECRET {
                    let mut serve = witnessed(command);
                    assert_eq!(serve.client.get("/readyz").status, 200, "{flags:?}");
                    serve.words()
                } else {
                    let output = command.output().unwrap();
                    assert_eq!(output.status.code(), Some(2), "{flags:?}");
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    assert!(said.contains("safe@127.0.0.1") || said.contains("'safe'@'127.0.0.1'"), "{said}");
                    said
                };
                for part in [secret, "s3cr3t", "wr0ng", &secret.replace('@', "%40")] {
                    assert!(!said.contains(part), "{flags:?}: {said}");
                }
            }
        }
    }
}
