//! What the parts use of the processor, summed over each part's tree of processes.
//!
//! CPU time and the time spent waiting for a core come from `schedstat` of every thread, in nanoseconds; the 10 ms
//! ticks of `stat` stand in where a kernel has no `schedstat`, and for threads that ended between two readings. Processes that ended
//! between two readings, as one for each request does, are known from what their parent says of its children. Threads that weir named
//! after what they do are also summed by that.

use super::{Context, Reading, Sampler, numbers, tick_secs};
use std::collections::{BTreeSet, HashMap};
use std::{fs, io};

pub(super) fn make(context: &Context) -> Option<Sampler> {
    let part = |(name, root): &(String, u32)| Part { name: name.clone(), root: *root, ..Part::default() };
    let mut parts: Vec<Part> = context.parts.iter().map(part).collect();
    Some(Box::new(move |into| {
        // What is known already before looking for what is new: a generator's threads end soon after its window.
        for part in &mut parts {
            let living = part.seen.iter_mut().filter(|(_, used)| !used.has_ended);
            living.for_each(|(pid, used)| read_threads(*pid, &mut used.threads));
        }
        let all = processes()?;
        for part in &mut parts {
            let tree = tree(&all, part.root);
            if !tree.is_empty() {
                part.read(&tree, tick_secs(), into);
            }
        }
        Ok(())
    }))
}

/// The processes below `root`, itself first; empty if it is gone.
pub fn descendants(root: u32) -> Vec<u32> {
    tree(&processes().unwrap_or_default(), root).iter().map(|stat| stat.pid).collect()
}

#[derive(Default)]
struct Part {
    name: String,
    root: u32,
    /// Everything the tree ever had: a process that ended has used what it used, and counters only grow.
    seen: HashMap<u32, Used>,
    /// What processes used that are not in `seen`, or after they were last seen.
    unseen_secs: f64,
    /// Of `unseen_secs`, what was used before the first reading.
    unseen_before_secs: Option<f64>,
}

/// What one process has used.
#[derive(Default)]
struct Used {
    ticks_secs: f64,
    /// Of `ticks_secs`, what threads did that ended before the first reading.
    before_secs: f64,
    threads: HashMap<u32, Thread>,
    /// Whether it is not in the tree any more.
    has_ended: bool,
}

/// One thread, with its `schedstat`.
#[derive(Clone, Debug, Default, PartialEq)]
struct Thread {
    /// What it does, if its name says so: `write` of `weir-write-3`.
    task: Option<String>,
    cpu_secs: f64,
    run_delay_secs: f64,
    switches: f64,
}

/// What is needed of one process's `stat`.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stat {
    /// Its process id.
    pub(crate) pid: u32,
    /// Dead, and not yet collected by whoever inherited it.
    pub(crate) is_dead: bool,
    /// Its process group.
    pub(crate) group: u32,
    /// Its session; 0 where that began outside our pid namespace.
    pub(crate) session: u32,
    /// Whether it has a terminal.
    pub(crate) has_terminal: bool,
    parent: u32,
    ticks: f64,
    children_ticks: f64,
    threads: f64,
}

impl Stat {
    /// Of the process `pid`, if there is one.
    pub(crate) fn of(pid: u32) -> Option<Stat> {
        parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }
}

/// With a larger share of processes that were not seen, what threads waited is not the whole.
const UNSEEN_MAX: f64 = 0.02;

impl Part {
    fn read(&mut self, tree: &[&Stat], tick_secs: f64, into: &mut Reading) {
        self.seen.values_mut().for_each(|used| used.has_ended = true);
        for stat in tree {
            let used = self.seen.entry(stat.pid).or_default();
            used.has_ended = false;
            used.ticks_secs = stat.ticks * tick_secs;
            if used.threads.is_empty() {
                read_threads(stat.pid, &mut used.threads);
                used.before_secs = (used.ticks_secs - used.threads_secs()).max(0.0);
            }
        }
        // Who waits for a process that ended gets its time and that of its children. Some may not have appeared there yet.
        let children_secs = tree.iter().map(|stat| stat.children_ticks).sum::<f64>() * tick_secs;
        let ended_secs: f64 = self.seen.values().filter(|used| used.has_ended).map(Used::cpu_secs).sum();
        self.unseen_secs = self.unseen_secs.max(children_secs - ended_secs);
        let name = &self.name;
        let threads = || self.seen.values().flat_map(|used| used.threads.values());
        for task in threads().filter_map(|thread| thread.task.as_ref()).collect::<BTreeSet<_>>() {
            let its = || threads().filter(|thread| thread.task.as_ref() == Some(task));
            let name = format!("{name}.threads.{task}");
            into.count(format!("{name}.cpu_secs"), its().map(|of| of.cpu_secs).sum());
            into.count(format!("{name}.run_delay_secs"), its().map(|of| of.run_delay_secs).sum());
        }
        let cpu_secs = self.seen.values().map(Used::cpu_secs).sum::<f64>() + self.unseen_secs;
        into.count(format!("{name}.cpu_secs"), cpu_secs);
        // With its accounting off the kernel prints zeros for these two; and of a thread that ended unseen they are
        // lost. Left out they fail to prove anything, too low they would prove the wrong thing.
        let switches: f64 = threads().map(|thread| thread.switches).sum();
        let unseen_secs = self.unseen_secs - *self.unseen_before_secs.get_or_insert(self.unseen_secs);
        let is_little = unseen_secs < (UNSEEN_MAX * cpu_secs).max(2.0 * tick_secs);
        if switches > 0.0 && is_little && self.seen.values().all(|used| used.is_complete(tick_secs)) {
            into.count(format!("{name}.switches"), switches);
            into.count(format!("{name}.run_delay_secs"), threads().map(|thread| thread.run_delay_secs).sum());
        }
        into.gauge(format!("{name}.threads"), tree.iter().map(|stat| stat.threads).sum());
    }
}

impl Used {
    fn cpu_secs(&self) -> f64 {
        // The ticks of a process include what threads did that ended unseen; rounded down, they are below the exact
        // sum while all live.
        (self.before_secs + self.threads_secs()).max(self.ticks_secs)
    }

    /// Whether the threads account for all that was done since the first reading, but for the rounding of ticks.
    fn is_complete(&self, tick_secs: f64) -> bool {
        self.ticks_secs - self.before_secs - self.threads_secs() < 2.0 * tick_secs
    }

    fn threads_secs(&self) -> f64 {
        self.threads.values().map(|thread| thread.cpu_secs).sum()
    }
}

/// Takes in every thread of a process. One that ends meanwhile keeps what was last seen of it.
fn read_threads(pid: u32, threads: &mut HashMap<u32, Thread>) {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for task in tasks.flatten() {
        let Some(thread) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        if let Some(read) = parse_schedstat(&text) {
            let named = || fs::read_to_string(task.path().join("comm")).ok().and_then(|name| task_of(&name));
            let known =
                threads.entry(thread).or_insert_with(|| Thread { task: named(), ..Thread::default() });
            *known = Thread { task: known.task.take(), ..read };
        }
    }
}

/// What a thread of weir's does, by its name: `write` of `weir-write-3`. `None` of others.
fn task_of(name: &str) -> Option<String> {
    let (task, number) = name.trim_end().strip_prefix("weir-")?.rsplit_once('-')?;
    number.parse::<u32>().ok().map(|_| task.to_owned())
}

/// Every process of the machine.
pub(crate) fn processes() -> io::Result<Vec<Stat>> {
    let pids = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // One may have ended since it was listed.
    Ok(pids.filter_map(Stat::of).collect())
}

/// `root` and all below it, parents before children.
fn tree(all: &[Stat], root: u32) -> Vec<&Stat> {
    let mut tree: Vec<&Stat> = all.iter().filter(|stat| stat.pid == root).collect();
    let mut next = 0;
    while let Some(parent) = tree.get(next).map(|stat| stat.pid) {
        tree.extend(all.iter().filter(|stat| stat.parent == parent && stat.pid != parent));
        next += 1;
    }
    tree
}

fn parse_schedstat(text: &str) -> Option<Thread> {
    let [cpu_ns, delay_ns, switches] = numbers(text)[..] else { return None };
    Some(Thread { task: None, cpu_secs: cpu_ns / 1e9, run_delay_secs: delay_ns / 1e9, switches })
}

fn parse_stat(text: &str) -> Option<Stat> {
    let pid = text.split(' ').next()?.parse().ok()?;
    // A process names itself, with blanks and brackets if it likes; behind its last bracket and its state all is numbers.
    let (state, rest) = text.rsplit_once(") ")?.1.split_once(' ')?;
    let numbers = numbers(rest);
    let [parent, group, session, terminal, ..] = numbers[..] else { return None };
    Some(Stat {
        pid,
        is_dead: state == "Z",
        group: group as u32,
        session: session as u32,
        has_terminal: terminal != 0.0,
        parent: parent as u32,
        ticks: numbers.get(10)? + numbers.get(11)?,
        children_ticks: numbers.get(12)? + numbers.get(13)?,
        threads: *numbers.get(16)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_may_be_called_anything() {
        let text = "1234 (a) b (c) S 77 1234 1234 0 -1 4194560 100 0 0 0 250 50 7 8 20 0 12 0 46035 1000 10 18446744073709551615\n";
        let stat = parse_stat(text).unwrap();
        let Stat { pid, is_dead, group, session, has_terminal, parent, ticks, children_ticks, threads } =
            stat;
        assert_eq!(
            (pid, is_dead, parent, group, session, has_terminal),
            (1234, false, 77, 1234, 1234, false)
        );
        assert_eq!((ticks, children_ticks, threads), (300.0, 15.0, 12.0));
        assert_eq!(parse_stat("1234 (broken"), None);
    }

    #[test]
    fn schedstat_is_in_nanoseconds() {
        let ran = Thread { task: None, cpu_secs: 1.5, run_delay_secs: 0.25, switches: 7.0 };
        assert_eq!(parse_schedstat("1500000000 250000000 7\n"), Some(ran));
        assert_eq!(parse_schedstat(""), None);
    }

    #[test]
    fn threads_say_what_they_do() {
        assert_eq!(task_of("weir-write-12\n").as_deref(), Some("write"));
        for name in ["weir\n", "weir-keeper\n", "tokio-runtime-w\n", ""] {
            assert_eq!(task_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_tree_is_its_root_and_all_below() {
        let stat = |pid, parent| Stat { pid, parent, ..Stat::default() };
        let all = [stat(1, 0), stat(10, 1), stat(11, 10), stat(12, 10), stat(13, 12), stat(20, 1)];
        let pids = |root| tree(&all, root).iter().map(|stat| stat.pid).collect::<Vec<_>>();
        assert_eq!(pids(10), [10, 11, 12, 13]);
        assert!(pids(99).is_empty());
    }

    #[test]
    fn a_thread_that_ended_still_counts() {
        let ran = Thread { cpu_secs: 0.5, switches: 1.0, ..Thread::default() };
        let threads = HashMap::from([(1, ran)]);
        let mut used = Used { ticks_secs: 1.49, before_secs: 1.0, threads, ..Used::default() };
        assert_eq!(used.cpu_secs(), 1.5, "the exact sum wins while all threads live");
        assert!(used.is_complete(0.01));
        used.ticks_secs = 2.0;
        assert_eq!(used.cpu_secs(), 2.0, "a thread came, worked and went between two readings");
        assert!(!used.is_complete(0.01), "how long that thread waited is lost");
    }

    /// What each request of a service costs that starts a process for it, as CGI does: it is gone before it is read.
    #[test]
    fn children_that_ended_unseen_count_once() {
        // Each child computes for some ticks; the fourth one is read before it ends.
        const SERVICE: &str = "work() { i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done; }\n\
            for _ in 1 2 3; do (work); done\necho began\n(work; work; work; work; echo seen; read line)\necho ended\nread line\n\
            (work; work); echo over; read line";
        let mut service = Command::new("sh");
        let mut service =
            service.args(["-c", SERVICE]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut into, from) = (service.stdin.take().unwrap(), service.stdout.take().unwrap());
        let mut said = BufReader::new(from).lines();
        let mut hear = |line: &str| assert_eq!(said.next().unwrap().unwrap(), line);
        let context = Context { parts: vec![("it".into(), service.id())], ..Context::default() };
        let mut sampler = make(&context).unwrap();
        let mut cpu = || {
            let mut reading = Reading::default();
            sampler(&mut reading).unwrap();
            reading.counters["it.cpu_secs"]
        };
        let all_ticks = || {
            let text = fs::read_to_string(format!("/proc/{}/stat", service.id())).unwrap();
            let (_, rest) = text.rsplit_once(") ").unwrap();
            rest.split(' ')
                .skip(11)
                .take(4)
                .map(|ticks| ticks.parse::<f64>().unwrap() * tick_secs())
                .sum::<f64>()
        };
        hear("began");
        hear("seen");
        let seen = cpu();
        into.write_all(b"\n").unwrap();
        hear("ended");
        // Its parent has its time now, too.
        let (after, all) = (cpu(), all_ticks());
        assert!(
            after >= seen && (after - all).abs() < 0.1 * all + 4.0 * tick_secs(),
            "{seen} {after}, not {all}"
        );
        into.write_all(b"\n").unwrap();
        hear("over");
        let (after, all) = (cpu(), all_ticks());
        into.write_all(b"\n").unwrap();
        service.wait().unwrap();
        assert!((after - all).abs() < 0.1 * all + 4.0 * tick_secs(), "{after}, not {all}");
    }

    #[test]
    fn work_shows_up_in_the_next_reading() {
        let context = Context { parts: vec![("me".into(), std::process::id())], ..Context::default() };
        let mut sampler = make(&context).unwrap();
        let mut cpu = || {
            let mut reading = Reading::default();
            sampler(&mut reading).unwrap();
            assert!(reading.gauges["me.threads"] >= 1.0);
            reading.counters["me.cpu_secs"]
        };
        let before = cpu();
        // Reading is work, too: the loop ends as soon as the counter has seen it.
        while cpu() <= before {}
    }
}
