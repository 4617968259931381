//! Pieces of compiled templates, and the placeholders between them.

use regex::bytes::Regex;
use std::ops::Range;

/// What replaces a placeholder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placeholder {
    Key,
    KeyBase64,
    Value,
    ValueBase64,
    /// How many primes.
    Count,
    /// The text to be hashed.
    Text,
    /// What the server must make of it.
    Hash,
    /// What a read said of the value that it found.
    Version,
    /// How long the body is: not for dialects, but for the header that says it.
    BodyBytes,
    /// Of requests that are no operation on keys: a value of a file, by its column.
    Column(usize),
    /// A random UUID; the number tells apart those of one request.
    Uuid(u64),
    /// A whole number from the first to the second; the third tells apart those of one request.
    Int(u64, u64, u64),
}

/// Bytes, and the placeholder behind them. A key's prefix is part of the bytes: its number follows.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) text: Vec<u8>,
    pub(super) placeholder: Option<Placeholder>,
    /// Whether what follows is percent-encoded.
    pub(super) percent: bool,
}

/// What in `text` looks like a placeholder, by `pattern`: where it is, and its name, which is the first group.
pub(super) fn names<'t>(pattern: &Regex, text: &'t [u8]) -> impl Iterator<Item = (Range<usize>, &'t str)> {
    pattern.captures_iter(text).filter_map(|found| {
        let name = found.get(1)?.as_bytes();
        Some((found.get(0)?.range(), str::from_utf8(name).ok()?))
    })
}
