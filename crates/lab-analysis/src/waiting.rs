//! What held the sessions of the databases at the levels that decide.

use super::rows::Row;
use super::waits::{WAITS, WaitKind, Whereabouts, class_of};
use stats::mean;
use std::collections::BTreeSet;

/// What held the sessions of a database at some levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Dominant {
    /// The database's part.
    pub part: String,
    /// The levels, ascending.
    pub levels: Vec<u32>,
    /// Mean number of sessions, idle ones included, over the levels.
    pub sessions: f64,
    /// Of these at work, that is not waiting for their client.
    pub at_work: f64,
    /// Whether that is hardly any.
    pub idle: bool,
    /// The class that held most of those at work; the idle one where there is hardly any.
    pub class: &'static str,
    /// Mean number in that class.
    pub in_class: f64,
    /// The states of the class, most first.
    pub states: Vec<(String, f64)>,
}

/// Fewer at work than this is nobody, whatever the number of sessions.
const AT_WORK_MIN: f64 = 0.5;
/// Nor are a few of very many: this share of the sessions, or of the clients where those are fewer.
const AT_WORK_SHARE: f64 = 0.1;

/// What held the sessions of each database at `levels`: those that decide on the bottleneck.
pub(super) fn dominant(rows: &[Row], levels: &[u32]) -> Vec<Dominant> {
    let at: Vec<&Row> = rows.iter().filter(|row| levels.contains(&row.level)).collect();
    let clients = mean(at.iter().map(|row| f64::from(row.level))).unwrap_or(0.0);
    let parts: BTreeSet<&str> =
        at.iter().flat_map(|row| row.waits.iter().map(|of| of.part.as_str())).collect();
    let of_part = |part: &str| {
        let of_it =
            at.iter().filter_map(|row| Some((row.level, row.waits.iter().find(|of| of.part == part)?)));
        let (levels, seen): (Vec<u32>, Vec<&Whereabouts>) = of_it.unzip();
        let seen = Whereabouts::means(&seen)?;
        let sessions = seen.sum(|_| true);
        let at_work = seen.sum(|state| class_of(state).kind != WaitKind::Idle);
        let idle = at_work < AT_WORK_MIN.max(AT_WORK_SHARE * sessions.min(clients));
        let classes = WAITS.iter().filter(|wait| (wait.kind == WaitKind::Idle) == idle);
        let counted = classes.map(|wait| (wait.name, seen.in_class(wait.name)));
        let (class, in_class) = counted.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
        let mut states = seen.sessions;
        states.retain(|(state, _)| class_of(state).name == class);
        (sessions > 0.0).then(|| Dominant {
            part: part.to_owned(),
            levels,
            sessions,
            at_work,
            idle,
            class,
            in_class,
            states,
        })
    };
    parts.into_iter().filter_map(of_part).collect()
}

/// A class of database waits that holds most of what could be there, at every level that decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The class: `row lock`.
    pub class: &'static str,
    /// The databases it was seen in.
    pub parts: Vec<String>,
    /// Mean number of sessions in the class at the highest of the levels, all databases together.
    pub sessions: f64,
    /// How many could have been there: the clients, or the sessions of a full pool.
    pub places: f64,
    /// Whether `places` are the sessions of a full pool.
    pub pooled: bool,
    /// `sessions` over `places`, mean over the levels.
    pub share: f64,
}

/// Held enough to be the limit: at least half of the clients.
const HELD: f64 = 0.5;
/// A part of a class's sessions below this share is no part of the finding.
const PART_SHARE: f64 = 0.2;

/// The class in which, at every one of the `deciding` rows, at least half of the clients were. Where a pool of
/// sessions is full, no more of them can be in the database than it has: `places` says how many for each row.
pub(super) fn holding(deciding: &[(&Row, f64)]) -> Option<Waiting> {
    let (last, places) = deciding.last()?;
    let sum = |row: &Row, class: &str| row.waits.iter().fold(0.0, |sum, of| sum + of.in_class(class));
    let shares_of = |class| deciding.iter().map(move |(row, places)| sum(row, class) / places);
    let mut classes = WAITS.iter().filter(|wait| wait.kind == WaitKind::Limit).map(|wait| wait.name);
    let class = classes.find(|class| shares_of(class).all(|share| share >= HELD))?;
    let sessions = sum(last, class);
    let of_parts = last.waits.iter().filter(|of| of.in_class(class) >= PART_SHARE * sessions);
    Some(Waiting {
        class,
        parts: of_parts.map(|of| of.part.clone()).collect(),
        sessions,
        places: *places,
        pooled: *places < f64::from(last.level),
        share: mean(shares_of(class))?,
    })
}
