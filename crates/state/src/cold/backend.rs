//! What a program hands to a job so that its state may outgrow memory.

use std::path::Path;
use std::sync::Arc;

use super::{ColdError, ColdStores};

/// A kind of cold store, compiled into the program. One serves all attempts of a job.
pub trait ColdBackend: Send + Sync {
    /// How it is called in settings and messages.
    fn name(&self) -> &'static str;

    /// Opens the stores of one attempt in `directory`, or in a temporary one, empty whatever is found there.
    /// Together they use `bytes` bytes of memory. What they take on disk is given back when the last of them
    /// is dropped.
    ///
    /// # Errors
    /// When the directory is in use by others or cannot be written, or the store cannot be opened.
    fn start(&self, directory: Option<&Path>, bytes: u64) -> Result<Arc<dyn ColdStores>, ColdError>;
}
