//! Values that all processes must see alike, asked of process 0.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use millpond_cluster::Wire;
use millpond_core::UserResult;
use millpond_engine::SharedValues;

use crate::crew::says::{FromMember, ValueAnswer};
use crate::crew::values::compute_and_tell;

/// The values of one attempt, as far as this process has asked.
#[derive(Default)]
pub(crate) struct Asked {
    answers: Mutex<Answers>,
    changed: Condvar,
}

#[derive(Default)]
struct Answers {
    by_name: HashMap<String, ValueAnswer>,
    cancelled: bool,
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Process 0 has answered.
    pub(crate) fn answer(&self, name: String, answer: ValueAnswer) {
        self.lock().by_name.insert(name, answer);
        self.changed.notify_all();
    }

    /// The attempt has ended: nobody waits any longer.
    pub(crate) fn cancel(&self) {
        self.lock().cancelled = true;
        self.changed.notify_all();
    }

    fn wait(&self, name: &str) -> UserResult<ValueAnswer> {
        let mut answers = self.lock();
        loop {
            if answers.cancelled {
                return Err("the attempt has ended".into());
            }
            if let Some(answer) = answers.by_name.remove(name) {
                return Ok(answer);
            }
            answers = self.changed.wait(answers).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The values as the workers of this process see them. The engine lets one thread ask at a time.
pub(crate) struct FarValues {
    pub(crate) attempt: u64,
    pub(crate) wire: Arc<Wire>,
    pub(crate) asked: Arc<Asked>,
}

impl SharedValues for FarValues {
    fn get_or_compute(&self, name: &str, compute: &mut dyn FnMut() -> UserResult<Vec<u8>>) -> UserResult<Vec<u8>> {
        self.wire.send(&FromMember::Ask { attempt: self.attempt, name: name.to_owned() });
        match self.asked.wait(name)? {
            ValueAnswer::Known(bytes) => Ok(bytes),
            ValueAnswer::Compute => compute_and_tell(compute, |value| {
                self.wire.send(&FromMember::Computed { attempt: self.attempt, name: name.to_owned(), value });
            }),
        }
    }
}
