//! One database per attempt, and who opens it.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_state::cold::LocalFiles;
use millpond_state::{ColdBackend, ColdError, ColdStore, ColdStores};
use rocksdb::{DBWithThreadMode, MultiThreaded};

use crate::directory::Directory;
use crate::error::{Doing, cold_error};
use crate::options::{FamilyOptions, Metadata, Resources};
use crate::store::RocksStore;

/// Opens RocksDB for each attempt of a job.
///
/// ```
/// use millpond_core::KeyGroup;
/// use millpond_runs::StateIndex;
/// use millpond_state::{ColdBackend, ColdRow};
/// use millpond_state_rocksdb::RocksBackend;
///
/// let stores = RocksBackend.start(None, 64 << 20)?;
/// let store = stores.open("counts", 0)?;
/// let (state, group) = (StateIndex(0), KeyGroup(7));
/// store.write(&mut [ColdRow { state, group, key: b"k", value: Some(b"v") }].into_iter())?;
/// store.get_many(state, &[(group, b"k")], &mut |_, value| assert_eq!(value, Some(&b"v"[..])))?;
/// # Ok::<(), millpond_state::ColdError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct RocksBackend;

impl ColdBackend for RocksBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn start(&self, directory: Option<&Path>, bytes: u64) -> Result<Arc<dyn ColdStores>, ColdError> {
        Ok(Arc::new(RocksStores::start(directory, bytes)?))
    }
}

const NAME: &str = "rocksdb";

/// The database of an attempt.
#[derive(Clone)]
pub struct RocksStores {
    shared: Arc<Shared>,
}

/// What lives until the last store is dropped. Fields are dropped in order: the directory last.
pub(crate) struct Shared {
    pub(crate) database: DBWithThreadMode<MultiThreaded>,
    pub(crate) options: FamilyOptions,
    pub(crate) resources: Resources,
    families: AtomicU64,
    files: AtomicU64,
    directory: Directory,
}

impl RocksStores {
    /// Opens an empty database in `directory`, or in a temporary one, that uses `bytes` bytes of memory; fewer
    /// than 8 MiB count as that.
    ///
    /// # Errors
    /// When the directory is in use or cannot be written, or the database cannot be opened.
    pub fn start(directory: Option<&Path>, bytes: u64) -> Result<RocksStores, ColdError> {
        let directory = Directory::take(directory)?;
        let path = directory.database();
        let failed = |error: rocksdb::Error| cold_error(Doing::Write, &path, &error);
        let resources = Resources::new(bytes);
        let options = FamilyOptions::new(&resources).map_err(failed)?;
        let database = DBWithThreadMode::<MultiThreaded>::open(&options.pieces, &path).map_err(failed)?;
        tracing::debug!(directory = %path.display(), bytes, "cold store opened");
        let (families, files) = (AtomicU64::new(0), AtomicU64::new(0));
        let shared = Shared { database, options, resources, families, files, directory };
        Ok(RocksStores { shared: Arc::new(shared) })
    }

    /// Bytes of memory in caches and write buffers now.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.shared.resources.bytes()
    }
}

impl ColdStores for RocksStores {
    fn open(&self, operator: &str, subtask: u32) -> Result<Arc<dyn ColdStore>, ColdError> {
        Ok(Arc::new(RocksStore::new(Arc::clone(&self.shared), operator, subtask)))
    }

    fn name(&self) -> &'static str {
        NAME
    }
}

impl Shared {
    /// Makes a column family and returns its name.
    pub(crate) fn make_family(&self, metadata: Metadata) -> Result<String, rocksdb::Error> {
        // A number, because names of operators may be long, and a store may be opened twice.
        let family = format!("{}", self.families.fetch_add(1, Ordering::Relaxed));
        self.database.create_cf(&family, self.options.of(metadata))?;
        Ok(family)
    }

    /// The name of a new file that the database shall take over.
    pub(crate) fn next_file(&self) -> PathBuf {
        self.directory.loading().join(format!("{}.sst", self.files.fetch_add(1, Ordering::Relaxed)))
    }

    /// Files beside the rows of a new store.
    pub(crate) fn files(self: &Arc<Self>) -> LocalFiles {
        let number = self.files.fetch_add(1, Ordering::Relaxed);
        LocalFiles::new(self.directory.beside(number), Arc::clone(self) as Arc<dyn Any + Send + Sync>)
    }

    /// Why a flush or compaction failed: the last error in RocksDB's own log.
    #[cold]
    pub(crate) fn last_words(&self) -> String {
        let log = std::fs::read(self.database.path().join("LOG")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let last = log.lines().rev().find(|line| line.contains("IO error: ") || line.contains("Corruption: "));
        last.map_or_else(|| "a flush or compaction failed".to_owned(), |line| line.trim().to_owned())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // All of it is deleted: nothing is worth finishing.
        self.database.cancel_all_background_work(true);
    }
}
