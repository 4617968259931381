//! The limit of open files, and how many connections fit into it.

use super::CONNECTIONS_MAX;

/// File descriptors kept for everything that is not a connection. The embedded store alone may hold 900.
const FILES_SPARE: u64 = 1024;

/// Raises this process's limit of open files, so that the `given` connections fit into it; how many do.
///
/// A connection without a descriptor would wait without an answer. One above the limit of connections is answered.
pub(super) fn make_room(given: Option<usize>) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let connections = given.unwrap_or(CONNECTIONS_MAX);
    let wanted = (connections as u64).saturating_add(FILES_SPARE);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current.filter(|current| *current < wanted) else { return connections };
    let most = maximum.map_or(wanted, |maximum| maximum.min(wanted));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum }).is_ok();
    let files = if raised { most } else { current };
    let room = room_within(files, connections);
    if room < connections && given.is_some() {
        log::warn!(
            "at most {room} of {connections} connections fit into the limit of {files} open files; raise it with \
             `ulimit -Hn`, or ask for no more"
        );
    }
    room
}

/// How many of `connections` fit into a limit of open files. Under a low limit at least half are for them.
fn room_within(files: u64, connections: usize) -> usize {
    let room = files.saturating_sub(FILES_SPARE).max(files / 2);
    connections.min(usize::try_from(room).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_the_files_of_the_store() {
        for (files, connections, room) in
            [(1 << 20, 20_000, 20_000), (20_000, 20_000, 18_976), (1024, 20_000, 512), (64, 20, 20)]
        {
            assert_eq!(room_within(files, connections), room, "{files} files");
        }
    }
}
