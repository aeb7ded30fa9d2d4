//! Values that all processes of an attempt must see alike: who asks first computes, the others wait.
//!
//! Lives in process 0. Threads of that process wait here; other processes are answered when there is an answer.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use millpond_core::UserResult;
use millpond_engine::SharedValues;

use super::says::ValueAnswer;

/// The values of one attempt.
#[derive(Default)]
pub(crate) struct Values {
    known: Mutex<Known>,
    changed: Condvar,
}

#[derive(Default)]
struct Known {
    values: HashMap<String, Value>,
    cancelled: bool,
}

enum Value {
    /// Somebody computes it; these processes wait.
    Computing(VecDeque<u32>),
    Here(Vec<u8>),
}

/// Whom to tell what.
pub(crate) type Answers = Vec<(u32, ValueAnswer)>;
/// Tells other processes what became of the value with this name.
pub(crate) type Tell = Box<dyn Fn(&str, Answers) + Send + Sync>;

impl Values {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another process asks; without an answer now it gets one later.
    pub(crate) fn ask(&self, name: &str, process: u32) -> Option<ValueAnswer> {
        let mut known = self.lock();
        match known.values.get_mut(name) {
            Some(Value::Here(bytes)) => Some(ValueAnswer::Known(bytes.clone())),
            Some(Value::Computing(waiting)) => {
                waiting.push_back(process);
                None
            }
            None => {
                known.values.insert(name.to_owned(), Value::Computing(VecDeque::new()));
                Some(ValueAnswer::Compute)
            }
        }
    }

    /// Whoever was to compute has done so, or failed: then the next one computes.
    pub(crate) fn computed(&self, name: &str, value: Option<Vec<u8>>) -> Answers {
        let mut known = self.lock();
        let waiting = match known.values.get_mut(name) {
            Some(Value::Computing(waiting)) => std::mem::take(waiting),
            _ => return Vec::new(),
        };
        self.changed.notify_all();
        let mut waiting = waiting.into_iter();
        let Some(bytes) = value else {
            let next = waiting.next();
            match next {
                Some(_) => known.values.insert(name.to_owned(), Value::Computing(waiting.collect())),
                None => known.values.remove(name),
            };
            return next.map(|process| (process, ValueAnswer::Compute)).into_iter().collect();
        };
        let answers = waiting.map(|process| (process, ValueAnswer::Known(bytes.clone()))).collect();
        known.values.insert(name.to_owned(), Value::Here(bytes));
        answers
    }

    /// The attempt has ended: nobody waits any longer.
    pub(crate) fn cancel(&self) {
        self.lock().cancelled = true;
        self.changed.notify_all();
    }

    /// Waits for the value; `None` when the caller is to compute it.
    fn wait(&self, name: &str) -> UserResult<Option<Vec<u8>>> {
        let mut known = self.lock();
        loop {
            if known.cancelled {
                return Err("the attempt has ended".into());
            }
            match known.values.get(name) {
                Some(Value::Here(bytes)) => return Ok(Some(bytes.clone())),
                Some(Value::Computing(_)) => {
                    known = self.changed.wait(known).unwrap_or_else(PoisonError::into_inner);
                }
                None => {
                    known.values.insert(name.to_owned(), Value::Computing(VecDeque::new()));
                    return Ok(None);
                }
            }
        }
    }
}

/// The values as the workers of process 0 see them.
pub(crate) struct LeaderValues {
    pub(crate) values: std::sync::Arc<Values>,
    /// Tells other processes.
    pub(crate) tell: Tell,
}

impl SharedValues for LeaderValues {
    fn get_or_compute(&self, name: &str, compute: &mut dyn FnMut() -> UserResult<Vec<u8>>) -> UserResult<Vec<u8>> {
        if let Some(bytes) = self.values.wait(name)? {
            return Ok(bytes);
        }
        compute_and_tell(compute, |value| (self.tell)(name, self.values.computed(name, value)))
    }
}

/// Computes a value and tells it, or that there is none, whatever becomes of user code: then somebody else computes.
pub(crate) fn compute_and_tell(
    compute: &mut dyn FnMut() -> UserResult<Vec<u8>>,
    tell: impl Fn(Option<Vec<u8>>),
) -> UserResult<Vec<u8>> {
    let mut told = Told { tell, value: None };
    let bytes = compute()?;
    told.value = Some(bytes.clone());
    Ok(bytes)
}

struct Told<F: Fn(Option<Vec<u8>>)> {
    tell: F,
    value: Option<Vec<u8>>,
}

impl<F: Fn(Option<Vec<u8>>)> Drop for Told<F> {
    fn drop(&mut self) {
        (self.tell)(self.value.take());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_first_to_ask_computes_and_all_see_its_value() {
        let values = Values::default();
        assert_eq!(values.ask("splits", 1), Some(ValueAnswer::Compute));
        assert_eq!(values.ask("splits", 2), None);
        assert_eq!(values.ask("splits", 3), None);
        assert_eq!(values.computed("splits", None), [(2, ValueAnswer::Compute)], "the first has failed");
        assert_eq!(values.computed("splits", Some(vec![7])), [(3, ValueAnswer::Known(vec![7]))]);
        assert_eq!(values.ask("splits", 1), Some(ValueAnswer::Known(vec![7])));
        assert_eq!(values.wait("splits").unwrap(), Some(vec![7]));
        assert_eq!(values.wait("other").unwrap(), None);
    }

    #[test]
    fn a_thread_that_waits_ends_with_the_attempt() {
        let values = Arc::new(Values::default());
        assert_eq!(values.ask("splits", 1), Some(ValueAnswer::Compute));
        let waiting = Arc::clone(&values);
        let thread = std::thread::spawn(move || waiting.wait("splits").unwrap_err().to_string());
        values.cancel();
        assert_eq!(thread.join().unwrap(), "the attempt has ended");
    }

    #[test]
    fn a_failed_computation_leaves_the_value_to_the_next() {
        let leader = LeaderValues { values: Arc::default(), tell: Box::new(|_, answers| assert!(answers.is_empty())) };
        assert!(leader.get_or_compute("splits", &mut || Err("no".into())).is_err());
        assert_eq!(leader.get_or_compute("splits", &mut || Ok(vec![1])).unwrap(), [1]);
        assert_eq!(leader.get_or_compute("splits", &mut || panic!("known")).unwrap(), [1]);
    }
}
