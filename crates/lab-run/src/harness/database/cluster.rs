//! A private PostgreSQL of three nodes that fails over: Patroni on each, over one etcd. Dropping it kills all and removes the data.

use super::{
    Account, Nodes, Options, USER, account, command, part_of, postgres, private_dir, program, write,
};
use crate::harness::ports::{free_ports, on_free_ports};
use crate::harness::process::{Process, kill_within, poll_until, wait_ready};
use crate::http::{answers, ask};
use crate::sampler::Database;
use crate::session::{Patience, Session};
use kv::Error;
use lab_data::experiment::Engine;
use rustix::process::Signal;
use serde::Deserialize;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const NODES: usize = 3;
/// What Patroni uses of PostgreSQL.
const PROGRAMS: [&str; 6] = ["initdb", "postgres", "pg_ctl", "pg_basebackup", "pg_rewind", "pg_controldata"];
/// How long the whole cluster may take until all of its nodes run.
const TIMEOUT: Duration = Duration::from_secs(90);
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// How long the leader's key in etcd lasts when the leader does not renew it, in seconds; and how often each Patroni looks, and how
/// long it retries. Shorter than Patroni's defaults of 30, 10 and 10.
const TTL: u32 = 6;
const LOOP_WAIT: u32 = 1;
const RETRY_TIMEOUT: u32 = 2;

/// Runs a command as the parent of all that it starts, also of what leaves it: Patroni's PostgreSQL does, and would be nobody's part.
/// 36 is `PR_SET_CHILD_SUBREAPER`.
const PARENT: &str = "import ctypes, os, signal, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
child = subprocess.Popen(sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: os.kill(child.pid, signal.SIGTERM))
while True:
    pid, status = os.wait()
    if pid == child.pid:
        sys.exit(os.waitstatus_to_exitcode(status) & 255)
";

/// See the module.
#[derive(Debug)]
pub struct Cluster {
    // Before the directory: fields are dropped in order, and the processes must be gone first.
    etcd: Option<Process>,
    nodes: [Option<Process>; NODES],
    dir: TempDir,
    account: Option<Account>,
    options: Options,
    /// Of PostgreSQL, of Patroni's interface, and the two of etcd.
    ports: Vec<u16>,
    is_synchronous: bool,
}

/// What a Patroni says of the cluster.
#[derive(Deserialize)]
struct Members {
    members: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    name: String,
    role: String,
    state: String,
}

impl Cluster {
    /// Makes a cluster, and waits until all nodes run. Where it `is_synchronous`, a commit waits for one other node, and
    /// without one it waits on.
    pub fn start(options: Options, is_synchronous: bool) -> Result<Cluster, Error> {
        let account = account(&postgres::PRODUCT)?;
        let dir = private_dir("patroni", &options.parents, account.as_ref())?;
        let (etcd, nodes) = (None, [const { None }; NODES]);
        let mut cluster = Cluster { etcd, nodes, dir, account, options, ports: Vec::new(), is_synchronous };
        on_free_ports(|| {
            cluster.ports = free_ports(2 * NODES + 2)?;
            cluster.etcd = None;
            let etcd = cluster.start_etcd()?;
            cluster.etcd = Some(etcd);
            for node in 0..NODES {
                cluster.configure(node)?;
                cluster.restart(node)?;
            }
            cluster.settle()
        })?;
        Ok(cluster)
    }

    /// The URL of a database, with all hosts.
    pub fn url_of(&self, database: &str) -> String {
        let hosts: Vec<String> = self.ports[..NODES].iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("postgres://{USER}@{}/{database}", hosts.join(","))
    }

    /// Runs `sql` in a database of a node and gives the rows as text.
    pub fn query(&self, node: usize, database: &str, sql: &str) -> Result<Vec<Vec<String>>, Error> {
        let patience = Patience { timeout: TIMEOUT, stop: Arc::clone(&self.options.stop) };
        let url = self.url_on(node, database);
        let session = Session::open(Engine::Postgres, &url, database, patience);
        session
            .and_then(|mut session| session.query(sql))
            .map_err(|why| Error::new(format_args!("{}: `{sql}` failed: {why}", name(node))))
    }

    /// The URL of a database on a node alone.
    fn url_on(&self, node: usize, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.ports[node])
    }

    /// Where the Patroni of a node answers.
    pub fn patroni(&self, node: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports[NODES + node]))
    }

    /// The process id of the Patroni of a node, and the id of its group; `None` while it is away.
    pub fn pid(&self, node: usize) -> Option<u32> {
        self.nodes[node].as_ref().map(Process::pid)
    }

    /// The node that its Patroni, or that of another one, says leads; `None` while there is none.
    pub fn leader(&self) -> Option<usize> {
        leader_of(&self.members()?)
    }

    /// Kills the Patroni and the PostgreSQL of a node, as if its machine had failed. The data stays.
    pub fn kill(&mut self, node: usize) {
        if let Some(mut patroni) = self.nodes[node].take() {
            patroni.end_tree(Signal::KILL);
        }
        // It has a session of its own, so that it outlives its Patroni.
        kill_within(&self.home(node));
    }

    /// Starts a node that was killed. It follows the leader, or leads if it may.
    pub fn restart(&mut self, node: usize) -> Result<(), Error> {
        let patroni = self.program("patroni")?;
        let mut command = command(&python_of(&patroni), &self.home(node), self.account.as_ref());
        command.args(["-c", PARENT]).arg(patroni).arg(self.home(node).join("patroni.yml"));
        self.nodes[node] = Some(self.run(&mut command, self.options.cores_of(node), &part_of(node))?);
        Ok(())
    }

    /// Waits until there is a leader, and all nodes that were not killed follow it; if it is synchronous, one so that commits wait for it.
    /// The leader.
    pub fn settle(&mut self) -> Result<usize, Error> {
        let stop = Arc::clone(&self.options.stop);
        let mut last = String::new();
        let is_synchronous = self.is_synchronous;
        let started = self.nodes.iter().enumerate().filter(|(_, node)| node.is_some());
        let started: Vec<String> = started.map(|(node, _)| name(node)).collect();
        let is_settled = |members: &[Member]| {
            let has = |role: &str| members.iter().filter(|member| member.role == role).count();
            let runs = |member: &&Member| ["running", "streaming"].contains(&&*member.state);
            has("leader") == 1
                && (!is_synchronous || has("sync_standby") == 1)
                && started.iter().all(|node| members.iter().filter(runs).any(|member| member.name == *node))
        };
        let settled = poll_until(TIMEOUT, &stop, || {
            if let Some(why) = self.nodes.iter_mut().flatten().find_map(Process::failure) {
                return Err(why);
            }
            let members = self.members().unwrap_or_default();
            last = members
                .iter()
                .map(|of| format!("{} {} {}", of.name, of.role, of.state))
                .collect::<Vec<_>>()
                .join(", ");
            Ok(leader_of(&members).filter(|_| is_settled(&members)))
        })?;
        settled.ok_or_else(|| {
            Error::new(format_args!("the PostgreSQL cluster is not complete after {TIMEOUT:?}: {last}"))
                .hint(format_args!("see {}", self.dir.path().display()))
        })
    }

    fn members(&self) -> Option<Vec<Member>> {
        let ports = self.ports.iter().skip(NODES).zip(&self.nodes).filter(|(_, node)| node.is_some());
        ports.into_iter().find_map(|(port, _)| {
            let (_, body) = ask("GET", &format!("http://127.0.0.1:{port}"), "/cluster", ANSWER_MAX).ok()?;
            Some(serde_json::from_slice::<Members>(&body).ok()?.members)
        })
    }

    fn home(&self, node: usize) -> PathBuf {
        self.dir.path().join(name(node))
    }

    fn program(&self, name: &str) -> Result<PathBuf, Error> {
        program(&[name]).ok_or_else(|| {
            Error::new(format_args!("{name} is not installed"))
                .hint("run scripts/setup.sh postgresql patroni etcd")
        })
    }

    fn run(
        &self,
        command: &mut std::process::Command,
        cores: &[usize],
        part: &str,
    ) -> Result<Process, Error> {
        let log = self.options.log_of(self.dir.path(), part);
        Process::guarded(command, cores, &log, Signal::TERM, self.dir.path())
    }

    fn start_etcd(&self) -> Result<Process, Error> {
        let [client, peer] = [0, 1].map(|at| format!("http://127.0.0.1:{}", self.ports[2 * NODES + at]));
        let mut command = command(&self.program("etcd")?, self.dir.path(), self.account.as_ref());
        command.args(["--data-dir", "etcd", "--logger", "zap", "--log-level", "warn"]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        let mut etcd = self.run(&mut command, &self.options.cores, "etcd")?;
        wait_ready(slice::from_mut(&mut etcd), TIMEOUT, &self.options.stop, || {
            answers(&client, "/health", |status| status == 200)
        })?;
        Ok(etcd)
    }

    fn configure(&self, node: usize) -> Result<(), Error> {
        let home = self.home(node);
        let made = fs::create_dir_all(&home)
            .and_then(|()| fs::set_permissions(&home, Permissions::from_mode(0o700)))
            .and_then(|()| {
                chown(&home, self.account.as_ref().map(|of| of.uid), self.account.as_ref().map(|of| of.gid))
            });
        made.map_err(|error| Error::new(format_args!("cannot make {}: {error}", home.display())))?;
        let (home_shown, programs) = (home.display(), postgres::programs_with(&PROGRAMS)?);
        let (own, rest, etcd) = (self.ports[node], self.ports[NODES + node], self.ports[2 * NODES]);
        let settings: String =
            self.options.settings.iter().map(|(name, value)| format!("    {name}: '{value}'\n")).collect();
        let text = format!(
            "scope: weir\nname: {name}\n\
             restapi: {{listen: '127.0.0.1:{rest}', connect_address: '127.0.0.1:{rest}'}}\n\
             etcd3: {{host: '127.0.0.1:{etcd}'}}\n\
             bootstrap:\n  dcs:\n    ttl: {TTL}\n    loop_wait: {LOOP_WAIT}\n    retry_timeout: {RETRY_TIMEOUT}\n    \
             synchronous_mode: {sync}\n    synchronous_mode_strict: {sync}\n    \
             maximum_lag_on_failover: 1000000000\n    \
             postgresql: {{use_pg_rewind: true, parameters: {{wal_log_hints: 'on', max_connections: 100}}}}\n  \
             initdb: [encoding: UTF8, locale: C, auth: trust, no-sync]\n\
             postgresql:\n  listen: '127.0.0.1:{own}'\n  connect_address: '127.0.0.1:{own}'\n  \
             data_dir: '{home_shown}/data'\n  bin_dir: '{bin}'\n  pgpass: '{home_shown}/pgpass'\n  \
             authentication: {{superuser: {{username: {USER}}}, replication: {{username: {USER}}}, rewind: {{username: {USER}}}}}\n  \
             pg_hba: ['host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust']\n  \
             parameters:\n    unix_socket_directories: ''\n    logging_collector: 'off'\n{settings}",
            name = name(node),
            sync = self.is_synchronous,
            bin = programs.display(),
        );
        write(&home.join("patroni.yml"), &text, self.account.as_ref())
    }
}

impl Nodes for Cluster {
    fn processes(&mut self) -> Box<dyn Iterator<Item = &mut Process> + '_> {
        Box::new(self.nodes.iter_mut().chain([&mut self.etcd]).flatten())
    }

    fn make(&mut self, database: &str) -> Result<(), Error> {
        let leader = self.settle()?;
        self.query(leader, "postgres", &format!("CREATE DATABASE {database}")).map(drop)
    }

    fn url(&self, database: &str) -> String {
        self.url_of(database)
    }

    fn databases(&self, database: &str) -> Vec<Database> {
        let of = |node| Database {
            part: part_of(node),
            engine: Engine::Postgres,
            url: self.url_on(node, database),
        };
        (0..NODES).map(of).collect()
    }

    fn describe(&self) -> String {
        let version = self.query(0, "postgres", "SHOW server_version").unwrap_or_default().concat().concat();
        format!("PostgreSQL {version}, {NODES} nodes of Patroni, synchronous_mode_strict=true ttl=6")
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// The Python that a program runs by, as its first line says: the first one in the PATH may be closed to another user.
fn python_of(program: &Path) -> PathBuf {
    let text = fs::read_to_string(program).unwrap_or_default();
    let first = text.lines().next().and_then(|line| line.strip_prefix("#!")).map(str::trim);
    PathBuf::from(first.filter(|path| Path::new(path).is_file()).unwrap_or("/usr/bin/python3"))
}

fn leader_of(members: &[Member]) -> Option<usize> {
    let leader = members.iter().find(|member| member.role == "leader" && member.state == "running")?;
    (0..NODES).find(|node| leader.name == name(*node))
}

fn name(node: usize) -> String {
    format!("n{}", node + 1)
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..NODES).for_each(|node| self.kill(node));
    }
}
