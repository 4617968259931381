//! What an experiment file may say beyond what its types can: checked before anything is started.
//!
//! Every complaint is one line: which key, what is wrong, what to do.

use super::{Engine, Experiment, FJALL, MARIADB, POSTGRES, Target};
use crate::lab::sampler;
use std::collections::BTreeSet;

/// A smaller cap on writing would make every start of a database fail.
const WRITE_CAP_LEAST: u64 = 64 << 10;

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
    ("--no-preload", "nothing: the lab preloads once per repetition"),
];

impl Experiment {
    /// Checks what the types cannot say; again after flags have replaced parts of the file.
    pub fn check(&self) -> Result<(), String> {
        is_name("name", &self.name)?;
        ascend("levels", &self.levels)?;
        if self.repetitions == 0 {
            return Err("repetitions 0: nothing would be measured; use at least 1".into());
        }
        for (key, span) in [("warmup", self.warmup), ("window", self.window)] {
            if span.0.is_zero() {
                return Err(format!("{key} 0s: it must be longer than zero; write {key} = \"1s\""));
            }
        }
        self.check_workloads()?;
        self.check_target()?;
        let parts = self.parts();
        match self.cores.parts.keys().find(|part| !parts.contains(part)) {
            Some(part) => Err(format!(
                "cores.{part}: this experiment has no such part; use {}",
                if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
            )),
            None => Ok(()),
        }
    }

    fn check_workloads(&self) -> Result<(), String> {
        if self.workloads.is_empty() {
            return Err(
                "workload: there is none; add a [[workload]] with a name, as in experiments/quick.toml"
                    .into(),
            );
        }
        let mut names = BTreeSet::new();
        for workload in &self.workloads {
            is_name("workload.name", &workload.name)?;
            if !names.insert(&workload.name) {
                return Err(format!(
                    "workload.name `{}` stands twice: the report could not tell them apart; rename or remove one",
                    workload.name
                ));
            }
            own_flags("workload.args", &workload.args)?;
            own_flags("workload.serve", &workload.serve)?;
            if let Some(levels) = &workload.levels {
                ascend("workload.levels", levels)?;
            }
            let starts_server = matches!(self.target, Target::Weir { .. });
            let needs_ours = !workload.serve.is_empty() || workload.write_cap.is_some();
            if needs_ours && !starts_server {
                return Err(format!(
                    "workload `{}` has serve or write_cap, but the lab does not start this target; remove them",
                    workload.name
                ));
            }
            if workload.write_cap.is_some() && !self.writes_in_one_place() {
                return Err(format!(
                    "workload.write_cap of `{}`: the stores are not all databases of the lab's own, nor all fjall; \
                     remove it, or set target.store",
                    workload.name
                ));
            }
            if workload.write_cap.is_some_and(|cap| cap.0 < WRITE_CAP_LEAST) {
                return Err(format!(
                    "workload.write_cap of `{}` is below 64KiB a second, which no database survives; write \"10MiB\"",
                    workload.name
                ));
            }
            if workload.printed.is_some() && self.printed.is_none() {
                return Err(format!(
                    "workload.printed of `{}`: no table of printed rows is named; add [printed] with its file",
                    workload.name
                ));
            }
        }
        Ok(())
    }

    /// Whether either the lab's own databases do all the writing, or the server does.
    fn writes_in_one_place(&self) -> bool {
        let Target::Weir { store, .. } = &self.target else { return false };
        let private = store.iter().filter(|name| [POSTGRES, MARIADB].contains(&name.as_str())).count();
        private == store.len() || store.iter().all(|name| name == FJALL)
    }

    fn check_target(&self) -> Result<(), String> {
        match &self.target {
            Target::Weir { store, replica, args } => {
                let known = |name: &&String| [FJALL, POSTGRES, MARIADB].contains(&name.as_str());
                if let Some(unknown) = store.iter().find(|name| !known(name) && !name.contains(':')) {
                    return Err(format!(
                        "target.store `{unknown}` is unknown; use fjall, memory:, postgres, mariadb or a store URL"
                    ));
                }
                if store.is_empty() {
                    return Err("target.store has none; name at least one, as in store = \"fjall\"".into());
                }
                if *replica && store.iter().any(|name| name != POSTGRES) {
                    return Err("target.replica: only PostgreSQL servers of the lab's own are followed; \
                                set target.store to \"postgres\", or remove replica"
                        .into());
                }
                own_flags("target.args", args)?;
            }
            Target::Url { url } if sampler::address(url).is_none() => {
                return Err(format!("target.url `{url}` is no address; write http://HOST:PORT"));
            }
            Target::Url { .. } => {}
            Target::Simulated(model) => model.check().map_err(|why| format!("target.station: {why}"))?,
        }
        let databases = self.databases();
        let has = |engine| databases.iter().any(|database| database.engine == engine);
        for (section, is_there, engine) in [
            (POSTGRES, self.postgres.is_some(), Engine::Postgres),
            (MARIADB, self.mariadb.is_some(), Engine::MariaDb),
        ] {
            if is_there && !has(engine) {
                return Err(format!(
                    "{section}: the target does not use a {section} of the lab's own; remove the section, \
                     or set target.store = \"{section}\""
                ));
            }
        }
        if self.limits.memory.is_some() && databases.is_empty() {
            return Err("limits.memory: the lab starts no database here; remove it".into());
        }
        Ok(())
    }
}

/// Clients of the levels: from at least 1 upwards.
fn ascend(key: &str, levels: &[u32]) -> Result<(), String> {
    if levels.is_empty() || levels[0] == 0 || !levels.is_sorted_by(|a, b| a < b) {
        return Err(format!(
            "{key} {levels:?}: client counts must ascend from at least 1; write levels = [1, 2, 4, 8]"
        ));
    }
    Ok(())
}

fn is_name(key: &str, name: &str) -> Result<(), String> {
    // It becomes part of file names and of anchors in the report.
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || !name.chars().all(fits) {
        return Err(format!("{key} `{name}`: a name is letters, digits, _ and -; rename it"));
    }
    Ok(())
}

fn own_flags(key: &str, args: &[String]) -> Result<(), String> {
    for arg in args {
        let flag = arg.split('=').next().unwrap_or(arg);
        if let Some((flag, instead)) = OWN_FLAGS.iter().find(|(own, _)| *own == flag) {
            return Err(format!("{key} has {flag}, which the lab sets itself; use {instead}"));
        }
    }
    Ok(())
}
