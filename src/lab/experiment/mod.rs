//! What to measure, as a file: an [`Experiment`] read from TOML and checked before anything is started.
//!
//! Pure: text in, values or one line of complaint out. It knows which names may stand in the file, not how they are
//! carried out; that is [`super::harness`].

mod check;

use super::simulated;
use crate::units::{Size, Span};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

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
    /// Settings of the lab's own PostgreSQL servers; only where a store is `postgres`.
    pub postgres: Option<DatabaseSettings>,
    /// Settings of the lab's own MariaDB servers; only where a store is `mariadb`.
    pub mariadb: Option<DatabaseSettings>,
    /// What the lab's own databases may use.
    #[serde(default)]
    pub limits: Limits,
    /// Cores of single parts, where the lab shall not choose.
    #[serde(default)]
    pub cores: Cores,
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
        /// One store, or several as shards: `fjall` (a private directory), `memory:`, `postgres` or `mariadb` (a private
        /// server) or any other store URL.
        #[serde(default = "fjall", deserialize_with = "one_or_many")]
        store: Vec<String>,
        /// Whether a private PostgreSQL follows all shards by logical replication and answers reads while one is away.
        #[serde(default)]
        replica: bool,
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

/// How the lab's own databases of one kind are set up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseSettings {
    /// Server settings by name, as in `postgresql.conf` or `my.cnf`.
    #[serde(default, deserialize_with = "settings")]
    pub settings: BTreeMap<String, String>,
}

/// What the lab's own databases may use.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Memory of each, page cache included.
    pub memory: Option<Size>,
}

/// Which part runs on which cores.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Cores {
    /// How many cores the machine has that the rest was written for; on a smaller one the parts are scaled down.
    pub of: Option<usize>,
    /// Cores by part: `server = [0]`.
    #[serde(flatten)]
    pub parts: BTreeMap<String, Vec<usize>>,
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

/// One workload of the load generator.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its name in the report.
    pub name: String,
    /// What `weir load --workload` calls it, where that is not its name.
    pub workload: Option<String>,
    /// One sentence: what it asks of the target; empty for the load generator's own.
    #[serde(default)]
    pub about: String,
    /// Further flags of `weir load`.
    #[serde(default)]
    pub args: Vec<String>,
    /// Further flags of `weir serve`: the server is started again for it, over the same store.
    #[serde(default)]
    pub serve: Vec<String>,
    /// Clients at each level, in place of the experiment's.
    pub levels: Option<Vec<u32>>,
    /// Most bytes a second that the stores' databases together (the server, where there is none) may write to their disk.
    pub write_cap: Option<Size>,
    /// What the printed table calls it, where that is another name.
    pub printed: Option<String>,
}

impl Workload {
    /// What `weir load` calls it.
    pub fn of_load(&self) -> &str {
        self.workload.as_deref().unwrap_or(&self.name)
    }
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

/// The process that is measured.
pub const SERVER: &str = "server";
/// The database behind it, where there is one; of several, what their names begin with.
pub const DATABASE: &str = "database";
/// The database that follows the others.
pub const REPLICA: &str = "replica";
/// `weir load`.
pub const GENERATOR: &str = "generator";

/// The store name that stands for a PostgreSQL of the lab's own.
pub const POSTGRES: &str = "postgres";
/// The store name that stands for a MariaDB of the lab's own.
pub const MARIADB: &str = "mariadb";
/// The store name that stands for the embedded store in a private directory.
pub const FJALL: &str = "fjall";

/// A scaled window is no shorter: it needs some hundred requests even of a slow store.
const WINDOW_LEAST: Duration = Duration::from_secs(2);
/// A scaled warm-up is no shorter: a server that was just started again has sessions to open.
const WARMUP_LEAST: Duration = Duration::from_secs(1);
/// Scaled below this share, levels are left out, too.
const THINNED_BELOW: f64 = 0.1;
/// How many are left: enough for a plateau of three, the rise and the knee.
const LEVELS_THINNED: usize = 7;
impl Experiment {
    /// Reads and checks an experiment. The error is one line: which key, what is wrong, what to do.
    pub fn parse(text: &str) -> Result<Experiment, String> {
        let mut experiment: Experiment = toml::from_str(text).map_err(|error| one_line(text, &error))?;
        text.clone_into(&mut experiment.toml);
        experiment.check()?;
        Ok(experiment)
    }

    /// The parts this experiment has, in the report's order. A model has none: it uses no core of this machine.
    pub fn parts(&self) -> Vec<String> {
        let databases = self.databases().into_iter().map(|database| database.part);
        match &self.target {
            Target::Weir { .. } => {
                [SERVER.to_owned()].into_iter().chain(databases).chain([GENERATOR.to_owned()]).collect()
            }
            Target::Url { .. } => vec![GENERATOR.to_owned()],
            Target::Simulated(_) => vec![],
        }
    }

    /// The databases the lab starts for it: one for each private store in their order, then the replica.
    pub fn databases(&self) -> Vec<Database> {
        let Target::Weir { store, replica, .. } = &self.target else { return Vec::new() };
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

    /// The levels of `workload`.
    pub fn levels_of<'a>(&'a self, workload: &'a Workload) -> &'a [u32] {
        workload.levels.as_deref().unwrap_or(&self.levels)
    }

    /// How many trials there are in all.
    pub fn trials(&self) -> usize {
        let levels = self.workloads.iter().map(|workload| self.levels_of(workload).len());
        levels.sum::<usize>() * self.repetitions as usize
    }

    /// Leaves only the workloads called `names`.
    pub fn keep(&mut self, names: &[String]) -> Result<(), String> {
        let all: Vec<&str> = self.workloads.iter().map(|workload| workload.name.as_str()).collect();
        if let Some(unknown) = names.iter().find(|name| !all.contains(&name.as_str())) {
            return Err(format!(
                "--workloads {unknown}: the experiment has none of that name; use some of {}",
                all.join(", ")
            ));
        }
        self.workloads.retain(|workload| names.contains(&workload.name));
        Ok(())
    }

    /// Shortens warm-up and window to `share` of themselves, but not below what still says something, and below a
    /// tenth also thins out levels: of more than seven, seven are left, the first and the last among them.
    pub fn scale(&mut self, share: f64) {
        let shorter = |span: Span, least: Duration| {
            let scaled = span.0.mul_f64(share);
            // Whole milliseconds: nobody wants to read more of it.
            Span(Duration::from_millis(scaled.as_millis() as u64).max(least.min(span.0)))
        };
        self.warmup = shorter(self.warmup, WARMUP_LEAST);
        self.window = shorter(self.window, WINDOW_LEAST);
        if share < THINNED_BELOW {
            let own = self.workloads.iter_mut().filter_map(|workload| workload.levels.as_mut());
            own.chain([&mut self.levels]).for_each(thin);
        }
    }
}

/// Leaves [`LEVELS_THINNED`] levels, evenly spread from the first to the last.
fn thin(levels: &mut Vec<u32>) {
    let last = levels.len().saturating_sub(1);
    if last >= LEVELS_THINNED {
        let gaps = LEVELS_THINNED - 1;
        *levels = (0..=gaps).map(|i| levels[(i * last + gaps / 2) / gaps]).collect();
    }
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

fn fjall() -> Vec<String> {
    vec![FJALL.to_owned()]
}

/// `"a"` or `["a", "b"]`.
fn one_or_many<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stores {
        One(String),
        Many(Vec<String>),
    }
    match Stores::deserialize(deserializer) {
        Ok(Stores::One(store)) => Ok(vec![store]),
        Ok(Stores::Many(stores)) => Ok(stores),
        Err(_) => Err(serde::de::Error::custom("store is neither a text nor a list of texts")),
    }
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
    }

    #[test]
    fn every_private_store_and_the_replica_are_parts() {
        let parts = |store: &str| {
            let text = SMALL.replace("store = \"postgres\"", store).replace("[postgres]", "[mariadb]");
            Experiment::parse(&text).map(|experiment| experiment.parts().join(" "))
        };
        for (store, expected) in [
            ("store = \"mariadb\"", Ok("server database generator")),
            ("store = [\"mariadb\", \"fjall\", \"mariadb\"]", Ok("server database-1 database-2 generator")),
        ] {
            assert_eq!(parts(store), expected.map(str::to_owned), "{store}");
        }
        let followed =
            SMALL.replace("store = \"postgres\"", "store = [\"postgres\", \"postgres\"]\nreplica = true");
        let parts = Experiment::parse(&followed).unwrap().parts();
        assert_eq!(parts, ["server", "database-1", "database-2", "replica", "generator"]);
    }

    #[test]
    fn a_scaled_experiment_is_shorter_and_still_has_its_first_and_last_level() {
        let text = SMALL.replace("levels = [1, 4]", "levels = [1, 2, 3, 4, 5, 6, 8, 10, 16]");
        let mut experiment = Experiment::parse(&text.replace("window = \"1s\"", "window = \"60s\"")).unwrap();
        experiment.scale(0.5);
        assert_eq!(
            (experiment.warmup.to_string(), experiment.window.to_string()),
            ("300ms".into(), "30s".into())
        );
        assert_eq!(experiment.levels.len(), 9);
        experiment.scale(0.02);
        assert_eq!(
            (experiment.window.to_string(), experiment.levels.clone()),
            ("2s".into(), vec![1, 2, 4, 5, 6, 10, 16])
        );
        assert!(experiment.check().is_ok());
    }

    #[test]
    fn a_part_of_the_workloads_can_be_chosen() {
        let mut experiment = Experiment::parse(SMALL).unwrap();
        assert!(
            experiment
                .keep(&["put_common".into()])
                .unwrap_err()
                .contains("use some of get_popular, put_rare")
        );
        experiment.keep(&["put_rare".into()]).unwrap();
        assert_eq!((experiment.workloads.len(), experiment.trials()), (1, 4));
    }

    #[test]
    fn the_experiments_we_ship_are_valid() {
        for text in [
            include_str!("../../../experiments/quick.toml"),
            include_str!("../../../experiments/postgres.toml"),
        ] {
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
            ("server = [0]", "kitchen = [0]", "cores.kitchen: this experiment has no such part; use server"),
            ("args = [\"--cache-entries\", \"10\"]", "replica = 3", "line 8"),
            (
                "store = \"postgres\"",
                "store = [\"postgres\", \"fjall\"]\nreplica = true",
                "target.replica: only PostgreSQL",
            ),
            ("store = \"postgres\"", "store = []", "target.store has none"),
            ("name = \"put_rare\"", "name = \"put_rare\"\nlevels = [2, 1]", "workload.levels [2, 1]"),
            (
                "name = \"put_rare\"",
                "name = \"put_rare\"\nwrite_cap = \"1B\"",
                "workload.write_cap of `put_rare` is below",
            ),
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
