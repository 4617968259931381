//! `weir token`: makes a token, and its entry for the file that `weir serve --tokens` reads.

use super::{note, quoted, say};
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use kv::Error;
use kv::units::Span;
use server::{VERBS, check_tokens, random_token, token_hash};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Make a token for clients of a server with --tokens
///
/// The token is printed only once: the file of the server has its hash.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the token, as in logs and errors
    #[arg(value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    name: String,

    /// What it allows: admin stands for metrics, statistics and lab routes
    #[arg(long, value_name = "VERB,…", value_delimiter = ',', default_value = "read,write,list,watch", value_parser = PossibleValuesParser::new(VERBS))]
    verbs: Vec<String>,

    /// Only for keys that begin with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    prefix: String,

    /// When it expires: an instant as in 2027-01-31T00:00:00Z, or a time from now as in 720h [default: never]
    #[arg(long, value_name = "WHEN", value_parser = instant)]
    expires: Option<SystemTime>,

    /// Maximum number of requests per second
    #[arg(long, value_name = "N")]
    rate: Option<f64>,

    /// Requests that may come at once [default: what --rate allows in a second]
    #[arg(long, value_name = "N", requires = "rate")]
    burst: Option<u32>,

    /// Add it to this file; without this flag, the entry for the file is printed
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    let token = random_token()?;
    let entry = entry(&args, &token);
    check_tokens(&entry, "the entry")?;
    if args.expires.is_some_and(|expires| expires <= SystemTime::now()) {
        note("warning: the token has expired already");
    }
    let Some(file) = &args.tokens else {
        say(format_args!("{token}\n\n{entry}"));
        return Ok(());
    };
    add(file, &entry)?;
    // It is nowhere else.
    writeln!(io::stdout(), "{token}").map_err(|error| {
        let what = format_args!("cannot print the token, whose entry is in {} now: {error}", file.display());
        Error::new(what).hint("take the entry out, and make another")
    })
}

/// The lines for the file.
fn entry(args: &Args, token: &str) -> String {
    let verbs: Vec<String> = args.verbs.iter().map(|verb| quoted(verb)).collect();
    let mut lines = format!(
        "[[token]]\nname = {}\nsha256 = \"{}\"\nverbs = [{}]\nprefix = {}\n",
        quoted(&args.name),
        token_hash(token),
        verbs.join(", "),
        quoted(&args.prefix)
    );
    if let Some(expires) = args.expires {
        lines += &format!("expires = {}\n", humantime::format_rfc3339_seconds(expires));
    }
    if let Some(rate) = args.rate {
        lines += &format!("rate = {rate:?}\n");
    }
    if let Some(burst) = args.burst {
        lines += &format!("burst = {burst}\n");
    }
    lines
}

/// Replaces the file by one that has the entry, too: a server that reads it meanwhile finds the old one or the new one.
fn add(file: &Path, entry: &str) -> Result<(), Error> {
    // Not the link to it.
    let file = &*std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let failed = |error: io::Error| Error::new(format_args!("cannot write {}: {error}", new.display()));
    // It is made before the old one is read, and can be made once: two commands at a time would lose an entry.
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).map_err(
        |error| match error.kind() {
            io::ErrorKind::AlreadyExists => failed(error)
                .hint("another `weir token` runs at this moment; if none does, an earlier one left the file behind: remove it"),
            _ => failed(error),
        },
    )?;
    let mut replace = || {
        let before = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Error::input(format_args!("cannot read {}: {error}", file.display()))),
        };
        if let Ok(old) = std::fs::metadata(file) {
            // The user of the server must still be able to read it.
            fchown(&out, Some(old.uid()), Some(old.gid())).map_err(failed)?;
            out.set_permissions(old.permissions()).map_err(failed)?;
        }
        let gap = if before.is_empty() || before.ends_with("\n\n") { "" } else { "\n" };
        let text = format!("{before}{gap}{entry}");
        // What the server would refuse is not put in place of what it takes.
        check_tokens(&text, file.display()).map_err(|error| {
            match error.to_string().contains("given twice") {
                true => Error::input(format_args!("{} has a token of this name", file.display()))
                    .hint("choose another name, or remove its entry"),
                false => error,
            }
        })?;
        out.write_all(text.as_bytes()).map_err(failed)?;
        out.sync_all().map_err(failed)?;
        std::fs::rename(&new, file).map_err(failed)
    };
    replace().inspect_err(|_| drop(std::fs::remove_file(&new)))
}

fn instant(text: &str) -> Result<SystemTime, String> {
    if let Ok(at) = humantime::parse_rfc3339(text) {
        return Ok(at);
    }
    let Span(time) = text.parse().map_err(|_| {
        "it is no instant and no time from now; hint: write it as in 2027-01-31T00:00:00Z or 720h".to_owned()
    })?;
    let century = Duration::from_secs(100 * 365 * 24 * 3600);
    if time > century { Err("it is too far away".into()) } else { Ok(SystemTime::now() + time) }
}
