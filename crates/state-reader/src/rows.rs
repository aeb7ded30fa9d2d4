//! The live rows of one keyed state, straight from its runs.
//!
//! Runs are opened when the walk comes to their key groups and closed behind it, so that a state of
//! many files needs no more than the files of one *segment*: a range of key groups within which the set
//! of files does not change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millpond_checkpoint::{OperatorManifest, RunRef};
use millpond_core::codec::{put_varint, take_varint};
use millpond_core::{KeyGroup, KeyGroupRange};
use millpond_runs::{LiveRows, RunError, RunReader, StoredRun};
use millpond_state::{StateDescription, StateKind};
use millpond_storage::Storage;

use crate::error::ReaderError;

type OpenRun = Arc<RunReader<StoredRun<Arc<dyn Storage>>>>;

/// Up to this many runs are opened at once without cutting the walk into segments.
const RUNS_AT_ONCE: usize = 64;

/// A row of a keyed state: of a value the value, of a map one entry, of a list one chunk.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The key's group.
    pub group: KeyGroup,
    /// The encoded key of the stream.
    pub key: &'a [u8],
    /// What follows the key: nothing, the encoded user key, or the chunk's number.
    pub suffix: &'a [u8],
    /// The encoded value.
    pub value: &'a [u8],
    /// What the value was written with; where the state has a time to live, the time is part of the value.
    pub description: &'a Arc<StateDescription>,
    /// The same as it is stored, with the time to live.
    pub(crate) written: &'a StateDescription,
}

impl Row<'_> {
    /// The part of the row's key that is the same for all rows of one key, in the order of rows.
    pub(crate) fn key_place(&self) -> Vec<u8> {
        let mut place = Vec::with_capacity(self.key.len() + self.suffix.len() + 2);
        put_varint(self.key.len() as u64, &mut place);
        place.extend_from_slice(self.key);
        place
    }

    /// The row's key without a chunk's number: what tells keys and user keys apart, in the order of rows.
    pub(crate) fn place(&self) -> Vec<u8> {
        let mut place = self.key_place();
        if self.description.kind == StateKind::Map {
            place.extend_from_slice(self.suffix);
        }
        place
    }
}

/// A description as it is stored, and with the times as part of the values.
struct Described {
    written: StateDescription,
    plain: Arc<StateDescription>,
}

/// Walks the live rows of one keyed state in the order of (key group, row key).
pub struct Rows {
    storage: Arc<dyn Storage>,
    operator: String,
    state: String,
    /// Oldest first.
    runs: Vec<RunRef>,
    /// What is still to be walked, last first.
    segments: Vec<KeyGroupRange>,
    open: BTreeMap<usize, OpenRun>,
    live: Option<LiveRows<OpenRun>>,
    descriptions: Vec<Described>,
}

impl Rows {
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        operator: &OperatorManifest,
        state: &str,
        groups: KeyGroupRange,
    ) -> Rows {
        let runs: Vec<RunRef> = operator.runs.iter().filter(|run| run.groups.intersects(groups)).cloned().collect();
        Rows {
            storage,
            operator: operator.name.clone(),
            state: state.to_owned(),
            segments: segments(&runs, groups),
            runs,
            open: BTreeMap::new(),
            live: None,
            descriptions: Vec::new(),
        }
    }

    /// Goes to the next live row; false when there is none.
    ///
    /// # Errors
    /// When a run cannot be read or is damaged.
    pub fn advance(&mut self) -> Result<bool, ReaderError> {
        loop {
            if let Some(live) = &mut self.live {
                match live.advance() {
                    Ok(true) => return Ok(true),
                    Ok(false) => self.live = None,
                    Err(source) => return Err(self.failed(source)),
                }
            }
            let Some(segment) = self.segments.pop() else {
                return Ok(false);
            };
            self.begin(segment)?;
        }
    }

    /// The row that was advanced to; `None` before the first and after the last.
    ///
    /// # Errors
    /// When the row does not have the form of rows.
    pub fn current(&self) -> Result<Option<Row<'_>>, ReaderError> {
        let Some(live) = &self.live else { return Ok(None) };
        let Some(row) = live.current().map_err(|source| self.failed(source))? else { return Ok(None) };
        let damaged = |reason: &str| self.damaged(row.group, reason);
        let (key, suffix) = split_key(row.key).ok_or_else(|| damaged("it is cut off"))?;
        let description = self.descriptions.get(row.description as usize);
        let Described { written, plain } = description.ok_or_else(|| damaged("its description is missing"))?;
        let value = row.value.unwrap_or_default();
        Ok(Some(Row { group: row.group, key, suffix, value, description: plain, written }))
    }

    fn begin(&mut self, segment: KeyGroupRange) -> Result<(), ReaderError> {
        let wanted: Vec<usize> = (0..self.runs.len()).filter(|i| self.runs[*i].groups.intersects(segment)).collect();
        self.open.retain(|index, _| wanted.contains(index));
        let mut readers = Vec::with_capacity(wanted.len());
        for index in wanted {
            let reader = match self.open.get(&index) {
                Some(reader) => Arc::clone(reader),
                None => {
                    let opened = open_run(&self.storage, &self.operator, &self.runs[index])?;
                    self.open.insert(index, Arc::clone(&opened));
                    opened
                }
            };
            readers.push(reader);
        }
        let live = LiveRows::new(readers, &self.state, segment).map_err(|source| self.failed(source))?;
        let texts = live.descriptions().iter();
        let parsed = texts.map(|text| {
            let written = StateDescription::from_json(&self.state, text)?;
            Ok(Described { plain: Arc::new(written.clone().as_stored()), written })
        });
        self.descriptions = parsed
            .collect::<Result<_, _>>()
            .map_err(|source| ReaderError::State { operator: self.operator.clone(), source })?;
        self.live = Some(live);
        Ok(())
    }

    fn failed(&self, source: RunError) -> ReaderError {
        let object = format!("the runs of state {:?}", self.state);
        ReaderError::Run { operator: self.operator.clone(), object, source }
    }

    fn damaged(&self, group: KeyGroup, reason: &str) -> ReaderError {
        ReaderError::Damaged {
            operator: self.operator.clone(),
            state: self.state.clone(),
            part: "key",
            group: Some(group),
            reason: reason.to_owned(),
        }
    }
}

pub(crate) fn open_run(storage: &Arc<dyn Storage>, operator: &str, run: &RunRef) -> Result<OpenRun, ReaderError> {
    let source = StoredRun::new(Arc::clone(storage), run.object.clone());
    let opened = RunReader::open_stated(source, run.bytes, run.checksum).map(Arc::new);
    opened.map_err(|source| ReaderError::Run { operator: operator.to_owned(), object: run.object.to_string(), source })
}

/// Cuts `groups` where a run begins or ends, last first.
fn segments(runs: &[RunRef], groups: KeyGroupRange) -> Vec<KeyGroupRange> {
    let mut cuts = BTreeSet::from([groups.start, groups.end]);
    if runs.len() > RUNS_AT_ONCE {
        let borders = runs.iter().flat_map(|run| [run.groups.start, run.groups.end]);
        cuts.extend(borders.filter(|border| (groups.start..groups.end).contains(border)));
    }
    let cuts: Vec<u32> = cuts.into_iter().collect();
    cuts.windows(2).rev().map(|pair| KeyGroupRange::new(pair[0], pair[1])).collect()
}

/// The encoded key and the suffix of a row key.
pub(crate) fn split_key(row_key: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = take_varint(row_key)?;
    rest.split_at_checked(usize::try_from(length).ok()?)
}

#[cfg(test)]
mod tests {
    use millpond_core::Epoch;
    use millpond_storage::ObjectName;

    use super::*;

    fn run(number: u32, start: u32, end: u32) -> RunRef {
        RunRef {
            object: ObjectName::new(format!("r{number}")).unwrap(),
            bytes: 0,
            raw_bytes: 0,
            rows: 0,
            tombstones: 0,
            groups: KeyGroupRange::new(start, end),
            checksum: 0,
            epoch: Epoch(1),
            level: 0,
        }
    }

    #[test]
    fn a_walk_over_many_runs_is_cut_where_they_begin_and_end() {
        let all = KeyGroupRange::new(0, 1_000);
        assert_eq!(segments(&[run(0, 3, 9)], all), [all]);
        let many: Vec<RunRef> = (0..100).map(|i| run(i, i * 10, i * 10 + 10)).collect();
        let cut = segments(&many, all);
        assert_eq!(cut.len(), 100);
        assert_eq!((cut[99], cut[0]), (KeyGroupRange::new(0, 10), KeyGroupRange::new(990, 1_000)));
        let part = segments(&many, KeyGroupRange::new(15, 25));
        assert_eq!(part, [KeyGroupRange::new(20, 25), KeyGroupRange::new(15, 20)]);
    }
}
