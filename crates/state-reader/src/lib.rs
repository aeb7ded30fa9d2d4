//! Reads the state in a checkpoint without the job's code, and writes the first checkpoint of a job.
//!
//! Owns the view of a whole checkpoint: which operators and states it holds, their live entries, keys,
//! sizes and differences, as JSON by the stored schemas or as Rust types. Does *not* own formats
//! (`runs`, `checkpoint`, `state` do), the command line, or a running job.
//!
//! ```text
//! StateReader → states → entries: runs merged, newest wins → JSON | types → lines, CSV, columns
//!                 └→ lookup: the blocks of one key group
//! ```
//!
//! Invariants: nothing in storage is changed by reading; memory does not depend on the size of keyed
//! state; entries come in the order of (key group, key), so two checkpoints can be compared by walking
//! both; damaged bytes are an error that names operator and state, never a wrong entry.

mod count;
mod diff;
mod entry;
mod error;
mod export;
mod info;
mod json;
mod keyed;
mod list;
mod lookup;
mod operator;
mod reader;
mod rows;
mod top;
mod typed;
mod write;

pub use count::StateCount;
pub use diff::{Change, Difference, diff};
pub use entry::{Entries, StateEntry};
pub use error::ReaderError;
pub use export::{Column, ColumnType, Format, export};
pub use info::{Kind, StateInfo};
pub use list::StateSummary;
pub use reader::StateReader;
pub use rows::{Row, Rows};
pub use top::{GroupSize, KeySize, StateSkew, Top};
pub use write::StateWriter;
