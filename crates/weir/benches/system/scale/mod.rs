//! How memory and the cost of a request grow: with rows in the cache, connections, and the length of values.
//!
//! Writes `records/DATE-scale/scale.csv`, and the plots and tables of docs/performance.md. The server has one worker on one core, the
//! load comes from another; a figure stands with the checks of the loads it is from.

mod connections;
mod entries;
mod load;
mod page;
mod pictures;
mod row;
mod values;

use crate::support::LOAD_CORE;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Idle connections of this process, and what it has open besides.
const FILES: u64 = 12_000;

/// Measures, prints a table, writes the record and the plots.
pub(crate) fn run() {
    let began = Instant::now();
    // What fills and what keeps connections open is load, too.
    let mut cores = CpuSet::new();
    cores.set(LOAD_CORE);
    sched_setaffinity(None, &cores).expect("this machine has the core of the load");
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < FILES) {
        let raised = Rlimit { current: Some(FILES), maximum: limit.maximum };
        setrlimit(Resource::Nofile, raised).expect("the limit of open files may be raised to 12000");
    }

    let mut rows = Vec::new();
    for series in [entries::in_process, entries::served, connections::idle, connections::busy, values::all] {
        let from = rows.len();
        series(&mut rows);
        row::print(&rows[from..]);
    }
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let date = today();
    let record = root.join("records").join(format!("{date}-scale"));
    fs::create_dir_all(&record).expect("the record's folder can be made");
    fs::write(record.join("scale.csv"), row::csv(&rows)).expect("the record can be written");
    let plots = root.join("docs").join("performance");
    fs::create_dir_all(&plots).expect("the plots' folder can be made");
    for picture in pictures::all(&rows) {
        fs::write(plots.join(format!("{}.svg", picture.name)), crate::plot::svg(picture))
            .expect("a plot can be written");
    }
    let page = root.join("docs").join("performance.md");
    let text = fs::read_to_string(&page).expect("docs/performance.md is there");
    fs::write(&page, page::with(&text, &rows, &date)).expect("docs/performance.md can be written");
    let standing = |name| rows.iter().filter(|row| row.standing() == Some(name)).count();
    println!(
        "{} valid rows, {} generator-limited, {} invalid; {:.0} s",
        standing("valid"),
        standing("generator-limited"),
        standing("invalid"),
        began.elapsed().as_secs_f64(),
    );
    println!("{}\n{}\n{}", record.join("scale.csv").display(), plots.display(), page.display());
}

/// As in `2026-11-21`.
fn today() -> String {
    let output = Command::new("date").arg("+%F").output().expect("there is a date");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
