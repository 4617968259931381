//! From the URL of a PostgreSQL server to connections with it.

use super::tls::{self, Tls};
use super::{Fields, Host, OPENED, Postgres, cause};
use crate::password::{Passfile, Password, default_passfile};
use crate::sql::{Failure, Meaning, Setup};
use crate::store_url::{Place, StoreUrl};
use crate::user_table::{self, RowsTable};
use crate::{Error, Kind, redacted};
use kv::one_line;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket};

/// The parameters of a URL that the driver knows what to do with.
const DRIVER_PARAMETERS: [&str; 8] =
    ["host", "hostaddr", "port", "user", "dbname", "options", "channel_binding", "sslnegotiation"];
/// Those that are for weir to say.
const IGNORED: [&str; 5] =
    ["application_name", "connect_timeout", "keepalives", "load_balance_hosts", "target_session_attrs"];

impl Postgres {
    pub(crate) fn open(url: &str) -> Result<Postgres, Error> {
        let shown: Arc<str> = redacted(url).into();
        let wrong = |why: String| Error::new(Kind::Config, format!("{shown} is no PostgreSQL URL: {why}"));
        let mut url = StoreUrl::parse(url).map_err(wrong)?;
        let (given, file) = (url.take("password").or(url.password.take()), url.take("password-file"));
        let passfile = url.take("passfile");
        for ignored in IGNORED {
            url.take(ignored);
        }
        let taken = DRIVER_PARAMETERS.into_iter().filter_map(|name| Some((name, url.take(name)?)));
        let mut fields: Fields = taken.filter(|(_, value)| !value.is_empty()).collect();
        let places = std::mem::take(&mut url.places);
        if places.len() > 1
            && let Some(name) =
                ["host", "hostaddr", "port"].into_iter().find(|name| fields.contains_key(name))
        {
            let what = format!("it names several hosts and the parameter {name}; leave that out");
            return Err(wrong(what));
        }
        for (name, value) in [("user", url.user.take()), ("dbname", url.database.take())] {
            value.map(|value| fields.entry(name).or_insert(value));
        }
        let is_socket = |host: &String| host.starts_with('/');
        let given_host = ["host", "hostaddr"].iter().find_map(|name| fields.get(name));
        let is_local = match &places[..] {
            [Place { host: None, .. }] if given_host.is_none() => {
                let what =
                    "it names no host; write postgres://HOST/DATABASE, or ?host=/run/postgresql for a socket";
                return Err(wrong(what.into()));
            }
            [place] => given_host.or(place.host.as_ref()).is_some_and(is_socket),
            several if several.iter().filter_map(|place| place.host.as_ref()).any(is_socket) => {
                return Err(wrong("one of several hosts is a socket of this machine; name addresses".into()));
            }
            _ => false,
        };
        let tls = Tls::of(&mut url, is_local).map_err(wrong)?;
        let rows = RowsTable::of(&mut url).map_err(wrong)?;
        let tls_parameters = tls::PARAMETERS.map(|(name, _)| name);
        let own = ["password-file", "passfile"];
        let known = [&tls_parameters[..], &DRIVER_PARAMETERS, &own, &user_table::PARAMETERS].concat();
        url.finish(&known).map_err(wrong)?;
        let passfile = passfile.or_else(|| std::env::var("PGPASSFILE").ok()).map(Into::into);
        let passfile = passfile.or_else(default_passfile);
        let hosts = places.into_iter().map(|place| {
            let fields = fields_of(place, fields.clone())?;
            let known = Password::of_url(given.clone(), file.clone())?;
            let known = known.or_else(|| Password::of_variable("PGPASSWORD"));
            let password = known.unwrap_or_else(|| password_of(&fields, passfile.clone()));
            Ok(Host { config: config_of(&fields)?, fields, password })
        });
        let hosts: Vec<Host> = hosts.collect::<Result<_, String>>().map_err(wrong)?;
        let number = OPENED.fetch_add(1, Relaxed);
        Ok(Postgres {
            hosts,
            tls,
            rows,
            allows_asynchronous_failover: false,
            number,
            shown,
            leased: Mutex::default(),
        })
    }

    /// Connects to a host. The second part ends with the connection, and says why.
    pub(super) async fn dial(&self, host: &Host, purpose: &str) -> Setup<(Client, JoinHandle<String>)> {
        let mut config = host.config.clone();
        config.application_name(format!("weir {purpose}"));
        if let Some(password) = host.password.read()? {
            config.password(password);
        }
        let (client, connection) = self.connect(config).await?;
        let ended = tokio::spawn(until_ended(connection));
        // The server has to notice when we are gone, because it holds our locks until then; and it must not end idle sessions.
        // An acknowledged write is durable, whatever the default of the database is; of several hosts on more than one. Set in
        // the session also where it is right, it stays so when the server reads its configuration again. See `until_ended` for
        // the messages.
        let settings = "SELECT set_config(name, CASE name
                WHEN 'synchronous_commit' THEN CASE
                    WHEN setting = 'off' OR $1 AND setting IN ('local', 'remote_write') THEN 'on' ELSE setting END
                WHEN 'client_min_messages' THEN 'warning'
                WHEN 'default_transaction_isolation' THEN 'read committed'
                WHEN 'tcp_keepalives_idle' THEN '10' WHEN 'tcp_keepalives_interval' THEN '2'
                WHEN 'tcp_keepalives_count' THEN '3' ELSE '0' END, false)
            FROM pg_settings WHERE name IN ('synchronous_commit', 'client_min_messages',
                'default_transaction_isolation', 'tcp_keepalives_idle', 'tcp_keepalives_interval',
                'tcp_keepalives_count', 'idle_session_timeout')";
        client.query(settings, &[&self.has_several_hosts()]).await?;
        Ok((client, ended))
    }

    /// Connects with TLS or without, as the URL says.
    async fn connect(&self, mut config: Config) -> Setup<(Client, Connection<Socket, tls::Stream>)> {
        let failed = |why| Error::new(Kind::Config, format!("cannot reach store {}: {why}", self.shown));
        let connector = self.tls.connector().map_err(failed)?;
        let (mut first_failure, tries) = (None, self.tls.tries());
        for mode in tries {
            config.ssl_mode(*mode);
            let error = match config.connect(connector.clone()).await {
                Ok(connected) => return Ok(connected),
                Err(error) => error,
            };
            let explained = self.tls.explain(&error);
            // What another way to connect may change: what the server says, and what became of TLS.
            let may_differ = error.as_db_error().is_some() || explained.is_some();
            let offers_none = explained.as_ref().is_some_and(|why| why.contains(tls::OFFERS_NONE));
            let failure = match explained {
                Some(why) => Failure::Database(Meaning::Login, one_line(&why)),
                None => error.into(),
            };
            match first_failure.take() {
                None if tries.len() > 1 && may_differ => first_failure = Some(failure),
                // What failed with TLS says more, unless there is none.
                Some(first) if *mode == SslMode::Disable || offers_none => return Err(first),
                _ => return Err(failure),
            }
        }
        Err(failed("there is no way to connect".into()).into())
    }
}

/// Keeps a connection going until it ends; why it did.
async fn until_ended(mut connection: Connection<Socket, tls::Stream>) -> String {
    loop {
        match std::future::poll_fn(|context| connection.poll_message(context)).await {
            // The commit of a cancelled wait is only on this server, and acknowledged all the same, with this in front. Its
            // outcome is not known: a failover would take it back.
            Some(Ok(AsyncMessage::Notice(notice))) if notice.routine() == Some("SyncRepWaitForLSN") => {
                return format!("a commit did not wait for its standby: {}", one_line(notice.message()));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return cause(&error),
            None => return "the connection was closed".to_owned(),
        }
    }
}

/// The settings of a host: where it is, and `fields`.
fn fields_of(place: Place, mut fields: Fields) -> Result<Fields, String> {
    fields.entry("port").or_insert(place.port.unwrap_or(5432).to_string());
    if place.host.is_some() && fields.contains_key("host") {
        return Err("it has the host and the parameter host; leave one of them out".into());
    }
    // The name in a certificate is compared with it.
    if let Some(host) = place.host.or_else(|| fields.get("hostaddr").cloned()) {
        fields.entry("host").or_insert(host);
    }
    if ["host", "hostaddr"].iter().filter_map(|name| fields.get(name)).any(|place| place.contains(',')) {
        return Err(
            "a parameter names several hosts; write them as HOST:PORT,HOST:PORT before the database".into()
        );
    }
    Ok(fields)
}

fn config_of(fields: &Fields) -> Result<Config, String> {
    let mut config: Config = text(fields).parse().map_err(|error| cause(&error))?;
    config.connect_timeout(Duration::from_secs(5)).keepalives_idle(Duration::from_secs(10));
    // A peer that vanished must not hold a worker for the kernel's 15 minutes, and the cache must not be served for long
    // while another server may own the store.
    config.keepalives_interval(Duration::from_secs(2)).keepalives_retries(3);
    config.tcp_user_timeout(Duration::from_secs(15));
    Ok(config)
}

/// The password that libpq's file has for a host.
fn password_of(fields: &Fields, passfile: Option<PathBuf>) -> Password {
    let field = |name| fields.get(name).cloned();
    let user = field("user").or_else(|| std::env::var("USER").ok()).unwrap_or_default();
    let database = field("dbname").unwrap_or_else(|| user.clone());
    let port = field("port").unwrap_or_default();
    // As libpq calls the usual directory of its sockets.
    let host = field("host").filter(|host| !["/var/run/postgresql", "/tmp"].contains(&&**host));
    let host = host.unwrap_or("localhost".to_owned());
    passfile.map_or(Password::None, |path| {
        let wanted = [host, port, database, user];
        Password::Passfile(Passfile { path, wanted, has_warned: AtomicBool::new(false) })
    })
}

/// Settings as libpq and the driver read them.
pub(super) fn text(fields: &Fields) -> String {
    let quoted = |value: &str| value.replace('\\', "\\\\").replace('\'', "\\'");
    let text = fields.iter().map(|(name, value)| format!("{name}='{}'", quoted(value)));
    text.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stand_in_one_place() {
        for (url, why) in [
            ("postgres://u@a/d?host=b", "it has the host and the parameter host"),
            ("postgres:///d?host=a,b", "write them as HOST:PORT,HOST:PORT"),
            ("postgres://u@a/d?hostaddr=127.0.0.1,127.0.0.2", "write them as HOST:PORT,HOST:PORT"),
            ("postgres://u@a,b/d?port=1", "several hosts and the parameter port"),
            ("postgres://u@a,%2Frun/d", "a socket of this machine"),
        ] {
            let error = Postgres::open(url).err().unwrap_or_else(|| panic!("{url}"));
            assert_eq!(error.kind(), Kind::Config, "{url}");
            assert!(error.to_string().contains(why), "{error}");
        }
        for (url, hosts) in [
            ("postgres://u@a/d", 1),
            ("postgres:///d?host=a", 1),
            ("postgres://u@a/d?hostaddr=127.0.0.1", 1),
            ("postgres://u@a:5432,b:5433/d?target_session_attrs=any&keepalives=x", 2),
        ] {
            assert_eq!(Postgres::open(url).map(|postgres| postgres.hosts.len()).unwrap(), hosts, "{url}");
        }
    }
}
