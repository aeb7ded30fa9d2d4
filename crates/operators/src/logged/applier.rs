//! Where logs are applied: on the subtask's thread, or on one of its own because the target makes it wait.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use millpond_core::error::panic_message;
use millpond_core::{UserError, UserResult};
use millpond_dataflow::AttemptEnd;

use super::LoggedTarget;
use super::claim::{Claimed, LoggedError, LostMarker, apply_restored, may_pass};
use super::log::{EpochLog, WriterLog};

/// How long a target that fails is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For so long from the first failure on.
    pub total: Duration,
    /// Between two tries.
    pub pause: Duration,
}

impl Patience {
    /// No second try.
    pub const NONE: Patience = Patience { total: Duration::ZERO, pause: Duration::ZERO };
}

/// What a target is asked for.
pub(super) enum Work {
    /// To apply these logs.
    Logs(Vec<EpochLog>),
    /// To set the marker anew.
    Marker,
}

impl Work {
    fn logs(&self) -> &[EpochLog] {
        match self {
            Work::Logs(logs) => logs,
            Work::Marker => &[],
        }
    }

    fn do_with<T: LoggedTarget>(&self, claimed: &mut Claimed<T>) -> UserResult {
        match self {
            Work::Logs(logs) => claimed.apply(logs),
            Work::Marker => claimed.renew(),
        }
    }
}

/// A target, and who calls it.
pub struct Applier {
    kind: Box<dyn Kind>,
}

impl Applier {
    /// The subtask itself calls the target, and a failure ends the attempt. For targets that never wait.
    #[must_use]
    pub fn here<T: LoggedTarget>(target: T) -> Self {
        Applier {
            kind: Box::new(Here { target: Some(target), claimed: None, outcome: None, end: AttemptEnd::default() }),
        }
    }

    /// A thread of its own calls the target; the subtask waits only while it opens. What fails and may pass
    /// is tried again for as long as `patience` says, and not when the attempt is over.
    #[must_use]
    pub fn on_thread<T: LoggedTarget + Send>(target: T, patience: Patience) -> Self {
        Applier {
            kind: Box::new(OnThread { patience, opening: Some(target), thread: None, end: AttemptEnd::default() }),
        }
    }

    /// Nothing is begun any more once `end` says that the attempt is over.
    pub(super) fn end_with(&mut self, end: &AttemptEnd) {
        self.kind.end_with(end.clone());
    }

    /// Applies the log of a former writer, so many bytes in a transaction.
    pub(super) fn restore(&mut self, log: &WriterLog, how: (LostMarker, usize)) -> UserResult {
        self.kind.restore(log, how)
    }

    /// Becomes the writer called `writer`.
    pub(super) fn begin(&mut self, writer: String) -> UserResult {
        self.kind.begin(writer)
    }

    /// Has `work` done. One request at a time.
    pub(super) fn ask(&mut self, work: Work, waker: &Waker) {
        self.kind.ask(work, waker);
    }

    /// The outcome of the request, once.
    pub(super) fn outcome(&mut self) -> Option<UserResult> {
        self.kind.outcome()
    }

    /// Whether [`Applier::outcome`] has something to say.
    pub(super) fn is_done(&self) -> bool {
        self.kind.is_done()
    }
}

trait Kind {
    fn end_with(&mut self, end: AttemptEnd);
    fn restore(&mut self, log: &WriterLog, how: (LostMarker, usize)) -> UserResult;
    fn begin(&mut self, writer: String) -> UserResult;
    fn ask(&mut self, work: Work, waker: &Waker);
    fn outcome(&mut self) -> Option<UserResult>;
    fn is_done(&self) -> bool;
}

struct Here<T> {
    target: Option<T>,
    claimed: Option<Claimed<T>>,
    outcome: Option<UserResult>,
    end: AttemptEnd,
}

impl<T: LoggedTarget> Kind for Here<T> {
    fn end_with(&mut self, end: AttemptEnd) {
        self.end = end;
    }

    fn restore(&mut self, log: &WriterLog, how: (LostMarker, usize)) -> UserResult {
        let Some(target) = self.target.take() else { return Ok(()) };
        let (target, result) = apply_restored(target, log, how, &self.end);
        self.target = Some(target);
        result
    }

    fn begin(&mut self, writer: String) -> UserResult {
        let Some(target) = self.target.take() else { return Ok(()) };
        self.claimed.insert(Claimed::new(target, writer, self.end.clone())).begin()
    }

    fn ask(&mut self, work: Work, _waker: &Waker) {
        if let Some(claimed) = &mut self.claimed {
            self.outcome = Some(work.do_with(claimed));
        }
    }

    fn outcome(&mut self) -> Option<UserResult> {
        self.outcome.take()
    }

    fn is_done(&self) -> bool {
        self.outcome.is_some()
    }
}

struct OnThread<T> {
    patience: Patience,
    /// Until the writer has begun, the target is called here.
    opening: Option<T>,
    thread: Option<Thread>,
    end: AttemptEnd,
}

/// What subtask and thread share.
struct Thread {
    requests: Sender<(Work, Waker)>,
    outcome: Arc<Mutex<Option<UserResult>>>,
}

impl<T: LoggedTarget + Send> Kind for OnThread<T> {
    fn end_with(&mut self, end: AttemptEnd) {
        self.end = end;
    }

    fn restore(&mut self, log: &WriterLog, how: (LostMarker, usize)) -> UserResult {
        let (opening, end) = (&mut self.opening, &self.end);
        insist(self.patience, end, &log.epochs, &mut || {
            let Some(target) = opening.take() else { return Ok(()) };
            let (target, result) = apply_restored(target, log, how, end);
            *opening = Some(target);
            result
        })
    }

    fn begin(&mut self, writer: String) -> UserResult {
        let Some(target) = self.opening.take() else { return Ok(()) };
        let mut claimed = Claimed::new(target, writer.clone(), self.end.clone());
        insist(self.patience, &self.end, &[], &mut || claimed.begin())?;
        let (requests, inbox) = channel();
        let outcome = Arc::new(Mutex::new(None));
        let (theirs, patience, end) = (Arc::clone(&outcome), self.patience, self.end.clone());
        let thread = std::thread::Builder::new().name(format!("sink {writer}"));
        thread
            .spawn(move || run(claimed, &inbox, &theirs, patience, &end))
            .map_err(|source| LoggedError::Thread { source }.classified())?;
        self.thread = Some(Thread { requests, outcome });
        Ok(())
    }

    fn ask(&mut self, work: Work, waker: &Waker) {
        if let Some(thread) = &self.thread {
            // The thread lives as long as the sender; if it has panicked, its outcome says so.
            let _ = thread.requests.send((work, waker.clone()));
        }
    }

    fn outcome(&mut self) -> Option<UserResult> {
        lock(&self.thread.as_ref()?.outcome).take()
    }

    fn is_done(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| lock(&thread.outcome).is_some())
    }
}

fn lock<R>(mutex: &Mutex<R>) -> std::sync::MutexGuard<'_, R> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run<T: LoggedTarget>(
    mut claimed: Claimed<T>,
    inbox: &Receiver<(Work, Waker)>,
    outcome: &Mutex<Option<UserResult>>,
    patience: Patience,
    end: &AttemptEnd,
) {
    while let Ok((work, waker)) = inbox.recv() {
        let attempt = || insist(patience, end, work.logs(), &mut || work.do_with(&mut claimed));
        let result = catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|payload| {
            Err(LoggedError::Panicked { message: panic_message(payload.as_ref()) }.classified())
        });
        *lock(outcome) = Some(result);
        waker.wake();
    }
}

/// Calls `action` until it succeeds, fails for good, or patience or the attempt is at its end.
fn insist(
    patience: Patience,
    end: &AttemptEnd,
    logs: &[EpochLog],
    action: &mut dyn FnMut() -> UserResult,
) -> UserResult {
    let mut first: Option<Instant> = None;
    loop {
        let Err(error) = action() else { return Ok(()) };
        let waited = first.get_or_insert_with(Instant::now).elapsed();
        if !may_pass(&error) || end.is_over() {
            return Err(error);
        }
        if waited >= patience.total {
            return Err(gave_up(logs, waited, error));
        }
        tracing::warn!(error = millpond_core::error::chain(error.as_ref()), "a sink's target fails; tries again");
        std::thread::sleep(patience.pause);
    }
}

fn gave_up(logs: &[EpochLog], waited: Duration, source: UserError) -> UserError {
    let Some(last) = logs.last() else { return source };
    let entries = logs.iter().map(EpochLog::len).sum();
    LoggedError::GaveUp { epoch: last.epoch(), entries, waited_ms: waited.as_millis(), source }.classified()
}
