//! Keyed state out of the runs of a checkpoint.
//!
//! A subtask reads the rows of its own key groups, out of every run that intersects them (RS-01). It goes through its
//! key groups in *stretches* over which the same runs lie, so that of many runs only those few are being read.
//! Into memory, the rows of one key group come from all of its runs before the next group is begun, the oldest run first:
//! what is superseded is so while its part of the table is in the processor's cache. Into a cold store, which wants
//! each key once and in order, they are merged.

use std::collections::BTreeSet;
use std::sync::Arc;

use millpond_checkpoint::{OperatorManifest, RunRef};
use millpond_core::{KeyGroup, KeyGroupRange};
use millpond_dataflow::SubtaskInfo;
use millpond_runs::{Cursor, LiveRows, Prefetch, RunError, RunReader, Section, StoredRun, side_by_side};
use millpond_state::{ColdEntries, ColdRestore, KeyedBackendControl, RowVersion, StateError};
use millpond_storage::Storage;

use super::RestorePoint;
use crate::error::RestoreError;

/// Pieces of runs that a subtask reads at the same time, at most.
const READS_AT_ONCE: u64 = 5;
/// The same for all runs that are merged on their way into a cold store.
const MERGED_READS_AT_ONCE: u64 = 17;
/// Runs that a subtask opens at the same time, at most: each is one or two reads, of its last 64 KiB and its index.
const OPENED_AT_ONCE: usize = 16;
/// Size of a piece, in bytes: a store far away is asked seldom. The least when many runs are read at the same time, or
/// with little memory; and the most.
const READ_BYTES: (u64, u64) = (64 << 10, 1 << 20);

/// How the runs are read that lie over the same key groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    /// Bytes of a piece.
    piece: u64,
    /// Pieces that are read ahead of each.
    ahead: usize,
}

impl Reading {
    /// `runs` side by side, in `pieces` of the largest size at most and about `bytes` bytes.
    fn of(runs: usize, pieces: u64, bytes: u64) -> Reading {
        let each = bytes.min(pieces * READ_BYTES.1) / runs.max(1) as u64;
        let piece = (each / 2).clamp(READ_BYTES.0, READ_BYTES.1);
        let ahead = (each / piece).clamp(2, pieces) - 1;
        Reading { piece, ahead: usize::try_from(ahead).unwrap_or(1) }
    }
}

/// A run that is being restored.
type OpenRun = RunReader<Prefetch<StoredRun<Arc<dyn Storage>>>>;

/// Neighbouring key groups over which the same runs lie.
#[derive(Debug, PartialEq, Eq)]
struct Stretch {
    groups: KeyGroupRange,
    /// Indexes of the runs, oldest first.
    runs: Vec<usize>,
}

/// Cuts the groups of `owned` over which any of the `runs` lie into stretches, ascending.
fn stretches(runs: &[&RunRef], owned: KeyGroupRange) -> Vec<Stretch> {
    let over: Vec<KeyGroupRange> = runs.iter().map(|run| run.groups.intersection(owned)).collect();
    let bounds: BTreeSet<u32> = over.iter().flat_map(|groups| [groups.start, groups.end]).collect();
    let bounds: Vec<u32> = bounds.into_iter().collect();
    let stretches = bounds.windows(2).map(|pair| {
        let groups = KeyGroupRange::new(pair[0], pair[1]);
        Stretch { groups, runs: (0..runs.len()).filter(|at| over[*at].intersects(groups)).collect() }
    });
    stretches.filter(|stretch| !stretch.runs.is_empty()).collect()
}

/// What is restored, and into what.
struct Loading<'a> {
    operator: &'a OperatorManifest,
    /// Oldest first.
    runs: Vec<OpenRun>,
    stretches: Vec<Stretch>,
    declared: &'a BTreeSet<String>,
}

/// One run within one stretch.
struct Walk<'a> {
    cursor: Cursor<&'a OpenRun>,
    section: &'a Section,
    versions: Vec<Option<RowVersion>>,
}

impl RestorePoint {
    /// Puts the rows of `subtask`'s key groups back into its keyed state.
    ///
    /// # Errors
    /// When a run cannot be read, is damaged, or its rows do not fit the declared states.
    pub fn load_keyed(&self, subtask: &SubtaskInfo, keyed: &mut dyn KeyedBackendControl) -> Result<(), RestoreError> {
        let Some(operator) = self.manifest().operator(&subtask.operator) else { return Ok(()) };
        let declared: BTreeSet<String> = keyed.sections().into_iter().map(|section| section.name).collect();
        self.check_declared(subtask, &declared)?;
        let owned = subtask.key_groups();
        let runs: Vec<&RunRef> = operator.runs.iter().filter(|run| run.groups.intersects(owned)).collect();
        let bytes = runs.iter().map(|run| memory_bytes(run, owned)).sum();
        let cold = keyed.cold_restore(bytes);
        let at_once = if cold.is_some() { MERGED_READS_AT_ONCE } else { READS_AT_ONCE };
        let stretches = stretches(&runs, owned);
        let deepest = stretches.iter().map(|stretch| stretch.runs.len()).max().unwrap_or(1);
        let reading = Reading::of(deepest, at_once, self.read_bytes);
        let (reading, opened_at_once) =
            if self.in_order { (Reading { ahead: 0, ..reading }, 1) } else { (reading, OPENED_AT_ONCE) };
        let runs = side_by_side(&runs, opened_at_once, |run| self.open_run(operator, run, reading))?;
        let loading = Loading { operator, runs, stretches, declared: &declared };
        match cold {
            Some(cold) => {
                let entries = loading.load_cold(keyed, &cold)?;
                keyed.finish_cold_restore(entries);
                Ok(())
            }
            None => {
                loading.load_memory(keyed)?;
                keyed.finish_restore().map_err(|source| loading.state_error(source))
            }
        }
    }

    fn open_run(&self, operator: &OperatorManifest, run: &RunRef, reading: Reading) -> Result<OpenRun, RestoreError> {
        let source = StoredRun::new(Arc::clone(&self.storage), run.object.clone());
        let source = Prefetch::new(source, reading.ahead);
        let reader = RunReader::open_stated(source, run.bytes, run.checksum).map_err(|source| RestoreError::Run {
            operator: operator.name.clone(),
            object: run.object.to_string(),
            source,
        })?;
        Ok(reader.with_read_ahead(reading.piece))
    }
}

impl Loading<'_> {
    fn state_error(&self, source: StateError) -> RestoreError {
        RestoreError::State { operator: self.operator.name.clone(), source }
    }

    fn run_error(&self, source: RunError) -> RestoreError {
        let object = source.file().unwrap_or("merged runs").to_owned();
        RestoreError::Run { operator: self.operator.name.clone(), object, source }
    }

    /// The sections that are read.
    fn sections(&self) -> impl Iterator<Item = &Section> {
        self.runs.iter().flat_map(RunReader::sections).filter(|section| self.declared.contains(&section.name))
    }

    /// Every row, key group by key group.
    fn load_memory(&self, keyed: &mut dyn KeyedBackendControl) -> Result<(), RestoreError> {
        for state in self.declared {
            for stretch in &self.stretches {
                let mut walks = self.walks(state, stretch, keyed)?;
                for group in stretch.groups.start..stretch.groups.end {
                    for walk in &mut walks {
                        self.load_group(walk, group, keyed)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn walks<'a>(
        &'a self,
        state: &str,
        stretch: &Stretch,
        keyed: &mut dyn KeyedBackendControl,
    ) -> Result<Vec<Walk<'a>>, RestoreError> {
        let mut walks = Vec::with_capacity(stretch.runs.len());
        for run in stretch.runs.iter().map(|at| &self.runs[*at]) {
            let Some(section) = run.section(state) else { continue };
            let versions = versions(keyed, section).map_err(|source| self.state_error(source))?;
            let cursor = run.cursor(state, stretch.groups);
            cursor.announce();
            walks.push(Walk { cursor, section, versions });
        }
        // Only now is any of them waited for: their first pieces are on their way together.
        for walk in &mut walks {
            walk.cursor.advance().map_err(|source| self.run_error(source))?;
        }
        walks.retain(|walk| walk.cursor.current().is_some());
        Ok(walks)
    }

    /// The rows of one key group of one run.
    fn load_group(
        &self,
        walk: &mut Walk<'_>,
        group: u32,
        keyed: &mut dyn KeyedBackendControl,
    ) -> Result<(), RestoreError> {
        while let Some(row) = walk.cursor.current().filter(|row| u32::from(row.group.0) == group) {
            let version = walk.versions.get(row.description as usize).copied().flatten();
            let restored = match version {
                Some(version) => keyed.restore_row(version, row.group, row.key, row.value),
                None => Err(undescribed(walk.section, row.group)),
            };
            restored.map_err(|source| self.state_error(source))?;
            walk.cursor.advance().map_err(|source| self.run_error(source))?;
        }
        Ok(())
    }

    /// Puts the newest row of every key straight into the cold store, migrated: nothing old gets there.
    fn load_cold(&self, keyed: &mut dyn KeyedBackendControl, cold: &ColdRestore) -> Result<ColdEntries, RestoreError> {
        let state_error = |source| self.state_error(source);
        // Whether all of it can be read is known before any of it is.
        for section in self.sections() {
            versions(keyed, section).map_err(state_error)?;
        }
        let mut filling = cold.begin().map_err(state_error)?;
        for (state, stretch) in self.declared.iter().flat_map(|state| self.stretches.iter().map(move |s| (state, s))) {
            let run_error = |source| self.run_error(source);
            let readers = stretch.runs.iter().map(|at| &self.runs[*at]);
            let mut rows = LiveRows::new(readers, state, stretch.groups).map_err(run_error)?;
            let versions = rows.descriptions().iter().map(|written| keyed.row_version(state, written));
            let versions: Vec<RowVersion> = versions.collect::<Result<_, _>>().map_err(state_error)?;
            while rows.advance().map_err(run_error)? {
                let row = rows.current().map_err(run_error)?;
                if let Some((row, value)) = row.and_then(|row| Some((row, row.value?))) {
                    // Rows name descriptions of their section only: the reader has checked it.
                    let version = versions[row.description as usize];
                    let value = keyed.migrated(version, row.group, value).map_err(state_error)?;
                    filling.put(state, row.group, row.key, value).map_err(state_error)?;
                }
            }
        }
        filling.finish().map_err(state_error)
    }
}

/// How the rows of a section are read, by their description; `None` where the section has no such rows, so that a
/// type that nothing has any more is not asked for.
fn versions(keyed: &mut dyn KeyedBackendControl, section: &Section) -> Result<Vec<Option<RowVersion>>, StateError> {
    let versions = section
        .descriptions
        .iter()
        .map(|written| (written.rows > 0).then(|| keyed.row_version(&section.name, &written.text)).transpose());
    versions.collect()
}

#[cold]
fn undescribed(section: &Section, group: KeyGroup) -> StateError {
    let reason = "its description is said to have no rows".to_owned();
    StateError::DamagedRow { state: section.name.clone(), group, reason }
}

/// What an entry takes in memory beside its bytes, roughly.
const ENTRY_OVERHEAD_BYTES: u64 = 48;

/// What the rows of a run that belong to the groups of `owned` would take in memory, roughly.
fn memory_bytes(run: &RunRef, owned: KeyGroupRange) -> u64 {
    let (start, end) = (run.groups.start.max(owned.start), run.groups.end.min(owned.end));
    let whole = run.raw_bytes.saturating_add(run.rows.saturating_mul(ENTRY_OVERHEAD_BYTES));
    let part = u128::from(whole) * u128::from(end.saturating_sub(start)) / u128::from(run.groups.len().max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use millpond_core::Epoch;
    use millpond_storage::ObjectName;

    use super::*;

    #[test]
    fn what_is_read_ahead_keeps_to_its_memory_down_to_the_least_piece() {
        let mib = 1u64 << 20;
        assert_eq!(Reading::of(1, 5, u64::MAX), Reading { piece: mib, ahead: 4 });
        assert_eq!(Reading::of(1, 17, u64::MAX), Reading { piece: mib, ahead: 16 });
        assert_eq!(Reading::of(10, 5, u64::MAX), Reading { piece: mib / 4, ahead: 1 });
        assert_eq!(Reading::of(0, 5, 0), Reading { piece: 64 << 10, ahead: 1 });
        for (runs, bytes) in [(1, mib), (3, 4 * mib), (10, 8 * mib), (16, 2 * mib)] {
            let Reading { piece, ahead } = Reading::of(runs, 17, bytes);
            assert!((ahead as u64 + 1) * piece * runs as u64 <= bytes.max(runs as u64 * 128 * 1_024), "{runs} {bytes}");
        }
    }

    #[test]
    fn stretches_are_cut_where_a_run_begins_or_ends() {
        let run = |start, end| RunRef {
            object: ObjectName::new("run").unwrap(),
            bytes: 1,
            raw_bytes: 1,
            rows: 1,
            tombstones: 0,
            groups: KeyGroupRange::new(start, end),
            checksum: 0,
            epoch: Epoch(1),
            level: 0,
        };
        let runs = [run(0, 8), run(0, 4), run(4, 8), run(2, 6), run(10, 12), run(20, 30)];
        let runs: Vec<&RunRef> = runs.iter().collect();
        let found = stretches(&runs, KeyGroupRange::new(1, 11));
        let found: Vec<_> =
            found.iter().map(|stretch| (stretch.groups.start, stretch.groups.end, &stretch.runs[..])).collect();
        let expected: [(u32, u32, &[usize]); 5] =
            [(1, 2, &[0, 1]), (2, 4, &[0, 1, 3]), (4, 6, &[0, 2, 3]), (6, 8, &[0, 2]), (10, 11, &[4])];
        assert_eq!(found, expected);
        assert_eq!(stretches(&[], KeyGroupRange::new(0, 4)), []);
    }
}
