//! What is wrong with a command line, in one line.
//!
//! The parser's own message takes several; its first paragraph is kept, and its tip becomes the hint.

#[cfg(feature = "lab")]
use super::Command;
use super::{Cli, say};
use clap::CommandFactory;
use clap::error::{ContextKind, ErrorKind};
use kv::{Error, one_line};
#[cfg(feature = "lab")]
use lab_data::experiment::{Experiment, Target};
use std::ffi::OsString;

/// Prints help where it was asked for; else says what is wrong with `words`, the program's name first.
pub(super) fn usage(error: &clap::Error, words: &[OsString]) -> Result<(), Error> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            say(error.render().to_string().trim_end());
            Ok(())
        }
        _ => Err(explain(error, words)),
    }
}

/// What `words` and `args` ask of `weir`, if it takes them.
#[cfg(feature = "lab")]
fn parse(words: &[&str], args: &[String]) -> Result<Cli, Error> {
    let words = ["weir"].iter().chain(words).map(OsString::from);
    let words: Vec<OsString> = words.chain(args.iter().map(OsString::from)).collect();
    <Cli as clap::Parser>::try_parse_from(&words).map_err(|error| explain(&error, &words))
}

fn explain(error: &clap::Error, words: &[OsString]) -> Error {
    let mut all = Cli::command();
    all.build();
    let mut command = &all;
    // As deep as the words lead: `weir replica init` has flags of its own.
    for word in words.iter().skip(1) {
        let below = command.find_subcommand(word).filter(|below| below.get_name() != "help");
        let Some(below) = below else { break };
        command = below;
    }
    let name = command.get_bin_name().unwrap_or("weir");
    let list = match names_are_listed(command, error) {
        true => format!("`{name} --list` shows the names"),
        false => format!("`{name} --help` lists what it takes"),
    };
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand
    ) {
        return Error::input(format_args!("{name}: a sub-command is missing")).hint(list);
    }
    let mut what = first_paragraph(error);
    if let Some(variable) = variable(command, error, words) {
        // A value says behind this what it should be.
        let end = what.find("; hint: ").unwrap_or(what.len());
        what.insert_str(end, &format!(", in the environment variable {variable}"));
    }
    let text = error.render().to_string();
    let error = Error::input(&what);
    match text.split("\n\n").nth(1).map(one_line).as_deref().and_then(|text| text.split_once(": ")) {
        // A value says itself what it should be.
        _ if what.contains("; hint: ") => error,
        Some(("tip", tip)) if !tip.starts_with("to pass") => error.hint(tip),
        Some(("Usage", usage)) if what.contains("required") => error.hint(format_args!("write `{usage}`")),
        _ => error.hint(list),
    }
}

/// What the parser says first.
pub(super) fn first_paragraph(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let what = one_line(text.split("\n\n").next().unwrap_or_default());
    let what = what.strip_prefix("error: ").unwrap_or(&what);
    NUMBERS.iter().fold(what.to_owned(), |what, (called, plain)| what.replace(called, plain))
}

/// What the standard library says of text that is no number, and what people do.
const NUMBERS: [(&str, &str); 3] = [
    ("invalid digit found in string", "expected a whole number"),
    ("cannot parse integer from empty string", "expected a whole number"),
    ("invalid float literal", "expected a number"),
];

/// The flag or the word that the error is of.
fn wrong_arg<'c>(command: &'c clap::Command, error: &clap::Error) -> Option<&'c clap::Arg> {
    let wrong = error.get(ContextKind::InvalidArg)?.to_string();
    command.get_arguments().find(|arg| arg.to_string() == wrong)
}

/// Whether a value is wrong whose names are not in the help: it says that `--list` has them.
fn names_are_listed(command: &clap::Command, error: &clap::Error) -> bool {
    let is_of_value = matches!(error.kind(), ErrorKind::InvalidValue | ErrorKind::ValueValidation);
    let help = wrong_arg(command, error).and_then(clap::Arg::get_help).map(ToString::to_string);
    is_of_value && help.is_some_and(|help| help.split([' ', ',', '.']).any(|word| word == "--list"))
}

/// The environment variable that the wrong value comes from.
fn variable(command: &clap::Command, error: &clap::Error, words: &[OsString]) -> Option<String> {
    if error.kind() == ErrorKind::MissingRequiredArgument {
        return None;
    }
    let arg = wrong_arg(command, error)?;
    let flag = format!("--{}", arg.get_long()?);
    let is_flag = |word: &OsString| word.to_string_lossy().split('=').next() == Some(&*flag);
    let variable = arg.get_env().filter(|_| !words.iter().any(is_flag))?;
    Some(variable.to_string_lossy().into_owned())
}

#[cfg(feature = "lab")]
/// Complains of what `weir load` and `weir serve` would refuse, of every target, before the first one is measured for nothing.
pub(super) fn check_commands(experiment: &Experiment) -> Result<(), Error> {
    for subject in &experiment.subjects {
        // A model is asked for nothing.
        if matches!(subject.target, Target::Simulated(_)) {
            continue;
        }
        for workload in experiment.workloads_of(subject) {
            let at = |why: Error| why.at(of_target(subject.name.as_deref(), &workload.name));
            // With the flags that the lab adds: what cannot be beside them would fail in each trial.
            let window = experiment.adaptive.map_or(experiment.window, |adaptive| adaptive.most);
            let values =
                ["1", "1", &experiment.warmup.to_string(), &window.to_string(), "1"].map(str::to_owned);
            let mut load = workload.asks(&["http://127.0.0.1:1"], &values);
            // Also where it has none of the parts: one run is as the other.
            if !experiment.faults.is_empty() {
                load.extend(["--check", "linearizability"].map(str::to_owned));
            }
            let load: Vec<&str> = load.iter().map(String::as_str).collect();
            let load = parse(&load, &workload.args).map_err(at)?.command;
            // Of a path only the server can say more.
            if let (Command::Load(load), None) = (load, &workload.url) {
                load.check().map_err(at)?;
            }
            let Target::Weir { args, .. } = &subject.target else { continue };
            let mut args: Vec<String> = args.iter().chain(&workload.serve).cloned().collect();
            // Only then can the server be made slower while it runs.
            if experiment.slows_servers()
                && !args.iter().any(|arg| ["--lab", "--lab=true"].contains(&arg.as_str()))
            {
                args.push("--lab".to_owned());
            }
            parse(&["serve"], &args).map_err(|why| match workload.serve.is_empty() {
                true => subject.failed(why.at("target.args")),
                false => at(why),
            })?;
        }
    }
    Ok(())
}

#[cfg(feature = "lab")]
/// A workload; of several targets with the target's name.
pub(super) fn of_target(target: Option<&str>, workload: &str) -> String {
    match target {
        Some(target) => format!("{target}: {workload}"),
        None => workload.to_owned(),
    }
}

#[cfg(all(test, feature = "lab"))]
mod tests {
    use super::*;

    /// It was refused: of the target without a database nothing was checked.
    #[test]
    fn targets_with_and_without_the_part_that_fails_are_loaded_alike() {
        let text = "name = \"a\"\ntitle = \"A\"\nlevels = [1]\nrepetitions = 1\nwarmup = \"1s\"\nwindow = \"4s\"\n\
            [[target]]\nname = \"first\"\nkind = \"weir\"\nstore = \"postgres\"\n\
            [[target]]\nname = \"second\"\nkind = \"weir\"\nstore = \"file\"\n\
            [[workload]]\nname = \"mixed\"\nargs = [\"--mix\", \"get=1,put_if_absent=1\"]\n\
            [[fault]]\nkind = \"kill\"\npart = \"database\"\nat = \"1s\"\n";
        check_commands(&Experiment::parse(text).unwrap()).unwrap();
        let short = text.replace("get=1,put_if_absent=1", "get=1,put=1\", \"--value-size\", \"1");
        let told = check_commands(&Experiment::parse(&short).unwrap()).unwrap_err().to_string();
        assert!(told.contains("first: mixed: values of less than "), "{told}");
    }
}
