//! Benchmarks that start real processes: `cargo bench --bench system -- NAME…`, or all of them without a name.
//!
//! Every ratio is taken within one run, its sides in turn: A B C A B C. The server has one core, the load another.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark tells what it found")]

mod adaptive;
mod engine;
mod generator;
mod instructions;
mod plot;
mod scale;
mod stall;
mod support;

use std::process::ExitCode;

// That of the server: what `scale` measures in this process is the same there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A benchmark by name.
struct Bench {
    name: &'static str,
    about: &'static str,
    /// Prints its figures to standard output.
    run: fn(),
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "instructions",
        about: "user instructions of one cached GET and one PUT, counted by callgrind",
        run: instructions::run,
    },
    Bench {
        name: "generator",
        about: "processor time per request of weir load beside that of wrk",
        run: generator::run,
    },
    Bench {
        name: "scale",
        about: "memory and cost of a request by rows, connections and length of values, in about four minutes",
        run: scale::run,
    },
    Bench {
        name: "stall",
        about: "one stall as a closed loop sees it, as an open one does, and as its clients do; memory of a long run",
        run: stall::run,
    },
    Bench {
        name: "adaptive",
        about: "what windows that end by themselves save beside one length for all, on recorded runs; in about twenty minutes",
        run: adaptive::run,
    },
    Bench {
        name: "engine",
        about: "durable writes over HTTP beside the embedded engine alone, given the same batches",
        run: engine::run,
    },
];

fn main() -> ExitCode {
    // cargo bench adds `--bench`; `cargo test` does not, and nothing here is a test.
    let names: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    if let Some(unknown) = names.iter().find(|name| BENCHES.iter().all(|bench| bench.name != **name)) {
        eprintln!("error: there is no benchmark {unknown}; there are:");
        BENCHES.iter().for_each(|bench| eprintln!("  {:<14}{}", bench.name, bench.about));
        return ExitCode::from(2);
    }
    for bench in
        BENCHES.iter().filter(|bench| names.is_empty() || names.iter().any(|name| name == bench.name))
    {
        println!("# {}: {}", bench.name, bench.about);
        (bench.run)();
    }
    ExitCode::SUCCESS
}
