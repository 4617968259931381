//! Files of several requests: the HTTP format of vegeta, and HAR as browsers save it.

use super::encode::write_percent;
use super::header::{Header, HttpRequest, method};
use super::mix::WEIGHT_MAX;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::str::FromStr;

/// The requests of a file; at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Targets {
    pub(super) requests: Vec<HttpRequest>,
    /// Whether requests to other servers than the one under load are left out: a page asks many.
    pub(super) skips_others: bool,
}

impl FromStr for Targets {
    type Err = String;

    /// Of the file called so.
    fn from_str(path: &str) -> Result<Targets, String> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            format!("cannot read it: {error}; hint: name a file with lines as GET /orders/1, or a HAR file")
        })?;
        let targets = if text.trim_start().starts_with('{') { of_har(&text)? } else { of_lines(&text)? };
        match targets.requests.is_empty() {
            true => Err("it has no request; hint: write lines as GET /orders/1".into()),
            false => Ok(targets),
        }
    }
}

/// Requests in the HTTP format of vegeta: a line with method and URL, lines with headers, and a line `@FILE` with the body. A comment
/// `# weight 3` is of the request below it.
fn of_lines(text: &str) -> Result<Targets, String> {
    let mut requests: Vec<HttpRequest> = Vec::new();
    let mut weight = 1;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let fail = |what: String| format!("line {}: {what}", number + 1);
        if let Some(comment) = line.strip_prefix('#') {
            if let Some(("weight", said)) = comment.trim().split_once(' ') {
                weight = match said.trim().parse() {
                    Ok(weight @ 1..=WEIGHT_MAX) => weight,
                    _ => {
                        return Err(fail(format!(
                            "`{said}` is no weight; hint: write a whole number from 1, as in # weight 3"
                        )));
                    }
                };
            }
            continue;
        }
        let request =
            line.split_once(' ').filter(|(method, _)| method.bytes().all(|byte| byte.is_ascii_uppercase()));
        match (request, requests.last_mut()) {
            _ if line.is_empty() => {}
            (Some((name, url)), _) => {
                let method = method(name).map_err(|why| fail(format!("{name}: {why}")))?;
                let path = without_fragment(url.trim());
                requests.push(HttpRequest { method, path, weight, ..HttpRequest::default() });
                weight = 1;
            }
            (None, Some(last)) => match line.strip_prefix('@') {
                Some(path) => {
                    let body = std::fs::read(path).map_err(|error| format!("cannot read {path}: {error}"));
                    let hint = "paths are those of the current directory";
                    last.body = Some(body.map_err(|why| fail(format!("{why}; hint: {hint}")))?);
                }
                None => last.headers.push(line.parse().map_err(|why| fail(format!("`{line}`: {why}")))?),
            },
            (None, None) => {
                return Err(fail(format!(
                    "`{line}` is no request; hint: begin with a line as GET /orders/1"
                )));
            }
        }
    }
    Ok(Targets { requests, skips_others: false })
}

/// A fragment is not sent.
fn without_fragment(url: &str) -> String {
    url.split('#').next().unwrap_or_default().to_owned()
}

/// The requests of a HAR file. Equal ones are one with a weight.
fn of_har(text: &str) -> Result<Targets, String> {
    const NONE: &str = "it is no HAR file; hint: save one in the developer tools of a browser, or write lines as GET /orders/1";
    let document: Value = serde_json::from_str(text).map_err(|error| format!("{error}: {NONE}"))?;
    let entries = document["log"]["entries"].as_array().ok_or(NONE)?;
    let mut requests: Vec<HttpRequest> = Vec::new();
    for request in entries.iter().map(|entry| &entry["request"]) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let headers = request["headers"].as_array().into_iter().flatten();
        // What the connection decides is ours to say.
        let headers = headers.filter_map(|header| {
            format!("{}: {}", header["name"].as_str()?, header["value"].as_str()?).parse::<Header>().ok()
        });
        let mut headers: Vec<Header> =
            headers.filter(|header| !header.name.eq_ignore_ascii_case("host")).collect();
        let (body, mut incomplete) = match har_body(&request["postData"]) {
            Ok(body) => (body, None),
            Err(why) => (None, Some(why)),
        };
        let name = text(&request["method"]);
        // It may be of another server, whose requests are left out.
        let method = method(&name).unwrap_or_else(|why| {
            incomplete = Some(format!("{name}: {why}"));
            name
        });
        let has_type = headers.iter().any(|header| header.name.eq_ignore_ascii_case("content-type"));
        if let (Some(kind), Some(_), false) = (request["postData"]["mimeType"].as_str(), &body, has_type) {
            headers.extend(format!("Content-Type: {kind}").parse::<Header>().ok());
        }
        let request = HttpRequest {
            method,
            path: without_fragment(&text(&request["url"])),
            headers,
            body,
            weight: 1,
            incomplete,
            ..HttpRequest::default()
        };
        match requests.iter_mut().find(|known| HttpRequest { weight: 1, ..(*known).clone() } == request) {
            Some(known) => known.weight += 1,
            None => requests.push(request),
        }
    }
    Ok(Targets { requests, skips_others: true })
}

/// The body of a request in a HAR file, which is its text or, of a form, its fields.
fn har_body(data: &Value) -> Result<Option<Vec<u8>>, String> {
    const FORM: &str = "application/x-www-form-urlencoded";
    let text = data["text"].as_str().map(|text| text.as_bytes().to_vec());
    let fields = data["params"].as_array().map_or(&[][..], Vec::as_slice);
    if fields.is_empty() || text.as_ref().is_some_and(|text| !text.is_empty()) {
        return Ok(text);
    }
    let kind = data["mimeType"].as_str().unwrap_or_default();
    if kind.split(';').next().is_none_or(|kind| !kind.trim().eq_ignore_ascii_case(FORM)) {
        return Err(format!(
            "the file has no text of its body of `{}`; hint: add postData.text, or remove the entry",
            kind.escape_debug()
        ));
    }
    let mut body = Vec::new();
    for field in fields {
        let mut write = |before: &[u8], part: &str| {
            body.extend_from_slice(before);
            write_percent(&mut body, field[part].as_str().unwrap_or_default().as_bytes());
        };
        write(b"&", "name");
        write(b"=", "value");
    }
    Ok(Some(body.split_off(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_requests_with_headers_bodies_and_weights() {
        // A file that is where tests run.
        let text = "# of a shop\nGET http://a:1/items?page=2\nX-Account: 7\nAccept: a/b\n\n\
                    # weight 3\nPOST /orders\n@Cargo.toml\nDELETE /carts/1\n";
        let requests = of_lines(text).unwrap().requests;
        let shown: Vec<_> = requests
            .iter()
            .map(|one| (one.method.as_str(), one.path.as_str(), one.headers.len(), one.weight))
            .collect();
        assert_eq!(
            shown,
            [
                ("GET", "http://a:1/items?page=2", 2, 1),
                ("POST", "/orders", 0, 3),
                ("DELETE", "/carts/1", 0, 1)
            ]
        );
        assert_eq!(of_lines("GET /a?b=1#c\n").unwrap().requests[0].path, "/a?b=1");
        assert!(requests[1].body.as_ref().is_some_and(|body| body.starts_with(b"[package]")));
        for (wrong, why) in [
            ("Accept: a/b\n", "line 1: `Accept: a/b` is no request"),
            ("GET /\nAccept\n", "line 2: `Accept`: it has no colon"),
            ("GET /\n@/no/such\n", "line 2: cannot read /no/such"),
            ("# weight 0\nGET /\n", "line 1: `0` is no weight"),
            ("CONNECT a:1\n", "line 1: CONNECT: "),
        ] {
            let told = of_lines(wrong).unwrap_err();
            assert!(told.contains(why) && !told.contains('\n'), "{wrong}: {told}");
        }
    }

    #[test]
    fn a_har_file_has_what_a_browser_asked() {
        let get = r#"{"request":{"method":"GET","url":"https://a/x#y","headers":[{"name":":authority","value":"a"},{"name":"Host","value":"a"},{"name":"Accept","value":"*/*"},{"name":"Connection","value":"close"}]}}"#;
        let post =
            r#"{"request":{"method":"POST","url":"https://a/z","headers":[],"postData":{"text":"q=1"}}}"#;
        // As proxies save them.
        let tunnel = r#"{"request":{"method":"CONNECT","url":"https://b:443"}}"#;
        let har = format!(r#"{{"log":{{"entries":[{get},{post},{tunnel},{get}]}}}}"#);
        let requests = of_har(&har).unwrap().requests;
        assert!(requests[2].incomplete.as_ref().is_some_and(|why| why.starts_with("CONNECT: it cannot")));
        assert_eq!(
            (requests[0].path.as_str(), requests[0].weight, requests[0].headers.len()),
            ("https://a/x", 2, 1)
        );
        assert_eq!((requests[1].body.as_deref(), requests[1].weight), (Some(&b"q=1"[..]), 1));
        let of_fields = |kind: &str| {
            let data = format!(
                r#"{{"mimeType":"{kind}","params":[{{"name":"a b","value":"1&2"}},{{"name":"c"}}],"text":""}}"#
            );
            let entry = format!(
                r#"{{"request":{{"method":"POST","url":"https://a/z","headers":[],"postData":{data}}}}}"#
            );
            of_har(&format!(r#"{{"log":{{"entries":[{entry}]}}}}"#)).unwrap().requests.remove(0)
        };
        let form = of_fields("application/x-www-form-urlencoded; charset=UTF-8");
        assert_eq!(form.body.as_deref(), Some(&b"a%20b=1%262&c="[..]));
        assert_eq!(form.headers[0].value, "application/x-www-form-urlencoded; charset=UTF-8");
        let parts = of_fields("multipart/form-data").incomplete.unwrap();
        assert!(parts.contains("no text of its body of `multipart/form-data`; hint: "), "{parts}");
        assert!(of_har("{}").unwrap_err().contains("no HAR file"));
    }
}
