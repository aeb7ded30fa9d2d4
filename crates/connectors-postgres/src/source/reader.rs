//! Takes what the thread hands over, and emits it as records.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};

use millpond_core::{Data, UserResult};
use millpond_dataflow::{Output, ReadStatus, SplitReader};

use super::change::TableChange;
use super::feed::{Feed, Shared};
use super::split::{Item, PostgresSplit};
use super::{Decode, Settings};
use crate::PostgresError;
use crate::error::Classify;

/// Batches of items that wait for the reader.
const WAITING: usize = 4;

/// Reads the slot of a source.
pub struct PostgresReader<T> {
    split: PostgresSplit,
    items: std::vec::IntoIter<Item>,
    inbox: Receiver<Result<Vec<Item>, PostgresError>>,
    shared: Arc<Shared>,
    decode: Decode<T>,
    scratch: Vec<T>,
    ended: bool,
}

impl<T: Data> PostgresReader<T> {
    pub(super) fn open(
        split: PostgresSplit,
        settings: Arc<Settings>,
        shared: Arc<Shared>,
        decode: Decode<T>,
    ) -> Result<Self, PostgresError> {
        let (out, inbox) = sync_channel(WAITING);
        // What a checkpoint holds is durable.
        shared.durable.store(split.position, Ordering::Relaxed);
        let feed = Feed::new(settings, split.clone(), Arc::clone(&shared), out);
        let thread = std::thread::Builder::new().name(format!("postgres {}", split.slot));
        thread.spawn(move || feed.run()).map_err(|source| PostgresError::Runtime { source })?;
        Ok(PostgresReader {
            split,
            items: Vec::new().into_iter(),
            inbox,
            shared,
            decode,
            scratch: Vec::new(),
            ended: false,
        })
    }

    fn next(&mut self) -> Result<Option<Item>, PostgresError> {
        loop {
            if let Some(item) = self.items.next() {
                return Ok(Some(item));
            }
            match self.inbox.try_recv() {
                Ok(items) => self.items = items?.into_iter(),
                Err(TryRecvError::Empty) => return Ok(None),
                Err(TryRecvError::Disconnected) => return Err(PostgresError::NotOpen),
            }
        }
    }

    fn emit(&mut self, change: TableChange, output: &mut Output<T>) -> Result<(), PostgresError> {
        let time_ms = change.time_ms;
        (self.decode)(change, &mut self.scratch)?;
        for record in self.scratch.drain(..) {
            output.emit_at(record, time_ms);
        }
        Ok(())
    }

    fn read_some(&mut self, limit: usize, output: &mut Output<T>) -> Result<ReadStatus, PostgresError> {
        for _ in 0..limit {
            if self.ended {
                return Ok(ReadStatus::Finished);
            }
            let Some(mut item) = self.next()? else { return Ok(ReadStatus::Idle) };
            self.split.pass(&mut item);
            match item {
                Item::There(_, _, change) | Item::Changed(Some(change)) => self.emit(*change, output)?,
                Item::End => self.ended = true,
                Item::At(_) | Item::Changed(None) | Item::Reached(_) => {}
            }
        }
        Ok(if self.ended { ReadStatus::Finished } else { ReadStatus::Ready })
    }
}

impl<T: Data> SplitReader for PostgresReader<T> {
    type Record = T;
    type Split = PostgresSplit;

    fn read(&mut self, limit: usize, output: &mut Output<T>) -> UserResult<ReadStatus> {
        self.read_some(limit, output).classify()
    }

    fn split(&self) -> PostgresSplit {
        self.split.clone()
    }
}

impl<T> Drop for PostgresReader<T> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Relaxed);
    }
}
