//! Variables in requests: `{{uuid}}`, `{{int:1..1000}}`, and `{{column}}` of a file of values.
//!
//! What a variable stands for follows from the seed of the run and the number of the request, so that the same seed gives the same
//! requests.

use super::draw::below;
use super::piece::{Placeholder, names};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use regex::bytes::Regex;
use std::ops::Range;
use std::sync::LazyLock;

/// How long a UUID is as text.
pub(super) const UUID_BYTES: usize = 36;

/// What looks like a variable. Other braces are text.
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?-u)\{\{ *([\w:.-](?:[\w:. -]*[\w:.-])?) *\}\}").expect("a constant that parses")
});

/// `text` without its variables, whose names may have blanks.
pub(super) fn without(text: &str) -> String {
    String::from_utf8_lossy(&VARIABLE.replace_all(text.as_bytes(), &b""[..])).into_owned()
}

/// Whether `text` has any.
pub(super) fn are_in(text: &str) -> bool {
    VARIABLE.is_match(text.as_bytes())
}

/// The variables of one request.
pub(super) struct Variables<'c> {
    columns: &'c [String],
    /// Those so far that are drawn.
    drawn: u64,
}

impl<'c> Variables<'c> {
    pub(super) fn new(columns: &'c [String]) -> Variables<'c> {
        Variables { columns, drawn: 0 }
    }

    /// Where those of its next part are.
    pub(super) fn gaps(&mut self, text: &[u8]) -> Vec<(Range<usize>, Placeholder)> {
        // The request was checked.
        let known =
            names(&VARIABLE, text).filter_map(|(gap, name)| Some((gap, self.placeholder(name).ok()?)));
        known.collect()
    }

    fn placeholder(&mut self, name: &str) -> Result<Placeholder, String> {
        if let Some(column) = self.columns.iter().position(|column| column == name) {
            return Ok(Placeholder::Column(column));
        }
        self.drawn += 1;
        if name == "uuid" {
            return Ok(Placeholder::Uuid(self.drawn));
        }
        let range = name.strip_prefix("int:").and_then(|range| range.split_once(".."));
        let range = range.and_then(|(low, high)| Some((low.parse().ok()?, high.parse().ok()?)));
        match range {
            Some((low, high)) if low <= high => Ok(Placeholder::Int(low, high, self.drawn)),
            Some((low, high)) => Err(format!(
                "{{{{{name}}}}}: {low} is above {high}; hint: write the smaller number first: {{{{int:{high}..{low}}}}}"
            )),
            _ => Err(unknown(name, self.columns)),
        }
    }
}

/// Whether all variables of a part are known. A column whose name no variable can have may be in the file, if it is not used.
pub(super) fn check(text: &[u8], columns: &[String]) -> Result<(), String> {
    let is_used =
        |column: &&String| memchr::memmem::find(text, format!("{{{{{column}}}}}").as_bytes()).is_some();
    if let Some(column) = columns.iter().filter(|column| !is_name(column)).find(is_used) {
        return Err(format!(
            "no variable can be called `{}`; hint: name the column with letters of ASCII, digits, blanks and _ - : .",
            column.escape_debug()
        ));
    }
    let mut variables = Variables::new(columns);
    names(&VARIABLE, text).try_for_each(|(_, name)| variables.placeholder(name).map(drop))
}

fn unknown(name: &str, columns: &[String]) -> String {
    let columns: String = columns.iter().map(|column| format!(", {{{{{column}}}}}")).collect();
    let hint = match columns.as_str() {
        "" => "expected {{uuid}}, {{int:1..1000}}, or a column of the file of --values".to_owned(),
        columns => format!("expected one of: {{{{uuid}}}}, {{{{int:1..1000}}}}{columns}"),
    };
    format!("unknown variable {{{{{name}}}}}; hint: {hint}")
}

/// Whether a variable can be called so.
fn is_name(text: &str) -> bool {
    text.trim() == text && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-:. ".contains(&byte))
}

/// The columns whose values stand in a part.
pub(super) fn columns_in(text: &[u8], columns: &[String]) -> Vec<usize> {
    let place = |name: &str| columns.iter().position(|column| column == name);
    names(&VARIABLE, text).filter_map(|(_, name)| place(name)).collect()
}

/// What a drawn variable of a request is drawn from.
fn random(seed: u64, number: u64, drawn: u64) -> Xoshiro256PlusPlus {
    use super::verify::mix;
    Xoshiro256PlusPlus::seed_from_u64(mix(mix(seed ^ mix(number)) ^ drawn))
}

/// The number that `{{int:low..high}}` stands for in request `number`.
pub(super) fn int(seed: u64, number: u64, (low, high, drawn): (u64, u64, u64)) -> u64 {
    let mut random = random(seed, number, drawn);
    match (high - low).checked_add(1) {
        Some(count) => low + below(&mut random, count),
        None => random.next_u64(),
    }
}

/// Appends the UUID (version 4) of request `number`.
pub(super) fn write_uuid(out: &mut Vec<u8>, seed: u64, number: u64, drawn: u64) {
    let mut random = random(seed, number, drawn);
    let [high, low] = [random.next_u64(), random.next_u64()];
    let (high, low) = (high & !0xf000 | 0x4000, low & !(3 << 62) | 1 << 63);
    let digits = (u128::from(high) << 64) | u128::from(low);
    for place in 0..32u32 {
        if matches!(place, 8 | 12 | 16 | 20) {
            out.push(b'-');
        }
        out.push(b"0123456789abcdef"[(digits >> (124 - 4 * place)) as usize & 15]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, columns: &[&str]) -> String {
        let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
        let mut shown = String::new();
        let mut done = 0;
        for (gap, placeholder) in Variables::new(&columns).gaps(text.as_bytes()) {
            shown += &format!("{}{:?} ", &text[done..gap.start], Some(placeholder));
            done = gap.end;
        }
        let rest = &text[done..];
        if rest.is_empty() { shown } else { format!("{shown}{rest}None ") }
    }

    #[test]
    fn variables_are_words_in_two_braces_and_all_else_is_text() {
        for (text, expected) in [
            ("/a", "/aNone "),
            ("/{{id}}/{{ uuid }}", "/Some(Column(1)) /Some(Uuid(1)) "),
            ("{{int:1..9}}{{uuid}}x", "Some(Int(1, 9, 1)) Some(Uuid(2)) xNone "),
            ("{\"a\":{\"b\":{}}}", "{\"a\":{\"b\":{}}}None "),
            ("{{{id}}}", "{Some(Column(1)) }None "),
        ] {
            assert_eq!(shown(text, &["name", "id"]), expected, "{text}");
            assert!(check(text.as_bytes(), &["id".to_owned()]).is_ok(), "{text}");
        }
        for (wrong, why) in [
            ("{{idd}}", "unknown variable {{idd}}; hint: expected one of: {{uuid}}, {{int:1..1000}}, {{id}}"),
            (
                "{{int:9..1}}",
                "{{int:9..1}}: 9 is above 1; hint: write the smaller number first: {{int:1..9}}",
            ),
            ("{{int:a}}", "unknown variable {{int:a}}"),
        ] {
            assert!(check(wrong.as_bytes(), &["id".to_owned()]).unwrap_err().contains(why), "{wrong}");
        }
        assert!(check(b"{{id}}", &[]).unwrap_err().contains("--values"));
    }

    #[test]
    fn a_column_that_no_variable_can_name_is_refused_where_it_is_used() {
        for (column, shown) in [("straße", "straße"), ("a\nb", "a\\nb"), ("a{b", "a{b"), (" a", " a")] {
            let columns = ["id".to_owned(), column.to_owned()];
            assert_eq!(check(b"{{id}}", &columns), Ok(()), "{column}");
            let why = check(format!("/{{{{{column}}}}}").as_bytes(), &columns).unwrap_err();
            assert!(why.starts_with(&format!("no variable can be called `{shown}`; hint: ")), "{why}");
        }
    }

    #[test]
    fn drawn_values_are_those_of_the_seed_and_the_request() {
        let uuid = |seed, number, drawn| {
            let mut out = Vec::new();
            write_uuid(&mut out, seed, number, drawn);
            String::from_utf8(out).unwrap()
        };
        let one = uuid(1, 2, 3);
        assert_eq!((one.len(), one.as_bytes()[14], uuid(1, 2, 3) == one), (UUID_BYTES, b'4', true), "{one}");
        assert!(b"89ab".contains(&one.as_bytes()[19]), "{one}");
        let others = [uuid(2, 2, 3), uuid(1, 3, 3), uuid(1, 2, 4)];
        assert!(others.iter().all(|other| *other != one), "{one} {others:?}");
        let ints: Vec<u64> = (0..10_000).map(|number| int(7, number, (1, 3, 1))).collect();
        for value in 1..=3 {
            let count = ints.iter().filter(|int| **int == value).count();
            // Four standard deviations.
            assert!((3144..3523).contains(&count), "{value}: {count}");
        }
        assert_eq!(int(7, 1, (5, 5, 1)), 5);
    }
}
