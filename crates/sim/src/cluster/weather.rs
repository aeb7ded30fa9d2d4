//! How checkpoint storage behaves, for a while or for ever.

use std::sync::Arc;

use millpond_core::{ManualClock, SplitMix64};
use millpond_storage::{Effect, FaultPlan, FaultRule, Operation};

use super::JOB;

/// Attempts of a call in weather that never gets better: enough that no call is lost.
pub(super) const ATTEMPTS_FOR_EVER: u32 = 30;

/// How storage is from beginning to end, also while all else is calm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Every call takes so many milliseconds.
    Slow(i64),
    /// So many of 1000 calls fail: without having happened, or nobody knows.
    Flaky(u64),
    /// So many of 1000 calls happen and say that they failed.
    Lying(u64),
}

impl Weather {
    /// Lets storage be like this from now on.
    pub(super) fn begin(self, faults: &FaultPlan, clock: &Arc<ManualClock>) {
        match self {
            Weather::Slow(ms) => {
                let clock = Arc::clone(clock);
                faults.before_each_call(move |_, _| clock.advance(ms));
            }
            Weather::Flaky(per_mille) => {
                for effect in [Effect::FailBefore, Effect::FailAfter, Effect::LoseRequest] {
                    faults.add(FaultRule::new(effect).chance(per_mille / 3));
                }
            }
            Weather::Lying(per_mille) => faults.add(FaultRule::new(Effect::FailAfter).chance(per_mille)),
        }
    }
}

/// Weather that changes: draws what comes next, and returns how many of 1000 calls fail.
pub(super) fn change(faults: &FaultPlan, random: &mut SplitMix64) -> u64 {
    faults.clear();
    let per_mille = [0, 0, 4, 30, 200][random.below(5) as usize];
    for effect in [Effect::FailBefore, Effect::FailAfter, Effect::LoseRequest, Effect::Full] {
        if random.chance(600) {
            faults.add(FaultRule::new(effect).chance(per_mille / 2));
        }
    }
    if random.chance(300) {
        let lost = FaultRule::new(Effect::FailAfter).on(Operation::Create).under(format!("{JOB}/"));
        faults.add(lost.times(1 + random.below(3)));
    }
    per_mille
}
