//! The one split of a source: its slot, and the position reached.

use millpond_dataflow::Split;
use serde::{Deserialize, Serialize};

use super::change::{RowChange, TableChange};

/// A replication slot and the position reached in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostgresSplit {
    /// The slot.
    pub slot: String,
    /// The end of the last transaction that was emitted whole, in the write-ahead log; 0 before the slot was looked at.
    pub position: u64,
    /// How many changes of the transaction after it were dealt with.
    pub skip: u64,
    /// Where reading ends: with what is committed before it.
    pub stop: Option<u64>,
    /// What was read of the tables themselves, until the log is beyond it.
    pub tables: Vec<TableCopy>,
}

/// How far a table itself was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableCopy {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Ranges of its primary key, one after the other, each as a transaction saw it. More than one only when reading was
    /// interrupted.
    pub parts: Vec<TablePart>,
    /// Whether the last part reaches to the end.
    pub whole: bool,
}

/// A range of rows that one transaction read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TablePart {
    /// What it saw, as `pg_current_snapshot()` tells it.
    pub snapshot: String,
    /// What is committed at or after this position it did not see.
    pub seen_before: u64,
    /// The key of the last row that was emitted; none before the first.
    pub up_to: Vec<String>,
}

impl Split for PostgresSplit {
    fn id(&self) -> String {
        self.slot.clone()
    }
}

/// What the thread that reads hands over.
#[derive(Debug)]
pub(super) enum Item {
    /// Something other than one row more changed in the position.
    At(Box<PostgresSplit>),
    /// A row that was there when the source began: which table, and its key.
    There(usize, Vec<String>, Box<TableChange>),
    /// A change of the transaction under way; `None` for one that is passed over.
    Changed(Option<Box<TableChange>>),
    /// The end of a transaction, or of a part of the log without one of ours.
    Reached(u64),
    /// There is no more.
    End,
}

impl PostgresSplit {
    /// Moves on past an item.
    pub(super) fn pass(&mut self, item: &mut Item) {
        match item {
            Item::At(split) => self.clone_from(&**split),
            Item::There(table, key, _) => {
                if let Some(part) = self.tables.get_mut(*table).and_then(|table| table.parts.last_mut()) {
                    part.up_to = std::mem::take(key);
                }
            }
            Item::Changed(_) => self.skip += 1,
            Item::Reached(position) => {
                self.position = *position;
                self.skip = 0;
                let passed = |part: &TablePart| part.seen_before <= *position;
                if self.tables.iter().all(|table| table.whole && table.parts.iter().all(passed)) {
                    self.tables.clear();
                }
            }
            Item::End => {}
        }
    }
}

/// A position as PostgreSQL writes it.
pub(super) fn shown(position: u64) -> String {
    format!("{:X}/{:X}", position >> 32, position & 0xffff_ffff)
}

/// The record of a change, without its row.
pub(super) fn inserted(change: RowChange, time_ms: i64, position: u64) -> Box<TableChange> {
    Box::new(TableChange { change, whole_old: true, time_ms, position })
}
