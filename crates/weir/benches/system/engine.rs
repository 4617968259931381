//! Durable writes over HTTP beside the embedded engine alone.
//!
//! The engine is given, in this process and on the server's core, batches such as the server's workers formed in the same
//! round: as many workers, as many rows to a batch, rows of the same size, keys drawn from as many.

use crate::support::{SERVER_CORE, Server, load, pinned, spread};
use kv::{Change, Key, Row, Version, Write};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use store::{self, Part, Session};

const ROUNDS: usize = 7;
const WARM_UP: Duration = Duration::from_millis(500);
const WINDOW: Duration = Duration::from_secs(2);
/// Of the workload `put_only`.
const KEYS: u64 = 10_000_000;
const VALUE: [u8; 100] = [b'x'; 100];

/// What the server did in a round.
struct Served {
    writes_per_sec: f64,
    batch: f64,
    workers: usize,
    cpu_us: f64,
}

/// Prints what both sides reach, and the ratio.
pub(crate) fn run() {
    let (mut over_http, mut alone, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let served = serve(&fresh_dir().path().join("store"));
        let engine = drive(&fresh_dir().path().join("store"), served.workers, served.batch.round() as usize);
        ratios.push(served.writes_per_sec / engine);
        alone.push(engine);
        over_http.push(served);
    }
    let of = |figure: fn(&Served) -> f64| over_http.iter().map(figure).collect::<Vec<f64>>();
    println!("weir serve, 64 clients: {} writes/s", spread(&of(|served| served.writes_per_sec), 0));
    println!("  rows to a batch       {}", spread(&of(|served| served.batch), 1));
    println!("  workers                 {}", over_http[0].workers);
    println!("  server CPU a write    {} us", spread(&of(|served| served.cpu_us), 2));
    println!("the engine alone:       {} writes/s", spread(&alone, 0));
    println!("ratio                   {}", spread(&ratios, 3));
}

/// On the disk that is measured: the temporary folder may be memory.
fn fresh_dir() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the target folder can be written")
}

fn serve(dir: &Path) -> Served {
    let server = Server::start(&["--store", &format!("file:{}", dir.display())]);
    let (before, cpu_before) = (server.stats(), server.cpu());
    let (warm_up, window) = (format!("{}ms", WARM_UP.as_millis()), format!("{}ms", WINDOW.as_millis()));
    let flags = ["--workload", "put_only", "--clients", "64", "--warmup", &warm_up, "--window", &window];
    let report = load(server.url(), &flags);
    let (after, cpu) = (server.stats(), server.cpu() - cpu_before);
    assert_eq!(report.error_ratio, 0.0, "every write succeeds");
    let grown = |name: &str| after[name].as_f64().unwrap_or(0.0) - before[name].as_f64().unwrap_or(0.0);
    let batches = grown("weir_store_batch_size_count{operation=\"write\"}");
    let writes = grown("weir_store_batch_size_sum{operation=\"write\"}");
    Served {
        writes_per_sec: report.goodput_rps,
        batch: writes / batches,
        workers: after["weir_store_workers{operation=\"write\"}"]
            .as_f64()
            .map_or(1, |workers| workers as usize),
        cpu_us: cpu.as_secs_f64() * 1e6 / writes,
    }
}

/// Writes per second of the engine alone, in batches of `rows`.
fn drive(dir: &Path, workers: usize, rows: usize) -> f64 {
    // The engine's own threads are started from here, and stay on the core, too.
    pinned(SERVER_CORE, || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let store = store::open(&format!("file:{}", dir.display())).expect("a URL of the embedded store");
        let lease = runtime.block_on(store.acquire(Part::WHOLE)).expect("a new store");
        let versions = AtomicU64::new(Version::first_of(lease.epoch).0);
        let (written, ended) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for worker in 0..workers as u64 {
                let session = runtime.block_on(store.connect(lease.epoch)).expect("a session");
                let (versions, written, ended) = (&versions, &written, &ended);
                scope.spawn(move || worker_of(session, worker + 1, rows.max(1), versions, written, ended));
            }
            thread::sleep(WARM_UP);
            let (before, start) = (written.load(Relaxed), Instant::now());
            thread::sleep(WINDOW);
            let (after, took) = (written.load(Relaxed), start.elapsed());
            ended.store(true, Relaxed);
            (after - before) as f64 / took.as_secs_f64()
        })
    })
}

/// One worker: batch after batch until `ended`.
fn worker_of(
    mut session: Box<dyn Session>,
    seed: u64,
    rows: usize,
    versions: &AtomicU64,
    written: &AtomicU64,
    ended: &AtomicBool,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut state = seed;
    while !ended.load(Relaxed) {
        let mut keys = BTreeSet::new();
        while keys.len() < rows {
            keys.insert(Key::new(format!("put_only_{}", draw(&mut state) % KEYS).as_bytes()).expect("short"));
        }
        let writes: Vec<Write> = keys
            .into_iter()
            .map(|key| {
                let version = Version(versions.fetch_add(1, Relaxed) + 1);
                let change = Change::Put(Row::new(&key, "", &VALUE, version));
                Write { key, version, change }
            })
            .collect();
        runtime.block_on(session.write(&writes)).expect("the engine takes it");
        written.fetch_add(writes.len() as u64, Relaxed);
    }
}

/// The next of a sequence without pattern (SplitMix64).
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}
