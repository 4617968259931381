//! The templates of a dialect, compiled once per run: constant bytes, and what follows them.
//!
//! Knows what replaces a placeholder, not how it is written: `request` does.

use super::dialect::{self, OperationTemplate, Placeholder};
use super::{Connect, Plan};

/// The template of an operation, compiled.
pub(super) struct CompiledTemplate {
    pub(super) form: &'static OperationTemplate,
    /// Head and body.
    pub(super) bytes: Vec<Piece>,
    /// What of the body is the same in every request, in bytes.
    pub(super) body_bytes: usize,
    /// What is not.
    pub(super) body_placeholders: Vec<Placeholder>,
    pub(super) proof: Vec<Piece>,
}

/// Bytes, and the placeholder behind them. A key's prefix is part of the bytes: its number follows.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) text: Vec<u8>,
    pub(super) placeholder: Option<Placeholder>,
    /// Whether what follows is percent-encoded.
    pub(super) percent: bool,
}

impl CompiledTemplate {
    pub(super) fn new(form: &'static OperationTemplate, plan: &Plan, connect: Connect) -> CompiledTemplate {
        let (key_prefix, authority) = (&plan.workload.key_prefix, plan.target.authority());
        // The head contains the placeholders until it is cut.
        let mut head = Vec::new();
        let mut writer = http1::request::write(&mut head, &form.method, &form.path, authority);
        for (name, value) in &form.headers {
            writer = writer.field(name, value.as_bytes());
        }
        if connect == Connect::Each {
            writer = writer.field("Connection", b"close");
        }
        const LINE_ENDS: &str = "\r\n\r\n";
        match form.body {
            Some(_) => {
                writer.end_with_length(0);
                // The head ends with the length, a single digit, and two line ends.
                head.truncate(head.len() - "0".len() - LINE_ENDS.len());
            }
            None => writer.end(),
        }
        let head = String::from_utf8(head).expect("heads are made of texts");
        let (line, fields) = head.split_at(form.method.len() + " ".len() + form.path.len());
        let mut bytes = cut(line, key_prefix, true);
        bytes.extend(cut(fields, key_prefix, false));
        let body = form.body.as_deref().map_or_else(Vec::new, |body| cut(body, key_prefix, false));
        let body_bytes = body.iter().map(|piece| piece.text.len()).sum();
        let body_placeholders = body.iter().filter_map(|piece| piece.placeholder).collect();
        if form.body.is_some() {
            // Templates end in text without a gap, and this one with the length's name.
            if let Some(last) = bytes.last_mut() {
                last.placeholder = Some(Placeholder::BodyBytes);
            }
            bytes.push(Piece { text: LINE_ENDS.into(), placeholder: None, percent: false });
        }
        bytes.extend(body);
        CompiledTemplate {
            form,
            bytes: without_seams(bytes),
            body_bytes,
            body_placeholders,
            proof: without_seams(cut(&form.proof, key_prefix, false)),
        }
    }
}

/// The same bytes in as few pieces as can be.
fn without_seams(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut fewer: Vec<Piece> = Vec::new();
    for piece in pieces {
        match fewer.last_mut().filter(|last| last.placeholder.is_none()) {
            Some(last) => {
                last.text.extend_from_slice(&piece.text);
                (last.placeholder, last.percent) = (piece.placeholder, piece.percent);
            }
            None => fewer.push(piece),
        }
    }
    fewer.pop_if(|last| last.text.is_empty() && last.placeholder.is_none());
    fewer
}

/// Cuts a template. In a `target` what is no number is percent-encoded; prefixes of keys need no encoding.
fn cut(template: &str, key_prefix: &str, target: bool) -> Vec<Piece> {
    use Placeholder::{Key, KeyBase64, Value, ValueBase64};
    let pieces = dialect::pieces(template).into_iter().map(|(text, placeholder)| {
        let prefix = if placeholder == Some(Key) { key_prefix } else { "" };
        let percent = target && matches!(placeholder, Some(KeyBase64 | Value | ValueBase64));
        Piece { text: format!("{text}{prefix}").into(), placeholder, percent }
    });
    pieces.collect()
}
