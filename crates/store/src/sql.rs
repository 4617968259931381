//! What the drivers of database servers share while they connect and set up: errors, and a limit of time.

use super::{Error, Kind};
use std::time::Duration;

/// Most time to acquire a lease or to start a session.
const SETUP_MAX: Duration = Duration::from_secs(15);

/// A step of the setup. The error is a store's [`Error`] or the driver's.
pub(super) type Setup<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Runs a step of the setup of the store `shown`. A server that does not answer counts as unavailable.
pub(super) async fn in_time<T>(shown: &str, step: impl Future<Output = Setup<T>>) -> Setup<T> {
    tokio::time::timeout(SETUP_MAX, step).await.unwrap_or_else(|_| {
        let message = format!("the store {shown} does not answer within {} s", SETUP_MAX.as_secs());
        Err(Error::new(Kind::Unavailable, message).into())
    })
}

/// The error of a step; `translate` makes it from the driver's.
pub(super) fn explain<E: std::error::Error + 'static>(
    error: Box<dyn std::error::Error + Send + Sync>,
    translate: impl FnOnce(&E) -> Error,
) -> Error {
    match error.downcast::<Error>() {
        Ok(known) => *known,
        Err(other) => match other.downcast_ref::<E>() {
            Some(error) => translate(error),
            None => Error::new(Kind::Unavailable, other.to_string()),
        },
    }
}

/// Another server owns the store; `holder` names it, if it is known.
pub(super) fn taken(shown: &str, holder: &str) -> Error {
    let message = format!("another server holds the store {shown}{holder}; stop it, or use another database");
    Error::new(Kind::Taken, message)
}

/// A newer lease exists.
pub(super) fn overtaken(shown: &str) -> Error {
    Error::new(Kind::Unavailable, format!("the store {shown} was taken over by another server meanwhile"))
}
