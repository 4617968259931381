//! The dashboard in a real browser: what it shows agrees with `/stats`, in light, dark and on a phone, and it asks nobody else.

use crate::browser::Browser;
use crate::support::{Load, Server, postgres, until};
use crate::tokens::Tokens;
use serde_json::Value;
use std::path::PathBuf;

/// Where screenshots are kept, if anybody wants to see them.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("WEIR_TEST_PICTURES").map(PathBuf::from)
}

fn picture(browser: &Browser, name: &str) {
    if let Some(folder) = pictures() {
        std::fs::create_dir_all(&folder).unwrap();
        browser.screenshot(&folder.join(format!("{name}.png")));
    }
}

/// The sum of a metric over its labels.
fn sum(stats: &Value, name: &str) -> f64 {
    let is_it = |key: &&String| key.split('{').next() == Some(name);
    let keys = stats.as_object().unwrap().keys().filter(is_it);
    keys.map(|key| stats[key].as_f64().unwrap()).sum()
}

/// A figure of a card, as a number.
fn figure(browser: &Browser, card: &str) -> Option<f64> {
    browser.text(&format!("document.querySelector('[data-card={card}]').dataset.value")).parse().ok()
}

/// A cell of a table: that of the row that begins with `row`.
fn cell(browser: &Browser, table: &str, row: &str, column: usize) -> String {
    browser.text(&format!(
        "[...document.querySelectorAll('#{table} tbody tr')].filter(tr => tr.cells[0].textContent === '{row}')\
         .map(tr => tr.cells[{column}].textContent)[0]"
    ))
}

fn state(browser: &Browser) -> String {
    browser.text("document.getElementById('state').textContent")
}

fn page_of(server: &Server) -> String {
    format!("http://{}/dashboard", server.address)
}

/// What a user must never see, and whether the page fits its screen.
fn looks_well(browser: &Browser, what: &str) {
    let text = browser.text("document.body.innerText");
    for wrong in ["NaN", "undefined", "Infinity", "null", "[object"] {
        assert!(!text.contains(wrong), "{what}: {wrong} in {text}");
    }
    let too_wide =
        browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth");
    assert_eq!(too_wide, 0, "{what}: it can be scrolled sideways");
    // Text on its ground: at least 4.5 to 1 (WCAG 2, 1.4.3), everywhere.
    let faint = browser.run(
        "const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(x => (x /= 255) <= 0.04045 ? x / 12.92 :
             ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
         const ground = light(getComputedStyle(document.body).backgroundColor);
         return [...document.querySelectorAll('main *')].filter(e => e.checkVisibility() && [...e.childNodes].some(n =>
             n.nodeType === 3 && n.textContent.trim()) && e.tagName !== 'BUTTON' && !e.closest('.old')).filter(e => {
             const style = getComputedStyle(e), ink = light(e instanceof SVGElement ? style.fill : style.color);
             return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05) < 4.5;
         }).map(e => e.outerHTML)",
    );
    assert_eq!(faint, serde_json::json!([]), "{what}: too faint");
}

#[test]
fn the_dashboard_agrees_with_stats_in_light_and_dark_and_on_a_phone() {
    let server = Server::start("memory:", &["--cache-entries", "600"]);
    let browser = Browser::start();
    browser.look(1280, 900, "light");
    browser.open(&page_of(&server));
    // Nothing is asked of the server, but by the page itself.
    until("two figures without traffic", || figure(&browser, "requests").is_some_and(|rate| rate < 5.0));
    looks_well(&browser, "without traffic");
    picture(&browser, "idle");

    let mut client = server.client();
    for (prefix, keys) in [("ev%22il%5C<b>", 1), ("user", 300), ("session", 200), ("cart", 100)] {
        for i in 0..keys {
            assert_eq!(client.put(&format!("/kv/{prefix}/{i}"), &[b'v'; 500]).status, 201);
        }
    }
    client.get("/kv/none");
    let load = Load::start(
        &server,
        &["--clients", "4", "--keys", "1000", "--mix", "get=80,put=20", "--rate", "500"],
    );
    until("the rate of the load", || {
        figure(&browser, "requests").is_some_and(|rate| (450.0..550.0).contains(&rate))
    });
    until("some hits and some misses", || {
        figure(&browser, "hits").is_some_and(|ratio| ratio > 0.0 && ratio < 1.0)
    });
    until("a second without a stall", || figure(&browser, "p99").is_some_and(|p99| p99 < 1.0));
    assert!(figure(&browser, "batch").unwrap() >= 1.0);
    assert!(figure(&browser, "connections").unwrap() >= 5.0);
    // The keys are read back at first, at any rate.
    until("a fifth of writes", || {
        let rate = cell(&browser, "requests", "PUT", 1).parse();
        rate.is_ok_and(|rate: f64| (50.0..150.0).contains(&rate))
    });
    assert_eq!(cell(&browser, "stores", "memory", 1), "owned");
    for (width, height, scheme, name) in [
        (1280, 900, "dark", "dark"),
        (360, 740, "light", "phone"),
        (360, 740, "dark", "phone-dark"),
        (1280, 900, "light", "light"),
    ] {
        browser.look(width, height, scheme);
        until("a new second", || figure(&browser, "requests").is_some_and(|rate| rate > 250.0));
        looks_well(&browser, name);
        let paper = browser.text("getComputedStyle(document.body).backgroundColor");
        assert_eq!(paper == "rgb(22, 22, 20)", scheme == "dark", "{paper}");
    }
    drop(load);

    // Everything has come to rest: the page shows what the server counts.
    until("the end of the load", || figure(&browser, "requests").is_some_and(|rate| rate < 5.0));
    let stats = client.stats();
    assert_eq!(
        figure(&browser, "fill"),
        Some(sum(&stats, "weir_cache_entries") / sum(&stats, "weir_cache_limit_entries"))
    );
    let puts = stats.as_object().unwrap().iter().filter(|(name, _)| name.contains("method=\"PUT\""));
    let puts: f64 = puts.map(|(_, count)| count.as_f64().unwrap()).sum();
    assert_eq!(cell(&browser, "requests", "PUT", 5).replace(',', ""), puts.to_string());
    let users = stats[r#"weir_prefix_requests{prefix="user/"}"#].as_f64().unwrap();
    assert_eq!(cell(&browser, "prefixes", "user/", 2), users.to_string());
    assert!((users - 300.0).abs() < 15.0, "{users} of 300");
    assert_eq!(cell(&browser, "prefixes", r#"ev"il\\<b>/"#, 2), "1", "any key is only text");
    let shown: f64 = stats[r#"weir_prefix_requests{prefix=""}"#].as_f64().unwrap();
    let asked = sum(&stats, "weir_cache_requests_total") + puts - 601.0;
    assert!((shown / asked - 1.0).abs() < 0.05, "{shown} of {asked} keys without a prefix");

    assert_eq!(browser.complaints(), Vec::<String>::new());
    let origin = format!("http://{}/", server.address);
    let requests = browser.requests();
    assert!(requests.iter().filter(|url| url.ends_with("/stats")).count() > 3);
    let strangers: Vec<_> =
        requests.iter().filter(|url| !url.starts_with(&origin) && !url.starts_with("data:")).collect();
    assert!(strangers.is_empty(), "{strangers:?}");

    // Not while nobody sees it.
    browser.run(
        "Object.defineProperty(document, 'hidden', {get: () => true, configurable: true}); \
                 document.dispatchEvent(new Event('visibilitychange'))",
    );
    assert_eq!(state(&browser), "paused");
    browser.run("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))");
    until("it goes on", || state(&browser) == "live");
    // Nor silently when the server is gone.
    server.kill();
    until("it says so", || state(&browser).starts_with("the server has not answered since "));
    looks_well(&browser, "without a server");
}

#[test]
fn the_dashboard_says_why_a_store_is_away() {
    let postgres = postgres();
    let server = Server::start(&postgres.url(), &[]);
    let browser = Browser::start();
    browser.look(1280, 900, "light");
    browser.open(&page_of(&server));
    until("the first figures", || figure(&browser, "requests").is_some());
    assert_eq!(cell(&browser, "stores", "postgres", 1), "owned");
    drop(postgres);
    until("an alarm", || {
        let alarm = browser.text("document.getElementById('alarm').innerText");
        alarm.starts_with("The store is unavailable: ")
            && cell(&browser, "stores", "postgres", 1) == "unavailable"
    });
    looks_well(&browser, "without a store");
    picture(&browser, "store-away");
    browser.look(360, 740, "dark");
    looks_well(&browser, "without a store, on a phone");
    picture(&browser, "store-away-phone");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn the_dashboard_of_a_server_with_tokens_asks_for_one_and_keeps_it_to_itself() {
    let tokens = Tokens::new();
    let (admin, reader) = (tokens.add("admin", "--verbs admin"), tokens.add("reader", "--verbs read"));
    let server = tokens.serve(&[]);
    let browser = Browser::start();
    browser.look(1280, 900, "light");
    browser.open(&page_of(&server));
    until("the question", || state(&browser) == "waiting for a token");
    let is_visible =
        |id: &str| browser.text(&format!("document.getElementById('{id}').checkVisibility()")) == "true";
    assert!(is_visible("ask") && !is_visible("figures"));
    looks_well(&browser, "asking for a token");
    picture(&browser, "token");
    let send = |token: &str| {
        browser.run(&format!(
            "document.getElementById('token').value = '{token}'; document.querySelector('#ask button').click()"
        ));
    };
    let refusal = || browser.text("document.getElementById('refusal').textContent");
    for (token, why) in [("weir-wrong", "not known"), (&reader, "admin")] {
        send(token);
        until("a refusal", || refusal().contains(why));
        assert!(is_visible("ask") && !is_visible("figures"));
    }
    send(&format!(" {admin} "));
    until("figures", || figure(&browser, "requests").is_some());
    assert!(!is_visible("ask") && state(&browser) == "live");
    // It is nowhere but in the page's memory, and gone with it.
    let places = "JSON.stringify([document.documentElement.outerHTML, location.href, document.cookie, {...localStorage}, \
                  {...sessionStorage}, document.getElementById('token').value])";
    assert!(!browser.text(places).contains(&admin));
    assert!(browser.requests().iter().all(|url| !url.contains(&admin)));
    std::fs::remove_file(tokens.file()).unwrap();
    tokens.add("other", "--verbs admin");
    server.signal(rustix::process::Signal::HUP);
    until("the question again", || is_visible("ask") && !is_visible("figures"));
    browser.open(&page_of(&server));
    until("the question after loading it again", || state(&browser) == "waiting for a token");
}
