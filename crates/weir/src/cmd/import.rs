//! `weir import`: sends the lines of an export to a server, a batch at a time.
//!
//! Lines go into `POST /batch` as they are. Only a put that is too long for a batch is taken apart, for a request of its own.

use super::client::{Answer, Client, Request, ServerArgs, detail};
use super::export::PageEnd;
use super::progress::Progress;
use super::{counted, note};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kv::{Error, Timestamp};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde::Deserialize;
use serde_json::json;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// A batch ends with so many lines, or with so many bytes.
const BATCH_LINES: usize = 1000;
const BATCH_BYTES: usize = 4 << 20;
/// Longer lines are sent as values, which takes a server half the memory; and what no value needs.
const LINE_BYTES_BATCH: usize = 16 << 20;
const LINE_BYTES_MAX: u64 = 512 << 20;
/// So many refused lines are shown, and so many end the import.
const REFUSED_SHOWN: u64 = 10;
const REFUSED_MAX: u64 = 1000;
/// Between two tries of lines that the store did not take.
const PAUSE: Duration = Duration::from_secs(1);

/// Write the lines of an export to a server
///
/// An interrupted import can be repeated.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,

    /// The file to read [default: standard input]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Keep the value of a key that is there already
    #[arg(long)]
    if_absent: bool,
}

/// The fields of a request for one value. `TTL`: how long it still lives, in seconds; without it, it never ends.
const FIELDS: [&str; 3] = ["TTL", "Content-Type", "Content-Encoding"];

/// The longest lifetime that one takes, in seconds.
const TTL_SECS_MAX: u64 = 100 * 365 * 24 * 3600;

/// What they say.
type Stored = [Option<String>; 3];

/// What every line has.
#[derive(Deserialize)]
struct Line {
    op: String,
}

/// What a put that is too long for a batch has.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Put {
    op: String,
    key: Option<String>,
    key_b64: Option<String>,
    value: Option<String>,
    value_b64: Option<String>,
    #[serde(rename = "type")]
    content_type: Option<String>,
    encoding: Option<String>,
    expires: Option<String>,
}

pub(crate) fn run(args: Args) -> Result<(), Error> {
    let mut import = Import {
        client: Client::new(&args.server)?,
        if_absent: args.if_absent,
        batch: Vec::new(),
        lines: Vec::new(),
        done_lines: 0,
        refused: 0,
        kept: 0,
        page: None,
        progress: Progress::begin("imported"),
    };
    let done = match &args.file {
        None => import.all(&mut io::stdin().lock()),
        Some(path) => {
            let file = File::open(path)
                .map_err(|error| Error::input(format_args!("cannot read {}: {error}", path.display())))?;
            import.all(&mut BufReader::with_capacity(1 << 20, file))
        }
    };
    let kept = match import.kept {
        0 => String::new(),
        kept => format!("; {} there already and kept", counted(kept, "key")),
    };
    import.progress.end(&kept);
    done?;
    match import.refused {
        0 => Ok(()),
        refused => Err(Error::new(format_args!("{} refused", counted(refused, "line")))
            .hint("see the reasons above; the other lines were written")),
    }
}

struct Import {
    client: Client,
    if_absent: bool,
    batch: Vec<u8>,
    /// Its lines: their numbers in the input, and where they are.
    lines: Vec<(u64, Range<usize>)>,
    /// The last line all of whose predecessors are done.
    done_lines: u64,
    refused: u64,
    kept: u64,
    /// The last end of a page, all lines before which are done.
    page: Option<PageEnd>,
    progress: Progress,
}

impl Import {
    fn all(&mut self, input: &mut dyn BufRead) -> Result<(), Error> {
        self.lines_of(input).map_err(|error| match (self.rest(), self.done_lines) {
            (_, 0) => error,
            (Some(rest), done) => error.hint(format_args!(
                "lines up to {done} are done; `weir export {rest}` gives those behind, or begin again"
            )),
            (_, done) => error.hint(format_args!(
                "lines up to {done} are done; `tail -n +{}` gives those behind, or begin again",
                done + 1
            )),
        })?;
        if let Some(rest) = self.rest() {
            let what = "the export ends before its last page; what it has is written";
            let hint = format!("`weir export --resume` completes a file; {rest} gives the rest");
            return Err(Error::new(what).hint(hint));
        }
        // Only what an export wrote can be known to be whole.
        if self.page.is_none() {
            note("no end of an export was seen: if weir export wrote these lines, some may be missing");
        }
        Ok(())
    }

    /// The flags of an export of what is behind the last page, if that was not the last one of all.
    fn rest(&self) -> Option<String> {
        self.page.as_ref()?.flags()
    }

    fn lines_of(&mut self, input: &mut dyn BufRead) -> Result<(), Error> {
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = io::Read::take(&mut *input, LINE_BYTES_MAX).read_until(b'\n', &mut line);
            read.map_err(|error| Error::new(format_args!("cannot read line {number}: {error}")))?;
            if line.is_empty() {
                break;
            }
            if line.len() as u64 == LINE_BYTES_MAX {
                return Err(Error::input(format_args!("line {number} is too long for any value")));
            }
            let content = line.trim_ascii();
            if content.starts_with(b"{\"next\":")
                && let Ok(page) = serde_json::from_slice(content)
            {
                self.send()?;
                self.page = Some(page);
            } else if !content.is_empty() {
                // A line behind the last page begins another export, whose end was not seen yet.
                self.page.take_if(|page| page.next.is_none());
                match content.len() > LINE_BYTES_BATCH {
                    true => self.send().and_then(|()| self.send_alone(number, content))?,
                    false => self.add(number, content)?,
                }
            }
            if self.lines.is_empty() {
                self.done_lines = number;
            }
        }
        self.send()
    }

    fn add(&mut self, number: u64, content: &[u8]) -> Result<(), Error> {
        // Lines of an export begin so, and need no closer look.
        if self.if_absent
            && !content.starts_with(br#"{"op":"put","#)
            && let Ok(Line { op }) = serde_json::from_slice(content)
            && op != "put"
        {
            let what = format!("--if-absent is for puts, not for {op}");
            return self.count(number, 400, json!({ "detail": what }).to_string().as_bytes());
        }
        if self.lines.len() == BATCH_LINES || self.batch.len() + content.len() > BATCH_BYTES {
            self.send()?;
        }
        let begin = self.batch.len();
        match content.strip_suffix(b"}") {
            Some(open) if self.if_absent => {
                self.batch.extend_from_slice(open);
                self.batch.extend_from_slice(b",\"if_none_match\":\"*\"}");
            }
            _ => self.batch.extend_from_slice(content),
        }
        self.batch.push(b'\n');
        self.lines.push((number, begin..self.batch.len()));
        Ok(())
    }

    /// Sends what is gathered, and what the store did not take of it again.
    fn send(&mut self) -> Result<(), Error> {
        let mut from = 0;
        let mut failing_since = None;
        while from < self.lines.len() {
            let body = &self.batch[self.lines[from].1.start..];
            let request = Request { method: "POST", target: "/batch", fields: &[], body: Some(body) };
            let Answer { body, .. } = self.client.ask(&request, &[200])?;
            let before = from;
            let mut why = None;
            for answer in body.split(|byte| *byte == b'\n').take(self.lines.len() - before) {
                let status = serde_json::from_slice::<serde_json::Value>(answer).ok();
                let status = status.and_then(|answer| answer["status"].as_u64());
                match status {
                    // Of one key, later lines must come after earlier ones: all from here on are sent again.
                    Some(429 | 503 | 504) => {
                        why = Some(detail(answer));
                        break;
                    }
                    Some(status) => {
                        let number = self.lines[from].0;
                        self.count(number, status as u16, answer)?;
                    }
                    None => return Err(Error::new("the server did not answer every line of a batch")),
                }
                from += 1;
            }
            let sent = before..from;
            let bytes: usize = self.lines[sent].iter().map(|(_, range)| range.len()).sum();
            self.progress.add(0, bytes as u64);
            let Some(why) = why else { continue };
            if from > before {
                failing_since = None;
            }
            let since = *failing_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= self.client.retry {
                let number = self.lines[from].0;
                return Err(Error::new(format_args!("the store did not take line {number}: {why}")));
            }
            thread::sleep(PAUSE);
        }
        if let Some((number, _)) = self.lines.last() {
            self.done_lines = *number;
        }
        self.lines.clear();
        self.batch.clear();
        Ok(())
    }

    /// Writes a value that no batch has room for.
    fn send_alone(&mut self, number: u64, content: &[u8]) -> Result<(), Error> {
        self.progress.add(0, content.len() as u64);
        let (key, value, stored) = match alone(content) {
            Ok(alone) => alone,
            Err(why) => return self.count(number, 400, json!({ "detail": why }).to_string().as_bytes()),
        };
        let target = format!("/kv/{}", percent_encode(&key, NON_ALPHANUMERIC));
        let fields = FIELDS.into_iter().zip(&stored);
        let mut fields: Vec<(&str, &str)> =
            fields.filter_map(|(name, value)| Some((name, value.as_deref()?))).collect();
        if self.if_absent {
            fields.push(("If-None-Match", "*"));
        }
        // It has ended, or does before it is there.
        let is_over = fields.contains(&("TTL", "0"));
        let request = match is_over {
            // A key that is there keeps its value, and any other one is absent already.
            true if self.if_absent => return Ok(()),
            true => Request { method: "DELETE", target: &target, fields: &[], body: None },
            false => Request { method: "PUT", target: &target, fields: &fields, body: Some(&value) },
        };
        let Answer { status, body, .. } = self.client.ask(&request, &[201, 204, 400, 403, 412, 413])?;
        self.count(number, status, &body)
    }

    fn count(&mut self, number: u64, status: u16, answer: &[u8]) -> Result<(), Error> {
        match status {
            200..=299 => self.progress.add(1, 0),
            412 if self.if_absent => self.kept += 1,
            _ => {
                self.refused += 1;
                if self.refused <= REFUSED_SHOWN {
                    note(format_args!("line {number}: {status}: {}", detail(answer)));
                }
                if self.refused == REFUSED_SHOWN + 1 {
                    note("and more");
                }
                if self.refused == REFUSED_MAX {
                    return Err(Error::new(format_args!("{REFUSED_MAX} lines were refused")));
                }
            }
        }
        Ok(())
    }
}

/// What a line has that no batch has room for: key, value, and what [`FIELDS`] say of it. The error: why it is refused.
fn alone(content: &[u8]) -> Result<(Vec<u8>, Vec<u8>, Stored), String> {
    let Put { op, key, key_b64, value, value_b64, content_type, encoding, expires } =
        serde_json::from_slice(content).map_err(|error| {
            format!("{error}; a line of more than 16 MiB is a put without ttl, if_match and if_none_match")
        })?;
    if op != "put" {
        return Err(format!("it is a {op} of more than 16 MiB"));
    }
    let bytes = |text: Option<String>, encoded: Option<String>| match (text, encoded) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(encoded)) => STANDARD.decode(encoded).map_err(|error| format!("wrong base64: {error}")),
        _ => Err("key and value are given once each, as text or in base64".to_owned()),
    };
    let is_field =
        |stored: &String| stored.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
    if ![&content_type, &encoding].into_iter().flatten().all(is_field) {
        return Err("type and encoding are printable ASCII".to_owned());
    }
    let seconds = |text: String| {
        let at = humantime::parse_rfc3339(&text).map_err(|error| format!("wrong expires: {error}"))?;
        let left = Timestamp::from(at).since(SystemTime::now().into()).as_secs();
        Ok::<_, String>(left.min(TTL_SECS_MAX).to_string())
    };
    let stored = [expires.map(seconds).transpose()?, content_type, encoding];
    Ok((bytes(key, key_b64)?, bytes(value, value_b64)?, stored))
}
