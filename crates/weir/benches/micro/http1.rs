//! The codec: heads of requests in, heads of answers out.

use crate::runner::{Run, Side};
use http1::{Limits, Slots, request, response};
use std::hint::black_box;

/// The same GET as different clients send it: name, and what stands in the fields beside `Host`.
const CLIENTS: &[(&str, &[(&str, &str)])] = &[
    ("weir load", &[]),
    ("curl", &[("User-Agent", "curl/8.14.1"), ("Accept", "*/*")]),
    (
        "a browser",
        &[
            ("Connection", "keep-alive"),
            ("sec-ch-ua", "\"Chromium\";v=\"140\", \"Not=A?Brand\";v=\"24\""),
            ("sec-ch-ua-mobile", "?0"),
            ("sec-ch-ua-platform", "\"Linux\""),
            ("Upgrade-Insecure-Requests", "1"),
            (
                "User-Agent",
                "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
            ),
            (
                "Accept",
                "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
            ),
            ("Sec-Fetch-Site", "none"),
            ("Sec-Fetch-Mode", "navigate"),
            ("Sec-Fetch-User", "?1"),
            ("Sec-Fetch-Dest", "document"),
            ("Accept-Encoding", "gzip, deflate, br, zstd"),
            ("Accept-Language", "en-US,en;q=0.9"),
        ],
    ),
];

const TARGET: &str = "/v1/kv/key0000000000042";

/// A GET of one key, as three clients write it.
pub(crate) fn parse(run: &Run) {
    let heads = run.at_most(1 << 18);
    let side = |(name, fields): &(&str, &[(&str, &str)])| {
        let mut head = Vec::new();
        let writer = request::write(&mut head, "GET", TARGET, "127.0.0.1:8080");
        fields.iter().fold(writer, |writer, (name, value)| writer.field(name, value.as_bytes())).end();
        let title = format!("{name}, {} bytes", head.len());
        Side::new(title, move || {
            let is_right = || {
                let mut slots = Slots::default();
                let parsed = request::parse(black_box(&head), &Limits::USUAL, &mut slots);
                parsed.is_ok_and(|found| {
                    found.is_some_and(|found| found.bytes == head.len() && found.target == TARGET.as_bytes())
                })
            };
            (0..heads).filter(|_| is_right()).count()
        })
    };
    run.compare("a GET", heads, CLIENTS.iter().map(side).collect());
}

/// What a GET is answered with, and a PUT.
pub(crate) fn write(run: &Run) {
    let heads = run.at_most(1 << 18);
    let mut out = Vec::new();
    let value = Side::new("200 with a value", move || {
        let mut is_right = || {
            out.clear();
            response::write(&mut out, black_box(200))
                .field("Date", b"Sun, 06 Nov 1994 08:49:37 GMT")
                .field("ETag", b"\"8796093022209\"")
                .field("Cache-Status", b"weir; hit")
                .field("Content-Type", b"application/octet-stream")
                .field("X-Content-Type-Options", b"nosniff")
                .end_with_length(black_box(100));
            out.ends_with(b"\r\nContent-Length: 100\r\n\r\n")
        };
        (0..heads).filter(|_| is_right()).count()
    });
    let mut out = Vec::new();
    let made = Side::new("204", move || {
        let mut is_right = || {
            out.clear();
            response::write(&mut out, black_box(204))
                .field("Date", b"Sun, 06 Nov 1994 08:49:37 GMT")
                .field("ETag", b"\"8796093022209\"")
                .end();
            out.ends_with(b"\"\r\n\r\n")
        };
        (0..heads).filter(|_| is_right()).count()
    });
    run.compare("an answer's head", heads, vec![value, made]);
}
