//! A real browser, driven by WebDriver: Chromium without a screen.

use crate::support::Client;
use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Chromium with one window; both processes end when this is dropped.
pub(crate) struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts one.
    pub(crate) fn start() -> Browser {
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Command::new("chromedriver")
            .args(["--port=0", "--allowed-ips=127.0.0.1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver: {error}; run scripts/setup.sh chromium"));
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map(Result::unwrap);
        let port = lines.find_map(|line| {
            line.split_once("started successfully on port ").map(|(_, port)| port.to_owned())
        });
        let port = port.expect("chromedriver says its port");
        // Nobody reads it from here on, but it may not fill up.
        std::thread::spawn(move || lines.for_each(drop));
        let address = SocketAddr::from(([127, 0, 0, 1], port.trim_end_matches('.').parse().unwrap()));
        let mut browser = Browser { driver, address, session: String::new(), _profile: profile };
        let options = json!({
            "args": [
                "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                "--disable-background-networking", "--no-first-run", "--window-size=1280,900",
                format!("--user-data-dir={}", browser._profile.path().display()),
            ],
        });
        let always = json!({
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        });
        let made = browser.ask("POST", "/session", &json!({"capabilities": {"alwaysMatch": always}}));
        browser.session = format!("/session/{}", made["sessionId"].as_str().unwrap());
        browser
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "POST" { body.to_string() } else { String::new() };
        // A connection for each: the driver may close one that was kept.
        let mut client = Client::connect(self.address).unwrap();
        let headers = [("Content-Type", "application/json; charset=utf-8")];
        let answer = client.ask(method, path, &headers, body.as_bytes()).unwrap();
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
        answer.problem()["value"].take()
    }

    fn post(&self, what: &str, body: &Value) -> Value {
        self.ask("POST", &format!("{}/{what}", self.session), body)
    }

    /// Opens a page, and waits for it to load.
    pub(crate) fn open(&self, url: &str) {
        self.post("url", &json!({"url": url}));
    }

    /// What a script's body returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.post("execute/sync", &json!({"script": script, "args": []}))
    }

    /// What a script's body returns, as text.
    pub(crate) fn text(&self, expression: &str) -> String {
        self.run(&format!("return String({expression})")).as_str().unwrap().to_owned()
    }

    fn devtools(&self, command: &str, params: &Value) {
        self.post("goog/cdp/execute", &json!({"cmd": command, "params": params}));
    }

    /// Shows the page on a screen of this size, light or dark.
    pub(crate) fn look(&self, width: u32, height: u32, scheme: &str) {
        let is_phone = width < 600;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": if is_phone { 2 } else { 1 }, "mobile": is_phone});
        self.devtools("Emulation.setDeviceMetricsOverride", &metrics);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    /// Writes what is on the screen into a PNG file.
    pub(crate) fn screenshot(&self, path: &Path) {
        let image = self.ask("GET", &format!("{}/screenshot", self.session), &Value::Null);
        let bytes = BASE64_STANDARD.decode(image.as_str().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Errors and warnings in the console since this was asked last.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let entries = self.post("se/log", &json!({"type": "browser"}));
        let is_bad = |entry: &&Value| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING"));
        entries.as_array().unwrap().iter().filter(is_bad).map(ToString::to_string).collect()
    }

    /// URLs that were asked for since this was asked last.
    pub(crate) fn requests(&self) -> Vec<String> {
        let entries = self.post("se/log", &json!({"type": "performance"}));
        let message = |entry: &Value| serde_json::from_str::<Value>(entry["message"].as_str()?).ok();
        let sent = entries.as_array().unwrap().iter().filter_map(message).filter_map(|mut event| {
            (event["message"]["method"] == "Network.requestWillBeSent")
                .then(|| event["message"]["params"]["request"]["url"].take())
        });
        // The browser's own pages are not of the page.
        sent.map(|url| url.as_str().unwrap().to_owned()).filter(|url| !url.starts_with("chrome:")).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends Chromium; the driver would leave it.
        if let Ok(mut client) = Client::connect(self.address) {
            let _ = client.ask("DELETE", &self.session, &[], b"");
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
