//! Visits every state once; a failure is told with the steps that lead to it.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::shared::digest;
use crate::steps::{Fault, Step};
use crate::world::{Limits, World};

/// More states than this mean that a scenario has grown out of hand.
const STATE_LIMIT: usize = 3_000_000;

/// Visits all states within `limits`.
pub(crate) fn explore(limits: Limits) {
    let start = World::new(limits);
    let mut seen = HashSet::from([digest(&start)]);
    let mut calm = HashSet::new();
    let mut open = vec![(start, Vec::new())];
    while let Some((world, path)) = open.pop() {
        told(&path, || check_progress(&world, &mut calm));
        for step in world.steps() {
            let mut next = world.clone();
            let mut path: Vec<Step> = path.clone();
            path.push(step);
            told(&path, || next.take(step));
            if seen.insert(digest(&next)) {
                assert!(seen.len() < STATE_LIMIT, "more than {STATE_LIMIT} states");
                open.push((next, path));
            }
        }
    }
    println!("{} states, {} calm ones: {limits:?}", seen.len(), calm.len());
}

/// Runs `check`; when it panics, prints the steps that led there first.
fn told(path: &[Step], check: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(check)) {
        println!("after these steps:");
        for step in path {
            println!("  {step:?}");
        }
        resume_unwind(panic);
    }
}

/// Faults end here: the newest execution, or a fresh one, completes another epoch.
fn check_progress(world: &World, calm: &mut HashSet<u64>) {
    let mut world = world.clone();
    world.limits = Limits {
        starts: 0,
        crashes: 0,
        storage_faults: 0,
        losses: 0,
        doubles: 0,
        declines: 0,
        timeouts: 0,
        listings: 0,
        epochs: u64::MAX,
        prompt_mail: true,
        ..world.limits
    };
    world.delayed.clear();
    let completed = world.completed();
    let mut path = Vec::new();
    while world.completed() <= completed {
        let digest = digest(&world);
        if calm.contains(&digest) {
            break;
        }
        path.push(digest);
        let step = calm_step(&world);
        world.take(step);
        assert!(path.len() < 300, "no progress");
    }
    calm.extend(path);
}

fn calm_step(world: &World) -> Step {
    let Some(x) = world.executions.iter().rposition(|execution| execution.alive) else {
        return Step::Start;
    };
    let mut steps = world.deletions();
    steps.retain(|step| *step == Step::Delete(x));
    world.steps_of(x, &mut steps);
    let first = |wanted: fn(&Step) -> bool| steps.iter().copied().find(wanted);
    first(|step| matches!(step, Step::Deliver(..)))
        .or_else(|| first(|step| matches!(step, Step::Storage(_, Fault::None))))
        .or_else(|| first(|step| matches!(step, Step::Delete(_) | Step::Merge(_))))
        .or_else(|| first(|step| matches!(step, Step::Trigger(_))))
        .unwrap_or(Step::TimeOut(x))
}
