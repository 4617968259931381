//! Whether limits hold: they are tried out before they are relied on.

use super::Limits;
use crate::harness::process::Process;
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
/// Cores' worth of a quota above which one loop cannot tell it from none.
const QUOTA_MOST: f64 = 0.75;

impl Limits {
    /// Tries a write cap out: what `dd` gets through under it, in bytes a second, writing to a file in `dir`. An error where
    /// the cap does not hold.
    pub(in crate::harness) fn probe(&self, device: &str, cap: u64, dir: &Path) -> Result<f64, String> {
        let capped = self.members.iter().find(|member| member.part.capped);
        let Some(door) = capped.and_then(|member| member.doors.first()) else {
            return Err("nothing is limited here".into());
        };
        self.cap_writes(device, Some(cap))?;
        let file = dir.join("weir-probe");
        let blocks = (cap * WRITE_SECS / BLOCK_BYTES).max(8);
        let mut command = Command::new("sh");
        // In the group before its first write. Each block is on the disk before the next.
        command
            .args([
                "-c",
                "echo $$ > \"$0\" && exec dd if=/dev/zero of=\"$1\" bs=\"$2\" count=\"$3\" oflag=dsync",
            ])
            .args([door.as_os_str(), file.as_os_str()])
            .args([BLOCK_BYTES.to_string(), blocks.to_string()])
            .stdin(Stdio::null());
        let start = Instant::now();
        let output = command.output();
        let secs = start.elapsed().as_secs_f64();
        // There is none if dd could not begin.
        let _ = fs::remove_file(&file);
        self.cap_writes(device, None)?;
        let output = output.map_err(|error| format!("cannot start dd: {error}; install coreutils"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "dd failed under the write cap: {}",
                said.lines().last().unwrap_or_default()
            ));
        }
        let written = (blocks * BLOCK_BYTES) as f64 / secs;
        if written > TOLERANCE * cap as f64 {
            return Err(format!(
                "the write cap does not hold here: {:.1} MB/s went through a cap of {:.1} MB/s on {device}; \
                 use another disk, or remove write_cap",
                written / 1e6,
                cap as f64 / 1e6
            ));
        }
        Ok(written)
    }

    /// Tries every quota out: what a loop gets under it, as the environment says it. An error where a quota does not hold.
    pub(in crate::harness) fn probe_quotas(&self) -> Result<Vec<(String, String)>, String> {
        let quotas = self.members.iter().filter_map(|member| Some((member, member.part.quota?)));
        let mut said = Vec::new();
        for (member, quota) in quotas {
            let of = format!("quota of the {}", member.part.name);
            let Some(door) = member.doors.last().filter(|_| quota <= QUOTA_MOST) else {
                said.push((of, format!("{quota} cores; not tried out: one loop cannot tell")));
                continue;
            };
            let used = loop_in(door)?;
            if used > TOLERANCE * quota {
                return Err(format!(
                    "the quota does not hold here: a loop got {used:.2} cores under {quota} of the {}; \
                     remove target.quota, or use a machine whose control groups limit processor time",
                    member.part.name
                ));
            }
            said.push((of, format!("{quota} cores; a loop got {used:.2} under it")));
        }
        Ok(said)
    }
}

/// How many cores' worth of processor time a loop gets in the group that `door` leads into.
fn loop_in(door: &Path) -> Result<f64, String> {
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ > \"$0\" && while :; do :; done"]).arg(door).stdin(Stdio::null());
    let mut process =
        Process::spawn(&mut command, &[]).map_err(|error| format!("cannot start sh: {error}"))?;
    let ran = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
        text.split_ascii_whitespace().next().and_then(|ns| ns.parse::<f64>().ok())
    };
    let start = Instant::now();
    thread::sleep(COMPUTE);
    let (used, secs) = (ran(process.pid()), start.elapsed().as_secs_f64());
    let ended = process.ended();
    process.kill();
    match (used, ended) {
        (_, Some(status)) => {
            Err(format!("{}: a loop in it ended with {status}; run as root", door.display()))
        }
        (None, _) => {
            Err("this kernel does not count a process\u{2019}s time (schedstat); remove target.quota".into())
        }
        (Some(ns), None) => Ok(ns / 1e9 / secs),
    }
}
