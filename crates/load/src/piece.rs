//! A piece of a compiled template.

use super::dialect::Placeholder;

/// Bytes, and the placeholder behind them. A key's prefix is part of the bytes: its number follows.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) text: Vec<u8>,
    pub(super) placeholder: Option<Placeholder>,
    /// Whether what follows is percent-encoded.
    pub(super) percent: bool,
}
