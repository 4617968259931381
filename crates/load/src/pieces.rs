//! The templates of requests, compiled once per run: constant bytes, and what follows them.
//!
//! Knows what replaces a placeholder, not how it is written: `request` does.

use super::dialect::{self, OperationTemplate};
use super::header::{Header, HttpRequest, has};
use super::piece::{Piece, Placeholder};
use super::target::Target;
use super::variables::Variables;
use super::{Connect, Plan};
use std::ops::Range;

/// The template of a request, compiled.
pub(super) struct CompiledTemplate {
    pub(super) form: &'static OperationTemplate,
    pub(super) is_head: bool,
    /// Head and body.
    pub(super) bytes: Vec<Piece>,
    /// What of the body is the same in every request, in bytes.
    pub(super) body_bytes: usize,
    /// What is not.
    pub(super) body_placeholders: Vec<Placeholder>,
    pub(super) proof: Vec<Piece>,
}

impl CompiledTemplate {
    /// Of an operation on keys of `target`.
    pub(super) fn of_operation(
        form: &'static OperationTemplate,
        plan: &Plan,
        target: &Target,
        connect: Connect,
    ) -> CompiledTemplate {
        // The plan was checked.
        let mut headers = plan.http.all_headers(target).unwrap_or_default();
        let of_form = form.request.headers.iter().filter(|header| !has(&headers, &header.name));
        let of_form: Vec<Header> = of_form.cloned().collect();
        headers.extend(of_form);
        let request = HttpRequest { headers, ..form.request.clone() };
        let key_prefix = &plan.workload().key_prefix;
        let cut = |text: &[u8], is_target| cut(text, is_target, key_prefix, dialect::gaps(text));
        let proof = cut(form.proof.as_bytes(), false);
        CompiledTemplate { proof, ..CompiledTemplate::new(form, &request, connect, cut) }
    }

    /// Of any other request. Its placeholders are those of `variables`, in the file of values with these `columns`.
    pub(super) fn of_request(
        form: &'static OperationTemplate,
        request: &HttpRequest,
        columns: &[String],
        connect: Connect,
    ) -> CompiledTemplate {
        let mut variables = Variables::new(columns);
        let cut = |text: &[u8], is_target| cut(text, is_target, "", variables.gaps(text));
        CompiledTemplate::new(form, request, connect, cut)
    }

    /// Of a request whose parts `cut` makes pieces of; it is told which part is the target.
    fn new(
        form: &'static OperationTemplate,
        request: &HttpRequest,
        connect: Connect,
        mut cut: impl FnMut(&[u8], bool) -> Vec<Piece>,
    ) -> CompiledTemplate {
        let HttpRequest { method, path, headers, body, .. } = request;
        let mut rest = " HTTP/1.1\r\n".to_owned();
        for Header { name, value } in headers {
            rest.extend([name, ": ", value, "\r\n"]);
        }
        if connect == Connect::Each {
            rest += "Connection: close\r\n";
        }
        let mut bytes = cut(format!("{method} {path}").as_bytes(), true);
        join(&mut bytes, cut(rest.as_bytes(), false));
        let plain = |text: &str| Piece { text: text.into(), ..Piece::default() };
        if body.is_some() {
            let length = Piece { placeholder: Some(Placeholder::BodyBytes), ..plain("Content-Length: ") };
            join(&mut bytes, vec![length, plain("\r\n")]);
        }
        join(&mut bytes, vec![plain("\r\n")]);
        let body = body.as_ref().map_or_else(Vec::new, |body| cut(body, false));
        let body_bytes = body.iter().map(|piece| piece.text.len()).sum();
        let body_placeholders = body.iter().filter_map(|piece| piece.placeholder).collect();
        join(&mut bytes, body);
        let is_head = method == "HEAD";
        CompiledTemplate { form, is_head, bytes, body_bytes, body_placeholders, proof: Vec::new() }
    }
}

/// Appends pieces, as few as can be.
fn join(pieces: &mut Vec<Piece>, more: Vec<Piece>) {
    for mut piece in more {
        if let Some(last) = pieces.pop_if(|last| last.placeholder.is_none()) {
            piece.text = [last.text, piece.text].concat();
        }
        pieces.push(piece);
    }
}

/// Cuts a part of a request at its gaps. In a target what is no number is percent-encoded; prefixes of keys need no encoding.
fn cut(
    text: &[u8],
    is_target: bool,
    key_prefix: &str,
    gaps: impl IntoIterator<Item = (Range<usize>, Placeholder)>,
) -> Vec<Piece> {
    use Placeholder::{Column, Key, KeyBase64, Value, ValueBase64, Version};
    let mut pieces = Vec::new();
    let mut done = 0;
    for (gap, placeholder) in gaps {
        let prefix = if placeholder == Key { key_prefix } else { "" };
        pieces.push(Piece {
            text: [&text[done..gap.start], prefix.as_bytes()].concat(),
            placeholder: Some(placeholder),
            percent: is_target
                && matches!(placeholder, KeyBase64 | Value | ValueBase64 | Version | Column(_)),
        });
        done = gap.end;
    }
    if done < text.len() {
        pieces.push(Piece { text: text[done..].to_vec(), ..Piece::default() });
    }
    pieces
}
