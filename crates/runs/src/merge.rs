//! Folds several runs into one: for equal keys the newest row wins.
//!
//! Reads files only, never live state. Holds one read-ahead window and one block per input, and the
//! file that is being written. Sections are joined by name. Where inputs were written with different
//! descriptions of a section, the output keeps all that still have rows, and each row says which.

use std::ops::Deref;

use millpond_core::KeyGroupRange;

use crate::error::RunError;
use crate::footer::{Section, malformed};
use crate::reader::{Cursor, RunReader};
use crate::row::RowRef;
use crate::settings::RunSettings;
use crate::source::ReadRange;
use crate::writer::{EncodedRun, RunWriter};

/// One more than any key group.
const GROUPS_END: u32 = 1 << 16;

/// What a merge did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeReport {
    /// Rows read from all inputs.
    pub rows_read: u64,
    /// Rows written, tombstones included.
    pub rows_written: u64,
    /// Rows left out because a newer row has the same key.
    pub rows_superseded: u64,
    /// Rows that were not to be kept: left out, or written as tombstones.
    pub rows_expired: u64,
    /// Tombstones left out.
    pub tombstones_dropped: u64,
    /// Files written.
    pub files: u64,
}

/// Merges `inputs`, oldest first, into files of about the target size, given to `emit` one by one.
/// `drop_tombstones` is right only if nothing older than the oldest input is live.
///
/// # Errors
/// When a setting is out of bounds, an input cannot be read or is damaged, or `emit` fails.
pub fn merge_runs<R: ReadRange, E: From<RunError>>(
    inputs: &[RunReader<R>],
    drop_tombstones: bool,
    settings: &RunSettings,
    emit: impl FnMut(EncodedRun) -> Result<(), E>,
) -> Result<MergeReport, E> {
    merge_runs_keeping(inputs, drop_tombstones, &[], settings, |_, _, _| true, emit)
}

/// Like [`merge_runs`], but asks for each winning row with a value whether to keep it: `keep` gets
/// the section's name, the row's description and the row. What is not kept is treated as deleted (a
/// tombstone is written unless `drop_tombstones`), which is how expired values leave the files.
///
/// A file never holds rows on both sides of one of the `cuts`, which are key groups in ascending order: each is the
/// first of a piece.
///
/// # Errors
/// As [`merge_runs`].
pub fn merge_runs_keeping<R: ReadRange, E: From<RunError>>(
    inputs: &[RunReader<R>],
    drop_tombstones: bool,
    cuts: &[u32],
    settings: &RunSettings,
    mut keep: impl FnMut(&str, &str, &RowRef<'_>) -> bool,
    mut emit: impl FnMut(EncodedRun) -> Result<(), E>,
) -> Result<MergeReport, E> {
    settings.check()?;
    let mut report = MergeReport::default();
    let mut writer = RunWriter::new(settings, inputs.iter().map(RunReader::bytes).sum());
    let mut emit = |run: Option<EncodedRun>, report: &mut MergeReport| match run {
        Some(run) => {
            report.files += 1;
            emit(run)
        }
        None => Ok(()),
    };
    let names = section_names(inputs);
    for (groups, name) in pieces(cuts).flat_map(|piece| names.iter().map(move |name| (piece, *name))) {
        if Some(&name) == names.first() {
            emit(writer.cut(), &mut report)?;
        }
        let (mut merging, descriptions) = Merging::begin(inputs, name, groups)?;
        emit(writer.begin_section(name, &descriptions), &mut report)?;
        while let Some((row, fresh)) = merging.next_row()? {
            report.rows_read += 1;
            if !fresh {
                report.rows_superseded += 1;
                continue;
            }
            let text = &descriptions[row.description as usize];
            let expired = row.value.is_some() && !keep(name, text, &row);
            report.rows_expired += u64::from(expired);
            let value = row.value.filter(|_| !expired);
            if value.is_none() && drop_tombstones {
                report.tombstones_dropped += u64::from(!expired);
                continue;
            }
            report.rows_written += 1;
            let finished = writer.push(RowRef { value, ..row });
            emit(finished, &mut report)?;
        }
    }
    emit(writer.finish(), &mut report)?;
    Ok(report)
}

/// All key groups, in ranges that begin with the `cuts`.
fn pieces(cuts: &[u32]) -> impl Iterator<Item = KeyGroupRange> {
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([GROUPS_END]);
    starts.zip(ends).filter(|(start, end)| start < end).map(|(start, end)| KeyGroupRange::new(start, end))
}

/// The names of all sections, in order, each once.
fn section_names<R: ReadRange>(inputs: &[RunReader<R>]) -> Vec<&str> {
    let mut names: Vec<&str> =
        inputs.iter().flat_map(RunReader::sections).map(|section| section.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// One section of one input.
struct Input<P> {
    cursor: Cursor<P>,
    /// For each description of the input: its index in the output, none if it has no rows.
    descriptions: Vec<Option<u32>>,
}

/// The rows of one section of all inputs, in order; among equal keys the newest first.
pub(crate) struct Merging<P> {
    /// Oldest first.
    inputs: Vec<Input<P>>,
    /// Indexes of the inputs that have a row: a binary heap, the next row on top.
    heap: Vec<usize>,
    /// The key of the last row given out.
    last_key: Vec<u8>,
    begun: bool,
}

impl<R: ReadRange, P: Deref<Target = RunReader<R>>> Merging<P> {
    /// Opens the rows of `section` in `groups` in all inputs, oldest first; also returns the
    /// descriptions that the section's rows have.
    pub(crate) fn begin(
        readers: impl IntoIterator<Item = P>,
        section: &str,
        groups: KeyGroupRange,
    ) -> Result<(Self, Vec<String>), RunError> {
        let mut descriptions = Vec::new();
        let mut inputs = Vec::new();
        for reader in readers {
            let Some(found) = reader.section(section) else {
                continue;
            };
            let mapped = join_descriptions(found, &mut descriptions);
            let cursor = Cursor::over(reader, section, groups);
            cursor.announce();
            inputs.push(Input { cursor, descriptions: mapped });
        }
        // Only now is any of them waited for: their first pieces are on their way together.
        for input in &mut inputs {
            input.cursor.advance()?;
        }
        inputs.retain(|input| input.cursor.current().is_some());
        let heap = (0..inputs.len()).collect();
        let mut merging = Merging { inputs, heap, last_key: Vec::new(), begun: false };
        for index in (0..merging.heap.len() / 2).rev() {
            merging.sift_down(index);
        }
        Ok((merging, descriptions))
    }

    /// The next row, and whether it is the first with its key.
    pub(crate) fn next_row(&mut self) -> Result<Option<(RowRef<'_>, bool)>, RunError> {
        if self.begun {
            self.step()?;
        }
        let Some(top) = self.heap.first() else {
            return Ok(None);
        };
        let input = &self.inputs[*top];
        let key = input.cursor.ordered_key();
        let fresh = !self.begun || self.last_key != key;
        self.begun = true;
        if fresh {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        Ok(self.current()?.map(|row| (row, fresh)))
    }

    /// The row that [`Self::next_row`] gave out.
    pub(crate) fn current(&self) -> Result<Option<RowRef<'_>>, RunError> {
        let Some(input) = self.heap.first().map(|top| &self.inputs[*top]) else {
            return Ok(None);
        };
        let Some(row) = input.cursor.current() else {
            return Ok(None);
        };
        match input.descriptions.get(row.description as usize) {
            Some(Some(description)) => Ok(Some(RowRef { description: *description, ..row })),
            _ => {
                let file = input.cursor.reader().name();
                Err(malformed(file, 0, "a row has a description that the footer counts no rows for"))
            }
        }
    }

    /// Moves the input on top to its next row.
    fn step(&mut self) -> Result<(), RunError> {
        let Some(top) = self.heap.first() else {
            return Ok(());
        };
        if !self.inputs[*top].cursor.advance()? {
            self.heap.swap_remove(0);
        }
        self.sift_down(0);
        Ok(())
    }

    fn sift_down(&mut self, mut parent: usize) {
        loop {
            let mut first = parent;
            for child in [2 * parent + 1, 2 * parent + 2] {
                if child < self.heap.len() && self.comes_before(self.heap[child], self.heap[first]) {
                    first = child;
                }
            }
            if first == parent {
                return;
            }
            self.heap.swap(parent, first);
            parent = first;
        }
    }

    /// By key; among equal keys the newer input first.
    #[inline]
    fn comes_before(&self, a: usize, b: usize) -> bool {
        let keys = self.inputs[a].cursor.ordered_key().cmp(self.inputs[b].cursor.ordered_key());
        keys.then(b.cmp(&a)).is_lt()
    }
}

/// Adds the section's descriptions that have rows to `all`; returns where each of them is now.
fn join_descriptions(section: &Section, all: &mut Vec<String>) -> Vec<Option<u32>> {
    let join = |description: &crate::footer::Description| {
        if description.rows == 0 {
            return None;
        }
        let known = all.iter().position(|text| *text == description.text);
        let index = known.unwrap_or_else(|| {
            all.push(description.text.clone());
            all.len() - 1
        });
        Some(index as u32)
    };
    section.descriptions.iter().map(join).collect()
}
