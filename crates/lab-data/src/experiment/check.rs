//! What an experiment file may say beyond what its types can: checked before anything is started.
//!
//! Every complaint is one line: which key, what is wrong, what to do.

use super::limit::{ARRIVALS, TRIALS_LEAST};
use super::placeholder::{PLACEHOLDERS, fill, is_known};
use super::{
    Adaptive, Cluster, Commands, EMBEDDED, Engine, Experiment, GENERATOR, LINK, LatencyLimit, Link, MARIADB,
    POSTGRES, Quota, SERVER, Subject, Target, Workload, address,
};
use crate::ensure;
use kv::Error;
use kv::units::Span;
use std::collections::BTreeSet;

/// A smaller cap on writing would make every start of a database fail.
const WRITE_CAP_LEAST: u64 = 64 << 10;

/// What no process may be called: the generator's part, and its log.
const OWN_PARTS: &[&str] = &[GENERATOR, LINK, "load"];

/// Less than this share of a core and a process cannot be told from one that hangs.
const QUOTA_LEAST: f64 = 0.01;
/// Below this a link's burst is less than one packet.
const LINK_RATE_LEAST: f64 = 100e3;

/// Flags the lab sets itself, and the file's key that decides instead.
const OWN_FLAGS: &[(&str, &str)] = &[
    ("--listen", "nothing: the lab picks a free port"),
    ("--store", "target.store"),
    ("--read-fallback", "target.replica"),
    ("--workload", "workload.name"),
    ("--clients", "levels"),
    ("-c", "levels"),
    ("--warmup", "warmup"),
    ("--window", "window"),
    ("--duration", "window"),
    ("--seed", "seed"),
    (INJECT, "nothing: the lab slows the generator where it tests its headroom"),
    ("--events", "nothing: the lab always listens"),
    ("--bin", "nothing: the lab has them where [adaptive] asks for it"),
    ("--no-preload", "nothing: the lab preloads once per repetition"),
];

/// The flag that is also one of `weir serve`, and the file's there.
const INJECT: &str = "--inject";

/// Flags of `weir load` that a search has no use for: it sets the rate itself.
const PACING: &[&str] = &["--rate", "--arrivals", "--think"];

/// What a check says.
pub(super) type Checked = Result<(), Error>;

/// Whether the `name` at `key` is one of those there are.
pub(super) fn is_one_of(key: &str, name: &str, all: &[&str]) -> Checked {
    let hint = if all.is_empty() { "remove it".to_owned() } else { format!("use one of {}", all.join(", ")) };
    ensure(all.contains(&name), format!("{key} `{name}` is unknown"), hint)
}

pub(super) fn is_not_zero(key: &str, span: Span) -> Checked {
    let what = format!("{key} 0s: it must be longer than zero");
    ensure(!span.0.is_zero(), what, format!("write {key} = \"1s\""))
}

impl Experiment {
    /// Checks what the types cannot say; again after flags have replaced parts of the file.
    pub fn check(&self) -> Checked {
        is_name("name", &self.name)?;
        ascend("levels", &self.levels)?;
        ensure(self.repetitions > 0, "repetitions 0: nothing would be measured", "use at least 1")?;
        is_not_zero("warmup", self.warmup)?;
        is_not_zero("window", self.window)?;
        self.adaptive.iter().try_for_each(|adaptive| self.check_adaptive(adaptive))?;
        self.check_workloads()?;
        self.check_subjects()?;
        self.check_sections()?;
        self.check_faults()?;
        self.interventions.iter().try_for_each(|interventions| interventions.check(self))?;
        let parts = self.parts();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        self.cores.parts.keys().try_for_each(|part| is_one_of("cores: part", part, &parts))
    }

    fn check_adaptive(&self, adaptive: &Adaptive) -> Checked {
        let (most, window, least) = (adaptive.most, self.window, Adaptive::LEAST);
        ensure(most.0 >= window.0, format!("adaptive.most {most} is below window {window}"), "lengthen it")?;
        let too_short = format!("adaptive.most {most} is below {least}, the least");
        ensure(most.0 >= least.0, too_short, "lengthen it")?;
        let share = adaptive.goodput;
        let no_share = format!("adaptive.goodput {share} is no share of a mean");
        ensure(share > 0.0 && share < 1.0, no_share, "write 0.02 for ±2 %")?;
        self.workloads.iter().try_for_each(|workload| {
            let has_workers = self.load_flag_of(workload, &["--worker"]).is_some();
            let what = format!("adaptive: the window of `{}` cannot end early with --worker", workload.name);
            ensure(!has_workers, what, "remove [adaptive] and set window, or remove --worker")
        })
    }

    fn check_workloads(&self) -> Checked {
        ensure(!self.workloads.is_empty(), "workload: there is none", "add a [[workload]] with a name")?;
        are_distinct("workload.name", self.workloads.iter().map(|workload| &workload.name))?;
        for workload in &self.workloads {
            let name = &workload.name;
            is_name("workload.name", name)?;
            own_flags("workload.args", &workload.args)?;
            own_server_flags("workload.serve", &workload.serve)?;
            let is_path = workload.url.as_ref().is_none_or(|url| url.starts_with('/'));
            ensure(
                is_path,
                format!("workload.url of `{name}` is no path"),
                "write what stands behind the port: \"/orders/1\"",
            )?;
            let is_one = workload.url.is_none() || workload.workload.is_none();
            ensure(
                is_one,
                format!("workload `{name}` has both url and workload, which name other requests"),
                "remove one of them",
            )?;
            workload.levels.iter().try_for_each(|levels| ascend("workload.levels", levels))?;
            let is_slow = workload.write_cap.is_some_and(|cap| cap.0 < WRITE_CAP_LEAST);
            ensure(!is_slow, format!("workload.write_cap of `{name}` is below 64KiB"), "write \"10MiB\"")?;
            let is_named = workload.published.is_none() || self.published.is_some();
            let no_table = format!("workload.published of `{name}`: no table of published results is named");
            ensure(is_named, no_table, "add [published] with its file")?;
            let Some(limit) = &workload.limit else { continue };
            self.check_limit(limit, workload).map_err(|why| why.at(format!("workload.limit of `{name}`")))?;
        }
        Ok(())
    }

    /// The first of `flags` that `workload` has, and the key it stands in: its own or that of a target that takes part in it.
    fn load_flag_of<'a>(&'a self, workload: &'a Workload, flags: &[&str]) -> Option<(&'a str, &'a str)> {
        let named = |key, args: &'a Vec<String>| {
            let mut names = args.iter().map(|arg| arg.split('=').next().unwrap_or(arg));
            Some((key, names.find(|name| flags.contains(name))?))
        };
        let takes_part = |subject: &&Subject| subject.takes_part(workload);
        let mut subjects = self.subjects.iter().filter(takes_part);
        named("args", &workload.args).or_else(|| subjects.find_map(|of| named("target.load", &of.load)))
    }

    /// What may be searched for under `limit` in `workload`.
    fn check_limit(&self, limit: &LatencyLimit, workload: &Workload) -> Checked {
        ensure(!limit.p99.0.is_zero(), "p99 is missing, or zero", "write p99 = \"5ms\"")?;
        ensure(limit.clients > 0, "clients 0: nothing would be sent", "write clients = 64")?;
        are_possible("clients", Some(limit.clients))?;
        is_one_of("arrivals", &limit.arrivals, ARRIVALS)?;
        let has_room = !limit.trial.0.is_zero() && limit.most.0 >= limit.shortest();
        let what = format!("most {} has no room for {TRIALS_LEAST} trials of {}", limit.most, limit.trial);
        ensure(has_room, what, "lengthen it, or shorten trial")?;
        ensure((0.001..=0.5).contains(&limit.goal), "goal: from 0.1 % to 50 %", "write goal = \"2%\"")?;
        if let Some((key, flag)) = self.load_flag_of(workload, PACING) {
            let what = format!("{key} has {flag}, but the search sets the rate itself");
            return Err(Error::input(what).hint("remove one of them"));
        }
        let is_simulated = |subject: &Subject| matches!(subject.target, Target::Simulated(_));
        let are_real = !self.subjects.iter().any(is_simulated);
        ensure(are_real, "a simulated target has no open loop", "remove the limit")
    }

    /// Every target, alone and among the others.
    fn check_subjects(&self) -> Checked {
        ensure(!self.subjects.is_empty(), "target: there is none", "add a [target] with a kind")?;
        let names = || self.subjects.iter().filter_map(|subject| subject.name.as_ref());
        names().try_for_each(|name| is_directory("target.name", name))?;
        are_distinct("target.name", names())?;
        for subject in &self.subjects {
            self.check_subject(subject).map_err(|why| subject.failed(why))?;
        }
        self.workloads.iter().try_for_each(|workload| {
            let has_target = self.subjects.iter().any(|subject| subject.takes_part(workload));
            let idle = format!("workload `{}`: no target takes part in it", workload.name);
            ensure(has_target, idle, "add it to some target's workloads, or remove it")
        })
    }

    fn check_subject(&self, subject: &Subject) -> Checked {
        let all: Vec<&str> = self.workloads.iter().map(|workload| workload.name.as_str()).collect();
        if let Some(named) = &subject.workloads {
            named.iter().try_for_each(|name| is_one_of("workloads:", name, &all))?;
            ensure(!named.is_empty(), "workloads names none", "leave it out for all")?;
        }
        own_flags("target.load", &subject.load)?;
        for workload in self.workloads.iter().filter(|workload| subject.takes_part(workload)) {
            let Workload { name, serve, write_cap, .. } = workload;
            let is_possible = subject.is_weir() || serve.is_empty() && write_cap.is_none();
            let not_ours = format!("workload `{name}`: serve and write_cap need a target of kind weir");
            ensure(is_possible, not_ours, "remove them")?;
            let is_of_model = |of: &Subject| matches!(of.target, Target::Simulated(_));
            let is_possible = workload.args.is_empty() || !self.subjects.iter().all(is_of_model);
            let no_load = format!(
                "workload `{name}`: args are flags of weir load, which a target of kind simulated does not run"
            );
            ensure(is_possible, no_load, "remove them")?;
            let is_possible = write_cap.is_none() || writes_in_one_place(&subject.target);
            let mixed = format!("workload.write_cap of `{name}` needs private databases only, or file only");
            ensure(is_possible, mixed, "remove it, or set target.store")?;
        }
        check_target(&subject.target)
    }

    /// What is said of databases must be said of some that there are.
    fn check_sections(&self) -> Checked {
        for (section, settings, engine) in
            [(POSTGRES, &self.postgres, Engine::Postgres), (MARIADB, &self.mariadb, Engine::MariaDb)]
        {
            let is_used = self.databases().any(|database| database.engine == engine);
            let unused = format!("{section}: the target does not use a {section} of the lab's own");
            let hint = format!("remove the section, or set target.store = \"{section}\"");
            ensure(settings.is_none() || is_used, unused, hint)?;
        }
        let is_idle = self.limits.memory.is_some() && self.databases().next().is_none();
        ensure(!is_idle, "limits.memory: the lab starts no database here", "remove it")
    }
}

impl Subject {
    pub(super) fn takes_part(&self, workload: &Workload) -> bool {
        self.workloads.as_ref().is_none_or(|names| names.contains(&workload.name))
    }

    fn is_weir(&self) -> bool {
        matches!(self.target, Target::Weir { .. })
    }
}

/// Whether either the lab's own databases do all the writing, or the server does.
fn writes_in_one_place(target: &Target) -> bool {
    let Target::Weir { store, .. } = target else { return false };
    let are = |names: &[&str]| store.iter().all(|name| names.contains(&name.as_str()));
    are(&[POSTGRES, MARIADB]) || are(&[EMBEDDED])
}

fn check_target(target: &Target) -> Checked {
    match target {
        Target::Weir { store, replica, args, flush_delay, quota, link, servers } => {
            let is_own = |name: &String| [EMBEDDED, POSTGRES, MARIADB].contains(&name.as_str());
            let known = |name: &String| is_own(name) || Cluster::of(name).is_some() || name.contains(':');
            let names = [EMBEDDED, "memory:", POSTGRES, MARIADB, "cassandra", "patroni", "a store URL"];
            let mut unknown = store.iter().filter(|name| !known(name));
            unknown.try_for_each(|name| is_one_of("target.store", name, &names))?;
            ensure(!store.is_empty(), "target.store has none", "name at least one, as in store = \"file\"")?;
            let is_alone = target.cluster().is_none() || store.len() == 1;
            ensure(is_alone, "target.store: a cluster is no shard", "name it alone")?;
            check_servers(*servers, store, link.is_some())?;
            let can_follow = !replica || store.iter().all(|name| name == POSTGRES);
            ensure(can_follow, "target.replica: not all stores are \"postgres\"", "remove replica")?;
            let can_delay = flush_delay.is_none() || store.iter().all(is_own);
            let hint = "set target.store to \"file\", \"postgres\" or \"mariadb\", or remove flush_delay";
            ensure(can_delay, "target.flush_delay: only stores of the lab's own can be slowed down", hint)?;
            flush_delay.iter().try_for_each(|delay| is_not_zero("target.flush_delay", *delay))?;
            check_quota(quota, target)?;
            link.iter().try_for_each(check_link)?;
            own_server_flags("target.args", args)
        }
        Target::Command(commands) => {
            check_quota(&commands.quota, target)?;
            check_commands(commands)
        }
        Target::Url { url } => {
            let is_address = address(url).is_some();
            let hint = "write http://HOST:PORT or https://HOST:PORT";
            ensure(is_address, format!("target.url `{url}` is no address"), hint)
        }
        Target::Simulated(model) => model.check().map_err(|why| why.at("target.station")),
    }
}

fn check_servers(servers: u32, store: &[String], has_link: bool) -> Checked {
    ensure(servers > 0, "target.servers 0: nobody would answer", "use at least 1")?;
    let is_shared =
        |name: &String| Cluster::of(name) == Some(Cluster::Cassandra) || name.starts_with("cassandra:");
    let may = servers == 1 || store.iter().all(is_shared) && !has_link;
    let what =
        format!("target.servers {servers}: only Cassandra is shared by servers, and without target.link");
    ensure(may, what, "set servers = 1")
}

fn check_quota(quota: &Quota, target: &Target) -> Checked {
    let parts = [("server", quota.server), ("generator", quota.generator), ("database", quota.database)];
    for (part, cores) in parts.into_iter().filter_map(|(part, cores)| Some((part, cores?))) {
        let is_known = (QUOTA_LEAST..=1024.0).contains(&cores);
        let what =
            format!("target.quota.{part} {cores}: at least {QUOTA_LEAST} cores’ worth of processor time");
        ensure(is_known, what, format!("write {part} = 0.5"))?;
    }
    let is_idle = quota.database.is_some() && target.databases().is_empty();
    ensure(!is_idle, "target.quota.database: the lab starts no database here", "remove it")
}

fn check_link(link: &Link) -> Checked {
    let does_something = link.rate.is_some() || link.delay.is_some();
    let hint = "write link = { rate = \"10mbit\", delay = \"20ms\" }";
    ensure(does_something, "target.link does nothing", hint)?;
    let Some(rate) = link.rate else { return Ok(()) };
    let what = format!("target.link.rate {rate}: at least 100kbit");
    ensure(rate.0 >= LINK_RATE_LEAST, what, "write rate = \"10mbit\"")
}

fn check_commands(commands: &Commands) -> Checked {
    let Commands { ready, tls: _, files, fresh: _, quota: _, processes } = commands;
    let is_path = ready.starts_with('/') && !ready.contains(|c: char| c.is_whitespace() || c.is_control());
    ensure(is_path, format!("target.ready `{ready}` is no path"), "write ready = \"/\"")?;
    for (name, text) in files {
        // Inside the directory, and not below another one that nobody makes.
        let is_plain = !name.contains('/') && !["", ".", ".."].contains(&name.as_str());
        ensure(is_plain, format!("target.files `{name}`: a file name without folders"), "rename it")?;
        placeholders(&format!("target.files `{name}`"), text)?;
    }
    are_distinct("target.process.part", processes.iter().map(|process| &process.part))?;
    for process in processes {
        let part = &process.part;
        is_directory("target.process.part", part)?;
        let is_own = OWN_PARTS.contains(&part.as_str());
        ensure(!is_own, format!("target.process.part `{part}` is the lab's own"), "rename it")?;
        let empty = format!("target.process `{part}`: command is empty");
        ensure(!process.command.is_empty(), empty, "name its program")?;
        let mut words = process.command.iter().chain(&process.version);
        words.try_for_each(|word| placeholders(&format!("target.process `{part}`"), word))?;
    }
    let has_server = processes.iter().any(|process| process.part == SERVER);
    ensure(has_server, format!("target.process: none is the {SERVER}"), format!("write part = \"{SERVER}\""))
}

fn placeholders(key: &str, text: &str) -> Checked {
    let known: Vec<String> = PLACEHOLDERS.iter().map(|(name, _)| format!("{{{name}}}")).collect();
    fill(text, |name| is_known(name).then(String::new)).map(drop).map_err(|name| {
        Error::input(format!("{key} has {{{name}}}, which stands for nothing"))
            .hint(format!("use {}", known.join(", ")))
    })
}

/// What `weir load --clients` takes.
const CLIENTS_MOST: u32 = 100_000;

/// Clients of the levels: from at least 1 upwards.
fn ascend(key: &str, levels: &[u32]) -> Checked {
    let ascends = levels.first().is_some_and(|first| *first > 0) && levels.is_sorted_by(|a, b| a < b);
    let what = format!("{key} {levels:?}: client counts must ascend from at least 1");
    ensure(ascends, what, "write levels = [1, 2, 4, 8], as a flag --levels 1,2,4,8")?;
    are_possible(key, levels.last().copied())
}

pub(super) fn are_possible(key: &str, clients: Option<u32>) -> Checked {
    let clients = clients.unwrap_or_default();
    let what = format!("{key}: {clients} clients; the most are {CLIENTS_MOST}");
    ensure(clients <= CLIENTS_MOST, what, "write fewer")
}

fn are_distinct<'a>(key: &str, mut names: impl Iterator<Item = &'a String>) -> Checked {
    let mut seen = BTreeSet::new();
    names.try_for_each(|name| {
        ensure(seen.insert(name), format!("{key} `{name}` stands twice"), "rename or remove one")
    })
}

/// It becomes part of file names and of anchors in the report.
fn is_name(key: &str, name: &str) -> Checked {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_name = !name.is_empty() && name.chars().all(fits);
    ensure(is_name, format!("{key} `{name}`: a name is letters, digits, _ and -"), "rename it")
}

/// It becomes a directory, a log file and a word of counters.
fn is_directory(key: &str, name: &str) -> Checked {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_name = name.starts_with(|c: char| c != '-') && name.chars().all(fits);
    ensure(is_name, format!("{key} `{name}`: a name is lower-case letters, digits and -"), "rename it")
}

fn own_flags(key: &str, args: &[String]) -> Checked {
    let Some((flag, instead)) = own_flag(args) else { return Ok(()) };
    Err(Error::input(format!("{key} has {flag}, which the lab sets itself")).hint(format!("use {instead}")))
}

/// The same of a server, whose faults the file may name.
fn own_server_flags(key: &str, args: &[String]) -> Checked {
    let others: Vec<String> = args.iter().filter(|arg| !arg.starts_with(INJECT)).cloned().collect();
    own_flags(key, &others)
}

/// The first of the flags that the lab sets itself, and the key that decides instead.
pub fn own_flag(args: &[String]) -> Option<(&'static str, &'static str)> {
    let mut flags = args.iter().map(|arg| arg.split('=').next().unwrap_or(arg));
    flags.find_map(|flag| OWN_FLAGS.iter().find(|(own, _)| *own == flag)).copied()
}
