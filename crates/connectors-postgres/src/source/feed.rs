//! The thread of a source: makes the slot, reads the tables, follows the log, and begins again when a connection breaks.
//!
//! Invariants: its position is behind the last thing that it handed over, or is about to; the server is told only of positions
//! that are in a durable checkpoint; the thread ends soon after the reader has gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, Instant};

use millpond_core::ErrorKind;
use pgwire_replication::{PgWireError, ReplicationClient, ReplicationConfig};
use tokio_postgres::config::Host;

use super::log::Log;
use super::plan::{Plan, ready_slot, settle};
use super::split::{Item, PostgresSplit, TableCopy, shown};
use super::{Settings, copy};
use crate::PostgresError;
use crate::session::Session;
#[cfg(feature = "tls")]
use crate::tls::{Bridge, Mode, NoBridge};

/// Items that are handed over at once.
const BATCH: usize = 512;
/// Between two looks at a reader that has no room.
const NO_ROOM: Duration = Duration::from_millis(2);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);
/// How often the server is told where the reader is.
const STATUS: Duration = Duration::from_millis(500);
/// The same texts of values as in `session`.
const OPTIONS: &str =
    "-c datestyle=ISO -c intervalstyle=iso_8601 -c extra_float_digits=3 -c bytea_output=hex -c timezone=UTC";
/// Events that wait in the client.
const EVENTS: usize = 256;

/// What reader and thread share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) closed: AtomicBool,
    /// The position of the last durable checkpoint.
    pub(super) durable: AtomicU64,
}

impl Shared {
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }
}

pub(super) struct Feed {
    pub(super) settings: Arc<Settings>,
    pub(super) split: PostgresSplit,
    pub(super) shared: Arc<Shared>,
    out: SyncSender<Result<Vec<Item>, PostgresError>>,
    pending: Vec<Item>,
    /// Whether something was handed over since the last failure.
    moved: bool,
    /// Whether reading has begun: from then on failures are waited out.
    pub(super) live: bool,
}

/// What became of the items that were to be handed over.
enum Handed {
    All,
    NoRoom,
    Gone,
}

impl Feed {
    pub(super) fn new(
        settings: Arc<Settings>,
        split: PostgresSplit,
        shared: Arc<Shared>,
        out: SyncSender<Result<Vec<Item>, PostgresError>>,
    ) -> Self {
        Feed { settings, split, shared, out, pending: Vec::new(), moved: false, live: false }
    }

    /// Runs until the reader has gone, the end is reached, or something fails for good.
    pub(super) fn run(mut self) {
        let mut failing: Option<Instant> = None;
        loop {
            let Err(error) = self.go() else { return };
            if self.shared.is_closed() {
                return;
            }
            if std::mem::take(&mut self.moved) {
                failing = None;
            }
            let failed_for = failing.get_or_insert_with(Instant::now).elapsed();
            let passing = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Uncertain);
            if !passing || !self.live || failed_for >= self.settings.patience {
                // Nobody is there to hear it if this fails.
                let _ = self.out.send(Err(error));
                return;
            }
            let slot = &self.settings.slot;
            tracing::warn!(slot, error = millpond_core::error::chain(&error), "replication broke; tries again");
            std::thread::sleep(PAUSE);
        }
    }

    fn go(&mut self) -> Result<(), PostgresError> {
        let settings = Arc::clone(&self.settings);
        // The slot is made once all transactions under way are over, which may take a while.
        let session = settings.connection.open(settings.patience)?;
        let plan = Plan::look(&session, &settings)?;
        let fresh = self.split.position == 0;
        let position = ready_slot(&session, &settings, self.split.position)?;
        self.live = true;
        if fresh {
            if settings.snapshot {
                let shared = Arc::clone(&self.shared);
                settle(&session, || !shared.is_closed())?;
            }
            self.begin(&plan, position);
        }
        if self.split.tables.iter().any(|table| !table.whole) && !copy::read(self, &session, &plan)? {
            return Ok(());
        }
        session.block_on(self.follow(&session, plan))
    }

    fn begin(&mut self, plan: &Plan, position: u64) {
        let mut split = self.split.clone();
        split.position = position;
        if self.settings.snapshot {
            let copies = plan.tables.iter().map(|table| TableCopy {
                schema: table.schema.clone(),
                name: table.name.clone(),
                parts: Vec::new(),
                whole: false,
            });
            split.tables = copies.collect();
        }
        self.push(Item::At(Box::new(split)));
    }

    async fn follow(&mut self, session: &Session, plan: Plan) -> Result<(), PostgresError> {
        #[cfg_attr(not(feature = "tls"), expect(unused_mut, reason = "only a bridge changes it"))]
        let mut config = self.replication()?;
        #[cfg(feature = "tls")]
        let _bridge = self.bridge(&mut config).await?;
        let deadline = self.settings.connection.deadline;
        let server = self.settings.connection.server();
        let mut replication = ReplicationClient::connect(config).await.map_err(|error| self.meaning(&error))?;
        match tokio::time::timeout(deadline, replication.wait_started()).await {
            Ok(started) => started.map_err(|error| self.meaning(&error))?,
            Err(_) => {
                let (waited_ms, reason) = (deadline.as_millis(), "replication does not start".to_owned());
                return Err(PostgresError::Unreachable { server, waited_ms, reason });
            }
        }
        Log::new(self, plan, &session.client).follow(&mut replication).await
    }

    /// The connection under TLS, if the address asks for it and the server has it. Replication goes through it from then on.
    #[cfg(feature = "tls")]
    async fn bridge(&self, config: &mut ReplicationConfig) -> Result<Option<Bridge>, PostgresError> {
        let connection = &self.settings.connection;
        let (tls, started, server) = (connection.tls()?, Instant::now(), connection.server());
        if tls.mode == Mode::Disable || config.is_unix_socket() {
            return Ok(None);
        }
        let opening = Bridge::open(&tls, &config.host, config.port);
        let Ok(opened) = tokio::time::timeout(connection.deadline, opening).await else {
            return Err(connection.unreachable(started, "no answer to the request for TLS".to_owned()));
        };
        match opened {
            Ok(bridge) => {
                config.host = bridge.directory.path.display().to_string();
                Ok(Some(bridge))
            }
            Err(NoBridge::Plain) => Ok(None),
            Err(NoBridge::Disagree(reason)) => Err(PostgresError::Tls { server, reason }),
            Err(NoBridge::Broken(error)) => Err(connection.unreachable(started, error.to_string())),
            Err(NoBridge::Wrong(error)) => Err(error),
        }
    }

    /// How the log is asked for.
    fn replication(&self) -> Result<ReplicationConfig, PostgresError> {
        let settings = &self.settings;
        let config = settings.connection.config()?;
        let host = match config.get_hosts().first() {
            Some(Host::Tcp(host)) => host.clone(),
            Some(Host::Unix(path)) => path.display().to_string(),
            None => "localhost".to_owned(),
        };
        let user = config.get_user().unwrap_or_default().to_owned();
        let password = String::from_utf8_lossy(config.get_password().unwrap_or_default()).into_owned();
        let database = config.get_dbname().unwrap_or(&user).to_owned();
        let publication = settings.publication.as_str();
        let mut replication =
            ReplicationConfig::new(host, user, password, database, settings.slot.clone(), publication);
        replication.port = config.get_ports().first().copied().unwrap_or(5432);
        replication.start_lsn = self.split.position.into();
        replication.ack_lsn = Some(self.shared.durable.load(Ordering::Relaxed).into());
        replication.status_interval = STATUS;
        replication.idle_wakeup_interval = STATUS;
        replication.buffer_events = EVENTS;
        replication.options = Some(OPTIONS.to_owned());
        replication.application_name = Some("millpond".to_owned());
        Ok(replication)
    }

    /// The error of a replication connection, by what it means.
    pub(super) fn meaning(&self, error: &PgWireError) -> PostgresError {
        let (slot, server) = (self.settings.slot.clone(), self.settings.connection.server());
        let (reason, position) = (error.to_string(), shown(self.split.position));
        let has = |code: &str| reason.contains(&format!("SQLSTATE {code}"));
        match error {
            PgWireError::Auth(_) => PostgresError::Credentials { server, reason },
            PgWireError::Server(_) if has("28P01") || has("28000") => PostgresError::Credentials { server, reason },
            PgWireError::Tls(_) => PostgresError::Tls { server, reason },
            PgWireError::Server(_) if has("42501") => {
                PostgresError::NotPermitted { operation: format!("read replication slot {slot}"), reason }
            }
            PgWireError::Server(_) if has("58P01") => PostgresError::SlotLost { slot, position },
            _ => PostgresError::Replication { server, reason },
        }
    }

    /// Adds an item to those that are to be handed over, and moves on past it.
    pub(super) fn push(&mut self, mut item: Item) {
        if let Item::There(table, key, _) = &item
            && let Some(part) = self.split.tables.get_mut(*table).and_then(|table| table.parts.last_mut())
        {
            // The item keeps its key for the reader.
            part.up_to.clone_from(key);
        } else {
            self.split.pass(&mut item);
        }
        self.pending.push(item);
    }

    /// Whether it is time to hand over.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= BATCH
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn hand_over(&mut self) -> Handed {
        if self.shared.is_closed() {
            return Handed::Gone;
        }
        if self.pending.is_empty() {
            return Handed::All;
        }
        match self.out.try_send(Ok(std::mem::take(&mut self.pending))) {
            Ok(()) => {
                self.moved = true;
                Handed::All
            }
            Err(TrySendError::Disconnected(_)) => Handed::Gone,
            Err(TrySendError::Full(back)) => {
                self.pending = back.unwrap_or_default();
                Handed::NoRoom
            }
        }
    }

    /// Hands over, on a thread that has nothing else to do; false when the reader has gone.
    pub(super) fn flush_waiting(&mut self) -> Result<bool, PostgresError> {
        loop {
            match self.hand_over() {
                Handed::All => return Ok(true),
                Handed::Gone => return Ok(false),
                Handed::NoRoom => std::thread::sleep(NO_ROOM),
            }
        }
    }

    /// Hands over while the connections go on; false when the reader has gone.
    pub(super) async fn flush(&mut self) -> bool {
        loop {
            match self.hand_over() {
                Handed::All => return true,
                Handed::Gone => return false,
                Handed::NoRoom => tokio::time::sleep(NO_ROOM).await,
            }
        }
    }
}
