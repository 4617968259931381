//! A worse disk than the one there is: every flush of a process takes longer by a fixed time, or writes or flushes fail for a while.
//!
//! A library of some lines of C is compiled where it is needed and preloaded. Nothing is made worse by hope: a process
//! that did not take it is refused.

use super::files::cannot_write;
use super::process::{Process, complete};
use kv::Error;
use lab_data::experiment::FaultKind;
use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SOURCE: &str = include_str!("disk.c");
const LIBRARY: &str = "weir_disk.so";

/// What the loader reads.
const PRELOAD: &str = "LD_PRELOAD";
/// What the library reads.
const DELAY: &str = "WEIR_FLUSH_DELAY_US";
/// The file that it looks into.
const SWITCH: &str = "WEIR_DISK_SWITCH";

/// Turns the disk of `process` bad in one of both ways, or good again.
pub(super) fn set(process: &Process, kind: FaultKind, on: bool) -> Result<(), Error> {
    let path = process.variable(SWITCH).unwrap_or_default();
    let file = OpenOptions::new().write(true).open(&path);
    // By the first byte of that file writes fail, by the second flushes.
    let place = u64::from(kind == FaultKind::FlushFails);
    let written = file.and_then(|file| file.write_all_at(&[u8::from(on)], place));
    written.map_err(|error| cannot_write(&path, error))
}

/// Has what `command` starts take `delay` longer in every fsync and fdatasync, and, if `is_broken`, fail as [`set`] says. The library
/// is made in `dir`, which its user must be able to read; it has to stay there as long as the process may be started again.
pub(super) fn preload(
    command: &mut Command,
    delay: Option<Duration>,
    is_broken: bool,
    dir: &Path,
) -> Result<(), Error> {
    if delay.is_none() && !is_broken {
        return Ok(());
    }
    let library = std::path::absolute(dir.join(LIBRARY)).map_err(|error| cannot_write(dir, error))?;
    // The loader would read two names, find neither, and start the process without a word.
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b" :".contains(byte)) {
        let dir = dir.display();
        let what = format_args!(
            "target.flush_delay and faults of disks: {dir} has a blank or a colon, where LD_PRELOAD is split"
        );
        return Err(Error::new(what).hint("name another --out"));
    }
    if !library.exists() {
        let source = library.with_extension("c");
        fs::write(&source, SOURCE).map_err(|error| cannot_write(&source, error))?;
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source).arg("-ldl");
        complete(&mut cc, "target.flush_delay and faults of disks need the C compiler")
            .map_err(|why| why.hint("apt-get install gcc libc6-dev"))?;
        // Whatever our umask is.
        let readable = Permissions::from_mode(0o755);
        fs::set_permissions(&library, readable).map_err(|error| cannot_write(&library, error))?;
    }
    command.env(PRELOAD, &library).env(DELAY, delay.unwrap_or_default().as_micros().to_string());
    if is_broken {
        // Several processes may have their libraries in one directory.
        let mut switches = (0..).map(|number| library.with_file_name(format!("{number}.switch")));
        let switch = switches.find(|switch| !switch.exists()).unwrap_or_default();
        let readable = Permissions::from_mode(0o644);
        let written = fs::write(&switch, [0, 0]).and_then(|()| fs::set_permissions(&switch, readable));
        written.map_err(|error| cannot_write(&switch, error))?;
        command.env(SWITCH, switch);
    }
    Ok(())
}

/// Complains if `process` was to run with the library and runs without it.
pub(super) fn verify(process: &Process) -> Result<(), Error> {
    let maps = fs::read_to_string(format!("/proc/{}/maps", process.pid())).unwrap_or_default();
    // The switch is mapped, too.
    let has = |variable: &str, name: &str| process.variable(variable).is_none() || maps.contains(name);
    if has(PRELOAD, LIBRARY) && has(SWITCH, ".switch") {
        return Ok(());
    }
    let what = "the disk of the server cannot be made worse: it does not take a preloaded library";
    Err(Error::new(what)
        .hint("remove flush_delay, disk_full and flush_fails if the server is linked statically"))
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
            preload(&mut dd, Some(delay), false, dir.path()).unwrap();
            let start = Instant::now();
            assert!(dd.output().unwrap().status.success());
            assert!(start.elapsed() >= delay, "{flush}");
            assert_eq!(fs::read(file).unwrap(), [0]);
        }
    }

    #[test]
    fn a_disk_is_full_and_does_not_flush_while_it_is_said_so() {
        let dir = tempfile::tempdir().unwrap();
        let script = "while read -r file; do dd if=/dev/zero of=$file bs=1 count=1 conv=fsync 2>/dev/null; echo $?; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(dir.path());
        preload(&mut command, None, true, dir.path()).unwrap();
        let mut shell = Process::weir(&mut command, &[], &dir.path().join("shell.log")).unwrap();
        let lines = shell.lines();
        let wrote = |shell: &mut Process, name: &str| {
            shell.tell(name);
            lines.recv().unwrap()
        };
        assert_eq!(wrote(&mut shell, "a"), "0");
        // It runs, so its libraries are loaded.
        verify(&shell).unwrap();
        for kind in [FaultKind::DiskFull, FaultKind::FlushFails] {
            set(&shell, kind, true).unwrap();
            assert_eq!(wrote(&mut shell, "b"), "1", "{kind:?}");
            set(&shell, kind, false).unwrap();
            assert_eq!(wrote(&mut shell, "b"), "0", "{kind:?}");
        }
    }

    #[test]
    fn a_path_that_the_loader_would_split_is_refused() {
        for name in ["a b", "a:b"] {
            let why =
                preload(&mut Command::new("true"), Some(Duration::from_millis(1)), false, Path::new(name))
                    .unwrap_err();
            let why = why.to_string();
            assert!(
                why.contains("has a blank or a colon") && why.ends_with("; hint: name another --out"),
                "{why}"
            );
        }
    }

    #[test]
    fn a_process_without_the_library_is_refused() {
        let started = |preloaded: Option<&str>| {
            let mut command = Command::new("sleep");
            command.arg("1000").envs(preloaded.map(|library| (PRELOAD, library)));
            Process::weir(&mut command, &[], Path::new("/dev/null")).unwrap()
        };
        assert_eq!(verify(&started(None)), Ok(()));
        let why = verify(&started(Some("/nowhere.so"))).unwrap_err();
        assert!(why.to_string().contains("linked statically"), "{why}");
    }
}
