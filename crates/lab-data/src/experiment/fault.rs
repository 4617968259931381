//! Faults: what is broken on purpose while a trial runs, where, when and for how long.
//!
//! `[[fault]]` in a file. How each is made is the matter of `lab-run`.

use super::check::{Checked, is_not_zero, is_one_of};
use super::{Experiment, GENERATOR, LINK, SERVER, Subject, Target, Workload};
use crate::ensure;
use kv::units::Span;
use serde::Deserialize;
use std::time::Duration;

kv::named_enum! {
    /// A way to break a part of the target.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum FaultKind {
        /// It is killed with SIGKILL, and started again.
        Kill = "kill",
        /// It is stopped with SIGSTOP, and goes on.
        Pause = "pause",
        /// It is asked to end, and started again.
        Restart = "restart",
        /// Its writes to files fail as on a full disk.
        DiskFull = "disk_full",
        /// Its flushes fail.
        FlushFails = "flush_fails",
        /// It runs for a tenth of the time.
        Slow = "slow",
        /// Nothing comes through to it or from it; nobody is told.
        Partition = "partition",
    }
}

impl FaultKind {
    /// Whether the process must be started with a library that can break its disk.
    fn is_of_disk(self) -> bool {
        matches!(self, FaultKind::DiskFull | FaultKind::FlushFails)
    }
}

/// A fault of every trial.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What happens.
    pub kind: FaultKind,
    /// To which part of the target.
    #[serde(default = "server")]
    pub part: String,
    /// When, from the beginning of the window.
    pub at: Span,
    /// For how long.
    #[serde(rename = "for", default)]
    pub length: Span,
    /// After which time it happens again, until the window ends; `None`: never.
    pub every: Option<Span>,
}

fn server() -> String {
    SERVER.to_owned()
}

impl Fault {
    /// When it begins in a window of this length; it ends within it.
    pub fn times(&self, window: Duration) -> Vec<Duration> {
        let last = window.saturating_sub(self.length.0);
        let mut times = vec![self.at.0];
        while let Some(every) = self.every
            && times[times.len() - 1] + every.0 <= last
        {
            times.push(times[times.len() - 1] + every.0);
        }
        times
    }
}

impl Experiment {
    /// The faults of the parts that `subject` has.
    pub fn faults_of(&self, subject: &Subject) -> Vec<&Fault> {
        let parts = subject.target.parts();
        self.faults.iter().filter(|fault| parts.contains(&fault.part)).collect()
    }

    /// Whether the disk of `part` is broken at some time.
    pub fn breaks_disk(&self, part: &str) -> bool {
        self.faults.iter().any(|fault| fault.part == part && fault.kind.is_of_disk())
    }

    /// Whether `part` is cut off at some time.
    pub fn cuts_off(&self, part: &str) -> bool {
        self.faults.iter().any(|fault| fault.part == part && fault.kind == FaultKind::Partition)
    }

    /// No two faults break the same process, disk or link at the same time: the end of one would mend what the other has broken.
    fn check_overlaps(&self) -> Checked {
        let spans = self.faults.iter().flat_map(|fault| {
            let is_of_process = !fault.kind.is_of_disk() && fault.kind != FaultKind::Partition;
            // Those of disks and links mend nothing of another kind.
            let broken = (&fault.part, if is_of_process { "process" } else { fault.kind.name() });
            fault.times(self.window.0).into_iter().map(move |at| (broken, at, fault))
        });
        let mut spans: Vec<_> = spans.collect();
        spans.sort_by_key(|(broken, at, _)| (*broken, *at));
        let pairs = spans.iter().zip(spans.iter().skip(1));
        pairs.filter(|(one, two)| one.0 == two.0).try_for_each(|((_, at, one), (_, next, two))| {
            let is_over = at < next && *at + one.length.0 <= *next;
            let what = format!(
                "faults `{}` and `{}` of `{}` overlap; the second begins at {}",
                one.kind.name(),
                two.kind.name(),
                one.part,
                Span(*next)
            );
            ensure(is_over, what, "let one begin when the other has ended")
        })
    }

    /// What the file says of faults.
    pub(super) fn check_faults(&self) -> Checked {
        if self.faults.is_empty() {
            return Ok(());
        }
        let hint = "remove it, or the faults";
        ensure(self.adaptive.is_none(), "adaptive: a window with faults has a fixed length", hint)?;
        ensure(self.interventions.is_none(), "interventions: a run with faults slows nothing", hint)?;
        let is_searched = self.workloads.iter().any(|workload| workload.limit.is_some());
        ensure(!is_searched, "workload.limit: a search has no faults", hint)?;
        let is_judged =
            |workload: &Workload| workload.args.iter().any(|flag| flag.split('=').next() == Some("--check"));
        ensure(!self.workloads.iter().any(is_judged), "--check is there with faults anyway", "remove it")?;
        let is_any = self.workloads.iter().any(|workload| workload.url.is_some());
        ensure(!is_any, "workload.url: with faults, keys and values are judged, which it has not", hint)?;
        let is_capped = self.workloads.iter().any(|workload| workload.write_cap.is_some());
        ensure(!is_capped, "workload.write_cap does not hold for what is started again", hint)?;
        let is_limited = self.limits.memory.is_some()
            || self.subjects.iter().any(|subject| subject.target.quota() != Default::default());
        ensure(!is_limited, "limits.memory and target.quota do not hold for what is started again", hint)?;
        let is_ours = |subject: &Subject| matches!(subject.target, Target::Weir { .. } | Target::Command(_));
        let what = "fault: only targets that the lab starts can be broken";
        ensure(self.subjects.iter().all(is_ours), what, "use kind = \"weir\" or \"command\"")?;
        // It is told of that fault once the keys are written, and would not have it any more when it is started again.
        let args = self.subjects.iter().flat_map(|subject| match &subject.target {
            Target::Weir { args, .. } => args.as_slice(),
            _ => &[],
        });
        let mut flags = args.chain(self.workloads.iter().flat_map(|workload| &workload.serve));
        let fails = flags.any(|flag| flag.split([',', ' ', '=']).any(|word| word == "fail"));
        ensure(!fails, "--inject fail=… is not kept when a server is started again", hint)?;
        let parts = self.parts();
        let parts: Vec<&str> =
            parts.iter().map(String::as_str).filter(|part| ![GENERATOR, LINK].contains(part)).collect();
        self.faults.iter().try_for_each(|fault| {
            let Fault { kind, part, at, length, every } = fault;
            is_one_of("fault.part", part, &parts)?;
            if !matches!(kind, FaultKind::Kill | FaultKind::Restart) {
                is_not_zero("fault.for", *length)?;
            }
            let ends = Span(at.0 + length.0);
            let what = format!("fault `{}` ends at {ends}, after the window of {}", kind.name(), self.window);
            ensure(ends.0 <= self.window.0, what, "lengthen window, or let it begin sooner")?;
            let is_over = every.is_none_or(|every| every.0 > length.0 && !every.0.is_zero());
            let what = format!("fault `{}` is not over when it happens again", kind.name());
            ensure(is_over, what, "lengthen fault.every")?;
            // Between two processes of a foreign target nobody knows who connects to whom.
            let has_link = |subject: &Subject| {
                let databases = subject.target.databases();
                let is_store = databases.iter().any(|of| of.part == *part && of.store.is_some());
                let is_server = part == SERVER && subject.target.servers().len() == 1;
                is_server || is_store || !subject.target.parts().contains(part)
            };
            let is_node =
                |subject: &Subject| subject.target.cluster().is_some_and(|of| of.parts().contains(part));
            let what = format!("fault `{}` of `{part}`: the disk of a cluster cannot be broken", kind.name());
            let is_possible = !kind.is_of_disk() || !self.subjects.iter().any(is_node);
            ensure(is_possible, what, "use kill or pause")?;
            let is_possible = *kind != FaultKind::Partition || self.subjects.iter().all(has_link);
            let what =
                format!("fault `partition` of `{part}`: only a server or a database of ours can be cut off");
            ensure(is_possible, what, "set part = \"server\"")
        })?;
        self.check_overlaps()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "name = \"f\"\ntitle = \"f\"\nlevels = [8]\nrepetitions = 1\nwarmup = \"1s\"\nwindow = \"10s\"\n\
        [target]\nkind = \"weir\"\nstore = \"postgres\"\n[[workload]]\nname = \"mixed\"\n";

    fn experiment(fault: &str) -> Result<Experiment, kv::Error> {
        Experiment::parse(&format!("{HEAD}[[fault]]\n{fault}"))
    }

    #[test]
    fn a_fault_happens_as_often_as_the_window_has_room() {
        let experiment =
            experiment("kind = \"kill\"\npart = \"database\"\nat = \"1s\"\nfor = \"2s\"\nevery = \"3s\"")
                .unwrap();
        let fault = &experiment.faults[0];
        assert_eq!(fault.times(experiment.window.0), [1, 4, 7].map(Duration::from_secs));
        assert!(!experiment.cuts_off("database") && !experiment.breaks_disk("database"));
        for kind in FaultKind::ALL {
            let read: FaultKind = serde_json::from_value(kind.name().into()).unwrap();
            assert_eq!(read, kind);
        }
    }

    #[test]
    fn what_cannot_be_broken_is_refused() {
        for (fault, expected) in [
            (
                "kind = \"explode\"\nat = \"1s\"",
                "unknown variant `explode`, expected one of `kill`, `pause`, `restart`, ",
            ),
            ("kind = \"kill\"\npart = \"redis\"\nat = \"1s\"", "fault.part `redis` is unknown"),
            ("kind = \"kill\"\npart = \"generator\"\nat = \"1s\"", "fault.part `generator` is unknown"),
            ("kind = \"pause\"\nat = \"1s\"", "fault.for 0s"),
            ("kind = \"pause\"\nat = \"9s\"\nfor = \"2s\"", "after the window of 10s"),
            (
                "kind = \"pause\"\nat = \"1s\"\nfor = \"2s\"\nevery = \"1s\"",
                "is not over when it happens again",
            ),
            (
                "kind = \"kill\"\nat = \"1s\"\nfor = \"3s\"\n[[fault]]\nkind = \"slow\"\nat = \"2s\"\nfor = \"1s\"",
                "faults `kill` and `slow` of `server` overlap; the second begins at 2s",
            ),
            (
                "kind = \"kill\"\nat = \"5s\"\n[[fault]]\nkind = \"kill\"\nat = \"1s\"\nevery = \"2s\"",
                "faults `kill` and `kill` of `server` overlap; the second begins at 5s",
            ),
        ] {
            let why = experiment(fault).unwrap_err().to_string();
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn faults_that_do_not_meet_or_mend_each_other_are_taken() {
        let paused = "kind = \"pause\"\nat = \"1s\"\nfor = \"2s\"\n[[fault]]\n";
        for other in [
            "kind = \"pause\"\nat = \"3s\"\nfor = \"1s\"",
            "kind = \"kill\"\npart = \"database\"\nat = \"1s\"",
            "kind = \"partition\"\nat = \"2s\"\nfor = \"2s\"",
        ] {
            experiment(&format!("{paused}{other}")).unwrap_or_else(|why| panic!("{other}: {why}"));
        }
    }
}
