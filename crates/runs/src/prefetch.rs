//! Reads ahead: while the rows of one piece are worked on, the next pieces are on their way.
//!
//! Owns a few threads for as long as one cursor walks. Does *not* own which pieces there are: the cursor
//! says so with [`ReadRange::expect_reads`], and asks for them in that order. Memory is bounded: at most
//! `at_once` pieces are under way or wait to be taken.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use millpond_core::ErrorKind;

use crate::source::{ReadError, ReadRange};

/// Reads of one file that are made before they are asked for.
#[derive(Debug)]
pub struct Prefetch<R> {
    source: Arc<R>,
    at_once: usize,
    current: Mutex<Option<Arc<Pieces>>>,
}

impl<R: ReadRange + Send + Sync + 'static> Prefetch<R> {
    /// Over `source`, with up to `at_once` pieces read ahead, at the same time; with 0, nothing is read ahead.
    pub fn new(source: R, at_once: usize) -> Self {
        Prefetch { source: Arc::new(source), at_once, current: Mutex::new(None) }
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<Pieces>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pieces of one walk.
#[derive(Debug)]
struct Pieces {
    /// Offset and length, in the order of the walk.
    ranges: Vec<(u64, u64)>,
    at_once: usize,
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    /// The next piece to fetch.
    next: usize,
    /// Pieces before this one have been taken.
    taken: usize,
    /// Fetched and not taken.
    fetched: BTreeMap<usize, Result<Vec<u8>, ReadError>>,
    /// Nobody asks any more.
    closed: bool,
}

impl Pieces {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next piece to fetch, once there is room for it.
    fn next(&self) -> Option<usize> {
        let mut progress = self.progress();
        loop {
            if progress.closed || progress.next == self.ranges.len() {
                return None;
            }
            if progress.next < progress.taken + self.at_once {
                progress.next += 1;
                return Some(progress.next - 1);
            }
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The content of this range, if it is the next one to be taken; waits for it.
    fn take(&self, range: (u64, u64)) -> Option<Result<Vec<u8>, ReadError>> {
        let mut progress = self.progress();
        let piece = progress.taken;
        if self.ranges.get(piece) != Some(&range) {
            return None;
        }
        while !progress.closed {
            if let Some(content) = progress.fetched.remove(&piece) {
                progress.taken = piece + 1;
                self.changed.notify_all();
                return Some(content);
            }
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        // Somebody else has begun another walk of the same file.
        None
    }

    fn close(&self) {
        self.progress().closed = true;
        self.changed.notify_all();
    }

    fn fetch_all(&self, source: &impl ReadRange) {
        while let Some(piece) = self.next() {
            let (offset, length) = self.ranges[piece];
            let read = catch_unwind(AssertUnwindSafe(|| source.read_range(offset, length)));
            let content = read.unwrap_or_else(|_| Err(ReadError::new(ErrorKind::Bug, "reading ahead panicked")));
            self.progress().fetched.insert(piece, content);
            self.changed.notify_all();
        }
    }
}

impl<R: ReadRange + Send + Sync + 'static> ReadRange for Prefetch<R> {
    fn name(&self) -> &str {
        self.source.name()
    }

    fn size(&self) -> Result<u64, ReadError> {
        self.source.size()
    }

    fn read_range(&self, offset: u64, length: u64) -> Result<Vec<u8>, ReadError> {
        let pieces = self.current().clone();
        let ahead = pieces.and_then(|pieces| pieces.take((offset, length)));
        ahead.unwrap_or_else(|| self.source.read_range(offset, length))
    }

    fn expect_reads(&self, ranges: &[(u64, u64)]) {
        let mut current = self.current();
        if let Some(before) = current.take() {
            before.close();
        }
        if ranges.is_empty() {
            return;
        }
        let (at_once, progress) = (self.at_once, Mutex::default());
        let pieces = Arc::new(Pieces { ranges: ranges.to_vec(), at_once, progress, changed: Condvar::new() });
        for _ in 0..at_once.min(ranges.len()) {
            let (own, source) = (Arc::clone(&pieces), Arc::clone(&self.source));
            let thread = std::thread::Builder::new().name("read-ahead".to_owned());
            let started = thread.spawn(move || own.fetch_all(source.as_ref()));
            if started.is_err() {
                // Whatever threads there are go on; without any, reads are made when they are asked for.
                break;
            }
            *current = Some(Arc::clone(&pieces));
        }
    }
}

impl<R> Drop for Prefetch<R> {
    fn drop(&mut self) {
        let current = self.current.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(pieces) = current.take() {
            pieces.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Bytes that say where they are, and how many reads are under way.
    struct Counting {
        now: AtomicUsize,
        most: Arc<AtomicUsize>,
    }

    impl ReadRange for Counting {
        fn name(&self) -> &str {
            "counting"
        }

        fn size(&self) -> Result<u64, ReadError> {
            Ok(1 << 20)
        }

        fn read_range(&self, offset: u64, length: u64) -> Result<Vec<u8>, ReadError> {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            std::thread::yield_now();
            self.now.fetch_sub(1, Ordering::SeqCst);
            match offset {
                666 => panic!("on purpose"),
                13 => Err(ReadError::new(ErrorKind::Unavailable, "unlucky")),
                _ => Ok((offset..offset + length).map(|byte| byte as u8).collect()),
            }
        }
    }

    fn prefetch(at_once: usize) -> (Prefetch<Counting>, Arc<AtomicUsize>) {
        let most = Arc::new(AtomicUsize::new(0));
        (Prefetch::new(Counting { now: AtomicUsize::new(0), most: Arc::clone(&most) }, at_once), most)
    }

    fn content(offset: u64, length: u64) -> Vec<u8> {
        (offset..offset + length).map(|byte| byte as u8).collect()
    }

    #[test]
    fn expected_pieces_come_in_order_and_never_too_many_at_once() {
        let (prefetch, most) = prefetch(3);
        let ranges: Vec<(u64, u64)> = (0..100).map(|piece| (piece * 7, 7)).collect();
        prefetch.expect_reads(&ranges);
        for (offset, length) in ranges {
            assert_eq!(prefetch.read_range(offset, length).unwrap(), content(offset, length));
        }
        assert!(most.load(Ordering::SeqCst) <= 3);
        // Behind the last piece, as for anything unexpected, reads are plain.
        assert_eq!(prefetch.read_range(5, 2).unwrap(), content(5, 2));
    }

    #[test]
    fn an_unexpected_read_is_made_at_once_and_disturbs_nothing() {
        let (prefetch, _) = prefetch(2);
        prefetch.expect_reads(&[(0, 4), (4, 4), (8, 4)]);
        assert_eq!(prefetch.read_range(4, 4).unwrap(), content(4, 4));
        for offset in [0, 4, 8] {
            assert_eq!(prefetch.read_range(offset, 4).unwrap(), content(offset, 4));
        }
        prefetch.expect_reads(&[(20, 1), (21, 1)]);
        prefetch.expect_reads(&[(30, 1), (31, 1)]);
        assert_eq!(prefetch.read_range(30, 1).unwrap(), content(30, 1));
    }

    #[test]
    fn errors_and_panics_reach_the_reader_of_their_piece() {
        let (prefetch, _) = prefetch(2);
        prefetch.expect_reads(&[(0, 1), (13, 1), (666, 1), (3, 1)]);
        assert!(prefetch.read_range(0, 1).is_ok());
        assert_eq!(prefetch.read_range(13, 1).unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(prefetch.read_range(666, 1).unwrap_err().kind(), ErrorKind::Bug);
        assert!(prefetch.read_range(3, 1).is_ok());
    }
}
