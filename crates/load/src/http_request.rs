//! Requests of any HTTP service: the flags that say what is sent, and what of it counts as a success.
//!
//! Flags in, requests out. What they are on the wire is `pieces`' and `request`'s.

use super::dialect::OperationTemplate;
use super::encode::write_base64;
use super::header::{Header, HttpRequest, has, method};
use super::statuses::Statuses;
use super::target::{Target, check_path};
use super::targets::Targets;
use super::values::Values;
use super::variables;
use kv::Error;
use regex::bytes::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// What to send to a URL.
#[derive(Clone, Debug, Default, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Request")]
pub struct RequestFlags {
    /// Method [default: GET, with --data POST]
    #[arg(long = "request", short = 'X', value_name = "METHOD", value_parser = method)]
    pub method: Option<String>,

    /// Header, as in 'Accept: text/html'; repeatable
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE")]
    pub headers: Vec<Header>,

    /// Body, as text or as @FILE
    #[arg(long, short, value_name = "TEXT|@FILE")]
    pub data: Option<Body>,

    /// Basic authentication
    #[arg(long, short, value_name = "USER:PASSWORD", value_parser = secret, conflicts_with = "bearer")]
    pub user: Option<String>,

    /// Bearer authentication, as text or as @FILE
    #[arg(long, value_name = "TOKEN|@FILE", value_parser = secret)]
    pub bearer: Option<String>,

    /// Status codes that count as success, as in 200,404 or 2xx; key-value workloads have rules of their own [default: 200-399]
    #[arg(long, value_name = "STATUSES")]
    pub expect: Option<Statuses>,

    /// File of several requests: lines as GET /orders/1 (vegeta's targets), or HAR
    #[arg(long, value_name = "FILE", conflicts_with_all = ["method", "data"])]
    pub targets: Option<Targets>,

    /// File of values for {{column}} in requests: CSV with a header line, or JSON lines
    #[arg(long, value_name = "FILE")]
    pub values: Option<Values>,

    /// Regular expression that the body of a success must match, searched in its first MiB
    #[arg(long, value_name = "REGEX", value_parser = |text: &str| pattern(text).map(|_| text.to_owned()))]
    pub expect_body: Option<String>,
}

/// A body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Body(pub Vec<u8>);

impl RequestFlags {
    /// The requests to the server of `target`; at least one.
    pub(super) fn requests(&self, target: &Target) -> Result<Vec<HttpRequest>, Error> {
        if let Some(targets) = &self.targets {
            return self.of_targets(targets, target);
        }
        let body = self.data.as_ref().map(|Body(bytes)| bytes.clone());
        let method =
            self.method.clone().unwrap_or_else(|| if body.is_some() { "POST" } else { "GET" }.into());
        let path = target.path().unwrap_or("/").to_owned();
        let name = format!("{method} {path}");
        let request = HttpRequest { name, weight: 1, method, path, body, ..HttpRequest::default() };
        Ok(vec![self.complete(request, target)?])
    }

    /// The requests of a file.
    fn of_targets(&self, targets: &Targets, target: &Target) -> Result<Vec<HttpRequest>, Error> {
        if target.path().is_some_and(|path| path != "/") {
            let what = format!("{target} has a path, and the requests of --targets have their own");
            return Err(Error::input(what).hint("leave the path of the URL out"));
        }
        let mut requests: Vec<HttpRequest> = Vec::new();
        for request in &targets.requests {
            let HttpRequest { method, path: url, incomplete, .. } = request;
            let path = match url.starts_with('/') {
                true => check_path(url).map(|()| url.clone()),
                // Also what is no URL that could be loaded, as wss: and data:.
                false if targets.skips_others && !is_of(url, target) => continue,
                false => match url.parse::<Target>() {
                    Ok(own) if own.origin() == target.origin() => Ok(own.path().unwrap_or("/").to_owned()),
                    Ok(_) => Err(format!(
                        "it is not of {}; hint: write a path, as in GET /orders/1",
                        target.origin()
                    )),
                    Err(why) => Err(why),
                },
            };
            let path = path.and_then(|path| incomplete.clone().map_or(Ok(path), Err));
            let path = path.map_err(|why| Error::input(format_args!("--targets: {url}: {why}")))?;
            let mut name = format!("{method} {path}");
            let alike =
                requests.iter().filter(|other| (&other.method, &other.path) == (method, &path)).count();
            if alike > 0 {
                name += &format!(" ({})", alike + 1);
            }
            requests.push(self.complete(HttpRequest { name, path, ..request.clone() }, target)?);
        }
        match requests.is_empty() {
            true => Err(Error::input(format_args!("--targets has no request to {}", target.origin()))
                .hint("give the URL of the server that the file was saved from")),
            false => Ok(requests),
        }
    }

    /// Adds what the flags say and what is usual to a request.
    fn complete(&self, mut request: HttpRequest, target: &Target) -> Result<HttpRequest, Error> {
        let own = std::mem::take(&mut request.headers);
        // What the request itself says is not replaced.
        request.headers = self.all_headers(target)?;
        request.headers.retain(|header| !has(&own, &header.name));
        request.headers.extend(own);
        let mut usual = |name: &str, value: &str| {
            if !has(&request.headers, name) {
                request.headers.push(Header { name: name.to_owned(), value: value.to_owned() });
            }
        };
        usual("User-Agent", concat!("weir/", env!("CARGO_PKG_VERSION")));
        usual("Accept", "*/*");
        if let Some(body) = &request.body {
            usual("Content-Type", content_type(body));
        } else if matches!(request.method.as_str(), "PUT" | "POST" | "PATCH") {
            // Without a length a server does not know that such a request has no body.
            request.body = Some(Vec::new());
        }
        let columns = self.values.as_ref().map_or(&[][..], |values| &values.columns);
        if let Some(values) = &self.values {
            check_headers(&request, values)?;
        }
        for part in request.parts() {
            variables::check(part, columns)
                .map_err(|why| Error::input(format_args!("{}: {why}", request.name)))?;
        }
        Ok(request)
    }

    /// The fields that each request has, also one of a key-value workload: those of --header, `Host` and `Authorization`.
    pub(super) fn all_headers(&self, target: &Target) -> Result<Vec<Header>, Error> {
        let mut headers = self.headers.clone();
        if !has(&headers, "host") {
            headers.insert(0, Header { name: "Host".into(), value: target.authority() });
        }
        let basic = self.user.as_deref().or(target.credentials.as_deref().filter(|_| self.bearer.is_none()));
        let basic = basic.map(|user| {
            // As curl sends an empty password.
            let colon = if user.contains(':') { "" } else { ":" };
            let mut encoded = Vec::new();
            write_base64(&mut encoded, format!("{user}{colon}").as_bytes());
            format!("Basic {}", String::from_utf8_lossy(&encoded))
        });
        if let Some(value) = self.bearer.as_ref().map(|token| format!("Bearer {token}")).or(basic) {
            if has(&headers, "authorization") {
                let what = "--header Authorization cannot be used with --user, --bearer or a user in the URL";
                return Err(Error::input(what).hint("leave one of them out"));
            }
            headers.push(Header { name: "Authorization".into(), value });
        }
        Ok(headers)
    }

    /// Whether anything is said that a key-value workload says itself.
    pub(super) fn says_what_is_asked(&self) -> Option<&'static str> {
        [
            (self.method.is_some(), "--request"),
            (self.data.is_some(), "--data"),
            (self.expect.is_some(), "--expect"),
            (self.expect_body.is_some(), "--expect-body"),
            (self.values.is_some(), "--values"),
            (self.targets.is_some(), "--targets"),
        ]
        .into_iter()
        .find_map(|(is_said, flag)| is_said.then_some(flag))
    }

    /// What answers mean. It is never freed: a run has one, and all its threads use it.
    pub(super) fn rules(&self) -> &'static OperationTemplate {
        // The plan was checked.
        let pattern = self.expect_body.as_deref().and_then(|text| pattern(text).ok());
        Box::leak(Box::new(OperationTemplate {
            ok: self.expect.clone().unwrap_or_else(Statuses::usual),
            keeps_body: pattern.is_some(),
            body_pattern: pattern,
            ..OperationTemplate::default()
        }))
    }
}

/// Whether the headers are whole whichever row they take their values from.
fn check_headers(request: &HttpRequest, values: &Values) -> Result<(), Error> {
    let columns = &values.columns;
    for Header { name, value } in &request.headers {
        let used = variables::columns_in(value.as_bytes(), columns).into_iter();
        let wrong = used.filter_map(|column| Some((column, values.row_with_control(column)?)));
        if let Some((column, row)) = wrong.min_by_key(|(_, row)| *row) {
            let column = &columns[column];
            return Err(Error::input(format_args!(
                "--values: `{column}` of row {row} has a control character, and header {name} has it in it"
            ))
            .hint("leave the character out of the file, or the column out of the header"));
        }
    }
    Ok(())
}

/// Whether a URL is of this server, be its path right or wrong.
fn is_of(url: &str, target: &Target) -> bool {
    let host = url.find("://").map_or(0, |at| at + 3);
    let end = url[host..].find(['/', '?', '#']).map_or(url.len(), |at| host + at);
    url[..end].parse::<Target>().is_ok_and(|own| own.origin() == target.origin())
}

/// What a body is, if nobody says it: JSON where it is an object or a list of it, else a form, as curl has it.
fn content_type(body: &[u8]) -> &'static str {
    let is_json = matches!(body.trim_ascii(), [b'{', .., b'}'] | [b'[', .., b']']);
    if is_json { "application/json" } else { "application/x-www-form-urlencoded" }
}

/// A text, or that of a file: one line without its end.
fn secret(text: &str) -> Result<String, String> {
    let text = match text.strip_prefix('@') {
        Some(path) => {
            std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?
        }
        None => text.to_owned(),
    };
    let text = text.trim();
    match text.chars().all(|c| !c.is_control()) && !text.is_empty() {
        true => Ok(text.to_owned()),
        false => Err("it is not one line of text; hint: write it in one line".into()),
    }
}

impl FromStr for Body {
    type Err = String;

    fn from_str(text: &str) -> Result<Body, String> {
        match text.strip_prefix('@') {
            Some(path) => std::fs::read(path).map(Body).map_err(|error| {
                format!(
                    "cannot read {path}: {error}; hint: name a file, or write the body without @ in front"
                )
            }),
            None => Ok(Body(text.as_bytes().to_vec())),
        }
    }
}

/// What a body has to have in it. As in grep, ^ and $ are the ends of a line.
pub(super) fn pattern(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(text).multi_line(true).build().map_err(|error| {
        let text = error.to_string();
        let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ");
        format!("it is no regular expression: {why}; hint: escape ( [ {{ . * + ? with a backslash")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Plan;

    /// The flags of a HAR file in which these URLs were asked for.
    fn har(urls: &[&str]) -> RequestFlags {
        let request = |url: &&str| HttpRequest {
            method: "GET".into(),
            path: (*url).to_owned(),
            weight: 1,
            ..HttpRequest::default()
        };
        let targets = Targets { requests: urls.iter().map(request).collect(), skips_others: true };
        RequestFlags { targets: Some(targets), ..RequestFlags::default() }
    }

    #[test]
    fn what_a_page_asked_of_others_is_left_out_whatever_its_scheme() {
        let flags = har(&[
            "http://a/x",
            "wss://elsewhere.example/ws",
            "data:image/png;base64,AAAA",
            "blob:http://a/1-2-3",
            "about:blank",
            "http://elsewhere.example/a b",
            "http://A:80/y?z=1",
        ]);
        let names = |requests: Vec<HttpRequest>| -> Vec<String> {
            requests.into_iter().map(|request| request.name).collect()
        };
        let target = "http://a".parse().unwrap();
        assert_eq!(names(flags.requests(&target).unwrap()), ["GET /x", "GET /y?z=1"]);
        // A wrong path of the server itself is no other server's.
        let told = har(&["http://a/b c"]).requests(&target).unwrap_err().to_string();
        assert!(told.contains("the path has a space"), "{told}");
    }

    #[test]
    fn a_body_that_a_file_lacks_is_refused_if_the_server_is_the_one_under_load() {
        let mut flags = har(&["http://a/x", "http://b/y"]);
        flags.targets.as_mut().unwrap().requests[1].incomplete = Some("it lacks one".to_owned());
        assert_eq!(flags.requests(&"http://a".parse().unwrap()).unwrap().len(), 1);
        let told = flags.requests(&"http://b".parse().unwrap()).unwrap_err().to_string();
        assert_eq!(told, "--targets: http://b/y: it lacks one");
    }

    #[test]
    fn a_user_without_a_password_has_an_empty_one() {
        for (user, encoded) in
            [("alice", "Basic YWxpY2U6"), ("alice:", "Basic YWxpY2U6"), ("a:b", "Basic YTpi")]
        {
            let flags = RequestFlags { user: Some(user.to_owned()), ..RequestFlags::default() };
            let headers = flags.all_headers(&"http://a".parse().unwrap()).unwrap();
            assert_eq!(headers.last().unwrap().value, encoded, "{user}");
        }
    }

    #[test]
    fn a_value_with_a_line_end_is_refused_in_a_header_and_nowhere_else() {
        let path = std::env::temp_dir().join(format!("weir-values-{}", std::process::id()));
        std::fs::write(&path, "id,name\n1,a\n2,\"b\r\nX-Other: c\"\n").unwrap();
        let flags = |header: &str| RequestFlags {
            values: Some(path.to_str().unwrap().parse().unwrap()),
            headers: vec![header.parse().unwrap()],
            data: Some(Body(b"{{name}}".to_vec())),
            ..RequestFlags::default()
        };
        let [own, other] = [flags("X-Name: {{ name }}"), flags("X-Id: {{id}}")];
        std::fs::remove_file(&path).unwrap();
        let target = "http://a".parse().unwrap();
        let error = own.requests(&target).unwrap_err();
        let told =
            "--values: `name` of row 2 has a control character, and header X-Name has it in it; hint: ";
        assert!(error.is_input() && error.to_string().starts_with(told), "{error}");
        assert!(other.requests(&target).is_ok());
    }

    #[test]
    fn servers_of_which_a_file_has_different_requests_are_not_loaded_together() {
        let plan = |urls: &[&str], flags: RequestFlags| Plan {
            urls: urls.iter().map(|url| url.parse().unwrap()).collect(),
            http: flags,
            ..clap::Parser::parse_from(["load", "http://a"])
        };
        let flags = har(&["http://a/1", "http://a/2", "http://b/1"]);
        let told = plan(&["http://a", "http://b"], flags).check().unwrap_err().to_string();
        assert!(
            told.starts_with("--targets has other requests to http://b than to http://a; hint: "),
            "{told}"
        );
        for urls in [&["http://a/1", "http://b/1"][..], &["/1", "/2"]] {
            assert!(plan(&["http://a", "http://b"], har(urls)).check().is_ok(), "{urls:?}");
        }
        // Without a file each URL may have a path of its own.
        assert!(plan(&["http://a/1", "http://b/2"], RequestFlags::default()).check().is_ok());
    }
}
