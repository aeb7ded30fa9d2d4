//! The world outside: a target with transactions, a sink that writes to it, and traps in user code.
//!
//! Owns what is prepared and what is committed, for ever and for everybody: no crash of a job touches
//! it. Does *not* judge: it records, and [`crate::cluster`] checks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use millpond_core::{Attempt, Epoch, UserResult};
use millpond_dataflow::{Sink, SinkContext};
use serde::{Deserialize, Serialize};

/// A record of output: the `seq`-th of its key, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Line {
    /// The key.
    pub key: u64,
    /// Which record of the key.
    pub seq: u64,
    /// What it says.
    pub value: u64,
}

/// Output of one subtask in one epoch.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Who prepared it.
    pub attempt: Attempt,
    /// In which epoch.
    pub epoch: Epoch,
    /// Which subtask of the sink.
    pub subtask: u32,
    /// What it holds.
    pub lines: Vec<Line>,
    /// How often it was committed; once is right, more is a repetition without effect.
    pub commits: u64,
}

#[derive(Default)]
struct Inner {
    transactions: Vec<Transaction>,
    log: Vec<usize>,
    writers: BTreeMap<String, Writer>,
    lenient: bool,
}

/// What the target knows of a writer of a logged sink.
#[derive(Default)]
struct Writer {
    /// Whose it is: whoever claimed it last.
    token: u64,
    marker: Option<Epoch>,
    /// The transaction that is open.
    open: Vec<Transaction>,
}

/// A transaction of somebody whose name another one has claimed.
#[derive(Debug, thiserror::Error)]
#[error("writer {writer} belongs to somebody newer")]
pub struct WriterFenced {
    /// The writer.
    pub writer: String,
}

/// A commit of a transaction that was never prepared.
#[derive(Debug, thiserror::Error)]
#[error("transaction {id} was never prepared")]
pub struct UnknownTransaction {
    /// Its number.
    pub id: u64,
}

/// A target with transactions. Clones are the same target.
#[derive(Clone, Default)]
pub struct Outside {
    inner: Rc<RefCell<Inner>>,
}

impl Outside {
    /// An empty target.
    #[must_use]
    pub fn new() -> Self {
        Outside::default()
    }

    /// A target for looking at checkpoints only: it accepts every commit and keeps nothing.
    #[must_use]
    pub fn lenient() -> Self {
        let outside = Outside::default();
        outside.inner.borrow_mut().lenient = true;
        outside
    }

    fn prepare(&self, attempt: Attempt, epoch: Epoch, subtask: u32, lines: Vec<Line>) -> u64 {
        let mut inner = self.inner.borrow_mut();
        inner.transactions.push(Transaction { attempt, epoch, subtask, lines, commits: 0 });
        inner.transactions.len() as u64 - 1
    }

    fn commit(&self, id: u64) -> Result<(), UnknownTransaction> {
        let Inner { transactions, log, lenient, .. } = &mut *self.inner.borrow_mut();
        match transactions.get_mut(id as usize) {
            Some(transaction) => {
                transaction.commits += 1;
                if transaction.commits == 1 {
                    log.push(id as usize);
                }
                Ok(())
            }
            None if *lenient => Ok(()),
            None => Err(UnknownTransaction { id }),
        }
    }

    /// Takes over a writer's name: what is open under it is gone. The token of the new holder, and the marker.
    #[must_use]
    pub fn claim(&self, writer: &str) -> (u64, Option<Epoch>) {
        let mut inner = self.inner.borrow_mut();
        let lenient = inner.lenient;
        let known = inner.writers.entry(writer.to_owned()).or_default();
        known.token += 1;
        known.open.clear();
        // Whoever only looks has nothing to apply.
        (known.token, if lenient { Some(known.marker.unwrap_or(Epoch(u64::MAX))) } else { known.marker })
    }

    /// Adds the output of an epoch to the open transaction of a writer.
    pub fn add_to_open(
        &self,
        writer: &str,
        token: u64,
        (attempt, epoch, subtask): (Attempt, Epoch, u32),
        lines: Vec<Line>,
    ) {
        let mut inner = self.inner.borrow_mut();
        if let Some(known) = inner.writers.get_mut(writer).filter(|known| known.token == token) {
            known.open.push(Transaction { attempt, epoch, subtask, lines, commits: 1 });
        }
    }

    /// Commits the open transaction of a writer, and its marker with it.
    ///
    /// # Errors
    /// When somebody else has claimed the name.
    pub fn commit_open(&self, writer: &str, token: u64, marker: Epoch) -> Result<(), WriterFenced> {
        let Inner { transactions, log, writers, .. } = &mut *self.inner.borrow_mut();
        let known = writers.get_mut(writer).filter(|known| known.token == token);
        let known = known.ok_or_else(|| WriterFenced { writer: writer.to_owned() })?;
        known.marker = Some(marker);
        for transaction in known.open.drain(..) {
            log.push(transactions.len());
            transactions.push(transaction);
        }
        Ok(())
    }

    /// Number of transactions committed so far.
    #[must_use]
    pub fn commits(&self) -> usize {
        self.inner.borrow().log.len()
    }

    /// The committed transactions from the `from`-th on, in the order of their first commit.
    #[must_use]
    pub fn committed_since(&self, from: usize) -> Vec<Transaction> {
        let inner = self.inner.borrow();
        inner.log[from..].iter().map(|id| inner.transactions[*id].clone()).collect()
    }

    /// How many commits were repetitions.
    #[must_use]
    pub fn repeated_commits(&self) -> u64 {
        self.inner.borrow().transactions.iter().map(|transaction| transaction.commits.saturating_sub(1)).sum()
    }
}

/// How user code fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It returns an error.
    Error,
    /// It panics.
    Panic,
}

/// The error of a trap.
#[derive(Debug, thiserror::Error)]
#[error("user code fails on purpose")]
pub struct Sprung;

/// Makes user code fail at its n-th call from now. Clones are the same trap.
#[derive(Clone, Default)]
pub struct Trap {
    armed: Rc<Cell<Option<(u64, Fault)>>>,
}

impl Trap {
    /// Fails after `calls` further calls.
    pub fn arm(&self, calls: u64, fault: Fault) {
        self.armed.set(Some((calls, fault)));
    }

    /// Fails no more.
    pub fn disarm(&self) {
        self.armed.set(None);
    }

    /// To be called by user code wherever it may fail.
    ///
    /// # Errors
    /// When its time has come; a panic does not pass through the panic hook, so it prints nothing.
    pub fn spring(&self) -> UserResult {
        match self.armed.get() {
            None => Ok(()),
            Some((0, fault)) => {
                self.armed.set(None);
                match fault {
                    Fault::Error => Err(Sprung.into()),
                    Fault::Panic => std::panic::resume_unwind(Box::new("user code panics on purpose".to_owned())),
                }
            }
            Some((calls, fault)) => {
                self.armed.set(Some((calls - 1, fault)));
                Ok(())
            }
        }
    }
}

/// What a job of the simulator is built with.
#[derive(Clone)]
pub struct Site {
    /// Where its output goes.
    pub outside: Outside,
    /// Where it may fail.
    pub trap: Trap,
    /// Which execution it belongs to.
    pub attempt: Attempt,
}

/// Writes lines to the world outside, in transactions of one epoch each.
pub struct TransactionSink {
    site: Site,
    subtask: u32,
    lines: Vec<Line>,
}

impl TransactionSink {
    /// A sink to `site`'s outside.
    #[must_use]
    pub fn new(site: &Site) -> Self {
        TransactionSink { site: site.clone(), subtask: 0, lines: Vec::new() }
    }
}

impl Sink for TransactionSink {
    type Record = Line;
    type Committable = u64;

    fn open(&mut self, context: &SinkContext<'_>) -> UserResult {
        self.subtask = context.info.index;
        self.site.trap.spring()
    }

    fn write(&mut self, record: Line) -> UserResult {
        self.lines.push(record);
        Ok(())
    }

    fn prepare(&mut self, epoch: Epoch) -> UserResult<Vec<u64>> {
        self.site.trap.spring()?;
        if self.lines.is_empty() {
            return Ok(Vec::new());
        }
        let lines = std::mem::take(&mut self.lines);
        Ok(vec![self.site.outside.prepare(self.site.attempt, epoch, self.subtask, lines)])
    }

    /// Fails before, or after the commit has happened.
    fn commit(&mut self, committable: u64) -> UserResult {
        self.site.trap.spring()?;
        self.site.outside.commit(committable)?;
        self.site.trap.spring()
    }
}
