//! The URL of a database: user, password, place, name and parameters.
//!
//! What is wrong with one is told without any part of it that may be a password: an unescaped character moves the borders between
//! the parts.

use kv::proto::is_well_encoded;
use percent_encoding::percent_decode_str;

/// `SCHEME://[USER[:PASSWORD]@][HOST[:PORT][,…]][/DATABASE][?NAME=VALUE[&…]]`, decoded. Never shown: it has the password.
#[cfg_attr(test, derive(Debug, PartialEq))]
pub struct StoreUrl {
    /// Who logs in.
    pub user: Option<String>,
    /// And with what.
    pub password: Option<String>,
    /// At least one.
    pub places: Vec<Place>,
    /// What stands behind the places.
    pub database: Option<String>,
    parameters: Vec<(String, String)>,
    /// An `@` in the parameters may be the one before the host.
    is_doubtful: bool,
}

/// Where a server is.
#[derive(Clone, Default)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub struct Place {
    /// Without the brackets of an IPv6 address; the directory of a socket begins with `/`.
    pub host: Option<String>,
    /// Where it is not the usual one.
    pub port: Option<u16>,
}

/// Each character that ends a part of a URL, and how it is written in a password.
const ESCAPES: [(char, &str); 5] = [('@', "%40"), ('/', "%2F"), ('?', "%3F"), ('#', "%23"), (':', "%3A")];

fn unescaped(character: char) -> String {
    let escape = ESCAPES.iter().find(|(known, _)| *known == character).map_or("%25", |(_, escape)| escape);
    format!("the password (or the user) has an unescaped `{character}`: write {escape} in its place")
}

impl StoreUrl {
    /// Error: why `url` makes no sense.
    pub fn parse(url: &str) -> Result<StoreUrl, String> {
        let (_, rest) = url.split_once("://").ok_or("it has no `://`")?;
        if rest.contains('#') {
            return Err(unescaped('#'));
        }
        let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
        let (login, place) = match authority.split_once('@') {
            Some((_, place)) if place.contains('@') => return Err(unescaped('@')),
            Some((login, place)) => (Some(login), place),
            None => (None, authority),
        };
        if path.contains('@') {
            return Err(unescaped('/'));
        }
        let has_pair = |part: &str| part.split_once('=').is_some_and(|(name, _)| !name.contains('@'));
        if query.contains('@') && !query.split('&').all(has_pair) {
            return Err(unescaped('?'));
        }
        let (user, password) = match login.map(|login| login.split_once(':').unwrap_or((login, ""))) {
            None => (None, None),
            Some((user, "")) => (Some(decoded(user)?), None),
            Some((user, password)) => (Some(decoded(user)?), Some(decoded(password)?)),
        };
        let places = place.split(',').map(place_of).collect::<Result<Vec<_>, _>>()?;
        if places.len() > 1 && places.iter().any(|place| place.host.is_none()) {
            return Err("one of its hosts has no name; write HOST:PORT,HOST:PORT".into());
        }
        let mut parameters = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(
                "a parameter has no `=`; write NAME=VALUE, and a `?` or `&` that belongs to a value as %3F or %26",
            )?;
            let (name, value) = (decoded(name)?, decoded(value)?);
            if parameters.iter().any(|(known, _)| *known == name) {
                return Err("a parameter is given twice".into());
            }
            parameters.push((name, value));
        }
        let database = decoded(path.strip_prefix('/').unwrap_or_default())?;
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(StoreUrl {
            user: filled(user),
            password,
            places,
            database: filled(Some(database)),
            parameters,
            is_doubtful: query.contains('@'),
        })
    }

    /// The one place of a server that has no others to take over.
    pub(super) fn only_place(&mut self) -> Result<Place, String> {
        match &mut self.places[..] {
            [place] => Ok(std::mem::take(place)),
            _ => Err("it names several hosts; name the primary alone".into()),
        }
    }

    /// The value of a parameter, which is no longer in it.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.parameters.iter().position(|(known, _)| known == name)?;
        Some(self.parameters.swap_remove(at).1)
    }

    /// Says that all parameters were taken; else which one is not among `known`.
    pub fn finish(&self, known: &[&str]) -> Result<(), String> {
        let Some((name, _)) = self.parameters.first() else { return Ok(()) };
        if self.is_doubtful {
            return Err(format!("it has an unknown parameter, or {}", unescaped('?')));
        }
        Err(format!("the parameter `{name}` is not known; known are {}", known.join(", ")))
    }
}

fn place_of(place: &str) -> Result<Place, String> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("the `[` of an IPv6 address has no `]`")?;
            let port = port.strip_prefix(':').or(port.is_empty().then_some(""));
            (host, port.ok_or("behind the `]` of an IPv6 address stands neither `:` nor `/`")?)
        }
        None => place.split_once(':').unwrap_or((place, "")),
    };
    let number = match port {
        "" => None,
        port => Some(port.parse().map_err(|_| {
            // This may be the password.
            let escapes: Vec<String> = ESCAPES.iter().map(|(of, escape)| format!("`{of}` {escape}")).collect();
            let escapes = escapes.join(", ");
            format!("what stands where the port would is none; behind a password comes @HOST, and within it is written {escapes}")
        })?),
    };
    let host = decoded(host)?;
    Ok(Place { host: Some(host).filter(|host| !host.is_empty()), port: number })
}

/// The text with its escapes undone.
fn decoded(text: &str) -> Result<String, String> {
    if !is_well_encoded(text.as_bytes()) {
        return Err("a `%` in it is no escape: write %25 in its place".into());
    }
    let text = percent_decode_str(text).decode_utf8();
    text.map(String::from).map_err(|_| "its escapes are not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> StoreUrl {
        StoreUrl::parse(url).unwrap_or_else(|why| panic!("{url}: {why}"))
    }

    #[test]
    fn a_url_has_parts() {
        let url = parsed("postgres://a%40b:p%3A%2f%40:w@[::1]:5433/d%20b?sslmode=require&x=%2Fa?b");
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("a@b"), Some("p:/@:w")));
        let place = |host: &str, port| Place { host: Some(host.to_owned()), port };
        assert_eq!(
            (&url.places[..], url.database.as_deref()),
            (&[place("::1", Some(5433))][..], Some("d b"))
        );
        assert_eq!(url.parameters[1], ("x".into(), "/a?b".into()));
        for (url, host, port, database) in [
            ("mysql://u@h/d", Some("h"), None, Some("d")),
            ("mysql://u@h:1", Some("h"), Some(1), None),
            ("postgres:///d?host=a", None, None, Some("d")),
            ("postgres://%2Frun%2Fx:2/", Some("/run/x"), Some(2), None),
            ("postgres://h?user=a@b", Some("h"), None, None),
        ] {
            let mut found = parsed(url);
            let only = found.only_place().unwrap();
            assert_eq!(
                (only.host.as_deref(), only.port, found.database.as_deref()),
                (host, port, database),
                "{url}"
            );
        }
        let mut several = parsed("postgres://u:p@a:1,[::1],c:3/d");
        assert_eq!(several.places, [place("a", Some(1)), place("::1", None), place("c", Some(3))]);
        assert!(several.only_place().unwrap_err().contains("several hosts"));
        let mut url = parsed("mysql://u@h/d?a=1&b=2");
        assert_eq!((url.take("a").as_deref(), url.take("a")), (Some("1"), None));
        assert_eq!(url.finish(&["a"]).unwrap_err(), "the parameter `b` is not known; known are a");
    }

    #[test]
    fn an_unescaped_character_is_named_and_the_password_is_not_shown() {
        for (password, escape) in [
            ("se@cret", "%40"),
            ("@secret", "%40"),
            ("se/cret", "%2F"),
            ("12/secret", "%2F"),
            ("se@cr/et", "%2F"),
            ("se/cr@et", "%2F"),
            ("se?cret", "%3F"),
            ("12?secret", "%3F"),
            ("12?secret=1", "%3F"),
            ("12/cr?secret", "%3F"),
            ("se#cret", "%23"),
            ("sec%ret", "%25"),
        ] {
            for rest in ["h/d", "h:5432/d?sslmode=require", "h"] {
                let url = format!("postgres://user:{password}@{rest}");
                let parsed = StoreUrl::parse(&url);
                let why = parsed.and_then(|url| url.finish(&["sslmode"])).expect_err(&url);
                assert!(why.contains(escape), "{url}: {why}");
                assert!(
                    !why.contains("cret") && !why.contains("ret=") && !why.contains("12"),
                    "{url}: {why}"
                );
            }
        }
        // Nothing behind it: the password stands where a port would.
        for url in [
            "postgres://user:secret",
            "postgres://user:se:cret/d",
            "postgres://user:secret/d?sslmode=require",
        ] {
            let why = StoreUrl::parse(url).unwrap_err();
            assert!(why.contains("`:` %3A") && !why.contains("cret"), "{why}");
        }
    }

    #[test]
    fn other_mistakes_are_told() {
        for (url, why) in [
            ("mysql:u@h", "no `://`"),
            ("mysql://[::1", "no `]`"),
            ("mysql://[::1]x", "neither"),
            ("mysql://u@h/d?a", "no `=`"),
            ("mysql://u@h/d?a=1&a=2", "given twice"),
            ("mysql://u@a,,b/d", "no name"),
            ("mysql://u:%FF@h/d", "UTF-8"),
        ] {
            assert!(StoreUrl::parse(url).unwrap_err().contains(why), "{url}");
        }
    }
}
