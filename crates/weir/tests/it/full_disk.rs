//! Disks that fill up: under the embedded store, a small file system in a mount namespace of the server's own; under the results of a lab.

use crate::support::{Client, Server, is_long, until};
use lab_data::results::Results;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

const WRITERS: usize = 64;

/// A server whose store is on a file system of 10 MiB.
fn on_small_disk(flags: &[&str]) -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=10m tmpfs \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(directory.path()).arg(env!("CARGO_BIN_EXE_weir"));
    let url = format!("file:{}/store", directory.path().display());
    (directory, Server::start_by(command, &url, flags, &[]).unwrap())
}

/// Writes keys of its own until one is refused; what the server acknowledged is in `stored` then.
fn fill(server: &Server, writer: usize, stored: &mut HashMap<String, Vec<u8>>) {
    let mut client = server.client();
    for step in 0.. {
        let key = format!("/kv/{writer}-{}", step % 400);
        let value = format!("{writer} {step} ").repeat(200).into_bytes();
        let answer = client.put(&key, &value);
        match answer.status {
            201 | 204 => drop(stored.insert(key, value)),
            // Refused at once, and not left open whether it happened.
            503 => {
                assert_eq!(answer.header("weir-outcome"), Some("not-applied"), "{}", answer.text());
                return;
            }
            other => panic!("{other} {}", answer.text()),
        }
    }
}

fn check(client: &mut Client, stored: &HashMap<String, Vec<u8>>) {
    for (key, value) in stored {
        let answer = client.get(key);
        assert!(answer.status == 200 && answer.body == *value, "{key}: {} {}", answer.status, answer.text());
    }
}

fn fills_up_and_goes_on(flags: &[&str]) {
    let (_directory, server) = on_small_disk(flags);
    let mut client = server.client();
    let mut of_writers: Vec<HashMap<String, Vec<u8>>> = vec![HashMap::new(); WRITERS];
    // The oldest row, longer than segments are: to give back any space at all, the server has to find room for it.
    let large = vec![7; 3 << 20];
    assert_eq!(client.put("/kv/large", &large).status, 201);
    of_writers[1].insert("/kv/large".to_owned(), large);
    for round in 0..if is_long() { 20 } else { 3 } {
        thread::scope(|scope| {
            for (writer, stored) in of_writers.iter_mut().enumerate() {
                let server = &server;
                scope.spawn(move || fill(server, writer, stored));
            }
        });
        // It says so, and reads go on, of what the cache does not have as well.
        let ready = client.get("/readyz");
        assert!(ready.status == 200 && ready.text().contains("refuses writes"), "{}", ready.text());
        of_writers.iter().for_each(|stored| check(&mut client, stored));
        // Deletes work, although there is no room.
        thread::scope(|scope| {
            for stored in of_writers.iter_mut().skip(round % 2).step_by(2) {
                let mut client = server.client();
                scope.spawn(move || {
                    for (key, _) in stored.drain() {
                        assert_eq!(client.ask("DELETE", &key, &[], b"").unwrap().status, 204);
                    }
                });
            }
        });
        // And writes go on by themselves.
        until("writes are accepted again", || client.put("/kv/again", b"x").status != 503);
        assert_eq!(client.get("/readyz").text(), "ready\n");
        of_writers.iter().for_each(|stored| check(&mut client, stored));
    }
}

/// It failed all writes that were in its batch.
#[test]
fn a_row_that_does_not_fit_is_refused_alone() {
    let (_directory, server) = on_small_disk(&[]);
    let mut client = server.client();
    for key in ["/kv/1", "/kv/2"] {
        assert_eq!(client.put(key, &vec![1; 1 << 20]).status, 201);
    }
    let put = |writer: usize| {
        let mut client = server.client();
        for step in 0..300 {
            let answer = client.put(&format!("/kv/{writer}-{}", step % 20), b"small");
            assert!(matches!(answer.status, 201 | 204), "{}", answer.text());
        }
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..8).map(|writer| scope.spawn(move || put(writer))).collect();
        while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
            assert_eq!(client.put("/kv/large", &vec![7; 6 << 20]).status, 503);
        }
    });
}

/// The server said that it was ready, and the client that the store "refuses this".
#[test]
fn an_atomic_batch_says_of_a_full_disk_what_a_put_does() {
    let (_directory, server) = on_small_disk(&[]);
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", &vec![1; 4 << 20]).status, 201);
    let put = format!("{{\"op\":\"put\",\"key\":\"b\",\"value\":\"{}\"}}\n", "x".repeat(7 << 20));
    let batch = put + "{\"op\":\"delete\",\"key\":\"c\"}\n{\"op\":\"put\",\"key\":\"d\",\"value\":\"\"}\n";
    let refused = client.ask("POST", "/batch?atomic=true", &[], batch.as_bytes()).unwrap();
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.problem()["code"], client.put("/kv/b", &vec![1; 7 << 20]).problem()["code"]);
    let text = client.get("/readyz").text();
    assert!(text.contains("refuses writes"), "{text}");
}

/// The second or third start was refused.
#[test]
fn on_a_full_disk_a_server_starts_again_and_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut disk = Command::new("unshare");
    let script = "mount -t tmpfs -o size=10m tmpfs \"$1\" && echo && exec cat";
    disk.args(["--mount", "sh", "-c", script, "sh"]).arg(directory.path());
    // It ends with its input, and so with the test.
    disk.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut disk = disk.spawn().unwrap();
    disk.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
    let on_disk = Path::new("/proc").join(disk.id().to_string()).join("root");
    let on_disk = on_disk.join(directory.path().strip_prefix("/").unwrap());
    let url = format!("file:{}/store", directory.path().display());
    let start = || {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &disk.id().to_string()]).arg(env!("CARGO_BIN_EXE_weir"));
        Server::start_by(command, &url, &[], &[])
    };
    let mut server = start().unwrap();
    let mut stored = HashMap::new();
    let rows = (0..).map(|key: u32| (format!("/kv/{key}"), key.to_le_bytes().repeat(4000)));
    stored.extend(rows.take_while(|(key, value)| server.client().put(key, value).status == 201));
    for round in 0..8 {
        server.kill();
        // Others take what became free.
        let other = File::create(on_disk.join(format!("other {round}"))).unwrap();
        while (&other).write_all(&[0; 4096]).is_ok() {}
        server = start().unwrap_or_else(|error| panic!("start {round}: {error}"));
        check(&mut server.client(), &stored);
    }
    let key = stored.keys().next().unwrap();
    assert_eq!(server.client().ask("DELETE", key, &[], b"").unwrap().status, 204);
    drop((server, disk.stdin.take()));
    disk.wait().unwrap();
}

#[test]
fn a_limit_of_the_size_of_files_refuses_a_write_and_ends_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 4096; exec \"$@\"", "sh"]).arg(env!("CARGO_BIN_EXE_weir"));
    let url = format!("file:{}/store?segment=64KiB", directory.path().display());
    let server = Server::start_by(command, &url, &[], &[]).unwrap();
    let mut client = server.client();
    let refused = client.put("/kv/large", &vec![7; 6 << 20]);
    let outcome = refused.header("weir-outcome");
    assert!((refused.status, outcome) == (503, Some("not-applied")), "{}", refused.text());
    until("others are stored", || client.put("/kv/small", b"x").status == 201);
}

#[test]
fn a_full_disk_stops_no_reads_and_writes_go_on_when_there_is_room() {
    fills_up_and_goes_on(&["--cache-entries", "100"]);
}

#[test]
fn a_full_disk_with_slow_flushes_and_four_workers_is_no_different() {
    fills_up_and_goes_on(&[
        "--cache-entries",
        "100",
        "--lab",
        "--inject",
        "flush=2ms",
        "--store-write-workers",
        "4",
    ]);
}

/// That the report could not be written hid that the run had ended before its time.
#[test]
fn a_run_that_could_not_save_its_results_says_how_far_it_came() {
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("experiment.toml"), dir.path().join("out"));
    std::fs::write(&file, super::lab::SIMULATED).unwrap();
    // As on a full disk; files of this many half KiB have room for the first trials.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 30; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_weir"), "lab"]);
    let output = command.arg(file).arg("--out").arg(&out).env("XDG_CACHE_HOME", dir.path()).output().unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{complained}");
    assert!(complained.contains("ended after ") && complained.contains(" of 10 trials\n"), "{complained}");
    assert!(
        complained.lines().last().is_some_and(|line| line.contains("results.json: File too large")),
        "{complained}"
    );
    assert!(said.contains("throughput"), "{said}");
    let kept: Results = serde_json::from_slice(&std::fs::read(out.join("results.json")).unwrap()).unwrap();
    assert!(!kept.trials.is_empty());
}
