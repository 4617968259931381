//! How much of a write cap is used: what the control group that imposes it has let through.
//!
//! For a cap the utilization law holds: writing is busy for as long as the bytes take at the rate allowed, and each
//! request takes its bytes over that rate. Sources: Linux `Documentation/admin-guide/cgroup-v1/blkio-controller.rst`
//! and `cgroup-v2.rst` (io.stat).

use super::{Cap, Context, Sampler};
use std::path::Path;
use std::{fs, io};

pub(super) fn make(context: &Context) -> Option<Sampler> {
    let Cap { cgroup, device, bytes_per_sec } = context.cap.clone().filter(|cap| cap.bytes_per_sec > 0.0)?;
    Some(Box::new(move |into| {
        let bytes = written_bytes(&cgroup, &device)?;
        into.count("cap.written_bytes", bytes);
        into.count("cap.busy_secs", bytes / bytes_per_sec);
        into.gauge("cap.bytes_per_sec", bytes_per_sec);
        Ok(())
    }))
}

/// In order: the group's own bytes, those of all below it, and the one file of version 2.
const FILES: [&str; 3] =
    ["blkio.throttle.io_service_bytes", "blkio.throttle.io_service_bytes_recursive", "io.stat"];

fn written_bytes(cgroup: &Path, device: &str) -> io::Result<f64> {
    let texts: Vec<String> =
        FILES.iter().filter_map(|file| fs::read_to_string(cgroup.join(file)).ok()).collect();
    if texts.is_empty() {
        return Err(io::Error::other(format!("{} counts no bytes", cgroup.display())));
    }
    // A group that has written nothing to the device yet has no line for it.
    Ok(texts.iter().flat_map(|text| text.lines()).find_map(|line| bytes_in(line, device)).unwrap_or(0.0))
}

/// `254:0 Write 10485760`, or of version 2 `254:0 rbytes=4096 wbytes=10485760 rios=1 wios=80 dbytes=0 dios=0`.
fn bytes_in(line: &str, device: &str) -> Option<f64> {
    let counts = line.strip_prefix(device)?.strip_prefix(' ')?;
    let mut words = counts.split_ascii_whitespace();
    let bytes = counts.strip_prefix("Write ").or_else(|| words.find_map(|word| word.strip_prefix("wbytes=")));
    bytes?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::results::Reading;

    /// What a group whose directory has these files says.
    fn check(files: &[(&str, &str)]) -> Option<(f64, f64)> {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| fs::write(dir.path().join(name), text).unwrap());
        let cap = Cap { cgroup: dir.path().into(), device: "254:0".into(), bytes_per_sec: 10e6 };
        let mut sampler = make(&Context { cap: Some(cap), ..Context::default() }).unwrap();
        let mut reading = Reading::default();
        sampler(&mut reading).ok()?;
        assert_eq!(reading.gauges["cap.bytes_per_sec"], 10e6);
        Some((reading.counters["cap.written_bytes"], reading.counters["cap.busy_secs"]))
    }

    #[test]
    fn bytes_over_the_rate_are_busy_seconds() {
        let own = "blkio.throttle.io_service_bytes";
        let all = "blkio.throttle.io_service_bytes_recursive";
        let v1 = "8:0 Write 7\n254:0 Read 99\n254:0 Write 20000000\n254:0 Sync 5\n254:0 Total 9\nTotal 9\n";
        let v2 = "8:0 rbytes=1 wbytes=2\n254:0 rbytes=4096 wbytes=5000000 rios=1 wios=80 dbytes=0 dios=0\n";
        assert_eq!(check(&[(own, v1)]), Some((2e7, 2.0)));
        assert_eq!(check(&[(own, "Total 0\n"), (all, v1)]), Some((2e7, 2.0)));
        assert_eq!(check(&[("io.stat", v2)]), Some((5e6, 0.5)));
        assert_eq!(check(&[(own, "Total 0\n")]), Some((0.0, 0.0)), "nothing written yet");
        assert_eq!(check(&[("cgroup.procs", "1\n")]), None, "a group that does not count is not read");
    }
}
