//! Follows the log of a database: transactions and their changes, as items for the reader.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pgwire_replication::{ReplicationClient, ReplicationEvent};
use tokio_postgres::Client;

use super::OnTruncate;
use super::change::{Row, RowChange, TableChange, TableShape};
use super::feed::Feed;
use super::filter::{self, Seen};
use super::pgoutput::{Cell, Message, Old, Relation, decode};
use super::plan::Plan;
use super::split::{Item, shown};
use crate::PostgresError;

/// How long something that waits to be handed over waits for more.
const LINGER: Duration = Duration::from_millis(2);
/// How long the server is waited for between two looks at the reader.
const TICK: Duration = Duration::from_millis(50);
/// Milliseconds from 1970 to 2000, where PostgreSQL begins to count.
const MILLENNIUM_MS: i64 = 946_684_800_000;

/// The log, as far as one connection tells it.
pub(super) struct Log<'a> {
    feed: &'a mut Feed,
    plan: Plan,
    client: &'a Client,
    relations: HashMap<u32, Known>,
    transaction: Option<Transaction>,
    silence: Silence,
}

/// Whether a server that says nothing is still there.
struct Silence {
    heard: Instant,
    /// When it was asked on the ordinary connection, or heard.
    asked: Instant,
}

/// A table that the server has told of.
#[derive(Clone)]
struct Known {
    /// `None` when it is none of those that are read.
    shape: Option<Arc<TableShape>>,
    /// Where it is in the plan, and among those that were read.
    planned: Option<usize>,
    copied: Option<usize>,
}

struct Transaction {
    id: u32,
    position: u64,
    time_ms: i64,
    /// Changes that were dealt with before the connection began.
    skip: u64,
}

impl<'a> Log<'a> {
    pub(super) fn new(feed: &'a mut Feed, plan: Plan, client: &'a Client) -> Self {
        let silence = Silence { heard: Instant::now(), asked: Instant::now() };
        Log { feed, plan, client, relations: HashMap::new(), transaction: None, silence }
    }

    /// Until the end, or the reader has gone.
    pub(super) async fn follow(mut self, replication: &mut ReplicationClient) -> Result<(), PostgresError> {
        loop {
            replication.update_applied_lsn(self.feed.shared.durable.load(Ordering::Relaxed).into());
            let patience = if self.feed.has_pending() { LINGER } else { TICK };
            let event = match tokio::time::timeout(patience, replication.recv()).await {
                Err(_) => {
                    if !self.feed.flush().await {
                        return Ok(());
                    }
                    self.listen().await?;
                    continue;
                }
                Ok(Ok(Some(event))) => event,
                Ok(Ok(None)) => return Err(self.ended("the server ended it".to_owned())),
                Ok(Err(error)) => return Err(self.feed.meaning(&error)),
            };
            self.silence = Silence { heard: Instant::now(), asked: Instant::now() };
            let is_end = self.take(event).await?;
            if is_end {
                self.feed.push(Item::End);
            }
            let has_reader = !(is_end || self.feed.is_full()) || self.feed.flush().await;
            if is_end || !has_reader {
                return Ok(());
            }
        }
    }

    /// Asks a server that has been silent for the deadline whether it is there. One that only this connection does not hear is
    /// believed for as long as its settings say.
    async fn listen(&mut self) -> Result<(), PostgresError> {
        let (deadline, heard) = (self.feed.settings.connection.deadline, self.silence.heard);
        if self.silence.asked.elapsed() < deadline {
            return Ok(());
        }
        match tokio::time::timeout(deadline, self.client.batch_execute("")).await {
            Ok(answer) => answer.map_err(|error| PostgresError::call("ask the server whether it is there", error))?,
            Err(_) => return Err(self.feed.settings.connection.unreachable(heard, "it hangs".to_owned())),
        }
        self.silence.asked = Instant::now();
        let limit = self.plan.sender_timeout * 3 / 2;
        if limit.is_zero() || heard.elapsed() < limit.max(deadline) {
            return Ok(());
        }
        Err(self.ended(format!("nothing was heard for {} ms", heard.elapsed().as_millis())))
    }

    fn ended(&self, reason: String) -> PostgresError {
        PostgresError::Replication { server: self.feed.settings.connection.server(), reason }
    }

    /// Whether what comes is at or behind the end.
    fn is_beyond(&self, position: u64) -> bool {
        self.feed.split.stop.is_some_and(|stop| position >= stop)
    }

    /// Deals with an event; true at the end.
    async fn take(&mut self, event: ReplicationEvent) -> Result<bool, PostgresError> {
        match event {
            ReplicationEvent::Begin { final_lsn, xid, commit_time_micros } => {
                let position = final_lsn.as_u64();
                if self.is_beyond(position) {
                    return Ok(true);
                }
                let time_ms = commit_time_micros.div_euclid(1_000) + MILLENNIUM_MS;
                self.transaction = Some(Transaction { id: xid, position, time_ms, skip: self.feed.split.skip });
            }
            ReplicationEvent::Commit { end_lsn, .. } => {
                self.transaction = None;
                self.feed.push(Item::Reached(end_lsn.as_u64()));
                return Ok(self.is_beyond(end_lsn.as_u64()));
            }
            ReplicationEvent::KeepAlive { wal_end, .. } => {
                let position = wal_end.as_u64();
                // Between two transactions everything up to here has been told.
                if self.transaction.is_none() && self.feed.split.skip == 0 {
                    if position > self.feed.split.position {
                        self.feed.push(Item::Reached(position));
                    }
                    return Ok(self.is_beyond(position));
                }
            }
            ReplicationEvent::XLogData { data, .. } => self.message(decode(&data)?).await?,
            ReplicationEvent::Message { .. } | ReplicationEvent::StoppedAt { .. } => {}
        }
        Ok(false)
    }

    async fn message(&mut self, message: Message) -> Result<(), PostgresError> {
        match message {
            Message::Relation(relation) => self.learn(relation),
            Message::Insert { relation, new } => {
                let known = self.known(relation)?;
                self.change(&known, true, |shape| RowChange::Insert { new: row(shape, new) }).await?;
            }
            Message::Delete { relation, old } => {
                let known = self.known(relation)?;
                self.change(&known, old.whole, |shape| RowChange::Delete { old: row(shape, old.row) }).await?;
            }
            Message::Update { relation, old, mut new } => {
                let known = self.known(relation)?;
                let whole = old.as_ref().is_some_and(|old| old.whole);
                if let Some(Old { whole: true, row }) = &old {
                    fill(&mut new, row);
                }
                let change = |shape: &Arc<TableShape>| RowChange::Update {
                    old: old.map(|old| row(shape, old.row)),
                    new: row(shape, new),
                };
                self.change(&known, whole, change).await?;
            }
            Message::Truncate { relations } => self.truncate(&relations)?,
            Message::Other => {}
        }
        Ok(())
    }

    fn learn(&mut self, relation: Relation) {
        let Relation { id, schema, name, columns, .. } = relation;
        if !self.feed.settings.reads(&schema, &name) {
            self.relations.insert(id, Known { shape: None, planned: None, copied: None });
            return;
        }
        let planned = self.plan.place(&schema, &name);
        let copied = self.feed.split.tables.iter().position(|table| table.schema == schema && table.name == name);
        let key = planned.map_or_else(Vec::new, |place| {
            let table = &self.plan.tables[place];
            let names = table.key.iter().map(|at| &table.columns[*at].name);
            names.filter_map(|name| columns.iter().position(|(column, _)| column == name)).collect()
        });
        let shape = Arc::new(TableShape { schema, name, columns, key });
        self.relations.insert(id, Known { shape: Some(shape), planned, copied });
    }

    fn known(&self, relation: u32) -> Result<Known, PostgresError> {
        let unknown = PostgresError::Stream { what: "a table that was told of before", at: 1, bytes: 5 };
        self.relations.get(&relation).cloned().ok_or(unknown)
    }

    /// The transaction under way, after a change of it was counted; `None` for one that was dealt with before.
    fn count(&mut self) -> Result<Option<(u32, u64, i64)>, PostgresError> {
        let outside = PostgresError::Stream { what: "the begin of a transaction", at: 0, bytes: 0 };
        let transaction = self.transaction.as_mut().ok_or(outside)?;
        if transaction.skip > 0 {
            transaction.skip -= 1;
            return Ok(None);
        }
        Ok(Some((transaction.id, transaction.position, transaction.time_ms)))
    }

    async fn change(
        &mut self,
        known: &Known,
        whole_old: bool,
        change: impl FnOnce(&Arc<TableShape>) -> RowChange,
    ) -> Result<(), PostgresError> {
        let Some((id, position, time_ms)) = self.count()? else { return Ok(()) };
        let Some(shape) = &known.shape else {
            self.feed.push(Item::Changed(None));
            return Ok(());
        };
        let copy = known.copied.and_then(|at| self.feed.split.tables.get(at));
        let change = match (filter::seen(copy, id, position)?, copy, known.planned) {
            (Seen::None, ..) => Some(change(shape)),
            (Seen::Some(seen), Some(copy), Some(place)) => {
                let table = &self.plan.tables[place];
                filter::left_of(change(shape), &seen, copy, table, self.client).await?
            }
            _ => None,
        };
        let item = change.map(|change| Box::new(TableChange { change, whole_old, time_ms, position }));
        self.feed.push(Item::Changed(item));
        Ok(())
    }

    fn truncate(&mut self, relations: &[u32]) -> Result<(), PostgresError> {
        let Some((id, position, _)) = self.count()? else { return Ok(()) };
        for relation in relations {
            let known = self.known(*relation)?;
            let Some(shape) = known.shape else { continue };
            let copy = known.copied.and_then(|at| self.feed.split.tables.get(at));
            if matches!(filter::seen(copy, id, position)?, Seen::All) {
                continue;
            }
            let (table, position) = (shape.full_name(), shown(position));
            match self.feed.settings.on_truncate {
                OnTruncate::Fail => return Err(PostgresError::Truncated { table, position }),
                OnTruncate::Ignore => tracing::warn!(table, position, "a table was truncated: its rows stay"),
            }
        }
        self.feed.push(Item::Changed(None));
        Ok(())
    }
}

fn row(shape: &Arc<TableShape>, cells: Vec<Cell>) -> Row {
    Row { table: Arc::clone(shape), cells }
}

/// Large values that did not change are in the old row.
fn fill(new: &mut [Cell], old: &[Cell]) {
    for (new, old) in new.iter_mut().zip(old) {
        if *new == Cell::Unchanged {
            new.clone_from(old);
        }
    }
}
