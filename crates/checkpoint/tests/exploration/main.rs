//! Exhaustive exploration of the protocol: every interleaving of every fault, within bounds.
//!
//! The world is made of the real coordinator and the real step machines of the log; storage,
//! messages, subtasks, crashes and deletions are modelled. All states that can be reached within
//! the limits of a scenario are visited once; after every step the invariants are checked, and from
//! every state a calm run must complete another epoch.
//!
//! The epochs of a scenario are few, so every number below is small; what is covered is every order
//! in which things can happen.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "a failure is told with the steps that lead to it")]

mod checks;
mod search;
mod shared;
mod steps;
mod world;

use search::explore;
use world::Limits;

const QUIET: Limits = Limits {
    epochs: 3,
    concurrent: 1,
    retained: 1,
    starts: 1,
    crashes: 0,
    storage_faults: 0,
    losses: 0,
    doubles: 0,
    declines: 0,
    timeouts: 0,
    listings: 0,
    merges: false,
    zombies: false,
    races: false,
    prompt_mail: false,
};

#[test]
fn one_execution_survives_lost_and_reordered_messages() {
    explore(Limits { losses: 1, timeouts: 1, ..QUIET });
    explore(Limits { epochs: 2, concurrent: 2, losses: 1, timeouts: 1, ..QUIET });
}

#[test]
fn one_execution_survives_doubled_messages_and_declines() {
    explore(Limits { epochs: 2, concurrent: 2, doubles: 1, declines: 1, ..QUIET });
}

#[test]
fn one_execution_survives_storage_that_fails_lies_and_delays() {
    explore(Limits { concurrent: 2, storage_faults: 2, merges: true, prompt_mail: true, ..QUIET });
}

#[test]
fn crashes_at_every_step_are_followed_by_a_restart_that_loses_nothing() {
    explore(Limits { starts: 3, crashes: 2, storage_faults: 1, prompt_mail: true, ..QUIET });
}

#[test]
fn a_crash_with_messages_in_flight_loses_nothing() {
    explore(Limits { epochs: 2, starts: 2, crashes: 1, losses: 1, ..QUIET });
}

#[test]
fn a_zombie_never_gets_past_the_fence_of_its_successor() {
    explore(Limits { epochs: 2, starts: 2, zombies: true, races: true, storage_faults: 2, prompt_mail: true, ..QUIET });
}

#[test]
fn a_zombie_that_sleeps_while_its_slot_is_collected_is_fenced() {
    explore(Limits { epochs: 4, starts: 3, zombies: true, prompt_mail: true, ..QUIET });
}

#[test]
fn a_zombie_that_merges_and_collects_deletes_nothing_that_is_retained() {
    explore(Limits { epochs: 3, starts: 2, zombies: true, merges: true, listings: 1, prompt_mail: true, ..QUIET });
}

#[test]
fn starts_that_race_on_unreliable_storage_agree_on_one_owner() {
    explore(Limits { epochs: 1, starts: 2, zombies: true, races: true, storage_faults: 2, prompt_mail: true, ..QUIET });
}

#[test]
fn three_starts_that_race_agree_on_one_owner() {
    explore(Limits { epochs: 1, starts: 3, zombies: true, races: true, prompt_mail: true, ..QUIET });
}

#[test]
fn a_zombie_with_epochs_and_messages_in_flight_leaves_no_trace() {
    explore(Limits { epochs: 2, starts: 2, zombies: true, ..QUIET });
    explore(Limits { concurrent: 2, starts: 2, zombies: true, prompt_mail: true, ..QUIET });
}
