//! What an experiment measures: one target, or several in turns, each with the parts it is made of.
//!
//! Only the shape and what follows from it; what may stand in it is checked next door.

use crate::{distinct, simulated};
use kv::Error;
use kv::units::{BitRate, Span};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// A target of an experiment, and how it takes part in it.
#[derive(Clone, Debug, Deserialize)]
pub struct Subject {
    /// Its name and its results directory's; `None` where the experiment has one target only, which needs none.
    pub name: Option<String>,
    /// When it acknowledges a write, in the file's words.
    #[serde(default)]
    pub durability: String,
    /// The workloads it takes part in; `None`: all.
    pub workloads: Option<Vec<String>>,
    /// Further flags of `weir load` for all of them.
    #[serde(default)]
    pub load: Vec<String>,
    /// Whether it is looked at while it is measured, not only at the ends of each window.
    #[serde(default = "super::yes")]
    pub sampling: bool,
    /// What it is.
    #[serde(flatten)]
    pub target: Target,
}

impl Subject {
    /// Why something of it failed, with its name where it has one.
    pub fn failed(&self, why: Error) -> Error {
        match &self.name {
            Some(name) => why.at(format_args!("target `{name}`")),
            None => why,
        }
    }
}

/// What the requests go to.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Target {
    /// A `weir serve` of the lab's own, started anew for each repetition.
    Weir {
        /// One store, or several as shards: `file` (a private directory), `memory:`, `postgres` or `mariadb` (a private
        /// server), `cassandra` or `patroni` (a private cluster of three nodes) or any other store URL.
        #[serde(default = "embedded", deserialize_with = "one_or_many")]
        store: Vec<String>,
        /// Whether a private PostgreSQL follows all shards by logical replication and answers reads while one is away.
        #[serde(default)]
        replica: bool,
        /// Further flags of `weir serve`.
        #[serde(default)]
        args: Vec<String>,
        /// By how much every flush of its stores to their disk takes longer than it does here.
        flush_delay: Option<Span>,
        /// How much processor time its parts may use.
        #[serde(default)]
        quota: Quota,
        /// What stands between the generator and it.
        link: Option<Link>,
        /// How many servers share the store; the clients are divided among them.
        #[serde(default = "super::one")]
        servers: u32,
    },
    /// Any HTTP server, as the command lines of its processes; started anew for each repetition.
    Command(Commands),
    /// A server that runs already; the lab sees of it what its answers show.
    Url {
        /// `http://HOST:PORT`, or `https://`.
        url: String,
    },
    /// A queueing model in place of a system: the whole lab runs in milliseconds, and the answer is known.
    Simulated(simulated::Model),
}

/// Cores' worth of processor time: 0.2 is a fifth of one core. `None`: as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Of the server.
    pub server: Option<f64>,
    /// Of the load generator, in the trials.
    pub generator: Option<f64>,
    /// Of each private database.
    pub database: Option<f64>,
}

/// A network between generator and server.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// How much goes through in each direction; `None`: as much as comes.
    pub rate: Option<BitRate>,
    /// How long all of it takes on its way, in each direction.
    pub delay: Option<Span>,
}

/// A server as the command lines of its processes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commands {
    /// A path that it answers, with any status below 500, once it serves.
    #[serde(default = "root")]
    pub ready: String,
    /// Whether it speaks TLS.
    #[serde(default)]
    pub tls: bool,
    /// Files written into its directory before it starts, by name.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// How often it is started anew.
    #[serde(default)]
    pub fresh: Fresh,
    /// How much processor time its server may use.
    #[serde(default)]
    pub quota: Quota,
    /// Its processes, in the order in which they are started.
    #[serde(rename = "process", default)]
    pub processes: Vec<Process>,
}

/// How often a server is started anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fresh {
    /// For each repetition.
    #[default]
    Repetition,
    /// For each trial: what one leaves behind would be in the way of the next.
    Trial,
}

/// A process of a server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// What it is called in the report; one is the `server`.
    pub part: String,
    /// The program and its arguments. It has to stay in the foreground.
    pub command: Vec<String>,
    /// A command whose first line of output says which version it is.
    #[serde(default)]
    pub version: Vec<String>,
}

/// A database server of the lab's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Database {
    /// Its part: `database`, or `database-1`, `database-2`, … and `replica`.
    pub part: String,
    /// What it is.
    pub engine: Engine,
    /// Which store of the target it is; `None` of the replica.
    pub store: Option<usize>,
}

/// Which kinds of database servers the lab can start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// PostgreSQL.
    Postgres,
    /// MariaDB.
    MariaDb,
}

/// Which clusters the lab can start, of three nodes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// Cassandra, with all rows on all nodes.
    Cassandra,
    /// PostgreSQL that fails over: Patroni over one etcd, with a synchronous standby.
    Patroni,
}

impl Cluster {
    /// How many nodes it has.
    pub const NODES: usize = 3;

    /// The cluster that a store name stands for.
    pub(super) fn of(store: &str) -> Option<Cluster> {
        match store {
            "cassandra" => Some(Cluster::Cassandra),
            "patroni" => Some(Cluster::Patroni),
            _ => None,
        }
    }

    /// Its parts: the nodes first.
    pub(super) fn parts(self) -> Vec<String> {
        let nodes = (1..=Cluster::NODES).map(|number| format!("{DATABASE}-{number}"));
        nodes.chain((self == Cluster::Patroni).then(|| ETCD.to_owned())).collect()
    }
}

/// The process that is measured.
pub const SERVER: &str = "server";
/// The database behind it, where there is one; of several, what their names begin with.
pub const DATABASE: &str = "database";
/// What the nodes of a PostgreSQL that fails over agree by.
pub const ETCD: &str = "etcd";
/// The database that follows the others.
pub const REPLICA: &str = "replica";
/// `weir load`.
pub const GENERATOR: &str = "generator";
/// `weir link`, between the two.
pub const LINK: &str = "link";

/// The store name that stands for a PostgreSQL of the lab's own.
pub const POSTGRES: &str = "postgres";
/// The store name that stands for a MariaDB of the lab's own.
pub const MARIADB: &str = "mariadb";
/// The store name that stands for the embedded store in a private directory.
pub const EMBEDDED: &str = "file";

impl Target {
    /// Its parts and the load generator, in the report's order. A model has none: it uses no core of this machine.
    pub fn parts(&self) -> Vec<String> {
        let [server, link, generator] = [SERVER, LINK, GENERATOR].map(str::to_owned);
        let behind: Vec<String> = match self {
            Target::Weir { .. } => {
                let cluster = self.cluster().map(Cluster::parts).unwrap_or_default();
                let databases = self.databases().into_iter().map(|database| database.part);
                self.servers().into_iter().skip(1).chain(cluster).chain(databases).collect()
            }
            Target::Command(commands) => commands.processes.iter().map(|of| of.part.clone()).collect(),
            Target::Url { .. } => return vec![generator],
            Target::Simulated(_) => return Vec::new(),
        };
        let link = self.link().map(|_| link);
        distinct([server].into_iter().chain(behind).chain(link).chain([generator]))
    }

    /// The databases the lab starts for it: one for each private store in their order, then the replica.
    pub fn databases(&self) -> Vec<Database> {
        let Target::Weir { store, replica, .. } = self else { return Vec::new() };
        let engine = |name: &String| match name.as_str() {
            POSTGRES => Some(Engine::Postgres),
            MARIADB => Some(Engine::MariaDb),
            _ => None,
        };
        let private: Vec<(usize, Engine)> =
            store.iter().enumerate().filter_map(|(index, name)| Some((index, engine(name)?))).collect();
        let alone = private.len() == 1;
        let named = |(number, (index, engine)): (usize, (usize, Engine))| Database {
            part: if alone { DATABASE.to_owned() } else { format!("{DATABASE}-{}", number + 1) },
            engine,
            store: Some(index),
        };
        let follower = Database { part: REPLICA.to_owned(), engine: Engine::Postgres, store: None };
        private.into_iter().enumerate().map(named).chain(replica.then_some(follower)).collect()
    }

    /// The cluster that the lab starts for it.
    pub fn cluster(&self) -> Option<Cluster> {
        let Target::Weir { store, .. } = self else { return None };
        store.iter().find_map(|name| Cluster::of(name))
    }

    /// The parts that serve: `server`, and of several `server-2`, … beside it.
    pub fn servers(&self) -> Vec<String> {
        let count = if let Target::Weir { servers, .. } = self { *servers } else { 1 };
        let others = (2..=count).map(|number| format!("{SERVER}-{number}"));
        [SERVER.to_owned()].into_iter().chain(others).collect()
    }

    /// By how much the flushes of its stores are delayed.
    pub fn flush_delay(&self) -> Option<Span> {
        if let Target::Weir { flush_delay, .. } = self { *flush_delay } else { None }
    }

    /// How much processor time its parts may use.
    pub fn quota(&self) -> Quota {
        match self {
            Target::Weir { quota, .. } | Target::Command(Commands { quota, .. }) => *quota,
            _ => Quota::default(),
        }
    }

    /// What stands between the generator and it.
    pub fn link(&self) -> Option<Link> {
        if let Target::Weir { link, .. } = self { *link } else { None }
    }
}

/// `[target]`, or `[[target]]` one or more times, each with a name.
pub(super) fn subjects<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Subject>, D::Error> {
    let (tables, is_list) = match toml::Value::deserialize(deserializer)? {
        toml::Value::Array(tables) => (tables, true),
        table => (vec![table], false),
    };
    let subject = |table: toml::Value| {
        let name = table.get("name").and_then(toml::Value::as_str).map(str::to_owned);
        let place = match &name {
            Some(name) => format!("target `{name}`: "),
            None if is_list => return Err(D::Error::custom("in a [[target]]: missing field `name`")),
            None => String::new(),
        };
        Subject::deserialize(table).map_err(|error| D::Error::custom(place + error.message()))
    };
    tables.into_iter().map(subject).collect()
}

fn root() -> String {
    "/".to_owned()
}

fn embedded() -> Vec<String> {
    vec![EMBEDDED.to_owned()]
}

/// `"a"` or `["a", "b"]`.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "store is neither a text nor a list of texts")]
    enum Stores {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Stores::deserialize(deserializer)? {
        Stores::One(store) => vec![store],
        Stores::Many(stores) => stores,
    })
}

/// What the address of a server that speaks TLS begins with.
pub const HTTPS: &str = "https://";

/// `HOST:PORT` of an `http://` or `https://` address; `None` if it is none.
pub fn address(url: &str) -> Option<&str> {
    let address = url.strip_prefix("http://").or_else(|| url.strip_prefix(HTTPS))?.trim_end_matches('/');
    let (host, port) = address.rsplit_once(':')?;
    (!host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for (url, expected) in [
            ("http://127.0.0.1:80", Some("127.0.0.1:80")),
            ("http://[::1]:80/", Some("[::1]:80")),
            ("http://localhost", None),
            ("https://a:1", Some("a:1")),
            ("ftp://a:1", None),
            ("http://a:1/b", None),
            ("http://:1", None),
            ("a:1", None),
        ] {
            assert_eq!(address(url), expected, "{url}");
        }
    }
}
