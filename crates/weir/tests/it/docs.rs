//! Every command of README, tutorial and recipes for clients is run, and its output compared in shape with what stands there.
//!
//! In a block of the kind `console`, lines that begin with `$ ` are commands; what follows is their output. Numbers, and
//! durations with their unit, are not compared, nor is what `…` stands for: text within a line, or whole lines. A block of
//! the kind `toml` is the file whose name, in backquotes, is the last before it. One of the kind `python`, `javascript` or `go` is a
//! program, which has to end with 0.

use crate::support::{PATIENCE, python};
use lab_run::harness::free_ports;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// A part of a command, what the test puts there instead, and why; where that is nothing, the command is not run.
const INSTEAD: &[(&str, &str, &str)] = &[
    ("make run", "", "it builds with optimization; other tests run its experiment"),
    ("make test", "", "this test is a part of it"),
    ("weir serve &", "weir serve --listen 127.0.0.1:8080 &", "the test has a port of its own"),
    ("weir serve --compat", "weir serve --listen 127.0.0.1:8080 --compat", "likewise"),
    ("--window 3s", "--window 1s --warmup 100ms", "the figures do not matter here"),
    ("--window 2s", "--window 1s --warmup 100ms", "the figures do not matter here"),
    ("--workload mixed --clients 64", "--workload mixed --clients 64 --window 1s", "likewise"),
    ("--within 10s", "--within 3s --warmup 100ms", "it may find nothing here"),
    ("experiments/quick.toml", "experiments/quick.toml SHORT", "likewise"),
    ("experiments/postgres.toml", "experiments/postgres.toml SHORT", "likewise"),
    ("mine.toml --out", "mine.toml SHORT --out", "likewise"),
];
/// What `SHORT` stands for there.
const SHORT: &str = "--no-selftest --repetitions 1 --levels 1,4 --warmup 100ms --window 300ms";
/// A command that may fail, and why.
const MAY_FAIL: &[(&str, &str)] = &[
    ("weir selftest", "whether its checks pass depends on what else the machine does"),
    ("--find-rate 'p99<200ms", "on a busy machine the time is over before a rate is found"),
];

/// A command and the output that stands below it.
pub(crate) struct Step {
    command: String,
    output: Vec<String>,
}

/// What a document has, in its order.
pub(crate) enum Part {
    Command(Step),
    /// A file and its text.
    File(String, String),
    /// A command and the program that it runs, which is in a file of this name.
    Program(&'static str, &'static str, String),
}

/// The languages of programs, the commands that run them, and their files.
pub(crate) const PROGRAMS: [(&str, &str, &str); 3] = [
    ("python", "python3 recipe.py", "recipe.py"),
    ("javascript", "node recipe.mjs", "recipe.mjs"),
    ("go", "go run recipe.go", "recipe.go"),
];

pub(crate) fn parts(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut name = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            let named = line.split('`').skip(1).step_by(2).filter(|word| word.ends_with(".toml")).last();
            name = named.map_or(name, str::to_owned);
            continue;
        };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        match kind {
            "toml" => parts.push(Part::File(name.clone(), block.join("\n"))),
            "console" => {
                for line in block {
                    match (line.strip_prefix("$ "), parts.last_mut()) {
                        (Some(command), _) => {
                            parts.push(Part::Command(Step {
                                command: command.to_owned(),
                                output: Vec::new(),
                            }));
                        }
                        (None, Some(Part::Command(step))) => step.output.push(line.to_owned()),
                        (None, _) => panic!("output without a command: {line}"),
                    }
                }
            }
            language => {
                let program = PROGRAMS.iter().find(|(name, ..)| *name == language);
                parts
                    .extend(program.map(|(_, command, file)| Part::Program(command, file, block.join("\n"))));
            }
        }
    }
    parts
}

/// A shell in a directory of its own, with the built `weir` as the first of its path.
struct Shell {
    child: Child,
    input: ChildStdin,
    done: BufReader<ChildStdout>,
    dir: tempfile::TempDir,
    /// What stands in the documents, and what is used in its place.
    addresses: [(&'static str, String); 2],
}

impl Shell {
    fn start() -> Shell {
        // In memory, if possible: a flush of a busy disk may take longer than a window.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in ["experiments", "crates", "LICENSE", "LICENSE-APACHE"] {
            symlink(root.join(name), dir.path().join(name)).unwrap();
        }
        fs::create_dir(dir.path().join("weir-results")).unwrap();
        let programs = Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
        let of_python = python("python3").parent().unwrap().to_owned();
        let path =
            format!("{}:{}:{}", programs.display(), of_python.display(), std::env::var("PATH").unwrap());
        let mut child = Command::new("bash")
            .current_dir(dir.path())
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        writeln!(input, "trap 'kill $(jobs -p) 2>/dev/null' EXIT").unwrap();
        let done = BufReader::new(child.stdout.take().unwrap());
        let ports = free_ports(2).unwrap();
        let addresses = [("127.0.0.1:8080", ports[0]), ("127.0.0.1:9000", ports[1])]
            .map(|(name, port)| (name, format!("127.0.0.1:{port}")));
        Shell { child, input, done, dir, addresses }
    }

    /// Runs a command, or starts it where it ends with `&`; gives its exit code and where its output is.
    fn run(&mut self, number: usize, command: &str) -> (i32, String) {
        let command = self.with_addresses(command);
        let output = format!("output-{number}");
        let line = match command.strip_suffix(" &") {
            Some(command) => format!("{command} >{output} 2>&1 & :"),
            None => format!("{{ {command}\n}} >{output} 2>&1"),
        };
        writeln!(self.input, "{line}\necho $?").unwrap();
        let mut code = String::new();
        self.done.read_line(&mut code).unwrap();
        (code.trim().parse().unwrap_or_else(|_| panic!("{command}: the shell ended")), output)
    }

    fn with_addresses(&self, text: &str) -> String {
        self.addresses.iter().fold(text.to_owned(), |text, (name, used)| text.replace(name, used))
    }

    fn output(&self, name: &str) -> Vec<String> {
        let text = fs::read(self.dir.path().join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let text = self.addresses.iter().fold(text, |text, (name, used)| text.replace(used, name));
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = writeln!(self.input, "exit");
        let _ = self.child.wait();
    }
}

/// The line without what differs: numbers with their sign and unit, how many blanks there are, and how sure a busy machine lets one be.
fn mask(line: &str) -> String {
    let line = line.replace("(suspected)", "(supported)");
    const UNITS: &[&str] = &["k", "M", "ns", "µs", "us", "ms", "s", "%"];
    let mut masked = String::new();
    let mut rest = line.trim();
    while let Some(letter) = rest.chars().next() {
        if !letter.is_ascii_digit() {
            let is_blank_again = letter == ' ' && masked.ends_with(' ');
            if !is_blank_again {
                masked.push(letter);
            }
            rest = &rest[letter.len_utf8()..];
            continue;
        }
        rest = rest.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        let bare = rest.trim_start_matches(' ');
        let mut behind = UNITS.iter().filter_map(|unit| bare.strip_prefix(unit));
        let ends = |rest: &&str| !rest.starts_with(char::is_alphanumeric);
        rest = behind.rfind(ends).unwrap_or(rest);
        masked.truncate(masked.trim_end_matches(['+', '-', '−']).len());
        masked.push('#');
    }
    masked.trim().to_owned()
}

/// Whether a line has the shape of another, in which `…` stands for any text.
fn has_shape(line: &str, shape: &str) -> bool {
    let (line, shape) = (mask(line), mask(shape));
    let pieces: Vec<&str> = shape.split('…').map(str::trim).collect();
    let [first, middle @ .., last] = pieces.as_slice() else { return line == shape };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for piece in middle {
        let Some((_, behind)) = rest.split_once(piece) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

/// Whether a line depends on the machine alone: one that continues another, a warning, or that the server before still ends.
fn is_remark(line: &str) -> bool {
    let parts = ["Z warn: ", "Z info: another server holds the store "];
    line.starts_with(' ') || line.starts_with("warn: ") || parts.iter().any(|part| line.contains(part))
}

/// Whether these lines have the shape of those, in which a line `…` stands for any lines. Remarks may stand between them.
fn have_shape(lines: &[String], shapes: &[String]) -> bool {
    match (lines, shapes) {
        (lines, []) => lines.iter().all(|line| is_remark(line)),
        (lines, [shape, others @ ..]) if shape == "…" => {
            (0..=lines.len()).any(|skipped| have_shape(&lines[skipped..], others))
        }
        ([line, lines @ ..], [shape, others @ ..]) => {
            has_shape(line, shape) && have_shape(lines, others)
                || is_remark(line) && have_shape(lines, shapes)
        }
        ([], _) => false,
    }
}

/// The command as the test runs it; `None` if it does not.
fn instead(command: &str) -> Option<String> {
    let row = INSTEAD.iter().find(|(part, ..)| command.contains(part));
    match row {
        Some((_, "", _)) => None,
        Some((part, other, _)) => Some(command.replace(part, other).replace("SHORT", SHORT)),
        None => Some(command.to_owned()),
    }
}

/// Runs the commands of a document.
fn check(path: &str) {
    let text = fs::read_to_string(Path::new("../..").join(path)).unwrap();
    let mut shell = Shell::start();
    let mut wrong = Vec::new();
    let not_blank = |lines: &[String]| -> Vec<String> {
        lines.iter().filter(|line| !line.trim().is_empty()).cloned().collect()
    };
    for (number, part) in parts(&text).into_iter().enumerate() {
        let Step { command, output } = match part {
            Part::Command(step) => step,
            Part::File(name, text) => {
                fs::write(shell.dir.path().join(name), text).unwrap();
                continue;
            }
            Part::Program(command, file, text) => {
                fs::write(shell.dir.path().join(file), shell.with_addresses(&text)).unwrap();
                Step { command: command.to_owned(), output: Vec::new() }
            }
        };
        let Some(changed) = instead(&command) else { continue };
        let (code, file) = shell.run(number, &changed);
        let shape = not_blank(&output);
        let mut lines = not_blank(&shell.output(&file));
        // What runs in the background says when it is ready.
        let deadline = Instant::now() + PATIENCE;
        while changed.ends_with('&') && !have_shape(&lines, &shape) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
            lines = not_blank(&shell.output(&file));
        }
        let fails = shape.last().is_some_and(|line| line.starts_with("error: "));
        // Where no output stands, there is too much of it, or none.
        let differs = !shape.is_empty() && !have_shape(&lines, &shape);
        let may_fail = MAY_FAIL.iter().any(|(part, _)| command.contains(part));
        if code != 0 && may_fail {
            continue;
        }
        if differs || (code != 0) != fails {
            wrong.push(format!(
                "$ {changed}\n{}\nexit code {code}, but {path} has\n{}",
                lines.join("\n"),
                shape.join("\n")
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn the_commands_of_the_readme_do_what_stands_there() {
    check("README.md");
}

#[test]
fn the_commands_of_the_tutorial_do_what_stands_there() {
    check("docs/tutorial.md");
}

#[test]
fn the_commands_of_the_guide_to_load_do_what_stands_there() {
    check("docs/load.md");
}

#[test]
fn the_recipes_for_clients_do_what_stands_there() {
    check("docs/clients.md");
}

#[test]
fn every_exception_is_of_a_command_that_is_there() {
    let text: String = ["README.md", "docs/tutorial.md", "docs/load.md", "docs/clients.md"]
        .map(|path| fs::read_to_string(Path::new("../..").join(path)).unwrap())
        .concat();
    let commands: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    let parts = INSTEAD.iter().map(|(part, ..)| part).chain(MAY_FAIL.iter().map(|(part, _)| part));
    for part in parts {
        assert!(commands.iter().any(|command| command.contains(part)), "no command has {part:?}");
    }
}

#[test]
fn shapes_differ_in_words_and_not_in_numbers() {
    for (line, shape, fits) in [
        ("goodput     99.1 req/s", "goodput     104k req/s", true),
        ("p50 1.2 ms, 3 of 4 failed (0.1 %)", "p50 120 µs, 10 of 40 failed (0 %)", true),
        ("Little +0.10 % of it", "Little −1.00 % …", true),
        ("16 clients", "1 client", false),
        ("report: a/report.html", "report: …/report.html", true),
        ("report: a/report.md", "report: …/report.html", false),
    ] {
        assert_eq!(has_shape(line, shape), fits, "{line}: {} and {}", mask(line), mask(shape));
    }
    let lines = |text: &str| text.split('|').map(str::to_owned).collect::<Vec<_>>();
    for (actual, shape, fits) in [
        ("a|b|c", "a|…", true),
        ("a", "a|…", true),
        ("a|b|c", "…|c", true),
        ("a|b", "a", false),
        ("a|  b", "a", true),
    ] {
        assert_eq!(have_shape(&lines(actual), &lines(shape)), fits, "{actual} {shape}");
    }
}
