//! The command line with what the features of this crate add.

use std::process::ExitCode;
use std::sync::Arc;

use millpond_cli::Extensions;
use millpond_core::UserResult;
use millpond_dataflow::Dataflow;
use millpond_jobmanager::ColdBackend;

/// What the features of this crate add to the command line: with `s3` and `hdfs`, checkpoints may go to
/// addresses such as `s3://bucket/prefix` and `hdfs://host:port/directory`; with `rocksdb`, `backend = rocksdb` works. A program that adds its own
/// begins with these and calls [`millpond_cli::main_with`].
#[must_use]
pub fn extensions() -> Extensions {
    #[cfg(any(feature = "s3", feature = "hdfs"))]
    let storages: Vec<std::sync::Arc<dyn millpond_storage::OpenStorage>> =
        vec![std::sync::Arc::new(millpond_storage_object::ObjectStoreOpener)];
    #[cfg(not(any(feature = "s3", feature = "hdfs")))]
    let storages = Vec::new();
    Extensions { storages, cold: cold() }
}

/// The cold store that this build has.
pub(crate) fn cold() -> Option<Arc<dyn ColdBackend>> {
    #[cfg(feature = "rocksdb")]
    return Some(Arc::new(millpond_state_rocksdb::RocksBackend));
    #[cfg(not(feature = "rocksdb"))]
    None
}

/// The whole `main` of a job: reads the command line, does what it says, and returns the exit code.
/// The job is called like the program.
pub fn main(job: impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static) -> ExitCode {
    millpond_cli::main_with(&extensions(), None, job)
}

/// Like [`main()`], for a job that is called `name` unless the user says otherwise.
pub fn main_named(name: &str, job: impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static) -> ExitCode {
    millpond_cli::main_with(&extensions(), Some(name), job)
}
