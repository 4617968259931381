//! Published results of load tests: a table or the summary of a load generator, read into [`PublishedRow`]s with every digit kept.
//!
//! Pure: text in, rows or one line of complaint out. What the rows say, and whether they can be true, is the business
//! of [`mod@lab_analysis::audit`].

use crate::ensure;
use crate::figure::{Figure, counted, with_unit};
use kv::{Error, one_line};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// One published row. What was not published is `None`, or empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PublishedRow {
    /// Which report it stands in.
    pub report: String,
    /// What was measured.
    pub system: String,
    /// The workload, by the report's name or ours.
    pub workload: String,
    /// Clients of a closed loop.
    pub clients: Option<u32>,
    /// Requests per second; whether failed ones are among them is not always said.
    pub throughput_rps: Option<Figure>,
    /// Mean latency.
    pub latency_ms: Option<Figure>,
    /// Median latency.
    pub p50_ms: Option<Figure>,
    /// 99th percentile of the latency.
    pub p99_ms: Option<Figure>,
    /// Successful requests over all, 0–1.
    pub success_share: Option<Figure>,
    /// Processor use of the server, in per cent.
    pub server_cpu_pct: Option<Figure>,
    /// Busy time of the disk, in per cent.
    pub disk_util_pct: Option<Figure>,
    /// Whatever else is to be said.
    pub note: String,
}

/// A table of published rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its rows, in the order of the file.
    pub rows: Vec<PublishedRow>,
    /// Names of columns that mean nothing here.
    pub ignored: Vec<String>,
    /// The line of a further table, which is not read.
    pub unread: Option<usize>,
}

/// A column: its name, and how a cell of it enters the row. The error says what the cell should have been.
type Column = (&'static str, fn(&mut PublishedRow, &str) -> Result<(), &'static str>);

const COLUMNS: &[Column] = &[
    ("report", |row, cell| text(&mut row.report, cell)),
    ("system", |row, cell| text(&mut row.system, cell)),
    ("workload", |row, cell| text(&mut row.workload, cell)),
    ("clients", |row, cell| {
        let clients = cell.parse().ok().filter(|clients| *clients > 0);
        row.clients = Some(clients.ok_or("write a whole number from 1 on")?);
        Ok(())
    }),
    ("throughput_rps", |row, cell| count(&mut row.throughput_rps, cell)),
    ("latency_ms", |row, cell| time(&mut row.latency_ms, cell)),
    ("latency_us", |row, cell| time(&mut row.latency_ms, cell)),
    ("latency_s", |row, cell| time(&mut row.latency_ms, cell)),
    ("p50_ms", |row, cell| time(&mut row.p50_ms, cell)),
    ("p99_ms", |row, cell| time(&mut row.p99_ms, cell)),
    ("success_share", |row, cell| {
        count(&mut row.success_share, without_percent(cell))?;
        // Two places to the left where it is in per cent.
        let places = if cell.ends_with('%') { -2 } else { 0 };
        row.success_share = row.success_share.map(|share| share.shifted(places));
        let share = row.success_share.is_some_and(|share| share.value <= 1.0);
        share.then_some(()).ok_or("write a share from 0 to 1, as in 0.98, or as in 98%")
    }),
    ("server_cpu_pct", |row, cell| count(&mut row.server_cpu_pct, without_percent(cell))),
    ("disk_util_pct", |row, cell| count(&mut row.disk_util_pct, without_percent(cell))),
    ("note", |row, cell| text(&mut row.note, cell)),
];

/// The line in which a record begins, and its cells.
type Record = (usize, Vec<String>);

/// Columns that hold no numbers.
const TEXTS: &[&str] = &["report", "system", "workload", "note"];

/// Columns of mean latencies.
const LATENCIES: &[&str] = &["latency_ms", "latency_us", "latency_s"];

/// Columns without which there is nothing to say; where several stand together, exactly one of them.
const REQUIRED: &[&[&str]] = &[&["clients"], &["throughput_rps"], LATENCIES];

/// Reads a table: CSV (RFC 4180), or with semicolons or tabs, with the names of the columns first, or the first one of a text in Markdown.
/// Lines that begin with `#`, and empty ones, are skipped. The error is one line: line, column, what is wrong, what to do.
pub fn parse(text: &str) -> Result<Table, Error> {
    table(text, &[], false)
}

/// The same, of which `names` are pairs of a column here and its name there, and the clients may be known otherwise.
pub(crate) fn table(text: &str, names: &[(String, String)], knows_clients: bool) -> Result<Table, Error> {
    let (markdown, unread) = markdown(text).unzip();
    let between_semicolons = markdown.is_none() && delimiter(text) == b';';
    let mut records = markdown.map_or_else(|| records(text), Ok)?.into_iter();
    let empty = || Error::input("there is no row in it").hint("write the names of the columns first");
    let (head_line, head) = records.next().ok_or_else(empty)?;
    let at = |line: usize| move |why: Error| why.at(format!("line {line}"));
    let names_there = head;
    let head = renamed(&names_there, names)?;
    let hint =
        "its column little_residual_ratio says by how much each deviates, with time between requests counted";
    let is_own = head.iter().any(|name| name == "little_residual_ratio");
    ensure(!is_own, "this is results.csv of weir, whose rows weir has checked", hint)?;
    let is_known = |name: &String| COLUMNS.iter().any(|(known, _)| known == name);
    let is_number = |cell: &String| {
        let cell = plain_number(cell.trim(), false);
        with_unit(&cell, "").or_else(|| counted(&cell)).is_some()
    };
    let is_data = names_there.iter().any(is_number) && !head.iter().any(is_known);
    let hint = "write the names of the columns before it, as in clients,throughput_rps,latency_ms";
    ensure(!is_data, "it looks like data: it has numbers and no names of columns", hint)
        .map_err(at(head_line))?;
    let records: Vec<Record> = records.collect();
    let mut seen = BTreeSet::new();
    for name in &head {
        let is_new = seen.insert(name.as_str());
        ensure(is_new, format!("column {} stands twice", one_line(name)), "rename or remove one")
            .map_err(at(head_line))?;
    }
    for one_of in REQUIRED {
        let there: Vec<&str> = one_of.iter().copied().filter(|name| seen.contains(name)).collect();
        let none = format!("there is no column {}", one_of.join(" or "));
        let is_given = knows_clients && *one_of == ["clients"];
        // A median is none.
        let mean = if *one_of == LATENCIES { ", the mean latency in this unit" } else { "" };
        let hint =
            format!("name the column so, or say which one it is: --columns '{}=NAME'{mean}", one_of[0]);
        ensure(!there.is_empty() || is_given, none, hint).map_err(at(head_line))?;
        let both = format!("columns {} say the same", there.join(" and "));
        ensure(there.len() <= 1, both, "remove one").map_err(at(head_line))?;
    }
    ensure(!records.is_empty(), "there is no row below the names of the columns", "write some")?;
    let columns: Vec<Option<&Column>> =
        head.iter().map(|name| COLUMNS.iter().find(|(known, _)| known == name)).collect();
    let units = time_units(&names_there, &head, names);
    let is_number =
        |at: &usize| columns.get(*at).copied().flatten().is_some_and(|(name, _)| !TEXTS.contains(name));
    let numbers = records.iter().flat_map(|(_, cells)| cells.iter().enumerate());
    let numbers: Vec<&str> = numbers.filter(|(at, _)| is_number(at)).map(|(_, cell)| cell.trim()).collect();
    let is_comma = has_decimal_commas(&numbers, between_semicolons);
    let mut rows = Vec::new();
    for (line, cells) in records {
        let what = format!("it has {} cells and the head has {}", cells.len(), head.len());
        let hint = "quote cells that hold a comma, and give every column a cell";
        ensure(cells.len() == head.len(), what, hint).map_err(at(line))?;
        let hint = "put it into a file of its own, and name both";
        ensure(cells != names_there, "another table begins here", hint).map_err(at(line))?;
        let mut row = PublishedRow::default();
        for ((cell, column), unit) in cells.iter().zip(&columns).zip(&units) {
            let (Some((name, read)), cell) = (column, one_line(cell)) else { continue };
            let cell = if TEXTS.contains(name) { cell } else { plain_number(&cell, is_comma) };
            let at = |why: Error| why.at(format!("line {line}, column {name}"));
            let is_plain = Figure::parse(&cell).is_some();
            let hint = format!(
                "write it in the head, as in latency_ms, latency_us or latency_s, or behind the number, as in 4.38ms; or say \
                 --columns '{name}=NAME'"
            );
            ensure(!is_plain || unit.is_some(), format!("`{cell}` has no unit"), hint).map_err(at)?;
            let cell = if is_plain { cell + unit.unwrap_or_default() } else { cell };
            if !cell.is_empty() {
                let wrong = |hint| Error::input(format!("`{cell}` does not fit")).hint(hint);
                read(&mut row, &cell).map_err(wrong).map_err(at)?;
            }
        }
        rows.push(row);
    }
    let ignored = (head.iter().zip(&columns)).filter(|(_, column)| column.is_none());
    let ignored = ignored.map(|(name, _)| one_line(name)).collect();
    Ok(Table { rows, ignored, unread: unread.flatten() })
}

fn text(field: &mut String, cell: &str) -> Result<(), &'static str> {
    cell.clone_into(field);
    Ok(())
}

fn without_percent(cell: &str) -> &str {
    cell.strip_suffix('%').map_or(cell, str::trim_end)
}

fn count(field: &mut Option<Figure>, cell: &str) -> Result<(), &'static str> {
    let figure =
        counted(cell).ok_or("write a plain number, as in 1234.5 or 1.2k, or leave the cell empty")?;
    *field = Some(figure);
    Ok(())
}

fn time(field: &mut Option<Figure>, cell: &str) -> Result<(), &'static str> {
    let figure = with_unit(cell, "").ok_or("write a time, as in 4.38ms, or leave the cell empty")?;
    *field = Some(figure);
    Ok(())
}

/// What other tables call a column, as [`plain_name`] writes it; of several that are there, the first.
const OTHER_NAMES: &[(&str, &[&str])] = &[
    ("clients", &["connections", "conns", "concurrency", "users", "vus", "virtual_users"]),
    ("throughput_rps", &["rps", "req_s", "throughput_req_s", "qps", "tps", "throughput"]),
    ("latency_ms", &["mean_ms", "latency_mean_ms", "mean_latency_ms"]),
    ("latency_us", &["mean_us", "latency_mean_us", "mean_latency_us"]),
    ("latency_s", &["mean_s", "latency_mean_s", "mean_latency_s"]),
    ("latency_ms", &["latency", "mean", "mean_latency", "latency_mean"]),
    ("p50_ms", &["median_ms", "latency_p50_ms", "p50", "median", "latency_p50"]),
    ("p99_ms", &["latency_p99_ms", "p99", "latency_p99"]),
    ("workload", &["name", "scenario", "endpoint"]),
];

/// The words of a name in lower case with one `_` between them: `Requests per second` is `req_s`, `Avg (ms)` is `mean_ms`.
fn plain_name(name: &str) -> String {
    let name = name.to_lowercase();
    let words = name.split(|letter: char| !letter.is_alphanumeric());
    let words = words.filter(|word| !["", "per"].contains(word)).map(|word| match word {
        "avg" | "average" => "mean",
        "reqs" | "requests" => "req",
        "sec" | "secs" | "second" | "seconds" => "s",
        "µs" | "μs" => "us",
        word => word,
    });
    words.collect::<Vec<_>>().join("_")
}

/// The unit of each column's times: that in the name it has in the table, or of the name that `names` gives it; else that of the mean
/// latency, where that has one. `None` where nothing says it; empty of a column without times.
fn time_units(there: &[String], known: &[String], names: &[(String, String)]) -> Vec<Option<&'static str>> {
    let of =
        |name: &str| ["ms", "us", "ns", "s"].into_iter().find(|unit| name.ends_with(&format!("_{unit}")));
    let own = |(there, known): (&String, &String)| {
        let is_given = names.iter().any(|(ours, _)| ours == known);
        of(known).map_or(Some(""), |unit| of(&plain_name(there)).or_else(|| is_given.then_some(unit)))
    };
    let units: Vec<_> = there.iter().zip(known).map(own).collect();
    let latency = known.iter().position(|name| LATENCIES.contains(&name.as_str())).and_then(|at| units[at]);
    units.into_iter().map(|unit| unit.or(latency)).collect()
}

/// The head of a table with the names that are known here: those that `names` gives to columns, then other names of the same.
fn renamed(head: &[String], names: &[(String, String)]) -> Result<Vec<String>, Error> {
    let is_same = |name: &str, ours: &str| {
        name == ours || REQUIRED.iter().any(|one_of| one_of.contains(&name) && one_of.contains(&ours))
    };
    let known: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    let own = |name: &String| {
        known.iter().find(|of| **of == plain_name(name)).map_or(name.as_str(), |of| of).to_owned()
    };
    let mut renamed: Vec<String> = head.iter().map(own).collect();
    for (ours, theirs) in names {
        let what = format!("--columns: there is no `{ours}` here");
        ensure(known.contains(&ours.as_str()), what, format!("expected one of: {}", known.join(", ")))?;
        let at = head.iter().position(|name| name.trim() == theirs.trim());
        let hint = format!("it has: {}", head.join(", "));
        let at = at.ok_or_else(|| {
            Error::input(format!("--columns: the table has no column `{theirs}`")).hint(hint)
        })?;
        // What had the name before means nothing now.
        renamed.iter_mut().filter(|name| is_same(name, ours)).for_each(|name| name.push_str(" (not used)"));
        renamed[at].clone_from(ours);
    }
    for (ours, others) in OTHER_NAMES {
        let is_there = renamed.iter().any(|name| is_same(name, ours));
        let found =
            others.iter().find_map(|other| renamed.iter().position(|name| plain_name(name) == *other));
        if let Some(at) = found.filter(|_| !is_there) {
            renamed[at] = (*ours).to_owned();
        }
    }
    Ok(renamed)
}

/// What stands between the cells: of tabs, semicolons and commas the one of which the first line has most.
fn delimiter(text: &str) -> u8 {
    let is_row = |line: &&str| !line.starts_with('#') && !line.trim().is_empty();
    let head = text.lines().find(is_row).unwrap_or_default();
    let count = |of: &u8| head.bytes().filter(|byte| byte == of).count();
    // Of as many the last is taken.
    *[b';', b'\t', b','].iter().max_by_key(|of| count(of)).unwrap_or(&b',')
}

/// A cell without the separators of its thousands, and with a point where `is_comma` says that a comma stands before the decimals.
fn plain_number(cell: &str, is_comma: bool) -> String {
    let blanks = [' ', '\u{a0}', '\u{202f}', '\'', '’', '_'];
    let (thousands, decimals) = if is_comma { ('.', ',') } else { (',', '.') };
    let is_digit = |of: Option<&char>| of.is_some_and(char::is_ascii_digit);
    let letters: Vec<char> = cell.chars().collect();
    let in_groups = |at: usize| {
        let group = letters[at + 1..].iter().take_while(|of| of.is_ascii_digit()).count();
        at > 0 && is_digit(letters.get(at - 1)) && group == 3
    };
    let kept = letters.iter().enumerate().filter_map(|(at, letter)| match *letter {
        of if (of == thousands || blanks.contains(&of)) && in_groups(at) => None,
        of if of == decimals && is_comma => Some('.'),
        of => Some(of),
    });
    kept.collect()
}

/// Whether in these numbers a comma stands before the decimals: one of them has a comma that is before no group of three digits, or behind more
/// than three; or they stand between semicolons, as where commas are decimal, and none has a point or two commas.
fn has_decimal_commas(cells: &[&str], between_semicolons: bool) -> bool {
    let is_decimal = |cell: &str| {
        let (Some((whole, decimals)), true) = (cell.rsplit_once(','), cell.matches(',').count() == 1) else {
            return false;
        };
        let has_digits = |text: &str| text.chars().all(|of| of.is_ascii_digit()) && !text.is_empty();
        has_digits(&whole.replace('.', ""))
            && has_digits(decimals)
            // With separators of thousands there would be one before the last three of four digits and more.
            && (decimals.len() != 3 || whole.starts_with('0') || whole.contains('.') || whole.len() > 3)
    };
    let is_other = |cell: &str| cell.contains('.') || cell.matches(',').count() > 1;
    cells.iter().any(|cell| is_decimal(cell))
        || between_semicolons && !cells.iter().any(|cell| is_other(cell))
}

/// The rows of the first table in a text in Markdown with the line of each, and the line of the next table; `None` where there is none.
fn markdown(text: &str) -> Option<(Vec<Record>, Option<usize>)> {
    let row = |(i, line): (usize, &str)| {
        let cells = line.trim().strip_prefix('|')?;
        let cells = cells.strip_suffix('|').unwrap_or(cells).split('|');
        Some((i + 1, cells.map(|cell| cell.trim().to_owned()).collect()))
    };
    let mut lines = text.lines().enumerate().map(row).skip_while(Option::is_none);
    let mut table: Vec<Record> = lines.by_ref().map_while(|row| row).collect();
    let is_dashes = |cell: &String| cell.contains('-') && cell.chars().all(|of| "-:".contains(of));
    let has_dashes = table.get(1).is_some_and(|(_, cells)| cells.iter().all(is_dashes));
    has_dashes.then(|| table.remove(1))?;
    Some((table, lines.flatten().next().map(|(line, _)| line)))
}

/// The records of a CSV text with the line each begins in.
fn records(text: &str) -> Result<Vec<Record>, Error> {
    let text = text.trim_start_matches('\u{feff}');
    let mut reader = csv::ReaderBuilder::new();
    reader.delimiter(delimiter(text));
    reader.has_headers(false).flexible(true).comment(Some(b'#'));
    let mut records = Vec::new();
    for record in reader.from_reader(text.as_bytes()).into_records() {
        let record = record.map_err(|error| Error::input(format_args!("it is not CSV: {error}")))?;
        // The position is that of the comments and empty lines before it.
        let (byte, line) = record.position().map_or((0, 1), |at| (at.byte() as usize, at.line() as usize));
        let is_skipped = |line: &&str| line.starts_with('#') || line.trim().is_empty();
        let skipped = text[byte..].lines().take_while(is_skipped).count();
        if record.len() > 1 || !record[0].trim().is_empty() {
            records.push((line + skipped, record.iter().map(str::to_owned).collect()));
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_by_the_names_of_its_columns() {
        let csv = "# a comment, with \"quotes\nlatency_us,clients,throughput_rps,p95,note\r\n\r\n118,1,8381.58,3,\"a, \"\"b\"\"\nc\"\n# more\n,,100000,,";
        let Table { rows, ignored, .. } = parse(csv).unwrap();
        assert_eq!(ignored, ["p95"]);
        assert_eq!((rows.len(), rows[0].clients, rows[0].note.as_str()), (2, Some(1), "a, \"b\" c"));
        let latency = rows[0].latency_ms.unwrap();
        assert_eq!((latency.value, latency.decimals, latency.to_string().as_str()), (0.118, 3, "0.118"));
        assert_eq!((rows[1].clients, rows[1].latency_ms), (None, None));
        assert_eq!(parse(&format!("\u{feff}{csv}")).unwrap().rows, rows);
    }

    #[test]
    fn tables_are_read_as_people_have_them() {
        let shown = |text: &str, names: &[(&str, &str)]| {
            let names: Vec<_> = names.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            let row = table(text, &names, false).unwrap().rows.remove(0);
            (row.clients.unwrap(), row.throughput_rps.unwrap().value, row.latency_ms.unwrap().value)
        };
        for (text, names, expected) in [
            ("Users\tReq/s\tAvg (ms)\n16\t1,234.5\t12.96\n", &[][..], (16, 1234.5, 12.96)),
            ("connections;rps;mean_ms\n16;1.234,5;12,96\n", &[], (16, 1234.5, 12.96)),
            ("connections;rps;mean_ms\n16;1234,567;13\n", &[], (16, 1234.567, 13.0)),
            ("connections;rps;mean_ms\n1 600;1'234'567;12.96\n", &[], (1600, 1_234_567.0, 12.96)),
            ("clients;rps;mean_ms\n1;456,621;2,190\n2;834,120;2,398\n", &[], (1, 456.621, 2.19)),
            ("clients;rps;mean_ms\n1;456,621;2.190\n", &[], (1, 456_621.0, 2.19)),
            ("clients;rps;mean_ms\n1;456,621;2,190\n1;1,234,567;1\n", &[], (1, 456_621.0, 2190.0)),
            ("clients\trps\tmean_ms\n1\t456,621\t2,190\n", &[], (1, 456_621.0, 2190.0)),
            ("vus,qps,mean latency ms\n16,\"12,345\",1296us\n", &[], (16, 12345.0, 1.296)),
            (
                "N,X,R\n16,1.2k,12.96ms\n",
                &[("clients", "N"), ("throughput_rps", "X"), ("latency_ms", "R")],
                (16, 1200.0, 12.96),
            ),
            ("Clients,rps,Latency (s)\n16,1200,0.0125\n", &[], (16, 1200.0, 12.5)),
            (
                "clients,rps,Latency (us)\n16,1200,12960\n",
                &[("latency_ms", "Latency (us)")],
                (16, 1200.0, 12.96),
            ),
            ("clients,rps,R,latency_us\n16,1200,0.0125,5\n", &[("latency_s", "R")], (16, 1200.0, 12.5)),
            ("clients,rps,latency_us\n16,1.2e3,12.96ms\n", &[], (16, 1200.0, 12.96)),
            ("clients,rps,latency_us\n16,1200,1.25e4\n", &[], (16, 1200.0, 12.5)),
        ] {
            assert_eq!(shown(text, names), expected, "{text}");
        }
        let told = |names: &[(String, String)]| table("a,b\n1,2\n", names, false).unwrap_err().to_string();
        let name = |a: &str, b: &str| [(a.to_owned(), b.to_owned())];
        assert!(told(&name("clients", "c")).contains("the table has no column `c`; hint: it has: a, b"));
        assert!(
            told(&name("client", "a")).contains("there is no `client` here; hint: expected one of: report,")
        );
        assert!(told(&[]).contains("or say which one it is: --columns 'clients=NAME'"));
    }

    #[test]
    fn a_table_in_markdown_is_read() {
        let csv = parse("clients,rps,p99_ms,latency_ms,note\n1,1000,,1,a\n2,\"2,000\",3,2,\n").unwrap();
        for (unread, text) in [None, Some(12)].into_iter().zip([
            "| clients | rps | p99_ms | latency_ms | note |\n|---|--:|:-:|:--|-|\n| 1 | 1000 | | 1 | a |\n| 2 | 2,000 | 3 | 2 | |\n",
            "# Results\n\nFast; they are.\n\n|clients|rps|p99_ms|latency_ms|note|\r\n|-|-|-|-|-|\r\n|1|1000||1|a|\r\n|2|2,000|3|2||\r\n\nThe end.\n\n| a |\n|---|\n",
        ]) {
            assert_eq!(parse(text).unwrap(), Table { unread, ..csv.clone() }, "{text}");
        }
    }

    #[test]
    fn a_share_may_be_in_per_cent() {
        let head = "clients,rps,latency_ms,success_share,server_cpu_pct,disk_util_pct";
        let row = parse(&format!("{head}\n1,1000,1,99.5%,48 %,90\n")).unwrap().rows.remove(0);
        assert_eq!(row.success_share, Figure::parse("0.995"));
        assert_eq!((row.server_cpu_pct, row.disk_util_pct), (Figure::parse("48"), Figure::parse("90")));
    }

    #[test]
    fn a_time_without_a_unit_has_that_of_the_latency() {
        let times = |text: &str, names: &[(&str, &str)]| {
            let names: Vec<_> = names.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
            let row = table(text, &names, false).map_err(|error| error.to_string())?.rows.remove(0);
            Ok([row.latency_ms, row.p50_ms, row.p99_ms].map(|of| of.map(|of| of.value)))
        };
        for (text, names, [mean, p50, p99]) in [
            ("clients,throughput_rps,latency_ms,p50,p99\n1,1,5,4,9\n", &[][..], [5.0, 4.0, 9.0]),
            ("Clients,Throughput,Latency (us),Median,P99\n1,1,5,4,9\n", &[], [0.005, 0.004, 0.009]),
            ("clients,rps,latency_s,p50,p99_ms\n1,1,0.005,0.004,9\n", &[], [5.0, 4.0, 9.0]),
            ("Clients,Throughput,Latency,p50,p99\n1,1,4.38ms,900us,0.02s\n", &[], [4.38, 0.9, 20.0]),
            ("clients,rps,R,p50,p99\n1,1,5,4,9\n", &[("latency_us", "R")], [0.005, 0.004, 0.009]),
            ("clients,rps,latency,p50,p99\n1,1,5,4,9\n", &[("latency_ms", "latency")], [5.0, 4.0, 9.0]),
            // A name with a unit goes first.
            ("clients,rps,latency,mean_us,p50,p99\n1,1,7,5,4,9\n", &[], [0.005, 0.004, 0.009]),
        ] {
            assert_eq!(times(text, names), Ok([Some(mean), Some(p50), Some(p99)]), "{text}");
        }
        for (text, at) in [
            ("Clients,Throughput,Latency\n1,1,4.38\n", "line 2, column latency_ms: `4.38`"),
            ("clients,rps,latency,p99\n1,1,4.38ms,9\n", "line 2, column p99_ms: `9`"),
        ] {
            let error: String = times(text, &[]).unwrap_err();
            let said = format!("{at} has no unit; hint: write it in the head, as in latency_ms");
            assert!(error.starts_with(&said), "{error}");
        }
    }

    #[test]
    fn a_column_has_the_names_that_other_tables_give_it() {
        for (column, names) in [
            ("clients", "connections conns concurrency users vus virtual_users"),
            ("throughput_rps", "rps req_s reqs_s req_sec requests_s requests_sec qps tps throughput"),
            ("throughput_rps", "requests_per_second requests_per_sec throughput_req_s Req/Sec"),
            ("latency_ms", "mean_ms avg_ms average_ms latency_mean_ms mean_latency_ms avg_latency_ms"),
            ("latency_ms", "latency_avg_ms average_latency_ms Avg(ms)"),
            ("clients", "Clients CLIENTS"),
            ("latency_ms", "Latency(ms)"),
            ("latency_s", "Latency_seconds mean_s"),
            ("latency_us", "Latency(µs) mean_us avg_us mean_latency_us avg_latency_us"),
            ("latency_ms", "Latency mean Average avg_latency latency_mean"),
            ("p50_ms", "median_ms latency_p50_ms p50 P50 median latency_p50 P50(ms)"),
            ("p99_ms", "latency_p99_ms p99 latency_p99"),
            ("workload", "name scenario endpoint"),
        ] {
            for name in names.split(' ') {
                assert_eq!(renamed(&[name.to_owned()], &[]).unwrap(), [column], "{name}");
            }
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_line_column_and_remedy() {
        let head = "clients,throughput_rps,latency_ms,success_share\n";
        for (csv, complaint) in [
            (String::new(), "there is no row in it; hint: write"),
            (
                "\n1,1000,1.00ms\n2,2000,1.05ms\n".into(),
                "line 2: it looks like data: it has numbers and no names of columns; hint: write the names",
            ),
            (
                "| clients | rps | latency_ms |\n|--|--|--|\n| 1 | 2 |\n".into(),
                "line 3: it has 2 cells and the head has 3",
            ),
            ("clients,latency_ms\n".into(), "line 1: there is no column throughput_rps; hint: name"),
            (
                "clients,throughput_rps\n".into(),
                "no column latency_ms or latency_us or latency_s; hint: name",
            ),
            ("#\nclients,clients,x\n".into(), "line 2: column clients stands twice; hint: rename"),
            ("\"a\nb\",\"a\nb\"\n".into(), "line 1: column a b stands twice; hint: rename"),
            ("clients,throughput_rps,latency_ms,latency_us\n".into(), "say the same; hint: remove one"),
            (
                "clients,attempts_rps,little_residual_ratio\n".into(),
                "this is results.csv of weir, whose rows",
            ),
            (head.to_owned(), "there is no row below the names of the columns"),
            (format!("{head}1,2,3,1\n{head}"), "line 3: another table begins here; hint: put it"),
            (format!("{head}1,2,3\n"), "line 2: it has 3 cells and the head has 4; hint: quote"),
            (format!("{head}\n0,2,3,\n"), "line 3, column clients: `0` does not fit; hint: write a whole"),
            (format!("{head}1,2,3,1\n1,\"14 57\",3,\n"), "line 3, column throughput_rps: `14 57`"),
            (
                format!("{head}1,2,fast,\n"),
                "line 2, column latency_ms: `fast` does not fit; hint: write a time",
            ),
            (
                format!("{head}1,2,3,100.1%\n"),
                "line 2, column success_share: `100.1%` does not fit; hint: write a share",
            ),
            (
                format!("{head}1,2,3,76\n"),
                "line 2, column success_share: `76` does not fit; hint: write a share",
            ),
            (format!("{head}1,\"2\n"), "line 2: it has 2 cells and the head has 4; hint: quote"),
            (format!("{head}1,2\"3,\n"), "line 2: it has 3 cells and the head has 4; hint: quote"),
        ] {
            let error = parse(&csv).unwrap_err().to_string();
            assert!(error.contains(complaint) && !error.contains('\n'), "{error}");
        }
    }
}
