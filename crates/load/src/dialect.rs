//! Dialects: what each operation is on the wire of a server, and what that server's answers mean, as templates.
//!
//! TOML in, templates out. Renders nothing and knows no connection: `request` makes bytes of the templates, `answer`
//! judges by the rules.

use super::header::{Header, HttpRequest, is_field_name};
use super::mix::Operation;
use super::piece::{Placeholder, names};
use super::statuses::Statuses;
use kv::{line_number, named, one_line};
use regex::bytes::Regex;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;
use std::sync::LazyLock;

/// Every built-in dialect. The first is the default.
pub static DIALECTS: LazyLock<Vec<Dialect>> = LazyLock::new(|| {
    let files = [
        ("weir", include_str!("dialects/weir.toml")),
        ("fixed", include_str!("dialects/fixed.toml")),
        ("webdis", include_str!("dialects/webdis.toml")),
        ("etcd", include_str!("dialects/etcd.toml")),
    ];
    files.map(|(name, text)| Dialect::parse(name, text).expect("the tests have parsed all of them")).into()
});

/// How requests to one kind of server look.
#[derive(Debug)]
pub struct Dialect {
    /// What `--dialect` called it; of a file, the file's name without folders.
    pub name: String,
    /// Whose it is, in one sentence.
    pub about: String,
    /// The shortest value the server takes.
    pub value_bytes_min: u64,
    /// What it was parsed from, for those who have no such file.
    text: String,
    /// By `operation as usize`; `None` for what the server cannot be asked.
    forms: [Option<OperationTemplate>; Operation::ALL.len()],
}

impl FromStr for &'static Dialect {
    type Err = String;

    /// The dialect of [`DIALECTS`] called so, or that of a file: whatever looks like one.
    fn from_str(name: &str) -> Result<&'static Dialect, String> {
        let found = named(&DIALECTS, |row| &row.name, name);
        if found.is_ok() || !(name.ends_with(".toml") || name.contains('/')) {
            return found.map_err(|known| format!("expected one of: {known}, or the path of a FILE.toml"));
        }
        let text = std::fs::read_to_string(name).map_err(|error| format!("cannot read it: {error}"))?;
        // The report has the name of the file without its folders.
        let own = Path::new(name).file_name().map_or(name.into(), |own| own.to_string_lossy());
        Dialect::of_file(&own, &text)
    }
}

impl Dialect {
    /// The dialect that the file called `name` describes in `text`. `Err` is one line, the remedy behind a semicolon.
    ///
    /// It is never freed: a run has one, and all its threads use it.
    pub fn of_file(name: &str, text: &str) -> Result<&'static Dialect, String> {
        Dialect::parse(name, text).map(|dialect| &*Box::leak(Box::new(dialect)))
    }

    /// Whether it is the one that is used unless another is named.
    pub fn is_default(&self) -> bool {
        self.name == DIALECTS[0].name
    }

    /// Whether it has words for `operation`.
    pub fn supports(&self, operation: Operation) -> bool {
        self.form(operation).is_some()
    }

    /// Whether a request of `operation` names its key. What does not can neither be preloaded nor verified.
    pub fn names_key(&self, operation: Operation) -> bool {
        let is_key = |(_, gap)| matches!(gap, Placeholder::Key | Placeholder::KeyBase64);
        self.form(operation).is_some_and(|form| form.request.parts().flat_map(gaps).any(is_key))
    }

    /// Whether the answer to a read has the value of the key that was asked for.
    pub(super) fn reads_values(&self) -> bool {
        let has_value = |form: &OperationTemplate| form.proof.contains("{value");
        self.names_key(Operation::Get) && self.form(Operation::Get).is_some_and(has_value)
    }

    pub(super) fn form(&self, operation: Operation) -> Option<&OperationTemplate> {
        self.forms[operation as usize].as_ref()
    }

    fn parse(name: &str, text: &str) -> Result<Dialect, String> {
        let file: File = toml::from_str(text).map_err(|error| parser_error(text, &error))?;
        let outcome_header = file.outcome_header;
        if outcome_header.as_ref().is_some_and(|name| !is_field_name(name)) {
            return Err(
                "outcome_header is no legal header name; hint: write it as in outcome_header = \"X-Outcome\""
                    .into(),
            );
        }
        let sections = [
            file.get,
            file.put,
            file.delete,
            file.compute_prime,
            file.compute_hash,
            file.put_if_absent,
            file.put_if_match,
            file.delete_if_match,
        ];
        if sections.iter().all(Option::is_none) {
            return Err("it has no operation; hint: add at least a [get] with a path".into());
        }
        let mut forms = [const { None }; Operation::ALL.len()];
        for (operation, section) in Operation::ALL.into_iter().zip(sections) {
            let form = section.map(|section| section.form(operation, outcome_header.clone())).transpose();
            // It quotes the file, which may have line ends anywhere.
            let one_line = |why: String| why.replace(char::is_control, " ");
            forms[operation as usize] =
                form.map_err(|why| format!("[{}] {}", operation.name(), one_line(why)))?;
        }
        Ok(Dialect {
            name: name.to_owned(),
            about: file.about,
            text: text.to_owned(),
            value_bytes_min: file.value_bytes_min,
            forms,
        })
    }
}

/// In messages between processes: name and text.
impl Serialize for Dialect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.name, &self.text).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for &'static Dialect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<&'static Dialect, D::Error> {
        let (name, text) = <(String, String)>::deserialize(deserializer)?;
        Dialect::of_file(&name, &text).map_err(D::Error::custom)
    }
}

/// An operation on the wire, and what its answers mean.
#[derive(Debug, Default)]
pub(super) struct OperationTemplate {
    /// Without the headers that every request has.
    pub(super) request: HttpRequest,
    /// Statuses that mean success.
    pub(super) ok: Statuses,
    /// Statuses that mean to a read that there is no such key, and to a conditional write that its condition does not hold.
    pub(super) absent: Vec<u16>,
    /// The same, if the body of a success contains this text.
    pub(super) absent_if: Option<String>,
    /// The same, if the body of a success lacks this text.
    pub(super) absent_unless: Option<String>,
    /// A success whose body begins with this text is an error of the server's.
    pub(super) error_begins: Option<String>,
    /// What the body of a good answer is, or has in it.
    pub(super) proof: String,
    /// Whether it must be that and no more; only of a value that is known to its end.
    pub(super) whole: bool,
    /// Whether the expected text may be anywhere in the body; else the body begins with it.
    pub(super) anywhere: bool,
    /// Whether the body must be kept until it is complete, because something is to be looked for.
    pub(super) keeps_body: bool,
    /// Of a read: the field with the version of the value that was found.
    pub(super) version_header: Option<String>,
    /// The same in a body: the version is between this text and the next quotation mark.
    pub(super) version_after: Option<String>,
    /// The field by which a 503 says whether the request was carried out.
    pub(super) outcome_header: Option<String>,
    /// What the body of a success has in it, of requests that are no operation on keys.
    pub(super) body_pattern: Option<Regex>,
}

/// Of a request that was never rendered.
impl Default for &'static OperationTemplate {
    fn default() -> &'static OperationTemplate {
        static NONE: LazyLock<OperationTemplate> = LazyLock::new(OperationTemplate::default);
        &NONE
    }
}

/// Whether an operation may have it.
type Allowed = fn(Operation) -> bool;

/// Every placeholder as it is written between braces, and the operations whose requests may have it, and whose expected answers may.
const PLACEHOLDERS: &[(&str, Placeholder, Allowed, Allowed)] = &[
    ("key", Placeholder::Key, Operation::has_key, Operation::has_key),
    ("key_base64", Placeholder::KeyBase64, Operation::has_key, Operation::has_key),
    ("value", Placeholder::Value, Operation::has_value, is_get_or_put),
    ("value_base64", Placeholder::ValueBase64, Operation::has_value, is_get_or_put),
    ("version", Placeholder::Version, Operation::needs_version, |_| false),
    ("count", Placeholder::Count, |of| of == Operation::ComputePrime, |of| of == Operation::ComputePrime),
    ("text", Placeholder::Text, |of| of == Operation::ComputeHash, |_| false),
    ("hash", Placeholder::Hash, |_| false, |of| of == Operation::ComputeHash),
];

fn is_get_or_put(operation: Operation) -> bool {
    matches!(operation, Operation::Get | Operation::Put)
}

/// What looks like a placeholder: a word in braces. JSON has none, as its names are quoted.
static WORD: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?-u)\{(\w+)\}").expect("a constant that parses"));

/// Where the placeholders of a template are; braces around anything else are text.
pub(super) fn gaps(template: &[u8]) -> impl Iterator<Item = (Range<usize>, Placeholder)> {
    names(&WORD, template).filter_map(|(gap, name)| {
        let (_, placeholder, ..) = PLACEHOLDERS.iter().find(|(known, ..)| *known == name)?;
        Some((gap, *placeholder))
    })
}

/// A dialect's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    about: String,
    #[serde(default)]
    value_bytes_min: u64,
    outcome_header: Option<String>,
    get: Option<Section>,
    put: Option<Section>,
    delete: Option<Section>,
    compute_prime: Option<Section>,
    compute_hash: Option<Section>,
    put_if_absent: Option<Section>,
    put_if_match: Option<Section>,
    delete_if_match: Option<Section>,
}

/// An operation as the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    method: Option<String>,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<String>,
    ok: Option<Vec<u16>>,
    // What a read says of its key, a conditional write says of its condition.
    #[serde(alias = "failed")]
    absent: Option<Vec<u16>>,
    #[serde(alias = "failed_if")]
    absent_if: Option<String>,
    #[serde(alias = "failed_unless")]
    absent_unless: Option<String>,
    version_header: Option<String>,
    version_after: Option<String>,
    error_begins: Option<String>,
    begins: Option<String>,
    holds: Option<String>,
}

impl Section {
    fn form(self, operation: Operation, outcome_header: Option<String>) -> Result<OperationTemplate, String> {
        let is_get = operation == Operation::Get;
        let is_conditional = operation.is_conditional();
        let has_absent = self.absent.is_some() || self.absent_if.is_some() || self.absent_unless.is_some();
        if has_absent && !is_get && !is_conditional {
            return Err("has absent or failed, or one of these with _if or _unless, which only reads and conditional writes use; hint: leave it out".into());
        }
        if !is_get && (self.version_header.is_some() || self.version_after.is_some()) {
            return Err(
                "has version_header or version_after, which only reads use; hint: move it to [get]".into()
            );
        }
        if self.begins.is_some() && self.holds.is_some() {
            return Err("has both begins and holds; hint: leave one out".into());
        }
        let anywhere = self.holds.is_some();
        // The answer to a read is the value and nothing else, unless the file says otherwise. The answer to a write is not checked.
        let whole = is_get && self.holds.is_none() && self.begins.is_none();
        let proof = self.holds.or(self.begins).unwrap_or_else(|| if whole { "{value}" } else { "" }.into());
        let method = self.method.unwrap_or_else(|| operation.method().to_owned());
        let sends = matches!(method.as_str(), "PUT" | "POST" | "PATCH");
        let ok = self.ok.unwrap_or_else(|| ok(operation).to_vec());
        if ok.is_empty() || !ok.iter().all(|code| (200..=599).contains(code)) {
            return Err(
                "ok needs at least one status, from 200 to 599; hint: write it as in ok = [200]".into()
            );
        }
        let headers = self.headers.iter().map(|(name, value)| Header::new(name, value));
        let headers = headers.collect::<Result<_, String>>()?;
        // Without a length a server does not know that such a request has no body.
        let body = self.body.or_else(|| sends.then(String::new)).map(String::into_bytes);
        let form = OperationTemplate {
            request: HttpRequest { method, path: self.path, headers, body, ..HttpRequest::default() },
            ok: Statuses::of(&ok),
            absent: self.absent.unwrap_or_else(|| match operation {
                Operation::Get => vec![404],
                _ if is_conditional => vec![412],
                _ => Vec::new(),
            }),
            keeps_body: anywhere && !proof.is_empty()
                || [&self.absent_if, &self.absent_unless, &self.error_begins]
                    .into_iter()
                    .any(Option::is_some),
            error_begins: self.error_begins,
            absent_if: self.absent_if,
            absent_unless: self.absent_unless,
            version_header: self.version_header,
            version_after: self.version_after,
            proof,
            whole,
            anywhere,
            outcome_header,
            body_pattern: None,
        };
        form.check(operation)?;
        Ok(form)
    }
}

/// How much of a body is kept to look for a text in it, beyond the length of that text.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 10;
/// How much of one is kept for a regular expression.
const PATTERN_BYTES_MAX: usize = 1 << 20;

impl OperationTemplate {
    /// How much of a body is kept, where it is, beyond the expected text.
    pub(super) fn kept_bytes(&self) -> usize {
        if self.body_pattern.is_some() { PATTERN_BYTES_MAX } else { KEPT_BYTES_MAX }
    }

    fn check(&self, operation: Operation) -> Result<(), String> {
        let HttpRequest { method, path, headers, .. } = &self.request;
        let OperationTemplate { ok, absent, absent_if, absent_unless, error_begins, .. } = self;
        let fail = |what: String, hint: &str| Err(format!("{what}; hint: {hint}"));
        if method.is_empty() || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
            return fail(format!("`{method}` is no method"), "write it in capital letters, as in POST");
        }
        if matches!(method.as_str(), "HEAD" | "CONNECT") {
            return fail(format!("answers to {method} have no body to check"), "use another method, as GET");
        }
        if !path.starts_with('/') || !path.bytes().all(|byte| matches!(byte, 0x21..=0x7e) && byte != b'#') {
            return fail(format!("`{path}` is no path"), "begin with /, and write %20 for a space");
        }
        let is_reserved = |name: &str| ["host", "expect"].contains(&name.to_ascii_lowercase().as_str());
        if let Some(Header { name, .. }) = headers.iter().find(|header| is_reserved(&header.name)) {
            return fail(format!("a dialect cannot set the header {name}"), "leave it out");
        }
        if let Some(both) = absent.iter().find(|code| ok.contains(**code)) {
            let what = format!("has {both} both in ok and in absent, which is [404] by default");
            return fail(what, "remove it from one of them");
        }
        let mut absent_texts = absent_if.iter().chain(absent_unless);
        if absent_texts.clone().any(String::is_empty) {
            return fail("has an empty absent_if or absent_unless".into(), "write a text, or leave it out");
        }
        let has_gap = |text: &String| gaps(text.as_bytes()).next().is_some();
        if error_begins.as_ref().is_some_and(|text| text.is_empty() || has_gap(text)) {
            let what = "has an empty error_begins, or one with a placeholder".into();
            return fail(what, "write a text that is the same for every key");
        }
        if absent_texts.any(has_gap) {
            let what = "has a placeholder in absent_if or absent_unless".into();
            return fail(what, "write a text that is the same for every key");
        }
        let asked = self.request.parts().map(|template| (template, false));
        let templates = asked.chain([(self.proof.as_bytes(), true)]);
        for (template, in_answer) in templates {
            let known = PLACEHOLDERS.iter().filter(|(.., asked, answered)| {
                let may_have = if in_answer { answered } else { asked };
                may_have(operation)
            });
            let known: Vec<&str> = known.map(|(name, ..)| *name).collect();
            if let Some((_, name)) = names(&WORD, template).find(|(_, name)| !known.contains(name)) {
                let hint = format!("expected one of: {{{}}}", known.join("}, {"));
                return fail(format!("unknown placeholder {{{name}}}"), &hint);
            }
        }
        Ok(())
    }
}

/// The statuses that mean success unless a dialect says otherwise.
fn ok(operation: Operation) -> &'static [u16] {
    match operation {
        Operation::Get | Operation::ComputePrime | Operation::ComputeHash | Operation::Request => &[200],
        Operation::Put | Operation::PutIfAbsent | Operation::PutIfMatch => &[200, 201, 204],
        Operation::DeleteIfMatch => &[200, 202, 204],
        // Deleting what is not there is done as soon as it is asked for, whichever way a server says so.
        Operation::Delete => &[200, 202, 204, 404],
    }
}

/// The parser's complaint on one line, with the line of the file.
fn parser_error(file: &str, error: &toml::de::Error) -> String {
    let what = one_line(error.message());
    let line = error.span().map(|span| line_number(file, span.start));
    let place = line.map_or_else(String::new, |line| format!("line {line}: "));
    format!("{place}{what}; hint: docs/reference.md has the form")
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::proto::KV_PREFIX;

    #[test]
    fn every_row_can_be_spoken() {
        for dialect in DIALECTS.iter() {
            assert!(std::ptr::eq(dialect.name.parse::<&Dialect>().unwrap(), dialect));
            assert!(dialect.about.ends_with('.') && dialect.supports(Operation::Get), "{}", dialect.name);
        }
        assert_eq!(DIALECTS[0].name, "weir");
        let put = DIALECTS[0].form(Operation::Put).unwrap();
        assert_eq!(put.outcome_header.as_deref(), Some(kv::proto::OUTCOME));
        let own = Operation::ALL.into_iter().filter(|operation| *operation != Operation::Request);
        assert!(own.into_iter().all(|operation| DIALECTS[0].supports(operation)));
        assert!(!"fixed".parse::<&Dialect>().unwrap().names_key(Operation::Get));
        assert!("no one's".parse::<&Dialect>().is_err());
    }

    #[test]
    fn the_usual_dialect_has_the_routes_of_this_crate() {
        let key = format!("{KV_PREFIX}{{key}}");
        for operation in [Operation::Get, Operation::Put, Operation::Delete] {
            assert_eq!(DIALECTS[0].form(operation).unwrap().request.path, key);
        }
        for (operation, route) in [
            (Operation::ComputePrime, kv::proto::COMPUTE_PRIME),
            (Operation::ComputeHash, kv::proto::COMPUTE_HASH),
        ] {
            assert!(DIALECTS[0].form(operation).unwrap().request.path.starts_with(route));
        }
    }

    #[test]
    fn templates_fall_into_texts_and_gaps() {
        for (template, expected) in [
            ("/", vec![]),
            ("/GET/{key}.txt", vec![(5..10, Placeholder::Key)]),
            ("{value}", vec![(0..7, Placeholder::Value)]),
            ("{\"key\":\"{key_base64}\"}", vec![(8..20, Placeholder::KeyBase64)]),
            ("{}{ key}{key", vec![]),
            ("{{key}}", vec![(1..6, Placeholder::Key)]),
        ] {
            assert_eq!(gaps(template.as_bytes()).collect::<Vec<_>>(), expected, "{template}");
        }
    }

    #[test]
    fn a_file_that_is_no_dialect_is_refused_in_one_line() {
        for (text, expected) in [
            ("", "it has no operation; hint: add"),
            ("[get]", "line 1: missing field `path`; hint: docs"),
            ("[get]\npath = \"/\"\nverb = \"GET\"", "line 3: unknown field `verb`"),
            ("[scan]\npath = \"/\"", "unknown field `scan`"),
            ("outcome_header = \"X Y\"\n[get]\npath = \"/\"", "outcome_header is no legal header name"),
            ("[get]\npath = \"{key}\"", "[get] `{key}` is no path; hint: begin with /"),
            ("[get]\npath = \"/a b\"", "write %20 for a space"),
            (
                "[get]\npath = \"/{name}\"",
                "[get] unknown placeholder {name}; hint: expected one of: {key}, {key_base64}",
            ),
            ("[get]\npath = \"/{value}\"", "[get] unknown placeholder {value}"),
            ("[delete]\npath = \"/\"\nholds = \"{value}\"", "[delete] unknown placeholder {value}"),
            ("[compute_hash]\npath = \"/{hash}\"", "expected one of: {text}"),
            ("[get]\npath = \"/\"\nmethod = \"get\"", "write it in capital letters"),
            ("[get]\npath = \"/\"\nmethod = \"HEAD\"", "answers to HEAD have no body"),
            ("[get]\npath = \"/\"\nheaders = { \"X Y\" = \"1\" }", "`X Y` is no legal name of a header"),
            ("[get]\npath = \"/\"\nheaders = { Host = \"a\" }", "cannot set the header Host"),
            ("[get]\npath = \"/\"\nheaders = { X = \"a\\nb\" }", "has a control character"),
            ("[get]\npath = \"/\"\nok = []", "at least one status, from 200 to 599"),
            ("[get]\npath = \"/\"\nok = [100]", "at least one status, from 200 to 599"),
            ("[get]\npath = \"/\"\nabsent_if = \"\"", "has an empty absent_if"),
            ("[get]\npath = \"/\"\nok = [200]\nabsent = [200]", "[get] has 200 both in ok and in absent"),
            (
                "[get]\npath = \"/\"\nok = [200, 404]",
                "[get] has 404 both in ok and in absent, which is [404] by default",
            ),
            ("[get]\npath = \"/\"\nabsent_if = \"no {key}\"", "same for every key"),
            ("[get]\npath = \"/\"\nabsent_unless = \"{value}\"", "same for every key"),
            ("[put]\npath = \"/\"\nabsent = [404]", "[put] has absent or failed, "),
            ("[get]\npath = \"/\"\nbegins = \"a\"\nholds = \"b\"", "both begins and holds"),
            ("[put]\npath = \"/\"\nfailed = [412]", "which only reads and conditional writes use"),
            ("[put]\npath = \"/\"\nversion_header = \"ETag\"", "which only reads use"),
            ("[put]\npath = \"/{version}\"", "[put] unknown placeholder {version}"),
        ] {
            let why = Dialect::parse("a.toml", text).unwrap_err();
            assert!(why.contains(expected) && why.contains(';') && !why.contains('\n'), "{text}: {why}");
        }
    }
}
