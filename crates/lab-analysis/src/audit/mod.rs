//! Printed rows against laws that hold for any closed loop, and what an error in them is consistent with.
//!
//! A cause is a row of [`CAUSES`]: a rule that can be checked by hand. None of them proves anything; each says what to
//! measure to be sure. Rules and limits are those of docs/method.md, "Auditing published tables".

mod remarks;
mod units;

use lab_data::distinct;
use lab_data::figure::Figure;
use lab_data::published::PublishedRow;
use serde::Serialize;
use stats::range;

/// A residual beyond this is an error of the row, not noise: a share of the clients. Exactly 5 % is not more, whatever the last bit says.
pub const OFF: f64 = 0.05 + 1e-9;
/// Failures beyond this share degrade a row, as the check of errors has it for ours.
const FAILED: f64 = 0.001;
/// Cutting a latency to whole milliseconds takes 0.5 ms of it on average. A sample spread over less than a few
/// milliseconds may lose more or less.
const CUT_MS: (f64, f64) = (0.25, 0.75);
/// A share of the time that is lost lies between these, and varies by no more than that over the sweep.
const LOST: (f64, f64, f64) = (0.20, 0.60, 0.15);

/// All sweeps of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Audit {
    /// In the order in which they begin in the table.
    pub sweeps: Vec<PublishedSweep>,
    /// Rows that are off by more than [`OFF`].
    pub off: u32,
    /// Rows with clients, throughput and latency.
    pub checked: u32,
}

/// The rows of one workload of one report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedSweep {
    /// The report.
    pub report: String,
    /// What it measured.
    pub system: String,
    /// The workload.
    pub workload: String,
    /// By clients; rows without are last.
    pub rows: Vec<AuditedRow>,
    /// What its errors are consistent with, the cause that explains most rows first.
    pub findings: Vec<AuditFinding>,
    /// What else is odd, one sentence each.
    pub remarks: Vec<String>,
}

/// A printed row and what the law says of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditedRow {
    /// As printed.
    pub printed: PublishedRow,
    /// What its throughput counts.
    pub counted: Counted,
    /// X · R: the clients its throughput and latency account for.
    pub clients_accounted: Option<f64>,
    /// How far that is from the clients there were, as a share of them.
    pub residual: Option<Range>,
    /// Time per request that the latency does not account for, N / X − R; negative where it accounts for too much.
    pub missing_ms: Option<Range>,
    /// What follows.
    pub standing: AuditStanding,
}

/// What a throughput is taken to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Counted {
    /// All requests: nothing says that any failed, or the law is missed by less so.
    Attempts,
    /// Successful requests alone: the law is missed by less so.
    Successes,
}

/// A figure computed from printed ones, and where it may lie since those are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// From the numbers as printed.
    pub value: f64,
    /// At least.
    pub low: f64,
    /// At most.
    pub high: f64,
}

impl Range {
    /// `of` this and the `other`, which rises or falls with either alone.
    fn with(self, other: Range, of: impl Fn(f64, f64) -> f64) -> Range {
        let corners =
            [(self.low, other.low), (self.low, other.high), (self.high, other.low), (self.high, other.high)]
                .map(|(a, b)| of(a, b));
        let (low, high) = range(corners).unwrap_or_default();
        Range { value: of(self.value, other.value), low, high }
    }
}

impl From<Figure> for Range {
    fn from(figure: Figure) -> Range {
        Range { value: figure.value, low: figure.low(), high: figure.high() }
    }
}

/// Whether a row can be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditStanding {
    /// Clients, throughput or latency are not printed.
    NotChecked,
    /// X · R = N within 5 %.
    Holds,
    /// It accounts for too few clients.
    Below,
    /// It accounts for more clients than there were, see [`AuditedRow::impossible`].
    Above,
}

/// What the errors of a sweep are consistent with.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditFinding {
    /// Name of the row of [`CAUSES`].
    pub cause: &'static str,
    /// Clients of the rows concerned.
    pub clients: Vec<u32>,
    /// How many of the rows that are off it explains.
    pub explained: u32,
    /// The rule with its numbers.
    pub reason: String,
    /// What to measure.
    pub to_be_sure: &'static str,
}

/// A class of causes.
pub struct Cause {
    /// In a few words.
    pub name: &'static str,
    /// What would decide it.
    pub to_be_sure: &'static str,
    /// Whether it explains a residual; then no later cause is asked about that row.
    pub explains: bool,
    find: for<'a> fn(&Case<'a>) -> Option<Found<'a>>,
}

/// The rows a cause concerns, and its rule with its numbers.
type Found<'a> = (Vec<&'a AuditedRow>, String);

/// What a cause is asked about.
struct Case<'a> {
    /// All rows of a sweep.
    rows: &'a [AuditedRow],
    /// Those that are off and not explained yet.
    open: Vec<&'a AuditedRow>,
    /// The rows of the report's other sweeps.
    others: Vec<&'a AuditedRow>,
}

/// The causes, in the order in which they are asked.
pub const CAUSES: &[Cause] = &[
    Cause {
        name: "wrong unit",
        to_be_sure: "Look up in the generator’s manual the units of its figures, and name the columns so: latency_ms, latency_us or latency_s.",
        explains: true,
        find: |case| units::one_factor(case, &units::UNITS),
    },
    Cause {
        name: "minutes read as seconds",
        to_be_sure: "Divide the number of requests of a run by its seconds: that is the throughput.",
        explains: true,
        find: |case| units::one_factor(case, &units::MINUTES),
    },
    Cause {
        name: "throughput of one client",
        to_be_sure: "Divide the number of requests of all clients by the seconds of the run: that is the throughput.",
        explains: true,
        find: units::of_one_client,
    },
    Cause {
        name: "whole-millisecond samples",
        to_be_sure: "Print some single latencies in microseconds, and the time from one request’s end to the next one’s start.",
        explains: true,
        find: whole_milliseconds,
    },
    Cause {
        name: "lost latency",
        to_be_sure: "Count requests at the server and samples at the generator: each request must be one sample.",
        explains: true,
        find: lost_latency,
    },
    Cause {
        name: "rows from different runs",
        to_be_sure: "Take throughput, latency and window of a row from the output of one and the same run.",
        explains: true,
        find: different_runs,
    },
    Cause {
        name: "errors counted as throughput",
        to_be_sure: "Print successes and failures per second, and the latency of each.",
        explains: false,
        find: errors_as_throughput,
    },
    Cause {
        name: "impossible row",
        to_be_sure: "Look the row up in the raw output; if it stands there, the generator’s arithmetic is wrong.",
        explains: true,
        find: impossible,
    },
    Cause {
        name: "something else",
        to_be_sure: "Print requests, summed latency and window of a run: they give the clients that were in a request.",
        explains: true,
        find: unexplained,
    },
];

/// Checks all rows.
pub fn audit(published: &[PublishedRow]) -> Audit {
    let mut rows: Vec<AuditedRow> = published.iter().map(audited).collect();
    rows.sort_by_key(|row| row.printed.clients.unwrap_or(u32::MAX));
    let sweep = |(report, workload): (&String, &String)| {
        let of_report = rows.iter().filter(|row| row.printed.report == *report);
        let (own, others): (Vec<_>, Vec<_>) = of_report.partition(|row| row.printed.workload == *workload);
        let own: Vec<AuditedRow> = own.into_iter().cloned().collect();
        PublishedSweep {
            report: report.clone(),
            system: own[0].printed.system.clone(),
            workload: workload.clone(),
            findings: findings(&own, others),
            remarks: remarks::remarks(&own),
            rows: own,
        }
    };
    let names = distinct(published.iter().map(|row| (&row.report, &row.workload)));
    let sweeps: Vec<PublishedSweep> = names.into_iter().map(sweep).collect();
    let count = |which: fn(&PublishedSweep) -> u32| sweeps.iter().map(which).sum();
    Audit { off: count(PublishedSweep::off), checked: count(PublishedSweep::checked), sweeps }
}

impl PublishedSweep {
    /// Rows that are off by more than [`OFF`].
    pub fn off(&self) -> u32 {
        self.rows.iter().filter(|row| row.off()).count() as u32
    }

    /// Rows with clients, throughput and latency.
    pub fn checked(&self) -> u32 {
        self.rows.iter().filter(|row| row.residual.is_some()).count() as u32
    }

    /// The lowest and the highest residual, as people write them: `−16.2 to +27.7 %`.
    pub fn residuals(&self) -> Option<String> {
        residuals(&self.rows)
    }
}

impl AuditedRow {
    /// Whether it is off by more than [`OFF`].
    pub fn off(&self) -> bool {
        matches!(self.standing, AuditStanding::Below | AuditStanding::Above)
    }

    /// Whether numbers that print the same could have it otherwise.
    pub fn rounding_decides(&self) -> bool {
        let may_hold = |of: Range| of.low <= OFF && of.high >= -OFF;
        let may_be_off = |of: Range| of.low < -OFF || of.high > OFF;
        self.residual.is_some_and(|of| may_hold(of) && may_be_off(of))
    }

    /// Whether it accounts for more clients than there were with any numbers that print the same.
    pub fn impossible(&self) -> bool {
        self.standing == AuditStanding::Above && !self.rounding_decides()
    }

    /// Whether it may account for more clients than there were, or not: its printed digits do not say.
    fn may_be_above(&self) -> bool {
        self.standing == AuditStanding::Above && self.rounding_decides()
    }

    /// Whether it lacks what cutting its samples to whole milliseconds takes.
    fn is_cut(&self) -> bool {
        let (least, most) = CUT_MS;
        // Where the rounding of the printed figures is as large as what is looked for, nothing can be seen.
        self.missing_ms
            .is_some_and(|of| (least..=most).contains(&of.value) && of.high - of.low <= most - least)
    }

    /// The share of requests that failed, where it is printed and more than nothing.
    pub fn failed_share(&self) -> Option<f64> {
        self.printed.success_share.map(|share| 1.0 - share.value).filter(|failed| *failed > FAILED)
    }

    /// Requests per second, failed ones included.
    pub fn attempts_rps(&self) -> Option<f64> {
        let share = self.printed.success_share.filter(|_| self.counted == Counted::Successes);
        Some(attempts(self.printed.throughput_rps?, share).value)
    }

    /// Successes per second; the printed throughput where no share of successes is printed.
    fn goodput_rps(&self) -> Option<f64> {
        Some(self.attempts_rps()? * self.printed.success_share.map_or(1.0, |share| share.value))
    }
}

fn audited(row: &PublishedRow) -> AuditedRow {
    // Of two readings the one that speaks for the row: what it then still misses, it misses either way.
    let share = row.success_share.filter(|share| share.value < 1.0 && share.value > 0.0);
    let attempts = law(row, None).map(|law| (law, Counted::Attempts));
    let successes = share.and_then(|share| Some((law(row, Some(share))?, Counted::Successes)));
    let missed = |(law, _): &([Range; 2], Counted)| law[0].value.abs();
    let nearer = attempts.into_iter().chain(successes).min_by(|a, b| missed(a).total_cmp(&missed(b)));
    let (law, counted) = nearer.unzip();
    let residual = law.map(|[residual, _]| residual);
    AuditedRow {
        printed: row.clone(),
        counted: counted.unwrap_or(Counted::Attempts),
        clients_accounted: row.clients.zip(residual).map(|(n, of)| (1.0 + of.value) * f64::from(n)),
        residual,
        missing_ms: law.map(|[_, missing_ms]| missing_ms).filter(|of| of.value.is_finite()),
        standing: match residual.map(|of| of.value) {
            None => AuditStanding::NotChecked,
            Some(value) if value > OFF => AuditStanding::Above,
            Some(value) if value < -OFF => AuditStanding::Below,
            Some(_) => AuditStanding::Holds,
        },
    }
}

/// Little's law: the residual, and the time per request in ms that the latency does not account for. The throughput counts all requests
/// or, with a `share` of successes, those alone. `None` where a figure is not printed.
///
/// Without think time every client is always in a request, so X · R = N; with it, below N. Never above.
/// Source: Little, A Proof for the Queuing Formula L = λW (1961).
fn law(row: &PublishedRow, share: Option<Figure>) -> Option<[Range; 2]> {
    let (clients, latency) = (f64::from(row.clients?), Range::from(row.latency_ms?));
    let rate = attempts(row.throughput_rps?, share);
    let residual = rate.with(latency, |rps, ms| rps * ms / 1e3 / clients - 1.0);
    Some([residual, rate.with(latency, |rps, ms| clients / rps * 1e3 - ms)])
}

/// All requests per second, from those that succeeded and their share.
fn attempts(throughput: Figure, share: Option<Figure>) -> Range {
    let Some(share) = share else { return throughput.into() };
    Range::from(throughput).with(share.into(), |rps, share| rps / share.min(1.0))
}

fn findings(rows: &[AuditedRow], others: Vec<&AuditedRow>) -> Vec<AuditFinding> {
    let mut case = Case { rows, open: rows.iter().filter(|row| row.off()).collect(), others };
    let mut findings = Vec::new();
    for cause in CAUSES {
        let Some((found, reason)) = (cause.find)(&case) else { continue };
        let were_open = case.open.len();
        case.open.retain(|row| !cause.explains || !found.contains(row));
        findings.push(AuditFinding {
            cause: cause.name,
            clients: found.iter().filter_map(|row| row.printed.clients).collect(),
            explained: (were_open - case.open.len()) as u32,
            reason,
            to_be_sure: cause.to_be_sure,
        });
    }
    findings.sort_by_key(|of| std::cmp::Reverse(of.explained));
    findings
}

/// In two thirds of the rows N/X − R is 0.25 to 0.75 ms, whatever the load.
fn whole_milliseconds<'a>(case: &Case<'a>) -> Option<Found<'a>> {
    let cut: Vec<&AuditedRow> = case.rows.iter().filter(|row| row.is_cut()).collect();
    let checked = case.rows.iter().filter(|row| row.missing_ms.is_some()).count();
    if 3 * cut.len() < 2 * checked || !case.open.iter().any(|row| row.is_cut()) {
        return None;
    }
    let missing = cut.iter().filter_map(|row| Some(row.missing_ms?.value));
    let missing = spread(missing, |ms| format!("{ms:.2}"), "ms")?;
    let elsewhere = case.others.iter().filter(|row| row.is_cut()).count();
    let readable = case.others.iter().filter(|row| row.missing_ms.is_some()).count();
    let constant = match (cut.len(), elsewhere) {
        (1, 0) => "; one row cannot show that this is constant".to_owned(),
        (1, _) => format!(
            "; one row cannot show that this is constant, but it is near 0.5 ms in {elsewhere} of the report’s \
             {readable} other rows"
        ),
        (many, _) => format!(" in {many} of {checked} rows, whatever the load"),
    };
    let reason = format!(
        "{missing} per request is missing{constant}; cutting samples to whole milliseconds takes 0.5 ms on average, \
         and a constant pause between requests looks the same"
    );
    Some((cut, reason))
}

/// Every row lacks 20 to 60 % of its clients, within 15 points of each other, so that N/X − R grows with the load.
fn lost_latency<'a>(case: &Case<'a>) -> Option<Found<'a>> {
    let (least, most, apart) = LOST;
    let checked =
        case.rows.iter().filter_map(|row| Some((row, (row.residual?.value, row.missing_ms?.value))));
    let (rows, figures): (Vec<&AuditedRow>, Vec<(f64, f64)>) = checked.unzip();
    let (low, high) = range(figures.iter().map(|(residual, _)| -residual))?;
    let [(_, first), _, .., (_, last)] = figures[..] else { return None };
    // A constant pause would weigh less and less; a lost share of the latency grows with it.
    let fits = low >= least && high <= most && high - low <= apart && last >= 2.0 * first;
    let reason = format!(
        "{:.0} to {:.0} % of the time is missing in every row, which is {first:.1} ms per request at the lowest level \
         and {last:.1} ms at the highest, as where one of two requests, or a part of each, is not timed",
        low * 100.0,
        high * 100.0
    );
    (fits && rows == case.open).then_some((rows, reason))
}

/// A row accounts for more clients than there were, which no single run can, and others of the sweep do not.
fn different_runs<'a>(case: &Case<'a>) -> Option<Found<'a>> {
    let above = case.above();
    let is_possible = |row: &AuditedRow| row.residual.is_some() && !row.impossible();
    if above.is_empty() || !case.rows.iter().any(is_possible) {
        return None;
    }
    let found: Vec<&AuditedRow> = case.open.iter().copied().filter(|row| !row.may_be_above()).collect();
    // What is left below belongs to it as well: nothing else accounts for it, and the sweep is known to be mixed.
    let mut reason = format!("{}, more than there were, which no single run can print", accounted(&above));
    if above.len() < found.len() {
        let both = residuals(found.iter().copied())?;
        reason += &format!("; residuals of both signs stand in one sweep ({both})");
    }
    Some((found, reason))
}

/// Some requests failed, and the row deviates from the law by more than 5 %, and by more than now, if its throughput counts
/// successes alone.
fn errors_as_throughput<'a>(case: &Case<'a>) -> Option<Found<'a>> {
    let rates = |row: &AuditedRow| Some((row.printed.throughput_rps?.value, row.goodput_rps()?));
    let clause = |(i, row): (usize, &'a AuditedRow)| {
        let (failed, is, (all, good)) = (row.failed_share()? * 100.0, row.residual?.value, rates(row)?);
        let [otherwise, _] = law(&row.printed, row.printed.success_share)?.map(|of| of.value);
        if row.counted == Counted::Successes || !otherwise.is_finite() || otherwise.abs() <= OFF {
            return None;
        }
        let before = case.rows[..i].last().and_then(rates);
        let falls = before.filter(|before| before.0 > 0.0 && all > before.0 && good < before.1);
        let falls = falls.map_or_else(String::new, |before| {
            let (all, good) = (percent(all / before.0 - 1.0), percent(good / before.1 - 1.0));
            format!("; over the level below throughput changes by {all}, goodput by {good}")
        });
        let (at, is, otherwise) = (clients(row.printed.clients), percent(is), percent(otherwise));
        let throughput = row.printed.throughput_rps?;
        let clause = format!(
            "at {at} {failed:.0} % of the requests failed, and the law is missed by {is} if the throughput counts them and by \
             {otherwise} if not: {throughput} req/s are {good:.0} successes per second{falls}"
        );
        Some((row, clause))
    };
    let (found, clauses): (Vec<_>, Vec<String>) = case.rows.iter().enumerate().filter_map(clause).unzip();
    (!found.is_empty()).then(|| (found, clauses.join("; ")))
}

/// Every row of the sweep is above N, or a percentile is below a lower one, or the mean is too short for a percentile, or a disk is busy
/// for over 100 %.
fn impossible<'a>(case: &Case<'a>) -> Option<Found<'a>> {
    let above = case.above();
    let more = || format!("{}, more than there were", accounted(&above));
    let mut clauses = Vec::from_iter((!above.is_empty()).then(more));
    let mut found = above.clone();
    for row in case.rows {
        let (before, at) = (clauses.len(), clients(row.printed.clients));
        let PublishedRow { latency_ms, p50_ms, p99_ms, disk_util_pct, .. } = &row.printed;
        if let Some((p50, p99)) = p50_ms.zip(*p99_ms).filter(|(p50, p99)| p50.low() > p99.high()) {
            clauses.push(format!("at {at} the p50 of {p50} ms is above the p99 of {p99} ms"));
        }
        // Of the latencies, none of which is negative, a share of 1 − q is at least the quantile, so the mean is at least that share of it.
        for (name, percentile, share) in [("p50", p50_ms, 0.5), ("p99", p99_ms, 0.01)] {
            let Some((mean, of)) = latency_ms.zip(*percentile) else { continue };
            if mean.high() < share * of.low() {
                let pct = share * 100.0;
                clauses.push(format!(
                    "at {at} the mean of {mean} ms is below {pct:.0} % of the {name} of {of} ms: {pct:.0} % of the latencies \
                     are at least {of} ms, and none is negative, so the mean is at least {} ms",
                    share * of.value
                ));
            }
        }
        if let Some(busy) = disk_util_pct.filter(|busy| busy.low() > 100.0) {
            clauses.push(format!("at {at} the disk is busy for {busy} % of the time"));
        }
        if clauses.len() > before && !above.contains(&row) {
            found.push(row);
        }
    }
    // A row with its residual explained may stand here for its percentiles; it is not explained a second time.
    (!found.is_empty()).then(|| (found, clauses.join("; ")))
}

/// Rows are off, and nothing above applies to them.
fn unexplained<'a>(case: &Case<'a>) -> Option<Found<'a>> {
    let why = match case.open.iter().all(|row| row.rounding_decides()) {
        true => "the rounding of the printed digits alone may be the reason",
        false if case.open.iter().any(|row| row.may_be_above()) => {
            "above N the rounding of the printed digits alone may be the reason; below, time between requests, \
             outside the latency, would look so: thinking, connecting, backing off"
        }
        false => {
            "time between requests, outside the latency, would look so: thinking, connecting, backing off"
        }
    };
    Some((case.open.clone(), format!("{}; {why}", residuals(case.open.iter().copied())?)))
}

impl<'a> Case<'a> {
    /// Those of the open rows that are above N however their figures were rounded.
    fn above(&self) -> Vec<&'a AuditedRow> {
        self.open.iter().copied().filter(|row| row.impossible()).collect()
    }
}

/// `X·R comes to 2.55 at 2 clients, 21.23 at 20 clients`.
fn accounted(rows: &[&AuditedRow]) -> String {
    let each = rows.iter().map(|row| {
        format!("{:.2} at {}", row.clients_accounted.unwrap_or_default(), clients(row.printed.clients))
    });
    format!("X·R comes to {}", each.collect::<Vec<_>>().join(", "))
}

/// The lowest and the highest residual, as people write them: `−16.2 to +27.7 %`.
fn residuals<'a>(rows: impl IntoIterator<Item = &'a AuditedRow>) -> Option<String> {
    spread(rows.into_iter().filter_map(|row| Some(row.residual?.value * 100.0)), signed, "%")
}

/// `20 clients`.
fn clients(count: Option<u32>) -> String {
    let unknown = "a number of clients that is not printed";
    count.map_or(unknown.to_owned(), |clients| crate::count(clients, "client"))
}

/// `+16 %`, with a minus as wide as the plus; two digits at least.
fn percent(share: f64) -> String {
    format!("{} %", signed(share * 100.0))
}

fn signed(value: f64) -> String {
    // Rounded first, and zero added, so that no figure reads −0.0.
    format!("{:+.1}", (value * 10.0).round() / 10.0 + 0.0).replace('-', "−")
}

/// `0.42 to 0.50 ms`, or `0.50 ms` where both ends read alike. `None` of nothing.
fn spread(values: impl Iterator<Item = f64>, say: fn(f64) -> String, unit: &str) -> Option<String> {
    let (low, high) = range(values).map(|(low, high)| (say(low), say(high)))?;
    Some(if low == high { format!("{low} {unit}") } else { format!("{low} to {high} {unit}") })
}

#[cfg(test)]
mod tests;
