//! Short reads from a store far away, several at the same time: each costs a way there and back, and there are hundreds.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope};

/// What `work` makes of each of the `items`, in their order, done by up to `most` threads (this one is one of them).
///
/// # Errors
/// The first failure that is seen; items that were not begun by then are left alone. When threads cannot be had, fewer do it.
pub fn side_by_side<T: Sync, R: Send, E: Send>(
    items: &[T],
    most: usize,
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done: Mutex<Vec<(usize, Result<R, E>)>> = Mutex::new(Vec::with_capacity(items.len()));
    let take = || {
        while !stop.load(Ordering::Relaxed) {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { break };
            let result = work(item);
            if result.is_err() {
                stop.store(true, Ordering::Relaxed);
            }
            done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..most.min(items.len()) {
            if !start(scope, &take) {
                break;
            }
        }
        take();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}

fn start<'scope>(scope: &'scope Scope<'scope, '_>, take: &'scope (impl Fn() + Sync)) -> bool {
    Builder::new().name("open".to_owned()).spawn_scoped(scope, take).is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::time::Duration;

    use super::*;

    /// How many are in [`Meeting::attend`] at the same time, at most; each waits for `expected` to be there.
    struct Meeting {
        expected: usize,
        there: Mutex<(usize, usize)>,
        changed: Condvar,
    }

    impl Meeting {
        fn of(expected: usize) -> Meeting {
            Meeting { expected, there: Mutex::default(), changed: Condvar::new() }
        }

        fn attend(&self) {
            let mut there = self.there.lock().unwrap();
            there.0 += 1;
            there.1 = there.1.max(there.0);
            self.changed.notify_all();
            let met = |there: &mut (usize, usize)| there.1 < self.expected;
            let mut there = self.changed.wait_timeout_while(there, Duration::from_secs(20), met).unwrap().0;
            there.0 -= 1;
        }

        fn most(&self) -> usize {
            self.there.lock().unwrap().1
        }
    }

    #[test]
    fn so_many_are_worked_on_at_the_same_time_and_results_keep_their_order() {
        let meeting = Meeting::of(4);
        let items: Vec<u32> = (0..100).collect();
        let results = side_by_side(&items, 4, |item| {
            meeting.attend();
            Ok::<_, ()>(item * 2)
        });
        assert_eq!(results, Ok(items.iter().map(|item| item * 2).collect()));
        assert_eq!(meeting.most(), 4);
        assert_eq!(side_by_side(&items[..0], 4, |_| Err::<(), _>("not called")), Ok(vec![]));
    }

    #[test]
    fn a_failure_ends_it_and_is_told() {
        let begun = AtomicUsize::new(0);
        let items: Vec<usize> = (0..1_000).collect();
        let failed = side_by_side(&items, 1, |item| {
            begun.fetch_add(1, Ordering::Relaxed);
            if *item == 3 { Err(*item) } else { Ok(()) }
        });
        assert_eq!((failed, begun.into_inner()), (Err(3), 4));
        assert_eq!(side_by_side(&items, 8, |item| if *item == 500 { Err(*item) } else { Ok(*item) }), Err(500));
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_panic_is_not_swallowed() {
        let meeting = Meeting::of(2);
        let here = std::thread::current().id();
        let _ = side_by_side(&[0, 1], 2, |_| {
            meeting.attend();
            assert!(std::thread::current().id() == here, "elsewhere");
            Ok::<(), ()>(())
        });
    }
}
