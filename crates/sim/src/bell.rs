//! How other threads make themselves heard: work that operators have elsewhere, such as blocking calls.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Wake;
use std::time::Duration;

/// Rings when a subtask can go on.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    ringing: Condvar,
}

impl Bell {
    /// Waits until it rings, or has since the last time; false after `longest`.
    pub(crate) fn wait(&self, longest: Duration) -> bool {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.ringing.wait_timeout_while(rung, longest, |rung| !*rung);
        let (mut rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *rung)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ringing.notify_all();
    }
}
