//! From the URL of a PostgreSQL server to connections with it.

use super::tls::{self, Tls};
use super::{OPENED, Postgres, cause};
use crate::password::{Passfile, Password, default_passfile};
use crate::sql::{Failure, Meaning, Setup, one_line};
use crate::store_url::StoreUrl;
use crate::user_table::{self, Names};
use crate::{Error, Kind, redacted};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, Connection, Socket};

/// The parameters of a URL that the driver knows what to do with.
const DRIVER_PARAMETERS: [&str; 11] = [
    "host",
    "hostaddr",
    "port",
    "user",
    "dbname",
    "options",
    "channel_binding",
    "sslnegotiation",
    "target_session_attrs",
    "keepalives",
    "load_balance_hosts",
];

impl Postgres {
    pub(crate) fn open(url: &str) -> Result<Postgres, Error> {
        let shown: Arc<str> = redacted(url).into();
        let wrong = |why: String| Error::new(Kind::Config, format!("{shown} is no PostgreSQL URL: {why}"));
        let mut url = StoreUrl::parse(url).map_err(wrong)?;
        let (given, file) = (url.take("password").or(url.password.take()), url.take("password-file"));
        let passfile = url.take("passfile");
        // Both are for weir to say.
        for ignored in ["application_name", "connect_timeout"] {
            url.take(ignored);
        }
        let mut fields: BTreeMap<&str, String> =
            DRIVER_PARAMETERS.into_iter().filter_map(|name| Some((name, url.take(name)?))).collect();
        let is_named_twice = url.host.is_some() && fields.contains_key("host");
        let port = url.port.unwrap_or(5432).to_string();
        let parts = [
            ("host", url.host.take()),
            ("user", url.user.take()),
            ("dbname", url.database.take()),
            ("port", Some(port)),
        ];
        for (name, value) in parts {
            value.map(|value| fields.entry(name).or_insert(value));
        }
        let places = ["host", "hostaddr"].map(|name| fields.get(name).cloned());
        // Each session would take the first one that answers: some the primary, some a standby, which is behind.
        if is_named_twice || places.iter().flatten().any(|place| place.contains(',')) {
            return Err(wrong("it names several hosts; name the primary alone".into()));
        }
        let [host, address] = places;
        let host = host.or(address);
        let is_local = host.as_ref().is_some_and(|host| host.starts_with('/'));
        let tls = Tls::of(&mut url, is_local).map_err(wrong)?;
        let user_table = Names::of(&mut url).map_err(wrong)?.map(|names| (names, OnceLock::new()));
        let tls_parameters = tls::PARAMETERS.map(|(name, _)| name);
        let own = ["password-file", "passfile"];
        let known = [&tls_parameters[..], &DRIVER_PARAMETERS, &own, &user_table::PARAMETERS].concat();
        url.finish(&known).map_err(wrong)?;
        // The name in a certificate is compared with it.
        host.clone().map(|host| fields.entry("host").or_insert(host));
        let text: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", quoted(value))).collect();
        let mut config: Config = text.join(" ").parse().map_err(|error| wrong(cause(&error)))?;
        config.connect_timeout(Duration::from_secs(5)).keepalives_idle(Duration::from_secs(10));
        // A peer that vanished must not hold a worker for the kernel's 15 minutes, and the cache must not be served for long
        // while another server may own the store.
        config.keepalives_interval(Duration::from_secs(2)).keepalives_retries(3);
        config.tcp_user_timeout(Duration::from_secs(15));
        let user =
            config.get_user().map(str::to_owned).or_else(|| std::env::var("USER").ok()).unwrap_or_default();
        let database = config.get_dbname().map_or_else(|| user.clone(), str::to_owned);
        let port = config.get_ports().first().map_or(String::new(), u16::to_string);
        let known =
            Password::of_url(given, file).map_err(wrong)?.or_else(|| Password::of_variable("PGPASSWORD"));
        let password = known.unwrap_or_else(|| {
            let path = passfile
                .or_else(|| std::env::var("PGPASSFILE").ok())
                .map(Into::into)
                .or_else(default_passfile);
            // As libpq calls the usual directory of its sockets.
            let host = host
                .filter(|host| host != "/var/run/postgresql" && host != "/tmp")
                .unwrap_or("localhost".into());
            let wanted = [host, port, database, user];
            path.map_or(Password::None, |path| {
                Password::Passfile(Passfile { path, wanted, has_warned: AtomicBool::new(false) })
            })
        });
        let number = OPENED.fetch_add(1, Relaxed);
        Ok(Postgres { config, password, tls, user_table, others_write: false, number, shown })
    }

    /// Connects. The second part ends with the connection, and says why.
    pub(super) async fn dial(&self, purpose: &str) -> Setup<(Client, JoinHandle<String>)> {
        let mut config = self.config.clone();
        config.application_name(format!("weir {purpose}"));
        if let Some(password) = self.password.read()? {
            config.password(password);
        }
        let (client, connection) = self.connect(config).await?;
        let ended = tokio::spawn(async move {
            match connection.await {
                Ok(()) => "the connection was closed".to_owned(),
                Err(error) => cause(&error),
            }
        });
        // The server has to notice when we are gone, because it holds our locks until then; and it must not end idle sessions.
        let settings = "SELECT set_config(name, CASE name
                WHEN 'tcp_keepalives_idle' THEN '10' WHEN 'tcp_keepalives_interval' THEN '2'
                WHEN 'tcp_keepalives_count' THEN '3' ELSE '0' END, false)
            FROM pg_settings WHERE name IN ('tcp_keepalives_idle', 'tcp_keepalives_interval',
                'tcp_keepalives_count', 'idle_session_timeout')";
        client.query(settings, &[]).await?;
        Ok((client, ended))
    }

    /// Connects with TLS or without, as the URL says.
    async fn connect(&self, mut config: Config) -> Setup<(Client, Connection<Socket, tls::Stream>)> {
        let failed = |why| Error::new(Kind::Config, format!("cannot reach store {}: {why}", self.shown));
        let connector = self.tls.connector().map_err(failed)?;
        let mut first_failure = None;
        for attempt in self.tls.tries() {
            config.ssl_mode(attempt.mode);
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
                None if attempt.may_fail && may_differ => first_failure = Some(failure),
                // What failed with TLS says more, unless there is none.
                Some(first) if attempt.mode == SslMode::Disable || offers_none => return Err(first),
                _ => return Err(failure),
            }
        }
        Err(failed("there is no way to connect".into()).into())
    }
}

/// A value as it stands in the text of settings that libpq and the driver read.
pub(super) fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_hosts_are_refused() {
        for url in [
            "postgres://u@a,b/d",
            "postgres://u@a:5432,b:5433/d",
            "postgres://u@a/d?host=b",
            "postgres:///d?host=a,b",
            "postgres://u@a/d?hostaddr=127.0.0.1,127.0.0.2",
        ] {
            let error = Postgres::open(url).err().unwrap_or_else(|| panic!("{url}"));
            assert_eq!(error.kind(), Kind::Config, "{url}");
            assert!(error.to_string().ends_with("names several hosts; name the primary alone"), "{error}");
        }
        for url in ["postgres://u@a/d", "postgres:///d?host=a", "postgres://u@a/d?hostaddr=127.0.0.1"] {
            assert!(Postgres::open(url).is_ok(), "{url}");
        }
    }
}
