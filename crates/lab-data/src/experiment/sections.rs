//! The sections of an experiment file that say how, not what: databases, limits, cores, workloads, published results.
//!
//! Only their shapes; what may stand in them is checked next door.

use super::LatencyLimit;
use kv::units::{Size, Span};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

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

/// Up to when the window of a trial may go on, and what has to be known for it to end sooner.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adaptive {
    /// What the window is at most.
    pub most: Span,
    /// Half of the 95 % interval of goodput, as a share of it. That of the mean latency may be twice as much.
    #[serde(default = "one_percent")]
    pub goodput: f64,
}

impl Adaptive {
    /// No window is ended sooner: what is slower than that is no noise within it, and its interval would not hold.
    pub const LEAST: Span = Span(Duration::from_secs(3));
}

fn one_percent() -> f64 {
    0.01
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
    /// The path that is requested, as in `/api/orders/1`, of a service that is no key-value store.
    pub url: Option<String>,
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
    /// What the published table calls it, where that is another name.
    pub published: Option<String>,
    /// Under which limit the highest rate is searched for, after the trials of each repetition.
    pub limit: Option<LatencyLimit>,
}

/// The flags of `weir load` that the lab adds, unless a workload has its own.
const ADDED: [&str; 5] = ["--clients", "--threads", "--warmup", "--window", "--seed"];

impl Workload {
    /// What stands after `weir`, before the workload's own flags, of a target at `bases`. `values` are those of the flags that the lab
    /// adds: clients, threads, warm-up, window and seed.
    pub fn asks(&self, bases: &[impl AsRef<str>], values: &[String; ADDED.len()]) -> Vec<String> {
        let path = self.url.as_deref().unwrap_or_default();
        let urls = bases.iter().map(|base| format!("{}{path}", base.as_ref()));
        let named = ["--workload", self.of_load()].map(str::to_owned);
        let named = named.into_iter().filter(|_| self.url.is_none());
        let added = ADDED.into_iter().zip(values).filter(|(flag, _)| !self.has_flag(flag));
        let added = added.flat_map(|(flag, value)| [flag.to_owned(), value.clone()]);
        let all = ["load".to_owned()].into_iter().chain(urls).chain(named);
        all.chain(["--events".to_owned()]).chain(added).collect()
    }

    /// What `weir load` calls it.
    fn of_load(&self) -> &str {
        self.workload.as_deref().unwrap_or(&self.name)
    }

    /// Whether it sends at a rate, whatever the answers.
    pub fn is_open(&self) -> bool {
        self.has_flag("--rate")
    }

    fn has_flag(&self, flag: &str) -> bool {
        self.args.iter().any(|arg| arg.split('=').next() == Some(flag))
    }
}

/// Where published results stand.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedSource {
    /// A CSV table, as `weir audit` reads it; relative to the experiment file.
    pub file: PathBuf,
    /// Which rows of it: those with this in their column `report`.
    #[serde(default)]
    pub report: String,
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
