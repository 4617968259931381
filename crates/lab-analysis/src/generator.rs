//! Gate G3: was the generator what limited a row, or what its latencies show?

use super::checks::{Seen, Verdict, failed};
use super::little::{is_open, request_secs};
use kv::proto::{LoadReport, ScheduleReport};
use kv::units::{micros, short};
use lab_data::results::{Placement, ResourceKind, Results, Selftest, Trial};

/// The part that is the generator.
const GENERATOR: &str = "generator";
/// The link between it and the target, whose work counts with the generator's.
const LINK: &str = "link";
/// Of its cores' time, how much it may use.
const BUSY_LIMIT: f64 = 0.7;
/// Of its requests' time, how much it may wait for a core; below the least share of its threads' time nobody could do better: a
/// thread that sleeps until an answer comes waits about two microseconds until it runs.
const WAIT_LIMIT: f64 = 0.01;
const WAIT_LEAST: f64 = 0.05;
/// Of the latency that an open loop shows, how much may be the generator's own lateness; below the least, nobody could
/// do better: a sleeping thread takes that long to wake.
const SEND_LAG_LIMIT: f64 = 0.01;
const SEND_LAG_US_P99_LEAST: f64 = 50.0;
/// How many times the requests of a row it has to make against a server that answers from memory.
const AGAINST_MEMORY: f64 = 3.0;
/// The check of the selftest that measures those, and the busy share of its thread from which on it was the generator that could
/// do no more.
const RATE_CHECK: &str = "rate";
const CEILING_BUSY: f64 = 0.9;
/// Values up to so many bytes cost the generator about what the selftest's do.
const SMALL_BYTES: u64 = 1000;

/// The parts of the target that have the generator's cores; empty where it has them alone, or was not pinned.
pub(super) fn shares_with(results: &Results) -> Vec<&str> {
    let generator = results.placements.iter().find(|placement| placement.part == GENERATOR);
    let others = generator.into_iter().flat_map(|placement| &placement.shares_with).map(String::as_str);
    others.filter(|part| *part != LINK).collect()
}

pub(super) fn judge(seen: &Seen) -> Verdict {
    if let Some(verdict) = shared(seen.results) {
        return verdict;
    }
    let share = share(seen);
    if let Some(share) = share.filter(|share| *share > BUSY_LIMIT) {
        return failed(format!("the generator uses {:.0} % of its cores", share * 100.0), &more_cores(seen));
    }
    // A thread of an open loop sleeps between requests: what waking costs it is in its send lag.
    let waits: Option<Vec<f64>> = seen.ran.iter().filter(|(_, load)| !is_open(load)).map(waited).collect();
    let waited = waits.and_then(|waits| waits.into_iter().max_by(f64::total_cmp));
    if let Some(waited) = waited.filter(|waited| *waited > WAIT_LIMIT) {
        return failed(
            format!("the generator waited for a core for {:.1} % of its requests’ time", waited * 100.0),
            "Leave the generator’s cores to it; repeat when the machine is quiet.",
        );
    }
    let late = seen.ran.iter().filter_map(|(_, load)| Some((late_share(load)?, load.schedule.as_ref()?)));
    let latest = late.max_by(|(a, _), (b, _)| a.total_cmp(b));
    if let Some((of_latency, ScheduleReport { send_lag, .. })) = latest
        && of_latency > SEND_LAG_LIMIT
        && send_lag.us_p99 > SEND_LAG_US_P99_LEAST
    {
        return failed(
            format!(
                "{:.1} % of the latency is the generator’s own lateness (mean {}, p99 {})",
                of_latency * 100.0,
                micros(send_lag.us_mean),
                micros(send_lag.us_p99)
            ),
            &format!(
                "{} Or lower --rate in the workload’s args. Service times do not contain it.",
                more_cores(seen)
            ),
        );
    }
    let Some(share) = share else {
        return Verdict::NotChecked("the generator’s processor time was not read".into());
    };
    let late = latest.map(|(_, of)| format!(", and sent {} late on average", micros(of.send_lag.us_mean)));
    let holds = format!("the generator uses {:.0} % of its cores{}", share * 100.0, late.unwrap_or_default());
    match against_memory(seen) {
        Err(missing) => Verdict::Partly { holds, missing },
        Ok(times) if times >= AGAINST_MEMORY => Verdict::Passed,
        Ok(times) => failed(
            format!(
                "the generator makes only {times:.1} times as many requests of a server that answers from memory, and {holds}"
            ),
            &more_cores(seen),
        ),
    }
}

/// How many times the requests of the fastest run the generator makes with as many threads against a server that answers from
/// memory; or why that is not known.
fn against_memory(seen: &Seen) -> Result<f64, String> {
    let report = match &seen.results.selftest {
        Some(Selftest::Ran(report)) => report,
        Some(Selftest::Simulated) => {
            return Err("a simulated generator has no other server to be compared with".into());
        }
        _ => return Err("no selftest measured what it does against a server that answers from memory".into()),
    };
    let figures = report.checks.iter().find(|check| check.name == RATE_CHECK).map(|check| &check.figures);
    let figure = |name: &str| figures.and_then(|figures| figures.get(name)).copied();
    let (Some(ceiling_rps), Some(busy)) = (figure("ceiling_rps"), figure("generator_busy")) else {
        return Err(
            "the selftest did not measure what it does against a server that answers from memory".into()
        );
    };
    if seen.ran.iter().any(|(_, load)| is_open(load)) {
        return Err(
            "an open loop is not compared with a server that answers from memory: it sends what it was told"
                .into(),
        );
    }
    if !seen.ran.iter().all(|(_, load)| is_small(load)) {
        return Err(format!(
            "values above {SMALL_BYTES} B are not compared with a server that answers from memory"
        ));
    }
    let times =
        |load: &LoadReport| ceiling_rps * f64::from(load.threads) / (load.attempts as f64 / load.window_secs);
    let least = seen.ran.iter().map(|(_, load)| times(load)).fold(f64::INFINITY, f64::min);
    match least < AGAINST_MEMORY && busy < CEILING_BUSY {
        // What it would do against a faster one nobody knows.
        true => Err(format!(
            "the server that answers from memory, at {} req/s, was slower than the generator",
            short(ceiling_rps)
        )),
        false => Ok(least),
    }
}

/// Whether no value is longer than those of the selftest by much; also where there are none.
fn is_small(load: &LoadReport) -> bool {
    let longest = load.value_bytes.rsplit([':', '-']).next().unwrap_or_default();
    longest.is_empty() || longest.parse().is_ok_and(|bytes: u64| bytes <= SMALL_BYTES)
}

/// What to do for a generator that is the limit, in the words of the experiment: which cores it has, and whose are the others.
fn more_cores(seen: &Seen) -> String {
    let placements = &seen.results.placements;
    let of = |part: &Placement| {
        let cores: Vec<String> = part.cores.iter().map(usize::to_string).collect();
        format!("{} = [{}]", part.part, cores.join(", "))
    };
    let (own, others): (Vec<_>, Vec<_>) = placements.iter().partition(|part| part.part == GENERATOR);
    let threads = seen.ran.iter().map(|(_, load)| load.threads).max().unwrap_or(1);
    match own.first() {
        Some(own) if !own.cores.is_empty() => format!(
            "Give the generator more cores than [cores] {}{}; it runs {threads} thread{}. Where there are none, divide the clients among machines with --worker in the workload’s args.",
            of(own),
            match others.iter().filter(|part| !part.cores.is_empty()).map(|part| of(part)).collect::<Vec<_>>() {
                others if others.is_empty() => String::new(),
                others => format!(" ({})", others.join(", ")),
            },
            if threads == 1 { "" } else { "s" },
        ),
        _ => "Give the generator more cores, with [cores] in the experiment, or more machines, with --worker in the workload’s args.".into(),
    }
}

/// On cores it shares, the generator takes from the target what it needs, and the other way round. How much of it went to
/// whom can be counted; what either would do alone cannot.
fn shared(results: &Results) -> Option<Verdict> {
    let others = shares_with(results);
    let (last, before) = others.split_last()?;
    let with =
        if before.is_empty() { (*last).to_owned() } else { format!("{} and {last}", before.join(", ")) };
    let placement = results.placements.iter().find(|placement| placement.part == GENERATOR)?;
    let core = if placement.cores.len() == 1 { "core" } else { "cores" };
    Some(failed(
        format!("the generator shares its {core} with the {with}"),
        "Give the generator cores of its own, with [cores] in the experiment, or other machines, with --worker in the workload’s args.",
    ))
}

/// How busy the generator was in its busiest run, 0–1: by its resource, else by its own processor time over as many
/// cores as it has threads.
fn share(seen: &Seen) -> Option<f64> {
    let resources: Vec<_> =
        seen.results.resources.iter().filter(|resource| resource.kind == ResourceKind::Generator).collect();
    let of_run = |(trial, load): &(&Trial, &LoadReport)| {
        let read = resources.iter().filter_map(|resource| trial.utilization(resource)).max_by(f64::total_cmp);
        let own = load.cpu_secs / (load.window_secs * f64::from(load.threads));
        read.or(own.is_finite().then_some(own))
    };
    let shares: Option<Vec<f64>> = seen.ran.iter().map(of_run).collect();
    shares?.into_iter().max_by(f64::total_cmp)
}

/// How long the generator's threads waited for a core, as a share of the time requests were under way: by the sampler,
/// else by what the generator read of itself.
fn waited((trial, load): &(&Trial, &LoadReport)) -> Option<f64> {
    let sampled = trial.per_sec("generator.run_delay_secs");
    let own = || Some(load.run_delay_secs? / load.window_secs);
    let per_sec = sampled.or_else(own)?;
    if per_sec <= WAIT_LEAST * f64::from(load.threads) {
        return Some(0.0);
    }
    // R·X: so much time passes in requests every second.
    let share = per_sec / (request_secs(load) / load.window_secs);
    share.is_finite().then_some(share)
}

/// How much of all latency is time by which the generator sent late although it had a connection.
fn late_share(load: &LoadReport) -> Option<f64> {
    let send_lag = load.schedule.as_ref()?.send_lag;
    let share = send_lag.us_mean * send_lag.count as f64 / (load.latency.us_mean * load.latency.count as f64);
    share.is_finite().then_some(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Capacity, Grade, Standing, WorkloadFindings, findings};
    use kv::proto::{AccuracyCheck, Latency, SelftestReport};
    use lab_data::simulated::tests::{model, sweep};

    const LEVELS: &[u32] = &[1, 4, 8, 16, 32];

    /// What becomes of a simple sweep in which the reports were changed.
    fn found(change: impl Fn(&mut Results)) -> WorkloadFindings {
        let mut results = sweep(&model("cpu 1 =1ms"), &["w"], LEVELS, 2, "1s");
        change(&mut results);
        findings(&results).workloads.remove(0)
    }

    /// Why gate G3 fails at the highest level; `None` where it does not.
    fn why(found: &WorkloadFindings) -> Option<&str> {
        match &found.rows.last()?.checks[2].verdict {
            Verdict::Failed { why, .. } => Some(why),
            _ => None,
        }
    }

    fn loads(results: &mut Results) -> impl Iterator<Item = &mut LoadReport> {
        results.trials.iter_mut().filter_map(|trial| trial.load.as_mut())
    }

    fn placed(results: &mut Results, parts: &[(&str, usize, &[&str])]) {
        let placement = |(part, core, with): &(&str, usize, &[&str])| Placement {
            part: (*part).to_owned(),
            cores: vec![*core],
            shares_with: with.iter().map(|part| (*part).to_owned()).collect(),
        };
        results.placements = parts.iter().map(placement).collect();
    }

    /// However little either needed of the core: what it took, the other did not have.
    #[test]
    fn on_a_shared_core_the_capacity_is_a_lower_bound_and_nothing_is_named() {
        let found = found(|results| {
            placed(results, &[("server", 0, &["generator"]), ("generator", 0, &["server"])]);
        });
        assert!(found.rows.iter().all(|row| row.standing == Standing::GeneratorLimited));
        let Capacity::GeneratorLimited { at_least_rps, why, .. } = &found.capacity else { panic!() };
        assert_eq!(why, "the generator shares its core with the server");
        assert!(at_least_rps.low > 0.0);
        let bottleneck = &found.bottleneck;
        assert_eq!((bottleneck.grade, bottleneck.named.len()), (Grade::Generator, 0));
        assert_eq!((&bottleneck.next, &found.knee), (&None, &None));
    }

    #[test]
    fn parts_that_share_a_core_among_themselves_do_not_concern_the_generator() {
        let found = found(|results| {
            placed(
                results,
                &[("server", 0, &["database"]), ("database", 0, &["server"]), ("generator", 1, &[])],
            );
        });
        assert_eq!((why(&found), found.bottleneck.grade), (None, Grade::Supported));
    }

    #[test]
    fn waiting_for_a_core_is_read_from_the_generator_where_no_sampler_saw_it() {
        let waited = |own: f64, sampled: Option<f64>| {
            found(|results| {
                for trial in &mut results.trials {
                    // Of so many clients the time of 1 s.
                    let secs = own * f64::from(trial.level);
                    trial.load.as_mut().unwrap().run_delay_secs = Some(secs);
                    let Some(sampled) = sampled else { continue };
                    trial.opened.counters.insert("generator.run_delay_secs".into(), 0.0);
                    let secs = sampled * f64::from(trial.level);
                    trial.closed.counters.insert("generator.run_delay_secs".into(), secs);
                }
            })
        };
        assert_eq!(why(&waited(0.009, None)), None);
        let said = "the generator waited for a core for 1.2 % of its requests’ time";
        assert_eq!(why(&waited(0.012, None)), Some(said));
        assert_eq!(why(&waited(0.5, Some(0.001))), None, "the sampler saw every thread to its end");
    }

    /// What the highest level says of a selftest with these figures; goodput is 1000 req/s there.
    fn against(ceiling_rps: f64, generator_busy: f64, change: impl Fn(&mut LoadReport)) -> Verdict {
        let found = found(|results| {
            let figures = [("ceiling_rps", ceiling_rps), ("generator_busy", generator_busy)];
            let figures = figures.map(|(name, figure)| (name.to_owned(), figure)).into();
            let check = AccuracyCheck { name: RATE_CHECK.to_owned(), figures, ..AccuracyCheck::default() };
            results.selftest =
                Some(Selftest::Ran(SelftestReport { checks: vec![check], ..SelftestReport::default() }));
            loads(results).for_each(&change);
        });
        found.rows.last().unwrap().checks[2].verdict.clone()
    }

    #[test]
    fn a_generator_that_does_hardly_more_against_memory_is_the_limit() {
        assert_eq!(against(3100.0, 0.95, |_| ()), Verdict::Passed);
        let Verdict::Failed { why, .. } = against(2000.0, 0.95, |_| ()) else { panic!() };
        assert!(why.starts_with("the generator makes only 2.0 times as many requests"), "{why}");
        let two_threads = against(2000.0, 0.95, |load| load.threads = 2);
        assert_eq!(two_threads, Verdict::Passed, "each makes as many");
    }

    #[test]
    fn what_cannot_be_compared_with_memory_is_said_and_fails_nothing() {
        let missing = |verdict| match verdict {
            Verdict::Partly { missing, .. } => missing,
            verdict => panic!("{verdict:?}"),
        };
        assert!(missing(against(2000.0, 0.5, |_| ())).contains("was slower than the generator"));
        assert!(
            missing(against(2000.0, 0.95, |load| load.value_bytes = "100-2000".into()))
                .contains("above 1000 B")
        );
        assert!(
            missing(against(2000.0, 0.95, |load| load.schedule = Some(ScheduleReport::default())))
                .contains("open loop")
        );
        let skipped = found(|results| results.selftest = Some(Selftest::Skipped));
        assert!(missing(skipped.rows[0].checks[2].verdict.clone()).contains("no selftest"));
    }

    /// A generator that sends late measures itself, unless nobody could have done better.
    #[test]
    fn lateness_of_an_open_loop_fails_where_it_shows_in_the_latency() {
        let late = |us_mean: f64, us_p99: f64| {
            found(|results| {
                for load in loads(results) {
                    let count = load.attempts;
                    load.service = Some(load.latency);
                    load.schedule = Some(ScheduleReport {
                        offered_rps: load.goodput_rps,
                        send_lag: Latency { count, us_mean, us_p99, ..Latency::default() },
                        ..ScheduleReport::default()
                    });
                    // Waking up again and again is no finding where nobody waits.
                    load.run_delay_secs = Some(0.5);
                }
            })
        };
        // 32 clients at 1 ms each: latencies of 32 ms.
        assert_eq!(why(&late(200.0, 900.0)), None, "0.6 % of the latency");
        assert_eq!(why(&late(400.0, 49.0)), None, "no thread wakes sooner");
        let found = late(400.0, 900.0);
        let said = "1.2 % of the latency is the generator’s own lateness (mean 400 µs, p99 900 µs)";
        assert_eq!(why(&found), Some(said));
        assert_eq!(found.rows[4].standing, Standing::GeneratorLimited);
    }
}
