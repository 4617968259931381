//! The files that `weir load` writes: percentile distributions and the seconds of the window.
//!
//! Whether they can be written is asked before the run, not after it.

use crate::cmd::{check_writable, write_file};
use kv::Error;
use kv::proto::{Bucket, LoadReport, SecondReport};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The name of the histogram of all attempts, which has the prefix for itself.
const ALL: &str = "all";
/// Rows on the way from any percentile half of what is left to the highest, as HdrHistogram has them.
const TICKS_PER_HALF: u32 = 5;

/// Checks that a file can be written for each of these histograms, with a name that begins with `prefix`.
pub(super) fn check_prefix(prefix: &str, histograms: &[String]) -> Result<(), Error> {
    if prefix.is_empty() || prefix.ends_with('/') {
        return Err(Error::input(format_args!("--hdr {prefix} names no file"))
            .hint("add what the files' names are to begin with, as in --hdr results/run"));
    }
    paths(prefix, histograms).iter().try_for_each(|path| check_writable(path.as_ref()))
}

/// The percentile distributions of the report's histograms, each with the path of its file, which begins with `prefix`.
pub(super) fn distributions(prefix: &str, report: &LoadReport) -> Vec<(String, String)> {
    let texts = report.histograms.values().map(|buckets| distribution(buckets));
    paths(prefix, report.histograms.keys()).into_iter().zip(texts).collect()
}

/// Writes texts into the files with these paths. Says what became of those that could not be written: one that fails keeps no other
/// from it.
pub(super) fn write(files: &[(String, String)]) -> Vec<Error> {
    files.iter().filter_map(|(path, text)| write_file(path.as_ref(), text).err()).collect()
}

/// The files of these histograms: those whose names become equal are numbered.
fn paths<'n>(prefix: &str, names: impl IntoIterator<Item = &'n String>) -> Vec<String> {
    let mut same = BTreeMap::new();
    let path = |name: &String| {
        // A request is called by its method and its path, which no file can be.
        let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
        let stem = if name == ALL { String::new() } else { format!("-{}", name.trim_matches('_')) };
        let number = same.entry(stem.clone()).and_modify(|number| *number += 1).or_insert(1);
        let number = if *number == 1 { String::new() } else { format!("-{number}") };
        format!("{prefix}{stem}{number}.hgrm")
    };
    names.into_iter().map(path).collect()
}

/// The seconds as RFC 4180 has tables.
pub(super) fn table(seconds: &[SecondReport]) -> String {
    let mut text = String::from(
        "second,attempts,successes,failures,goodput_rps,latency_us_mean,latency_us_p50,latency_us_p95,latency_us_p99,latency_us_max\r\n",
    );
    for (number, second) in seconds.iter().enumerate() {
        let SecondReport { attempts, successes, .. } = second;
        // Successes of a second are successes per second. What was not measured is empty, not zero.
        let SecondReport { latency_us_mean, latency_us_p50, latency_us_p95, latency_us_p99, .. } = *second;
        let us = [latency_us_mean, latency_us_p50, latency_us_p95, latency_us_p99, second.latency_us_max];
        let us = us.map(|us| if *attempts == 0 { String::new() } else { us.to_string() }).join(",");
        let failures = attempts - successes;
        let _ = write!(text, "{number},{attempts},{successes},{failures},{successes},{us}\r\n");
    }
    text
}

/// A histogram in the text format of HdrHistogram's percentile distributions, in milliseconds: what its plotters take
/// them for.
///
/// Rows stand at percentiles whose distance to the highest halves every five rows, as far as there are samples; each has the
/// longest latency of the bucket that reaches it and the samples up to there. Source: `outputPercentileDistribution` of
/// HdrHistogram, and wrk2, whose last row says `inf`.
fn distribution(buckets: &[Bucket]) -> String {
    // Writing to a string cannot fail, here and below.
    let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
    let ms = |ns: f64| ns / 1e6;
    let total: u64 = buckets.iter().map(|[_, _, count]| count).sum();
    let (mut below, mut row) = (0, 0);
    for [_, to, count] in buckets {
        below += count;
        while is_reached(row, below, total) {
            let inverse = inverse(row);
            let (value, share) = (ms(*to as f64), 1.0 - 1.0 / inverse);
            let _ = writeln!(text, "{value:12.3} {share:2.12} {below:10} {inverse:14.2}");
            row += 1;
            // The highest latency has one row of its own, below.
            if below == total {
                break;
            }
        }
    }
    let max = buckets.last().map_or(0.0, |[_, to, _]| ms(*to as f64));
    if total > 0 {
        let _ = writeln!(text, "{max:12.3} {:2.12} {total:10} {:>14}", 1.0, "inf");
    }
    // Each sample is taken to lie in the middle of its bucket.
    let mean_of = |figure: &dyn Fn(f64) -> f64| {
        let middles = buckets.iter().map(|[from, to, count]| ((from + to) as f64 / 2.0, *count as f64));
        middles.map(|(ns, count)| figure(ns) * count).sum::<f64>() / total.max(1) as f64
    };
    let mean = mean_of(&|ns| ns);
    let deviation = ms(mean_of(&|ns| (ns - mean).powi(2)).sqrt());
    let _ = writeln!(text, "#[Mean    = {:12.3}, StdDeviation   = {deviation:12.3}]", ms(mean));
    let _ = writeln!(text, "#[Max     = {max:12.3}, Total count    = {total:12}]");
    text
}

/// 1 / (1 − share) of a row's percentile: its distance to the highest halves every five rows.
fn inverse(row: u32) -> f64 {
    let (halves, ticks) = (row / TICKS_PER_HALF, row % TICKS_PER_HALF);
    2f64.powi(halves as i32) / (1.0 - f64::from(ticks) / f64::from(2 * TICKS_PER_HALF))
}

/// Whether `below` of `total` samples are as many as a row is for. In integers: with floats three of ten samples would not
/// reach 30 %.
fn is_reached(row: u32, below: u64, total: u64) -> bool {
    let (halves, ticks) = (row / TICKS_PER_HALF, u128::from(row % TICKS_PER_HALF));
    let all = u128::from(2 * TICKS_PER_HALF);
    (u128::from(total - below) * all) << halves <= u128::from(total) * (all - ticks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    const HISTOGRAMS: [&str; 3] = ["all", "get", "service"];

    /// With these histograms.
    fn report() -> LoadReport {
        let histograms = HISTOGRAMS.map(|name| (name.to_owned(), vec![[1000, 1000, 1]]));
        LoadReport { histograms: BTreeMap::from(histograms), ..LoadReport::default() }
    }

    /// The rows of a percentile distribution: milliseconds, share, samples up to there, and what stands last.
    fn rows(text: &str) -> Vec<(f64, f64, u64, String)> {
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("       Value     Percentile TotalCount 1/(1-Percentile)"));
        assert_eq!(lines.next(), Some(""));
        lines
            .filter(|line| !line.starts_with('#'))
            .map(|line| {
                // Plotters want the blank in front.
                assert!(line.starts_with(' '), "{line}");
                let cells: Vec<&str> = line.split_whitespace().collect();
                let [value, share, count, inverse] = cells[..] else { panic!("{line}") };
                (value.parse().unwrap(), share.parse().unwrap(), count.parse().unwrap(), inverse.to_owned())
            })
            .collect()
    }

    #[test]
    fn ten_latencies_stand_at_the_percentiles_computed_by_hand() {
        // 1 ms to 10 ms, one of each, in buckets of a microsecond.
        let buckets: Vec<Bucket> = (1..=10).map(|ms| [ms * 1_000_000, ms * 1_000_000 + 999, 1]).collect();
        let text = distribution(&buckets);
        let expected = "       Value     Percentile TotalCount 1/(1-Percentile)

       1.001 0.000000000000          1           1.00
       1.001 0.100000000000          1           1.11
       2.001 0.200000000000          2           1.25
       3.001 0.300000000000          3           1.43
       4.001 0.400000000000          4           1.67
       5.001 0.500000000000          5           2.00
       6.001 0.550000000000          6           2.22
       6.001 0.600000000000          6           2.50
       7.001 0.650000000000          7           2.86
       7.001 0.700000000000          7           3.33
       8.001 0.750000000000          8           4.00
       8.001 0.775000000000          8           4.44
       8.001 0.800000000000          8           5.00
       9.001 0.825000000000          9           5.71
       9.001 0.850000000000          9           6.67
       9.001 0.875000000000          9           8.00
       9.001 0.887500000000          9           8.89
       9.001 0.900000000000          9          10.00
      10.001 0.912500000000         10          11.43
      10.001 1.000000000000         10            inf
#[Mean    =        5.500, StdDeviation   =        2.872]
#[Max     =       10.001, Total count    =           10]
";
        assert_eq!(text, expected);
    }

    #[test]
    fn rows_are_as_dense_towards_the_highest_as_there_are_samples() {
        let text = distribution(&[[1_000_000, 1_000_999, 999_999], [50_000_000, 50_032_767, 1]]);
        let rows = rows(&text);
        assert!(rows.windows(2).all(|pair| pair[0].1 < pair[1].1 && pair[0].0 <= pair[1].0), "{text}");
        let (last, before) = (&rows[rows.len() - 1], &rows[rows.len() - 3]);
        assert_eq!((last.0, last.1, last.2, last.3.as_str()), (50.033, 1.0, 1_000_000, "inf"));
        // One in a million is longer: up to that percentile, and no further, all are of the first bucket.
        assert!(before.0 == 1.001 && before.1 > 0.999_998 && before.1 <= 0.999_999, "{before:?}");
    }

    #[test]
    fn one_sample_and_none_are_distributions_too() {
        assert_eq!(rows(&distribution(&[[77_000, 77_511, 1]])).len(), 2);
        let none = distribution(&[]);
        assert!(rows(&none).is_empty() && none.contains("Total count    =            0"), "{none}");
    }

    #[test]
    fn seconds_are_rows_and_what_was_not_measured_is_empty() {
        let second =
            SecondReport { attempts: 9, successes: 7, latency_us_p50: 1.5, ..SecondReport::default() };
        let text = table(&[second, SecondReport::default()]);
        let rows: Vec<&str> = text.split("\r\n").skip(1).collect();
        assert_eq!(rows, ["0,9,7,2,7,0,1.5,0,0,0", "1,0,0,0,0,,,,,", ""]);
    }

    #[test]
    fn files_are_named_after_their_histograms_and_replace_older_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("run.hgrm"), "older").unwrap();
        let prefix = path("run").to_str().unwrap().to_owned();
        check_prefix(&prefix, &HISTOGRAMS.map(String::from)).unwrap();
        assert!(write(&distributions(&prefix, &report())).is_empty());
        let mut names: Vec<String> = (fs::read_dir(folder.path()).unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["run-get.hgrm", "run-service.hgrm", "run.hgrm"]);
        assert!(fs::read_to_string(path("run.hgrm")).unwrap().contains("Percentile"));
    }

    #[test]
    fn requests_whose_names_become_equal_have_files_of_their_own() {
        let names = ["all", "GET /a_b", "PUT /a", "GET /a-b", "GET /a/b"].map(String::from);
        assert_eq!(
            paths("run", &names),
            [
                "run.hgrm",
                "run-GET__a_b.hgrm",
                "run-PUT__a.hgrm",
                "run-GET__a_b-2.hgrm",
                "run-GET__a_b-3.hgrm"
            ]
        );
    }

    #[test]
    fn a_file_that_fails_after_the_run_is_said_and_keeps_no_other_from_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let prefix = path("run").to_str().unwrap().to_owned();
        check_prefix(&prefix, &HISTOGRAMS.map(String::from)).unwrap();
        fs::remove_file(path("run-get.hgrm")).unwrap();
        fs::create_dir(path("run-get.hgrm")).unwrap();
        let failures = write(&distributions(&prefix, &report()));
        let messages: Vec<String> = failures.iter().map(Error::to_string).collect();
        assert!(messages[0].contains("run-get.hgrm: Is a directory"), "{messages:?}");
        assert_eq!(messages.len(), 1);
        assert!(path("run.hgrm").is_file() && path("run-service.hgrm").is_file());
        drop(folder);
        let messages: Vec<String> =
            write(&distributions(&prefix, &report())).iter().map(Error::to_string).collect();
        assert!(messages[0].contains("run.hgrm: No such file or directory"), "{messages:?}");
        assert_eq!(messages.len(), 3);
    }

    #[test]
    fn what_cannot_be_written_is_said_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("taken.hgrm")).unwrap();
        fs::write(path("file"), "").unwrap();
        let failure = |prefix: &Path, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            check_prefix(prefix.to_str().unwrap(), &names).unwrap_err().to_string()
        };
        for (name, said) in [
            ("absent/run", "No such file or directory"),
            ("file/run", "Not a directory"),
            ("taken", "Is a directory"),
        ] {
            let failure = failure(&path(name), &["all"]);
            assert!(
                failure.contains(said) && failure.contains(name) && failure.contains("; hint: "),
                "{failure}"
            );
        }
        let no_file = failure(Path::new("results/"), &[]);
        assert!(no_file.contains("--hdr results/ names no file"), "{no_file}");
        // Each of the files, not the first alone.
        fs::create_dir(path("run-service.hgrm")).unwrap();
        let failure = failure(&path("run"), &HISTOGRAMS);
        assert!(failure.contains("run-service.hgrm: Is a directory"), "{failure}");
    }
}
