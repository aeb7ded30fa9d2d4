//! A runtime of its own for asynchronous clients, with a time limit for every call.
//!
//! Calls are made from any thread, also from threads of another runtime: the future runs on threads of
//! this one, and the caller blocks on a plain channel.

use std::future::Future;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use millpond_storage::{Operation, StorageError, cause};
use tokio::runtime::{Builder, Runtime};

/// Threads that drive all requests.
const THREADS: usize = 2;

/// The runtime; ends in the background when it is dropped.
#[derive(Debug)]
pub(crate) struct Calls {
    runtime: Option<Runtime>,
    limit: Duration,
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoResult {
    /// The time was over; the request was given up.
    #[error("no answer within {} ms", limit.as_millis())]
    TimedOut {
        /// How long it was waited for.
        limit: Duration,
    },
    /// The future panicked or the runtime is gone.
    #[error("the client failed without an error")]
    Lost,
}

impl Calls {
    /// Starts the threads for the store at `location`; `limit` is the time that a call has.
    pub(crate) fn start(limit: Duration, location: &str) -> Result<Calls, StorageError> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(THREADS).thread_name("object-store").enable_all().build();
        let runtime = runtime.map_err(|error| StorageError::Unavailable {
            operation: Operation::Open,
            name: location.to_owned(),
            source: cause(error),
        })?;
        Ok(Calls { runtime: Some(runtime), limit })
    }

    /// Runs `future`, which moves about `bytes` bytes, to its end or until its time is over.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        bytes: u64,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NoResult> {
        let runtime = self.runtime.as_ref().ok_or(NoResult::Lost)?;
        let limit = millpond_storage::time_for(self.limit, bytes);
        let (answer, answers) = sync_channel(1);
        runtime.spawn(async move {
            let result = tokio::time::timeout(limit, future).await;
            // The caller waits for as long as there is an answer to come.
            let _ = answer.send(result.map_err(|_| NoResult::TimedOut { limit }));
        });
        answers.recv().unwrap_or(Err(NoResult::Lost))
    }

    /// Runs `future` in the background; nobody waits for it.
    pub(crate) fn run_apart(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(future);
        }
    }

    /// Where clients may run their own background work.
    #[cfg(feature = "hdfs")]
    pub(crate) fn handle(&self) -> Option<tokio::runtime::Handle> {
        self.runtime.as_ref().map(|runtime| runtime.handle().clone())
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        // Without waiting: it may be dropped on a thread of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
