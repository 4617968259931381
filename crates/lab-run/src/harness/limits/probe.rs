//! Whether limits hold: they are tried out before they are relied on.

use super::{Limits, PROCESSES, Part};
use crate::harness::process::complete;
use kv::Error;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What the probe writes at once, in bytes.
const BLOCK_BYTES: u64 = 64 << 10;
/// The probe writes for about so long under a cap.
const WRITE_SECS: u64 = 2;
/// The probe computes for so long under a quota: ten of its periods.
const COMPUTE: Duration = Duration::from_secs(1);
/// A limit that lets through more than this many times itself does not hold.
const TOLERANCE: f64 = 1.25;
/// Cores' worth beyond that: the shell starts without a quota, and a group is stopped at the next tick of the kernel's clock.
const QUOTA_SPARE: f64 = 0.02;
/// Cores' worth of a quota above which one loop cannot tell it from none.
const QUOTA_MOST: f64 = 0.75;

impl Limits {
    /// Tries a write cap out: what `dd` gets through under it, in bytes a second, writing to a file in `dir`. An error where
    /// the cap does not hold.
    pub(in crate::harness) fn probe(&self, device: &str, cap: u64, dir: &Path) -> Result<f64, Error> {
        let capped = self.parts.iter().find(|part| part.capped);
        let group = capped.and_then(|part| part.groups.first());
        let group = group.ok_or_else(|| Error::new("nothing is limited here"))?;
        self.cap_writes(device, Some(cap))?;
        let file = dir.join("weir-probe");
        let blocks = (cap * WRITE_SECS / BLOCK_BYTES).max(8);
        let mut command = Command::new("sh");
        // In the group before its first write. Each block is on the disk before the next.
        let script = "echo $$ > \"$0\" && exec dd if=/dev/zero of=\"$1\" bs=\"$2\" count=\"$3\" oflag=dsync";
        command.args(["-c", script]).arg(group.join(PROCESSES)).arg(&file);
        command.args([BLOCK_BYTES.to_string(), blocks.to_string()]);
        let start = Instant::now();
        let written = complete(&mut command, "cannot write under the write cap");
        let secs = start.elapsed().as_secs_f64();
        // There is none if dd could not begin.
        let _ = fs::remove_file(&file);
        self.cap_writes(device, None)?;
        written?;
        let bytes_per_sec = (blocks * BLOCK_BYTES) as f64 / secs;
        if bytes_per_sec > TOLERANCE * cap as f64 {
            return Err(Error::new(format_args!(
                "the write cap does not hold here: {:.1} MB/s went through a cap of {:.1} MB/s on {device}",
                bytes_per_sec / 1e6,
                cap as f64 / 1e6
            ))
            .hint("use another disk, or remove write_cap"));
        }
        Ok(bytes_per_sec)
    }

    /// Tries every quota out: what a loop gets under it, as the environment says it. An error where a quota does not hold.
    pub(in crate::harness) fn probe_quotas(&self) -> Result<Vec<(String, String)>, Error> {
        let mut said = Vec::new();
        for Part { name, quota, groups, .. } in &self.parts {
            let Some(quota) = *quota else { continue };
            let of = format!("quota of the {name}");
            let Some(group) = groups.last().filter(|_| quota <= QUOTA_MOST) else {
                said.push((of, format!("{quota} cores; not tried out: one loop cannot tell")));
                continue;
            };
            let used = loop_in(group)?;
            if used > TOLERANCE * quota + QUOTA_SPARE {
                return Err(Error::new(format_args!(
                    "the quota does not hold here: a loop got {used:.2} cores under {quota} of the {name}"
                ))
                .hint("remove target.quota, or use a machine whose control groups limit processor time"));
            }
            said.push((of, format!("{quota} cores; a loop got {used:.2} under it")));
        }
        Ok(said)
    }
}

/// How many cores' worth of processor time a loop gets in `group`.
fn loop_in(group: &Path) -> Result<f64, Error> {
    let failed = |why: &str| {
        Error::new(format_args!("{}: a loop in it {why}", group.display()))
            .hint("run as root on a kernel with schedstat, or remove target.quota")
    };
    let mut command = Command::new("sh");
    // It ends by itself should we be killed.
    command.args(["-c", "ulimit -t 2; echo $$ > \"$0\" && while :; do :; done"]).arg(group.join(PROCESSES));
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut sh = command.spawn().map_err(|error| failed(&format!("cannot be started: {error}")))?;
    let start = Instant::now();
    thread::sleep(COMPUTE);
    let counted = fs::read_to_string(format!("/proc/{}/schedstat", sh.id())).unwrap_or_default();
    let secs = start.elapsed().as_secs_f64();
    let ended = sh.try_wait();
    // The one error is that it ended already.
    let _ = sh.kill();
    let _ = sh.wait();
    if let Ok(Some(status)) = ended {
        return Err(failed(&format!("ended with {status}")));
    }
    let ran_ns = counted.split_ascii_whitespace().next().and_then(|ns| ns.parse::<f64>().ok());
    Ok(ran_ns.ok_or_else(|| failed("has no time that the kernel counts"))? / 1e9 / secs)
}
