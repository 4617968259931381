//! Where it was measured: what a reader needs to judge the numbers, or to repeat them.
//!
//! What cannot be read is left out.

use super::database::DatabaseServer;
use crate::sampler::{mount_of, quota_cores};
use lab_data::experiment::Database;
use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;

/// The machine and the programs, in the order the report prints them.
pub(super) fn describe<'a>(
    program: &Path,
    cores: &[usize],
    data: Option<&Path>,
    databases: impl Iterator<Item = (&'a Database, &'a DatabaseServer)>,
) -> Vec<(String, String)> {
    // The tightest of the control groups we are in, where one is set.
    let quota = quota_cores(std::process::id());
    let numbers: Vec<String> = cores.iter().map(usize::to_string).collect();
    let facts = [
        ("cpu", cpu()),
        ("cores", Some(format!("{} usable: {}", cores.len(), numbers.join(" ")))),
        ("cpu limit", quota.map(|cores| format!("{cores:.2} cores (cgroup quota)"))),
        ("governor", word_of("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        ("memory", memory(&read("/proc/meminfo"))),
        ("huge pages", word_of("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|all| chosen(&all))),
        ("kernel", kernel()),
        ("data on", data.and_then(mounted)),
        ("weir", Some(env!("CARGO_PKG_VERSION").to_owned())),
        ("build", Some(if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned())),
        ("binary", fingerprint(program).map(|(bytes, hash)| format!("{bytes} bytes, hash {hash:016x}"))),
    ];
    let mut facts: Vec<(String, String)> =
        facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    for (database, server) in databases {
        let version = server.ask("SELECT version()").unwrap_or_default().concat().concat();
        // PostgreSQL goes on with its compiler, which is not what anybody looks for here.
        let version = version.split(" on ").next().unwrap_or_default().trim();
        let named = version.starts_with(server.product());
        let version = if named { version.to_owned() } else { format!("{} {version}", server.product()) };
        facts.push((database.part.clone(), version.trim().to_owned()));
        let settings: Vec<String> =
            server.settings().map(|(name, value)| format!("{name}={value}")).collect();
        facts.push((format!("{} settings", database.part), settings.join(" ")));
    }
    facts
}

/// The model of the processor.
pub(super) fn cpu() -> Option<String> {
    cpu_model(&read("/proc/cpuinfo"))
}

/// The release of the kernel.
pub(super) fn kernel() -> Option<String> {
    word_of("/proc/sys/kernel/osrelease")
}

/// Length and hash of the binary: the same build, or another?
pub(super) fn fingerprint(program: &Path) -> Option<(usize, u64)> {
    let bytes = fs::read(program).ok()?;
    let mut hasher = DefaultHasher::new();
    hasher.write(&bytes);
    Some((bytes.len(), hasher.finish()))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn word_of(path: &str) -> Option<String> {
    let text = read(path).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The bracketed word of `always [madvise] never`.
fn chosen(all: &str) -> Option<String> {
    Some(all.split_once('[')?.1.split_once(']')?.0.to_owned())
}

fn cpu_model(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory(meminfo: &str) -> Option<String> {
    let kib: f64 = meminfo.strip_prefix("MemTotal:")?.split_ascii_whitespace().next()?.parse().ok()?;
    Some(format!("{:.1} GiB", kib / f64::from(1 << 20)))
}

fn mounted(path: &Path) -> Option<String> {
    let mount = mount_of(path)?;
    Some(format!("{} on {} ({})", mount.kind, mount.source, mount.options))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_from_the_kernels_text() {
        assert_eq!(cpu_model("vendor_id : x\nmodel name\t: Xeon(R)\n"), Some("Xeon(R)".into()));
        assert_eq!(memory("MemTotal:       24684092 kB\nMemFree: 1 kB\n"), Some("23.5 GiB".into()));
        assert_eq!(chosen("always [madvise] never"), Some("madvise".into()));
    }

    #[test]
    fn this_machine_is_described() {
        let program = std::env::current_exe().unwrap();
        let facts = describe(&program, &[0], Some(Path::new("/")), std::iter::empty());
        let names: Vec<&str> = facts.iter().map(|(name, _)| name.as_str()).collect();
        for expected in ["cores", "memory", "kernel", "weir", "build", "binary"] {
            assert!(names.contains(&expected), "{names:?}");
        }
        assert!(facts.iter().all(|(_, value)| !value.contains('\n') && !value.is_empty()), "{facts:?}");
    }
}
