//! Files that the lab makes, and programs that it finds.

use kv::Error;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// That a file or a directory cannot be written.
pub(super) fn cannot_write(path: &Path, error: impl Display) -> Error {
    Error::new(format_args!("cannot write {}: {error}", path.display()))
        .hint("check free space and permissions")
}

/// A new directory in `parent`, by its absolute path, gone with its owner. Not in a temporary folder, which is often memory, where a
/// durable write costs nothing.
pub(super) fn temporary_dir(parent: &Path, prefix: &str) -> Result<TempDir, Error> {
    let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(parent);
    dir.map_err(|error| cannot_write(parent, error))
}

/// Where packages put programs that are not in every user's PATH.
const PACKAGED: [&str; 4] = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];

/// The first of these programs: in the PATH, else where packages put those that are not.
pub(super) fn program(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(PACKAGED.map(PathBuf::from)).collect();
    let there = |name: &&str| folders.iter().map(|dir| dir.join(name)).find(|path| path.is_file());
    names.iter().find_map(there)
}

/// A shell script in `dir` that stands in weir's place and can be started at once. Another process writes it: the system does not
/// run a file that is open for writing, as ours would be in each process that a test beside this one starts just then.
#[cfg(test)]
pub(super) fn script(dir: &Path, text: &str) -> PathBuf {
    let program = dir.join("weir");
    let write = r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#;
    let mut shell = std::process::Command::new("sh");
    assert!(shell.args(["-c", write, "sh"]).arg(&program).arg(text).status().unwrap().success());
    program
}
