//! Sources are made of splits whose positions are operator state.
//!
//! A split is owned by one subtask at a time. On a fresh start the splits found are dealt out in turn;
//! after a restore they come back as operator list state (SR-01, SR-03).

use std::collections::BTreeSet;
use std::time::Duration;

use millpond_core::{Data, UserResult};
use serde::{Deserialize, Serialize};

use crate::output::Output;

/// A piece of a source together with the position reached in it.
pub trait Split: Data {
    /// Identifies the split among all splits of the source, for ever.
    fn id(&self) -> String;
}

/// What a reader did when it was asked for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStatus {
    /// There may be more at once.
    Ready,
    /// Nothing for now; the split may grow.
    Idle,
    /// The split has been read to its end.
    Finished,
}

/// Reads one split.
pub trait SplitReader: 'static {
    /// What it emits.
    type Record: Data;
    /// What it reads.
    type Split: Split;

    /// Emits about `limit` records at most. Records that are skipped or go to a side output count too:
    /// return [`ReadStatus::Ready`] after about `limit` of them, even if nothing was emitted.
    ///
    /// # Errors
    /// Ends the attempt; the split is read again from its last position in a checkpoint.
    fn read(&mut self, limit: usize, output: &mut Output<Self::Record>) -> UserResult<ReadStatus>;

    /// The split with the position after the last emitted record (SR-04).
    fn split(&self) -> Self::Split;
}

/// What a source makes of the splits that a checkpoint knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestoredSplits<P> {
    /// The present id of each split that was asked about, in that order; `None` for one to forget, so that
    /// a split found under its id later is a new one.
    pub ids: Vec<Option<String>>,
    /// Splits that the checkpoint does not know, in an order that is the same wherever it is called.
    pub new: Vec<P>,
}

/// A replayable source.
pub trait Source: 'static {
    /// What it emits.
    type Record: Data;
    /// Its pieces.
    type Split: Split;
    /// Reads a piece.
    type Reader: SplitReader<Record = Self::Record, Split = Self::Split>;

    /// Finds the splits that exist now, in an order that is the same wherever it is called.
    ///
    /// # Errors
    /// Ends the attempt.
    fn enumerate(&mut self) -> UserResult<Vec<Self::Split>>;

    /// Finds the splits that exist by now, while others are being read. Called on every subtask, every
    /// [`Source::discovery_interval`]; should not wait.
    ///
    /// # Errors
    /// Ends the attempt.
    fn discover(&mut self) -> UserResult<Vec<Self::Split>> {
        self.enumerate()
    }

    /// Starts reading `split` at its position.
    ///
    /// # Errors
    /// Ends the attempt.
    fn open_split(&mut self, split: Self::Split) -> UserResult<Self::Reader>;

    /// Compares what a checkpoint knows with what there is now. Called once per attempt that starts from
    /// one, before any split is resumed: `known` are the ids of all splits ever found, `ended` those of
    /// them of which it is recorded that they were read to their end (only kept by sources that look for
    /// new splits while running).
    ///
    /// Unless a source says otherwise, it knows its splits for ever and finds no others.
    ///
    /// # Errors
    /// Ends the attempt.
    fn restore(&mut self, known: &[String], ended: &BTreeSet<String>) -> UserResult<RestoredSplits<Self::Split>> {
        let _ = ended;
        Ok(RestoredSplits { ids: known.iter().cloned().map(Some).collect(), new: Vec::new() })
    }

    /// Takes over unfinished splits of a checkpoint, each with its present id. Called once per subtask and
    /// attempt, before the first of them is opened.
    ///
    /// # Errors
    /// Ends the attempt, for instance because splits are gone.
    fn resume(&mut self, splits: Vec<(Self::Split, String)>) -> UserResult<Vec<Self::Split>> {
        Ok(splits.into_iter().map(|(split, _)| split).collect())
    }

    /// Whether [`Source::progress`] is to be called.
    fn wants_progress(&self) -> bool {
        false
    }

    /// A checkpoint is durable that holds these positions of splits of this subtask, of some of them for the last time
    /// because they have ended. For people who watch; positions in checkpoints count.
    ///
    /// # Errors
    /// Ends the attempt.
    fn progress(&mut self, splits: Vec<Self::Split>) -> UserResult {
        let _ = splits;
        Ok(())
    }

    /// How many splits one subtask reads in turn; the others wait until one ends. Each open split may
    /// cost a file descriptor and a buffer.
    fn concurrent_splits(&self) -> usize {
        usize::MAX
    }

    /// How often to look for new splits while running; `None` for never, which makes a source whose
    /// splits all end a bounded one.
    fn discovery_interval(&self) -> Option<Duration> {
        None
    }
}
