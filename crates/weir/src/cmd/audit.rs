//! `weir audit`: checks a printed table of load-test rows by laws that hold for any closed loop.
//!
//! Reads the file and says row by row what follows from it. What an error means is decided in the analysis.

use super::{note, read_text, say, say_document};
use kv::Error;
use lab_analysis::audit::{Audit, AuditFinding, Counted};
use lab_analysis::{AuditStanding, AuditedRow, CAUSES, PublishedSweep, audit};
use lab_data::figure::Figure;
use lab_data::published::Table;
use lab_data::summaries;
use std::path::PathBuf;

/// Check a published table of clients, throughput and latency by Little’s law.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Tables in CSV or Markdown with the columns clients, throughput_rps and latency_ms, or outputs of wrk, k6 or oha
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Names of these columns if they are others, as in clients=Users,throughput_rps=Req/s
    #[arg(long, value_delimiter = ',', value_name = "NAME=COLUMN,…", value_parser = column)]
    columns: Vec<(String, String)>,
    /// Number of clients, if the table does not have it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    clients: Option<u32>,
    /// Print the findings as one JSON document
    #[arg(long)]
    json: bool,
}

fn column(text: &str) -> Result<(String, String), Error> {
    let named = text.split_once('=').filter(|(ours, theirs)| !ours.is_empty() && !theirs.is_empty());
    let named = named.map(|(ours, theirs)| (ours.trim().to_owned(), theirs.trim().to_owned()));
    named.ok_or_else(|| Error::input("a column is NAME=COLUMN").hint("write it as in clients=Users"))
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    let mut table = Table { rows: Vec::new(), ignored: Vec::new(), unread: None };
    for file in &args.files {
        let text =
            read_text(file, "the table ", "name a CSV file in UTF-8, as experiments/reports/printed.csv")?;
        let read = summaries::read(&text, &args.columns, args.clients);
        let mut read = read.map_err(|why| why.at(file.display()))?;
        // Outputs of one row each are levels of one sweep; a table is a sweep of its own.
        if args.files.len() > 1 && read.rows.len() > 1 {
            for row in &mut read.rows {
                row.report = match row.report.as_str() {
                    "" => file.display().to_string(),
                    own => format!("{} · {own}", file.display()),
                };
            }
        }
        if let Some(line) = read.unread {
            let file = file.display();
            note(format_args!(
                "{file}: the table in line {line} is not read; put it into a file of its own, and name both"
            ));
        }
        table.rows.extend(read.rows);
        table.ignored.extend(read.ignored);
    }
    let found = audit(&table.rows);
    if args.json {
        return say_document(&found);
    }
    say(text_of(&table, &found));
    Ok(())
}

fn text_of(table: &Table, audit: &Audit) -> String {
    let mut lines = Vec::new();
    for sweep in &audit.sweeps {
        let names = [&*sweep.report, &*sweep.workload, &*sweep.system];
        let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        let unnamed = if audit.sweeps.len() == 1 { "all rows" } else { "other rows" };
        lines.push(if names.is_empty() { unnamed.to_owned() } else { names.join(" · ") });
        lines.push("  clients        req/s           ms      X·R  residual  verdict".to_owned());
        lines.extend(sweep.rows.iter().map(row));
        lines.extend(conclusions(sweep).iter().map(|line| format!("  {line}")));
        lines.push(String::new());
    }
    if !table.ignored.is_empty() {
        lines.push(format!("columns not used: {}", table.ignored.join(", ")));
    }
    lines.extend(totals(table, audit));
    lines.join("\n")
}

/// Digits behind the point that are shown, so that a figure has room in its column.
const DECIMALS_MAX: i32 = 4;

fn row(row: &AuditedRow) -> String {
    let printed = &row.printed;
    let cell = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    // A table of a program has all digits that a number has.
    let figure = |of: Option<Figure>| {
        cell(of.map(|of| Figure { decimals: of.decimals.min(DECIMALS_MAX), ..of }.to_string()))
    };
    format!(
        "{:>9} {:>12} {:>12} {:>8} {:>9}  {}",
        cell(printed.clients.map(|clients| clients.to_string())),
        figure(printed.throughput_rps),
        figure(printed.latency_ms),
        cell(row.clients_accounted.map(|clients| format!("{clients:.2}"))),
        cell(row.residual.map(|of| {
            // Zero added, so that no figure reads −0.00.
            format!("{:+.2} %", (of.value * 1e4).round() / 100.0 + 0.0).replace('-', "−")
        })),
        verdict(row),
    )
}

fn verdict(row: &AuditedRow) -> String {
    let standing = match row.standing {
        AuditStanding::NotChecked => "not checked: the law needs clients, throughput and latency",
        AuditStanding::Holds => "holds",
        AuditStanding::Below => "deviates: below N",
        AuditStanding::Above if row.impossible() => "deviates: above N, impossible within one run",
        AuditStanding::Above => "deviates: above N; the printed digits do not decide",
    };
    match row.counted {
        Counted::Attempts => standing.to_owned(),
        Counted::Successes => {
            format!("{standing} (X of successes, {:.0} req/s in all)", row.attempts_rps().unwrap_or(0.0))
        }
    }
}

fn conclusions(sweep: &PublishedSweep) -> Vec<String> {
    let mut lines = Vec::new();
    if sweep.off() == 0 {
        lines.push(if sweep.checked() == 0 { "no row can be checked" } else { "no row deviates" }.to_owned());
    }
    for (i, AuditFinding { cause, reason, to_be_sure, .. }) in sweep.findings.iter().enumerate() {
        let which = if i == 0 && sweep.off() > 0 { "likely cause" } else { "also" };
        lines.push(format!("{which}: consistent with {cause}: {reason}."));
        lines.push(format!("to be sure: {to_be_sure}"));
    }
    lines.extend(sweep.remarks.iter().map(|remark| format!("remark: {remark}")));
    lines
}

/// How many rows there were, what they are consistent with, and as the last line the sum of it.
fn totals(table: &Table, audit: &Audit) -> Vec<String> {
    let Audit { checked, off, sweeps } = audit;
    let without = table.rows.len() as u32 - checked;
    let mut lines = vec![format!("rows with clients, throughput and latency: {checked}; without: {without}")];
    for cause in CAUSES {
        let findings = sweeps.iter().flat_map(|sweep| &sweep.findings).filter(|of| of.cause == cause.name);
        let (found, off) =
            findings.fold((0, 0), |(found, off), of| (found + of.clients.len(), off + of.explained));
        if found > 0 {
            let explained = if cause.explains { format!(", of which {off} deviate") } else { String::new() };
            lines.push(format!("consistent with {}: {found}{explained}", cause.name));
        }
    }
    lines.push(format!("{off} of {checked} rows deviate by more than 5 %"));
    lines
}
