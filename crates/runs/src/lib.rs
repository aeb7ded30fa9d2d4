//! The data files of a checkpoint: immutable, sorted, compressed *runs* of rows.
//!
//! A *row* is (section, key group, key bytes) with a value or a tombstone. A *section* is one named
//! state of one operator. An epoch's rows are collected unsorted in a [`RowBuffer`] on the worker's
//! thread; a background thread sorts and encodes them with [`write_runs`]. [`RunReader`] reads them
//! back, only the blocks that a range of key groups needs; [`merge_runs`] folds several runs into
//! one, the newest row winning; [`LiveRows`] walks that without writing; [`verify`] checks every byte.
//!
//! The memory of row buffers and files is used again ([`give_back`], [`set_spare_limit`]).
//!
//! Owns the byte layout of run files (`docs/formats/runs.md`). Does *not* own where files live, what
//! they are called, which of them are live, or what keys and values mean.
//!
//! ```text
//! RowBuffer → sort → writer → EncodedRun → (storage) → RunReader → Cursor → rows
//!                      ↑________________ merge ______________________|
//! ```
//!
//! Invariants: rows of a file are strictly ascending by (section name, key group, key); every byte is
//! under a checksum; damaged bytes give a typed error, never a panic and never a wrong row.

mod block;
mod buffer;
mod compress;
mod error;
mod footer;
mod live;
mod merge;
mod prefetch;
mod reader;
mod row;
mod settings;
mod side_by_side;
mod sort;
mod source;
mod spare;
mod verify;
mod writer;

pub use buffer::{BufferedRow, RowBuffer, StateIndex};
pub use error::RunError;
pub use footer::{Description, FORMAT_VERSION, Section};
pub use live::LiveRows;
pub use merge::{MergeReport, merge_runs, merge_runs_keeping};
pub use prefetch::Prefetch;
pub use reader::{Cursor, RunReader};
pub use row::{MAX_ROW_BYTES, RowRef};
pub use settings::{Compression, RunSettings};
pub use side_by_side::side_by_side;
pub use source::{MemoryRun, ReadError, ReadRange, StoredRun};
pub use spare::{give_back, set_spare_limit, spare_epoch};
pub use verify::verify;
pub use writer::{EncodedRun, RunInfo, SectionInfo, write_each_run, write_runs};
