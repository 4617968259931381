//! The S3 API, by those who speak it: boto3, and two command lines, s3cmd and Amazon's own.

use crate::support::{Server, postgres, python, until};
use crate::tls::Authority;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;

const CREDENTIALS: &str = r#"
[[credential]]
access_key = "app"
secret_key = "app-secret-app-secret"
verbs = ["read", "write", "list"]
prefix = ""

[[credential]]
access_key = "reader"
secret_key = "reader-secret-reader"
verbs = ["read"]
prefix = "r"

[[credential]]
access_key = "writer"
secret_key = "writer-secret-writer"
verbs = ["write", "list"]
prefix = "w/"
"#;

/// A server with the API, and the directory that has its credentials.
struct S3 {
    server: Server,
    directory: TempDir,
}

impl S3 {
    fn start(store: &str, flags: &[&str]) -> S3 {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("s3.toml");
        fs::write(&file, CREDENTIALS).unwrap();
        let own = ["--compat", "s3=127.0.0.1:0", "--s3-credentials", file.to_str().unwrap()];
        let server = Server::start(store, &[&own, flags].concat());
        S3 { server, directory }
    }

    /// Runs parts of `s3.py`.
    fn boto3(&self, parts: &[&str], scheme: &str, more: &[&str]) {
        for part in parts {
            let url = format!("{scheme}://localhost:{}", self.server.compat("s3").port());
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/s3.py");
            let mut command = self.command("python3");
            succeeds(part, command.args([script, part, &url]).args(more));
        }
    }

    /// A program of Python's that knows no other settings than these.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(python(program));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.directory.path())
            .env("AWS_ACCESS_KEY_ID", "app")
            .env("AWS_SECRET_ACCESS_KEY", "app-secret-app-secret")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .current_dir(self.directory.path());
        command
    }

    /// Makes a file there.
    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}

fn succeeds(what: &str, command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let said = String::from_utf8_lossy(&stdout).into_owned();
    assert!(status.success(), "{what}: {said}{}", String::from_utf8_lossy(&stderr));
    said
}

const ALL: [&str; 6] = ["objects", "conditions", "lists", "buckets", "refusals", "chunks"];

#[test]
fn boto3_uses_a_server_in_memory() {
    S3::start("memory:", &[]).boto3(&ALL, "http", &[]);
}

#[test]
fn boto3_uses_an_embedded_store() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{}", directory.path().join("store").display());
    S3::start(&store, &["--cache-entries", "0"]).boto3(&ALL, "http", &[]);
}

#[test]
fn boto3_uses_postgresql() {
    let database = postgres();
    S3::start(&database.url(), &[]).boto3(&ALL, "http", &[]);
}

#[test]
fn boto3_uses_tls_and_sends_checksums_behind_chunks() {
    let authority = Authority::new();
    let flags = authority.flags("server");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let s3 = S3::start("memory:", &flags);
    let ca = authority.file("ca.pem");
    s3.boto3(&["trailers", "objects"], "https", &[ca.to_str().unwrap()]);
}

#[test]
fn a_write_that_may_have_happened_is_500_and_says_so() {
    let s3 = S3::start("memory:", &["--lab", "--inject", "store_worker=9s", "--store-timeout", "2s"]);
    s3.boto3(&["unknown"], "http", &[]);
}

/// What one interface writes the other reads, under the same key.
#[test]
fn the_bucket_has_the_keys_of_the_plain_interface() {
    let log = tempfile::tempdir().unwrap();
    let access_log = log.path().join("access.log");
    let s3 = S3::start("memory:", &["--access-log", access_log.to_str().unwrap()]);
    let url = format!("http://localhost:{}", s3.server.compat("s3").port());
    let aws = |words: &[&str]| {
        let base = ["--endpoint-url", url.as_str(), "--region", "us-east-1"];
        succeeds(&words.join(" "), s3.command("aws").args(base).args(words))
    };
    s3.server.client().put("/kv/plain/1", b"one");
    s3.file("up/2.txt", "two");
    s3.file("up/deep/3.txt", "three");
    assert!(aws(&["s3", "ls"]).trim_end().ends_with(" weir"));
    aws(&["s3", "cp", "up/2.txt", "s3://weir/plain/2"]);
    assert_eq!(s3.server.client().get("/kv/plain/2").text(), "two");
    assert_eq!(s3.server.client().get("/kv/plain/2").header("content-type"), Some("text/plain"));
    let listed = aws(&["s3", "ls", "s3://weir/plain/"]);
    let names: Vec<_> = listed.lines().filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(names, ["1", "2"], "{listed}");
    aws(&["s3", "sync", "up", "s3://weir/synced"]);
    assert_eq!(aws(&["s3", "sync", "up", "s3://weir/synced"]), "", "nothing has changed");
    assert_eq!(s3.server.client().get("/kv/synced/deep/3.txt").text(), "three");
    aws(&["s3", "cp", "s3://weir/plain/1", "down"]);
    assert_eq!(fs::read(s3.directory.path().join("down")).unwrap(), b"one");
    aws(&["s3", "rm", "--recursive", "s3://weir/synced"]);
    assert_eq!(aws(&["s3", "ls", "--recursive", "s3://weir"]).lines().count(), 2);
    until("its log says how a value was served", || {
        let text = fs::read_to_string(&access_log).unwrap_or_default();
        text.lines().any(|line| line.contains("/weir/plain/1") && line.contains("\"cache\":\"hit\""))
    });
}

#[test]
fn s3cmd_puts_lists_gets_and_deletes() {
    let s3 = S3::start("memory:", &[]);
    let host = format!("localhost:{}", s3.server.compat("s3").port());
    let s3cmd = |words: &[&str]| {
        let own = ["--no-ssl", "--access_key=app", "--secret_key=app-secret-app-secret"];
        let at = [format!("--host={host}"), format!("--host-bucket={host}")];
        succeeds(&words.join(" "), s3.command("s3cmd").args(own).args(at).args(words))
    };
    s3.file("ü b.txt", "value");
    s3cmd(&["put", "ü b.txt", "s3://weir/dir/"]);
    assert!(s3cmd(&["ls"]).contains("s3://weir"));
    assert!(s3cmd(&["ls", "s3://weir"]).contains("s3://weir/dir/"));
    assert!(s3cmd(&["ls", "s3://weir/dir/"]).contains("s3://weir/dir/ü b.txt"));
    assert!(s3cmd(&["info", "s3://weir/dir/ü b.txt"]).contains("5"));
    s3cmd(&["get", "s3://weir/dir/ü b.txt", "down"]);
    assert_eq!(fs::read(s3.directory.path().join("down")).unwrap(), b"value");
    s3cmd(&["del", "s3://weir/dir/ü b.txt"]);
    assert_eq!(s3cmd(&["ls", "s3://weir"]), "");
}

#[test]
fn a_credential_that_changes_while_a_body_is_sent_writes_nothing() {
    S3::start("memory:", &[]).boto3(&["changes"], "http", &[]);
}

#[test]
fn credentials_are_read_again_and_no_secret_is_shown() {
    let log = tempfile::tempdir().unwrap();
    let access_log = log.path().join("access.log");
    let s3 = S3::start("memory:", &["--access-log", access_log.to_str().unwrap()]);
    let url = format!("http://localhost:{}", s3.server.compat("s3").port());
    let ls = |secret: &str| {
        let mut command = s3.command("aws");
        command.env("AWS_SECRET_ACCESS_KEY", secret).args([
            "--endpoint-url",
            &url,
            "--region",
            "x",
            "s3",
            "ls",
            "s3://weir",
        ]);
        command.output().unwrap().status.success()
    };
    assert!(ls("app-secret-app-secret") && !ls("new-secret-new-secret"));
    // Half a file changes nothing.
    s3.file("s3.toml", &CREDENTIALS[..40]);
    s3.server.signal(rustix::process::Signal::HUP);
    until("half a file is noticed", || {
        s3.server.client().stats()["weir_reload_failed{files=\"s3-credentials\"}"] == 1.0
    });
    assert!(ls("app-secret-app-secret"));
    s3.file("s3.toml", &CREDENTIALS.replace("app-secret-app-secret", "new-secret-new-secret"));
    until("the new secret is valid", || ls("new-secret-new-secret"));
    assert!(!ls("app-secret-app-secret"));
    let stats = s3.server.client().get("/stats").text() + &s3.server.client().get("/metrics").text();
    let command = fs::read_to_string(format!("/proc/{}/cmdline", s3.server.pid())).unwrap();
    until("the requests are logged", || {
        fs::read_to_string(&access_log).is_ok_and(|text| text.contains("/weir"))
    });
    let shown = stats + &command + &fs::read_to_string(&access_log).unwrap();
    assert!(!shown.contains("secret-app") && !shown.contains("secret-new"), "{shown}");
}
