//! What the tests share: a real server in a process of its own, a plain HTTP client, counted databases.
//!
//! The client is written apart from `http1` on purpose: a codec cannot vouch for itself.

use lab_data::experiment::Engine;
use lab_run::harness::{DatabaseOptions, DatabaseServer, free_ports};
use rustix::process::{Pid, Signal};
use signal_hook::consts::SIGHUP;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use store::{Lease, Part, Store};
use tokio::runtime::{Builder, Runtime};

/// Longer than anything here takes on any machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Where nobody listens, for a program that has to be told its address.
pub(crate) fn free_address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_ports(1).unwrap()[0]).into()
}

/// `weir serve` on a free port, killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// What else it listens on, in the order of the flags.
    pub(crate) more: Vec<String>,
    /// Its compatibility APIs by name, in the order of the flags.
    pub(crate) compat: Vec<(String, SocketAddr)>,
}

impl Server {
    /// Starts one; returns when it answers.
    pub(crate) fn start(store: &str, flags: &[&str]) -> Server {
        Server::start_in(store, flags, &[]).unwrap()
    }

    /// Starts one with these in its environment. The error: it ended without an answer, with this on its standard error.
    pub(crate) fn start_in(
        store: &str,
        flags: &[&str],
        environment: &[(&str, String)],
    ) -> Result<Server, String> {
        Server::start_by(weir(), store, flags, environment)
    }

    /// Starts one by `command`, which `serve` and the flags are added to.
    pub(crate) fn start_by(
        mut command: Command,
        store: &str,
        flags: &[&str],
        environment: &[(&str, String)],
    ) -> Result<Server, String> {
        let mut child = command
            .args(["serve", "--listen", "127.0.0.1:0", "--workers", "2", "--store", store])
            .args(flags)
            .envs(environment.iter().cloned())
            .stdout(Stdio::piped())
            .stderr(if environment.is_empty() { Stdio::null() } else { Stdio::piped() })
            .spawn()
            .unwrap();
        let errors = child.stderr.take();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        if output.fill_buf().unwrap().is_empty() {
            child.wait().unwrap();
            return Err(errors.map(|errors| std::io::read_to_string(errors).unwrap()).unwrap_or_default());
        }
        // Nobody reads it from here on, but it may not fill up.
        if let Some(mut errors) = errors {
            std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        }
        let mut lines = output.lines();
        let mut line = |word: &str| {
            let line = lines.next().map(Result::unwrap).unwrap_or_default();
            line.strip_prefix(word).unwrap_or_else(|| panic!("{store}: {line:?}")).to_owned()
        };
        let address = line("listening ").parse().unwrap();
        let more = flags.iter().filter(|flag| **flag == "--listen").map(|_| line("listening ")).collect();
        let compat = flags.iter().filter(|flag| **flag == "--compat").map(|_| {
            let line = line("compat ");
            let (name, address) = line.split_once(' ').unwrap();
            (name.to_owned(), address.parse().unwrap())
        });
        let compat = compat.collect();
        Ok(Server { child, address, more, compat })
    }

    /// The address of a compatibility API.
    pub(crate) fn compat(&self, name: &str) -> SocketAddr {
        self.compat.iter().find(|(known, _)| known == name).unwrap().1
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, without waiting for the end.
    pub(crate) fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program under test, with nothing of this environment's settings.
pub(crate) fn weir() -> Command {
    // A signal that is handled here is as by default in what is started; one that `nohup` has ignored would be ignored there, too.
    static HANDLED: Once = Once::new();
    HANDLED.call_once(|| {
        signal_hook::flag::register(SIGHUP, Arc::default()).unwrap();
    });
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WEIR_")) {
        command.env_remove(name);
    }
    command
}

/// `weir load` until it is dropped.
pub(crate) struct Load(Child);

impl Load {
    /// Asks `server` until then.
    pub(crate) fn start(server: &Server, flags: &[&str]) -> Load {
        let url = format!("http://{}", server.address);
        let mut command = weir();
        command.args(["load", "--quiet", "--warmup", "0s", "--window", "10m"]).args(flags).arg(url);
        Load(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tries again until it holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "it never came to this: {what}");
        // What is waited for needs the processors.
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    runtime().block_on(work)
}

/// Acquires a store whose last holder may have only just gone.
pub(crate) async fn acquire_from(store: &dyn Store) -> Result<Lease, store::Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match store.acquire(Part::WHOLE).await {
            Err(error) if error.kind().is_taken() || error.to_string().contains("is given twice") => {
                assert!(Instant::now() < deadline, "{error}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            done => return done,
        }
    }
}

/// Whether tests run all their rounds, as `make test-long` asks for.
pub(crate) fn is_long() -> bool {
    std::env::var_os("WEIR_TEST_LONG").is_some()
}

/// A program that `scripts/setup.sh` has installed with Python's package manager.
pub(crate) fn python(program: &str) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"));
    let path = cache.join("weir/python/bin").join(program);
    assert!(path.exists(), "no {program}; run: scripts/setup.sh python");
    path
}

/// A private PostgreSQL. It counts itself, so that the test command can say how many tests had a real one.
pub(crate) fn postgres() -> DatabaseServer {
    postgres_with(&[])
}

/// The same with settings of its own.
pub(crate) fn postgres_with(settings: &[(&str, &str)]) -> DatabaseServer {
    let server = DatabaseServer::start(Engine::Postgres, options(settings)).unwrap();
    let version = server.query("postgres", "SELECT split_part(version(), ' ', 2)").unwrap();
    count("PostgreSQL", &version[0][0]);
    server
}

/// What the PostgreSQL on this machine calls itself.
pub(crate) fn postgres_version() -> String {
    let version = postgres().query("postgres", "SELECT split_part(version(), ' ', 2)").unwrap();
    format!("PostgreSQL {}", version[0][0])
}

/// What the MariaDB on this machine calls itself.
pub(crate) fn mariadb_version() -> String {
    let (name, version) = name_and_version(&mariadb());
    format!("{name} {version}")
}

/// A private MariaDB, counted alike.
pub(crate) fn mariadb() -> DatabaseServer {
    mariadb_with(&[])
}

/// The same with settings of its own.
pub(crate) fn mariadb_with(settings: &[(&str, &str)]) -> DatabaseServer {
    let server = DatabaseServer::start(Engine::MariaDb, options(settings)).unwrap();
    let (name, version) = name_and_version(&server);
    count(name, &version);
    server
}

/// MySQL stands in for MariaDB where it comes first in PATH.
fn name_and_version(server: &DatabaseServer) -> (&'static str, String) {
    let said = server.query("weir", "SELECT VERSION()").unwrap().remove(0).remove(0);
    let name = if said.contains("MariaDB") { "MariaDB" } else { "MySQL" };
    (name, said.split('-').next().unwrap_or_default().to_owned())
}

fn options(settings: &[(&str, &str)]) -> DatabaseOptions {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    DatabaseOptions { settings, ..DatabaseOptions::default() }
}

/// Leaves a line in the ledger: the database, its version, and the test that had it; or `untested`, and what.
pub(crate) fn count(database: &str, version: &str) {
    if let Some(ledger) = std::env::var_os("WEIR_TEST_LEDGER") {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(ledger).unwrap();
        let name = std::thread::current().name().unwrap_or("?").to_owned();
        // One write: tests run side by side.
        file.write_all(format!("{database} {version} {name}\n").as_bytes()).unwrap();
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// The value of the first header called so.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn problem(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

/// One connection.
pub(crate) struct Client<S = TcpStream> {
    stream: BufReader<S>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> std::io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Client::over(stream))
    }

    /// Its own port.
    pub(crate) fn port(&self) -> u16 {
        self.stream.get_ref().local_addr().unwrap().port()
    }

    /// Sends no more.
    pub(crate) fn finish_sending(&mut self) {
        self.stream.get_mut().shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Whether something of an answer is there, or the end of the connection.
    pub(crate) fn has_answer(&mut self) -> bool {
        let stream = self.stream.get_ref();
        stream.set_nonblocking(true).unwrap();
        let found = stream.peek(&mut [0]);
        stream.set_nonblocking(false).unwrap();
        !matches!(found, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn over(stream: S) -> Client<S> {
        Client { stream: BufReader::new(stream) }
    }

    pub(crate) fn stream(&self) -> &S {
        self.stream.get_ref()
    }

    /// Sends a request and reads its answer.
    pub(crate) fn ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<Answer> {
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() || method == "PUT" {
            request += &format!("Content-Length: {}\r\n", body.len());
        }
        let mut bytes = (request + "\r\n").into_bytes();
        bytes.extend_from_slice(body);
        self.send(&bytes)?;
        self.answer(method == "HEAD")
    }

    pub(crate) fn get(&mut self, path: &str) -> Answer {
        self.ask("GET", path, &[], b"").unwrap()
    }

    /// What the server counts.
    pub(crate) fn stats(&mut self) -> serde_json::Value {
        serde_json::from_slice(&self.get("/stats").body).unwrap()
    }

    pub(crate) fn put(&mut self, path: &str, body: &[u8]) -> Answer {
        self.ask("PUT", path, &[], body).unwrap()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Reads one answer; an error if the connection ends before it does.
    pub(crate) fn answer(&mut self, to_head: bool) -> std::io::Result<Answer> {
        let invalid = |what: &str| std::io::Error::other(format!("no answer: {what}"));
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = line.strip_suffix("\r\n").ok_or_else(|| invalid(&line))?.to_owned();
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        let status = lines[0].strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
        let status: u16 = status.ok_or_else(|| invalid(&lines[0]))?;
        let split = |line: &String| {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        let headers: Vec<(String, String)> = lines[1..].iter().map(split).collect();
        let has_body = !to_head && status != 304 && status >= 200;
        let body = if !has_body {
            Vec::new()
        } else if headers.contains(&("transfer-encoding".to_owned(), "chunked".to_owned())) {
            self.chunks()?
        } else {
            let length = headers.iter().find(|(name, _)| name == "content-length");
            let mut body = vec![0; length.map_or(0, |(_, value)| value.parse().unwrap())];
            self.stream.read_exact(&mut body)?;
            body
        };
        Ok(Answer { status, headers, body })
    }

    fn chunks(&mut self) -> std::io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let length = usize::from_str_radix(line.trim_end(), 16).map_err(std::io::Error::other)?;
            let start = body.len();
            body.resize(start + length + 2, 0);
            self.stream.read_exact(&mut body[start..])?;
            assert!(body.ends_with(b"\r\n"));
            body.truncate(start + length);
            if length == 0 {
                return Ok(body);
            }
        }
    }

    /// Sends bytes as they are and reads one answer.
    pub(crate) fn exchange(&mut self, bytes: &[u8]) -> Answer {
        self.send(bytes).unwrap();
        self.answer(false).unwrap()
    }

    /// Whether the server has closed its end.
    pub(crate) fn is_closed(&mut self) -> bool {
        matches!(self.stream.fill_buf(), Ok([]) | Err(_))
    }
}
