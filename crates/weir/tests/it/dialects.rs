//! Dialects against the servers they are for, each a real one in a private directory: what is written there is found
//! again, what was changed behind the generator's back is seen, and what a dialect lacks is refused.

use super::load::{plan, run, weir_load};
use super::support::{self, Client, free_address, until};
use kv::proto::LoadReport;
use load::{self, Connect, Dialect, Mix, Plan, Target, Verify};
use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use tempfile::TempDir;

/// A program that listens, killed when dropped.
struct Program {
    child: Child,
    address: SocketAddr,
    dir: TempDir,
}

impl Program {
    /// Starts what `command` makes of a free port and a private directory; returns when `answers` says so.
    fn start(command: impl Fn(u16, &Path) -> Command, answers: impl Fn(SocketAddr) -> bool) -> Program {
        // Between finding a free port and taking it another process may be quicker; the program then ends.
        for _ in 0..10 {
            let dir = tempfile::tempdir().unwrap();
            let address = free_address();
            let mut command = command(address.port(), dir.path());
            let log = fs::File::create(dir.path().join("log")).unwrap();
            command.current_dir(dir.path()).stdin(Stdio::null());
            command.stdout(log.try_clone().unwrap()).stderr(log);
            let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
            let mut program = Program { child, address, dir };
            let mut lives = true;
            until("a program answers", || {
                lives = program.child.try_wait().unwrap().is_none();
                !lives || answers(address)
            });
            if lives {
                return program;
            }
        }
        panic!("it ended at once, ten times");
    }

    fn redis() -> Program {
        let command = |port: u16, dir: &Path| {
            let mut command = Command::new("redis-server");
            command.args(["--bind", "127.0.0.1", "--port", &port.to_string()]);
            command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(dir);
            command
        };
        Program::start(command, |address| {
            let mut client = Client::connect(address);
            client.as_mut().is_ok_and(|client| client.send(b"PING\r\n").is_ok())
        })
    }

    fn webdis(redis: &Program) -> Program {
        let redis = redis.address.port();
        let command = move |port: u16, dir: &Path| {
            let file = dir.join("webdis.json");
            let settings = serde_json::json!({
                "redis_host": "127.0.0.1", "redis_port": redis,
                "http_host": "127.0.0.1", "http_port": port, "threads": 1, "pool_size": 4,
                "daemonize": false, "database": 0, "verbosity": 3, "logfile": dir.join("webdis.log"),
            });
            fs::write(&file, settings.to_string()).unwrap();
            let mut command = Command::new("webdis");
            command.arg(file);
            command
        };
        Program::start(command, |address| is_200(address, "/PING"))
    }

    fn etcd() -> Program {
        let command = |port: u16, dir: &Path| {
            let clients = format!("http://127.0.0.1:{port}");
            // A socket in its own directory: nobody calls there, and it takes no port.
            let peers = "unix://peers:0";
            let mut command = Command::new("etcd");
            command.arg("--data-dir").arg(dir.join("data"));
            command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
            command.args([
                "--listen-peer-urls",
                peers,
                "--initial-advertise-peer-urls",
                "http://127.0.0.1:1",
            ]);
            command.args(["--initial-cluster", "default=http://127.0.0.1:1"]);
            command
        };
        Program::start(command, |address| is_200(address, "/health"))
    }

    fn nginx() -> Program {
        let command = |port: u16, dir: &Path| {
            let file = dir.join("nginx.conf");
            let settings = format!(
                "daemon off; master_process off; pid pid; error_log stderr;
                 events {{}}
                 http {{ access_log off; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
                 uwsgi_temp_path uwsgi; scgi_temp_path scgi;
                 server {{ listen 127.0.0.1:{port}; location = / {{ return 200 \"a page\"; }} }} }}"
            );
            fs::write(&file, settings).unwrap();
            let mut command = Command::new("nginx");
            command.arg("-p").arg(dir).arg("-c").arg(file);
            command
        };
        Program::start(command, |address| is_200(address, "/"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_200(address: SocketAddr, path: &str) -> bool {
    let answer = Client::connect(address).and_then(|mut client| client.ask("GET", path, &[], b""));
    answer.is_ok_and(|answer| answer.status == 200)
}

/// Where it goes is said by each run.
fn plan_in(dialect: &str, workload: &str) -> Plan {
    Plan {
        dialect: Some(dialect.parse().unwrap()),
        clients: 4,
        preload: true,
        keys: Some(12),
        ..plan(NOWHERE, workload)
    }
}

const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

/// A server for each run: the same one again, or a fresh one.
type Servers<'a> = &'a dyn Fn() -> Rc<Program>;

/// Runs `plan` on `servers` until a report is as `seen` says: a machine that stalls may leave a window nearly empty.
fn run_until(servers: Servers<'_>, plan: &Plan, seen: impl Fn(&LoadReport) -> bool) {
    let mut tried = 0;
    loop {
        let server = servers();
        let report = run(&Plan { urls: vec![target(server.address)], ..plan.clone() });
        tried += 1;
        if seen(&report) {
            return;
        }
        assert!(tried < 20, "{report:?}");
    }
}

fn target(address: SocketAddr) -> Target {
    format!("http://{address}").parse().unwrap()
}

fn all_succeeded(report: &LoadReport) -> bool {
    assert_eq!((report.attempts, &report.errors), (report.successes, &BTreeMap::new()), "{report:?}");
    report.attempts > 0
}

/// None fails of runs in which every operation succeeds, and some reads are of keys deleted meanwhile.
fn check(servers: Servers<'_>, plan: &Plan) {
    run_until(servers, plan, |report| {
        let seen: Vec<&str> = report.operations.iter().map(|row| row.operation.as_str()).collect();
        assert_eq!(seen, ["get", "put", "delete"]);
        let get = &report.operations[0];
        all_succeeded(report)
            && report.operations.iter().all(|row| row.successes > 0)
            && 0 < get.absent
            && get.absent < get.successes
    });
}

/// Everything that a dialect of a store promises. `plant` changes a value without the generator's knowledge.
fn check_store(dialect: &str, servers: Servers<'_>, plant: impl FnOnce(&str, &str)) {
    for (connect, value_size) in [(Connect::Once, "100"), (Connect::Once, "1-3000"), (Connect::Each, "100")] {
        let value_size = Some(value_size.parse().unwrap());
        check(servers, &Plan { connect, value_size, ..plan_in(dialect, "mixed_thirds") });
    }

    // To the last byte, and in order.
    let verified = Plan {
        verify: Verify::all(),
        value_size: Some("1-300".parse().unwrap()),
        ..plan_in(dialect, "mixed_thirds")
    };
    run_until(servers, &verified, |report| {
        // Where values are long enough for a mark, which most are.
        all_succeeded(report)
            && 2 * report.verified > report.operations[0].successes - report.operations[0].absent
    });

    let reads = plan_in(dialect, "get_popular");
    run_until(servers, &reads, all_succeeded);
    // Of a key whose name differs only behind the end of the other's.
    plant("popular_1", "popular_11=and so on");
    run_until(servers, &Plan { preload: false, ..reads }, |report| {
        assert_eq!(report.dialect, dialect);
        let wrong = report.errors.get("wrong_value").copied().unwrap_or(0);
        assert_eq!(report.attempts, report.successes + wrong, "{report:?}");
        wrong > 0 && report.successes > 0
    });
}

#[test]
fn webdis_is_spoken_to_in_its_own_words() {
    let redis = Program::redis();
    // A fresh one for each run: webdis 0.1.9 hands the answer to a request whose client has left, as all have at the end
    // of a run, to whoever connects next.
    let servers: Servers<'_> = &|| Rc::new(Program::webdis(&redis));
    check_store("webdis", servers, |key, value| {
        let port = redis.address.port().to_string();
        let output = Command::new("redis-cli").args(["-p", &port, "set", key, value]).output().unwrap();
        assert!(output.status.success());
    });
    // What Redis refuses is answered 200 all the same, and is no success.
    let mut command = Command::new("redis-cli");
    command.args(["-p", &redis.address.port().to_string(), "config", "set", "maxmemory", "1"]);
    assert!(command.output().unwrap().status.success());
    run_until(servers, &plan_in("webdis", "put_sequential"), |report| {
        assert_eq!(report.successes, 0, "{report:?}");
        report.attempts > 0 && report.errors == BTreeMap::from([("malformed".into(), report.attempts)])
    });
    let webdis = servers();
    let plan = Plan { urls: vec![target(webdis.address)], ..plan_in("webdis", "get_popular") };
    let error = load::run(&plan, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains(": PUT was answered 200 (malformed); hint: "), "{error}");
}

#[test]
fn etcd_is_spoken_to_in_its_own_words() {
    let etcd = Rc::new(Program::etcd());
    check_store("etcd", &|| Rc::clone(&etcd), |key, value| {
        // A value of another key, as the dialect's own words would write it.
        assert_eq!((key, value), ("popular_1", "popular_11=and so on"));
        let body = br#"{"key":"cG9wdWxhcl8x","value":"cG9wdWxhcl8xMT1hbmQgc28gb24="}"#;
        let answer = Client::connect(etcd.address).unwrap().ask("POST", "/v3/kv/put", &[], body).unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
    });
}

#[test]
fn a_page_is_read_whatever_the_key() {
    let nginx = Rc::new(Program::nginx());
    for connect in [Connect::Once, Connect::Each] {
        run_until(&|| Rc::clone(&nginx), &Plan { connect, ..plan_in("fixed", "get_all") }, |report| {
            // Nothing is said of keys and values where no request names one.
            let told = (report.dialect.as_str(), report.keys, report.value_bytes.as_str());
            assert_eq!(told, ("fixed", 0, ""));
            all_succeeded(report)
        });
    }
    assert!(nginx.dir.path().join("pid").exists(), "it ran in its own directory");
}

#[test]
fn a_file_describes_a_server_that_takes_forms() {
    let server = support::Server::start("memory:", &["--compat", "crud=127.0.0.1:0"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("forms.toml");
    fs::write(
        &file,
        r#"
        [get]
        path = "/get?key={key}"
        [put]
        method = "POST"
        path = "/create"
        headers = { "Content-Type" = "application/x-www-form-urlencoded" }
        body = "key={key}&value={value}"
        [delete]
        path = "/delete?key={key}"
    "#,
    )
    .unwrap();
    let url = format!("http://{}", server.compat("crud"));
    let file = file.to_str().unwrap();
    let arguments = ["--workload", "mixed", "--keys", "20", "--warmup", "10ms", "--window", "2s", "--json"];
    let (output, stdout, stderr) = weir_load(&[&[url.as_str(), "--dialect", file], &arguments[..]].concat());
    assert!(output.status.success(), "{stderr}");
    let report: LoadReport = serde_json::from_str(&stdout).unwrap();
    assert_eq!((report.attempts, report.dialect.as_str()), (report.successes, "forms.toml"), "{report:?}");
    assert!(report.operations.iter().all(|row| row.successes > 0) && report.operations.len() == 3);
}

#[test]
fn what_a_dialect_cannot_say_is_refused_before_anything_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let reads = write("reads.toml", "[get]\npath = \"/{key}\"\n");
    let blind = write(
        "blind.toml",
        "[get]\npath = \"/{key}\"\n[put]\npath = \"/{key}\"\n[put_if_match]\npath = \"/{key}\"\n",
    );
    let signs = write("signs.toml", "[get]\npath = \"/<{key}>\"\n");
    let wrong = write("wrong.toml", "[get]\npath = \"/{name}\"\n");
    let none = dir.path().join("none.toml").to_str().unwrap().to_owned();
    // Nobody listens there: the refusal comes first.
    let url = "http://127.0.0.1:1";
    for (arguments, told) in [
        (
            &["--dialect", "fixed", "--workload", "mixed"][..],
            "dialect fixed has no [put], which this load asks for",
        ),
        (&["--dialect", "etcd", "--workload", "compute_hash"], "dialect etcd has no [compute_hash]"),
        (&["--dialect", &reads], "dialect reads.toml has no [put], which the preload asks for"),
        (
            &["--dialect", "etcd", "--value-size", "0-9"],
            "dialect etcd takes no values of less than 1 B; hint",
        ),
        // It was left out each time, and nothing was found.
        (
            &["--dialect", &blind, "--mix", "compare_and_put=1", "--check", "linearizability"],
            "the [get] of dialect blind.toml says no version, which this load asks for; hint: add version_header",
        ),
        (
            &["--dialect", &signs, "--no-preload", "--http2"],
            "--http2: [get] of dialect signs.toml: the path has <, which cannot be sent over HTTP/2",
        ),
        (&["--dialect", "klingon"], "expected one of: weir, fixed, webdis, etcd, or the path of a FILE.toml"),
        (
            &["--dialect", &wrong],
            "[get] unknown placeholder {name}; hint: expected one of: {key}, {key_base64}",
        ),
        (&["--dialect", &none], "cannot read it"),
    ] {
        let (output, stdout, stderr) = weir_load(&[&[url], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(told) && stderr.lines().count() == 1 && stdout.is_empty(), "{stderr}");
    }
    // Without a preload, and in a mix that it can say, the same dialects will do.
    let mix: Mix = "get=1".parse().unwrap();
    let dialect = Dialect::of_file("reads.toml", "[get]\npath = \"/{key}\"\n").unwrap();
    let reads = Plan { dialect: Some(dialect), mix: Some(mix), ..plan(NOWHERE, "mixed") };
    assert!(load::run(&reads, &mut |_| {}).unwrap_err().to_string().starts_with("cannot reach "));
    let (_, list, _) = weir_load(&["--list"]);
    assert!(load::DIALECTS.iter().all(|row| list.contains(&row.about)), "{list}");
}
