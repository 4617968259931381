//! `weir export`: writes the keys of a server as lines of JSON that `weir import` and `POST /batch` take.
//!
//! Behind each page there is a line with the cursor of the next one, by which a partial file is continued, and behind the last page
//! `{"next":null}`, by which a whole file is known.

use super::client::{Client, Request, ServerArgs};
use super::note;
use super::progress::Progress;
use kv::Error;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Most keys of a page.
const PAGE_KEYS: usize = 1000;

/// Write the keys and values of a server as JSON lines, for weir import
///
/// The server stays available. The export is no snapshot: it has the old or the new value of a key that is overwritten meanwhile,
/// and may lack keys that are created or deleted.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,

    /// A new file to write [default: standard output]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Only keys that begin with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    prefix: String,

    /// Continue an export to FILE that was interrupted
    #[arg(long, requires = "file")]
    resume: bool,

    /// Begin at a cursor: from a line {"next":CURSOR} of an export, or from the error of an interrupted one
    #[arg(long, value_name = "CURSOR")]
    after: Option<String>,
}

/// A line of a list, which becomes one of the output.
#[derive(Deserialize, Serialize)]
struct Line {
    #[serde(skip_deserializing, default = "put")]
    op: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_b64: Option<String>,
    #[serde(skip_serializing_if = "is_usual", rename = "type")]
    content_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encoding: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
    /// Of the last line only, and there it is the only one.
    #[serde(skip_serializing)]
    next: Option<String>,
}

fn put() -> &'static str {
    "put"
}

/// Whether a value without a content type has this one.
fn is_usual(content_type: &Option<String>) -> bool {
    content_type.as_deref().is_none_or(|stored| stored == kv::CONTENT_TYPE_DEFAULT)
}

/// What is behind a page.
#[derive(Deserialize, Serialize)]
pub(super) struct PageEnd {
    pub(super) next: Option<String>,
    /// That of all keys of the export: a cursor belongs to it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    prefix: String,
}

impl PageEnd {
    /// The flags of an export that goes on here; `None` behind the last page.
    pub(super) fn flags(&self) -> Option<String> {
        let next = self.next.as_ref()?;
        Some(match &*self.prefix {
            "" => format!("--after {next}"),
            // As a shell takes it.
            prefix => format!("--after {next} --prefix '{}'", prefix.replace('\'', r"'\''")),
        })
    }
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    let mut client = Client::new(&args.server)?;
    let mut after = args.after.clone();
    let Some(path) = &args.file else {
        let mut out = BufWriter::new(io::stdout().lock());
        return export(&mut client, &args.prefix, &mut after, &mut out).map_err(|error| match after {
            Some(cursor) if args.after.as_ref() != Some(&cursor) => {
                error.hint(format_args!("continue with --after {cursor}"))
            }
            _ => error,
        });
    };
    let file = open(path, args.resume)?;
    if args.resume {
        match end_of(&file, path, &args.prefix)? {
            Some(PageEnd { next: None, .. }) => {
                note(format_args!("{} is complete already", path.display()));
                return Ok(());
            }
            Some(PageEnd { next, .. }) => after = next,
            None => {}
        }
    }
    export(&mut client, &args.prefix, &mut after, &mut BufWriter::new(&file))
        .and_then(|()| file.sync_all().map_err(|error| cut_short(&error)))
        .map_err(|error| match after {
            Some(_) => error.hint("continue with the same command and --resume"),
            None => {
                // Nothing was exported: an empty file would be in the way of the next try.
                if file.metadata().is_ok_and(|file| file.len() == 0) {
                    let _ = fs::remove_file(path);
                }
                error
            }
        })
}

/// Writes page after page; `after` is the cursor of the next one.
fn export(
    client: &mut Client,
    prefix: &str,
    after: &mut Option<String>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let mut progress = Progress::begin("exported");
    let encoded = percent_encode(prefix.as_bytes(), NON_ALPHANUMERIC);
    loop {
        let mut target = format!("/kv?values=true&limit={PAGE_KEYS}&prefix={encoded}");
        if let Some(cursor) = &*after {
            target.push_str(&format!("&after={}", percent_encode(cursor.as_bytes(), NON_ALPHANUMERIC)));
        }
        let fields = [("Accept", "application/x-ndjson")];
        let page =
            client.ask(&Request { method: "GET", target: &target, fields: &fields, body: None }, &[200])?;
        let mut keys = 0;
        let mut end = None;
        for line in page.body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let line: Line = serde_json::from_slice(line)
                .map_err(|error| Error::new(format_args!("the server sent no list: {error}")))?;
            match line {
                Line { key: None, key_b64: None, next, .. } => end = Some(next),
                line => {
                    keys += 1;
                    write_line(out, &line)?;
                }
            }
        }
        let next = end.ok_or_else(|| Error::new("the server sent half a list"))?;
        let end = PageEnd { next, prefix: prefix.to_owned() };
        write_line(out, &end)?;
        out.flush().map_err(|error| cut_short(&error))?;
        progress.add(keys, page.body.len() as u64);
        match end.next {
            Some(next) => *after = Some(next),
            None => break,
        }
    }
    progress.end("");
    Ok(())
}

/// Writes a value as a line.
fn write_line(out: &mut dyn Write, line: &impl Serialize) -> Result<(), Error> {
    let written = serde_json::to_writer(&mut *out, line).map_err(io::Error::from);
    written.and_then(|()| out.write_all(b"\n")).map_err(|error| cut_short(&error))
}

/// The file to write, for its owner only.
fn open(path: &Path, resume: bool) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    let file = if resume { options.open(path) } else { options.create_new(true).open(path) };
    file.map_err(|error| {
        let failed = Error::input(format_args!("cannot write {}: {error}", path.display()));
        match error.kind() {
            io::ErrorKind::AlreadyExists => failed.hint("continue it with --resume, or name another file"),
            io::ErrorKind::NotFound if resume => failed.hint("begin without --resume"),
            _ => failed,
        }
    })
}

/// What the first line of an export begins with, as far as it was written.
const BEGINS: [&[u8]; 2] = [b"{\"op\":\"put\",", b"{\"next\":"];

/// Cuts the file behind its last complete page, and gives the end of that. All its pages have to be of this prefix.
fn end_of(mut file: &File, path: &Path, prefix: &str) -> Result<Option<PageEnd>, Error> {
    let failed = |error: io::Error| cut_short(&error);
    let mut lines = BufReader::new(file);
    let (mut line, mut at, mut end, mut in_page) = (Vec::new(), 0, (0, None), 0);
    let mut ends_whole = false;
    while lines.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        let is_one = |begins: &&[u8]| line.starts_with(&begins[..begins.len().min(line.len())]);
        in_page += 1;
        // A page has no more keys; before its end a file of another kind may look like one.
        if at == 0 && !BEGINS.iter().any(is_one) || in_page > PAGE_KEYS + 1 {
            return Err(
                Error::input(format_args!("{} is no export", path.display())).hint("name another file")
            );
        }
        at += line.len() as u64;
        // The last newline may be missing, too, in a file of somebody else.
        ends_whole = line.ends_with(b"\n") || serde_json::from_slice::<IgnoredAny>(&line).is_ok();
        if line.starts_with(b"{\"next\":")
            && line.ends_with(b"\n")
            && let Ok(page) = serde_json::from_slice::<PageEnd>(&line)
        {
            if page.prefix != prefix {
                let (shown, was) = (path.display(), &page.prefix);
                let what = format!("{shown} is an export with --prefix {was:?}, not {prefix:?}");
                return Err(
                    Error::input(what).hint("continue it with the same --prefix, or name another file")
                );
            }
            if page.next.is_none() {
                return Ok(Some(page));
            }
            (end, in_page) = ((at, Some(page)), 0);
        }
        line.clear();
    }
    if end.1.is_none() && at > 0 && ends_whole {
        let what = format!("{} has no end of a page, and may be no export", path.display());
        return Err(
            Error::input(what).hint("name another file, or remove this one and begin without --resume")
        );
    }
    file.set_len(end.0).map_err(failed)?;
    file.seek(io::SeekFrom::Start(end.0)).map_err(failed)?;
    Ok(end.1)
}

fn cut_short(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Error::new("what reads standard output has ended before the last key"),
        _ => Error::new(format_args!("cannot write the keys: {error}")),
    }
}
