//! What the operating system knows of the current thread: its priority, its processor time.

use std::time::Duration;

/// How much a background thread gives way to workers, on the scale of `nice` (0 to 19).
#[cfg(target_os = "linux")]
const BACKGROUND_NICENESS: i32 = 10;

/// Lets the current thread give way to those that process records. Where the system has no priorities of
/// single threads, or refuses, the thread runs like any other.
#[cfg(target_os = "linux")]
pub fn run_in_background() {
    let set = rustix::process::setpriority_process(Some(rustix::thread::gettid()), BACKGROUND_NICENESS);
    if let Err(error) = set {
        tracing::debug!(%error, "cannot lower the priority of a background thread");
    }
}

/// Lets the current thread give way to those that process records. Where the system has no priorities of
/// single threads, or refuses, the thread runs like any other.
#[cfg(not(target_os = "linux"))]
pub fn run_in_background() {}

/// Processor time that the current thread has used, if the system tells.
#[cfg(target_os = "linux")]
pub(crate) fn processor_time() -> Option<Duration> {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Some(Duration::new(u64::try_from(used.tv_sec).ok()?, u32::try_from(used.tv_nsec).ok()?))
}

/// Processor time that the current thread has used, if the system tells.
#[cfg(not(target_os = "linux"))]
pub(crate) fn processor_time() -> Option<Duration> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_background_thread_gives_way_and_others_keep_their_priority() {
        let own = || rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap();
        let before = own();
        let lowered = std::thread::spawn(move || {
            run_in_background();
            own()
        });
        assert!(lowered.join().unwrap() >= before.max(BACKGROUND_NICENESS));
        assert_eq!(own(), before);
    }

    #[test]
    fn processor_time_grows_with_work_of_this_thread() {
        let before = processor_time().unwrap();
        let mut sum = 0u64;
        while processor_time().unwrap() == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(processor_time().unwrap() > before);
    }
}
