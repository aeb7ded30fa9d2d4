//! What a program adds to the command line, without which it still works.

use std::sync::Arc;

use millpond_jobmanager::ColdBackend;
use millpond_storage::OpenStorage;

/// What a program adds to the command line: the ways to storages other than local directories, and
/// a place for state that memory does not hold. The facade
/// fills it from its features; a program may add its own.
#[derive(Clone, Default)]
pub struct Extensions {
    /// Who opens which addresses; of several for one scheme the first.
    pub storages: Vec<Arc<dyn OpenStorage>>,
    /// Where state goes that memory does not hold, for `backend = rocksdb`.
    pub cold: Option<Arc<dyn ColdBackend>>,
}
