//! Micro-benchmarks: `cargo bench --bench micro -- NAME…`, or all of them without a name.
//!
//! Each takes its sides in turn (A B A B) on one pinned core and gives medians with quartiles; a ratio is the median of
//! the ratios within each round. Without `--bench`, as under `cargo test`, each does little and checks what came out.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark tells what it found")]

mod cache;
mod heap;
mod http1;
mod load;
mod runner;
mod steady;

use runner::Run;
use std::process::ExitCode;

/// As in the server: see `src/main.rs`.
#[global_allocator]
static ALLOCATOR: heap::Counting = heap::Counting;

/// A benchmark by name.
struct Bench {
    name: &'static str,
    about: &'static str,
    run: fn(&Run),
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "cache-hit",
        about: "a row of the cache is asked for by its key, beside quick_cache",
        run: cache::hit,
    },
    Bench {
        name: "cache-insert",
        about: "a new row is made and pushes out another, beside quick_cache",
        run: cache::insert,
    },
    Bench {
        name: "cache-memory",
        about: "what a cached row costs beyond key and value, beside quick_cache",
        run: cache::memory,
    },
    Bench { name: "load-keys", about: "the load generator chooses a key", run: load::keys },
    Bench { name: "load-record", about: "the load generator keeps a latency", run: load::record },
    Bench { name: "http1-parse", about: "the head of a GET is parsed", run: http1::parse },
    Bench {
        name: "steady",
        about: "verdicts on windows of which the truth is known, by the noise and the length of the window",
        run: steady::verdicts,
    },
    Bench { name: "http1-write", about: "the head of an answer is written", run: http1::write },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, side, keys] = &arguments[..]
        && flag == cache::MEMORY_FLAG
    {
        return cache::tell_memory(side, keys);
    }
    let run = Run::new(arguments.iter().any(|argument| argument == "--bench"));
    let names: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with("--")).collect();
    if let Some(unknown) = names.iter().find(|name| BENCHES.iter().all(|bench| !bench.name.contains(**name)))
    {
        eprintln!("error: there is no benchmark {unknown}; there are:");
        BENCHES.iter().for_each(|bench| eprintln!("  {:<14}{}", bench.name, bench.about));
        return ExitCode::from(2);
    }
    let is_asked = |bench: &&Bench| names.is_empty() || names.iter().any(|name| bench.name.contains(*name));
    for bench in BENCHES.iter().filter(is_asked) {
        println!("# {}: {}", bench.name, bench.about);
        (bench.run)(&run);
    }
    ExitCode::SUCCESS
}
