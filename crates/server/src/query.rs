//! Queries, form bodies and paths, decoded.
//!
//! Pure. In other interfaces a `%` that begins no escape stands for itself, and a parameter may come twice, as the library behind
//! those interfaces has it. The plain interface refuses both; its keys are decoded in `proto`.

use super::error::Failure;
use kv::proto::is_well_encoded;
use percent_encoding::percent_decode;

/// Names and values in their order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Params(Vec<(Vec<u8>, Vec<u8>)>);

impl Params {
    /// Those of a query of the plain interface.
    pub(super) fn of(query: &[u8]) -> Result<Params, Failure> {
        if !is_well_encoded(query) {
            let what = "the query has a % that begins no escape; write %25 for a %";
            return Err(Failure::new(400, "bad_query", what));
        }
        let mut params = Params::default();
        params.add(query);
        Ok(params)
    }

    /// The same where each is a known one, and there once.
    pub(super) fn once(known: &[&str], query: &[u8]) -> Result<Params, Failure> {
        let bad = |what: String| Failure::new(400, "bad_query", what);
        let params = Params::of(query)?;
        for (at, (name, _)) in params.0.iter().enumerate() {
            let shown = name.escape_ascii();
            if !known.iter().any(|known| known.as_bytes() == name) {
                return Err(bad(format!("{shown} is not known; expected one of: {}", known.join(", "))));
            }
            if params.0[..at].iter().any(|(other, _)| other == name) {
                return Err(bad(format!("the query has {shown} twice; give it once")));
            }
        }
        Ok(params)
    }

    /// Adds the pairs of `encoded`: `a=1&b=2`. A name without `=` has an empty value; an empty name is dropped.
    pub(super) fn add(&mut self, encoded: &[u8]) {
        for pair in encoded.split(|&byte| byte == b'&') {
            let name_end = memchr::memchr(b'=', pair).unwrap_or(pair.len());
            if name_end > 0 {
                let value = pair.get(name_end + 1..).unwrap_or_default();
                self.0.push((decode(&pair[..name_end], true), decode(value, true)));
            }
        }
    }

    /// The first value called `name`.
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| known == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    /// The value called `name`, if there is nothing else.
    pub(super) fn only(self, name: &str) -> Option<Vec<u8>> {
        match <[_; 1]>::try_from(self.0) {
            Ok([(known, value)]) if known == name.as_bytes() => Some(value),
            _ => None,
        }
    }
}

/// Decodes percent-escapes. A `+` is a blank only in queries and forms.
pub(super) fn decode(encoded: &[u8], plus_is_blank: bool) -> Vec<u8> {
    let blank = |byte: &u8| if *byte == b'+' && plus_is_blank { b' ' } else { *byte };
    percent_decode(&encoded.iter().map(blank).collect::<Vec<u8>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_other_percents_stay() {
        for (encoded, in_path, in_query) in [
            ("a+b%20c", "a+b c", "a b c"),
            ("%2B%2541", "+%41", "+%41"),
            ("%zz%4%", "%zz%4%", "%zz%4%"),
            ("%u0041%%41", "%u0041%A", "%u0041%A"),
            ("", "", ""),
        ] {
            assert_eq!(decode(encoded.as_bytes(), false), in_path.as_bytes(), "{encoded}");
            assert_eq!(decode(encoded.as_bytes(), true), in_query.as_bytes(), "{encoded}");
            assert_eq!(is_well_encoded(encoded.as_bytes()), !in_query.contains('%') || encoded == "%2B%2541");
        }
    }

    #[test]
    fn of_a_name_given_twice_the_first_counts() {
        let mut params = Params::default();
        params.add(b"a=1+2%2B&b=%zz&c&=v&d==e&a=2&f=&&");
        for (name, value) in [
            ("a", Some("1 2+")),
            ("b", Some("%zz")),
            ("c", Some("")),
            ("d", Some("=e")),
            ("f", Some("")),
            ("g", None),
        ] {
            assert_eq!(params.get(name), value.map(str::as_bytes), "{name}");
        }
        assert_eq!(params.only("a"), None, "there are others");
    }
}
