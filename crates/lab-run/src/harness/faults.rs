//! The faults of an experiment, made while a trial runs.
//!
//! In a thread beside the load generator, from the opening of its window on. Processes are killed, stopped and started again, the disk
//! under them fails, and links before them carry nothing. What is still broken when the generator has reported is mended then.

use super::disk;
use super::process::Process;
use kv::Error;
use lab_data::experiment::{Fault, FaultKind, LINK, SERVER};
use lab_data::results::FaultRecord;
use rustix::process::Signal;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Of a slow process: how long it is stopped, and how long it then runs.
const STOPPED: Duration = Duration::from_millis(18);
const RUNNING: Duration = Duration::from_millis(2);

/// What the process is called that carries all that goes to `part`.
pub(super) fn link_name(part: &str) -> String {
    if part == SERVER { LINK.to_owned() } else { format!("{LINK}-{part}") }
}

/// A fault that is due, and the process it is made of.
struct Due<'f> {
    fault: &'f Fault,
    at: Duration,
    process: usize,
}

/// Makes `faults` of `processes` in a window of this length, and mends them. `window` says when that opens, and ends with the run.
pub(super) fn carry_out(
    faults: &[&Fault],
    length: Duration,
    processes: Vec<&mut Process>,
    window: &Receiver<()>,
) -> Result<Vec<FaultRecord>, Error> {
    let mut due = Vec::new();
    for fault in faults {
        let name = match fault.kind {
            FaultKind::Partition => link_name(&fault.part),
            _ => fault.part.clone(),
        };
        let process = processes.iter().position(|process| process.name == name);
        let missing = || Error::new(format_args!("fault `{}`: no process {name} runs", fault.kind.name()));
        let process = process.ok_or_else(missing)?;
        due.extend(fault.times(length).into_iter().map(|at| Due { fault, at, process }));
    }
    due.sort_by_key(|due| due.at);
    let Ok(()) = window.recv() else { return Ok(Vec::new()) };
    let opened = Instant::now();
    let mut breaker = Breaker { processes, down: Vec::new(), slow: Vec::new(), is_running: true, window };
    // One that begins when another ends begins after it.
    let steps = |(place, due): (usize, &Due)| {
        [(due.at, true, place), (due.at + due.fault.length.0, due.fault.length.0.is_zero(), place)]
    };
    let mut steps: Vec<(Duration, bool, usize)> = due.iter().enumerate().flat_map(steps).collect();
    steps.sort();
    let mut records: Vec<(usize, FaultRecord)> = Vec::new();
    let mut is_over = false;
    for (at, _, place) in steps {
        is_over |= !breaker.wait(opened + at);
        let begun = records.iter_mut().find(|(of, _)| *of == place);
        match begun {
            Some((_, record)) => {
                breaker.set(&due[place], false)?;
                record.died = breaker.start_again(&due[place])?;
                record.ended_secs = opened.elapsed().as_secs_f64();
            }
            None if is_over => {}
            None => {
                let Fault { kind, part, .. } = due[place].fault;
                let began_secs = opened.elapsed().as_secs_f64();
                let (kind, part) = (kind.name().to_owned(), part.clone());
                records.push((place, FaultRecord { kind, part, began_secs, ..FaultRecord::default() }));
                breaker.set(&due[place], true)?;
            }
        }
    }
    Ok(records.into_iter().map(|(_, record)| record).collect())
}

/// What is broken at the moment.
struct Breaker<'p, 'w> {
    processes: Vec<&'p mut Process>,
    /// Those that have ended on purpose.
    down: Vec<usize>,
    /// Those that are slow.
    slow: Vec<usize>,
    /// Whether these run at the moment.
    is_running: bool,
    window: &'w Receiver<()>,
}

impl Breaker<'_, '_> {
    /// Waits until then, or until the run is over; whether it goes on.
    fn wait(&mut self, until: Instant) -> bool {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = if self.slow.is_empty() { left } else { left.min(self.take_turns()) };
            match self.window.recv_timeout(left) {
                Err(RecvTimeoutError::Disconnected) => return false,
                _ if Instant::now() >= until => return true,
                _ => {}
            }
        }
    }

    /// Stops those that are slow, or lets them go on; for how long.
    fn take_turns(&mut self) -> Duration {
        self.is_running = !self.is_running;
        let signal = if self.is_running { Signal::CONT } else { Signal::STOP };
        self.slow.iter().for_each(|process| self.processes[*process].signal_tree(signal));
        if self.is_running { RUNNING } else { STOPPED }
    }

    /// Breaks the process, or mends it.
    fn set(&mut self, due: &Due, is_broken: bool) -> Result<(), Error> {
        let process = &mut self.processes[due.process];
        match (due.fault.kind, is_broken) {
            (FaultKind::Kill | FaultKind::Restart, true) => {
                self.down.push(due.process);
                match due.fault.kind {
                    FaultKind::Kill => process.end_tree(Signal::KILL),
                    _ => process.end_in_order(),
                }
            }
            // What has ended is started again.
            (FaultKind::Kill | FaultKind::Restart, false) => self.down.retain(|down| *down != due.process),
            (FaultKind::Pause | FaultKind::Partition, true) => process.signal_tree(Signal::STOP),
            (FaultKind::Pause | FaultKind::Partition, false) => process.signal_tree(Signal::CONT),
            (FaultKind::Slow, true) => self.slow.push(due.process),
            (FaultKind::Slow, false) => {
                self.slow.retain(|slow| *slow != due.process);
                process.signal_tree(Signal::CONT);
            }
            (kind @ (FaultKind::DiskFull | FaultKind::FlushFails), _) => disk::set(process, kind, is_broken)?,
        }
        Ok(())
    }

    /// Starts a process that has ended, unless another fault keeps it down; whether it had not been asked to.
    fn start_again(&mut self, due: &Due) -> Result<bool, Error> {
        let process = &mut self.processes[due.process];
        let is_meant = matches!(due.fault.kind, FaultKind::Kill | FaultKind::Restart);
        let has_ended = process.ended().is_some() && !self.down.contains(&due.process);
        if has_ended {
            process.start_again()?;
        }
        Ok(has_ended && !is_meant)
    }
}

/// Whatever goes wrong, nothing is left stopped: parts of a process may outlive it, as the sessions of a database.
impl Drop for Breaker<'_, '_> {
    fn drop(&mut self) {
        self.processes.iter().for_each(|process| process.signal_tree(Signal::CONT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::process::Command;
    use std::sync::mpsc;

    fn fault(kind: FaultKind, at_ms: u64, length_ms: u64) -> Fault {
        let span = |ms| kv::units::Span(Duration::from_millis(ms));
        Fault { kind, part: SERVER.to_owned(), at: span(at_ms), length: span(length_ms), every: None }
    }

    fn is_stopped(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains(") T ")
    }

    #[test]
    fn a_process_is_broken_when_that_is_due_and_mended_at_the_end_at_the_latest() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("server.log");
        let mut process = Process::guarded(
            Command::new("sleep").arg("1000"),
            &[],
            &log,
            Signal::TERM,
            Path::new("/nowhere"),
        )
        .unwrap();
        let first = process.pid();
        let faults = [fault(FaultKind::Kill, 0, 1), fault(FaultKind::Pause, 10, 3_600_000)];
        let (sender, window) = mpsc::channel();
        sender.send(()).unwrap();
        let (records, stopped) = std::thread::scope(|scope| {
            let processes = vec![&mut process];
            let all: Vec<&Fault> = faults.iter().collect();
            let breaking =
                scope.spawn(move || carry_out(&all, Duration::from_secs(7200), processes, &window));
            // The second process is the one of our children that is stopped.
            let mut stopped = None;
            while stopped.is_none() {
                let own = crate::sampler::descendants(std::process::id());
                stopped = own.into_iter().find(|pid| is_stopped(*pid));
                std::thread::yield_now();
            }
            drop(sender);
            (breaking.join().unwrap().unwrap(), stopped)
        });
        let kinds: Vec<(&str, bool)> = records.iter().map(|of| (of.kind.as_str(), of.died)).collect();
        assert_eq!(kinds, [("kill", false), ("pause", false)]);
        assert!(records.iter().all(|of| of.ended_secs > of.began_secs), "{records:?}");
        assert_ne!(process.pid(), first);
        assert_eq!((stopped, is_stopped(process.pid())), (Some(process.pid()), false));
    }

    #[test]
    fn without_a_window_nothing_is_broken() {
        let (sender, window) = mpsc::channel();
        drop(sender);
        let kill = fault(FaultKind::Kill, 0, 0);
        let mut process =
            Process::weir(Command::new("sleep").arg("1000"), &[], Path::new("/dev/null")).unwrap();
        process.name = SERVER.to_owned();
        let made = carry_out(&[&kill], Duration::from_secs(1), vec![&mut process], &window);
        assert_eq!(made, Ok(Vec::new()));
        let partition = fault(FaultKind::Partition, 0, 1);
        let why = carry_out(&[&partition], Duration::from_secs(1), vec![&mut process], &window).unwrap_err();
        assert_eq!(why.to_string(), "fault `partition`: no process link runs");
    }
}
