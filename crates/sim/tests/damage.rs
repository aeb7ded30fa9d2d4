//! Every object of checkpoints and savepoints damaged in every way: an error that names it, or the right state.

use millpond_sim::cluster::{SweepReport, sweep_seed};
use millpond_sim::jobs::JobKind;

/// Set `MILLPOND_SEEDS` for more of them.
fn seeds() -> u64 {
    std::env::var("MILLPOND_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8)
}

fn sweep(job: JobKind) {
    let mut all = SweepReport::default();
    for seed in 0..seeds() {
        match sweep_seed(job, seed) {
            Ok(report) => {
                all.objects += report.objects;
                all.refused += report.refused;
                all.restored += report.restored;
            }
            Err(failure) => panic!("{failure}"),
        }
    }
    assert!(all.objects > 5 * seeds(), "there must be something to damage: {all:?}");
    assert!(all.refused > 50 * seeds(), "most damage must be refused: {all:?}");
    assert!(all.restored > 0, "damage to what a start does not need must do no harm: {all:?}");
}

#[test]
fn damage_to_counts_is_refused_by_name_or_does_no_harm() {
    sweep(JobKind::Counts);
}

#[test]
fn damage_to_broadcast_state_is_refused_by_name_or_does_no_harm() {
    sweep(JobKind::Broadcast);
}

#[test]
fn damage_to_operator_state_is_refused_by_name_or_does_no_harm() {
    sweep(JobKind::Branches);
}

#[test]
fn damage_to_aggregates_is_refused_by_name_or_does_no_harm() {
    sweep(JobKind::Amplify);
}

/// The manifest stated the CRC-32 of a blob, which ends with its own CRC-32: so it was the same for every blob, and a
/// blob in the place of another one of its length was read as if nothing had happened. The hash tells them apart.
#[test]
fn a_blob_in_the_place_of_another_one_of_its_length_is_refused() {
    if let Err(failure) = sweep_seed(JobKind::Branches, 0) {
        panic!("{failure}");
    }
}
