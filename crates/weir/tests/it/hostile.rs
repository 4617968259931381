//! Requests of clients that mean harm or are mistaken, and answers that must not mislead whoever is in between.

use crate::support::Server;

fn server(flags: &[&str]) -> Server {
    Server::start("memory:", flags)
}

/// A request of HTTP/1.1 without a body.
fn request(start: &str, fields: &str) -> Vec<u8> {
    format!("{start} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").into_bytes()
}

/// A key that a client believes to have put is not emptied by a request without a value.
#[test]
fn a_put_without_a_length_leaves_the_value_as_it_is() {
    let server = server(&[]);
    server.client().put("/kv/a", b"value");
    for wrong in [
        "PUT /kv/a HTTP/1.0\r\n\r\nother",
        "PUT /kv/a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nother",
        "PUT /kv/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let mut client = server.client();
        assert_eq!(client.exchange(wrong.as_bytes()).status, 411, "{wrong}");
        assert!(client.is_closed(), "{wrong}");
        assert_eq!(server.client().get("/kv/a").text(), "value", "{wrong}");
    }
    assert_eq!(server.client().put("/kv/a", b"").status, 204);
    assert_eq!(server.client().get("/kv/a").body, b"");
}

#[test]
fn an_encoded_value_is_refused_with_what_to_do() {
    let server = server(&[]);
    let mut client = server.client();
    for coding in ["gzip", "br, gzip", "GZIP"] {
        let answer = client.ask("PUT", "/kv/a", &[("Content-Encoding", coding)], b"value").unwrap();
        assert_eq!((answer.status, answer.header("accept-encoding")), (415, Some("identity")), "{coding}");
        assert!(answer.text().contains("without one"), "{}", answer.text());
    }
    assert_eq!(client.get("/kv/a").status, 404);
    assert_eq!(client.ask("PUT", "/kv/a", &[("Content-Encoding", "identity")], b"v").unwrap().status, 201);
}

#[test]
fn a_later_minor_version_is_served_as_1_1() {
    let server = server(&[]);
    let mut client = server.client();
    client.put("/kv/a", b"value");
    let answer = client.exchange(b"GET /kv/a HTTP/1.2\r\nHost: localhost\r\n\r\n");
    assert_eq!((answer.status, answer.text().as_str()), (200, "value"));
    assert_eq!(client.get("/kv/a").status, 200, "the connection goes on");
}

/// It took 98 MB of them to send 400 kB.
#[test]
fn chunk_extensions_are_limited_in_sum() {
    let server = server(&[]);
    let chunk = format!("1;{}\r\nx\r\n", "y".repeat(200));
    let mut bytes = request("PUT /kv/a", "Transfer-Encoding: chunked\r\n");
    bytes.extend(chunk.repeat(100).into_bytes());
    let mut client = server.client();
    assert_eq!(client.exchange(&bytes).status, 400);
    assert!(client.is_closed());
    let mut bytes = request("PUT /kv/a", "Transfer-Encoding: chunked\r\n");
    bytes.extend(b"5 ;a = \"b;c\"\r\nvalue\r\n0\r\n\r\n");
    let mut client = server.client();
    assert_eq!(client.exchange(&bytes).status, 201);
    assert_eq!(client.get("/kv/a").text(), "value");
}
