//! How futures that can go on make themselves heard, from any thread.
//!
//! Invariant: what was rung and not yet heard is in the list, and `rung` is set; a ring is never lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// Where all futures of a subtask ring.
#[derive(Default)]
pub(crate) struct Alarm {
    rung: AtomicBool,
    numbers: Mutex<Vec<u64>>,
    /// Makes the subtask run.
    subtask: Mutex<Option<Waker>>,
}

impl Alarm {
    /// Whom to wake when a future rings.
    pub(crate) fn set_subtask(&self, waker: &Waker) {
        let mut subtask = self.subtask.lock().unwrap_or_else(PoisonError::into_inner);
        if !subtask.as_ref().is_some_and(|known| known.will_wake(waker)) {
            *subtask = Some(waker.clone());
        }
    }

    /// Whether some future has rung since the last [`Alarm::hear`].
    pub(crate) fn has_rung(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    /// The numbers of those that have rung.
    pub(crate) fn hear(&self) -> Vec<u64> {
        self.rung.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.numbers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn ring(&self, number: u64) {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).push(number);
        self.rung.store(true, Ordering::SeqCst);
        let subtask = self.subtask.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(subtask) = subtask {
            subtask.wake();
        }
    }
}

/// The bell of one future.
pub(crate) struct Bell {
    number: u64,
    alarm: Arc<Alarm>,
    /// Rung and not answered: once is enough.
    ringing: AtomicBool,
}

impl Bell {
    pub(crate) fn new(number: u64, alarm: &Arc<Alarm>) -> Arc<Bell> {
        Arc::new(Bell { number, alarm: Arc::clone(alarm), ringing: AtomicBool::new(false) })
    }

    /// The future is about to be polled: from now on it rings again.
    pub(crate) fn answer(&self) {
        self.ringing.store(false, Ordering::SeqCst);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.ringing.swap(true, Ordering::SeqCst) {
            self.alarm.ring(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_rings_once_until_it_is_answered() {
        let alarm = Arc::new(Alarm::default());
        let bell = Bell::new(7, &alarm);
        let waker = Waker::from(Arc::clone(&bell));
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert!(alarm.has_rung());
        assert_eq!((alarm.hear(), alarm.has_rung()), (vec![7], false));
        waker.wake_by_ref();
        assert!(!alarm.has_rung(), "it was not answered");
        bell.answer();
        waker.wake();
        assert_eq!(alarm.hear(), [7]);
    }
}
