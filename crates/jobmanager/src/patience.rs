//! Says why an attempt ends when its end takes long.
//!
//! Ending an attempt waits for user code and for storage. Whoever gets the error tells it once the end is
//! there; only somebody who waits for that end has to hear of it before.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use crate::error::JobError;

/// How long the end of an attempt may take in silence.
const SILENCE: Duration = Duration::from_secs(2);

/// Lives as long as the attempt takes to end.
pub(crate) struct Patience {
    _ended: Option<Sender<()>>,
}

impl Patience {
    /// Begins to wait for the end of an attempt that failed with `error`.
    pub(crate) fn start(error: &JobError) -> Patience {
        Patience::with_cause(millpond_core::error::chain(error))
    }

    /// The same for an attempt that ends because of what `cause` says.
    pub(crate) fn with_cause(cause: String) -> Patience {
        Patience::with_silence(SILENCE, cause, say)
    }

    fn with_silence(silence: Duration, cause: String, say: impl FnOnce(&str) + Send + 'static) -> Patience {
        let (ended, waiting) = channel::<()>();
        let thread = std::thread::Builder::new().name("patience".to_owned());
        let started = thread.spawn(move || {
            if waiting.recv_timeout(silence) == Err(RecvTimeoutError::Timeout) {
                say(&cause);
            }
        });
        // Without a thread nothing is said before the end, which is no reason to fail otherwise.
        Patience { _ended: started.ok().map(|_| ended) }
    }
}

fn say(cause: &str) {
    tracing::error!(error = cause, "the attempt ends, and waits for user code or storage");
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn the_cause_of_an_end_that_takes_long_is_said_before_it() {
        let (said, hears) = channel();
        let patience = Patience::with_silence(Duration::ZERO, "why".to_owned(), move |cause| {
            let _ = said.send(cause.to_owned());
        });
        assert_eq!(hears.recv().unwrap(), "why");
        drop(patience);
    }

    #[test]
    fn an_end_that_comes_soon_is_silent_so_that_no_cause_is_told_twice() {
        let (said, hears) = channel();
        drop(Patience::with_silence(Duration::from_secs(3_600), "why".to_owned(), move |cause| {
            let _ = said.send(cause.to_owned());
        }));
        assert!(hears.recv().is_err());
    }
}
