//! What is odd about a printed sweep without being an error for certain: bounds and the utilization law.
//!
//! One sentence for each thing found in the rows of one sweep, by clients.

use super::{AuditedRow, Counted, clients, percent};
use lab_data::distinct;
use lab_data::figure::Figure;
use lab_data::published::PublishedRow;

/// Beyond this share a deviation is worth a word.
const WORTH: f64 = 0.05;
/// Below this a share in per cent says little of what limits.
const BUSY_PCT: f64 = 10.0;

/// A use of something, in per cent: its name in a sentence, and its column.
type Use = (&'static str, fn(&PublishedRow) -> Option<Figure>);

const USES: [Use; 2] =
    [("the server’s CPU", |row| row.server_cpu_pct), ("the disk", |row| row.disk_util_pct)];

/// All remarks on a sweep.
pub(super) fn remarks(rows: &[AuditedRow]) -> Vec<String> {
    let mut remarks = Vec::new();
    remarks.extend(at(rows, AuditedRow::rounding_decides).map(|at| {
        format!("The printed digits do not decide whether the row at {at} deviates by more than 5 %.")
    }));
    remarks.extend(rows.iter().filter_map(failures));
    let alone = rows.iter().find(|row| row.printed.clients == Some(1)).and_then(|row| row.printed.latency_ms);
    let alone_ms = alone.map(Figure::low).filter(|ms| *ms > 0.0);
    // X(N) ≤ N / R(1), if a request takes as much of everything under load as alone (Denning & Buzen 1978).
    let is_above = |row: &AuditedRow| {
        let known = (row.printed.clients.filter(|n| *n > 1)).zip(row.attempts_rps()).zip(alone_ms);
        known.is_some_and(|((n, rps), alone_ms)| rps > (1.0 + WORTH) * f64::from(n) / alone_ms * 1e3)
    };
    remarks.extend(at(rows, is_above).map(|at| {
        format!(
            "Throughput is above N / R(1) at {at}: a request costs less under load than alone, or the latency at \
             1 client is too long."
        )
    }));
    remarks.extend(rows.iter().filter_map(mean_above_p99));
    remarks.extend(USES.iter().filter_map(|of| grows_past_utilization(rows, of)));
    remarks.extend(USES.iter().flat_map(|of| rows.windows(2).filter_map(move |pair| moves_apart(pair, of))));
    let is_several = |row: &AuditedRow| row.printed.server_cpu_pct.is_some_and(|pct| pct.low() > 100.0);
    remarks.extend(at(rows, is_several).map(|at| {
        format!(
            "The server’s CPU is over 100 % at {at}: of more than one core, so how busy each was is not said."
        )
    }));
    remarks
}

fn failures(row: &AuditedRow) -> Option<String> {
    let counted = match row.counted {
        _ if row.residual.is_none() => "",
        Counted::Attempts => "; its throughput is read as of all requests, which deviates less from the law",
        Counted::Successes => "; its throughput is read as of successes, which deviates less from the law",
    };
    let (at, failed) = (clients(row.printed.clients), row.failed_share()? * 100.0);
    Some(format!("At {at} {failed:.0} % of the requests failed: the row tells of failures, too{counted}."))
}

/// A mean above the p99 is all in the slowest hundredth. Little's law holds as well with throughput for latency.
fn mean_above_p99(row: &AuditedRow) -> Option<String> {
    let (mean, p99) = row.printed.latency_ms.zip(row.printed.p99_ms)?;
    let slowest_ms = 100.0 * mean.low() - 99.0 * p99.high();
    (mean.low() > p99.high()).then(|| {
        format!(
            "At {} the mean of {mean} ms is above the p99 of {p99} ms: the slowest 1 % of the requests took at least \
             {slowest_ms:.0} ms on average, or the figures are not of one run, or the columns of throughput and latency \
             are swapped, which Little’s law does not show.",
            clients(row.printed.clients)
        )
    })
}

/// Throughput, use and clients of a row.
fn used(row: &AuditedRow, of: fn(&PublishedRow) -> Option<Figure>) -> Option<(f64, Figure, u32)> {
    Some((row.attempts_rps()?, of(&row.printed)?, row.printed.clients?))
}

/// U = X·D: while D stays the same, X grows by 1/U at most (Denning & Buzen 1978).
fn grows_past_utilization(rows: &[AuditedRow], (name, of): &Use) -> Option<String> {
    let all = || rows.iter().filter_map(|row| used(row, *of));
    let (first_rps, busy, n) = all().find(|(rps, ..)| *rps > 0.0)?;
    let most = all().map(|(rps, ..)| rps).fold(0.0, f64::max);
    let (grows, may) = (most / first_rps, 100.0 / busy.value);
    (grows > (1.0 + WORTH) * may).then(|| {
        format!(
            "At {} {name} is busy for {busy} % of the time, and throughput still grows {grows:.2}×; with the same \
             time per request it could grow {may:.2}×. So a request takes less of it under load, or the figure is \
             no utilization.",
            clients(Some(n))
        )
    })
}

/// Use that rises while throughput falls, or the other way round, between neighbouring levels.
fn moves_apart(pair: &[AuditedRow], (name, of): &Use) -> Option<String> {
    let ((x0, u0, n0), (x1, u1, n1)) = (used(&pair[0], *of)?, used(&pair[1], *of)?);
    let (throughput, usage) = (x1 / x0 - 1.0, u1.value / u0.value - 1.0);
    let apart = throughput.is_finite() && usage.is_finite() && throughput * usage < 0.0;
    let is_worth = throughput.abs() > 0.02 && usage.abs() > WORTH && u0.value.max(u1.value) >= BUSY_PCT;
    (apart && is_worth).then(|| {
        format!(
            "From {n0} to {} throughput changes by {} and the use of {name} by {}, so a request takes {} of it.",
            clients(Some(n1)),
            percent(throughput),
            percent(usage),
            if usage > 0.0 { "more" } else { "less" }
        )
    })
}

/// The rows that are so: `4, 8 clients`; `None` of no row.
fn at(rows: &[AuditedRow], is_so: impl Fn(&AuditedRow) -> bool) -> Option<String> {
    let levels = distinct(rows.iter().filter(|row| is_so(row)).map(|row| row.printed.clients));
    let (last, before) = levels.split_last()?;
    let before = before.iter().flatten().map(|level| format!("{level}, "));
    Some(before.chain([clients(*last)]).collect())
}
