//! What `weir load` writes into files: percentile distributions and the seconds of the window.
//!
//! A file is written whole or not at all, and whether it can be is asked before the run, not after it.

use kv::Error;
use kv::proto::{Bucket, LoadReport, SecondReport};
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The name of the histogram of all attempts, which has the prefix for itself.
const ALL: &str = "all";
/// Rows on the way from any percentile half of what is left to the highest, as HdrHistogram has them.
const TICKS_PER_HALF: u32 = 5;

/// Which files were asked for.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct Files {
    /// Write percentile distributions for HdrHistogram's plotters: PREFIX.hgrm, PREFIX-get.hgrm and so on
    #[arg(long, value_name = "PREFIX")]
    pub(super) hdr: Option<String>,

    /// Write the figures of each second of the window as a table
    #[arg(long, value_name = "FILE.csv")]
    pub(super) seconds: Option<PathBuf>,
}

impl Files {
    /// Checks that they can be written; `histograms` are the names of all there will be.
    pub(super) fn check(&self, histograms: &[&str]) -> Result<(), Error> {
        if let Some(prefix) = self.hdr.as_ref().filter(|prefix| prefix.is_empty() || prefix.ends_with('/')) {
            return Err(Error::input(format_args!("--hdr {prefix} names no file"))
                .hint("add what the files' names are to begin with, as in --hdr results/run"));
        }
        for path in self.hdr_paths(histograms.iter().copied()).into_iter().chain(self.seconds.clone()) {
            check(&path).map_err(|(what, hint)| Error::input(what).hint(hint))?;
        }
        Ok(())
    }

    fn hdr_paths<'n>(&self, histograms: impl Iterator<Item = &'n str>) -> Vec<PathBuf> {
        let Some(prefix) = &self.hdr else { return Vec::new() };
        histograms.map(|name| hdr_path(prefix, name)).collect()
    }

    /// Writes them, and says what became of those that could not be: one that fails keeps no other from being written. The
    /// report needs its histograms if percentile distributions were asked for.
    pub(super) fn write(&self, report: &LoadReport) -> Vec<Error> {
        let distributions = self.hdr_paths(report.histograms.keys().map(String::as_str)).into_iter();
        let distributions =
            distributions.zip(report.histograms.values().map(|buckets| distribution(buckets)));
        let seconds = self.seconds.iter().map(|path| (path.clone(), table(&report.seconds)));
        let written = distributions.chain(seconds).map(|(path, text)| write(&path, &text));
        // The command line was checked before the run: this is a failure of the run.
        written.filter_map(Result::err).map(|(what, hint)| Error::new(what).hint(hint)).collect()
    }
}

fn hdr_path(prefix: &str, name: &str) -> PathBuf {
    if name == ALL { format!("{prefix}.hgrm").into() } else { format!("{prefix}-{name}.hgrm").into() }
}

/// What keeps a file from being written, and the remedy.
type Obstacle = (String, &'static str);

/// Whether `path` can be written: whether a temporary file can be made in its folder.
fn check(path: &Path) -> Result<(), Obstacle> {
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let what = format!("cannot write {}: it is not a regular file", path.display());
        return Err((what, "give another name: only files are overwritten"));
    }
    beside(path).map(drop).map_err(|error| obstacle(path, &error))
}

/// Writes `text` into a new file and gives it the name of `path` only when it is whole.
fn write(path: &Path, text: &str) -> Result<(), Obstacle> {
    // Again: it may have become something else meanwhile. What a link points to is replaced, not the link.
    check(path)?;
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let write = || -> io::Result<()> {
        let mut file = beside(&path)?;
        file.write_all(text.as_bytes())?;
        file.persist(&path)?;
        Ok(())
    };
    write().map_err(|error| obstacle(&path, &error))
}

/// A file in the same folder, which is gone unless it is kept.
fn beside(path: &Path) -> io::Result<tempfile::NamedTempFile> {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    // As any new file: the process's mask decides who may read it.
    tempfile::Builder::new().prefix(".weir-").permissions(Permissions::from_mode(0o666)).tempfile_in(folder)
}

fn obstacle(path: &Path, error: &io::Error) -> Obstacle {
    let hint = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => "make its folder first, or name another",
        io::ErrorKind::StorageFull => "make room on that disk, or name a folder on another",
        _ => "name a file in a folder that you may write to",
    };
    // Without its number and the path of the temporary file.
    let cause = error.to_string();
    let cause = cause.split(" (os error").next().unwrap_or_default().to_lowercase();
    (format!("cannot write {}: {cause}", path.display()), hint)
}

/// The seconds as RFC 4180 has tables.
fn table(seconds: &[SecondReport]) -> String {
    let mut text = String::from(
        "second,attempts,successes,failures,goodput_rps,latency_us_mean,latency_us_p50,latency_us_p99,latency_us_max\r\n",
    );
    for (number, second) in seconds.iter().enumerate() {
        let SecondReport { attempts, successes, .. } = second;
        let failures = attempts - successes;
        // Writing to a string cannot fail, here and below. Successes of a second are successes per second.
        let _ = write!(text, "{number},{attempts},{successes},{failures},{successes}");
        let latencies =
            [second.latency_us_mean, second.latency_us_p50, second.latency_us_p99, second.latency_us_max];
        for us in latencies {
            // What was not measured is empty, not zero.
            let _ = if *attempts == 0 { write!(text, ",") } else { write!(text, ",{us}") };
        }
        text.push_str("\r\n");
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
    let (ranges, widths) = shape(buckets);
    let _ = writeln!(text, "#[Buckets = {ranges:12}, SubBuckets     = {widths:12}]");
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

/// How many ranges of buckets that are equally wide the samples lie in, and how many buckets a range has.
fn shape(buckets: &[Bucket]) -> (u32, u32) {
    /// What keeps three digits: the power of two above 2 · 10³.
    const SUB_BUCKETS: u32 = 2048;
    let width = |bucket: Option<&Bucket>| bucket.map_or(1, |[from, to, _]| to - from + 1);
    let (first, last) = (width(buckets.first()), width(buckets.last()));
    ((last / first.max(1)).max(1).ilog2() + 1, SUB_BUCKETS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const HISTOGRAMS: [&str; 3] = ["all", "get", "service"];

    fn checked(hdr: Option<String>, seconds: Option<PathBuf>, histograms: &[&str]) -> Result<Files, Error> {
        let files = Files { hdr, seconds };
        files.check(histograms).map(|()| files)
    }

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
#[Buckets =            1, SubBuckets     =         2048]
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
        assert!(text.contains("#[Buckets =            6,"), "{text}");
    }

    #[test]
    fn one_sample_and_none_are_distributions_too() {
        assert_eq!(rows(&distribution(&[[77_000, 77_511, 1]])).len(), 2);
        let none = distribution(&[]);
        assert!(rows(&none).is_empty() && none.contains("Total count    =            0"), "{none}");
    }

    #[test]
    fn a_table_of_seconds_leaves_empty_what_was_not_measured() {
        let busy = SecondReport {
            attempts: 5,
            successes: 4,
            latency_us_mean: 10.5,
            latency_us_p50: 9.0,
            latency_us_p99: 20.0,
            latency_us_max: 21.25,
        };
        assert_eq!(
            table(&[busy, SecondReport::default()]),
            "second,attempts,successes,failures,goodput_rps,latency_us_mean,latency_us_p50,latency_us_p99,latency_us_max\r\n\
             0,5,4,1,4,10.5,9,20,21.25\r\n\
             1,0,0,0,0,,,,\r\n"
        );
    }

    #[test]
    fn files_are_named_after_their_histograms_and_replace_older_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("seconds.csv"), "older").unwrap();
        let prefix = path("run").to_str().unwrap().to_owned();
        let files = checked(Some(prefix), Some(path("seconds.csv")), &HISTOGRAMS).unwrap();
        assert!(files.write(&report()).is_empty());
        let mut names: Vec<String> = (fs::read_dir(folder.path()).unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["run-get.hgrm", "run-service.hgrm", "run.hgrm", "seconds.csv"]);
        assert!(fs::read_to_string(path("seconds.csv")).unwrap().starts_with("second,"));
    }

    #[test]
    fn a_file_that_fails_after_the_run_is_said_and_keeps_no_other_from_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let prefix = path("run").to_str().unwrap().to_owned();
        fs::create_dir(path("gone")).unwrap();
        let files = checked(Some(prefix), Some(path("gone/seconds.csv")), &HISTOGRAMS).unwrap();
        fs::remove_dir(path("gone")).unwrap();
        fs::create_dir(path("run-get.hgrm")).unwrap();
        let failures = files.write(&report());
        let messages: Vec<String> = failures.iter().map(Error::to_string).collect();
        assert!(messages[0].contains("run-get.hgrm: it is not a regular file; hint: "), "{messages:?}");
        assert!(messages[1].contains("gone/seconds.csv: no such file or directory; hint: "), "{messages:?}");
        assert_eq!(messages.len(), 2);
        assert!(path("run.hgrm").is_file() && path("run-service.hgrm").is_file());
    }

    #[test]
    fn what_cannot_be_written_is_said_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("taken")).unwrap();
        fs::write(path("file"), "").unwrap();
        let seconds = |name: &str| checked(None, Some(path(name)), &[]).unwrap_err().to_string();
        for (name, said) in [
            ("absent/seconds.csv", "no such file or directory; hint: make its folder first"),
            ("file/seconds.csv", "not a directory; hint: make its folder first"),
            ("taken", "it is not a regular file; hint: give another name"),
        ] {
            let failure = seconds(name);
            assert!(failure.contains(said) && failure.contains(name), "{failure}");
        }
        let failure = checked(Some("results/".into()), None, &[]).unwrap_err().to_string();
        assert!(failure.contains("--hdr results/ names no file"), "{failure}");
        // Each of the files, not the first alone.
        fs::create_dir(path("run-service.hgrm")).unwrap();
        let prefix = path("run").to_str().unwrap().to_owned();
        let failure = checked(Some(prefix), None, &HISTOGRAMS).unwrap_err().to_string();
        assert!(failure.contains("run-service.hgrm: it is not a regular file"), "{failure}");
    }
}
