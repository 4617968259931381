//! What faults did to a target: operations judged, violations, and how long nothing was answered. For the terminal and for a file.

use super::format::count;
use kv::proto::{LinearizabilityReport, LoadReport};
use kv::units::{micros, short_count};
use lab_analysis::rows::DID_NOT_RUN;
use lab_data::experiment::Experiment;
use lab_data::results::{Results, Run, Trial};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What is said of a run with faults, in Markdown; `None` of one without.
pub fn faults(results: &Results) -> Option<String> {
    // Operations may be judged without faults, too, in a run that has another report.
    let planned = Experiment::parse(&results.experiment_toml).is_ok_and(|of| !of.faults.is_empty());
    if !planned && results.trials.iter().all(|trial| trial.faults.is_empty()) {
        return None;
    }
    let mut text = String::new();
    for plan in &results.workloads {
        let mut levels: BTreeMap<u32, Vec<&Trial>> = BTreeMap::new();
        if planned {
            // Also those of which no trial began.
            levels.extend(
                plan.levels.as_ref().unwrap_or(&results.levels).iter().map(|level| (*level, Vec::new())),
            );
        }
        let is_judged = |load: &LoadReport| load.linearizability.is_some();
        let had_faults =
            |trial: &Trial| planned || !trial.faults.is_empty() || trial.load.as_ref().is_some_and(is_judged);
        for trial in results.trials_of(&plan.name).filter(|trial| had_faults(trial)) {
            levels.entry(trial.level).or_default().push(trial);
        }
        for (level, trials) in levels {
            let runs: Vec<Run> =
                trials.iter().filter_map(|trial| Some((*trial, trial.load.as_ref()?))).collect();
            let clients = count(level, "client");
            let _ = writeln!(text, "## {}, {clients}, {}\n", plan.name, count(runs.len() as u32, "trial"));
            text += &failed(&trials, results.repetitions);
            text += &judged(&runs);
            if !runs.is_empty() {
                text += &unavailable(&runs);
            }
        }
    }
    (!text.is_empty()).then_some(text)
}

/// Which trials failed or did not run, and why. Of one that failed, what it gave before counts.
fn failed(trials: &[&Trial], planned: u32) -> String {
    let all = planned.max(trials.len() as u32);
    let mut causes: BTreeMap<String, u32> = BTreeMap::new();
    let why = trials.iter().filter_map(|trial| trial.failure.as_ref());
    why.for_each(|why| *causes.entry(format!("failed: {why}")).or_default() += 1);
    let unrun = all - trials.len() as u32;
    causes.extend((unrun > 0).then(|| (DID_NOT_RUN.to_owned(), unrun)));
    causes.iter().map(|(what, of)| format!("{of} of {} {what}.\n\n", count(all, "trial"))).collect()
}

/// What the operations were judged to be.
fn judged(runs: &[Run]) -> String {
    let reports = || runs.iter().filter_map(|(_, load)| load.linearizability.as_ref());
    let sum = |of: fn(&LinearizabilityReport) -> u64| reports().map(of).sum::<u64>();
    let keys = |number: u64| count(number as u32, "key");
    if sum(|of| of.operations) == 0 {
        return "No operation was judged, so nothing is known of linearizability.\n\n".to_owned();
    }
    let verdict = match (sum(|of| of.violations), sum(|of| of.not_decided)) {
        (0, 0) => "no violation of linearizability".to_owned(),
        (0, open) => format!("no violation of linearizability found, {} not decided", keys(open)),
        (violated, _) => format!("linearizability is violated on {}", keys(violated)),
    };
    let verdict = match sum(|of| of.unread) {
        0 => verdict,
        unread => format!("{verdict}, {} not read at the end", keys(unread)),
    };
    let mut text = format!(
        "{} operations judged: {verdict}. {} took effect, {} preconditions failed, {} took no effect, {} are unknown.\n\n",
        short_count(sum(|of| of.operations)),
        short_count(sum(|of| of.done)),
        short_count(sum(|of| of.precondition_failed)),
        short_count(sum(|of| of.not_applied)),
        short_count(sum(|of| of.unknown)),
    );
    if let Some(LinearizabilityReport { key: Some(key), history, .. }) = reports().find(|of| of.key.is_some())
    {
        let _ = writeln!(text, "No order of these operations on key {key} explains their answers:\n");
        history.iter().for_each(|line| text += &format!("    {line}\n"));
        text.push('\n');
    }
    text
}

/// How long nothing succeeded after each fault.
fn unavailable(runs: &[Run]) -> String {
    let mut rows: BTreeMap<(&str, &str), (Vec<f64>, usize)> = BTreeMap::new();
    for (trial, load) in runs {
        let (bin_secs, all_bins) = load.finest();
        for (place, fault) in trial.faults.iter().enumerate() {
            let next = trial.faults.get(place + 1).map_or(load.window_secs, |next| next.began_secs);
            let [from, until] = [fault.began_secs, next].map(|secs| (secs / bin_secs) as usize);
            let bins = all_bins.get(from..until.min(all_bins.len())).unwrap_or_default();
            let longest = bins.split(|bin| bin.successes > 0).map(<[_]>::len).max().unwrap_or(0);
            let (all, died) = rows.entry((&fault.kind, &fault.part)).or_default();
            all.push(longest as f64 * bin_secs);
            *died += usize::from(fault.died);
        }
    }
    let mut text = "| fault | part | count | nothing succeeded for, median | longest | process ended by itself |\n|---|---|--:|--:|--:|--:|\n".to_owned();
    for ((kind, part), (all, died)) in rows {
        let [median, longest] = [stats::median(&all).unwrap_or(0.0), all.iter().copied().fold(0.0, f64::max)]
            .map(|secs| micros(secs * 1e6));
        let _ = writeln!(text, "| {kind} | {part} | {} | {median} | {longest} | {died} |", all.len());
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::proto::{Bins, LoadReport, SecondReport};
    use lab_data::results::{FaultRecord, Trial, WorkloadPlan};

    #[test]
    fn what_was_judged_and_how_long_nothing_succeeded() {
        let bin = |successes| SecondReport { attempts: 9, successes, ..SecondReport::default() };
        let load = LoadReport {
            window_secs: 1.0,
            bins: Some(Bins { secs: 0.1, list: [9, 9, 0, 9, 0, 0, 0, 9, 9, 0].map(bin).to_vec() }),
            linearizability: Some(LinearizabilityReport {
                operations: 90,
                done: 80,
                unknown: 10,
                violations: 1,
                unread: 2,
                key: Some("mixed_7".into()),
                history: vec!["get: absent".into()],
                ..LinearizabilityReport::default()
            }),
            ..LoadReport::default()
        };
        let fault = |kind: &str, began_secs, died| FaultRecord {
            kind: kind.into(),
            part: "server".into(),
            began_secs,
            ended_secs: began_secs + 0.1,
            died,
        };
        let trial = Trial {
            workload: "mixed".into(),
            level: 8,
            load: Some(load),
            faults: vec![fault("kill", 0.2, false), fault("disk_full", 0.8, true)],
            ..Trial::default()
        };
        let plan = WorkloadPlan { name: "mixed".into(), about: String::new(), levels: None, published: None };
        let results = Results { workloads: vec![plan], trials: vec![trial], ..Results::default() };
        let text = faults(&results).unwrap();
        for part in [
            "## mixed, 8 clients, 1 trial\n",
            "90 operations judged: linearizability is violated on 1 key, 2 keys not read at the end. 80 took effect, ",
            "on key mixed_7 explains",
            "\n    get: absent\n",
            "| kill | server | 1 | 300 ms | 300 ms | 0 |\n",
            "| disk_full | server | 1 | 100 ms | 100 ms | 1 |\n",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert_eq!(faults(&Results::default()), None);
        // Operations are judged with `--check`, too.
        let mut without = results.clone();
        without.trials[0].faults.clear();
        assert_eq!(faults(&without), None);
        // The generator may have ended without a report, or with one of another check.
        let mut unjudged = results.clone();
        unjudged.trials[0].load.as_mut().unwrap().linearizability = None;
        let without_report = Trial { load: None, ..results.trials[0].clone() };
        let failure = Some("cannot start the server".to_owned());
        let failed = Trial { failure, ..without_report.clone() };
        let trials = vec![results.trials[0].clone(), failed.clone(), failed];
        let text = faults(&Results { trials, repetitions: 5, ..results.clone() }).unwrap();
        assert!(
            text.contains("2 of 5 trials did not run.\n\n2 of 5 trials failed: cannot start the server.\n"),
            "{text}"
        );
        for results in [unjudged, Results { trials: vec![without_report], ..results }] {
            let text = faults(&results).unwrap();
            assert!(text.contains("No operation was judged,") && !text.contains("no violation"), "{text}");
        }
    }
}
