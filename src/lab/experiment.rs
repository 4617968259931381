//! What to measure, as a file: an [`Experiment`] read from TOML and checked before anything is started.
//!
//! Pure: text in, values or one line of complaint out. It knows which names may stand in the file, not how they are
//! carried out; that is [`super::harness`].

use super::simulated;
use crate::units::Span;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// An experiment: workloads × levels × repetitions against one target.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Short name, part of the results directory's: `quick`.
    pub name: String,
    /// One line for the report's head.
    pub title: String,
    /// Clients at each level, ascending.
    pub levels: Vec<u32>,
    /// Runs of every workload at every level.
    pub repetitions: u32,
    /// The unmeasured part of each trial.
    pub warmup: Span,
    /// The measured part of each trial.
    pub window: Span,
    /// What the order of trials and the operation streams are drawn from.
    #[serde(default = "one")]
    pub seed: u64,
    /// What is measured.
    pub target: Target,
    /// Settings of the lab's own PostgreSQL; only where the target's store is `postgres`.
    pub postgres: Option<PostgresSettings>,
    /// Cores of single parts, where the lab shall not choose: `server = [0]`.
    #[serde(default)]
    pub cores: BTreeMap<String, Vec<usize>>,
    /// Rows somebody printed of the same experiment, to stand beside what is measured.
    pub printed: Option<PrintedSource>,
    /// The workloads, in the report's order.
    #[serde(rename = "workload", default)]
    pub workloads: Vec<Workload>,
    /// The text this was read from.
    #[serde(skip)]
    pub toml: String,
}

/// What the requests go to.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Target {
    /// A `weir serve` of the lab's own, started anew for each repetition.
    Weir {
        /// `fjall` (a private directory), `memory:`, `postgres` (a private PostgreSQL) or any other store URL.
        #[serde(default = "fjall")]
        store: String,
        /// Further flags of `weir serve`.
        #[serde(default)]
        args: Vec<String>,
    },
    /// A server that runs already; the lab sees of it what its answers show.
    Url {
        /// `http://HOST:PORT`.
        url: String,
    },
    /// A queueing model in place of a system: the whole lab runs in milliseconds, and the answer is known.
    Simulated(#[serde(deserialize_with = "model")] simulated::Model),
}

/// How the lab's own PostgreSQL is set up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresSettings {
    /// Server settings by name, as in `postgresql.conf`.
    #[serde(default, deserialize_with = "settings")]
    pub settings: BTreeMap<String, String>,
}

/// One workload of the load generator.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its name, as `weir load --workload` knows it.
    pub name: String,
    /// One sentence: what it asks of the target.
    #[serde(default)]
    pub about: String,
    /// Further flags of `weir load`.
    #[serde(default)]
    pub args: Vec<String>,
    /// What the printed table calls it, where that is another name.
    pub printed: Option<String>,
}

/// Where printed rows stand.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrintedSource {
    /// A CSV table, as `weir audit` reads it; relative to the experiment file.
    pub file: PathBuf,
    /// Which rows of it: those with this in their column `report`.
    #[serde(default)]
    pub report: String,
}

/// The parts an experiment may place on cores.
pub const PARTS: [&str; 3] = [SERVER, DATABASE, GENERATOR];
/// The process that is measured.
pub const SERVER: &str = "server";
/// The database behind it, where there is one.
pub const DATABASE: &str = "database";
/// `weir load`.
pub const GENERATOR: &str = "generator";

/// The store name that stands for the lab's own PostgreSQL.
pub const POSTGRES: &str = "postgres";
/// The store name that stands for the embedded store in a private directory.
pub const FJALL: &str = "fjall";

/// What the workloads ask for, where the file does not say.
const ABOUT: &[(&str, &str)] = &[
    ("get_popular", "Reads of a few hot keys: what a cache answers."),
    ("get_all", "Reads spread evenly over many keys: what a small cache misses."),
    (
        "put_all",
        "Writes, nine PUT to one DELETE, each client over keys of its own: what the store must make durable.",
    ),
    ("mixed", "Half reads, 30 % PUT and 20 % DELETE over the same keys; a read may find nothing."),
];

/// Flags the lab sets itself, and the file's key that decides instead.
const OWN_FLAGS: &[(&str, &str)] = &[
    ("--listen", "nothing: the lab picks a free port"),
    ("--store", "target.store"),
    ("--workload", "workload.name"),
    ("--clients", "levels"),
    ("--warmup", "warmup"),
    ("--window", "window"),
    ("--seed", "seed"),
    ("--events", "nothing: the lab always listens"),
    ("--no-preload", "nothing: the lab preloads once per repetition"),
];

impl Experiment {
    /// Reads and checks an experiment. The error is one line: which key, what is wrong, what to do.
    pub fn parse(text: &str) -> Result<Experiment, String> {
        let mut experiment: Experiment = toml::from_str(text).map_err(|error| one_line(text, &error))?;
        for workload in &mut experiment.workloads {
            if workload.about.is_empty() {
                workload.about = about(&workload.name);
            }
        }
        text.clone_into(&mut experiment.toml);
        experiment.check()?;
        Ok(experiment)
    }

    /// Checks what the types cannot say; again after flags have replaced parts of the file.
    pub fn check(&self) -> Result<(), String> {
        is_name("name", &self.name)?;
        if self.levels.is_empty() || self.levels[0] == 0 || !self.levels.is_sorted_by(|a, b| a < b) {
            return Err(format!(
                "levels {:?}: client counts must ascend from at least 1; write levels = [1, 2, 4, 8]",
                self.levels
            ));
        }
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
        match self.cores.keys().find(|part| !PARTS.contains(&part.as_str())) {
            Some(part) => Err(format!("cores.{part}: no such part; use {}", PARTS.join(", "))),
            None => Ok(()),
        }
    }

    /// The parts this experiment has, in the report's order. A model has none: it uses no core of this machine.
    pub fn parts(&self) -> Vec<&'static str> {
        match &self.target {
            Target::Weir { store, .. } if store == POSTGRES => vec![SERVER, DATABASE, GENERATOR],
            Target::Weir { .. } => vec![SERVER, GENERATOR],
            Target::Url { .. } => vec![GENERATOR],
            Target::Simulated(_) => vec![],
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
            if workload.printed.is_some() && self.printed.is_none() {
                return Err(format!(
                    "workload.printed of `{}`: no table of printed rows is named; add [printed] with its file",
                    workload.name
                ));
            }
        }
        Ok(())
    }

    fn check_target(&self) -> Result<(), String> {
        let with_postgres = match &self.target {
            Target::Weir { store, args } => {
                if ![FJALL, POSTGRES].contains(&store.as_str()) && !store.contains(':') {
                    return Err(format!(
                        "target.store `{store}` is unknown; use fjall, memory:, postgres or a store URL"
                    ));
                }
                own_flags("target.args", args)?;
                store == POSTGRES
            }
            Target::Url { url } => {
                if super::sampler::address(url).is_none() {
                    return Err(format!("target.url `{url}` is no address; write http://HOST:PORT"));
                }
                false
            }
            Target::Simulated(model) => {
                model.check().map_err(|why| format!("target.station: {why}"))?;
                false
            }
        };
        if self.postgres.is_some() && !with_postgres {
            return Err("postgres: the target does not use the lab's PostgreSQL; remove the section, \
                        or set target.store = \"postgres\""
                .into());
        }
        Ok(())
    }
}

/// What workload `name` asks for, in one sentence; the name in words where the table has none.
fn about(name: &str) -> String {
    match ABOUT.iter().find(|(known, _)| *known == name) {
        Some((_, about)) => (*about).to_owned(),
        None => format!("The workload {}.", name.replace('_', " ")),
    }
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

/// The parser's complaint on one line, with the line of the file.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let what = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
    let remedy = match () {
        _ if what.starts_with("unknown field") => "; correct or remove it",
        _ if what.starts_with("missing field") => "; add it, as in experiments/quick.toml",
        _ => "; see docs/reference.md for the form",
    };
    match error.span() {
        Some(span) => {
            let line = text[..span.start.min(text.len())].matches('\n').count() + 1;
            format!("line {line}: {what}{remedy}")
        }
        None => format!("{what}{remedy}"),
    }
}

/// Settings as people write them: text, numbers or switches.
fn settings<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let values = BTreeMap::<String, toml::Value>::deserialize(deserializer)?;
    let text = |(name, value): (String, toml::Value)| match value {
        toml::Value::String(text) => Ok((name, text)),
        toml::Value::Integer(number) => Ok((name, number.to_string())),
        toml::Value::Float(number) => Ok((name, number.to_string())),
        toml::Value::Boolean(on) => Ok((name, if on { "on" } else { "off" }.to_owned())),
        _ => Err(serde::de::Error::custom(format!("setting `{name}` is neither text, number nor switch"))),
    };
    values.into_iter().map(text).collect()
}

/// A model as its stations, one `[[target.station]]` each.
fn model<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<simulated::Model, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Stations {
        #[serde(rename = "station")]
        stations: Vec<simulated::Station>,
    }
    let Stations { stations } = Stations::deserialize(deserializer)?;
    Ok(simulated::Model { stations })
}

fn one() -> u64 {
    1
}

fn fjall() -> String {
    FJALL.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
name = "small"
title = "A small one"
levels = [1, 4]
repetitions = 2
warmup = "300ms"
window = "1s"
[target]
kind = "weir"
store = "postgres"
args = ["--cache-entries", "10"]
[postgres]
settings = { shared_buffers = "128MB", fsync = true, max_connections = 50 }
[cores]
server = [0]
[[workload]]
name = "get_popular"
args = ["--keys", "1000"]
[[workload]]
name = "put_rare"
"#;

    #[test]
    fn an_experiment_reads_as_written() {
        let experiment = Experiment::parse(SMALL).unwrap();
        assert_eq!((experiment.name.as_str(), experiment.seed), ("small", 1));
        assert_eq!(experiment.levels, [1, 4]);
        assert_eq!(experiment.parts(), [SERVER, DATABASE, GENERATOR]);
        assert_eq!(experiment.toml, SMALL);
        let settings = experiment.postgres.unwrap().settings;
        let settings: Vec<_> = settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(settings, [("fsync", "on"), ("max_connections", "50"), ("shared_buffers", "128MB")]);
        assert_eq!(experiment.workloads[0].about, "Reads of a few hot keys: what a cache answers.");
        assert_eq!(experiment.workloads[1].about, "The workload put rare.");
    }

    #[test]
    fn the_experiments_we_ship_are_valid() {
        for text in
            [include_str!("../../experiments/quick.toml"), include_str!("../../experiments/postgres.toml")]
        {
            let experiment = Experiment::parse(text).unwrap();
            assert_eq!(experiment.workloads.len(), 2, "{}", experiment.name);
        }
    }

    #[test]
    fn what_is_wrong_is_named_in_one_line() {
        for (from, to, complaint) in [
            ("levels = [1, 4]", "levels = []", "levels []"),
            ("levels = [1, 4]", "levels = [4, 1]", "levels [4, 1]"),
            ("levels = [1, 4]", "levels = [0, 1]", "levels [0, 1]"),
            ("levels = [1, 4]", "levels = [1, 1]", "levels [1, 1]"),
            ("levels = [1, 4]", "lvels = [1]", "line 4: unknown field `lvels`"),
            ("levels = [1, 4]", "", "missing field `levels`; add it"),
            ("repetitions = 2", "repetitions = 0", "repetitions 0"),
            ("window = \"1s\"", "window = \"0s\"", "window 0s"),
            ("warmup = \"300ms\"", "warmup = \"soon\"", "a duration is a number with us, ms, s"),
            ("name = \"put_rare\"", "name = \"get_popular\"", "workload.name `get_popular` stands twice"),
            ("name = \"put_rare\"", "name = \"put rare\"", "workload.name `put rare`"),
            ("store = \"postgres\"", "store = \"redis\"", "target.store `redis` is unknown; use fjall"),
            ("store = \"postgres\"", "store = \"fjall\"", "postgres: the target does not use"),
            ("server = [0]", "kitchen = [0]", "cores.kitchen: no such part; use server"),
            ("kind = \"weir\"", "kind = \"weird\"", "unknown variant `weird`"),
            ("store = \"postgres\"", "stor = \"postgres\"", "unknown field `stor`"),
            ("--cache-entries", "--listen", "target.args has --listen, which the lab sets itself"),
            ("\"--keys\"", "\"--seed=3\"", "workload.args has --seed, which the lab sets itself; use seed"),
            ("name = \"small\"", "name = \"a/b\"", "name `a/b`"),
            ("name = \"put_rare\"", "name = \"x\"\nprinted = \"y\"", "workload.printed of `x`: no table"),
            ("[cores]", "[printed]\nrow = \"000\"\n[cores]", "unknown field `row`"),
        ] {
            let text = SMALL.replacen(from, to, 1);
            assert_ne!(text, SMALL, "{from}");
            let error = Experiment::parse(&text).unwrap_err();
            assert!(error.contains(complaint) && !error.contains('\n'), "{to}: {error}");
        }
    }
}
