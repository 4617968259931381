//! The limit of open files, and how many connections fit into it.

use super::CONNECTIONS_MAX;

/// File descriptors kept for everything that is not a connection, for each store. An embedded one may hold 900.
const FILES_SPARE: u64 = 1024;
/// Most connections that were refused and are still open.
const REFUSED_MAX: u64 = 32;

/// Raises this process's limit of open files, so that the `given` connections fit into it beside `stores`; how many do.
///
/// A connection without a descriptor would wait without an answer. One above the limit of connections is answered.
pub(super) fn make_room(given: Option<usize>, stores: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let connections = given.unwrap_or(CONNECTIONS_MAX);
    let spare = FILES_SPARE * stores as u64;
    let wanted = (connections as u64).saturating_add(spare);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current.filter(|current| *current < wanted) else { return connections };
    let most = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum }).is_ok();
    let files = if raised { most } else { current };
    let room = room_within(files, spare, connections);
    if room < connections && given.is_some() {
        log::warn!(
            "at most {room} of {connections} connections fit into the limit of {files} open files; raise it with \
             `ulimit -Hn`, or ask for no more"
        );
    }
    room
}

/// How many of `connections` fit into a limit of open files. Under a low limit a quarter is for them: workers and store have 30
/// files open at least, and the store opens more.
fn room_within(files: u64, spare: u64, connections: usize) -> usize {
    let room = files.saturating_sub(spare).max(files / 4);
    connections.min(usize::try_from(room).unwrap_or(usize::MAX))
}

/// How many connections that were refused may stay open: they are not to take the files of the store.
pub(super) fn refused_max() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    files.map_or(REFUSED_MAX, |files| (files / 16).min(REFUSED_MAX)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_the_files_of_the_store() {
        for (files, spare, connections, room) in [
            (1 << 20, 1024, 20_000, 20_000),
            (20_000, 1024, 20_000, 18_976),
            (20_000, 4096, 20_000, 15_904),
            (1024, 1024, 20_000, 256),
            (64, 1024, 20_000, 16),
            (64, 1024, 10, 10),
        ] {
            assert_eq!(room_within(files, spare, connections), room, "{files} files");
        }
    }
}
