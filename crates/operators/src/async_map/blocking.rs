//! A pool of threads for calls that block, so that their results can be awaited.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use millpond_core::UserResult;
use millpond_core::error::panic_message;

use super::AsyncError;

/// Work for a thread of the pool.
type Work = Box<dyn FnOnce() + Send>;

/// Runs calls that block on threads of its own, for an [`async_map`](crate::StreamOperators::async_map).
///
/// Clones share their threads, which start with the first call and end with the last clone. A call that has begun runs
/// to its end, also when nobody waits for it any more: give the client a timeout that is not longer than that of the
/// async map, or calls that hang use up the threads.
#[derive(Clone)]
pub struct BlockingPool {
    shared: Arc<Shared>,
}

struct Shared {
    threads: usize,
    queue: Mutex<Option<Sender<Work>>>,
}

impl BlockingPool {
    /// A pool of `threads` threads, at least one.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        BlockingPool { shared: Arc::new(Shared { threads: threads.max(1), queue: Mutex::new(None) }) }
    }

    /// A pool without threads: calls run where they are awaited. For tests, which are deterministic with it.
    #[must_use]
    pub fn inline() -> Self {
        BlockingPool { shared: Arc::new(Shared { threads: 0, queue: Mutex::new(None) }) }
    }

    /// Runs `call` on one of the threads. The future is ready when it has returned; it fails when it has panicked, or
    /// when no thread could be started. Of a future that is dropped before, the call is not begun.
    pub fn run<R, F>(&self, call: F) -> impl Future<Output = UserResult<R>> + Send + use<R, F>
    where
        R: Send + 'static,
        F: FnOnce() -> UserResult<R> + Send + 'static,
    {
        Call { pool: self.clone(), begun: None, call: Some(Box::new(call)) }
    }

    fn submit(&self, work: Work) -> Result<(), AsyncError> {
        let mut queue = lock(&self.shared.queue);
        let sender = match &*queue {
            Some(sender) => sender.clone(),
            None => {
                let (sender, receiver) = channel();
                start(self.shared.threads, receiver)?;
                queue.insert(sender).clone()
            }
        };
        // The threads live as long as the sender.
        let _ = sender.send(work);
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(threads: usize, receiver: Receiver<Work>) -> Result<(), AsyncError> {
    let receiver = Arc::new(Mutex::new(receiver));
    for number in 0..threads {
        let receiver = Arc::clone(&receiver);
        let work = move || {
            loop {
                let next = lock(&receiver).recv();
                match next {
                    Ok(work) => work(),
                    Err(_) => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("blocking-{number}"));
        match thread.spawn(work) {
            Ok(_) => {}
            // Fewer threads do as well, but for none.
            Err(error) if number == 0 => return Err(AsyncError::Thread(error)),
            Err(_) => break,
        }
    }
    Ok(())
}

/// Where thread and future meet.
struct Meeting<R> {
    result: Option<UserResult<R>>,
    waker: Option<Waker>,
}

type BoxCall<R> = Box<dyn FnOnce() -> UserResult<R> + Send>;

struct Call<R> {
    pool: BlockingPool,
    begun: Option<Arc<Mutex<Meeting<R>>>>,
    call: Option<BoxCall<R>>,
}

fn guarded<R>(call: BoxCall<R>) -> UserResult<R> {
    catch_unwind(AssertUnwindSafe(call))
        .unwrap_or_else(|payload| Err(AsyncError::Panicked { message: panic_message(payload.as_ref()) }.into()))
}

impl<R: Send + 'static> Future for Call<R> {
    type Output = UserResult<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<UserResult<R>> {
        if let Some(call) = self.call.take() {
            if self.pool.shared.threads == 0 {
                return Poll::Ready(guarded(call));
            }
            let meeting = Arc::new(Mutex::new(Meeting { result: None, waker: Some(context.waker().clone()) }));
            let theirs = Arc::downgrade(&meeting);
            let work = move || {
                if theirs.strong_count() == 0 {
                    return;
                }
                let result = guarded(call);
                let Some(meeting) = theirs.upgrade() else { return };
                let waker = {
                    let mut meeting = lock(&meeting);
                    meeting.result = Some(result);
                    meeting.waker.take()
                };
                if let Some(waker) = waker {
                    waker.wake();
                }
            };
            self.pool.submit(Box::new(work))?;
            self.begun = Some(meeting);
            return Poll::Pending;
        }
        let Some(meeting) = &self.begun else { return Poll::Pending };
        let mut meeting = lock(meeting);
        if let Some(result) = meeting.result.take() {
            return Poll::Ready(result);
        }
        meeting.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
