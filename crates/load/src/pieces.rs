//! The templates of a dialect, compiled once per run: constant bytes, and what follows them.
//!
//! Knows what replaces a placeholder, not how it is written: `request` does.

use super::dialect::{self, OperationTemplate, Placeholder};
use super::http_request::HttpRequest;
use super::piece::Piece;
use super::target::Target;
use super::variables;
use super::{Connect, Plan};

/// The template of an operation, compiled.
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
    pub(super) fn new(
        form: &'static OperationTemplate,
        plan: &Plan,
        target: &Target,
        connect: Connect,
    ) -> CompiledTemplate {
        let key_prefix = &plan.workload().key_prefix;
        let body = form.body.as_deref().unwrap_or_default();
        let line = format!("{} {}", form.method, form.path);
        let mut rest = " HTTP/1.1\r\n".to_owned();
        // The plan was checked.
        for header in plan.http.all_headers(target).unwrap_or_default() {
            rest.extend([&header.name, ": ", &header.value, "\r\n"]);
        }
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
        let bytes = cut(&[(&line, true), (&rest, false)], key_prefix);
        let proof = cut(&[(&form.proof, false)], key_prefix);
        let body = cut(&[(body, false)], key_prefix);
        CompiledTemplate {
            form,
            is_head: false,
            bytes,
            body_bytes: body.iter().map(|piece| piece.text.len()).sum(),
            body_placeholders: body.iter().filter_map(|piece| piece.placeholder).collect(),
            proof,
        }
    }

    /// Of any other request. Its placeholders are those of `variables`, in the file of values with these `columns`.
    pub(super) fn of_request(
        form: &'static OperationTemplate,
        request: &HttpRequest,
        columns: &[String],
        connect: Connect,
    ) -> CompiledTemplate {
        let mut rest = " HTTP/1.1\r\n".to_owned();
        for header in &request.headers {
            rest.extend([&header.name, ": ", &header.value, "\r\n"]);
        }
        if connect == Connect::Each {
            rest += "Connection: close\r\n";
        }
        let target = format!("{} {}", request.method, request.path);
        let mut variables = variables::Cutter::new(columns);
        let mut bytes = variables.cut(target.as_bytes(), true);
        join(&mut bytes, variables.cut(rest.as_bytes(), false));
        let body = request.body.as_deref().map(|body| variables.cut(body, false));
        let plain = |text: &str| Piece { text: text.into(), ..Piece::default() };
        if body.is_some() {
            let length = Piece { placeholder: Some(Placeholder::BodyBytes), ..plain("Content-Length: ") };
            join(&mut bytes, vec![length, plain("\r\n")]);
        }
        join(&mut bytes, vec![plain("\r\n")]);
        let body = body.unwrap_or_default();
        let body_bytes = body.iter().map(|piece| piece.text.len()).sum();
        let body_placeholders = body.iter().filter_map(|piece| piece.placeholder).collect();
        join(&mut bytes, body);
        let is_head = request.method == "HEAD";
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
