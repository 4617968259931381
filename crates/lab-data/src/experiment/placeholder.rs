//! Placeholders in command lines and files of a target: `{port}`, `{dir}`, `{port:redis}`.
//!
//! A placeholder is a word in braces and nothing else: the braces of JSON and of other configuration are left alone.
//! One in doubled braces, `{{port}}`, is the text `{port}`, for servers with placeholders of their own.

use regex::{Captures, Regex};
use std::sync::LazyLock;

/// What may stand in a target's files and commands, and what it stands for.
pub const PLACEHOLDERS: &[(&str, &str)] = &[
    ("dir", "the target's own directory, made for one repetition on the disk of the results"),
    ("port", "the free port of 127.0.0.1 that the load goes to"),
    ("port:NAME", "further free ports, each the same wherever its name stands"),
    ("cores", "how many cores the part has; in files those of the server"),
    ("weir_dir", "the directory of the weir binary"),
];

/// What stands before the name of a further port.
pub const PORT: &str = "port:";

/// A word in doubled braces, or one in braces.
static WORD: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\{\{([a-z][a-z0-9:_-]*)\}\}|\{([a-z][a-z0-9:_-]*)\}").expect("a constant that parses")
});

/// Replaces every placeholder of `text` by what `value` says of its name; the error names one it knows nothing of.
pub fn fill(text: &str, mut value: impl FnMut(&str) -> Option<String>) -> Result<String, String> {
    let mut unknown = None;
    let filled = WORD.replace_all(text, |found: &Captures| match found.get(1) {
        Some(doubled) => format!("{{{}}}", doubled.as_str()),
        None => value(&found[2]).unwrap_or_else(|| {
            unknown.get_or_insert_with(|| found[2].to_owned());
            String::new()
        }),
    });
    unknown.map_or(Ok(filled.into_owned()), Err)
}

/// Whether `name` is a placeholder's.
pub(super) fn is_known(name: &str) -> bool {
    let further = name.strip_prefix(PORT).is_some_and(|port| !port.is_empty());
    further || PLACEHOLDERS.iter().any(|(known, _)| *known == name && !known.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_in_braces_is_a_placeholder() {
        let value = |name: &str| is_known(name).then(|| format!("<{name}>"));
        for (text, filled) in [
            ("--port {port}", Ok("--port <port>")),
            ("{dir}/{port:redis}{cores}", Ok("<dir>/<port:redis><cores>")),
            ("{\"port\": {port}}", Ok("{\"port\": <port>}")),
            ("events { }\nhttp {\n listen {port};\n}", Ok("events { }\nhttp {\n listen <port>;\n}")),
            ("a{2,3} {} { {dir} }", Ok("a{2,3} {} { <dir> }")),
            ("{{dir}} {{key}}{port}", Ok("{dir} {key}<port>")),
            ("{{dir} {{ }} {{{{dir}}}}", Ok("{<dir> {{ }} {{{dir}}}")),
            ("{prot}", Err("prot")),
            ("{port:}", Err("port:")),
            ("open {", Ok("open {")),
        ] {
            let filled = filled.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(fill(text, value), filled, "{text}");
        }
    }

    #[test]
    fn every_placeholder_of_the_table_is_known() {
        for (name, about) in PLACEHOLDERS {
            assert!(is_known(&name.replace("NAME", "redis")) && !about.is_empty(), "{name}");
        }
    }
}
