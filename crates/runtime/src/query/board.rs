//! Where questions wait for the subtask that owns the state.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millpond_core::{KeyGroup, KeyGroupRange, MaxParallelism};
use millpond_dataflow::SubtaskInfo;
use millpond_state::KeyedBackendControl;

use super::error::QueryError;

/// A question: looks at an operator's keyed state in the subtask that owns it, and answers for itself.
pub type StateVisit = Box<dyn FnOnce(&mut dyn KeyedBackendControl) + Send>;

/// Questions that may wait at one subtask.
pub const WAITING_QUESTIONS: usize = 1_024;

/// The questions that wait at one operator of one subtask.
#[derive(Default)]
pub struct QueryInbox {
    /// Whether any wait: looked at in every step, so it must cost nothing.
    waiting: AtomicBool,
    /// `None` when the subtask is gone.
    visits: Mutex<Option<VecDeque<StateVisit>>>,
}

impl QueryInbox {
    fn open() -> Self {
        QueryInbox { waiting: AtomicBool::new(false), visits: Mutex::new(Some(VecDeque::new())) }
    }

    fn put(&self, operator: &str, visit: StateVisit) -> Result<(), QueryError> {
        let mut visits = lock(&self.visits);
        let waiting = visits.as_mut().ok_or_else(|| QueryError::NotRunning { operator: operator.to_owned() })?;
        if waiting.len() >= WAITING_QUESTIONS {
            return Err(QueryError::Busy { operator: operator.to_owned(), waiting: waiting.len() });
        }
        waiting.push_back(visit);
        self.waiting.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether a question waits, or has waited just now.
    pub(crate) fn has_questions(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// The question that has waited longest.
    pub(crate) fn take(&self) -> Option<StateVisit> {
        if !self.waiting.load(Ordering::Acquire) {
            return None;
        }
        let mut visits = lock(&self.visits);
        let visit = visits.as_mut().and_then(VecDeque::pop_front);
        if visit.is_none() {
            self.waiting.store(false, Ordering::Release);
        }
        visit
    }

    /// Whoever waits is told, by the end of the question.
    fn close(&self) {
        let visits = lock(&self.visits).take();
        drop(visits);
    }
}

/// Where one subtask can be asked.
struct Desk {
    inbox: Arc<QueryInbox>,
    groups: KeyGroupRange,
    max: MaxParallelism,
    wake: Arc<dyn Fn() + Send + Sync>,
}

/// All subtasks of a job that can be asked about their keyed state, by operator. Shared by the job and
/// those who ask; empty between attempts.
#[derive(Default)]
pub struct QueryBoard {
    desks: Mutex<HashMap<String, Vec<Desk>>>,
}

impl QueryBoard {
    /// A subtask of an operator with keyed state can be asked from now on; `wake` makes it look.
    pub(crate) fn open(&self, info: &SubtaskInfo, wake: Arc<dyn Fn() + Send + Sync>) -> Arc<QueryInbox> {
        let inbox = Arc::new(QueryInbox::open());
        let desk = Desk { inbox: Arc::clone(&inbox), groups: info.key_groups(), max: info.max_parallelism, wake };
        lock(&self.desks).entry(info.operator.to_string()).or_default().push(desk);
        inbox
    }

    /// Nobody can be asked any more; who waits for an answer hears that there is none.
    pub fn clear(&self) {
        let desks = std::mem::take(&mut *lock(&self.desks));
        desks.values().flatten().for_each(|desk| desk.inbox.close());
    }

    /// Leaves a question at the subtask that owns a key, whose group depends on the number of groups.
    pub(crate) fn ask_owner(
        &self,
        operator: &str,
        group_of: impl Fn(MaxParallelism) -> KeyGroup,
        visit: StateVisit,
    ) -> Result<(), QueryError> {
        let desks = lock(&self.desks);
        let known = desks.get(operator).ok_or_else(|| unknown(operator, &desks))?;
        let owner = known.iter().find(|desk| desk.groups.contains(group_of(desk.max)));
        let owner = owner.ok_or_else(|| QueryError::NotRunning { operator: operator.to_owned() })?;
        owner.inbox.put(operator, visit)?;
        (owner.wake)();
        Ok(())
    }

    /// Leaves a question at every subtask of an operator; returns how many there are.
    pub(crate) fn ask_all(&self, operator: &str, mut visit: impl FnMut() -> StateVisit) -> Result<usize, QueryError> {
        let desks = lock(&self.desks);
        let known = desks.get(operator).ok_or_else(|| unknown(operator, &desks))?;
        for desk in known {
            desk.inbox.put(operator, visit())?;
            (desk.wake)();
        }
        Ok(known.len())
    }
}

fn unknown(operator: &str, desks: &HashMap<String, Vec<Desk>>) -> QueryError {
    if desks.is_empty() {
        return QueryError::NotRunning { operator: operator.to_owned() };
    }
    let mut known: Vec<String> = desks.keys().cloned().collect();
    known.sort_unstable();
    QueryError::NoSuchOperator { operator: operator.to_owned(), known }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
