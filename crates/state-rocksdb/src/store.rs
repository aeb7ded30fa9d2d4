//! The rows of one operator subtask: one column family, made when the first rows come and show how large they are.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use millpond_core::{KeyGroup, KeyGroupRange};
use millpond_runs::StateIndex;
use millpond_state::cold::{ColdFiles, KeyAndValue, LocalFiles, RowVisitor};
use millpond_state::{ColdError, ColdLoader, ColdRow, ColdStore};
use rocksdb::{BoundColumnFamily, ErrorKind, WriteBatch};

use crate::error::{Doing, cold_error};
use crate::key::{HEAD_BYTES, end_of, is_one_entry, place_of, put_place};
use crate::loader::RocksLoader;
use crate::options::{Metadata, looking_up, scanning, writing};
use crate::stores::Shared;

/// Keys of one look-up. Their blocks stay in memory until all are found.
const KEYS_AT_ONCE: usize = 256;
/// Bytes of rows that are written at once.
const WRITE_BYTES: usize = 256 << 10;
/// How long a write waits before it tries again.
const HOLD: Duration = Duration::from_millis(2);
/// How long a write waits at most for flushes and compactions.
const LONGEST_HOLD: Duration = Duration::from_secs(120);
/// Above every place that a row can have: groups are below 32,768.
const END_OF_ALL: [u8; HEAD_BYTES] = [u8::MAX; HEAD_BYTES];

/// So many first rows say how large rows are.
pub(crate) const SAMPLE_ROWS: usize = 256;

/// A column family.
type Family<'a> = Arc<BoundColumnFamily<'a>>;

/// The cold store of one operator subtask.
pub(crate) struct RocksStore {
    pub(crate) shared: Arc<Shared>,
    operator: String,
    subtask: u32,
    /// Empty as long as no row has come.
    family: OnceLock<(String, Metadata)>,
    making: Mutex<()>,
    files: Arc<LocalFiles>,
}

impl RocksStore {
    /// An empty store. Dropping it drops its rows.
    pub(crate) fn new(shared: Arc<Shared>, operator: &str, subtask: u32) -> Self {
        let (family, making, files) = (OnceLock::new(), Mutex::new(()), Arc::new(shared.files()));
        RocksStore { shared, operator: operator.to_owned(), subtask, family, making, files }
    }

    /// The column family; `None` as long as no row has come.
    fn family(&self) -> Option<Family<'_>> {
        self.family.get().map(|(name, _)| self.named(name))
    }

    fn named(&self, name: &str) -> Family<'_> {
        self.shared
            .database
            .cf_handle(name)
            .expect("it was made before its name was known and is dropped with the store")
    }

    /// The column family and how its files are; made for rows of this size if there is none.
    pub(crate) fn family_for(
        &self,
        mean_row_bytes: impl FnOnce() -> usize,
    ) -> Result<(Family<'_>, Metadata), ColdError> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((name, metadata)) = self.family.get() {
            return Ok((self.named(name), *metadata));
        }
        let metadata = Metadata::of_rows(mean_row_bytes());
        let made = self.shared.make_family(metadata);
        let name = made.map_err(|error| ColdError::Open {
            operator: self.operator.clone(),
            subtask: self.subtask,
            place: self.place().display().to_string(),
            reason: error.to_string(),
        })?;
        tracing::debug!(operator = self.operator, subtask = self.subtask, ?metadata, "cold store filled");
        let (name, metadata) = self.family.get_or_init(|| (name, metadata));
        Ok((self.named(name), *metadata))
    }

    #[cold]
    pub(crate) fn failed(&self, doing: Doing, error: &rocksdb::Error) -> ColdError {
        cold_error(doing, self.place(), error)
    }

    fn place(&self) -> &Path {
        self.shared.database.path()
    }

    fn get_some(
        &self,
        family: &Family<'_>,
        state: StateIndex,
        keys: &[(KeyGroup, &[u8])],
        mut found: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<(), ColdError> {
        let mut bytes = Vec::with_capacity(keys.iter().map(|(_, key)| HEAD_BYTES + key.len()).sum());
        let mut ends = Vec::with_capacity(keys.len());
        for (group, key) in keys {
            put_place(state, *group, key, &mut bytes);
            ends.push(bytes.len());
        }
        let place = |position: usize| -> &[u8] {
            let start = if position == 0 { 0 } else { ends[position - 1] };
            &bytes[start..ends[position]]
        };
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_unstable_by(|a, b| place(*a).cmp(place(*b)));
        let places = order.iter().map(|position| place(*position));
        let values = self.shared.database.batched_multi_get_cf_opt(family, places, true, &looking_up());
        let mut slices: Vec<_> = keys.iter().map(|_| None).collect();
        for (position, value) in order.iter().zip(values) {
            slices[*position] = value.map_err(|error| self.failed(Doing::Read, &error))?;
        }
        for (position, slice) in slices.iter().enumerate() {
            found(position, slice.as_deref());
        }
        Ok(())
    }

    /// Writes a batch, and waits as long as it is held up by flushes and compactions.
    fn write_batch(&self, batch: WriteBatch) -> Result<(), ColdError> {
        let bytes = batch.data().to_vec();
        let (mut batch, mut held_up) = (batch, Duration::ZERO);
        loop {
            // RocksDB itself would wait for ever when the disk is full.
            self.check_background()?;
            match self.shared.database.write_opt(batch, &writing()) {
                Err(error) if error.kind() == ErrorKind::Incomplete && held_up < LONGEST_HOLD => {
                    std::thread::sleep(HOLD);
                    held_up += HOLD;
                    batch = WriteBatch::from_data(&bytes);
                }
                outcome => return outcome.map_err(|error| self.failed(Doing::Write, &error)),
            }
        }
    }

    /// Whether flushes and compactions work.
    fn check_background(&self) -> Result<(), ColdError> {
        let errors = self.shared.database.property_int_value("rocksdb.background-errors").ok().flatten();
        match errors {
            None | Some(0) => Ok(()),
            Some(_) => {
                Err(ColdError::Write { place: self.place().display().to_string(), reason: self.shared.last_words() })
            }
        }
    }

    fn delete_between(&self, start: &[u8], end: &[u8]) -> Result<(), ColdError> {
        let (Some(family), database) = (self.family(), &self.shared.database) else { return Ok(()) };
        let failed = |error: rocksdb::Error| self.failed(Doing::Write, &error);
        // First the mark that hides all, then whole files: the other way round older rows would show for a moment.
        let mut batch = WriteBatch::default();
        batch.delete_range_cf(&family, start, end);
        self.write_batch(batch)?;
        // The youngest files stay until they are compacted.
        database.delete_file_in_range_cf(&family, start, end).map_err(failed)
    }
}

impl ColdStore for RocksStore {
    fn get_many(
        &self,
        state: StateIndex,
        keys: &[(KeyGroup, &[u8])],
        found: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> Result<(), ColdError> {
        let Some(family) = self.family() else {
            (0..keys.len()).for_each(|position| found(position, None));
            return Ok(());
        };
        if let [(group, key)] = keys {
            let value = self.shared.database.get_pinned_cf_opt(&family, place_of(state, *group, key), &looking_up());
            let value = value.map_err(|error| self.failed(Doing::Read, &error))?;
            found(0, value.as_deref());
            return Ok(());
        }
        for (chunk, keys) in keys.chunks(KEYS_AT_ONCE).enumerate() {
            self.get_some(&family, state, keys, |position, value| found(chunk * KEYS_AT_ONCE + position, value))?;
        }
        Ok(())
    }

    fn scan(
        &self,
        state: StateIndex,
        group: KeyGroup,
        prefix: &[u8],
        from: Option<&[u8]>,
        visit: &mut RowVisitor<'_>,
    ) -> Result<(), ColdError> {
        let Some(family) = self.family() else { return Ok(()) };
        let within = place_of(state, group, prefix);
        let start = match from.filter(|from| *from > prefix) {
            Some(from) if !from.starts_with(prefix) => return Ok(()),
            Some(from) => place_of(state, group, from),
            None => within.clone(),
        };
        let options = scanning(within.clone(), end_of(&within), is_one_entry(&within));
        let mut rows = self.shared.database.raw_iterator_cf_opt(&family, options);
        rows.seek(&start);
        while let Some((place, value)) = rows.item() {
            if visit(&place[HEAD_BYTES..], value).is_break() {
                return Ok(());
            }
            rows.next();
        }
        rows.status().map_err(|error| self.failed(Doing::Read, &error))
    }

    fn last(&self, state: StateIndex, group: KeyGroup, prefix: &[u8]) -> Result<Option<KeyAndValue>, ColdError> {
        let Some(family) = self.family() else { return Ok(None) };
        let within = place_of(state, group, prefix);
        let one_entry = is_one_entry(&within);
        let options = scanning(within.clone(), end_of(&within), one_entry);
        let mut rows = self.shared.database.raw_iterator_cf_opt(&family, options);
        if one_entry {
            // Filters know the beginning only of places that have it: from one far up, and further up from there.
            rows.seek_for_prev([within.as_slice(), &[u8::MAX; 16]].concat());
            if !rows.valid() {
                rows.status().map_err(|error| self.failed(Doing::Read, &error))?;
                rows.seek(&within);
            }
        } else {
            rows.seek_to_last();
        }
        let mut last = None;
        while let Some((place, value)) = rows.item().filter(|(place, _)| place.starts_with(&within)) {
            last = Some((place[HEAD_BYTES..].to_vec(), value.to_vec()));
            rows.next();
        }
        rows.status().map_err(|error| self.failed(Doing::Read, &error))?;
        Ok(last)
    }

    fn write(&self, rows: &mut dyn Iterator<Item = ColdRow<'_>>) -> Result<(), ColdError> {
        let first: Vec<ColdRow<'_>> = (&mut *rows).take(SAMPLE_ROWS).collect();
        if first.is_empty() {
            return Ok(());
        }
        let (family, _) = self.family_for(|| mean_bytes(first.iter().filter_map(|row| Some((row.key, row.value?)))))?;
        let (mut batch, mut place) = (WriteBatch::default(), Vec::new());
        for row in first.into_iter().chain(rows) {
            place.clear();
            put_place(row.state, row.group, row.key, &mut place);
            match row.value {
                Some(value) => batch.put_cf(&family, &place, value),
                None => batch.delete_cf(&family, &place),
            }
            if batch.size_in_bytes() >= WRITE_BYTES {
                self.write_batch(std::mem::take(&mut batch))?;
            }
        }
        if batch.is_empty() { Ok(()) } else { self.write_batch(batch) }
    }

    fn load(&self) -> Result<Box<dyn ColdLoader + '_>, ColdError> {
        Ok(Box::new(RocksLoader::new(self)))
    }

    fn delete_range(&self, state: StateIndex, groups: KeyGroupRange) -> Result<(), ColdError> {
        if groups.is_empty() {
            return Ok(());
        }
        let place = |group: u32| -> Vec<u8> {
            // The group after the last one may be one that no number of two bytes names.
            let of_state = u64::from(state.0) << 16;
            let place = of_state + u64::from(group);
            u32::try_from(place).unwrap_or(u32::MAX).to_be_bytes().to_vec()
        };
        self.delete_between(&place(groups.start), &place(groups.end))
    }

    fn clear(&self) -> Result<(), ColdError> {
        self.delete_between(&[], &END_OF_ALL)
    }

    fn bytes(&self) -> u64 {
        let Some(family) = self.family() else { return 0 };
        let of = |name: &str| self.shared.database.property_int_value_cf(&family, name).ok().flatten().unwrap_or(0);
        of("rocksdb.live-sst-files-size") + of("rocksdb.cur-size-all-mem-tables")
    }

    fn files(&self) -> Arc<dyn ColdFiles> {
        Arc::clone(&self.files) as Arc<dyn ColdFiles>
    }
}

impl Drop for RocksStore {
    fn drop(&mut self) {
        let Some((family, _)) = self.family.get() else { return };
        if let Err(error) = self.shared.database.drop_cf(family) {
            tracing::warn!(family, %error, "a cold store could not be given back");
        }
    }
}

/// Mean size of rows with a value; 0 when there are none.
pub(crate) fn mean_bytes<'a>(rows: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> usize {
    let (rows, bytes) = rows.fold((0, 0), |(rows, bytes), (key, value)| (rows + 1, bytes + key.len() + value.len()));
    bytes.checked_div(rows).unwrap_or(0)
}
