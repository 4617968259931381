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
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) text: Vec<u8>,
    pub(super) placeholder: Option<Placeholder>,
    /// Whether what follows is percent-encoded.
    pub(super) percent: bool,
}

impl CompiledTemplate {
    pub(super) fn new(form: &'static OperationTemplate, plan: &Plan, connect: Connect) -> CompiledTemplate {
        let key_prefix = &plan.workload.key_prefix;
        let body = form.body.as_deref().unwrap_or_default();
        let target = format!("{} {}", form.method, form.path);
        let mut rest = format!(" HTTP/1.1\r\nHost: {}\r\n", plan.target.authority());
        for (name, value) in &form.headers {
            rest.extend([name, ": ", value, "\r\n"]);
        }
        if connect == Connect::Each {
            rest += "Connection: close\r\n";
        }
        if form.body.is_some() {
            rest += "Content-Length: {body_bytes}\r\n";
        }
        rest.extend(["\r\n", body]);
        let bytes = cut(&[(&target, true), (&rest, false)], key_prefix);
        let proof = cut(&[(&form.proof, false)], key_prefix);
        let body = cut(&[(body, false)], key_prefix);
        CompiledTemplate {
            form,
            bytes,
            body_bytes: body.iter().map(|piece| piece.text.len()).sum(),
            body_placeholders: body.iter().filter_map(|piece| piece.placeholder).collect(),
            proof,
        }
    }
}

/// Cuts templates that follow one another into as few pieces as can be. In a target (`true`) what is no number is
/// percent-encoded; prefixes of keys need no encoding.
fn cut(templates: &[(&str, bool)], key_prefix: &str) -> Vec<Piece> {
    use Placeholder::{Key, KeyBase64, Value, ValueBase64, Version};
    let mut pieces: Vec<Piece> = Vec::new();
    for (template, is_target) in templates {
        for (text, placeholder) in dialect::pieces(template) {
            let prefix = if placeholder == Some(Key) { key_prefix } else { "" };
            let mut last = pieces.pop_if(|last| last.placeholder.is_none()).unwrap_or_default();
            last.text.extend([text, prefix].concat().bytes());
            last.placeholder = placeholder;
            last.percent =
                *is_target && matches!(placeholder, Some(KeyBase64 | Value | ValueBase64 | Version));
            pieces.push(last);
        }
    }
    pieces.pop_if(|last| last.text.is_empty() && last.placeholder.is_none());
    pieces
}
