//! Where the password of a database comes from, when it does not stand in its URL.

use super::{Error, Kind};
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A password, or the file that has it. A file is read for every connection: so a password can be changed while the server runs.
pub(super) enum Password {
    None,
    Given(String),
    /// The file's whole text, without the end of its line.
    File(PathBuf),
    Passfile(Passfile),
}

/// A file of libpq's: a line for each server, `HOST:PORT:DATABASE:USER:PASSWORD`.
pub(super) struct Passfile {
    pub(super) path: PathBuf,
    /// What the line has to be for: host, port, database, user.
    pub(super) wanted: [String; 4],
    pub(super) has_warned: AtomicBool,
}

impl Password {
    /// The password that the URL has, or whose file its parameter `password-file` names.
    pub(super) fn of_url(given: Option<String>, file: Option<String>) -> Result<Option<Password>, String> {
        match (given, file) {
            (Some(_), Some(_)) => Err("it has a password and a password-file; leave one of them out".into()),
            (Some(password), None) => Ok(Some(Password::Given(password))),
            (None, Some(path)) => Ok(Some(Password::File(path.into()))),
            (None, None) => Ok(None),
        }
    }

    /// That of an environment variable.
    pub(super) fn of_variable(name: &str) -> Option<Password> {
        std::env::var(name).ok().filter(|password| !password.is_empty()).map(Password::Given)
    }

    /// The password as it is now, if there is one.
    pub(super) fn read(&self) -> Result<Option<String>, Error> {
        match self {
            Password::None => Ok(None),
            Password::Given(password) => Ok(Some(password.clone())),
            Password::File(path) => match fs::read_to_string(path) {
                Ok(text) => {
                    Ok(Some(text.strip_suffix('\n').unwrap_or(&text).trim_end_matches('\r').to_owned()))
                }
                Err(why) => {
                    let message = format!("cannot read password-file={}: {why}", path.display());
                    Err(Error::new(Kind::Config, message))
                }
            },
            Password::Passfile(passfile) => Ok(passfile.find()),
        }
    }
}

impl Passfile {
    /// As libpq: a file that others may read is ignored, with a warning.
    fn find(&self) -> Option<String> {
        let meta = fs::metadata(&self.path).ok()?;
        if let Some(why) = why_ignored(&meta) {
            if !self.has_warned.swap(true, Relaxed) {
                log::warn!(
                    "the password file {} is ignored: {why}; run chmod 0600 on it",
                    self.path.display()
                );
            }
            return None;
        }
        password_in(&fs::read_to_string(&self.path).ok()?, &self.wanted)
    }
}

fn why_ignored(meta: &Metadata) -> Option<&'static str> {
    match () {
        _ if !meta.is_file() => Some("it is not a plain file"),
        _ if meta.mode() & 0o077 != 0 => Some("others than its owner may use it"),
        _ => None,
    }
}

/// libpq's own file of a user.
pub(super) fn default_passfile() -> Option<PathBuf> {
    Some(std::env::home_dir()?.join(".pgpass"))
}

/// The password of the first line that is for `wanted`.
fn password_in(text: &str, wanted: &[String; 4]) -> Option<String> {
    text.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let mut is_escaped = false;
        let mut fields = line.split(|character| {
            let ends = character == ':' && !is_escaped;
            is_escaped = character == '\\' && !is_escaped;
            ends
        });
        for wanted in wanted {
            let field = fields.next()?;
            if field != "*" && without_escapes(field) != *wanted {
                return None;
            }
        }
        // Some write more fields behind it, for themselves.
        Some(without_escapes(fields.next()?)).filter(|password| !password.is_empty())
    })
}

fn without_escapes(text: &str) -> String {
    let mut is_escaped = false;
    let is_shown = |character: &char| {
        is_escaped = *character == '\\' && !is_escaped;
        !is_escaped
    };
    text.trim_end_matches('\r').chars().filter(is_shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_line_of_a_passfile_is_for_a_server() {
        let text = "# db:5432:shop:me:comment\n\
            db:5433:shop:me:other port\n\
            d\\:b:*:*:*:col\\:on\\\\\n\
            db:*:shop:you:you\r\n\
            *:5432:shop:me:any host\n\
            *:*:*:nobody:\n\
            *:*:*:*:rest\n";
        for (wanted, password) in [
            (["db", "5433", "shop", "me"], "other port"),
            (["d:b", "1", "x", "y"], "col:on\\"),
            (["db", "1", "shop", "you"], "you"),
            (["x", "5432", "shop", "me"], "any host"),
            (["x", "5432", "shop", "nobody"], "rest"),
            (["*", "5432", "x", "me"], "rest"),
        ] {
            assert_eq!(password_in(text, &wanted.map(String::from)).as_deref(), Some(password), "{wanted:?}");
        }
        assert_eq!(password_in("a:b:c\n:\n\n", &["a", "b", "c", "d"].map(String::from)), None);
    }

    #[test]
    fn a_passfile_that_others_may_read_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pgpass");
        fs::write(&path, "*:*:*:*:secret\n").unwrap();
        let wanted = ["h", "1", "d", "u"].map(String::from);
        let password =
            Password::Passfile(Passfile { path: path.clone(), wanted, has_warned: AtomicBool::new(false) });
        for (mode, found) in [(0o600, Some("secret")), (0o640, None), (0o604, None), (0o400, Some("secret"))]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(password.read().unwrap().as_deref(), found, "{mode:o}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(password.read().unwrap(), None);
    }

    #[test]
    fn a_password_file_is_read_each_time_and_may_end_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        let password = Password::File(path.clone());
        let missing = password.read().unwrap_err();
        assert!(missing.to_string().starts_with("cannot read password-file="), "{missing}");
        for (text, found) in
            [("secret", "secret"), ("se cret\n", "se cret"), ("x\r\n", "x"), ("x \n\n", "x \n")]
        {
            fs::write(&path, text).unwrap();
            assert_eq!(password.read().unwrap().as_deref(), Some(found));
        }
    }
}
