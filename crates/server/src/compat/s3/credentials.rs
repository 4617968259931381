//! The file of S3 credentials: the name of the bucket, and who may do what. It has secret keys: a signature cannot be checked
//! without them.

use crate::reload::Reloadable;
use crate::tokens::Verb;
use kv::{Error, line_number};
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the bucket is called, unless the file says it.
const BUCKET_DEFAULT: &str = "weir";

/// The credentials of the S3 API, read again when their file changes.
#[derive(Debug)]
pub struct S3Credentials(pub(crate) Reloadable<Table>);

/// What the file says.
pub(crate) struct Table {
    pub(super) bucket: String,
    /// By access key.
    credentials: HashMap<String, Arc<Credential>>,
}

/// Of one client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Credential {
    access_key: String,
    pub(super) secret_key: String,
    pub(super) verbs: Vec<Verb>,
    /// What its keys begin with.
    pub(super) prefix: String,
}

/// Never the secret.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({})", self.access_key)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    bucket: Option<String>,
    #[serde(default)]
    credential: Vec<Credential>,
}

impl S3Credentials {
    /// Reads the file.
    pub fn new(file: &Path) -> Result<S3Credentials, Error> {
        Reloadable::new("s3-credentials", vec![file.to_owned()], read).map(S3Credentials)
    }
}

impl Table {
    /// Nobody's.
    #[cfg(feature = "test-support")]
    pub(super) fn empty() -> Table {
        Table { bucket: String::new(), credentials: HashMap::new() }
    }

    #[cfg(test)]
    pub(super) fn of(text: &str) -> Table {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("s3.toml");
        std::fs::write(&file, text).unwrap();
        read(&[file], None).unwrap()
    }

    pub(super) fn find(&self, access_key: &str) -> Option<&Arc<Credential>> {
        self.credentials.get(access_key)
    }

    /// What the file says now of a credential that was read from it before; nothing if it is gone, or has another secret.
    pub(super) fn current(&self, before: &Credential) -> Option<&Arc<Credential>> {
        self.find(&before.access_key).filter(|now| now.secret_key == before.secret_key)
    }
}

fn read(files: &[PathBuf], _before: Option<&Table>) -> Result<Table, Error> {
    const HINT: &str = "docs/reference.md has an example of the file";
    let [file] = files else { unreachable!("credentials are in one file") };
    let shown = file.display();
    let wrong = |what: String| Error::input(format_args!("{shown}{what}")).hint(HINT);
    let text = std::fs::read_to_string(file)
        .map_err(|error| Error::input(format_args!("cannot read {shown}: {error}")).hint(HINT))?;
    // What the parser says may quote a secret.
    let File { bucket, credential } = toml::from_str(&text).map_err(|error| {
        let line = line_number(&text, error.span().map_or(0, |span| span.start));
        let fields = "bucket, and in each [[credential]] access_key, secret_key, verbs and prefix";
        wrong(format!(", line {line}: a field is unknown, missing or of another type; the file has {fields}"))
    })?;
    let bucket = bucket.unwrap_or_else(|| BUCKET_DEFAULT.to_owned());
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(is_letter) {
        let what = "the name of a bucket has 3 to 63 lower case letters, digits, dots and hyphens";
        return Err(wrong(format!(": bucket {bucket:?}: {what}")));
    }
    if credential.is_empty() {
        return Err(wrong(" has no [[credential]]".to_owned()));
    }
    let mut credentials = HashMap::new();
    for credential in credential {
        let name = credential.access_key.clone();
        // A scope is written with slashes, a list of parameters with commas.
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
        if !is_name || name.contains('/') {
            let what = "an access_key has graphic ASCII letters, but no comma and no slash";
            return Err(wrong(format!(": access_key {name:?}: {what}")));
        }
        if credential.secret_key.len() < 16 {
            return Err(wrong(format!(": the secret_key of {name:?} has less than 16 letters")));
        }
        if credentials.insert(name.clone(), Arc::new(credential)).is_some() {
            return Err(wrong(format!(": access_key {name:?} is given twice")));
        }
    }
    Ok(Table { bucket, credentials })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    /// Reads a file of this text: the bucket, or the failure, which never has the secret.
    fn check(text: &str, expected: &str) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("s3.toml");
        std::fs::write(&file, text).unwrap();
        let got = match read(&[file], None) {
            Ok(table) => table.bucket,
            Err(error) => error.to_string(),
        };
        assert!(got.contains(expected) && !got.contains(SECRET), "{text}: {got}");
    }

    #[test]
    fn a_file_is_understood_or_refused_without_its_secrets() {
        let entry = format!(
            "[[credential]]\naccess_key = \"a\"\nsecret_key = \"{SECRET}\"\nverbs = [\"read\"]\nprefix = \"\"\n"
        );
        check(&entry, "weir");
        check(&format!("bucket = \"my.assets-1\"\n{entry}"), "my.assets-1");
        check(&format!("bucket = \"Assets\"\n{entry}"), "bucket \"Assets\"");
        check("", "has no [[credential]]");
        check(&entry.replace("prefix = \"\"\n", ""), "line 1: a field is unknown, missing");
        check(&entry.replace("[\"read\"]", &format!("\"{SECRET}\"")), "line 4: a field");
        check(&entry.replace(SECRET, "short"), "the secret_key of \"a\" has less than 16");
        check(&entry.replace("\"a\"", "\"a/b\""), "access_key \"a/b\"");
        check(&(entry.clone() + &entry), "access_key \"a\" is given twice");
    }
}
