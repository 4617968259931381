//! The Debian package and the container image of packaging/: built, started, and used by the lines of docs/operations.md.
//!
//! Both need root, mounts, and the trees that `scripts/setup.sh debian-trees` makes. Where it cannot, `make test` says at its end that
//! this was not tested.

use crate::support::count;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where setup.sh has put the trees.
fn trees() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let trees = cache.map(|cache| cache.join("weir/trees")).filter(|trees| trees.join("complete").exists());
    if trees.is_none() {
        // Past the harness, which shows nothing of a test that passes.
        let hint = "run scripts/setup.sh debian-trees as root";
        std::io::stderr()
            .write_all(format!("not tested: there are no trees of Debian; {hint}\n").as_bytes())
            .unwrap();
        count("untested", "packages");
    }
    trees
}

/// Runs a script of packaging/; the last line that it says.
fn run(script: &str, args: &[&str]) -> String {
    let mut command = Command::new(format!("../../packaging/{script}"));
    command.args(args).env("DEB_COMPRESSION", "none").stdin(Stdio::null());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script}:\n{said}{}", String::from_utf8_lossy(&output.stderr));
    said.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn systemd_starts_the_package_and_the_lines_of_the_docs_lead_to_a_put() {
    let Some(trees) = trees() else { return };
    let place = tempfile::tempdir().unwrap();
    let package = run("debian/build.sh", &[env!("CARGO_BIN_EXE_weir"), place.path().to_str().unwrap()]);
    run("debian/test.sh", &[&package, trees.to_str().unwrap()]);
}

#[test]
fn the_image_is_built_and_the_lines_of_the_docs_lead_to_a_put() {
    let Some(trees) = trees() else { return };
    run("container/test.sh", &[env!("CARGO_BIN_EXE_weir"), trees.to_str().unwrap()]);
}
