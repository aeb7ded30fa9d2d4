//! Many rows at once: written as sorted files, which the database takes over as they are.

use std::path::PathBuf;

use millpond_core::KeyGroup;
use millpond_runs::StateIndex;
use millpond_state::{ColdError, ColdLoader};
use rocksdb::{IngestExternalFileOptions, SstFileWriter};

use crate::error::Doing;
use crate::key::put_place;
use crate::store::{RocksStore, SAMPLE_ROWS, mean_bytes};

/// Fills a store in bulk.
pub(crate) struct RocksLoader<'a> {
    store: &'a RocksStore,
    /// The file that is being written.
    open: Option<SstFileWriter<'a>>,
    files: Vec<PathBuf>,
    /// The first rows, by place: they wait until it is known how large rows are.
    sample: Vec<(Vec<u8>, Vec<u8>)>,
    sampled: bool,
    state: StateIndex,
    /// Where the last row stands.
    last: Vec<u8>,
    place: Vec<u8>,
}

impl<'a> RocksLoader<'a> {
    pub(crate) fn new(store: &'a RocksStore) -> Self {
        RocksLoader {
            store,
            open: None,
            files: Vec::new(),
            sample: Vec::new(),
            sampled: false,
            state: StateIndex(0),
            last: Vec::new(),
            place: Vec::new(),
        }
    }

    /// The file that the next row goes to.
    fn file(&mut self) -> Result<&mut SstFileWriter<'a>, ColdError> {
        let full = self.store.shared.resources.shares.file;
        if self.open.as_ref().is_some_and(|file| file.file_size() >= full) {
            self.close_file()?;
        }
        match self.open {
            Some(ref mut file) => Ok(file),
            None => {
                let shared = &self.store.shared;
                let path = shared.next_file();
                let (_, metadata) = self.store.family_for(|| mean_bytes(pairs(&self.sample)))?;
                let file = SstFileWriter::create(shared.options.of(metadata));
                file.open(&path).map_err(|error| self.store.failed(Doing::Write, &error))?;
                self.files.push(path);
                Ok(self.open.insert(file))
            }
        }
    }

    fn write(&mut self, place: &[u8], value: &[u8]) -> Result<(), ColdError> {
        let written = self.file()?.put(place, value);
        written.map_err(|error| self.store.failed(Doing::Write, &error))
    }

    /// The first rows are known: what waited goes ahead.
    fn end_sample(&mut self) -> Result<(), ColdError> {
        if self.sample.is_empty() {
            return Ok(());
        }
        // Opened before the sample is taken: its column family is made by it.
        self.file()?;
        self.sampled = true;
        for (place, value) in std::mem::take(&mut self.sample) {
            self.write(&place, &value)?;
        }
        Ok(())
    }

    fn close_file(&mut self) -> Result<(), ColdError> {
        match self.open.take() {
            Some(mut file) => file.finish().map_err(|error| self.store.failed(Doing::Write, &error)),
            None => Ok(()),
        }
    }
}

impl ColdLoader for RocksLoader<'_> {
    fn put(&mut self, state: StateIndex, group: KeyGroup, key: &[u8], value: &[u8]) -> Result<(), ColdError> {
        self.place.clear();
        put_place(state, group, key, &mut self.place);
        if state != self.state {
            // States come in any order, files are sorted.
            self.end_sample()?;
            self.close_file()?;
            self.state = state;
        } else if (self.open.is_some() || !self.sample.is_empty()) && self.place <= self.last {
            return Err(ColdError::LoadOrder { state: state.0, group });
        }
        let place = std::mem::take(&mut self.place);
        if self.sampled {
            self.write(&place, value)?;
        } else {
            self.sample.push((place.clone(), value.to_vec()));
            if self.sample.len() == SAMPLE_ROWS {
                self.end_sample()?;
            }
        }
        self.place = std::mem::replace(&mut self.last, place);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ColdError> {
        self.end_sample()?;
        self.close_file()?;
        let files = std::mem::take(&mut self.files);
        if files.is_empty() {
            return Ok(());
        }
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        let (family, _) = self.store.family_for(|| 0)?;
        let taken = self.store.shared.database.ingest_external_file_cf_opts(&family, &options, files);
        taken.map_err(|error| self.store.failed(Doing::Write, &error))
    }
}

impl Drop for RocksLoader<'_> {
    /// What was not taken over is of no use.
    fn drop(&mut self) {
        self.open = None;
        for file in &self.files {
            let _ = std::fs::remove_file(file);
        }
    }
}

fn pairs(rows: &[(Vec<u8>, Vec<u8>)]) -> impl Iterator<Item = (&[u8], &[u8])> {
    rows.iter().map(|(place, value)| (place.as_slice(), value.as_slice()))
}
