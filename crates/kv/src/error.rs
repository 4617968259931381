//! The error that users read: what failed and why, and what to do about it.

use std::fmt::{self, Display};

/// Why something was not done. Shown on one line: `cannot read f.toml: permission denied; hint: check its rights`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    what: String,
    hint: String,
    is_input: bool,
}

impl Error {
    /// Something that did not work although it was asked for rightly. `what` names the thing and the cause.
    pub fn new(what: impl Display) -> Error {
        Error { what: what.to_string(), hint: String::new(), is_input: false }
    }

    /// A mistake of the caller: in a flag, a file, a URL, the environment.
    pub fn input(what: impl Display) -> Error {
        Error { is_input: true, ..Error::new(what) }
    }

    /// Says what to do about it.
    pub fn hint(self, hint: impl Display) -> Error {
        Error { hint: hint.to_string(), ..self }
    }

    /// Says where it is wrong: a file, a target, a flag.
    pub fn at(self, place: impl Display) -> Error {
        Error { what: format!("{place}: {}", self.what), ..self }
    }

    /// Whether it is the caller's mistake.
    pub fn is_input(&self) -> bool {
        self.is_input
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
