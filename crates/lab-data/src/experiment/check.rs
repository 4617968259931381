//! What an experiment file may say beyond what its types can: checked before anything is started.
//!
//! Every complaint is one line: which key, what is wrong, what to do.

use super::placeholder::{PLACEHOLDERS, fill, is_known};
use super::{
    Adaptive, Commands, Engine, Experiment, FJALL, GENERATOR, LINK, Link, MARIADB, POSTGRES, Quota, SERVER,
    Subject, Target, Workload, address,
};
use kv::Error;
use std::collections::BTreeSet;
use std::path::{Component, Path};

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
    ("--warmup", "warmup"),
    ("--window", "window"),
    ("--seed", "seed"),
    ("--events", "nothing: the lab always listens"),
    ("--bin", "nothing: the lab has them where [adaptive] asks for it"),
    ("--no-preload", "nothing: the lab preloads once per repetition"),
];

impl Experiment {
    /// Checks what the types cannot say; again after flags have replaced parts of the file.
    pub fn check(&self) -> Result<(), Error> {
        is_name("name", &self.name)?;
        ascend("levels", &self.levels)?;
        if self.repetitions == 0 {
            return Err(Error::input("repetitions 0: nothing would be measured").hint("use at least 1"));
        }
        for (key, span) in [("warmup", self.warmup), ("window", self.window)] {
            if span.0.is_zero() {
                return Err(Error::input(format_args!("{key} 0s: it must be longer than zero"))
                    .hint(format_args!("write {key} = \"1s\"")));
            }
        }
        self.adaptive.as_ref().map_or(Ok(()), |adaptive| self.check_adaptive(adaptive))?;
        self.check_workloads()?;
        self.check_limits()?;
        self.check_subjects()?;
        self.check_sections()?;
        if let Some(interventions) = &self.interventions {
            interventions.check(self)?;
        }
        if let Some(truth) = &self.truth {
            truth.check(self)?;
        }
        let parts = self.parts();
        match self.cores.parts.keys().find(|part| !parts.contains(part)) {
            Some(part) => Err(Error::input(format_args!("cores.{part}: this experiment has no such part"))
                .hint(format_args!(
                    "use {}",
                    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
                ))),
            None => Ok(()),
        }
    }

    fn check_adaptive(&self, adaptive: &Adaptive) -> Result<(), Error> {
        if adaptive.most.0 < self.window.0 {
            return Err(Error::input(format_args!(
                "adaptive.most {} is shorter than the window of {}, which is the least",
                adaptive.most, self.window
            ))
            .hint("lengthen it, or remove [adaptive]"));
        }
        if adaptive.most.0 < Adaptive::LEAST.0 {
            return Err(Error::input(format_args!(
                "adaptive.most {} is shorter than {least}, and nothing shorter is ever known",
                adaptive.most,
                least = Adaptive::LEAST
            ))
            .hint(format_args!(
                "write most = \"{least}\" or more, or \
                 remove [adaptive]",
                least = Adaptive::LEAST
            )));
        }
        for (key, share) in [("goodput", adaptive.goodput), ("latency", adaptive.latency())] {
            if !(share > 0.0 && share < 1.0) {
                return Err(Error::input(format_args!("adaptive.{key} {share} is no share of a mean"))
                    .hint(format_args!("write {key} = 0.02 for ±2 %")));
            }
        }
        Ok(())
    }

    fn check_workloads(&self) -> Result<(), Error> {
        if self.workloads.is_empty() {
            return Err(Error::input("workload: there is none")
                .hint("add a [[workload]] with a name, as in experiments/quick.toml"));
        }
        let mut names = BTreeSet::new();
        for workload in &self.workloads {
            is_name("workload.name", &workload.name)?;
            if !names.insert(&workload.name) {
                return Err(Error::input(format_args!(
                    "workload.name `{}` stands twice: the report could not tell them apart",
                    workload.name
                ))
                .hint("rename or remove one"));
            }
            own_flags("workload.args", &workload.args)?;
            own_flags("workload.serve", &workload.serve)?;
            if let Some(levels) = &workload.levels {
                ascend("workload.levels", levels)?;
            }
            if workload.write_cap.is_some_and(|cap| cap.0 < WRITE_CAP_LEAST) {
                return Err(Error::input(format_args!(
                    "workload.write_cap of `{}` is below 64KiB a second, which no database survives",
                    workload.name
                ))
                .hint("write \"10MiB\""));
            }
            if workload.printed.is_some() && self.printed.is_none() {
                return Err(Error::input(format_args!(
                    "workload.printed of `{}`: no table of printed rows is named",
                    workload.name
                ))
                .hint("add [printed] with its file"));
            }
        }
        Ok(())
    }

    /// Every target, alone and among the others.
    fn check_subjects(&self) -> Result<(), Error> {
        if self.subjects.is_empty() {
            return Err(Error::input("target: there is none")
                .hint("add a [target] with a kind, as in experiments/quick.toml"));
        }
        let mut names = BTreeSet::new();
        for subject in &self.subjects {
            let Some(name) = &subject.name else {
                self.check_subject(subject)?;
                continue;
            };
            is_directory("target.name", name)?;
            if !names.insert(name) {
                return Err(Error::input(format_args!(
                    "target.name `{name}` stands twice: each has a directory"
                ))
                .hint("rename one"));
            }
            self.check_subject(subject).map_err(|why| why.at(format_args!("target `{name}`")))?;
        }
        match self.workloads.iter().find(|workload| !self.subjects.iter().any(|of| takes_part(of, workload)))
        {
            Some(workload) => {
                Err(Error::input(format_args!("workload `{}`: no target takes part in it", workload.name))
                    .hint("add it to some target's workloads, or remove it"))
            }
            None => Ok(()),
        }
    }

    fn check_subject(&self, subject: &Subject) -> Result<(), Error> {
        let all: Vec<&str> = self.workloads.iter().map(|workload| workload.name.as_str()).collect();
        if let Some(named) = &subject.workloads {
            if let Some(unknown) = named.iter().find(|name| !all.contains(&name.as_str())) {
                return Err(Error::input(format_args!("workloads names `{unknown}`, which is none"))
                    .hint(format_args!("use some of {}", all.join(", "))));
            }
            if named.is_empty() {
                return Err(Error::input("workloads names none: nothing would be measured")
                    .hint("leave it out for all"));
            }
        }
        own_flags("target.load", &subject.load)?;
        for workload in self.workloads.iter().filter(|workload| takes_part(subject, workload)) {
            let is_ours = matches!(subject.target, Target::Weir { .. });
            if (!workload.serve.is_empty() || workload.write_cap.is_some()) && !is_ours {
                return Err(Error::input(format_args!(
                    "workload `{}` has serve or write_cap, but the lab starts no weir here",
                    workload.name
                ))
                .hint("remove them"));
            }
            if workload.write_cap.is_some() && !writes_in_one_place(&subject.target) {
                return Err(Error::input(format_args!("workload.write_cap of `{}`: the stores are not all databases of the lab's own, nor all fjall", workload.name)).hint("remove it, or set target.store"));
            }
        }
        check_target(&subject.target)
    }

    /// What is said of databases must be said of some that there are.
    fn check_sections(&self) -> Result<(), Error> {
        for (section, is_there, engine) in [
            (POSTGRES, self.postgres.is_some(), Engine::Postgres),
            (MARIADB, self.mariadb.is_some(), Engine::MariaDb),
        ] {
            if is_there && !self.databases().any(|database| database.engine == engine) {
                return Err(Error::input(format_args!(
                    "{section}: the target does not use a {section} of the lab's own"
                ))
                .hint(format_args!(
                    "remove the section, \
                     or set target.store = \"{section}\""
                )));
            }
        }
        if self.limits.memory.is_some() && self.databases().next().is_none() {
            return Err(Error::input("limits.memory: the lab starts no database here").hint("remove it"));
        }
        Ok(())
    }
}

fn takes_part(subject: &Subject, workload: &Workload) -> bool {
    subject.workloads.as_ref().is_none_or(|names| names.contains(&workload.name))
}

/// Whether either the lab's own databases do all the writing, or the server does.
fn writes_in_one_place(target: &Target) -> bool {
    let Target::Weir { store, .. } = target else { return false };
    let private = store.iter().filter(|name| [POSTGRES, MARIADB].contains(&name.as_str())).count();
    private == store.len() || store.iter().all(|name| name == FJALL)
}

fn check_target(target: &Target) -> Result<(), Error> {
    match target {
        Target::Weir { store, replica, args, flush_delay, quota, link } => {
            let is_own = |name: &String| [FJALL, POSTGRES, MARIADB].contains(&name.as_str());
            if let Some(unknown) = store.iter().find(|name| !is_own(name) && !name.contains(':')) {
                return Err(Error::input(format_args!("target.store `{unknown}` is unknown"))
                    .hint("use fjall, memory:, postgres, mariadb or a store URL"));
            }
            if store.is_empty() {
                return Err(
                    Error::input("target.store has none").hint("name at least one, as in store = \"fjall\"")
                );
            }
            if *replica && store.iter().any(|name| name != POSTGRES) {
                return Err(Error::input(
                    "target.replica: only PostgreSQL servers of the lab's own are followed",
                )
                .hint("set target.store to \"postgres\", or remove replica"));
            }
            if flush_delay.is_some() && !store.iter().all(is_own) {
                return Err(Error::input(
                    "target.flush_delay: only stores of the lab's own can be slowed down",
                )
                .hint("set target.store to \"fjall\", \"postgres\" or \"mariadb\", or remove flush_delay"));
            }
            if flush_delay.is_some_and(|delay| delay.0.is_zero()) {
                return Err(Error::input("target.flush_delay 0s: it delays nothing")
                    .hint("remove it, or write \"2ms\""));
            }
            check_quota(quota, target)?;
            link.as_ref().map_or(Ok(()), check_link)?;
            own_flags("target.args", args)
        }
        Target::Command(commands) => check_commands(commands),
        Target::Url { url } if address(url).is_none() => {
            Err(Error::input(format_args!("target.url `{url}` is no address")).hint("write http://HOST:PORT"))
        }
        Target::Url { .. } => Ok(()),
        Target::Simulated(model) => model.check().map_err(|why| why.at(format_args!("target.station"))),
    }
}

fn check_quota(quota: &Quota, target: &Target) -> Result<(), Error> {
    for (part, cores) in
        [("server", quota.server), ("generator", quota.generator), ("database", quota.database)]
    {
        if cores.is_some_and(|cores| !(QUOTA_LEAST..=1024.0).contains(&cores)) {
            return Err(Error::input(format_args!(
                "target.quota.{part} {}: cores’ worth of processor time, at least {QUOTA_LEAST}",
                cores.unwrap_or_default()
            ))
            .hint(format_args!("write {part} = 0.5")));
        }
    }
    match quota.database.is_some() && target.databases().is_empty() {
        true => Err(Error::input("target.quota.database: the lab starts no database here").hint("remove it")),
        false => Ok(()),
    }
}

fn check_link(link: &Link) -> Result<(), Error> {
    match link {
        Link { rate: None, delay: None } => Err(Error::input("target.link does nothing")
            .hint("write link = { rate = \"10mbit\", delay = \"20ms\" }, or one of them")),
        Link { rate: Some(rate), .. } if rate.0 < LINK_RATE_LEAST => {
            Err(Error::input(format_args!("target.link.rate {rate}: at least 100kbit"))
                .hint("write rate = \"10mbit\""))
        }
        _ => Ok(()),
    }
}

fn check_commands(commands: &Commands) -> Result<(), Error> {
    let Commands { ready, files, fresh: _, processes } = commands;
    if !ready.starts_with('/') || ready.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(
            Error::input(format_args!("target.ready `{ready}` is no path")).hint("write ready = \"/\"")
        );
    }
    for (name, text) in files {
        // Inside the directory, and not below another one that nobody makes.
        let mut components = Path::new(name).components();
        if !matches!((components.next(), components.next()), (Some(Component::Normal(_)), None)) {
            return Err(Error::input(format_args!("target.files `{name}`: a file name without folders"))
                .hint("rename it"));
        }
        placeholders(&format!("target.files `{name}`"), text)?;
    }
    let mut parts = BTreeSet::new();
    for process in processes {
        is_directory("target.process.part", &process.part)?;
        if OWN_PARTS.contains(&process.part.as_str()) {
            return Err(Error::input(format_args!(
                "target.process.part `{}` is the lab's own",
                process.part
            ))
            .hint("rename it"));
        }
        if !parts.insert(process.part.as_str()) {
            return Err(Error::input(format_args!("target.process.part `{}` stands twice", process.part))
                .hint("rename one"));
        }
        if process.command.is_empty() {
            return Err(Error::input(format_args!("target.process `{}`: command is empty", process.part))
                .hint("name its program"));
        }
        for word in process.command.iter().chain(&process.version) {
            placeholders(&format!("target.process `{}`", process.part), word)?;
        }
    }
    match parts.contains(SERVER) {
        true => Ok(()),
        false => {
            Err(Error::input(format_args!("target.process: none is the {SERVER}, which the load goes to"))
                .hint(format_args!("write part = \"{SERVER}\" for one")))
        }
    }
}

fn placeholders(key: &str, text: &str) -> Result<(), Error> {
    let known: Vec<String> = PLACEHOLDERS.iter().map(|(name, _)| format!("{{{name}}}")).collect();
    fill(text, |name| is_known(name).then(String::new)).map(drop).map_err(|name| {
        Error::input(format_args!("{key} has {{{name}}}, which stands for nothing"))
            .hint(format_args!("use {}", known.join(", ")))
    })
}

/// Clients of the levels: from at least 1 upwards.
fn ascend(key: &str, levels: &[u32]) -> Result<(), Error> {
    if levels.is_empty() || levels[0] == 0 || !levels.is_sorted_by(|a, b| a < b) {
        return Err(Error::input(format_args!(
            "{key} {levels:?}: client counts must ascend from at least 1"
        ))
        .hint("write levels = [1, 2, 4, 8]"));
    }
    Ok(())
}

fn is_name(key: &str, name: &str) -> Result<(), Error> {
    // It becomes part of file names and of anchors in the report.
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(fits) {
        return Err(Error::input(format_args!("{key} `{name}`: a name is letters, digits, _ and -"))
            .hint("rename it"));
    }
    Ok(())
}

/// It becomes a directory, a log file and a word of counters.
fn is_directory(key: &str, name: &str) -> Result<(), Error> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !name.starts_with(|c: char| c != '-') || !name.chars().all(fits) {
        return Err(Error::input(format_args!("{key} `{name}`: a name is lower-case letters, digits and -"))
            .hint("rename it"));
    }
    Ok(())
}

fn own_flags(key: &str, args: &[String]) -> Result<(), Error> {
    for arg in args {
        let flag = arg.split('=').next().unwrap_or(arg);
        if let Some((flag, instead)) = OWN_FLAGS.iter().find(|(own, _)| *own == flag) {
            return Err(Error::input(format_args!("{key} has {flag}, which the lab sets itself"))
                .hint(format_args!("use {instead}")));
        }
    }
    Ok(())
}
