//! Many runs in a store far away: none is waited for before all have been asked.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use millpond_core::KeyGroupRange;
use millpond_runs::{LiveRows, MemoryRun, Prefetch, ReadError, ReadRange, RunReader, side_by_side, write_runs};

use crate::fixture::{EVERY_GROUP, Op, buffer, sections, small_settings};

const RUNS: usize = 6;

/// How many reads are under way in all files; each waits until one of every file is.
#[derive(Default)]
struct Together {
    now: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Together {
    fn arrive(&self) {
        let mut now = self.now.lock().unwrap();
        now.0 += 1;
        now.1 = now.1.max(now.0);
        self.changed.notify_all();
        let mut now = self.changed.wait_timeout_while(now, Duration::from_secs(20), |now| now.1 < RUNS).unwrap().0;
        now.0 -= 1;
    }

    /// The most that were under way at the same time since this was asked before.
    fn take(&self) -> usize {
        std::mem::take(&mut self.now.lock().unwrap().1)
    }
}

struct Far {
    run: MemoryRun,
    together: Arc<Together>,
}

impl ReadRange for Far {
    fn name(&self) -> &str {
        self.run.name()
    }

    fn size(&self) -> Result<u64, ReadError> {
        self.run.size()
    }

    fn read_range(&self, offset: u64, length: u64) -> Result<Vec<u8>, ReadError> {
        self.together.arrive();
        self.run.read_range(offset, length)
    }
}

#[test]
fn runs_are_opened_side_by_side_and_all_are_asked_for_rows_before_one_is_waited_for() {
    let together = Arc::new(Together::default());
    let files: Vec<(String, Vec<u8>)> = (0..RUNS)
        .map(|run| {
            let op = Op { state: 1, group: 3, key: vec![run as u8], value: Some(vec![7; 40]) };
            let mut written = write_runs(buffer(&[op]), &sections(), &small_settings()).unwrap();
            (format!("{run}.run"), written.remove(0).bytes)
        })
        .collect();
    let readers = side_by_side(&files, RUNS, |(name, bytes)| {
        let far = Far { run: MemoryRun::new(name, bytes.clone()), together: Arc::clone(&together) };
        RunReader::open(Prefetch::new(far, 1))
    });
    let readers = readers.unwrap();
    assert_eq!(together.take(), RUNS);

    let mut rows = LiveRows::new(readers.iter(), "count", EVERY_GROUP).unwrap();
    assert_eq!(together.take(), RUNS);
    let mut keys = Vec::new();
    while rows.advance().unwrap() {
        keys.extend_from_slice(rows.current().unwrap().unwrap().key);
    }
    assert_eq!(keys, (0..RUNS as u8).collect::<Vec<_>>());
    let mut none = LiveRows::new(readers.iter(), "count", KeyGroupRange::new(4, 9)).unwrap();
    assert!(!none.advance().unwrap());
}
