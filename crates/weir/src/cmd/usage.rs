//! What is wrong with a command line, in one line: the thing, the cause and the remedy.
//!
//! The parser says it on several lines and in its own words; here they become ours.

use super::{Cli, Failure, say, with_hint};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, Parser};
use std::error::Error;
use std::ffi::OsString;

/// What the parser writes of numbers that it takes in a range, before the range.
const OUT_OF_RANGE: &str = " is not in ";

/// Prints help where it was asked for; makes one line of what is wrong with `words`, the program's name first.
pub(super) fn usage(error: &clap::Error, words: &[OsString]) -> Result<(), Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            say(error.render().to_string().trim_end());
            Ok(())
        }
        kind => Err(complaint(error, kind, words)),
    }
}

/// Complains of `words` and `args`, if `weir` would not take them.
pub(super) fn check(words: &[&str], args: &[String]) -> Result<(), Failure> {
    let words = ["weir"].iter().chain(words).map(OsString::from);
    let words: Vec<OsString> = words.chain(args.iter().map(OsString::from)).collect();
    match Cli::try_parse_from(&words) {
        Ok(_) => Ok(()),
        Err(error) => Err(complaint(&error, error.kind(), &words)),
    }
}

fn complaint(error: &clap::Error, kind: ErrorKind, words: &[OsString]) -> Failure {
    let mut all = Cli::command();
    all.build();
    let mut command = "weir".to_owned();
    let mut own = None;
    // As deep as the words lead: `weir replica init` has flags of its own.
    for word in &words[1.min(words.len())..] {
        let Some(below) = own.unwrap_or(&all).find_subcommand(word) else { break };
        command = format!("{command} {}", below.get_name());
        own = Some(below);
    }
    let lists = format!("`{command} --help` lists what it takes.");
    let context = |kind| text(error.get(kind));
    let arg = context(ContextKind::InvalidArg);
    let value = context(ContextKind::InvalidValue);
    let name = named(own.unwrap_or(&all), &arg, words);
    let bare = name.trim_end_matches([' ', '=']);
    match kind {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => {
            let hint = match own {
                None => "Try `weir serve`, or `weir --help` for all of them.".to_owned(),
                Some(_) => lists,
            };
            Failure::input(format_args!("{command}: a sub-command is missing")).hint(hint)
        }
        ErrorKind::InvalidSubcommand => {
            let unknown = context(ContextKind::InvalidSubcommand);
            let hint = match context(ContextKind::SuggestedSubcommand) {
                none if none.is_empty() => lists,
                near => format!("Did you mean `{command} {near}`?"),
            };
            Failure::input(format_args!("{command} has no sub-command {unknown}")).hint(hint)
        }
        ErrorKind::UnknownArgument
            if arg.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit()) =>
        {
            Failure::input(format_args!("{command}: {arg} is below 0")).hint("Write a number from 0 on.")
        }
        ErrorKind::UnknownArgument if arg.starts_with('-') => {
            let hint = match context(ContextKind::SuggestedArg) {
                none if none.is_empty() => lists,
                near => format!("Did you mean {near}?"),
            };
            Failure::input(format_args!("{command} has no flag {arg}")).hint(hint)
        }
        ErrorKind::UnknownArgument => {
            Failure::input(format_args!("{command} has no use for `{arg}`")).hint(lists)
        }
        ErrorKind::MissingRequiredArgument if arg.starts_with('-') && !is_required(own, &arg) => {
            Failure::input(format_args!("{command}: what is given does nothing without {}", flag(&arg)))
                .hint(format_args!("Add {arg}, or leave out what needs it."))
        }
        ErrorKind::MissingRequiredArgument => {
            let about = own.and_then(|own| find(own, &arg)).and_then(Arg::get_help);
            let about = about.map(|about| format!(": {about}")).unwrap_or_default();
            let usage = context(ContextKind::Usage);
            let usage = usage.trim_start_matches("Usage: ").trim();
            let hint = if usage.is_empty() { lists } else { format!("Write `{usage}`.") };
            Failure::input(format_args!("{command} needs {arg}{about}")).hint(hint)
        }
        ErrorKind::ArgumentConflict => {
            let prior = context(ContextKind::PriorArg);
            match prior {
                same if same == arg => {
                    Failure::input(format_args!("{bare} is given twice")).hint("Give it once.")
                }
                none if none.is_empty() => {
                    Failure::input(format_args!("{bare} goes together with nothing else"))
                        .hint("Leave the rest out, or it.")
                }
                prior => Failure::input(format_args!("{bare} and {} do not go together", flag(&prior)))
                    .hint("Leave one of them out."),
            }
        }
        ErrorKind::InvalidValue if value.is_empty() => {
            Failure::input(format_args!("{bare} has no value")).hint(format_args!("Write {arg}."))
        }
        ErrorKind::InvalidValue => {
            let known = context(ContextKind::ValidValue);
            let hint = if known.is_empty() { lists } else { format!("Known are {known}.") };
            Failure::input(format_args!("{name}{value} is not known")).hint(hint)
        }
        ErrorKind::ValueValidation => {
            let cause = error.source().map(ToString::to_string).unwrap_or_default();
            invalid(&format!("{name}{value}"), &cause, &lists)
        }
        _ => {
            let text = error.render().to_string();
            let what = text.split("\n\n").next().unwrap_or(&text).split_whitespace();
            let what = what.collect::<Vec<_>>().join(" ");
            Failure::input(what.strip_prefix("error: ").unwrap_or(&what)).hint(lists)
        }
    }
}

/// What `cause` says of `given`, with what to do about it.
fn invalid(given: &str, cause: &str, lists: &str) -> Failure {
    let number = ["invalid digit found in string", "cannot parse integer from empty string"];
    if let Some((_, range)) = cause.split_once(OUT_OF_RANGE) {
        let (least, most) = range.split_once("..").unwrap_or((range, ""));
        let most = most.trim_start_matches('=');
        let remedy = match most.is_empty() || most.len() > 18 {
            true => format!("Write a number from {least} on."),
            false => format!("Write a number from {least} to {most}."),
        };
        return Failure::input(format_args!("{given} is out of range")).hint(remedy);
    }
    if number.contains(&cause) {
        return Failure::input(format_args!("{given} is no whole number")).hint("Write one, as in 4.");
    }
    if cause.starts_with("number too") {
        return Failure::input(format_args!("{given} is out of range")).hint(lists);
    }
    if cause == "invalid socket address syntax" {
        return Failure::input(format_args!("{given} is no address with a port"))
            .hint("Write one, as in 127.0.0.1:8080; port 0 takes a free one.");
    }
    let cause = cause.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(known) = cause.strip_prefix("known are ") {
        return Failure::input(format_args!("{given} is not known")).hint(format_args!("Known are {known}."));
    }
    match cause.contains("; ") {
        true => with_hint(format!("{given}: {cause}"), Failure::input),
        false => Failure::input(format_args!("{given}: {cause}")).hint(lists),
    }
}

/// How whoever gave `arg` knows it, ready for its value: `--workers `, or `WEIR_WORKERS=` where it stands in the environment;
/// a word without a flag has no name.
fn named(own: &Command, arg: &str, words: &[OsString]) -> String {
    let flag = flag(arg);
    if !flag.starts_with('-') {
        return String::new();
    }
    let is_it = |word: &OsString| word.to_string_lossy().split('=').next() == Some(flag);
    let variable = find(own, arg).and_then(Arg::get_env).filter(|_| !words.iter().any(is_it));
    variable.map_or_else(|| format!("{flag} "), |variable| format!("{}=", variable.to_string_lossy()))
}

/// `--levels` of `--levels <CLIENTS,…>`.
fn flag(arg: &str) -> &str {
    arg.split([' ', '=', '[']).next().unwrap_or(arg)
}

/// Whether one of `args` has to be given whatever else is.
fn is_required(own: Option<&Command>, args: &str) -> bool {
    let known = |arg| find(own?, arg);
    args.split(", ").filter_map(known).any(Arg::is_required_set)
}

fn find<'c>(command: &'c Command, arg: &str) -> Option<&'c Arg> {
    // A word that another flag can stand in for is in other brackets.
    let bare = |arg: &str| arg.replace(['<', '>', '[', ']'], "");
    command.get_arguments().find(|known| bare(&known.to_string()) == bare(arg))
}

/// What the parser knows of one thing; several with commas.
fn text(value: Option<&ContextValue>) -> String {
    match value {
        None | Some(ContextValue::None) => String::new(),
        Some(ContextValue::Strings(all)) => all.join(", "),
        Some(ContextValue::StyledStrs(all)) => {
            all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        }
        Some(other) => other.to_string(),
    }
}
