//! Visits every state once; a failure is told with the steps that lead to it.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::world::{Fault, Limits, Step, World};

/// More states than this mean that a scenario has grown out of hand.
const STATE_LIMIT: usize = 3_000_000;

/// Visits all states within `limits`.
pub fn explore(limits: Limits) {
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

fn digest(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.hash(&mut hasher);
    hasher.finish()
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
    let steps: Vec<Step> = world.steps().into_iter().filter(|step| is_of(*step, x)).collect();
    let first = |wanted: fn(&Step) -> bool| steps.iter().copied().find(wanted);
    first(|step| matches!(step, Step::Deliver(..)))
        .or_else(|| first(|step| matches!(step, Step::Storage(_, Fault::None))))
        .or_else(|| first(|step| matches!(step, Step::Delete(_) | Step::Merge(_))))
        .or_else(|| first(|step| matches!(step, Step::Trigger(_))))
        .unwrap_or(Step::TimeOut(x))
}

fn is_of(step: Step, x: usize) -> bool {
    match step {
        Step::Storage(y, _) | Step::Deliver(y, _) | Step::Delete(y) | Step::Merge(y) | Step::Trigger(y) => x == y,
        _ => false,
    }
}
