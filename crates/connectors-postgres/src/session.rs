//! Ordinary connections: where the server is, and calls that always end.
//!
//! Owns the settings that all connections share and what a failed contact means. Each session drives its connection on the
//! thread that calls it, with a runtime of its own; nothing goes on between two calls.
//!
//! Invariant: every call ends within its deadline, with an error that says what was tried.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::config::Host;
use tokio_postgres::error::{Error as ClientError, SqlState};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Row, Socket};

use crate::PostgresError;
use crate::error::words;
use crate::tls::Tls;

/// Time for a contact unless set otherwise.
const DEADLINE: Duration = Duration::from_secs(10);
/// How long the server may take after a limit of its own has passed.
const GRACE: Duration = Duration::from_secs(5);

/// Where the server is, how to reach it, and how long that may take.
#[derive(Clone)]
pub(crate) struct Connection {
    url: String,
    /// How long a call may take that has to be answered before the job goes on.
    pub(crate) deadline: Duration,
}

impl Connection {
    pub(crate) fn new(url: &str) -> Self {
        Connection { url: url.to_owned(), deadline: DEADLINE }
    }

    /// What the address says.
    pub(crate) fn config(&self) -> Result<Config, PostgresError> {
        let invalid = |reason: String| PostgresError::Setting { setting: "url".to_owned(), reason };
        // The text itself may hold a password.
        let (address, tls) = self.address()?;
        let mut config: Config = address.parse().map_err(|error: ClientError| invalid(words(&error)))?;
        config.ssl_mode(tls.client_mode());
        if config.get_hosts().is_empty() {
            config.host("localhost");
        }
        if config.get_user().is_none() {
            return Err(invalid("it names no user".to_owned()));
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(self.deadline);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(self.deadline.max(Duration::from_secs(10)));
        }
        if config.get_application_name().is_none() {
            config.application_name("millpond");
        }
        Ok(config)
    }

    /// What the address says of TLS, and all else.
    fn address(&self) -> Result<(String, Tls), PostgresError> {
        let setting =
            |(setting, reason): (&str, String)| PostgresError::Setting { setting: setting.to_owned(), reason };
        Tls::of(&self.url).map_err(setting)
    }

    /// What the address says of TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn tls(&self) -> Result<Tls, PostgresError> {
        self.address().map(|(_, tls)| tls)
    }

    /// Host and port, for people.
    pub(crate) fn server(&self) -> String {
        let Ok(config) = self.config() else { return "a server".to_owned() };
        let hosts = config.get_hosts().iter().enumerate().map(|(index, host)| {
            let port = config.get_ports().get(index).or(config.get_ports().first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(host) => format!("{host}:{port}"),
                Host::Unix(path) => format!("{}:{port}", path.display()),
            }
        });
        hosts.collect::<Vec<_>>().join(",")
    }

    /// The database, for people.
    pub(crate) fn database(&self) -> String {
        let config = self.config().ok();
        let name = config.as_ref().and_then(|config| config.get_dbname().or(config.get_user()));
        name.unwrap_or_default().to_owned()
    }

    /// Connects. `limit` is how long a statement may take at the server.
    pub(crate) fn open(&self, limit: Duration) -> Result<Session, PostgresError> {
        let config = self.config()?;
        let runtime = runtime()?;
        #[cfg(feature = "tls")]
        let client = self.connect(&config, &runtime, crate::tls::Connector::new(&self.tls()?)?)?;
        #[cfg(not(feature = "tls"))]
        let client = {
            if config.get_ssl_mode() == tokio_postgres::config::SslMode::Require {
                return Err(self.no_tls());
            }
            self.connect(&config, &runtime, tokio_postgres::NoTls)?
        };
        let session = Session { runtime, client, limit: limit + GRACE };
        let (limit_ms, lock_ms) = (limit.as_millis(), limit.min(self.deadline).as_millis());
        // Texts of values are the same in every session; a client that is gone does not hold its locks.
        let settings = format!(
            "SET statement_timeout = {limit_ms}; SET idle_session_timeout = 0; SET lock_timeout = {lock_ms}; \
             SET idle_in_transaction_session_timeout = {limit_ms}; SET client_min_messages = warning; {TEXTS}"
        );
        session.batch("set up a session", &settings)?;
        Ok(session)
    }

    fn connect<T>(&self, config: &Config, runtime: &Runtime, tls: T) -> Result<Client, PostgresError>
    where
        T: MakeTlsConnect<Socket>,
        T::Stream: Send + 'static,
    {
        let started = Instant::now();
        let connecting = runtime.block_on(async { tokio::time::timeout(self.deadline, config.connect(tls)).await });
        let (client, connection) = match connecting {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return Err(self.no_contact(config, started, &error)),
            Err(_) => return Err(self.unreachable(started, String::new())),
        };
        runtime.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = words(&error), "a connection to PostgreSQL ended");
            }
        });
        Ok(client)
    }

    /// The error of an address that asks for what was not built.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn no_tls(&self) -> PostgresError {
        let reason = "it is not built in, see the feature postgres-tls".to_owned();
        PostgresError::Tls { server: self.server(), reason }
    }

    pub(crate) fn unreachable(&self, since: Instant, reason: String) -> PostgresError {
        PostgresError::Unreachable { server: self.server(), waited_ms: since.elapsed().as_millis(), reason }
    }

    /// The error of a connection that did not come about.
    fn no_contact(&self, config: &Config, started: Instant, error: &ClientError) -> PostgresError {
        let (server, reason) = (self.server(), words(error));
        let code = error.code().cloned();
        if code == Some(SqlState::INVALID_PASSWORD) || code == Some(SqlState::INVALID_AUTHORIZATION_SPECIFICATION) {
            return PostgresError::Credentials { server, reason };
        }
        if code == Some(SqlState::INVALID_CATALOG_NAME) {
            return PostgresError::NoDatabase { database: self.database(), server };
        }
        if code == Some(SqlState::INSUFFICIENT_PRIVILEGE) {
            return PostgresError::NotPermitted { operation: "connect".to_owned(), reason };
        }
        if code.is_none() && is_about_tls(error) {
            return PostgresError::Tls { server, reason };
        }
        if config.get_password().is_none() && reason.contains("password missing") {
            return PostgresError::Credentials { server, reason };
        }
        self.unreachable(started, reason)
    }
}

/// Whether the two did not agree on TLS; a connection that broke in the handshake says nothing about that.
fn is_about_tls(error: &ClientError) -> bool {
    let cause = std::error::Error::source(error);
    match cause.and_then(|cause| cause.downcast_ref::<std::io::Error>()) {
        Some(cause) => cause.kind() == std::io::ErrorKind::InvalidData,
        None => error.to_string().contains("TLS"),
    }
}

/// Settings that decide how values look as texts.
pub(crate) const TEXTS: &str = "SET datestyle = 'ISO'; SET intervalstyle = 'iso_8601'; SET extra_float_digits = 3; \
                                SET bytea_output = 'hex'; SET timezone = 'UTC'";

/// A runtime for one thread.
pub(crate) fn runtime() -> Result<Runtime, PostgresError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|source| PostgresError::Runtime { source })
}

/// A connection in one thread's hands. Dropped, it is closed.
pub(crate) struct Session {
    runtime: Runtime,
    pub(crate) client: Client,
    limit: Duration,
}

impl Session {
    /// Waits for the answer to a call.
    pub(crate) fn call<T>(
        &self,
        operation: &str,
        call: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, PostgresError> {
        self.call_or(operation, |error| PostgresError::call(operation, error), call)
    }

    /// Drives connections of this session, and others, until `future` is done.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// The rows of a query.
    pub(crate) fn query(
        &self,
        operation: &str,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, PostgresError> {
        self.call(operation, self.client.query(sql, parameters))
    }

    /// Executes statements without parameters.
    pub(crate) fn batch(&self, operation: &str, sql: &str) -> Result<(), PostgresError> {
        self.call(operation, self.client.batch_execute(sql))
    }

    /// The same, where errors mean something else.
    pub(crate) fn call_or<T>(
        &self,
        operation: &str,
        meaning: impl FnOnce(ClientError) -> PostgresError,
        call: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, PostgresError> {
        let answer = self.runtime.block_on(async { tokio::time::timeout(self.limit, call).await });
        match answer {
            Ok(result) => result.map_err(meaning),
            Err(_) => {
                let (operation, waited_ms) = (operation.to_owned(), self.limit.as_millis());
                Err(PostgresError::TimedOut { operation, waited_ms })
            }
        }
    }
}

/// A name in SQL.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text in SQL.
pub(crate) fn literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if doubled.contains('\\') { format!(" E'{}'", doubled.replace('\\', "\\\\")) } else { format!("'{doubled}'") }
}
