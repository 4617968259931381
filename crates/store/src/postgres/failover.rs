//! A cluster that fails over: which of several hosts is the store, and whether an acknowledged write is on more than one of them.

use super::{Host, Postgres};
use crate::sql::{Failure, Meaning, Setup};
use crate::{Error, Kind};
use futures_util::future::join_all;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// How long a host may take to say what it is. One that is stopped accepts connections, and says nothing.
const HOST_MAX: Duration = Duration::from_secs(2);

/// Tells a run of a server from every other one, of this server or of others. The timeline of a server that is written
/// changes only with it: a server is promoted once in a run.
pub(super) const SERVER: &str = "concat_ws(' ', (SELECT system_identifier FROM pg_control_system()),
    extract(epoch FROM pg_postmaster_start_time()))";

/// What a host is: its cluster, whether it takes writes, and its timeline, which each promotion raises.
const STATE: &str = "SELECT (SELECT system_identifier FROM pg_control_system()),
    NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off',
    CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END";

const STANDBYS: &str = "SELECT current_setting('synchronous_standby_names')";
/// The same, by a commit. It waits for the standby, which confirms none of a server that it no longer follows.
pub(super) const CONFIRM: &str = "SELECT current_setting('synchronous_standby_names'),
    pg_logical_emit_message(true, 'weir', '')::text";

/// A host that answered.
struct Found {
    host: usize,
    connection: (Client, JoinHandle<String>),
    cluster: i64,
    is_writable: bool,
    timeline: String,
}

impl Postgres {
    pub(super) fn has_several_hosts(&self) -> bool {
        self.hosts.len() > 1
    }

    /// Whether a commit has to wait for a standby.
    pub(super) fn needs_standby(&self) -> bool {
        self.has_several_hosts() && !self.allows_asynchronous_failover
    }

    /// Connects to the host that takes writes, and says which it is. A server that was replaced and does not know it takes
    /// them, too: of several it is the one that was promoted last.
    pub(super) async fn dial_writable(&self, purpose: &str) -> Setup<(usize, Client, JoinHandle<String>)> {
        if let [only] = &self.hosts[..] {
            let (client, ended) = self.dial(only, purpose).await?;
            return Ok((0, client, ended));
        }
        let looks = self.hosts.iter().enumerate().map(|(host, at)| async move {
            let look = tokio::time::timeout(HOST_MAX, self.look(host, purpose));
            let silent = |_| Err(Failure::Database(Meaning::Ended, format!("no answer in {HOST_MAX:?}")));
            look.await.unwrap_or_else(silent).map_err(|failure| (at.name(), failure))
        });
        let (mut found, mut failed) = (Vec::new(), Vec::new());
        for look in join_all(looks).await {
            match look {
                Ok(host) => found.push(host),
                Err(failure) => failed.push(failure),
            }
        }
        if let Some(other) = found.iter().find(|other| other.cluster != found[0].cluster) {
            let [one, other] = [&found[0], other].map(|of| self.hosts[of.host].name());
            let message = format!(
                "{one} and {other} of {} are different databases; name the hosts of one cluster",
                self.shown
            );
            return Err(Error::new(Kind::Config, message).into());
        }
        let last =
            found.into_iter().filter(|host| host.is_writable).max_by(|a, b| a.timeline.cmp(&b.timeline));
        if let Some(Found { host, connection: (client, ended), .. }) = last {
            return Ok((host, client, ended));
        }
        // Where no host lets us in, the fault is ours.
        if failed.len() == self.hosts.len()
            && let Some(at) = failed.iter().position(|(_, failure)| failure.is_config())
        {
            return Err(failed.swap_remove(at).1);
        }
        if failed.is_empty() {
            let what = format!("no host of {} takes writes: all are standbys or read-only", self.shown);
            let remedy = "promote one, or name the one that takes writes";
            return Err(Error::new(Kind::Unavailable, format!("{what}; {remedy}")).into());
        }
        let mut why: Vec<String> =
            failed.into_iter().map(|(name, failure)| format!("{name}: {failure}")).collect();
        if why.len() < self.hosts.len() {
            why.push("all others are standbys or read-only".to_owned());
        }
        let message =
            format!("no host of {} takes writes ({})", self.shown, why.join(", ").replace("; ", ", "));
        Err(Error::new(Kind::Unavailable, message).into())
    }

    async fn look(&self, host: usize, purpose: &str) -> Setup<Found> {
        let connection = self.dial(&self.hosts[host], purpose).await?;
        let state = connection.0.query_one(STATE, &[]).await?;
        let (cluster, is_writable, timeline) = (state.try_get(0)?, state.try_get(1)?, state.try_get(2)?);
        Ok(Found { host, connection, cluster, is_writable, timeline })
    }

    /// Says that a failover loses no acknowledged write, as far as the server's settings tell.
    pub(super) async fn check_standby(&self, client: &Client) -> Setup<()> {
        if !self.has_several_hosts() {
            return Ok(());
        }
        let standbys: String = client.query_one(STANDBYS, &[]).await?.try_get(0)?;
        match !waits_for_all(&standbys) {
            true if self.allows_asynchronous_failover => log::warn!(
                "the store {} has no synchronous standby: a failover loses acknowledged writes (--allow-asynchronous-failover)",
                self.shown
            ),
            // Patroni says so as long as the last standby is away.
            true => return Err(Error::new(Kind::Unavailable, self.no_standby()).into()),
            false => {}
        }
        Ok(())
    }

    pub(super) fn no_standby(&self) -> String {
        format!(
            "the store {} has no synchronous standby (synchronous_standby_names is empty, or lists more than each commit waits \
             for), so a failover loses acknowledged writes; switch synchronous replication on (Patroni: synchronous_mode and synchronous_mode_strict), or add \
             --allow-asynchronous-failover",
            self.shown
        )
    }
}

/// Whether each commit waits for every standby that `synchronous_standby_names` lists. Another one may be promoted without it, or go
/// on confirming after one was. The name `*` passes: Patroni sets it while no standby is there, so that commits wait.
pub(super) fn waits_for_all(names: &str) -> bool {
    let (how, list) = names.split_once('(').unwrap_or(("1", names));
    let count = how.split_whitespace().last().and_then(|count| count.parse().ok()).unwrap_or(1);
    !names.is_empty() && list.split(',').count() <= count
}

impl Host {
    /// As in the URL, for messages.
    fn name(&self) -> String {
        format!("{}:{}", self.fields["host"], self.fields["port"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_that_a_commit_does_not_wait_for_is_none() {
        for (names, waits) in [
            ("", false),
            ("b", true),
            ("*", true),
            ("b, c", false),
            ("2 (b, c)", true),
            ("FIRST 1 (b, c)", false),
            ("ANY 1 (\"b\", c)", false),
            ("ANY 2 (b, c)", true),
        ] {
            assert_eq!(waits_for_all(names), waits, "{names}");
        }
    }
}
