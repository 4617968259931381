//! The cache beside quick_cache: hits, inserts that evict, and memory.
//!
//! Both have their own hasher and look keys up by bytes. Sixteen bytes of key, 100 of value. weir has as many shards as
//! `weir serve` has by default, quick_cache as many as it takes by itself.

use crate::heap;
use crate::load::zipfian;
use crate::runner::{Run, Side, pin};
use cache::policy::{POLICIES, PolicyRow};
use cache::{Cache, Limits};
use kv::{Key, Row, Version};
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread;

/// How the process that measures memory is started.
pub(crate) const MEMORY_FLAG: &str = "--memory-of";

const KEY_BYTES: usize = 16;
const VALUE: [u8; 100] = [b'v'; 100];
const SHARDS: usize = 16;
/// quick_cache rounds its shards' share of the room up.
const SPARE: usize = 64;
const QUICK: &str = "quick_cache";

type Name = [u8; KEY_BYTES];
/// Puts a row in.
type Insert = Box<dyn Fn(&Name)>;
/// How many rows there are.
type Held = Box<dyn Fn() -> usize>;
type Quick = quick_cache::sync::Cache<Box<[u8]>, Arc<[u8]>>;

/// The key with this number.
fn name(number: u64) -> Name {
    let mut name = *b"key0000000000000";
    let mut rest = number;
    for digit in name[3..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    name
}

fn weir(policy: &PolicyRow, entries: usize) -> Cache {
    Cache::new(Limits { entries, bytes: usize::MAX }, SHARDS, policy)
}

fn row(name: &Name) -> Row {
    Row::new(&Key::new(name).expect("a short key"), "", &VALUE, Version(1))
}

fn put(cache: &Cache, name: &Name) -> bool {
    cache.insert(cache.place(name), row(name))
}

fn put_quick(cache: &Quick, name: &Name) {
    cache.insert(name[..].into(), VALUE[..].into());
}

/// Room for all of `keys` keys in every shard, however unevenly they are spread.
fn roomy(keys: usize) -> usize {
    keys + keys / 4 + 64 * SHARDS
}

/// Reads that all hit: one thread and two, of a million keys and of a thousand. One byte of the value is read.
///
/// quick_cache gives a share of the value, as `Cache::get` does; `Cache::look` shows the row under the lock.
pub(crate) fn hit(run: &Run) {
    for keys in [1_000_000, 1000] {
        let keys = run.at_most(keys);
        let reads = run.at_most(1 << 20);
        let streams = [1, 2].map(|seed| zipfian(keys, seed).take(reads).map(name).collect::<Vec<_>>());
        let names: Vec<Name> = (0..keys as u64).map(name).collect();
        let quick = Quick::new(roomy(keys));
        names.iter().for_each(|name| put_quick(&quick, name));
        let caches: Vec<(&str, Cache)> = (POLICIES.iter())
            .map(|policy| {
                let cache = weir(policy, roomy(keys));
                assert!(names.iter().all(|name| put(&cache, name)));
                assert_eq!(cache.counts().entries, keys);
                (policy.name, cache)
            })
            .collect();
        for threads in [1, 2] {
            let quick = &quick;
            let one = |stream: &[Name]| {
                let found = |name: &&Name| quick.get(&name[..]).map(|value| black_box(value[0])).is_some();
                stream.iter().filter(found).count()
            };
            let mut sides = vec![Side::new(QUICK, two(&streams, threads, one))];
            // First all of one kind, then all of the other: no side finds its cache in the processor's from the side before.
            for (policy, cache) in &caches {
                let get = |stream: &[Name]| {
                    let found = |name: &&Name| {
                        let row = cache.get(cache.place(*name), *name);
                        row.map(|row| black_box(row.value()[0])).is_some()
                    };
                    stream.iter().filter(found).count()
                };
                sides.push(Side::new(format!("{policy}, get"), two(&streams, threads, get)));
            }
            for (policy, cache) in &caches {
                let look = |stream: &[Name]| {
                    let found = |name: &&Name| {
                        let look = |row: &Row| Some(black_box(row.value()[0]));
                        cache.look(cache.place(*name), *name, look).is_some()
                    };
                    stream.iter().filter(found).count()
                };
                sides.push(Side::new(format!("{policy}, look"), two(&streams, threads, look)));
            }
            let title = format!("Zipf 0.99 over {keys} keys, {threads} thread(s)");
            run.compare(&title, reads, sides);
        }
    }
}

/// Does `one` with each of the first so many streams at the same time; the least that came out.
fn two<'a>(
    streams: &'a [Vec<Name>; 2],
    threads: usize,
    one: impl Fn(&[Name]) -> usize + Sync + 'a,
) -> impl FnMut() -> usize + 'a {
    move || match threads {
        1 => one(&streams[0]),
        _ => thread::scope(|scope| {
            let other = scope.spawn(|| {
                pin(1);
                one(&streams[1])
            });
            one(&streams[0]).min(other.join().expect("the other thread ends"))
        }),
    }
}

/// Inserts of keys that are not there, into a cache that is full.
pub(crate) fn insert(run: &Run) {
    let entries = run.at_most(100_000);
    let inserts = run.at_most(1 << 18);
    let quick = Quick::new(entries);
    let mut sides = Vec::new();
    let mut next = 0;
    sides.push(Side::new(QUICK, move || {
        for _ in 0..inserts {
            put_quick(&quick, &name(next));
            next += 1;
        }
        assert!(quick.len() <= entries + SPARE);
        inserts
    }));
    for policy in POLICIES {
        let cache = weir(policy, entries);
        let mut next = 0;
        sides.push(Side::new(policy.name, move || {
            let right = (next..next + inserts as u64).filter(|number| put(&cache, &name(*number))).count();
            next += inserts as u64;
            assert!(cache.counts().entries <= entries);
            right
        }));
    }
    run.compare(&format!("new keys into {entries} rows, 1 thread"), inserts, sides);
}

/// Bytes beyond key and value of each row, in a process of its own for each side.
pub(crate) fn memory(run: &Run) {
    let keys = run.at_most(1_000_000);
    let own = std::env::current_exe().expect("this program has a path");
    println!(
        "room for {keys} rows, bytes beyond key and value of each: resident, and asked of the allocator;"
    );
    println!("when it is full, and when as many again have come and pushed others out");
    for side in [QUICK].into_iter().chain(POLICIES.iter().map(|policy| policy.name)) {
        let told = Command::new(&own).args([MEMORY_FLAG, side, &keys.to_string()]).output();
        let told = told.expect("this program can be started again");
        assert!(told.status.success(), "{side}: {}", String::from_utf8_lossy(&told.stderr));
        println!("  {side:<12} {}", String::from_utf8_lossy(&told.stdout).trim_end());
    }
}

/// Fills one cache and says what it costs.
pub(crate) fn tell_memory(side: &str, keys: &str) -> ExitCode {
    let keys: usize = keys.parse().expect("a number of keys");
    // What the process needs anyway is touched before.
    drop(black_box((0..1000).map(|number| row(&name(number))).collect::<Vec<_>>()));
    let resident = resident_bytes();
    heap::count();
    let policy = POLICIES.iter().find(|policy| policy.name == side);
    let (insert, held): (Insert, Held) = match policy {
        Some(policy) => {
            let cache = Arc::new(weir(policy, keys));
            let same = Arc::clone(&cache);
            (Box::new(move |name| _ = put(&same, name)), Box::new(move || cache.counts().entries))
        }
        None => {
            let cache = Arc::new(Quick::new(keys));
            let same = Arc::clone(&cache);
            (Box::new(move |name| put_quick(&same, name)), Box::new(move || cache.len()))
        }
    };
    for part in 0..2 {
        (part * keys as u64..(part + 1) * keys as u64).for_each(|number| insert(&name(number)));
        let held = held();
        // Some are pushed out before: keys are spread over the shards unevenly.
        assert!(held <= keys + SPARE && held > keys / 2, "{side} holds {held} of {keys}");
        let beyond = |bytes: f64| bytes / held as f64 - (KEY_BYTES + VALUE.len()) as f64;
        let resident = resident_bytes() as f64 - resident as f64;
        print!("{:>10.1} {:>7.1}", beyond(resident), beyond(heap::counted() as f64));
    }
    println!();
    ExitCode::SUCCESS
}

/// Memory of this process that is in RAM.
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux tells");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * rustix::param::page_size() as u64
}
