//! The file of tokens: who they belong to, and what they allow. It has their hashes only.

use super::rate::{RATE_MAX, RATE_MIN, RateLimiter};
use super::reload::Reloadable;
use kv::{Error, line_number};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use toml::value::{Datetime, Offset};

/// What every token that is made here begins with, so that a search finds one where it does not belong.
const PREFIX: &str = "weir-";
const RANDOM_BYTES: usize = 32;

/// The tokens of a server, read again when their file changes.
#[derive(Debug)]
pub struct Tokens(pub(super) Reloadable<Table>);

/// By the SHA-256 of the token: how long the search takes says something of the hash only, which says nothing of the token.
#[derive(Debug)]
pub(super) struct Table(HashMap<Hash, Arc<Token>>);

type Hash = [u8; 32];

/// What one token allows.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) name: String,
    verbs: Vec<Verb>,
    /// What its keys begin with.
    pub(super) prefix: String,
    expires: Option<SystemTime>,
    pub(super) limiter: Option<Arc<RateLimiter>>,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verb {
    Read,
    Write,
    List,
    Watch,
    Admin,
}

/// The verbs that a token may have.
pub const VERBS: [&str; 5] = ["read", "write", "list", "watch", "admin"];

impl Verb {
    pub(super) fn as_str(self) -> &'static str {
        VERBS[self as usize]
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Entry>,
}

/// Of a token. A prefix has to be given: an entry that lost its last lines must not allow more.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sha256: String,
    verbs: Vec<Verb>,
    prefix: String,
    expires: Option<Datetime>,
    rate: Option<f64>,
    burst: Option<u32>,
}

impl Tokens {
    /// Reads the file.
    pub fn new(file: &Path) -> Result<Tokens, Error> {
        Reloadable::new("tokens", vec![file.to_owned()], read).map(Tokens)
    }
}

/// A new token.
pub fn random_token() -> Result<String, Error> {
    let mut bytes = [0; RANDOM_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| Error::new("the system gives no random numbers"))?;
    Ok(format!("{PREFIX}{}", hex(&bytes)))
}

/// What the file has of a token.
pub fn token_hash(token: &str) -> String {
    hex(&hash(token.as_bytes()))
}

fn hash(token: &[u8]) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest(&SHA256, token).as_ref());
    hash
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether a server takes a file of this text, which errors call `shown`.
pub fn check_tokens(text: &str, shown: impl Display) -> Result<(), Error> {
    parse(text, &shown, None).map(drop)
}

fn read(files: &[PathBuf], before: Option<&Table>) -> Result<Table, Error> {
    let [file] = files else { unreachable!("tokens are in one file") };
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Error::input(format_args!("cannot read {shown}: {error}")).hint("`weir token` makes one")
    })?;
    parse(&text, &shown, before)
}

/// A limit that stays as it was goes on with what is left of it.
fn parse(text: &str, shown: &dyn Display, before: Option<&Table>) -> Result<Table, Error> {
    let parsed: File = toml::from_str(text).map_err(|error| {
        let line = line_number(text, error.span().map_or(0, |span| span.start));
        Error::input(format_args!("{shown}, line {line}: {}", without_tokens(error.message())))
            .hint("`weir token` writes such entries")
    })?;
    if parsed.token.is_empty() {
        return Err(Error::input(format_args!("{shown} has no [[token]]")).hint("`weir token` makes one"));
    }
    let mut names = HashSet::new();
    let mut table = HashMap::new();
    for entry in &parsed.token {
        let name = without_tokens(&entry.name);
        let wrong = |what: &str| Error::input(format_args!("{shown}, token {name:?}: {what}"));
        if !names.insert(&entry.name) {
            return Err(wrong("the name is given twice"));
        }
        let hash = bytes_of_hex(&entry.sha256).and_then(|bytes| Hash::try_from(bytes).ok());
        let hash =
            hash.ok_or_else(|| wrong("sha256 is not the SHA-256 of a token: 64 hexadecimal digits"))?;
        let expires = entry.expires.map(|at| instant(at).ok_or("expires")).transpose();
        let expires = expires.map_err(|_| {
            wrong("expires is no date with time and offset").hint("write it as in 2027-01-31T00:00:00Z")
        })?;
        let limiter = match (entry.rate, entry.burst) {
            (None, None) => None,
            (None, Some(_)) => return Err(wrong("there is a burst and no rate")),
            (Some(rate), burst) => {
                let burst = burst.unwrap_or(rate.ceil().clamp(1.0, RATE_MAX) as u32);
                let is_legal =
                    (RATE_MIN..=RATE_MAX).contains(&rate) && (1..=RATE_MAX as u32).contains(&burst);
                if !is_legal {
                    return Err(wrong("rate is 0.001 to 1000000, and burst 1 to 1000000"));
                }
                let old = before.and_then(|before| before.0.get(&hash)?.limiter.clone());
                let old = old.filter(|old| old.rate.to_bits() == rate.to_bits() && old.burst == burst);
                Some(old.unwrap_or_else(|| Arc::new(RateLimiter::new(rate, burst))))
            }
        };
        let (verbs, prefix) = (entry.verbs.clone(), entry.prefix.clone());
        if table
            .insert(hash, Arc::new(Token { name: name.clone(), verbs, prefix, expires, limiter }))
            .is_some()
        {
            return Err(wrong("another token has the same sha256"));
        }
    }
    Ok(Table(table))
}

/// Somebody may have put a token where it does not belong.
fn without_tokens(text: &str) -> String {
    let mut parts = text.split(PREFIX);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
        text + PREFIX + "…" + rest
    })
}

/// The other way of [`hex`].
pub(super) fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some((digit(pair[0])? << 4 | digit(*pair.get(1)?)?) as u8)).collect()
}

/// An instant as RFC 3339 writes it.
fn instant(at: Datetime) -> Option<SystemTime> {
    let (date, time) = (at.date?, at.time?);
    let utc = humantime::parse_rfc3339(&format!("{date}T{time}Z")).ok()?;
    let minutes = match at.offset? {
        Offset::Z => 0,
        Offset::Custom { minutes } => minutes,
    };
    let offset = Duration::from_secs(60 * u64::from(minutes.unsigned_abs()));
    if minutes < 0 { utc.checked_add(offset) } else { utc.checked_sub(offset) }
}

impl Table {
    /// What the token allows, if it is known.
    pub(super) fn find(&self, token: &[u8]) -> Option<&Arc<Token>> {
        self.0.get(&hash(token))
    }
}

impl Token {
    /// How long it is valid from `now` on; `None`: for ever.
    pub(super) fn valid_for(&self, now: SystemTime) -> Option<Duration> {
        self.expires.map(|expires| expires.duration_since(now).unwrap_or_default())
    }

    pub(super) fn has(&self, verb: Verb) -> bool {
        self.verbs.contains(&verb)
    }

    /// Whether a key, or all keys with this prefix, are its own.
    pub(super) fn covers(&self, key: &[u8]) -> bool {
        key.starts_with(self.prefix.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a file of this text; its tokens' names in order, or the failure.
    fn check(text: &str, expected: &str) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tokens.toml");
        std::fs::write(&file, text).unwrap();
        let got = match read(&[file], None) {
            Ok(Table(table)) => {
                let mut names: Vec<_> = table.values().map(|token| token.name.clone()).collect();
                names.sort();
                names.join(" ")
            }
            Err(error) => error.to_string(),
        };
        assert!(got.contains(expected), "{text}: {got}");
    }

    fn entry(name: &str, more: &str) -> String {
        format!(
            "[[token]]\nname = {name:?}\nsha256 = \"{}\"\nverbs = [\"read\"]\nprefix = \"\"\n{more}\n",
            token_hash(name)
        )
    }

    #[test]
    fn a_file_is_understood_or_refused() {
        check(&(entry("b", "") + &entry("a", "rate = 0.5\nexpires = 2030-01-01T00:00:00+02:00")), "a b");
        check("", "has no [[token]]");
        check("[[token]\n", "line 1: ");
        check("[[token]]\nname = \"a\"\nsha256 = \"\"\nverbs = []\n", "missing field `prefix`");
        check(&entry("a", "perfix = \"x\""), "line 6: unknown field `perfix`");
        check(&entry("a", "").replace("read", "raed"), "line 4: unknown variant `raed`");
        check(&(entry("a", "") + &entry("a", "")), "token \"a\": the name is given twice");
        check(&(entry("a", "") + &entry("a", "").replace("name = \"a\"", "name = \"b\"")), "the same sha256");
        check(&entry("a", "").replace("sha256 = \"", "sha256 = \"0"), "sha256 is not the SHA-256");
        for wrong in ["2030-01-01", "2030-01-01T00:00:00", "00:00:00"] {
            check(&entry("a", &format!("expires = {wrong}")), "expires is no date with time and offset");
        }
        for wrong in ["rate = 0.0009", "rate = -1.0", "rate = nan", "rate = 2e6", "rate = 1.0\nburst = 0"] {
            check(&entry("a", wrong), "rate is 0.001 to 1000000, and burst 1 to 1000000");
        }
        check(&entry("a", "burst = 3"), "there is a burst and no rate");
        check(&entry("a", "weir-0a1b = 1"), "line 6: unknown field `weir-…`");
        check(&(entry("weir-0a", "") + &entry("weir-0a", "")), "token \"weir-…\": the name is given twice");
    }

    #[test]
    fn an_instant_has_its_offset() {
        for (text, expected) in [
            ("1970-01-01T00:00:10Z", 10),
            ("1970-01-01T01:00:00+01:00", 0),
            ("1970-01-01T00:00:00-00:30", 1800),
        ] {
            let at = instant(text.parse().unwrap()).unwrap();
            assert_eq!(at, SystemTime::UNIX_EPOCH + Duration::from_secs(expected), "{text}");
        }
    }

    #[test]
    fn tokens_are_not_alike_and_known_by_their_hash() {
        let (one, other) = (random_token().unwrap(), random_token().unwrap());
        assert!(one != other && one.len() == PREFIX.len() + 2 * RANDOM_BYTES && one.starts_with(PREFIX));
        assert_eq!(token_hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(bytes_of_hex(&token_hash("abc")), Some(hash(b"abc").to_vec()));
    }
}
