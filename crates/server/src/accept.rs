//! Accepting connections in a worker: welcoming them, refusing those that are too many, until the server drains.

use super::compat::{self, S3Connection};
use super::connection::Connection;
use super::error::Failure;
use super::listen::{Acceptor, BACKLOG, Stream};
use super::reply::{self, Request};
use super::timeouts::TimeoutChecker;
use super::wire::{self, Wire};
use super::{Interface, Listener, Tls, Worker, open_files, tls};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// How long a listener of a server that drains waits for one more connection: until the runtime has asked whether there is one.
const LAST_LOOK: Duration = Duration::from_millis(1);

/// Accepts until the server drains, then waits for the connections to end.
pub(super) async fn serve(worker: Rc<Worker>, listeners: Vec<Listener>) {
    let timeouts = Rc::clone(&worker.timeouts);
    tokio::task::spawn_local(check_timeouts(Rc::downgrade(&worker), Rc::clone(&timeouts)));
    let accepting: Vec<_> =
        listeners.into_iter().map(|of| tokio::task::spawn_local(accept(Rc::clone(&worker), of))).collect();
    for task in accepting {
        // A task that panicked has said so.
        let _ = task.await;
    }
    // What came with the last connections is read by now: those that are idle end.
    timeouts.drain();
    let until = tokio::time::Instant::now() + worker.shared.options.drain;
    while Rc::strong_count(&worker) > 1 && tokio::time::Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // What serves a connection holds it.
    if Rc::strong_count(&worker) > 1 {
        log::warn!("the time to drain is over: connections with requests in progress are cut off");
    }
}

/// Accepts connections until the server drains. The listener closes then: a draining server refuses new connections.
async fn accept(worker: Rc<Worker>, Listener { socket, tls, interface }: Listener) {
    let mut draining = worker.shared.draining.subscribe();
    let listener = match Acceptor::new(socket) {
        Ok(listener) => listener,
        Err(error) => return log::error!("a worker cannot listen: {error}"),
    };
    loop {
        tokio::select! {
            _ = draining.wait_for(|draining| *draining) => break,
            accepted = listener.accept() => match accepted {
                Ok(stream) => welcome(&worker, stream, tls.as_ref(), &interface),
                Err(error) => {
                    // Out of file descriptors, most likely: leave the others some time to close theirs.
                    if let Some(count) = worker.shared.accept_failures.lock().count(Instant::now()) {
                        log::warn!("cannot accept connections, attempts since this was last said: {count}: {error}");
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
    }
    // Closing the listener resets those in its queue, whose clients may have sent requests.
    for _ in 0..BACKLOG {
        let Ok(Ok(stream)) = tokio::time::timeout(LAST_LOOK, listener.accept()).await else { break };
        welcome(&worker, stream, tls.as_ref(), &interface);
    }
}

/// Checks the timeouts, counts that, renews the date and hands the lines of the access log on, for as long as the worker runs.
async fn check_timeouts(worker: Weak<Worker>, timeouts: Rc<TimeoutChecker>) {
    loop {
        tokio::time::sleep(timeouts.interval).await;
        timeouts.check(Instant::now());
        reply::renew_date();
        let Some(worker) = worker.upgrade() else { return };
        worker.metrics.checks.add(1);
        if let Some(recorder) = &worker.recorder {
            recorder.hand_on();
        }
    }
}

fn welcome(worker: &Rc<Worker>, stream: Stream, tls: Option<&Arc<Tls>>, interface: &Interface) {
    let open = &worker.shared.metrics.open_connections;
    worker.metrics.connections.add(1);
    if open.fetch_add(1, Relaxed) >= worker.shared.connections {
        worker.metrics.shed_connections.add(1);
        open.fetch_sub(1, Relaxed);
        // A handshake would take what the limit is to save.
        if tls.is_none() {
            refuse_connection(worker, stream, interface);
        }
        return;
    }
    if let Stream::Tcp(stream) = &stream {
        // Without this an answer in two segments waits for the peer's delayed acknowledgement.
        let _ = stream.set_nodelay(true);
    }
    let (own, interface) = (Rc::clone(worker), interface.clone());
    // Each kind in a task of its own: a plain connection is not to be as large as one with TLS.
    match (stream, tls.cloned()) {
        (Stream::Tcp(stream), Some(tls)) => spawn(worker, serve_tls(own, stream, tls, interface)),
        (Stream::Tcp(stream), None) => spawn(worker, serve_connection(own, stream, interface)),
        (Stream::Unix(stream), _) => spawn(worker, serve_connection(own, stream, interface)),
    }
}

/// Serves an open connection.
fn spawn(worker: &Rc<Worker>, connection: impl Future<Output = ()> + 'static) {
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(async move {
        connection.await;
        worker.shared.metrics.open_connections.fetch_sub(1, Relaxed);
    });
}

async fn serve_tls(worker: Rc<Worker>, stream: TcpStream, tls: Arc<Tls>, interface: Interface) {
    // Gone before requests are served.
    let accepted = Box::pin(tls::accept(&worker, &tls, stream)).await;
    if let Some(stream) = accepted {
        serve_connection(worker, stream, interface).await;
    }
}

async fn serve_connection(worker: Rc<Worker>, stream: impl wire::Stream, interface: Interface) {
    match interface {
        Interface::Plain(state) => Connection::new(stream, worker, state).run().await,
        Interface::Compat(state) => compat::Connection::new(stream, worker, state).run().await,
        Interface::S3(state) => S3Connection::new(stream, worker, state).run().await,
    }
}

/// Answers 503 to one connection too many, which speaks plain HTTP, and closes it.
fn refuse_connection(worker: &Rc<Worker>, stream: Stream, interface: &Interface) {
    let (mut refusal, request) = (Vec::new(), Request::unparsed(&[], Instant::now()));
    let failure = Failure::new(503, "too_many_connections", "too many connections are open");
    let failure = failure.not_applied().with("Retry-After", "1");
    match interface {
        Interface::Plain(_) => _ = reply::write_failure(&mut refusal, &failure, &request, false),
        Interface::S3(_) => _ = compat::write_failure(&mut refusal, &failure, &request, false),
        Interface::Compat(_) => compat::refuse_connection(&mut refusal),
    }
    // A fresh socket takes this much without waiting; if not, closing says enough.
    let _ = match &stream {
        Stream::Tcp(stream) => stream.try_write(&refusal),
        Stream::Unix(stream) => stream.try_write(&refusal),
    };
    // It stays open until its client has read why. One that is closed at once may be reset.
    let refused = &worker.shared.refused_connections;
    if refused.fetch_add(1, Relaxed) >= open_files::refused_max() {
        refused.fetch_sub(1, Relaxed);
        return;
    }
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(async move {
        match stream {
            Stream::Tcp(stream) => linger(stream, &worker).await,
            Stream::Unix(stream) => linger(stream, &worker).await,
        }
        worker.shared.refused_connections.fetch_sub(1, Relaxed);
    });
}

/// Closes a connection after its last answer.
async fn linger(stream: impl wire::Stream, worker: &Rc<Worker>) {
    Wire::new(stream, Rc::clone(worker), Duration::ZERO, reply::write_failure).linger().await;
}
