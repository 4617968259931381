//! Queries, form bodies and paths of others' interfaces, decoded.
//!
//! Pure. The keys of the plain interface are decoded in `proto`, which is stricter: there a `%` that begins no escape is
//! refused; here it stands for itself, as the library behind those interfaces has it.

use percent_encoding::percent_decode;

/// Names and values in their order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Params(Vec<(Vec<u8>, Vec<u8>)>);

impl Params {
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
    use kv::proto::is_well_encoded;

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
