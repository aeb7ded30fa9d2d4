//! Many rows at once: written as sorted files, which the database takes over as they are.

use std::path::PathBuf;

use millpond_core::KeyGroup;
use millpond_runs::StateIndex;
use millpond_state::{ColdError, ColdLoader};
use rocksdb::{IngestExternalFileOptions, SstFileWriter};

use crate::error::Doing;
use crate::key::put_place;
use crate::store::RocksStore;

/// Fills a store in bulk.
pub(crate) struct RocksLoader<'a> {
    store: &'a RocksStore,
    /// The file that is being written.
    open: Option<SstFileWriter<'a>>,
    files: Vec<PathBuf>,
    state: StateIndex,
    /// Where the last row stands.
    last: Vec<u8>,
    place: Vec<u8>,
}

impl<'a> RocksLoader<'a> {
    pub(crate) fn new(store: &'a RocksStore) -> Self {
        RocksLoader { store, open: None, files: Vec::new(), state: StateIndex(0), last: Vec::new(), place: Vec::new() }
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
                let file = SstFileWriter::create(&shared.options);
                file.open(&path).map_err(|error| self.store.failed(Doing::Write, &error))?;
                self.files.push(path);
                Ok(self.open.insert(file))
            }
        }
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
            self.close_file()?;
            self.state = state;
        } else if self.open.is_some() && self.place <= self.last {
            return Err(ColdError::LoadOrder { state: state.0, group });
        }
        let place = std::mem::take(&mut self.place);
        let written = self.file()?.put(&place, value);
        written.map_err(|error| self.store.failed(Doing::Write, &error))?;
        self.place = std::mem::replace(&mut self.last, place);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), ColdError> {
        self.close_file()?;
        let files = std::mem::take(&mut self.files);
        if files.is_empty() {
            return Ok(());
        }
        let mut options = IngestExternalFileOptions::default();
        options.set_move_files(true);
        let taken = self.store.shared.database.ingest_external_file_cf_opts(&self.store.family(), &options, files);
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
