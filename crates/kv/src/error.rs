//! The error that users read: what failed and why, and what to do about it.

use std::fmt::{self, Display};

/// Why something was not done. Shown on one line: `cannot read f.toml: permission denied; hint: check its rights`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    what: String,
    hint: String,
    exit_code: u8,
}

impl Error {
    /// Something that did not work although it was asked for rightly. `what` names the thing and the cause.
    pub fn new(what: impl Display) -> Error {
        // Names that it quotes may hold line ends.
        Error { what: what.to_string().replace(['\n', '\r'], " "), hint: String::new(), exit_code: 1 }
    }

    /// A mistake of the caller: in a flag, a file, a URL, the environment.
    pub fn input(what: impl Display) -> Error {
        Error { exit_code: 2, ..Error::new(what) }
    }

    /// Something that was measured and does not meet what was demanded of it with a flag like `--fail-if-slower`.
    pub fn unmet(what: impl Display) -> Error {
        Error { exit_code: 3, ..Error::new(what) }
    }

    /// Says what to do about it.
    pub fn hint(self, hint: impl Display) -> Error {
        Error { hint: hint.to_string(), ..self }
    }

    /// Says where it is wrong: a file, a target, a flag.
    pub fn at(self, place: impl Display) -> Error {
        Error { what: format!("{place}: {}", self.what).replace(['\n', '\r'], " "), ..self }
    }

    /// Whether it is the caller's mistake.
    pub fn is_input(&self) -> bool {
        self.exit_code == 2
    }

    /// What a command ends with that failed for this reason: 1 it did not work, 2 wrong input, 3 a demand is not met.
    pub fn exit_code(&self) -> u8 {
        self.exit_code
    }
}

impl Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str(&self.what)?;
        if !self.hint.is_empty() {
            write!(out, "; hint: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Where it becomes the cause of something else.
impl From<Error> for String {
    fn from(error: Error) -> String {
        error.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_stays_on_the_line() {
        let error = Error::input("no name: `a\nb`").at("file\r\nof").hint("rename it");
        assert_eq!(error.to_string(), "file  of: no name: `a b`; hint: rename it");
    }
}
