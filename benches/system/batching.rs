//! What batches bring: a server on PostgreSQL that gathers beside one that sends each request on its own.
//!
//! Server and database share a core. Each side of a round has a database of its own; reads share one that is full.

use crate::support::{SERVER_CORE, Server, load, spread};
use weir::lab::harness::{Postgres, PostgresOptions};

const ROUNDS: usize = 5;
/// Each request in a statement of its own, in as many sessions as there are clients.
const ALONE: &[&str] = &["--lab", "--batching", "off", "--write-lanes", "64", "--read-lanes", "64"];

/// A workload, asked of both sides.
struct Case {
    name: &'static str,
    load: &'static [&'static str],
    clients: &'static str,
    /// Whether it reads rows that have to be there.
    reads: bool,
    goal: Goal,
}

/// What gathering has to be beside sending each request on its own.
enum Goal {
    /// So many times its throughput, at least.
    Throughput(f64),
    /// So many times its median latency, at most.
    Latency(f64),
}

const PUT: &[&str] = &["--workload", "put_only"];
const PUT_ONE_KEY: &[&str] = &["--workload", "put_key_1"];
const GET_MISS: &[&str] = &["--workload", "get_all", "--keys", "100000"];

const CASES: &[Case] = &[
    Case { name: "put", load: PUT, clients: "64", reads: false, goal: Goal::Throughput(3.0) },
    Case {
        name: "put, one key",
        load: PUT_ONE_KEY,
        clients: "64",
        reads: false,
        goal: Goal::Throughput(30.0),
    },
    Case { name: "get, miss", load: GET_MISS, clients: "64", reads: true, goal: Goal::Throughput(2.4) },
    Case { name: "put", load: PUT, clients: "1", reads: false, goal: Goal::Latency(1.1) },
    Case { name: "get, miss", load: GET_MISS, clients: "1", reads: true, goal: Goal::Latency(1.1) },
];

/// Prints every case with both sides and their ratio.
pub(crate) fn run() {
    let postgres = Postgres::start(PostgresOptions {
        cores: vec![SERVER_CORE],
        settings: [("max_connections", "200"), ("shared_buffers", "128MB"), ("max_wal_size", "1GB")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        parents: vec![env!("CARGO_TARGET_TMPDIR").into()],
        ..PostgresOptions::default()
    })
    .expect("PostgreSQL is installed");
    let sql = |statement: &str| drop(postgres.query("postgres", statement).expect("the database takes it"));
    sql("CREATE DATABASE filled");
    let full = ["--window", "1ms", "--warmup", "0s", "--clients", "64"];
    load(serve(&postgres, "filled", &[]).url(), &[GET_MISS, &full].concat());

    let mut samples: Vec<[Vec<Sample>; 2]> = CASES.iter().map(|_| Default::default()).collect();
    for _ in 0..ROUNDS {
        for (case, samples) in CASES.iter().zip(&mut samples) {
            for (flags, samples) in [&[][..], ALONE].into_iter().zip(samples) {
                let database = if case.reads { "filled" } else { "fresh" };
                if !case.reads {
                    sql("CREATE DATABASE fresh");
                }
                samples.push(sample(&serve(&postgres, database, flags), case));
                if !case.reads {
                    sql("DROP DATABASE fresh WITH (FORCE)");
                }
            }
        }
    }
    for (case, [gathered, alone]) in CASES.iter().zip(&samples) {
        let ratio = |figure: fn(&Sample) -> f64| {
            let ratios = gathered.iter().zip(alone).map(|(a, b)| figure(a) / figure(b));
            spread(&ratios.collect::<Vec<f64>>(), 2)
        };
        let both = |figure: fn(&Sample) -> f64| {
            [gathered, alone].map(|side| spread(&side.iter().map(figure).collect::<Vec<f64>>(), 0))
        };
        println!("{}, {} clients", case.name, case.clients);
        let [a, b] = both(|sample| sample.per_sec);
        println!("  requests/s          {a} gathered, {b} alone, ratio {}", ratio(|sample| sample.per_sec));
        let [a, b] = both(|sample| sample.median_us);
        println!("  median latency, us  {a} gathered, {b} alone, ratio {}", ratio(|sample| sample.median_us));
        match case.goal {
            Goal::Throughput(least) => {
                println!("  goal                {least} times the throughput, or more");
            }
            Goal::Latency(most) => {
                println!("  goal                {most} times the median latency, or less");
            }
        }
    }
}

/// What one trial showed.
struct Sample {
    per_sec: f64,
    median_us: f64,
}

fn serve(postgres: &Postgres, database: &str, flags: &[&str]) -> Server {
    let url = postgres.url_of(database);
    // Every read is to miss.
    Server::start(&[&["--store", &url, "--cache-entries", "0"], flags].concat())
}

fn sample(server: &Server, case: &Case) -> Sample {
    let flags = ["--clients", case.clients, "--no-preload", "--warmup", "300ms", "--window", "1500ms"];
    let report = load(server.url(), &[case.load, &flags].concat());
    assert_eq!(report.error_ratio, 0.0, "every request succeeds");
    Sample { per_sec: report.goodput_rps, median_us: report.latency.us_p50 }
}
