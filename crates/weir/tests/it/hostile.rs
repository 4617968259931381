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
