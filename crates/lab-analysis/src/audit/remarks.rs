//! What is odd about a printed sweep without being an error for certain: bounds and the utilization law.
//!
//! Each function looks at the rows of one sweep, by clients, and says one sentence for each thing it finds.

use super::{AuditedRow, Counted, clients, percent};
use lab_data::published::{Figure, PublishedRow};

/// Beyond this share a deviation is worth a word.
const WORTH: f64 = 0.05;
/// Below this a share in per cent says little of what limits.
const BUSY_PCT: f64 = 10.0;

/// A use of something, in per cent: its name in a sentence, and its column.
type Use = (&'static str, fn(&PublishedRow) -> Option<Figure>);

const USES: [Use; 2] =
    [("the server’s CPU", |row| row.server_cpu_pct), ("the disk", |row| row.disk_util_pct)];

/// A kind of remark.
type Remark = fn(&[AuditedRow]) -> Vec<String>;

/// All remarks on a sweep.
pub(super) fn remarks(rows: &[AuditedRow]) -> Vec<String> {
    const KINDS: [Remark; 6] =
        [rounding, failures, above_bound, grows_past_utilization, moves_apart, several_cores];
    KINDS.iter().flat_map(|kind| kind(rows)).collect()
}

fn rounding(rows: &[AuditedRow]) -> Vec<String> {
    let at = each(rows.iter().filter(|row| row.rounding_decides()));
    at.map(|at| format!("The printed digits do not decide whether the row at {at} is off by more than 5 %."))
        .into_iter()
        .collect()
}

fn failures(rows: &[AuditedRow]) -> Vec<String> {
    (rows.iter())
        .filter_map(|row| {
            let counted = match row.counted {
                _ if row.residual.is_none() => "",
                Counted::Attempts => {
                    "; its throughput is read as of all requests, which misses the law by less"
                }
                Counted::Successes => {
                    "; its throughput is read as of successes, which misses the law by less"
                }
            };
            let (at, failed) = (clients(row.printed.clients), row.failed_share()? * 100.0);
            Some(format!(
                "At {at} {failed:.0} % of the requests failed: the row tells of failures, too{counted}."
            ))
        })
        .collect()
}

/// X(N) ≤ N / R(1), if a request takes as much of everything under load as alone (Denning & Buzen 1978).
fn above_bound(rows: &[AuditedRow]) -> Vec<String> {
    let alone = rows.iter().find(|row| row.printed.clients == Some(1)).and_then(|row| row.printed.latency_ms);
    let Some(alone_ms) = alone.map(Figure::low).filter(|ms| *ms > 0.0) else { return Vec::new() };
    let is_above = |row: &&AuditedRow| {
        let (Some(n), Some(rps)) = (row.printed.clients, row.attempts_rps()) else { return false };
        n > 1 && rps > (1.0 + WORTH) * f64::from(n) / alone_ms * 1e3
    };
    let at = each(rows.iter().filter(is_above));
    at.map(|at| {
        format!(
            "Throughput is above N / R(1) at {at}: a request costs less under load than alone, or the latency at \
             1 client is too long."
        )
    })
    .into_iter()
    .collect()
}

/// U = X·D: while D stays the same, X grows by 1/U at most (Denning & Buzen 1978).
fn grows_past_utilization(rows: &[AuditedRow]) -> Vec<String> {
    let mut said = Vec::new();
    for (name, of) in USES {
        let used = |row: &AuditedRow| Some((row.attempts_rps()?, of(&row.printed)?, row.printed.clients?));
        let Some((first_rps, busy, n)) = rows.iter().find_map(used).filter(|(rps, ..)| *rps > 0.0) else {
            continue;
        };
        let most = rows.iter().filter_map(used).map(|(rps, ..)| rps).fold(0.0, f64::max);
        let (grows, may) = (most / first_rps, 100.0 / busy.value);
        if grows > (1.0 + WORTH) * may {
            said.push(format!(
                "At {} {name} is busy for {busy} % of the time, and throughput still grows {grows:.2}×; with the same \
                 time per request it could grow {may:.2}×. So a request takes less of it under load, or the figure is \
                 no utilization.",
                clients(Some(n))
            ));
        }
    }
    said
}

/// Use that rises while throughput falls, or the other way round, between neighbouring levels.
fn moves_apart(rows: &[AuditedRow]) -> Vec<String> {
    let mut said = Vec::new();
    for (name, of) in USES {
        for pair in rows.windows(2) {
            let figures =
                |row: &AuditedRow| Some((row.attempts_rps()?, of(&row.printed)?.value, row.printed.clients?));
            let (Some((x0, u0, n0)), Some((x1, u1, n1))) = (figures(&pair[0]), figures(&pair[1])) else {
                continue;
            };
            let (throughput, usage) = (x1 / x0 - 1.0, u1 / u0 - 1.0);
            let apart = throughput.is_finite() && usage.is_finite() && throughput * usage < 0.0;
            let apart = apart && throughput.abs() > 0.02 && usage.abs() > WORTH;
            if apart && u0.max(u1) >= BUSY_PCT {
                said.push(format!(
                    "From {n0} to {} throughput changes by {} and the use of {name} by {}, so a request takes {} of it.",
                    clients(Some(n1)),
                    percent(throughput),
                    percent(usage),
                    if usage > 0.0 { "more" } else { "less" }
                ));
            }
        }
    }
    said
}

fn several_cores(rows: &[AuditedRow]) -> Vec<String> {
    let over = |row: &&AuditedRow| row.printed.server_cpu_pct.is_some_and(|pct| pct.low() > 100.0);
    let at = each(rows.iter().filter(over));
    at.map(|at| {
        format!(
            "The server’s CPU is over 100 % at {at}: of more than one core, so how busy each was is not said."
        )
    })
    .into_iter()
    .collect()
}

/// `4, 8 clients`; `None` of no row.
fn each<'a>(rows: impl Iterator<Item = &'a AuditedRow>) -> Option<String> {
    let levels: Vec<Option<u32>> = rows.map(|row| row.printed.clients).collect();
    let (last, before) = levels.split_last()?;
    let before = before.iter().flatten().map(|level| format!("{level}, "));
    Some(before.chain([clients(*last)]).collect())
}
