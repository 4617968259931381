//! A private cluster of Cassandra nodes on 127.0.0.1, 127.0.0.2, …: processes that are gone with their owner, as those of the
//! databases. Where they ask for a login, `cassandra` with the password `cassandra` may do everything.
//!
//! Durability stays on: a node answers a write when its commit log is flushed.

use super::{Nodes, Options, part_of, private_dir, program};
use crate::cql::CqlSession;
use crate::harness::files::cannot_write;
use crate::harness::ports::{free_ports_at, on_free_ports};
use crate::harness::process::{Process, wait_ready};
use crate::sampler::Node;
use kv::Error;
use rustix::process::Signal;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::slice;
use std::time::Duration;
use tempfile::TempDir;

/// How long a node may take until it answers: ten seconds, and minutes where other programs have the processors.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How long an answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The heap of a node, in MiB.
const HEAP_MIB: u32 = 512;

/// What Cassandra's own scripts open to it of Java 17.
const OPENS: &[&str] = &[
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.reflect",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.management/com.sun.jmx.remote.security",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.rmi/sun.rmi.transport",
    "java.rmi/sun.rmi.transport.tcp",
    "java.sql/java.sql",
    "jdk.management/com.sun.management.internal",
];

/// A private cluster. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct CassandraCluster {
    // Before the directory: fields are dropped in order, and the processes must be gone first.
    nodes: Vec<Option<Process>>,
    dir: TempDir,
    /// Of clients, on every address.
    port: u16,
    /// Among the nodes, likewise.
    storage_port: u16,
    options: Options,
}

impl CassandraCluster {
    /// Starts so many nodes, and waits until each answers and sees all others. Settings are those of `cassandra.yaml`.
    pub fn start(nodes: u8, options: Options) -> Result<CassandraCluster, Error> {
        let dir = private_dir("cassandra", &options.parents, None)?;
        let ips: Vec<Ipv4Addr> = (0..usize::from(nodes)).map(ip).collect();
        let nodes = ips.iter().map(|_| None).collect();
        let mut cluster = CassandraCluster { nodes, dir, port: 0, storage_port: 0, options };
        on_free_ports(|| {
            let ports = free_ports_at(&ips, 2)?;
            (cluster.port, cluster.storage_port) = (ports[0], ports[1]);
            // The first one is the seed of the others. One that found its port taken has ended.
            cluster.nodes[0] = None;
            cluster.run(0..1)
        })?;
        cluster.run(1..cluster.nodes.len())?;
        Ok(cluster)
    }

    /// The URL of a keyspace.
    pub fn url(&self, keyspace: &str) -> String {
        let hosts: Vec<String> = (0..self.nodes.len()).map(|node| self.address(node).to_string()).collect();
        format!("cassandra://{}/{keyspace}", hosts.join(","))
    }

    /// Makes a keyspace with a replica on every node; its URL.
    pub fn keyspace(&self, name: &str) -> Result<String, Error> {
        let replicas = self.nodes.len();
        self.query(
            0,
            &format!(
                "CREATE KEYSPACE {name} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
            ),
        )?;
        Ok(self.url(name))
    }

    /// Runs `cql` on a node and gives the rows as text; NULL is empty.
    pub fn query(&self, node: usize, cql: &str) -> Result<Vec<Vec<String>>, Error> {
        let session = CqlSession::open(self.address(node), ANSWER_MAX);
        let rows = session.and_then(|mut session| session.query(cql));
        rows.map_err(|why| Error::new(format_args!("Cassandra: `{cql}` failed: {why}")))
    }

    /// The process id of a node; `None` while it is away.
    pub fn pid(&self, node: usize) -> Option<u32> {
        self.nodes[node].as_ref().map(Process::pid)
    }

    /// Kills a node at once, as a crash would; its data stays.
    pub fn kill(&mut self, node: usize) {
        if let Some(mut process) = self.nodes[node].take() {
            process.end_tree(Signal::KILL);
        }
    }

    /// Starts a node that was killed again, and waits until all see each other.
    pub fn restart(&mut self, node: usize) -> Result<(), Error> {
        self.run(node..node + 1)
    }

    /// Where clients reach a node.
    fn address(&self, node: usize) -> SocketAddr {
        (ip(node), self.port).into()
    }

    /// Starts those of these nodes that are away, and waits until all that run answer and see each other.
    fn run(&mut self, which: std::ops::Range<usize>) -> Result<(), Error> {
        let which: Vec<usize> = which.filter(|node| self.nodes[*node].is_none()).collect();
        for node in which {
            self.nodes[node] = Some(self.spawn(node)?);
        }
        let running = self.nodes.iter().flatten().count();
        for node in 0..self.nodes.len() {
            let Some(mut process) = self.nodes[node].take() else { continue };
            let ready =
                wait_ready(slice::from_mut(&mut process), TIMEOUT, &self.options.stop.clone(), || {
                    let peers = self
                        .query(node, "SELECT peer FROM system.peers_v2")
                        .map_err(|why| why.to_string())?;
                    if peers.len() + 1 >= running {
                        Ok(())
                    } else {
                        Err(format!("it sees {} nodes", peers.len()))
                    }
                });
            self.nodes[node] = Some(process);
            ready?;
        }
        Ok(())
    }

    fn spawn(&self, node: usize) -> Result<Process, Error> {
        let home = self.dir.path().join(part_of(node));
        fs::create_dir_all(&home).map_err(|error| cannot_write(&home, error))?;
        let write = |name: &str, text: &str| {
            let path = home.join(name);
            fs::write(&path, text).map_err(|error| cannot_write(&path, error)).map(|()| path)
        };
        let yaml = write("cassandra.yaml", &self.yaml(node, &home))?;
        let logback = write("logback.xml", LOGBACK)?;
        let mut command = Command::new(java()?);
        command.arg(format!("-Xms{HEAP_MIB}m")).arg(format!("-Xmx{HEAP_MIB}m"));
        command.args([
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djdk.attach.allowAttachSelf=true",
        ]);
        for open in OPENS {
            command.args(["--add-opens", &format!("{open}=ALL-UNNAMED")]);
            command.args(["--add-exports", &format!("{open}=ALL-UNNAMED")]);
        }
        let has_logins = self.options.settings.contains_key("authenticator");
        let properties = [
            ("cassandra.config", format!("file://{}", yaml.display())),
            ("logback.configurationFile", logback.display().to_string()),
            ("cassandra.storagedir", home.display().to_string()),
            ("java.io.tmpdir", home.display().to_string()),
            // There is no cluster that one would have to wait for.
            ("cassandra.ring_delay_ms", "1000".to_owned()),
            ("cassandra.skip_wait_for_gossip_to_settle", "0".to_owned()),
            ("cassandra.superuser_setup_delay_ms", if has_logins { "0" } else { "-1" }.to_owned()),
            // Of passwords that are no secrets.
            ("cassandra.auth_bcrypt_gensalt_log2_rounds", "4".to_owned()),
        ];
        command.args(properties.map(|(name, value)| format!("-D{name}={value}")));
        command.arg("-cp").arg(format!("{}:{}/*", home.display(), jars()?.display()));
        command.arg("org.apache.cassandra.service.CassandraDaemon").current_dir(&home);
        let log = self.options.log_of(self.dir.path(), &part_of(node));
        Process::guarded(&mut command, self.options.cores_of(node), &log, Signal::KILL, self.dir.path())
    }

    fn yaml(&self, node: usize, home: &Path) -> String {
        let (ip, home) = (ip(node), home.display());
        let token = i128::from(i64::MIN) + (1_i128 << 64) * node as i128 / self.nodes.len() as i128;
        let CassandraCluster { port, storage_port, .. } = self;
        let more = self.options.settings.iter().map(|(name, value)| format!("{name}: {value}\n"));
        let more: String = more.collect();
        format!(
            "cluster_name: weir\n\
             initial_token: {token}\n\
             num_tokens: 1\n\
             auto_bootstrap: false\n\
             partitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
             endpoint_snitch: SimpleSnitch\n\
             paxos_variant: v2\n\
             commitlog_sync: batch\n\
             commitlog_segment_size: 32MiB\n\
             data_file_directories: [{home}/data]\n\
             commitlog_directory: {home}/commitlog\n\
             saved_caches_directory: {home}/caches\n\
             hints_directory: {home}/hints\n\
             cdc_raw_directory: {home}/cdc\n\
             listen_address: {ip}\n\
             rpc_address: {ip}\n\
             native_transport_port: {port}\n\
             storage_port: {storage_port}\n\
             seed_provider: [{{class_name: org.apache.cassandra.locator.SimpleSeedProvider, \
                parameters: [{{seeds: '127.0.0.1:{storage_port}'}}]}}]\n\
             memtable_heap_space: 64MiB\n\
             memtable_offheap_space: 64MiB\n\
             file_cache_size: 32MiB\n\
             key_cache_size: 8MiB\n\
             {more}"
        )
    }
}

impl Nodes for CassandraCluster {
    fn processes(&mut self) -> Box<dyn Iterator<Item = &mut Process> + '_> {
        Box::new(self.nodes.iter_mut().flatten())
    }

    fn make(&mut self, database: &str) -> Result<(), Error> {
        self.run(0..0)?;
        self.keyspace(database).map(drop)
    }

    fn url(&self, database: &str) -> String {
        CassandraCluster::url(self, database)
    }

    fn cassandra(&self) -> Vec<Node> {
        let nodes = 0..self.nodes.len();
        nodes.map(|node| Node { part: part_of(node), address: self.address(node) }).collect()
    }

    fn describe(&self) -> String {
        let version = self.query(0, "SELECT release_version FROM system.local");
        let version = version.unwrap_or_default().concat().concat();
        let nodes = self.nodes.len();
        format!("Cassandra {version}, {nodes} nodes, paxos_variant=v2 commitlog_sync=batch heap 512 MiB")
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }
}

fn ip(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, node as u8 + 1)
}

const LOGBACK: &str = "<configuration><appender name=\"out\" class=\"ch.qos.logback.core.ConsoleAppender\"><encoder>\
    <pattern>%-5level %date{ISO8601} %F:%L - %msg%n</pattern></encoder></appender>\
    <root level=\"INFO\"><appender-ref ref=\"out\"/></root></configuration>";

fn java() -> Result<PathBuf, Error> {
    program(&["java"]).ok_or_else(|| Error::new("there is no java").hint("run scripts/setup.sh cassandra"))
}

/// Where `scripts/setup.sh cassandra` puts what it gets.
fn jars() -> Result<PathBuf, Error> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home).unwrap_or_default();
    let jars = cache.join("weir/cassandra");
    match jars.join("complete").exists() {
        true => Ok(jars),
        false => Err(Error::new("Cassandra is not on this machine").hint("run scripts/setup.sh cassandra")),
    }
}
