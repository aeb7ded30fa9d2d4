//! Looks for new partitions on a thread of its own, because brokers take their time.
//!
//! Invariant: the thread ends when the source is dropped, at the latest after its next look.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::Settings;

/// Partitions, by topic.
type Partitions = Vec<(String, i32)>;

/// The newest list of partitions.
pub(super) struct Discovery {
    found: Arc<Mutex<Partitions>>,
    /// Its end tells the thread to end.
    _alive: Sender<()>,
}

impl Discovery {
    pub(super) fn start(settings: Settings) -> Self {
        let found = Arc::new(Mutex::new(Partitions::new()));
        let (alive, ended) = channel();
        let theirs = Arc::clone(&found);
        let interval = settings.discovery.unwrap_or_default();
        let thread = std::thread::Builder::new().name("kafka partitions".to_owned());
        let spawned = thread.spawn(move || {
            let consumer = match settings.consumer() {
                Ok(consumer) => consumer,
                Err(error) => {
                    tracing::warn!(%error, "does not look for new partitions");
                    return;
                }
            };
            loop {
                match settings.find(&consumer) {
                    Ok(partitions) => *theirs.lock().unwrap_or_else(PoisonError::into_inner) = partitions,
                    Err(error) => tracing::warn!(%error, "cannot look for new partitions"),
                }
                match ended.recv_timeout(interval) {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "does not look for new partitions");
        }
        Discovery { found, _alive: alive }
    }

    /// The partitions as they were last seen; none before the first look.
    pub(super) fn found(&self) -> Partitions {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
