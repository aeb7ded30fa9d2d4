//! Seeds of all jobs, and seeds that once failed, with their stories.

use millpond_sim::cluster::run_seed;
use millpond_sim::jobs::JobKind;

/// Other seeds than those of the `seeds` example's first run; set `MILLPOND_SEEDS` for more of them.
const FIRST: u64 = 1_000_000;

fn seeds() -> u64 {
    std::env::var("MILLPOND_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(80)
}

fn run(job: JobKind) {
    let (mut restores_checked, mut completed) = (0, 0);
    for seed in FIRST..FIRST + seeds() {
        match run_seed(job, seed) {
            Ok(report) => {
                restores_checked += report.restores_checked;
                completed += report.completed;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(completed > seeds(), "the faults must leave room for checkpoints, there were {completed}");
    assert!(restores_checked > seeds(), "checkpoints must be looked at, there were {restores_checked}");
}

#[test]
fn counts_are_exactly_once_whatever_fails() {
    run(JobKind::Counts);
}

#[test]
fn broadcast_state_is_exactly_once_whatever_fails() {
    run(JobKind::Broadcast);
}

#[test]
fn operator_state_is_exactly_once_whatever_fails() {
    run(JobKind::Branches);
}

#[test]
fn aggregates_are_exactly_once_whatever_fails() {
    run(JobKind::Amplify);
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for job in JobKind::ALL {
        for seed in 0..5 {
            let (one, other) = (run_seed(job, seed), run_seed(job, seed));
            assert_eq!(one.unwrap(), other.unwrap());
        }
        assert_ne!(run_seed(job, 0).unwrap().trace, run_seed(job, 1).unwrap().trace);
    }
}
