//! A target as the command lines of its processes: started in their order, waited for, and gone in the reverse order.
//!
//! Known of it: that it answers HTTP on the port it was given, and which process is which part.

use super::Options;
use super::disk;
use super::files::{self, cannot_write, temporary_dir};
use super::ports::free_ports;
use super::process::{Process, kill_within, poll_until, wait_ready};
use crate::http::answers;
use crate::sampler::listens_elsewhere;
use kv::{Error, one_line};
use lab_data::experiment::{Commands, HTTPS, PORT, SERVER, fill};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tempfile::TempDir;

/// How long a target may take until it answers.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long a program may take to say its version.
const VERSION_MAX: Duration = Duration::from_secs(5);

/// The processes of a target that answers.
pub(super) struct Services {
    /// In the order they were started; before the directory, which must outlive them.
    pub(super) running: Vec<Process>,
    /// `http://127.0.0.1:PORT`, or `https://`.
    pub(super) url: String,
    /// Where it keeps its files.
    pub(super) dir: TempDir,
}

/// The placeholder of the port the load goes to; others have a name.
const LOADED: &str = "port";
/// What placeholders stand for in one start, but `{cores}`, which each process has its own of.
struct Values(BTreeMap<String, String>);

impl Services {
    /// Starts all processes, each on the cores of its part and on ports that were free a moment ago, and waits until the target answers.
    /// Its directory and its logs are in the results directory.
    pub(super) fn start<'a>(
        commands: &Commands,
        options: &Options,
        cores_of: impl Fn(&str) -> &'a [usize],
        is_disk_broken: impl Fn(&str) -> bool,
    ) -> Result<Services, Error> {
        let dir = temporary_dir(&options.dir, "target-")?;
        let values = Values::new(commands, options, dir.path())?;
        for (name, text) in &commands.files {
            let path = dir.path().join(name);
            let text = values.fill(text, cores_of(SERVER).len())?;
            fs::write(&path, text).map_err(|error| cannot_write(&path, error))?;
        }
        let scheme = if commands.tls { HTTPS } else { "http://" };
        let url = format!("{scheme}127.0.0.1:{}", values.0[LOADED]);
        let mut services = Services { running: Vec::new(), url, dir };
        for process in &commands.processes {
            let cores = cores_of(&process.part);
            let mut command = values.command(&process.command, cores.len())?;
            let log = options.dir.join(format!("{}.log", process.part));
            let dir = services.dir.path();
            command.current_dir(dir);
            disk::preload(&mut command, None, is_disk_broken(&process.part), dir)?;
            services.running.push(Process::guarded(&mut command, cores, &log, Signal::TERM, dir)?);
        }
        let Services { running, url, .. } = &mut services;
        wait_ready(running, TIMEOUT, &options.stop, || is_ready(url, &commands.ready))?;
        let port = &values.0[LOADED];
        let roots: Vec<u32> = running.iter().map(Process::pid).collect();
        if port.parse().is_ok_and(|port| listens_elsewhere(&roots, port)) {
            let what = format_args!("the server on port {port} is not a child process of the command");
            return Err(Error::new(what).hint(
                "start it in the foreground, without a launcher or container; or measure it where it runs: weir lab --url URL",
            ));
        }
        running.iter().try_for_each(disk::verify)?;
        Ok(services)
    }
}

/// Whether a service serves; else what was asked, what came, and what would do.
fn is_ready(url: &str, path: &str) -> Result<(), String> {
    // Not that it fails: who is started first may serve before what stands behind it does.
    answers(url, path, |status| status < 500).map_err(|why| {
        format!(
            "GET {path}: {why}; any status below 500 would do, and an experiment file can name another path with ready = \"/PATH\""
        )
    })
}

impl Drop for Services {
    fn drop(&mut self) {
        while let Some(mut process) = self.running.pop() {
            process.end_tree(Signal::TERM);
        }
        kill_within(self.dir.path());
    }
}

/// Complains of programs that are not there, before anything is measured.
pub(super) fn check(commands: &Commands, program: &Path) -> Result<(), Error> {
    let values = Values::before_start(program);
    for process in &commands.processes {
        // Any path will do for what is not known yet.
        let name = fill(&process.command[0], |name| Some(values.of(name, 1).unwrap_or_default()));
        find(&name.unwrap_or_default())?;
    }
    Ok(())
}

/// The command lines as they stand in the file, and what versions the programs say they are.
pub(super) fn describe(commands: &Commands, program: &Path) -> Vec<(String, String)> {
    let values = Values::before_start(program);
    let facts = commands.processes.iter().flat_map(|process| {
        let version = version(&values, &process.version).map(|version| (process.part.clone(), version));
        version.into_iter().chain([(format!("{} command", process.part), in_one_line(&process.command))])
    });
    facts.collect()
}

/// The words of a command in one line, as each stands in a cell of a table.
fn in_one_line(command: &[String]) -> String {
    command.join(" ").lines().collect::<Vec<_>>().join("; ")
}

/// The first line that a command says; `None` where there is none, or it fails.
fn version(values: &Values, words: &[String]) -> Option<String> {
    let mut command = values.command(words, 1).ok()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    let ended = poll_until(VERSION_MAX, &AtomicBool::new(false), || child.try_wait().map_err(Error::new));
    // One that goes on has taken it for something else than a question: it has begun to serve.
    let _ = child.kill();
    let output = child.wait_with_output().ok()?;
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let line = said.iter().flat_map(|text| text.lines()).find(|line| !line.trim().is_empty())?;
    ended.ok()??.success().then(|| one_line(line))
}

impl Values {
    /// What is known before anything is started.
    fn before_start(program: &Path) -> Values {
        let weir_dir = program.parent().unwrap_or(Path::new("."));
        Values([("weir_dir".to_owned(), weir_dir.display().to_string())].into())
    }

    /// With the target's own directory, and a free port for every name that is used.
    fn new(commands: &Commands, options: &Options, dir: &Path) -> Result<Values, Error> {
        let words = commands.processes.iter().flat_map(|process| &process.command);
        let mut names = vec![LOADED.to_owned()];
        for text in commands.files.values().chain(words) {
            // Nothing is unknown here: only the names are wanted.
            let _ = fill(text, |name| {
                names.extend(name.starts_with(PORT).then(|| name.to_owned()));
                Some(String::new())
            });
        }
        let ports = free_ports(names.len())?;
        let mut values = Values::before_start(&options.program);
        values.0.extend(names.into_iter().zip(ports.iter().map(u16::to_string)));
        values.0.insert("dir".to_owned(), dir.display().to_string());
        Ok(values)
    }

    fn of(&self, name: &str, cores: usize) -> Option<String> {
        if name == "cores" { Some(cores.to_string()) } else { self.0.get(name).cloned() }
    }

    fn fill(&self, text: &str, cores: usize) -> Result<String, Error> {
        fill(text, |name| self.of(name, cores))
            .map_err(|name| Error::new(format_args!("{{{name}}} stands for nothing here")))
    }

    fn command(&self, words: &[String], cores: usize) -> Result<Command, Error> {
        let words = words.iter().map(|word| self.fill(word, cores)).collect::<Result<Vec<_>, _>>()?;
        let program = words.first().ok_or_else(|| Error::new("a command without words"))?;
        let mut command = Command::new(find(program)?);
        command.args(&words[1..]);
        Ok(command)
    }
}

/// The program of this name: in the PATH, else where packages put servers.
fn find(name: &str) -> Result<PathBuf, Error> {
    if !name.contains('/') {
        return files::program(&[name]).ok_or_else(|| {
            Error::new(format_args!("there is no program {name} in PATH or /usr/sbin")).hint("install it")
        });
    }
    let path = std::path::absolute(name).unwrap_or_else(|_| PathBuf::from(name));
    if path.is_file() {
        return Ok(path);
    }
    let error = Error::new(format_args!("there is no program {}", path.display()));
    // An example of cargo's is made by no other build.
    let is_example = path.parent().is_some_and(|dir| dir.ends_with("examples"));
    Err(match path.file_name().filter(|_| is_example) {
        Some(name) => error.hint(format_args!("cargo build --release --example {}", name.display())),
        None => error.hint("build it"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::experiment::{Fresh, Process as Service, Quota};
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    fn commands(processes: &[(&str, &[&str])]) -> Commands {
        let process = |(part, words): &(&str, &[&str])| Service {
            part: (*part).to_owned(),
            command: words.iter().map(|word| (*word).to_owned()).collect(),
            version: Vec::new(),
        };
        let files = [("name.txt".to_owned(), "{port} {port:other} {cores} {dir}\n".to_owned())].into();
        let processes = processes.iter().map(process).collect();
        Commands {
            ready: "/".into(),
            tls: false,
            files,
            fresh: Fresh::Repetition,
            quota: Quota::default(),
            processes,
        }
    }

    /// What `processes` complain of when started.
    fn complaint(processes: &[(&str, &[&str])]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let commands = commands(processes);
        let options = Options::of(dir.path().join("weir"), dir.path());
        // Core 0 need not be ours.
        let core = [kv::cores::available().unwrap()[0]];
        let why = Services::start(&commands, &options, |_| &core, |_| false).err().unwrap().to_string();
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| name.to_string_lossy().ends_with(".log")), "{left:?}");
        assert!(!why.contains('\n'), "{why}");
        why
    }

    #[test]
    fn what_is_not_ready_is_named_with_what_was_asked() {
        let asked = |status: &'static str| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let server = thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).unwrap();
                stream
            });
            let ready = is_ready(&url, "/orders");
            server.join().unwrap();
            ready
        };
        assert_eq!(asked("404 Not Found"), Ok(()));
        let said = asked("500 Internal Server Error").unwrap_err();
        assert!(said.starts_with("GET /orders: it answered 500; any status below 500 would do"), "{said}");
    }

    #[test]
    fn a_process_that_ends_early_is_quoted() {
        let why =
            complaint(&[("server", &["sleep", "1000"]), ("store", &["sh", "-c", "echo no room; exit 3"])]);
        assert!(why.starts_with("store ended with exit status: 3: no room; hint: see "), "{why}");
        let why = complaint(&[("server", &["true"])]);
        assert!(why.contains("it has to stay in the foreground"), "{why}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let why = complaint(&[("server", &["no-such-server", "{port}"])]);
        assert_eq!(why, "there is no program no-such-server in PATH or /usr/sbin; hint: install it");
        let why = check(&commands(&[("server", &["{weir_dir}/nothing"])]), Path::new("/some/weir"))
            .unwrap_err()
            .to_string();
        assert_eq!(why, "there is no program /some/nothing; hint: build it");
        let commands = commands(&[("server", &["{weir_dir}/examples/floor"])]);
        let why = check(&commands, Path::new("/some/weir")).unwrap_err().to_string();
        let remedy = "hint: cargo build --release --example floor";
        assert_eq!(why, format!("there is no program /some/examples/floor; {remedy}"));
    }

    #[test]
    fn what_goes_to_the_background_is_not_left_behind() {
        for script in ["sleep 987 & echo $!; exit 0", "setsid sleep 987 & echo $!; exit 0"] {
            let why = complaint(&[("server", &["sh", "-c", script])]);
            assert!(why.contains("it has to stay in the foreground"), "{why}");
            let said = why.split(": ").nth(2).unwrap_or_default();
            let sleeper: u32 = said.split(';').next().unwrap_or_default().parse().expect(&why);
            let line = fs::read_to_string(format!("/proc/{sleeper}/cmdline")).unwrap_or_default();
            assert!(!line.contains("987"), "{line}");
        }
    }

    #[test]
    fn placeholders_are_ports_of_their_own_the_directory_and_the_cores() {
        let why = complaint(&[("server", &["sh", "-c", "cat name.txt; exit 1"])]);
        let said = why.split(": ").nth(2).unwrap_or_default();
        let words: Vec<&str> = said.split("; hint").next().unwrap_or_default().split(' ').collect();
        let [port, other, cores, dir] = words[..] else { panic!("{why}") };
        assert!(port.parse::<u16>().unwrap() != other.parse::<u16>().unwrap());
        assert!(cores == "1" && Path::new(dir).is_absolute(), "{why}");
    }

    #[test]
    fn a_version_is_the_first_line_a_command_says() {
        let mut commands = commands(&[("server", &["serve", "{dir}/x\ny"])]);
        commands.processes[0].version =
            ["sh", "-c", "echo 'x  1.2' >&2; echo more >&2"].map(str::to_owned).into();
        let facts = describe(&commands, Path::new("/weir"));
        let facts: Vec<(&str, &str)> = facts.iter().map(|(name, fact)| (&**name, &**fact)).collect();
        assert_eq!(facts, [("server", "x 1.2"), ("server command", "serve {dir}/x; y")]);
    }
}
