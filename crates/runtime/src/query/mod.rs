//! Questions to the keyed state of a running job.
//!
//! A question is left at the subtask that owns the key and answered in its next step, between batches: it
//! sees every record that was processed until then and nothing half-way, but also what a failure would
//! take back. Owns the way of question and answer. Does *not* own what has been checkpointed (see the room
//! `state-reader`).
//!
//! ```text
//! StateQuery → board: operator, key group → inbox of the subtask → step: visit → channel → answer
//! ```
//!
//! Invariants: a bounded number of questions waits at a subtask; nobody waits for ever; a question changes
//! nothing.

mod board;
mod error;
mod inboxes;

use std::any::type_name;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use millpond_core::{CodecError, Data, Key, KeyHash, hash::stable_hash};
use millpond_state::{KeyedBackend, KeyedBackendControl, StateError};

pub use board::{QueryBoard, QueryInbox, StateVisit, WAITING_QUESTIONS};
pub use error::QueryError;
pub(crate) use inboxes::Inboxes;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks the keyed state of a running job. Cheap to clone, from any thread.
#[derive(Clone)]
pub struct StateQuery {
    board: Arc<QueryBoard>,
    patience: Duration,
}

impl StateQuery {
    /// Questions to the job whose subtasks are on `board`.
    #[must_use]
    pub fn new(board: Arc<QueryBoard>) -> Self {
        StateQuery { board, patience: PATIENCE }
    }

    /// Waits so long for an answer; 5 seconds if nobody says otherwise.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The value of `key` in a value state; `None` when there is none. Of a state with a time to live, here and
    /// below, what has not expired.
    ///
    /// # Errors
    /// When the job does not run, has no such operator or state, or another key or value type, or when the
    /// subtask is too busy to answer.
    pub fn value<K: Key + Sync, V: Data>(&self, operator: &str, state: &str, key: &K) -> Result<Option<V>, QueryError> {
        self.look_up(operator, state, key, |backend, name| backend.peek_value(name))
    }

    /// The value of `key` in a reducing state; `None` when there is none.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn reduced<K: Key + Sync, T: Data>(
        &self,
        operator: &str,
        state: &str,
        key: &K,
    ) -> Result<Option<T>, QueryError> {
        self.look_up(operator, state, key, |backend, name| backend.peek_reduced(name))
    }

    /// The list of `key`; empty when there is none.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn list<K: Key + Sync, T: Data>(&self, operator: &str, state: &str, key: &K) -> Result<Vec<T>, QueryError> {
        self.look_up(operator, state, key, |backend, name| backend.peek_list(name))
    }

    /// One entry of the map of `key`; `None` when there is none.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn map_value<K: Key + Sync, UK: Key + Sync, UV: Data>(
        &self,
        operator: &str,
        state: &str,
        key: &K,
        user_key: &UK,
    ) -> Result<Option<UV>, QueryError> {
        let user_key = user_key.clone();
        self.look_up(operator, state, key, move |backend, name| backend.peek_map_value(name, &user_key))
    }

    /// All entries of the map of `key`, in no order.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn map<K: Key + Sync, UK: Key, UV: Data>(
        &self,
        operator: &str,
        state: &str,
        key: &K,
    ) -> Result<Vec<(UK, UV)>, QueryError> {
        self.look_up(operator, state, key, |backend, name| backend.peek_map(name))
    }

    /// All keys that have something in a state, in no order, one subtask after the other. Copies them while
    /// the subtask waits: for many keys, read a checkpoint instead.
    ///
    /// # Errors
    /// As [`Self::value`].
    pub fn keys<K: Key>(&self, operator: &str, state: &str) -> Result<Vec<K>, QueryError> {
        let (sender, answers) = channel();
        let subtasks = self.board.ask_all(operator, || {
            let (sender, operator, state) = (sender.clone(), operator.to_owned(), state.to_owned());
            Box::new(move |control| {
                let found = backend::<K>(&operator, &state, control).and_then(|backend| Ok(backend.keys(&state)?));
                let _ = sender.send(found);
            })
        })?;
        drop(sender);
        let due = Instant::now() + self.patience;
        let mut keys = Vec::new();
        for _ in 0..subtasks {
            keys.append(&mut self.wait(operator, &answers, due)?);
        }
        Ok(keys)
    }

    fn look_up<K: Key + Sync, R: Send + 'static>(
        &self,
        operator: &str,
        state: &str,
        key: &K,
        read: impl FnOnce(&mut KeyedBackend<K>, &str) -> Result<R, StateError> + Send + 'static,
    ) -> Result<R, QueryError> {
        let encode = |source: CodecError| {
            QueryError::State(StateError::Codec { state: state.to_owned(), source: Box::new(source) })
        };
        let stable = stable_hash(key, &mut Vec::new()).map_err(encode)?;
        let (sender, answers) = channel();
        let (name, of, key) = (state.to_owned(), operator.to_owned(), key.clone());
        let visit: StateVisit = Box::new(move |control| {
            let answer = backend::<K>(&of, &name, control).and_then(|backend| {
                backend.set_current_key_of(key)?;
                let result = read(backend, &name);
                backend.clear_current_key();
                Ok(result?)
            });
            let _ = sender.send(answer);
        });
        self.board.ask_owner(operator, |max| KeyHash::from_stable(stable, max).group(), visit)?;
        self.wait(operator, &answers, Instant::now() + self.patience)
    }

    fn wait<R>(
        &self,
        operator: &str,
        answers: &Receiver<Result<R, QueryError>>,
        due: Instant,
    ) -> Result<R, QueryError> {
        match answers.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                Err(QueryError::TimedOut { operator: operator.to_owned(), patience: self.patience })
            }
            Err(RecvTimeoutError::Disconnected) => Err(QueryError::NotRunning { operator: operator.to_owned() }),
        }
    }
}

/// The backend with its types, if it has the state: declaring a state that is there only finds it.
fn backend<'a, K: Key>(
    operator: &str,
    state: &str,
    control: &'a mut dyn KeyedBackendControl,
) -> Result<&'a mut KeyedBackend<K>, QueryError> {
    let sections = control.sections();
    if !sections.iter().any(|section| section.name == state) {
        let known = sections.into_iter().map(|section| section.name).collect();
        return Err(QueryError::NoSuchState { operator: operator.to_owned(), state: state.to_owned(), known });
    }
    let wrong = QueryError::WrongKey { operator: operator.to_owned(), asked: type_name::<K>() };
    control.as_any_mut().downcast_mut().ok_or(wrong)
}
