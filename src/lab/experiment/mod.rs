//! What to measure, as a file: an [`Experiment`] read from TOML and checked before anything is started.
//!
//! Pure: text in, values or one line of complaint out. It knows which names may stand in the file, not how they are
//! carried out; that is [`super::harness`].

mod check;
mod placeholder;
mod target;

pub use placeholder::{PLACEHOLDERS, PORT, fill};
pub use target::{
    Commands, DATABASE, Database, Engine, FJALL, Fresh, GENERATOR, MARIADB, POSTGRES, Process, REPLICA,
};
pub use target::{SERVER, Subject, Target};

use crate::units::{Size, Span};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// An experiment: workloads × levels × repetitions against one target, or several in turns.
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
    /// Whether the generator proves itself before the first trial.
    #[serde(default = "yes")]
    pub selftest: bool,
    /// What is measured, in the file's order; the first of several is what the others are compared with.
    #[serde(rename = "target", deserialize_with = "target::subjects")]
    pub subjects: Vec<Subject>,
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

    /// The workloads that `subject` takes part in, with its further flags.
    pub fn workloads_of(&self, subject: &Subject) -> Vec<Workload> {
        let takes_part = |workload: &&Workload| {
            subject.workloads.as_ref().is_none_or(|names| names.contains(&workload.name))
        };
        let mut own: Vec<Workload> = self.workloads.iter().filter(takes_part).cloned().collect();
        own.iter_mut().for_each(|workload| workload.args.extend_from_slice(&subject.load));
        own
    }

    /// The levels of `workload`.
    pub fn levels_of<'a>(&'a self, workload: &'a Workload) -> &'a [u32] {
        workload.levels.as_deref().unwrap_or(&self.levels)
    }

    /// How many trials there are in all.
    pub fn trials(&self) -> usize {
        let levels = |subject| {
            let own = self.workloads_of(subject);
            own.iter().map(|workload| self.levels_of(workload).len()).sum::<usize>()
        };
        self.subjects.iter().map(levels).sum::<usize>() * self.repetitions as usize
    }

    /// Leaves only the workloads called `names`, and the targets that take part in one of them.
    pub fn keep(&mut self, names: &[String]) -> Result<(), String> {
        let all: Vec<&str> = self.workloads.iter().map(|workload| workload.name.as_str()).collect();
        if let Some(unknown) = names.iter().find(|name| !all.contains(&name.as_str())) {
            return Err(format!(
                "--workloads {unknown}: the experiment has none of that name; use some of {}",
                all.join(", ")
            ));
        }
        self.workloads.retain(|workload| names.contains(&workload.name));
        for of in self.subjects.iter_mut().filter_map(|subject| subject.workloads.as_mut()) {
            of.retain(|name| names.contains(name));
        }
        self.subjects.retain(|subject| subject.workloads.as_ref().is_none_or(|of| !of.is_empty()));
        self.forget();
        Ok(())
    }

    /// Leaves only the targets called `names`, and the workloads that one of them takes part in.
    pub fn keep_targets(&mut self, names: &[String]) -> Result<(), String> {
        let all: Vec<&str> = self.subjects.iter().filter_map(|subject| subject.name.as_deref()).collect();
        if all.is_empty() {
            return Err("--targets: the experiment has one target, without a name; leave the flag out".into());
        }
        if let Some(unknown) = names.iter().find(|name| !all.contains(&name.as_str())) {
            return Err(format!(
                "--targets {unknown}: the experiment has none of that name; use some of {}",
                all.join(", ")
            ));
        }
        self.subjects.retain(|subject| subject.name.as_ref().is_some_and(|name| names.contains(name)));
        let subjects = &self.subjects;
        let is_asked = |name: &String| {
            subjects.iter().any(|subject| subject.workloads.as_ref().is_none_or(|of| of.contains(name)))
        };
        self.workloads.retain(|workload| is_asked(&workload.name));
        self.forget();
        Ok(())
    }

    /// Leaves out what was said of parts that are no longer there.
    fn forget(&mut self) {
        let parts = self.parts();
        self.cores.parts.retain(|part, _| parts.contains(part));
        let engines: Vec<Engine> = self.databases().map(|database| database.engine).collect();
        self.postgres.take_if(|_| !engines.contains(&Engine::Postgres));
        self.mariadb.take_if(|_| !engines.contains(&Engine::MariaDb));
        self.limits.memory.take_if(|_| engines.is_empty());
    }

    /// The parts of all targets, each once.
    fn parts(&self) -> Vec<String> {
        let mut parts: Vec<String> = Vec::new();
        for part in self.subjects.iter().flat_map(|subject| subject.target.parts()) {
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
        parts
    }

    /// The databases of all targets.
    fn databases(&self) -> impl Iterator<Item = Database> {
        self.subjects.iter().flat_map(|subject| subject.target.databases())
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

fn one() -> u64 {
    1
}

fn yes() -> bool {
    true
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
        assert_eq!(experiment.subjects[0].target.parts(), [SERVER, DATABASE, GENERATOR]);
        assert_eq!(experiment.toml, SMALL);
        let settings = experiment.postgres.unwrap().settings;
        let settings: Vec<_> = settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(settings, [("fsync", "on"), ("max_connections", "50"), ("shared_buffers", "128MB")]);
    }

    #[test]
    fn every_private_store_and_the_replica_are_parts() {
        let parts = |store: &str| {
            let text = SMALL.replace("store = \"postgres\"", store).replace("[postgres]", "[mariadb]");
            Experiment::parse(&text).map(|experiment| experiment.subjects[0].target.parts().join(" "))
        };
        for (store, expected) in [
            ("store = \"mariadb\"", Ok("server database generator")),
            ("store = [\"mariadb\", \"fjall\", \"mariadb\"]", Ok("server database-1 database-2 generator")),
        ] {
            assert_eq!(parts(store), expected.map(str::to_owned), "{store}");
        }
        let followed =
            SMALL.replace("store = \"postgres\"", "store = [\"postgres\", \"postgres\"]\nreplica = true");
        let parts = Experiment::parse(&followed).unwrap().subjects[0].target.parts();
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

    /// [`SMALL`] with three targets in place of its one.
    fn several() -> String {
        let (head, rest) = SMALL.split_once("[target]").unwrap();
        let (_, tail) = rest.split_once("[postgres]").unwrap();
        format!(
            r#"{head}
[[target]]
name = "ours"
kind = "weir"
store = "postgres"
durability = "fsync"
[[target]]
name = "theirs"
kind = "command"
workloads = ["get_popular"]
load = ["--timeout", "1s"]
ready = "/health"
[target.files]
"a.conf" = "{{ listen {{port}}; }} # {{port:store}} {{dir}}"
[[target.process]]
part = "store"
command = ["store", "{{dir}}/a.conf", "{{cores}}"]
[[target.process]]
part = "server"
command = ["{{weir_dir}}/server"]
version = ["server", "-v"]
[[target]]
name = "model"
kind = "simulated"
workloads = ["put_rare"]
[[target.station]]
name = "one"
servers = 1
demand = "1ms"
[postgres]{tail}"#
        )
    }

    #[test]
    fn several_targets_have_workloads_and_parts_of_their_own() {
        let experiment = Experiment::parse(&several()).unwrap();
        let shown = |subject: &Subject| {
            let own = experiment.workloads_of(subject);
            let own = own.iter().map(|workload| format!("{}{:?}", workload.name, workload.args));
            let own = own.collect::<Vec<_>>().join(" ").replace('"', "");
            format!("{}: {own}; {}", subject.name.as_deref().unwrap(), subject.target.parts().join(" "))
        };
        assert_eq!(
            experiment.subjects.iter().map(shown).collect::<Vec<_>>(),
            [
                "ours: get_popular[--keys, 1000] put_rare[]; server database generator",
                "theirs: get_popular[--keys, 1000, --timeout, 1s]; server store generator",
                "model: put_rare[]; ",
            ]
        );
        assert_eq!(experiment.subjects[0].durability, "fsync");
        // Two levels, two repetitions.
        assert_eq!(experiment.trials(), (2 + 1 + 1) * 4);
    }

    #[test]
    fn a_part_of_the_targets_can_be_chosen_and_takes_what_is_said_of_it() {
        let chosen = |targets: &[&str], workloads: &[&str]| {
            let [targets, workloads] = [targets, workloads]
                .map(|names| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
            let mut experiment = Experiment::parse(&several()).unwrap();
            if !targets.is_empty() {
                experiment.keep_targets(&targets)?;
            }
            if !workloads.is_empty() {
                experiment.keep(&workloads)?;
            }
            experiment.check()?;
            let targets: Vec<&str> = experiment.subjects.iter().filter_map(|of| of.name.as_deref()).collect();
            let workloads: Vec<&str> = experiment.workloads.iter().map(|of| &*of.name).collect();
            Ok(format!("{}: {} {}", targets.join(" "), workloads.join(" "), experiment.postgres.is_some()))
        };
        for (targets, workloads, left) in [
            (&["model", "theirs"][..], &[][..], Ok("theirs model: get_popular put_rare false")),
            (&["theirs"][..], &[][..], Ok("theirs: get_popular false")),
            (&[][..], &["put_rare"][..], Ok("ours model: put_rare true")),
            (
                &["their"][..],
                &[][..],
                Err("--targets their: the experiment has none of that name; use some of ours, theirs, model"),
            ),
        ] {
            assert_eq!(chosen(targets, workloads), left.map(str::to_owned).map_err(str::to_owned));
        }
        let why = Experiment::parse(SMALL).unwrap().keep_targets(&["ours".to_owned()]).unwrap_err();
        assert!(why.contains("leave the flag out"), "{why}");
    }

    #[test]
    fn what_is_wrong_with_one_of_several_targets_is_named_with_it() {
        for (from, to, complaint) in [
            ("name = \"theirs\"", "name = \"ours\"", "target.name `ours` stands twice"),
            ("name = \"theirs\"", "name = \"a/b\"", "target.name `a/b`: a name is lower-case letters"),
            ("name = \"theirs\"\n", "", "in a [[target]]: missing field `name`"),
            ("ready = ", "raedy = ", "target `theirs`: unknown field `raedy`"),
            (
                "ready = \"/health\"",
                "ready = \"health\"",
                "target `theirs`: target.ready `health` is no path",
            ),
            (
                "[\"get_popular\"]",
                "[\"get_hot\"]",
                "target `theirs`: workloads names `get_hot`, which is none",
            ),
            ("[\"get_popular\"]", "[]", "target `theirs`: workloads names none"),
            ("\"--timeout\"", "\"--seed\"", "target.load has --seed, which the lab sets itself"),
            ("\"a.conf\"", "\"../a.conf\"", "target.files `../a.conf`: a file name without folders"),
            (
                "{port:store}",
                "{prot}",
                "target.files `a.conf` has {prot}, which stands for nothing; use {dir}, ",
            ),
            ("\"{cores}\"", "\"{core}\"", "target.process `store` has {core}, which stands for nothing"),
            ("part = \"server\"", "part = \"sever\"", "target.process: none is the server"),
            ("part = \"server\"", "part = \"store\"", "target.process.part `store` stands twice"),
            ("part = \"store\"", "part = \"generator\"", "target.process.part `generator` is the lab's own"),
            ("part = \"store\"", "part = \"load\"", "target.process.part `load` is the lab's own"),
            ("[\"store\", \"{dir}/a.conf\", \"{cores}\"]", "[]", "target.process `store`: command is empty"),
            (
                "args = [\"--keys\"",
                "serve = [\"--lab\"]\nargs = [\"--keys\"",
                "starts no weir here; remove them",
            ),
            (
                "durability = \"fsync\"",
                "workloads = [\"put_rare\"]\nflush_delay = \"0ms\"",
                "target.flush_delay 0s: it delays nothing",
            ),
            (
                "store = \"postgres\"",
                "store = \"memory:\"\nflush_delay = \"2ms\"",
                "target `ours`: target.flush_delay: only stores of the lab's own",
            ),
        ] {
            let text = several().replacen(from, to, 1);
            assert_ne!(text, several(), "{from}");
            let error = Experiment::parse(&text).unwrap_err();
            assert!(error.contains(complaint) && !error.contains('\n'), "{to}: {error}");
        }
        let idle = several().replacen("durability = \"fsync\"", "workloads = [\"get_popular\"]", 1);
        let idle = idle.replacen("workloads = [\"put_rare\"]", "workloads = [\"get_popular\"]", 1);
        let why = Experiment::parse(&idle).unwrap_err();
        assert!(why.contains("workload `put_rare`: no target takes part in it"), "{why}");
    }

    #[test]
    fn a_flush_delay_is_of_a_store_of_the_labs_own() {
        let slow = SMALL.replace("store = \"postgres\"", "store = \"postgres\"\nflush_delay = \"2ms\"");
        let delay = Experiment::parse(&slow).unwrap().subjects[0].target.flush_delay();
        assert_eq!(delay.map(|delay| delay.to_string()), Some("2ms".to_owned()));
    }

    #[test]
    fn the_experiments_we_ship_are_valid() {
        for text in [
            include_str!("../../../experiments/quick.toml"),
            include_str!("../../../experiments/postgres.toml"),
            include_str!("../../../experiments/peers.toml"),
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
