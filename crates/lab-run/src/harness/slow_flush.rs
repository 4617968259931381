//! A slower disk than the one there is: every flush of a process takes longer by a fixed time.
//!
//! A library of some lines of C is compiled where it is needed and preloaded. Nothing is slowed down by hope: a process
//! that did not take it is refused.

use super::files::cannot_write;
use super::process::complete;
use kv::Error;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("slow_flush.c");
const LIBRARY: &str = "slow_flush.so";

/// What the library reads.
const DELAY: &str = "WEIR_FLUSH_DELAY_US";

/// Has what `command` starts take `delay` longer in every fsync and fdatasync. The library is made in `dir`, which its
/// user must be able to read.
pub(super) fn preload(command: &mut Command, delay: Duration, dir: &Path) -> Result<(), Error> {
    let library = std::path::absolute(dir.join(LIBRARY)).map_err(|error| cannot_write(dir, error))?;
    // The loader would read two names, find neither, and start the process without a word.
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        let dir = dir.display();
        let what =
            format_args!("target.flush_delay: {dir} has a blank or a colon, where LD_PRELOAD is split");
        return Err(Error::new(what).hint("name another --out"));
    }
    if !library.exists() {
        let source = library.with_extension("c");
        fs::write(&source, SOURCE).map_err(|error| cannot_write(&source, error))?;
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source).arg("-ldl");
        complete(&mut cc, "target.flush_delay needs the C compiler")
            .map_err(|why| why.hint("apt-get install gcc libc6-dev"))?;
    }
    command.env("LD_PRELOAD", library).env(DELAY, delay.as_micros().to_string());
    Ok(())
}

/// Complains if the process `pid` runs without the library.
pub(super) fn verify(pid: u32) -> Result<(), Error> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    if maps.contains(LIBRARY) {
        return Ok(());
    }
    let what = "target.flush_delay: the server does not take the library that delays its flushes";
    Err(Error::new(what).hint("remove flush_delay if the server is linked statically"))
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
            let why = why.to_string();
            assert!(
                why.contains("has a blank or a colon") && why.ends_with("; hint: name another --out"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_process_without_the_library_is_refused() {
        let why = verify(std::process::id()).unwrap_err();
        assert!(why.to_string().contains("linked statically"), "{why}");
    }
}
