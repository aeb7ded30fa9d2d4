//! A way to end waiting early: when an attempt ends, nobody needs what it still tries to store.
//!
//! Owns one flag that goes up once. Does *not* own what is waited for.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::retry::Sleep;

/// A flag that ends waits. Clones share it; once raised it stays so.
#[derive(Clone, Debug)]
pub struct Interrupt {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    raised: Mutex<bool>,
    changed: Condvar,
    since: Instant,
}

impl Default for Interrupt {
    fn default() -> Self {
        Interrupt::new()
    }
}

impl Interrupt {
    /// One that is not raised.
    #[must_use]
    pub fn new() -> Self {
        let shared = Shared { raised: Mutex::new(false), changed: Condvar::new(), since: Instant::now() };
        Interrupt { shared: Arc::new(shared) }
    }

    /// Ends all waits, those to come included.
    pub fn raise(&self) {
        *self.shared.raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.changed.notify_all();
    }

    /// Whether it was raised.
    #[must_use]
    pub fn is_raised(&self) -> bool {
        *self.shared.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Blocks the calling thread, until the time is over or the flag is up.
impl Sleep for Interrupt {
    fn sleep(&self, duration: Duration) {
        let raised = self.shared.raised.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.shared.changed.wait_timeout_while(raised, duration, |raised| !*raised);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn now(&self) -> Duration {
        self.shared.since.elapsed()
    }

    fn is_interrupted(&self) -> bool {
        self.is_raised()
    }
}
