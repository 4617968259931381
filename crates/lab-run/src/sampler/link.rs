//! What went through the link between generator and server, from the link's own account.
//!
//! Each direction can be full on its own. What is counted as busy is the direction that was busier since the first reading: for
//! requests that fill one of them the other has no say.

use super::{Context, Sampler};
use kv::proto::{LinkAccount, LinkDirection};
use std::io;
use std::sync::Arc;

/// A link that can be asked.
#[derive(Clone)]
pub struct Link {
    /// Most bytes a second that go through in each direction, where that is limited.
    pub bytes_per_sec: Option<f64>,
    /// Asks it.
    pub ask: Arc<dyn Fn() -> io::Result<LinkAccount> + Send + Sync>,
}

pub(super) fn make(context: &Context) -> Option<Sampler> {
    let Link { bytes_per_sec, ask } = context.link.clone()?;
    let mut first = None;
    Some(Box::new(move |into| {
        let account = ask()?;
        let first: LinkAccount = *first.get_or_insert(account);
        let grown = |now: LinkDirection, then: LinkDirection| now.busy_secs - then.busy_secs;
        let busy_secs = grown(account.up, first.up).max(grown(account.down, first.down));
        into.count("link.busy_secs", busy_secs);
        into.count("link.waiting_secs", account.waiting_secs);
        into.count("link.serving_secs", account.serving_secs);
        into.count("link.up_bytes", account.up.bytes as f64);
        into.count("link.down_bytes", account.down.bytes as f64);
        if let Some(bytes_per_sec) = bytes_per_sec {
            into.gauge("link.bytes_per_sec", bytes_per_sec);
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::results::Reading;
    use std::sync::Mutex;

    #[test]
    fn the_direction_that_was_busier_meanwhile_is_what_counts() {
        let direction = |busy_secs| LinkDirection { bytes: (busy_secs * 1e6) as u64, busy_secs };
        // Before the window keys were written; in it they are read.
        let accounts = [(50.0, 1.0), (51.0, 4.0)].map(|(up, down)| LinkAccount {
            up: direction(up),
            down: direction(down),
            waiting_secs: down,
            serving_secs: 2.0 * down,
        });
        let left = Mutex::new(accounts.into_iter());
        let ask = move || left.lock().unwrap().next().ok_or_else(|| io::Error::other("gone"));
        let link = Link { bytes_per_sec: Some(1e6), ask: Arc::new(ask) };
        let mut sampler = make(&Context { link: Some(link), ..Context::default() }).unwrap();
        let mut read = || {
            let mut reading = Reading::default();
            sampler(&mut reading).map(|()| reading)
        };
        let (opened, closed) = (read().unwrap(), read().unwrap());
        let grown = |name: &str| closed.counters[name] - opened.counters[name];
        assert_eq!((grown("link.busy_secs"), grown("link.waiting_secs")), (3.0, 3.0));
        assert_eq!((grown("link.serving_secs"), grown("link.down_bytes")), (6.0, 3e6));
        assert_eq!(opened.gauges["link.bytes_per_sec"], 1e6);
        assert!(read().is_err(), "a link that is gone is not read, and no zero");
    }
}
