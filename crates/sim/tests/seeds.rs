//! Seeds of all jobs, and seeds that once failed, with their stories.

use millpond_sim::cluster::{Weather, run_seed, run_seed_in};
use millpond_sim::jobs::JobKind;

/// Other seeds than those of the `seeds` example's first run; set `MILLPOND_SEEDS` for more of them.
const FIRST: u64 = 1_000_000;

fn seeds() -> u64 {
    std::env::var("MILLPOND_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(80)
}

fn run(job: JobKind) {
    let (mut restores_checked, mut completed, mut savepoints) = (0, 0, 0);
    for seed in FIRST..FIRST + seeds() {
        match run_seed(job, seed) {
            Ok(report) => {
                restores_checked += report.restores_checked;
                completed += report.completed;
                savepoints += report.savepoints;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(completed > seeds(), "the faults must leave room for checkpoints, there were {completed}");
    assert!(savepoints > seeds() / 4, "savepoints must be copied, there were {savepoints}");
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
fn tl_19_what_has_expired_is_never_shown_and_what_has_not_is_whatever_fails() {
    run(JobKind::Expiring);
}

#[test]
fn a_logged_sink_is_exactly_once_whatever_fails_before_in_and_after_its_transactions() {
    run(JobKind::Logged);
}

/// A job comes to its end, exactly once, on a storage that never gets better.
fn endure(weather: Weather) {
    for job in JobKind::ALL {
        for seed in FIRST..FIRST + seeds() / 4 {
            if let Err(failure) = run_seed_in(job, seed, weather) {
                panic!("{weather:?}: {failure}");
            }
        }
    }
}

#[test]
fn storage_that_takes_two_seconds_for_every_call_is_endured() {
    endure(Weather::Slow(2_000));
}

#[test]
fn storage_that_fails_in_a_fifth_of_all_calls_is_endured() {
    endure(Weather::Flaky(200));
}

#[test]
fn storage_that_denies_what_it_has_done_is_endured() {
    endure(Weather::Lying(300));
}

#[test]
fn windows_are_exactly_once_whatever_fails() {
    run(JobKind::Windows);
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

fn story(seeds: &[(JobKind, u64)]) {
    for (job, seed) in seeds {
        if let Err(failure) = run_seed(*job, *seed) {
            panic!("{failure}");
        }
    }
}

/// The upload of one subtask of the final epoch failed. The epoch was aborted and asked for again under
/// the next number, but the subtasks had ended and never answered: the job waited for ever, one timeout
/// after the other. Since then an ended subtask answers every later epoch with the state it has.
#[test]
fn a_final_epoch_that_was_aborted_is_answered_when_it_is_asked_for_again() {
    story(&[(JobKind::Counts, 37), (JobKind::Counts, 52), (JobKind::Broadcast, 3), (JobKind::Broadcast, 42)]);
}

/// The job had finished, and its process died in the last commit. The next attempt restored the final
/// checkpoint, ran an empty input to its end, and told all operators of the end a second time: what they
/// emit at the end was there twice. Since then an attempt that finds a finished checkpoint only commits.
#[test]
fn a_finished_job_that_is_started_again_commits_and_adds_nothing() {
    story(&[(JobKind::Counts, 0), (JobKind::Counts, 1), (JobKind::Branches, 0)]);
}

/// Not a bug but a gap of the simulator: a merge that forgot deletions above an older run went unseen,
/// because no key was ever forgotten for good and few runs were merged twice. Quiet seeds see it.
#[test]
fn deletions_survive_merges_above_older_runs() {
    story(&[(JobKind::Counts, 6), (JobKind::Counts, 27), (JobKind::Counts, 41), (JobKind::Counts, 45)]);
}
