//! One line that tells how a running job gets on, rewritten in place.
//!
//! Owns the line and the thread that rewrites it. What it says is decided by pure functions over two
//! looks at the job's counters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millpond_jobmanager::{JobStatus, StatusSnapshot};

use crate::message::counted;
use crate::terminal::Terminal;
use crate::units::{bytes_words, count_words, duration_words};

/// Time between two updates.
const UPDATE_INTERVAL: Duration = Duration::from_millis(250);
/// The rate is that of the last so many updates: about two seconds.
const RATE_LOOKS: usize = 8;

/// The running progress line; gone when dropped.
pub(crate) struct Progress {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Shows the progress of `status` on `terminal`, if somebody watches it.
    #[must_use]
    pub(crate) fn start(status: Arc<JobStatus>, terminal: Arc<Terminal>) -> Progress {
        if !terminal.is_interactive() {
            return Progress { stop: None, thread: None };
        }
        let (stop, stopped) = channel();
        let show = move || {
            let started = Instant::now();
            let mut looks = Looks::default();
            while stopped.recv_timeout(UPDATE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                let snapshot = status.snapshot();
                let rate = looks.rate(elapsed_ms, snapshot.records);
                terminal.show_line(&line(rate, &snapshot));
            }
            terminal.clear_line();
        };
        // Without a thread to show it there is no progress line; the job does not depend on it.
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(show).ok();
        Progress { stop: Some(stop), thread }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The last few looks at the counter of records.
#[derive(Debug, Default)]
struct Looks {
    looks: VecDeque<(u64, u64)>,
}

impl Looks {
    /// Records per second since the oldest remembered look; the job's start counts as a look.
    fn rate(&mut self, elapsed_ms: u64, records: u64) -> u64 {
        let (since_ms, before) = self.looks.front().copied().unwrap_or((0, 0));
        self.looks.push_back((elapsed_ms, records));
        if self.looks.len() > RATE_LOOKS {
            self.looks.pop_front();
        }
        let passed_ms = u128::from(elapsed_ms.saturating_sub(since_ms)).max(1);
        let rate = u128::from(records.saturating_sub(before)) * 1_000 / passed_ms;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// The progress line.
fn line(records_per_second: u64, now: &StatusSnapshot) -> String {
    let epoch = match now.epoch {
        0 => "no checkpoint yet".to_owned(),
        epoch => format!("epoch {epoch} in {}", duration_words(now.checkpoint_ms)),
    };
    let state = format!("state {} entries, {}", count_words(now.state_entries), bytes_words(now.state_bytes));
    let mut line = format!("{} records/s · {epoch} · {state}", count_words(records_per_second));
    if now.restarts > 0 {
        line.push_str(" · ");
        line.push_str(&counted(now.restarts, "restart"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_rate_epoch_state_and_restarts() {
        let mut now = StatusSnapshot::default();
        assert_eq!(line(0, &now), "0 records/s · no checkpoint yet · state 0 entries, 0 B");
        now.epoch = 41;
        now.checkpoint_ms = 230;
        now.state_entries = 1_200_000;
        now.state_bytes = 85_300_000;
        now.restarts = 2;
        let expected = "12.3k records/s · epoch 41 in 230 ms · state 1.2M entries, 85.3 MB · 2 restarts";
        assert_eq!(line(12_345, &now), expected);
    }

    #[test]
    fn the_rate_is_that_of_the_last_looks() {
        let mut looks = Looks::default();
        assert_eq!(looks.rate(0, 0), 0);
        assert_eq!(looks.rate(250, 1_000), 4_000);
        let rates: Vec<u64> = (2..30).map(|i| looks.rate(i * 250, 1_000)).collect();
        assert_eq!((rates[0], rates[27]), (2_000, 0));
    }
}
