//! What must always hold.
//!
//! * The log of manifests has no gaps, attempts never fall, epochs of an attempt grow.
//! * Nothing that a retained manifest names is deleted.
//! * Only output of completed epochs is committed, each line once; a key's lines have no gap.
//! * A retained checkpoint restores to any parallelism, to exactly the state of a sequential run up to
//!   the positions that it holds.
//! * At the end, the output is that of a sequential run.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use millpond_checkpoint::{History, Manifest, ManifestKind};
use millpond_core::{Attempt, Epoch, ManualClock, MaxParallelism, SplitMix64, error::chain};
use millpond_dataflow::SubtaskInfo;
use millpond_runtime::RestorePoint;
use millpond_storage::{MemoryStorage, Storage};

use super::copies::Detour;
use super::{Conditions, JOB, Report};
use crate::execution::{Execution, ExecutionSpec};
use crate::jobs::{Cut, Expected, SimJob, States};
use crate::outside::{Line, Outside, Site, Trap};

/// Watches storage and the world outside.
pub(crate) struct Checker {
    job: Rc<dyn SimJob>,
    expected: Expected,
    /// Every manifest of the log, by sequence number from 1.
    log: Vec<Manifest>,
    commits_seen: usize,
    /// Committed lines of each key, in the order of their commits.
    lines: BTreeMap<u64, Vec<Line>>,
    /// Keys with lines that were committed since their last check.
    touched: Vec<u64>,
}

impl Checker {
    pub(crate) fn new(job: Rc<dyn SimJob>) -> Checker {
        let expected = job.expected();
        Checker { job, expected, log: Vec::new(), commits_seen: 0, lines: BTreeMap::new(), touched: Vec::new() }
    }

    pub(crate) fn completed(&self) -> u64 {
        self.log.iter().filter(|manifest| manifest.kind == ManifestKind::Checkpoint).count() as u64
    }

    pub(crate) fn lines(&self) -> u64 {
        self.lines.values().map(|lines| lines.len() as u64).sum()
    }

    /// Looks at the log after something was published.
    pub(crate) fn observe(&mut self, memory: &MemoryStorage) -> Result<(), String> {
        let history = History::new(memory.clone(), JOB).map_err(|error| error.to_string())?;
        for (sequence, _) in history.sequences().map_err(|error| error.to_string())? {
            let newest = self.log.last();
            if newest.is_some_and(|newest| sequence <= newest.sequence) {
                continue;
            }
            let manifest = history.read(sequence).map_err(|error| chain(&error))?;
            let manifest = manifest.ok_or("a manifest vanished while nobody ran")?;
            let before = newest.map_or((0, Attempt(0), Epoch::ZERO), |m| (m.sequence, m.attempt, m.epoch));
            let grows = match manifest.kind {
                ManifestKind::Fence => manifest.attempt > before.1 && manifest.epoch == before.2,
                ManifestKind::Checkpoint => manifest.attempt == before.1 && manifest.epoch > before.2,
            };
            if sequence != before.0 + 1 || !grows {
                return Err(format!("the log goes from {before:?} to {sequence}, {manifest:?}"));
            }
            self.log.push(manifest);
            self.check_reachable(memory)?;
        }
        Ok(())
    }

    /// A publication that was reported as done is in the log.
    pub(crate) fn must_be_published(&self, manifest: &Manifest) -> Result<(), String> {
        match self.log.get(manifest.sequence as usize - 1) {
            Some(found) if found == manifest => Ok(()),
            _ => Err(format!("{} of {} is said to be published, and is not", manifest.epoch, manifest.attempt)),
        }
    }

    /// The newest manifest of the log.
    pub(crate) fn newest(&self) -> Option<&Manifest> {
        self.log.last()
    }

    /// The attempt that owns the job.
    pub(crate) fn owner(&self) -> Option<Attempt> {
        self.log.last().map(|newest| newest.attempt)
    }

    fn retained(&self) -> &[Manifest] {
        let floor = self.log.last().map_or(1, |newest| newest.retained_from);
        &self.log[floor as usize - 1..]
    }

    /// Nothing that a retained manifest names is missing.
    pub(crate) fn check_reachable(&self, memory: &MemoryStorage) -> Result<(), String> {
        let history = History::new(memory.clone(), JOB).map_err(|error| error.to_string())?;
        for manifest in self.retained() {
            let own = history.names().manifest(manifest.sequence);
            if let Some(missing) = manifest.objects().chain([&own]).find(|object| memory.size(object).is_err()) {
                return Err(format!(
                    "manifest {} ({}) needs {missing}, which is gone",
                    manifest.sequence, manifest.epoch
                ));
            }
        }
        Ok(())
    }

    /// Looks at what was committed since the last look.
    pub(crate) fn check_commits(&mut self, outside: &Outside) -> Result<(), String> {
        if outside.commits() == self.commits_seen {
            return Ok(());
        }
        for transaction in outside.committed_since(self.commits_seen) {
            self.commits_seen += 1;
            let holds = |manifest: &&Manifest| {
                manifest.kind == ManifestKind::Checkpoint
                    && manifest.attempt == transaction.attempt
                    && manifest.epoch >= transaction.epoch
            };
            if !self.log.iter().any(|manifest| holds(&manifest)) {
                let (attempt, epoch) = (transaction.attempt, transaction.epoch);
                return Err(format!("output of {epoch} of {attempt} is committed, which has not completed it"));
            }
            let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
            for line in transaction.lines {
                if newest.insert(line.key, line.seq).is_some_and(|before| before >= line.seq) {
                    return Err(format!("{line:?} comes after a later line of its key"));
                }
                self.take(line)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, line: Line) -> Result<(), String> {
        let known = self.expected.get(&line.key).and_then(|lines| lines.get((line.seq as usize).wrapping_sub(1)));
        match known {
            None => return Err(format!("{line:?} is committed, which a sequential run does not write")),
            Some(Some(value)) if *value != line.value => {
                return Err(format!("{line:?} is committed, a sequential run writes {value}"));
            }
            Some(_) => {}
        }
        self.lines.entry(line.key).or_default().push(line);
        self.touched.push(line.key);
        Ok(())
    }

    /// Called while the newest attempt runs: then every key's lines begin with the first, have no gap,
    /// and are there once.
    pub(crate) fn check_lines(&mut self, outside: &Outside) -> Result<(), String> {
        self.check_commits(outside)?;
        self.touched.sort_unstable();
        self.touched.dedup();
        for key in std::mem::take(&mut self.touched) {
            let lines = self.lines.get_mut(&key).map(|lines| {
                lines.sort_by_key(|line| line.seq);
                &*lines
            });
            let lines = lines.map_or(&[][..], Vec::as_slice);
            if let Some((at, line)) = lines.iter().enumerate().find(|(at, line)| line.seq != *at as u64 + 1) {
                return Err(format!("key {key}: line {} is {line:?}: one is missing or doubled", at + 1));
            }
            self.job.check_lines(key, lines)?;
        }
        Ok(())
    }

    /// All output is there.
    pub(crate) fn at_end(&mut self, outside: &Outside, memory: &MemoryStorage) -> Result<(), String> {
        self.check_lines(outside)?;
        self.check_reachable(memory)?;
        for (key, expected) in &self.expected {
            let found = self.lines.get(key).map_or(0, Vec::len);
            if found != expected.len() {
                return Err(format!(
                    "at the end key {key} has {found} lines, a sequential run writes {}",
                    expected.len()
                ));
            }
        }
        Ok(())
    }

    /// Restores a retained checkpoint, chosen by `seed`, with another parallelism, and compares its
    /// state with that of a sequential run.
    pub(crate) fn probe(
        &self,
        seed: u64,
        memory: &MemoryStorage,
        conditions: &Conditions,
        counters: &mut Report,
    ) -> Result<(), String> {
        let mut random = SplitMix64::new(seed);
        let retained: Vec<&Manifest> = self.retained().iter().filter(|manifest| manifest.epoch > Epoch::ZERO).collect();
        let Some(manifest) = retained.get(random.below(retained.len() as u64) as usize) else { return Ok(()) };
        let workers = (1 + random.below(6) as u32).min(conditions.max_parallelism.get());
        let detour = [Detour::None, Detour::Savepoint, Detour::Import][random.below(3) as usize];
        let detoured = detour.take(manifest, MemoryStorage::from_snapshot(memory.snapshot()));
        let (restored, storage) = detoured.map_err(|reason| format!("{detour:?} of {}: {reason}", manifest.epoch))?;
        let restore =
            RestorePoint::new(Arc::new(restored), Arc::new(storage) as Arc<dyn Storage>, false).reading_in_order();
        let site = Site { outside: Outside::lenient(), trap: Trap::default(), attempt: Attempt(u64::MAX) };
        let execution = Execution::build(&ExecutionSpec {
            job: &|flow| self.job.build(flow, &site),
            workers,
            max_parallelism: conditions.max_parallelism,
            attempt: site.attempt,
            clock: Arc::new(ManualClock::new(0)),
            restore: Some(&restore),
            flow: conditions.flow,
            cold: conditions.cold(),
            wire: false,
        });
        let of = format!("{} of {} with {workers} workers by {detour:?}", manifest.epoch, manifest.attempt);
        let mut execution = execution.map_err(|error| format!("cannot restore {of}: {}", chain(&error)))?;
        let cut = self.cut(&restore, conditions.max_parallelism)?;
        counters.restores_checked += 1;
        let mut states = States { execution: &mut execution };
        self.job.check_state(&cut, &mut states).map_err(|reason| format!("restored {of}, at {cut:?}: {reason}"))
    }

    pub(super) fn cut(&self, restore: &RestorePoint, max_parallelism: MaxParallelism) -> Result<Cut, String> {
        let mut cut = Cut::new();
        for (source, script) in self.job.sources() {
            let all = SubtaskInfo {
                operator: Arc::from(source),
                index: 0,
                parallelism: 1,
                max_parallelism,
                attempt: Attempt(u64::MAX),
            };
            let restored = restore.operator(&all).map_err(|error| chain(&error))?;
            let restored = restored.ok_or_else(|| format!("the checkpoint holds nothing of source {source:?}"))?;
            cut.insert(source, script.positions(&restored.states)?);
        }
        Ok(cut)
    }
}
