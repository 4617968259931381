//! `GET /dashboard`: one page for people, which asks for `/stats` every second and shows what has changed.
//!
//! It needs nothing from elsewhere, and its policy lets it ask nobody but this server. It has no data of its own, so that anybody
//! may have the page; where `/stats` needs a token, the page asks for one.

use base64::prelude::{BASE64_STANDARD, Engine};
use ring::digest::{SHA256, digest};
use std::sync::LazyLock;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The page as it is sent.
pub(super) struct Dashboard {
    pub(super) page: String,
    /// Its `Content-Security-Policy`: the script and the style run that have these hashes, and no others.
    pub(super) policy: String,
}

pub(super) static DASHBOARD: LazyLock<Dashboard> = LazyLock::new(|| {
    let page = include_str!("page.html").replace("{style}", STYLE).replace("{script}", SCRIPT);
    let [style, script] =
        [STYLE, SCRIPT].map(|text| BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes())));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    Dashboard { page, policy }
});

/// Fields of a page beside its policy.
pub(super) const HEADERS: &str = "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_names_nothing_elsewhere() {
        let Dashboard { page, policy } = &*DASHBOARD;
        assert!(page.len() <= 60_000, "{} bytes", page.len());
        assert!(!page.contains("{style}") && !page.contains("{script}"));
        // The namespace of SVG is a name, not an address.
        let rest = page.replace("http://www.w3.org/2000/svg", "");
        for address in ["http:", "https:", "//cdn", "@import", "url(", "style=\"", "onclick"] {
            assert!(!rest.contains(address), "the page contains {address}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    }
}
