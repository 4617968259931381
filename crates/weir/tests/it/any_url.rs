//! `weir load URL` against services that are no key-value stores: what is sent, what counts as a success, and how they are reached.
//!
//! The service is a few lines of Python on its own HTTP library; TLS and Unix sockets are those of `weir serve`.

use super::load::{run_for, run_until, weir_load};
use super::support::{Client, Server, free_address, python};
use super::tls::Authority;
use kv::proto::LoadReport;
use load::Plan;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// `any_service.py` on a free port, killed when dropped.
pub(super) struct Service {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Service {
    pub(super) fn start() -> Service {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/any_service.py");
        let mut child = Command::new(python("python3")).arg(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Service { child, address: format!("127.0.0.1:{}", port.trim()).parse().unwrap() }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The last requests.
    fn seen(&self) -> Vec<Value> {
        let answer = Client::connect(self.address).unwrap().get("/seen");
        serde_json::from_slice(&answer.body).unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What these flags ask for, of two clients.
fn plan(flags: &[&str]) -> Plan {
    let usual = ["load", "--clients=2", "--warmup=0s", "--timeout=20s"];
    clap::Parser::parse_from(usual.iter().chain(flags))
}

/// The report of a run of these flags with a hundred requests.
fn report(flags: &[&str]) -> LoadReport {
    run_for(100, &plan(flags))
}

fn all_succeed(flags: &[&str]) -> LoadReport {
    let report = report(flags);
    assert!(report.successes > 0 && report.errors.is_empty(), "{flags:?}: {report:?}");
    report
}

#[test]
fn a_request_is_sent_as_the_flags_say() {
    let service = Service::start();
    let folder = tempfile::tempdir().unwrap();
    let body = folder.path().join("body.json");
    fs::write(&body, "{\"n\": 1}").unwrap();
    let data = format!("@{}", body.display());
    let url = service.url("/orders/1?full=yes");
    let host = service.address.to_string();
    let with_password = url.replace("http://", "http://me:se%40cret@");
    for (flags, method, header, value, body) in [
        (&[url.as_str()][..], "GET", "host", Some(host.as_str()), ""),
        (
            &[&url, "-X", "DELETE"],
            "DELETE",
            "user-agent",
            Some(concat!("weir/", env!("CARGO_PKG_VERSION"))),
            "",
        ),
        (&[&url, "-X", "POST"], "POST", "content-length", Some("0"), ""),
        (&[&url, "-d", "a=b"], "POST", "content-type", Some("application/x-www-form-urlencoded"), "a=b"),
        (&[&url, "-d", &data], "POST", "content-type", Some("application/json"), "{\"n\": 1}"),
        (&[&url, "-d", "x", "-X", "PUT", "-H", "Content-Type: a/b"], "PUT", "content-type", Some("a/b"), "x"),
        (&[&url, "-H", "Host: example.org"], "GET", "host", Some("example.org"), ""),
        (&[&url, "-H", "X-A: 1", "-H", "x-b:2"], "GET", "x-b", Some("2"), ""),
        (&[&url, "-u", "me:secret"], "GET", "authorization", Some("Basic bWU6c2VjcmV0"), ""),
        (&[&with_password], "GET", "authorization", Some("Basic bWU6c2VAY3JldA=="), ""),
        (&[&url, "--bearer", "abc.def"], "GET", "authorization", Some("Bearer abc.def"), ""),
        (&[&url, "--connect", "each"], "GET", "connection", Some("close"), ""),
        (&[&url], "GET", "authorization", None, ""),
    ] {
        let report = all_succeed(flags);
        assert_eq!((report.workload.as_str(), report.dialect.as_str()), ("url", "http"));
        assert_eq!(report.operations[0].operation, format!("{method} /orders/1?full=yes"));
        assert_eq!(report.statuses.keys().collect::<Vec<_>>(), ["200"]);
        let seen = service.seen();
        let last = seen.last().unwrap();
        assert_eq!((&last["method"], &last["path"]), (&json!(method), &json!("/orders/1?full=yes")));
        assert_eq!(
            (last["headers"][header].as_str(), &last["body"]),
            (value, &json!(body)),
            "{flags:?}: {last}"
        );
    }
    // No more than one request of each.
    let head = all_succeed(&[&url, "-X", "HEAD"]);
    assert!(head.connects <= 2, "{head:?}");
}

#[test]
fn what_counts_as_a_success_can_be_said() {
    let service = Service::start();
    for (path, flags, failure) in [
        ("/status/204", &[][..], None),
        ("/status/301", &[], None),
        ("/status/404", &[], Some("http_4xx")),
        ("/status/500", &[], Some("http_5xx")),
        ("/status/404", &["--expect", "200,404"], None),
        ("/status/503", &["--expect", "2xx,500-503"], None),
        ("/status/201", &["--expect", "200"], Some("unexpected_status")),
        ("/status/200", &["--expect-body", "^.\"method\": \"[A-Z]+\""], None),
        ("/status/200", &["--expect-body", "no such thing"], Some("unexpected_body")),
        ("/status/404", &["--expect-body", "method"], Some("http_4xx")),
    ] {
        let url = service.url(path);
        let report = report(&[&[url.as_str()], flags].concat());
        let (failed, class) = (report.attempts - report.successes, report.errors.keys().next());
        assert_eq!(class.map(String::as_str), failure, "{path} {flags:?}: {report:?}");
        assert!(report.attempts > 0 && failed == failure.map_or(0, |_| report.attempts), "{report:?}");
        let status = path.rsplit('/').next().unwrap();
        assert_eq!(report.statuses.get(status), Some(&report.attempts));
    }
}

#[test]
fn variables_are_filled_in_from_the_seed_and_from_a_file() {
    let service = Service::start();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).unwrap();
        folder.path().join(name).to_str().unwrap().to_owned()
    };
    let csv = write("ids.csv", "id,name\n7,a b\n8,\"c/d\"\n9,é\n");
    let lines = write(
        "ids.jsonl",
        "{\"id\":7,\"name\":\"a b\"}\n{\"id\":8,\"name\":\"c/d\"}\n{\"id\":9,\"name\":\"é\"}\n",
    );
    for file in [csv, lines] {
        let url = service.url("/{{ id }}/{{name}}?n={{int:1..3}}");
        let flags = [
            "--values",
            &file,
            "-d",
            "{\"id\":{{id}},\"key\":\"{{uuid}}\"}",
            "-H",
            "Idempotency-Key: {{uuid}}",
        ];
        all_succeed(&[&[url.as_str()], &flags[..]].concat());
        let seen = service.seen();
        let (mut paths, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for request in seen.iter().filter(|request| request["method"] == "POST") {
            let (path, n) = request["path"].as_str().unwrap().split_once("?n=").unwrap();
            assert!(["1", "2", "3"].contains(&n), "{request}");
            let body: Value = serde_json::from_str(request["body"].as_str().unwrap()).unwrap();
            let key = body["key"].as_str().unwrap().to_owned();
            assert!(key.len() == 36 && path.starts_with(&format!("/{}/", body["id"])), "{request}");
            assert_ne!(request["headers"]["idempotency-key"], json!(key));
            paths.insert(path.to_owned());
            keys.insert(key);
        }
        assert_eq!(paths, ["/7/a%20b", "/8/c%2Fd", "/9/%C3%A9"].map(String::from).into());
        assert!(keys.len() > 3, "{keys:?}");
    }
}

/// How many of the requests that the service has seen last have this path.
fn count(seen: &[Value], path: &str) -> usize {
    seen.iter().filter(|request| request["path"] == path).count()
}

#[test]
fn several_requests_come_from_vegetas_format_or_from_har_by_their_weights() {
    let service = Service::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("body"), "{\"n\":1}").unwrap();
    let text =
        format!("# weight 9\nGET /often\n\nPOST {}\nX-A: 1\n@{}\n", service.url("/seldom"), path("body"));
    fs::write(path("targets.txt"), text).unwrap();
    let request = |url: String| json!({ "request": { "method": "GET", "url": url, "headers": [] } });
    let often = vec![request(service.url("/often")); 9];
    let others = [request(service.url("/seldom")), request("https://elsewhere.example/x".into())];
    let entries = [often, others.to_vec()].concat();
    let har = json!({ "log": { "entries": entries } });
    fs::write(path("a.har"), har.to_string()).unwrap();
    for (file, seldom) in [("targets.txt", "POST /seldom"), ("a.har", "GET /seldom")] {
        let report =
            all_succeed(&[&service.url(""), "--targets", &path(file), "-H", "X-B: 2", "-H", "X-A: 3"]);
        let names: Vec<&str> = report.operations.iter().map(|row| row.operation.as_str()).collect();
        assert_eq!(
            (names, report.mix["GET /often"], report.mix[seldom]),
            (vec!["GET /often", seldom], 0.9, 0.1)
        );
        let counted: u64 = report.operations.iter().map(|row| row.successes).sum();
        assert_eq!(counted, report.successes);
        let seen = service.seen();
        let (often, seldom) = (count(&seen, "/often"), count(&seen, "/seldom"));
        // Six standard deviations.
        let (all, deviation) = ((often + seldom) as f64, (0.09 * (often + seldom) as f64).sqrt());
        assert!((often as f64 - 0.9 * all).abs() < 6.0 * deviation, "{often} {seldom}");
        if file == "targets.txt" {
            let posted = seen.iter().find(|request| request["method"] == "POST").unwrap();
            assert_eq!((&posted["body"], &posted["headers"]["x-a"]), (&json!("{\"n\":1}"), &json!("1")));
            assert_eq!(posted["headers"]["x-b"], "2");
        }
    }

    for (text, told) in [
        ("POST http://elsewhere.example/x\n", "it is not of http://127.0.0.1"),
        ("/x\n", "line 1: `/x` is no request; hint: begin with a line as GET /orders/1"),
        ("", "it has no request"),
    ] {
        fs::write(path("wrong.txt"), text).unwrap();
        let (output, _, stderr) = weir_load(&[&service.url(""), "--targets", &path("wrong.txt")]);
        assert!(output.status.code() == Some(2) && stderr.contains(told), "{text}: {stderr}");
    }
}

#[test]
fn stages_offer_one_rate_after_the_other() {
    let service = Service::start();
    let url = service.url("/x");
    let stages = "--stages=500ms:100/s,1s:100/s..300/s";
    let (output, stdout, stderr) = weir_load(&[&url, stages, "--json", "--clients=4", "--bin=500ms"]);
    assert!(output.status.success(), "{stderr}");
    let report: LoadReport = serde_json::from_str(&stdout).unwrap();
    let schedule = report.schedule.as_ref().unwrap();
    // 50, then 200 on average for a second.
    assert_eq!((schedule.due, report.window_secs, report.warmup_secs), (250, 1.5, 0.0), "{report:?}");
    assert!((schedule.offered_rps - 250.0 / 1.5).abs() < 1e-6, "{schedule:?}");
    assert_eq!(report.pacing, "constant 500ms:100/s,1s:100/s..300/s");
    for (flags, told) in [
        (&["--stages=10s"][..], "`10s` has no colon; hint: write TIME:RATE"),
        (&["--stages=1s:5/s", "--rate=5"], "cannot be used with"),
        (&["--stages=1s:5/s", "--window=5s"], "cannot be used with"),
        (&["--arrivals=poisson"], "--rate <N>"),
    ] {
        let (output, _, stderr) = weir_load(&[&[url.as_str()], flags].concat());
        assert!(output.status.code() == Some(2) && stderr.contains(told), "{flags:?}: {stderr}");
    }
}

#[test]
fn several_servers_share_the_clients_and_one_checker() {
    let (first, second) = (Service::start(), Service::start());
    let report = all_succeed(&[&first.url("/a"), &second.url("/b"), "--rate=200"]);
    assert!(report.connects <= 4, "{report:?}");
    let (a, b) = (first.seen(), second.seen());
    assert!(count(&a, "/a") > 0 && count(&a, "/b") == 0 && count(&b, "/b") > 0 && count(&b, "/a") == 0);
    assert!(b.iter().all(|request| request["headers"]["host"] == second.address.to_string()));

    // Two stores that do not know of each other: what is written to one cannot be read from the other.
    let (first, second) = (Server::start("memory:", &[]), Server::start("memory:", &[]));
    let urls = [&first, &second].map(|server| format!("http://{}", server.address));
    let flags = ["--workload=mixed", "--keys=20", "--check=linearizability"];
    let checked = |urls: &[String], more: &[&str]| {
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        let report = run_until(&plan(&[&urls, &flags[..], more].concat()), |over| over >= 2000);
        report.linearizability.unwrap()
    };
    let wrong = checked(&urls, &["--no-preload"]);
    assert!(wrong.violations > 0, "{wrong:?}");
    // One store at two addresses.
    let server = Server::start("memory:", &["--listen", "127.0.0.1:0"]);
    let urls =
        [server.address.to_string(), server.more[0].clone()].map(|address| format!("http://{address}"));
    let right = checked(&urls, &[]);
    assert_eq!((right.violations, right.not_decided), (0, 0), "{right:?}");
}

/// By a command, and where it runs already.
#[test]
fn the_lab_measures_services_over_tls() {
    let authority = Authority::new();
    let (flags, ca) = (authority.flags("server"), authority.file("ca.pem"));
    let server = Server::start("memory:", &flags.iter().map(String::as_str).collect::<Vec<_>>());
    let serve = [env!("CARGO_BIN_EXE_weir"), "serve --store memory: --listen 127.0.0.1:{port}"];
    let command = format!("{} {}", serve.join(" "), flags.join(" "));
    let url = format!("https://{}/healthz", server.address);
    for (at, target) in [
        &["--command", command.as_str(), "--url", "https://127.0.0.1:{port}/healthz"][..],
        &["--url", url.as_str()],
    ]
    .iter()
    .enumerate()
    {
        let out = authority.file(&format!("run-{at}"));
        let short =
            "--levels 1 --repetitions 1 --warmup 10ms --window 200ms --no-selftest --no-headroom --out";
        let output = Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("lab")
            .args(*target)
            .args(short.split(' '))
            .arg(&out)
            .args(["--", "--cacert"])
            .arg(&ca)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let results = fs::read(out.join("results.json")).expect(&said);
        let results: Value = serde_json::from_slice(&results).unwrap();
        let load = &results["trials"][0]["load"];
        assert!(load["successes"].as_u64() > Some(0), "{target:?}: {said} {load}");
        assert_eq!(load["successes"], load["attempts"], "{load}");
    }
}

#[test]
fn https_and_unix_sockets_are_reached() {
    let authority = Authority::new();
    let flags = authority.flags("server");
    let ca = authority.file("ca.pem").to_str().unwrap().to_owned();
    let (cert, key) = authority.issue("client");
    let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
    let client_ca = ["--tls-client-ca".to_owned(), ca.clone()];
    let flags: Vec<&str> = flags.iter().chain(&client_ca).map(String::as_str).collect();
    let server = Server::start("memory:", &flags);
    let (url, by_name) = (
        format!("https://{}/readyz", server.address),
        format!("https://localhost:{}", server.address.port()),
    );
    let shown = ["--cert", cert, "--key", key];
    let kept = all_succeed(&[&[&url, "--cacert", &ca], &shown[..]].concat());
    assert_eq!(kept.connects, 2);
    let each = all_succeed(&[&[&url, "-k", "--connect", "each"], &shown[..]].concat());
    assert_eq!(each.connects, each.attempts);
    // Long values, so that a record of TLS is not an answer.
    let long = [
        "--workload",
        "mixed",
        "--keys",
        "20",
        "--value-size",
        "100-200000",
        "--verify",
        "all",
        "--cacert",
        &ca,
    ];
    assert!(all_succeed(&[&[by_name.as_str()], &long[..], &shown[..]].concat()).verified > 0);

    for (flags, told) in [
        (&[url.as_str(), "--cert", cert, "--key", key][..], "--cacert"),
        (&[&url, "--cacert", &ca], "tls"),
        (&[&url, "--cacert", "/nowhere.pem"], "cannot read --cacert /nowhere.pem"),
        (&[&url.replace("https", "http")], "status 400"),
    ] {
        let (output, stdout, stderr) =
            weir_load(&[flags, &["--window=3s", "--warmup=0s", "--clients=1"]].concat());
        let told = told.to_lowercase();
        assert!(format!("{stdout}{stderr}").to_lowercase().contains(&told), "{flags:?}: {stdout}{stderr}");
        assert!(!output.status.success() || stdout.contains("req/s"), "{flags:?}");
    }

    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("weir.sock");
    let listen = format!("unix:{}", socket.display());
    let _server = Server::start("memory:", &["--listen", &listen]);
    all_succeed(&[&format!("{listen}:/readyz")]);
    all_succeed(&[&listen, "--workload", "mixed", "--keys", "20"]);
}

#[test]
fn a_wrong_command_line_says_what_to_do() {
    let nobody = free_address();
    let url = format!("http://{nobody}/x");
    for (flags, code, told) in [
        (&[url.as_str()][..], 1, "connection refused; hint: start the server, or correct the port"),
        (&["localhost:80/x"], 2, "hint: write http://localhost:80/x"),
        (&["http://no-such-host.invalid/"], 1, "cannot reach http://no-such-host.invalid/: "),
        (&["http://127.0.0.1/a b"], 2, "write %20"),
        (&["unix:/no/such.sock"], 1, "correct the path of the socket"),
        (&[&url, "-X", "get"], 2, "write it in capital letters"),
        (&[&url, "-H", "Accept"], 2, "write it as in 'Accept: text/html'"),
        (&[&url, "-H", "Content-Length: 5"], 2, "it follows from the body"),
        (&[&url, "-d", "@/no/such"], 2, "cannot read /no/such"),
        (&[&url, "-u", "a:b", "--bearer", "c"], 2, "cannot be used with"),
        (&[&url, "-u", "a:b", "-H", "Authorization: c"], 2, "leave one of them out"),
        (&[&url, "--expect", "ok"], 2, "`ok` is no status; hint: write 200, 2xx or 200-299"),
        (&[&url, "--expect-body", "("], 2, "no regular expression"),
        (&[&url, "-d", "{{idd}}"], 2, "unknown variable {{idd}}; hint: expected {{uuid}}, {{int:1..1000}}"),
        (&[&url, "--values", "/no/such"], 2, "name a CSV file"),
        (&[&url, "--workload", "mixed"], 2, "leave the path out"),
        (
            &[&url, "--workload", "mixed", "-X", "PUT"],
            2,
            "--request cannot be used with a key-value workload",
        ),
        (&[&url, "--cacert", "a", "-k"], 2, "cannot be used with"),
        (&[&url, "--cert", "a"], 2, "--key <FILE>"),
    ] {
        let (output, stdout, stderr) = weir_load(flags);
        assert_eq!(output.status.code(), Some(code), "{flags:?} {stderr}");
        assert!(
            stderr.contains(told) && stderr.lines().count() == 1 && stdout.is_empty(),
            "{flags:?}: {stderr}"
        );
    }
    let (_, _, stderr) = weir_load(&["http://me:s3cret@127.0.0.1:x/"]);
    assert!(!stderr.contains("s3cret") && stderr.contains("1 to 65535"), "{stderr}");
}
