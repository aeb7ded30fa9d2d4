//! What this process has made visible.
//!
//! A restored checkpoint does not say which of its output was committed. Whoever committed it knows: a
//! restart in the same process does not call output lost that was taken away after it was visible.
//! Bounded: only the newest names are kept, which are those that a restart asks about.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// How many names are kept; a checkpoint holds one per subtask and rolled file.
const KEPT: usize = 16 * 1024;

/// Names of prepared files that were committed. No two files ever have the same one.
#[derive(Clone, Default)]
pub(crate) struct Committed {
    names: Arc<Mutex<VecDeque<PathBuf>>>,
}

static OF_THIS_PROCESS: LazyLock<Committed> = LazyLock::new(Committed::default);

impl Committed {
    /// What all sinks of this process have committed.
    pub(crate) fn of_this_process() -> Committed {
        OF_THIS_PROCESS.clone()
    }

    pub(crate) fn add(&self, prepared: &Path) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() == KEPT {
            names.pop_front();
        }
        names.push_back(prepared.to_owned());
    }

    pub(crate) fn contains(&self, prepared: &Path) -> bool {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|name| name == prepared)
    }
}
