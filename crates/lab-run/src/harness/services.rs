//! A target as the command lines of its processes: started in their order, waited for, and gone in the reverse order.
//!
//! Known of it: that it answers HTTP on the port it was given, and which process is which part.

use super::process::{Log, Process, blind, kill_within, poll_until};
use lab_data::experiment::address;
use lab_data::experiment::{Commands, PORT, SERVER, fill};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tempfile::TempDir;

/// How long a target may take until it answers.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How long one question may take.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// How long a program may take to say its version.
const VERSION_MAX: Duration = Duration::from_secs(5);
/// How often it is started on other ports when somebody was quicker.
const TRIES: usize = 5;
/// Where packages put servers that are not in every user's PATH.
const PACKAGED: &[&str] = &["/usr/sbin", "/usr/local/sbin"];

/// What to start.
pub(super) struct Start<'a> {
    /// The command lines.
    pub(super) commands: &'a Commands,
    /// The weir binary.
    pub(super) program: &'a Path,
    /// The results directory: its own directory is made there, and its logs are.
    pub(super) dir: &'a Path,
    /// Where each part runs.
    pub(super) cores: &'a dyn Fn(&str) -> &'a [usize],
}

/// The processes of a target that answers.
pub(super) struct Services {
    /// In the order they were started; before the directory, which must outlive them.
    running: Vec<Running>,
    url: String,
    dir: TempDir,
}

struct Running {
    part: String,
    process: Process,
    log: Log,
    path: PathBuf,
}

/// What placeholders stand for, for one start.
struct Values {
    dir: String,
    weir_dir: String,
    /// By name; the one the load goes to has none.
    ports: BTreeMap<String, u16>,
}

impl Services {
    /// Starts all processes and waits until the target answers.
    pub(super) fn start(start: &Start, stop: &AtomicBool) -> Result<Services, String> {
        let mut tried = 0;
        loop {
            tried += 1;
            match Services::try_start(start, stop) {
                // Between finding a free port and taking it another process may be quicker.
                Err(why) if why.to_ascii_lowercase().contains("address already in use") && tried < TRIES => {}
                done => return done,
            }
        }
    }

    fn try_start(start: &Start, stop: &AtomicBool) -> Result<Services, String> {
        // Beside the results, because a temporary folder is often memory, where a durable write costs nothing.
        let cannot = |error: io::Error| {
            format!("{}: cannot make a directory: {error}; make room or rights", start.dir.display())
        };
        let parent = std::path::absolute(start.dir).map_err(cannot)?;
        let dir = tempfile::Builder::new().prefix("target-").tempdir_in(parent).map_err(cannot)?;
        let values = Values::new(start, dir.path())?;
        for (name, text) in &start.commands.files {
            let path = dir.path().join(name);
            let text = values.fill(text, (start.cores)(SERVER).len())?;
            fs::write(&path, text)
                .map_err(|error| format!("{}: {error}; make room or rights", path.display()))?;
        }
        let url = format!("http://127.0.0.1:{}", values.ports[""]);
        let mut services = Services { running: Vec::new(), url, dir };
        for process in &start.commands.processes {
            let cores = (start.cores)(&process.part);
            let mut command = values.command(&process.command, cores.len())?;
            let path = start.dir.join(format!("{}.log", process.part));
            let (log, file) = Log::append(&path)?;
            let other = file.try_clone().map_err(|error| format!("{}: {error}", path.display()))?;
            command.current_dir(services.dir.path()).stdin(Stdio::null()).stdout(other).stderr(file);
            let process_of =
                |error| format!("cannot start {}: {error}; is it ours to run?", process.command[0]);
            let started = Process::spawn(&mut command, cores)
                .and_then(|process| process.guarded(Signal::TERM, services.dir.path()));
            let started = started.map_err(process_of)?;
            services.running.push(Running { part: process.part.clone(), process: started, log, path });
        }
        let mut last = String::new();
        let ready = poll_until(TIMEOUT, stop, || {
            if let Some(why) = services.ended() {
                return Err(why);
            }
            match answers(&services.url, &start.commands.ready) {
                Ok(()) => return Ok(Some(())),
                Err(error) => last = error.to_string(),
            }
            Ok(None)
        })?;
        ready.ok_or_else(|| {
            let log = services.running.iter().find(|running| running.part == SERVER);
            let log = log.map(|running| format!("{}; see {}", running.log.tail(), running.path.display()));
            format!(
                "the {SERVER} did not answer GET {} within {} s ({last}): {}",
                start.commands.ready,
                TIMEOUT.as_secs(),
                log.unwrap_or_default()
            )
        })?;
        Ok(services)
    }

    /// `http://127.0.0.1:PORT`.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Where it keeps its files.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Every part with its process.
    pub(super) fn parts(&self) -> impl Iterator<Item = (String, u32)> {
        self.running.iter().map(|running| (running.part.clone(), running.process.pid()))
    }

    /// What is said of the first process that is no longer there; `None` while all run.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.running.iter_mut().find_map(|running| {
            let status = running.process.ended()?;
            // Most programs that end well have gone to the background, where nobody could end or measure them.
            let hint = if status.success() { "; it has to stay in the foreground" } else { "" };
            let said = running.log.tail();
            Some(format!(
                "{} ended with {status}: {said}{hint}; see {}",
                running.part,
                running.path.display()
            ))
        })
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        while let Some(mut running) = self.running.pop() {
            running.process.end_tree(Signal::TERM);
        }
        kill_within(self.dir.path());
    }
}

/// Complains of programs that are not there, before anything is measured.
pub(super) fn check(commands: &Commands, program: &Path) -> Result<(), String> {
    let values = Values { dir: String::new(), weir_dir: weir_dir(program), ports: BTreeMap::new() };
    for process in &commands.processes {
        // Any path will do for what is not known yet.
        let name = fill(&process.command[0], |name| Some(values.of(name, 1).unwrap_or_default()));
        find(&name.unwrap_or_default())?;
    }
    Ok(())
}

/// The command lines as they stand in the file, and what versions the programs say they are.
pub(super) fn describe(commands: &Commands, program: &Path) -> Vec<(String, String)> {
    let values = Values { dir: String::new(), weir_dir: weir_dir(program), ports: BTreeMap::new() };
    let facts = commands.processes.iter().flat_map(|process| {
        let version = (!process.version.is_empty()).then(|| version(&values, &process.version)).flatten();
        let version = version.map(|version| (process.part.clone(), version));
        version.into_iter().chain([(format!("{} command", process.part), process.command.join(" "))])
    });
    facts.collect()
}

/// The first line that a command says; `None` where it fails.
fn version(values: &Values, words: &[String]) -> Option<String> {
    let mut command = values.command(words, 1).ok()?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    blind(&mut command);
    let mut child = command.spawn().ok()?;
    let ended = poll_until(VERSION_MAX, &AtomicBool::new(false), || {
        child.try_wait().map_err(|error| error.to_string())
    });
    let Ok(Some(status)) = ended else {
        // Something else than a question: it has begun to serve.
        let _ = child.kill();
        let _ = child.wait();
        return None;
    };
    let output = child.wait_with_output().ok()?;
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let line = said.iter().flat_map(|text| text.lines()).find(|line| !line.trim().is_empty())?;
    status.success().then(|| line.split_whitespace().collect::<Vec<_>>().join(" "))
}

impl Values {
    /// A free port for every name that is used.
    fn new(start: &Start, dir: &Path) -> Result<Values, String> {
        let Commands { files, processes, .. } = start.commands;
        let words = processes.iter().flat_map(|process| &process.command);
        let mut names = vec![String::new()];
        for text in files.values().chain(words) {
            // Nothing is unknown here: only the names are wanted.
            let _ = fill(text, |name| {
                names.extend(name.strip_prefix(PORT).map(str::to_owned));
                Some(String::new())
            });
        }
        names.sort();
        names.dedup();
        // All are held until all are found: else two names might have the same.
        let taken = names.iter().map(|_| TcpListener::bind("127.0.0.1:0")).collect::<io::Result<Vec<_>>>();
        let ports = taken.and_then(|listeners| {
            listeners
                .iter()
                .map(|listener| Ok(listener.local_addr()?.port()))
                .collect::<io::Result<Vec<u16>>>()
        });
        let ports = ports.map_err(|error| format!("no free port on 127.0.0.1: {error}"))?;
        Ok(Values {
            dir: dir.display().to_string(),
            weir_dir: weir_dir(start.program),
            ports: names.into_iter().zip(ports).collect(),
        })
    }

    fn of(&self, name: &str, cores: usize) -> Option<String> {
        let port = |name: &str| self.ports.get(name).map(u16::to_string);
        match name {
            "dir" => Some(self.dir.clone()),
            "weir_dir" => Some(self.weir_dir.clone()),
            "cores" => Some(cores.to_string()),
            "port" => port(""),
            _ => port(name.strip_prefix(PORT)?),
        }
    }

    fn fill(&self, text: &str, cores: usize) -> Result<String, String> {
        fill(text, |name| self.of(name, cores)).map_err(|name| format!("{{{name}}} stands for nothing here"))
    }

    fn command(&self, words: &[String], cores: usize) -> Result<Command, String> {
        let words = words.iter().map(|word| self.fill(word, cores)).collect::<Result<Vec<_>, _>>()?;
        let mut command = Command::new(find(&words[0])?);
        command.args(&words[1..]);
        Ok(command)
    }
}

fn weir_dir(program: &Path) -> String {
    program.parent().unwrap_or(Path::new(".")).display().to_string()
}

/// The program of this name: in the PATH, else where packages put servers.
fn find(name: &str) -> Result<PathBuf, String> {
    if name.contains('/') {
        let path = std::path::absolute(name).unwrap_or_else(|_| PathBuf::from(name));
        let shown = path.display();
        return if path.is_file() {
            Ok(path)
        } else {
            // An example of cargo's is made by no other build.
            let example = path.parent().is_some_and(|dir| dir.ends_with("examples"));
            let example = path.file_name().filter(|_| example).map(|name| name.to_string_lossy());
            Err(match example {
                Some(name) => {
                    format!("there is no program {shown}; build it: cargo build --release --example {name}")
                }
                None => format!("there is no program {shown}; is it built?"),
            })
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(PACKAGED.iter().map(PathBuf::from));
    let mut programs = folders.map(|folder| folder.join(name));
    programs
        .find(|path| path.is_file())
        .ok_or_else(|| format!("there is no program {name} in PATH or /usr/sbin; is it installed?"))
}

/// Whether it answers in HTTP, and not that it fails: who is started first may serve before what stands behind it does.
/// The rest of the answer is not waited for: not every server ends a connection.
fn answers(url: &str, path: &str) -> io::Result<()> {
    let host = address(url).ok_or_else(|| io::Error::other(format!("{url} is not http://HOST:PORT")))?;
    let to: SocketAddr = host.parse().map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&to, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
    let mut start = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut start)?;
    let start = String::from_utf8_lossy(&start);
    match start.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse::<u16>().ok()) {
        Some(status) if status < 500 => Ok(()),
        Some(status) => Err(io::Error::other(format!("it answered {status}"))),
        None => Err(io::Error::other("it does not speak HTTP")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab_data::experiment::{Fresh, Process as Service};
    use lab_data::topology;

    fn commands(processes: &[(&str, &[&str])]) -> Commands {
        let process = |(part, words): &(&str, &[&str])| Service {
            part: (*part).to_owned(),
            command: words.iter().map(|word| (*word).to_owned()).collect(),
            version: Vec::new(),
        };
        let files = [("name.txt".to_owned(), "{port} {port:other} {cores} {dir}\n".to_owned())].into();
        let processes = processes.iter().map(process).collect();
        Commands { ready: "/".into(), files, fresh: Fresh::Repetition, processes }
    }

    /// What `processes` complain of when started.
    fn complaint(processes: &[(&str, &[&str])]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let commands = commands(processes);
        let program = dir.path().join("weir");
        // Core 0 need not be ours.
        let core = [topology::available().unwrap()[0]];
        let start = Start { commands: &commands, program: &program, dir: dir.path(), cores: &|_| &core };
        let why = Services::start(&start, &AtomicBool::new(false)).err().unwrap();
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert!(left.iter().all(|name| name.to_string_lossy().ends_with(".log")), "{left:?}");
        assert!(!why.contains('\n'), "{why}");
        why
    }

    #[test]
    fn a_process_that_ends_early_is_quoted() {
        let why =
            complaint(&[("server", &["sleep", "1000"]), ("store", &["sh", "-c", "echo no room; exit 3"])]);
        assert!(why.starts_with("store ended with exit status: 3: no room; see "), "{why}");
        let why = complaint(&[("server", &["true"])]);
        assert!(why.contains("it has to stay in the foreground"), "{why}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let why = complaint(&[("server", &["no-such-server", "{port}"])]);
        assert_eq!(why, "there is no program no-such-server in PATH or /usr/sbin; is it installed?");
        let why =
            check(&commands(&[("server", &["{weir_dir}/nothing"])]), Path::new("/some/weir")).unwrap_err();
        assert_eq!(why, "there is no program /some/nothing; is it built?");
        let commands = commands(&[("server", &["{weir_dir}/examples/floor"])]);
        let why = check(&commands, Path::new("/some/weir")).unwrap_err();
        let remedy = "build it: cargo build --release --example floor";
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
        let words: Vec<&str> = said.split("; see").next().unwrap_or_default().split(' ').collect();
        let [port, other, cores, dir] = words[..] else { panic!("{why}") };
        assert!(port.parse::<u16>().unwrap() != other.parse::<u16>().unwrap());
        assert!(cores == "1" && Path::new(dir).is_absolute(), "{why}");
    }

    #[test]
    fn a_version_is_the_first_line_a_command_says() {
        let mut commands = commands(&[("server", &["serve", "{dir}/x"])]);
        commands.processes[0].version =
            ["sh", "-c", "echo 'x  1.2' >&2; echo more >&2"].map(str::to_owned).into();
        let facts = describe(&commands, Path::new("/weir"));
        let facts: Vec<(&str, &str)> = facts.iter().map(|(name, fact)| (&**name, &**fact)).collect();
        assert_eq!(facts, [("server", "x 1.2"), ("server command", "serve {dir}/x")]);
    }
}
