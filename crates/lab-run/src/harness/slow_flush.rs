//! A slower disk than the one there is: every flush of a process takes longer by a fixed time.
//!
//! A library of some lines of C is compiled where it is needed and preloaded. Nothing is slowed down by hope: a process
//! that did not take it is refused.

use super::process::blind;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SOURCE: &str = include_str!("slow_flush.c");
const LIBRARY: &str = "slow_flush.so";

/// What the library reads.
const DELAY: &str = "WEIR_FLUSH_DELAY_US";

/// Has what `command` starts take `delay` longer in every fsync and fdatasync. The library is made in `dir`, which its
/// user must be able to read.
pub(super) fn preload(command: &mut Command, delay: Duration, dir: &Path) -> Result<(), String> {
    let library =
        std::path::absolute(dir.join(LIBRARY)).map_err(|error| format!("{}: {error}", dir.display()))?;
    // The loader would read two names, find neither, and start the process without a word.
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        return Err(format!(
            "target.flush_delay: {} has a blank or a colon, where LD_PRELOAD is split; name another --out",
            dir.display()
        ));
    }
    if !library.exists() {
        compile(&library)?;
    }
    command.env("LD_PRELOAD", library).env(DELAY, delay.as_micros().to_string());
    Ok(())
}

/// Complains if the process `pid` runs without the library.
pub(super) fn verify(pid: u32) -> Result<(), String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    match maps.contains(LIBRARY) {
        true => Ok(()),
        false => Err("target.flush_delay: the server does not take the library that delays its flushes; \
                      is it linked statically? remove flush_delay"
            .into()),
    }
}

fn compile(library: &Path) -> Result<(), String> {
    let source = library.with_extension("c");
    fs::write(&source, SOURCE)
        .map_err(|error| format!("{}: {error}; make room or rights", source.display()))?;
    let mut cc = Command::new("cc");
    blind(&mut cc);
    cc.args(["-shared", "-fPIC", "-O2", "-o"]).arg(library).arg(&source).arg("-ldl").stdin(Stdio::null());
    let output = cc.output().map_err(|error| {
        format!(
            "target.flush_delay needs the C compiler cc: {error}; install it: apt-get install gcc libc6-dev"
        )
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
    Err(format!(
        "target.flush_delay: cc failed: {last}; install what it lacks: apt-get install gcc libc6-dev"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn every_flush_takes_the_delay_longer_and_still_happens() {
        let dir = tempfile::tempdir().unwrap();
        let delay = Duration::from_millis(20);
        // dd flushes once with each of the two.
        for flush in ["conv=fsync", "conv=fdatasync"] {
            let mut dd = Command::new("dd");
            let file = dir.path().join(flush);
            dd.args(["if=/dev/zero", "bs=1", "count=1", flush]).arg(format!("of={}", file.display()));
            preload(&mut dd, delay, dir.path()).unwrap();
            let start = Instant::now();
            assert!(dd.output().unwrap().status.success());
            assert!(start.elapsed() >= delay, "{flush}");
            assert_eq!(fs::read(file).unwrap(), [0]);
        }
    }

    #[test]
    fn a_path_that_the_loader_would_split_is_refused() {
        for name in ["a b", "a:b"] {
            let why =
                preload(&mut Command::new("true"), Duration::from_millis(1), Path::new(name)).unwrap_err();
            assert!(why.contains("has a blank or a colon") && why.ends_with("; name another --out"), "{why}");
        }
    }

    #[test]
    fn a_process_without_the_library_is_refused() {
        let why = verify(std::process::id()).unwrap_err();
        assert!(why.contains("linked statically"), "{why}");
    }
}
