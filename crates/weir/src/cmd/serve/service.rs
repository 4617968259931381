//! What the server and its service manager (systemd) say to each other: sd_notify, the watchdog, passed sockets.
//!
//! Without the manager's environment variables nothing here does anything.

use kv::Error;
use listenfd::ListenFd;
use server::PassedSocket;
use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

/// Where states are sent, if anybody listens.
pub(super) struct Manager(Option<(UnixDatagram, SocketAddr)>);

impl Manager {
    /// The one that started this process.
    pub(super) fn of_environment() -> Result<Arc<Manager>, Error> {
        let Some(place) = env::var_os("NOTIFY_SOCKET").filter(|place| !place.is_empty()) else {
            return Ok(Arc::new(Manager(None)));
        };
        let address = match place.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            _ => SocketAddr::from_pathname(&place),
        };
        let socket = address.and_then(|address| Ok((UnixDatagram::unbound()?, address)));
        let socket = socket.map_err(|error| {
            Error::input(format!("NOTIFY_SOCKET={} cannot be used: {error}", place.display()))
                .hint("it is the service manager's; unset it where there is none")
        })?;
        Ok(Arc::new(Manager(Some(socket))))
    }

    /// Whether there is one. It asks for a reload with SIGHUP, also where there is nothing to read again.
    pub(super) fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// Tells it that files are read again, without a pause of service.
    pub(super) fn tell_reload(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let usec = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={usec}"));
        self.tell("READY=1");
    }

    /// Tells it a state: `READY=1`. Several are lines.
    pub(super) fn tell(&self, state: &str) {
        if let Some((socket, address)) = &self.0
            && let Err(error) = socket.send_to_addr(state.as_bytes(), address)
        {
            log::warn!("the service manager was not told {state:?}: {error}");
        }
    }

    /// Tells a watchdog, if it asks for that, that all workers run: `beats` grow while they do.
    pub(super) fn feed_watchdog(
        self: &Arc<Manager>,
        beats: impl Fn() -> Vec<u64> + Send + 'static,
    ) -> Result<(), Error> {
        let Some(timeout) = watchdog_timeout() else { return Ok(()) };
        let manager = Arc::clone(self);
        let feed = move || {
            let mut last = Vec::new();
            loop {
                let now = beats();
                if last.iter().zip(&now).all(|(last, now)| last != now) {
                    manager.tell("WATCHDOG=1");
                    last = now;
                }
                std::thread::sleep(timeout / 4);
            }
        };
        let thread = std::thread::Builder::new().name("weir-watchdog".to_owned());
        let started = thread.spawn(feed).map(drop);
        started.map_err(|error| Error::new(format!("cannot start a thread: {error}")))
    }
}

/// How long the manager waits for this process to show that it works.
fn watchdog_timeout() -> Option<Duration> {
    let number = |name| env::var(name).ok()?.parse::<u64>().ok();
    let is_meant = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    number("WATCHDOG_USEC").filter(|usec| *usec > 0 && is_meant).map(Duration::from_micros)
}

/// The listening sockets that were passed to this process (LISTEN_FDS). Removes the variables: call it before there are threads.
pub(super) fn passed_sockets() -> Result<Vec<PassedSocket>, Error> {
    let mut passed = ListenFd::from_env();
    let count = passed.len();
    let take = |index| {
        if let Ok(Some(socket)) = passed.take_unix_listener(index) {
            return PassedSocket::unix(socket);
        }
        let socket = passed.take_tcp_listener(index)?;
        PassedSocket::tcp(socket.ok_or(io::ErrorKind::InvalidInput)?)
    };
    let sockets = (0..count).map(take).collect::<io::Result<_>>();
    sockets.map_err(|error| {
        Error::input(format!("LISTEN_FDS: the service manager passed what cannot be listened on: {error}"))
            .hint("it should pass stream sockets of IP or Unix, as ListenStream= of a .socket unit does")
    })
}
