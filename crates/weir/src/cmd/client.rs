//! An HTTP/1.1 client for `export`, `import` and the figures of `load`: one connection, by TCP, TLS or a Unix socket, and requests
//! that can be repeated as long as the server is not there or has no room.

use http1::request::write;
use http1::response;
use http1::{Decoder, Framing, Slots};
use kv::Error;
use kv::units::Span;
use load::{Address, Target};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tls::{CACERT, Check, Trusted};

/// How long a weir server may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Between two tries, if the server does not say how long.
const PAUSE: Duration = Duration::from_secs(1);
/// No answer is longer: a value of 64 MiB in JSON.
const ANSWER_BYTES_MAX: u64 = 512 << 20;

/// Which server, and as whom.
#[derive(Debug, clap::Args)]
pub(super) struct ServerArgs {
    /// The server: http://HOST:PORT, https://HOST:PORT or unix:PATH
    #[arg(value_name = "URL")]
    url: Target,

    /// A file with a token. Without it, the environment variable WEIR_TOKEN is used if it is there
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// CA certificates to trust (PEM) [default: those this machine trusts]
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// How long a request is repeated while the server cannot be reached or answers 408, 429, 502, 503 or 504
    #[arg(long, value_name = "TIME", default_value = "60s")]
    retry: Span,
}

/// A connection to a server, made when it is needed.
pub(super) struct Client {
    server: Target,
    /// Of https.
    tls: Option<(ServerName<'static>, Arc<ClientConfig>)>,
    /// The field with the token, if there is one.
    authorization: Option<String>,
    /// How long something is tried.
    pub(super) retry: Duration,
    /// How long the server may be silent.
    silence_max: Duration,
    connection: Option<Connection>,
}

/// A request. It is repeated if its answer is lost: the keys then have the same values, but what has a condition may be answered 412.
pub(super) struct Request<'r> {
    pub(super) method: &'static str,
    pub(super) target: &'r str,
    pub(super) fields: &'r [(&'static str, &'r str)],
    pub(super) body: Option<&'r [u8]>,
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    /// How long to wait before the next try.
    pause: Option<Duration>,
    pub(super) body: Vec<u8>,
}

trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

struct Connection {
    stream: Box<dyn Stream>,
    /// Read, and not yet used.
    input: Vec<u8>,
    /// Whether it has had an answer. Then the server may have closed it meanwhile.
    is_used: bool,
}

impl Client {
    pub(super) fn new(args: &ServerArgs) -> Result<Client, Error> {
        let server = &args.url;
        let bad = |what: &str| {
            Error::input(format_args!("{server}: {what}"))
                .hint("write http://HOST:PORT, https://HOST:PORT or unix:PATH")
        };
        if server.path().is_some_and(|path| path != "/") {
            return Err(bad("the URL has more than a host and a port"));
        }
        if server.has_credentials() {
            return Err(bad("a token is not a part of the URL: see --token-file"));
        }
        let tls = server.tls_host().map(|host| {
            let name = ServerName::try_from(host.to_owned()).map_err(|_| bad("the host is no host"))?;
            let trusted = args.cacert.clone().map_or(Trusted::System, Trusted::File);
            let config = tls::config(&CACERT, Check::ChainAndName, &trusted, None);
            Ok::<_, Error>((name, Arc::new(config.map_err(Error::input)?)))
        });
        let tls = tls.transpose()?;
        let authorization = token(args)?.map(|token| format!("Bearer {token}"));
        if args.cacert.is_some() && tls.is_none() {
            return Err(Error::input(format_args!("--cacert is only for https, and {server} is not")));
        }
        let mut client = Client::plain(server.clone(), SILENCE_MAX);
        (client.tls, client.authorization, client.retry) = (tls, authorization, args.retry.0);
        Ok(client)
    }

    /// Of a server that may be silent for so long: without TLS, a token or repetitions.
    pub(super) fn plain(server: Target, silence_max: Duration) -> Client {
        let retry = Duration::ZERO;
        Client { server, tls: None, authorization: None, retry, silence_max, connection: None }
    }

    /// Sends a request and reads its answer: again and again while the server cannot be reached, is not ready or asks to wait.
    /// Other refusals of the whole request are errors, but for those whose status is `expected`.
    pub(super) fn ask(&mut self, request: &Request<'_>, expected: &[u16]) -> Result<Answer, Error> {
        let mut failing_since = None;
        loop {
            let was_used = self.connection.as_ref().is_some_and(|connection| connection.is_used);
            let (why, pause) = match self.exchange(request) {
                Ok(answer) if expected.contains(&answer.status) => return Ok(answer),
                Ok(Answer { status: 408 | 429 | 502 | 503 | 504, pause, body }) => (detail(&body), pause),
                Ok(Answer { status, body, .. }) => {
                    let what =
                        format!("{} answered {status} to {}: {}", self.server, request.method, detail(&body));
                    return Err(match status {
                        401 => Error::new(what).hint("give a token that the server knows with --token-file"),
                        404 | 405 => Error::new(what).hint("is this a weir server, and its data address?"),
                        _ => Error::new(what),
                    });
                }
                // An idle connection may end at any time: that says nothing.
                Err(_) if was_used => continue,
                Err(error) => match tls::failure_in(&error) {
                    Some(failure) => {
                        let why = tls::explain(&CACERT, failure);
                        return Err(Error::new(format_args!("cannot reach {}: {why}", self.server)));
                    }
                    None => (error.to_string(), None),
                },
            };
            let since = *failing_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= self.retry {
                let tried = Span(self.retry);
                let what = format!("{} did not do it within {tried}: {why}", self.server);
                return Err(Error::new(what).hint("see whether it runs (/readyz), or allow a longer --retry"));
            }
            thread::sleep(pause.unwrap_or(PAUSE).min(self.retry));
        }
    }

    /// Sends a request once and reads its answer, whatever its status.
    pub(super) fn exchange(&mut self, request: &Request<'_>) -> io::Result<Answer> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let mut bytes = Vec::new();
        let mut head = write(&mut bytes, request.method, request.target, &self.server.authority());
        for (name, value) in request.fields {
            head = head.field(name, value.as_bytes());
        }
        if let Some(authorization) = &self.authorization {
            head = head.field("Authorization", authorization.as_bytes());
        }
        match request.body {
            Some(body) => head.end_with_length(body.len() as u64),
            None => head.end(),
        }
        let sent = connection
            .stream
            .write_all(&bytes)
            .and_then(|()| connection.stream.write_all(request.body.unwrap_or_default()))
            .and_then(|()| connection.stream.flush());
        // A server may refuse a request before it has read all of it.
        let (answer, keep_alive) = connection.answer().map_err(|error| sent.err().unwrap_or(error))?;
        if keep_alive {
            connection.is_used = true;
            self.connection = Some(connection);
        }
        Ok(answer)
    }

    fn connect(&self) -> io::Result<Connection> {
        let silence_max = Some(self.silence_max);
        let stream = self.server.first_of(|address| -> io::Result<Box<dyn Stream>> {
            let tcp = match address {
                Address::Tcp(address) => TcpStream::connect_timeout(&address, self.silence_max)?,
                Address::Unix(path) => {
                    let stream = UnixStream::connect(path)?;
                    stream.set_read_timeout(silence_max)?;
                    stream.set_write_timeout(silence_max)?;
                    return Ok(Box::new(stream));
                }
            };
            tcp.set_nodelay(true)?;
            tcp.set_read_timeout(silence_max)?;
            tcp.set_write_timeout(silence_max)?;
            let Some((name, config)) = &self.tls else { return Ok(Box::new(tcp)) };
            let session =
                ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
            Ok(Box::new(StreamOwned::new(session, tcp)))
        })?;
        Ok(Connection { stream, input: Vec::new(), is_used: false })
    }
}

impl Connection {
    /// Reads one answer, and whether the connection can be used again.
    fn answer(&mut self) -> io::Result<(Answer, bool)> {
        let no_http = |_| io::Error::other("the answer is not HTTP/1.1");
        let (outline, pause) = loop {
            let mut slots = Slots::default();
            let Some(head) = response::parse(&self.input, false, &mut slots).map_err(no_http)? else {
                self.read()?;
                continue;
            };
            let seconds = head.field("retry-after").and_then(|text| std::str::from_utf8(text).ok());
            let pause = seconds.and_then(|text| text.parse().ok()).map(Duration::from_secs);
            let outline = head.outline;
            self.input.drain(..outline.bytes);
            if outline.status >= 200 {
                break (outline, pause);
            }
        };
        let mut decoder = Decoder::new(outline.framing, ANSWER_BYTES_MAX).map_err(no_http)?;
        let mut body = Vec::new();
        while !decoder.is_done() {
            let step = decoder.decode(&self.input).map_err(no_http)?;
            body.extend_from_slice(&self.input[step.data]);
            self.input.drain(..step.consumed);
            if step.consumed == 0 && !decoder.is_done() {
                match self.read() {
                    Err(error)
                        if error.kind() == io::ErrorKind::UnexpectedEof
                            && outline.framing == Framing::UntilClose =>
                    {
                        break;
                    }
                    read => read?,
                }
            }
        }
        Ok((Answer { status: outline.status, pause, body }, outline.keep_alive))
    }

    fn read(&mut self) -> io::Result<()> {
        let before = self.input.len();
        self.input.resize(before + (256 << 10), 0);
        let read = self.stream.read(&mut self.input[before..]);
        self.input.truncate(before + read.as_ref().map_or(0, |bytes| *bytes));
        match read? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            _ => Ok(()),
        }
    }
}

/// Of a file or the environment; never of the command line, which others can see.
fn token(args: &ServerArgs) -> Result<Option<String>, Error> {
    let (text, place) = match &args.token_file {
        Some(path) => {
            let text = super::read_text(path, "the token of ", "write the token into it, and nothing else")?;
            (text, path.display().to_string())
        }
        None => match std::env::var("WEIR_TOKEN") {
            Ok(text) => (text, "WEIR_TOKEN".to_owned()),
            Err(_) => return Ok(None),
        },
    };
    let token = text.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        let what = format!("{place} is no token: it has to be one word of ASCII");
        return Err(Error::input(what).hint("write only the first line of what `weir token` prints"));
    }
    Ok(Some(token.to_owned()))
}

/// What a problem document says.
pub(super) fn detail(body: &[u8]) -> String {
    let problem: Result<serde_json::Value, _> = serde_json::from_slice(body);
    let detail = problem.ok().and_then(|problem| problem["detail"].as_str().map(str::to_owned));
    // Of something else than weir: as much as fits on a line.
    detail.unwrap_or_else(|| {
        let text = String::from_utf8_lossy(&body[..body.len().min(200)]);
        text.lines().next().unwrap_or_default().chars().filter(|c| !c.is_control()).collect()
    })
}
