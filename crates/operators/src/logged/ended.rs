//! What a thread of an attempt that is over still does: nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use millpond_core::error::Classified;
use millpond_core::{Epoch, UserError, UserResult};
use millpond_dataflow::AttemptEnd;

use super::applier::Work;
use super::claim::Claimed;
use super::log::OpenLog;
use super::{Applier, EpochLog, LoggedError, LoggedTarget, Patience};

/// Has no marker, and fails to apply anything but that of a new writer.
#[derive(Clone, Default)]
struct Failing {
    claims: Arc<AtomicU64>,
    applied: Arc<AtomicU64>,
    /// The claim with this number is the last thing that happens before the attempt ends.
    ends_at: Option<(u64, AttemptEnd)>,
    fails_at_once: bool,
}

impl LoggedTarget for Failing {
    fn claim(&mut self, _writer: &str) -> UserResult<Option<Epoch>> {
        let claims = self.claims.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some((last, end)) = &self.ends_at
            && *last == claims
        {
            end.set();
        }
        Ok(Some(Epoch::ZERO))
    }

    fn apply(&mut self, epoch: Epoch, _logs: &[EpochLog]) -> UserResult {
        self.applied.fetch_add(1, Ordering::SeqCst);
        if epoch == Epoch::ZERO && !self.fails_at_once { Ok(()) } else { Err("the connection broke".into()) }
    }
}

const FOR_EVER: Patience = Patience { total: Duration::from_secs(3_600), pause: Duration::from_millis(1) };

fn log() -> Vec<EpochLog> {
    let mut open = OpenLog::default();
    open.add(|entry| {
        entry.push(b'x');
        Ok::<(), UserError>(())
    })
    .unwrap();
    vec![open.close(Epoch(1)).unwrap()]
}

fn is_over(error: &UserError) -> bool {
    let classified = error.downcast_ref::<Classified>().map(Classified::get_ref);
    matches!(classified.and_then(|error| error.downcast_ref()), Some(LoggedError::Over { .. }))
}

#[test]
fn a_thread_of_an_attempt_that_is_over_claims_its_name_no_more() {
    let end = AttemptEnd::default();
    let target = Failing { ends_at: Some((4, end.clone())), ..Failing::default() };
    let (claims, applied) = (Arc::clone(&target.claims), Arc::clone(&target.applied));
    let mut applier = Applier::on_thread(target, FOR_EVER);
    applier.end_with(&end);
    applier.begin("w".to_owned()).unwrap();
    applier.ask(Work::Logs(log()), Waker::noop());
    while !applier.is_done() {
        std::thread::yield_now();
    }
    assert!(is_over(&applier.outcome().unwrap().unwrap_err()));
    // The first marker, and what failed before the three claims of the log; nothing after the last claim.
    assert_eq!((claims.load(Ordering::SeqCst), applied.load(Ordering::SeqCst)), (4, 4));
}

#[test]
fn a_subtask_that_waits_for_its_target_in_open_goes_when_the_attempt_is_over() {
    let end = AttemptEnd::default();
    let target = Failing { ends_at: Some((7, end.clone())), fails_at_once: true, ..Failing::default() };
    let claims = Arc::clone(&target.claims);
    let mut applier = Applier::on_thread(target, FOR_EVER);
    applier.end_with(&end);
    assert!(is_over(&applier.begin("w".to_owned()).unwrap_err()));
    assert_eq!(claims.load(Ordering::SeqCst), 7);
}

#[test]
fn an_attempt_that_is_over_before_it_claims_touches_nothing() {
    let (target, end) = (Failing::default(), AttemptEnd::default());
    end.set();
    let claims = Arc::clone(&target.claims);
    assert!(is_over(&Claimed::new(target, "w".to_owned(), end).begin().unwrap_err()));
    assert_eq!(claims.load(Ordering::SeqCst), 0);
}
