//! Damage: every object of a checkpoint and of a savepoint is changed, cut, emptied, taken away and replaced by
//! another in turn, and the job started on what is left.
//!
//! Owns which damage there is and the rule: a start fails with an error that names the damaged object, or restores
//! the state of a sequential run, exactly. Never anything else, and never a panic.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use millpond_checkpoint::names::job_of_manifest;
use millpond_checkpoint::savepoint::{Savepoint, write};
use millpond_checkpoint::{CheckpointError, Manifest, ManifestKind, Names, Publisher, RestoreFrom, WriterId};
use millpond_core::error::{chain, panic_message};
use millpond_core::{Attempt, ErrorKind, ManualClock, SplitMix64};
use millpond_runtime::{RestorePoint, Verifier};
use millpond_state::{ColdBacking, MemoryBudget, MemoryColdStores};
use millpond_storage::{MemorySnapshot, MemoryStorage, ObjectName, Storage};

use super::{Failure, JOB, World};
use crate::error::SimError;
use crate::execution::{Execution, ExecutionSpec};
use crate::jobs::{JobKind, States};
use crate::outside::{Outside, Site, Trap};

/// Completed epochs that a job takes before it is damaged, as far as it gets.
const EPOCHS: u64 = 6;
/// Steps that it has for them.
const STEPS: u64 = 6_000;
/// Data objects of one checkpoint that are damaged, at most.
const OBJECTS: usize = 12;
/// Objects of its own length, and others, that each of them is replaced by, at most.
const SWAPS: usize = 4;

/// What a sweep has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Objects that were damaged.
    pub objects: u64,
    /// Starts that were refused.
    pub refused: u64,
    /// Starts that restored the right state.
    pub restored: u64,
}

/// Runs one seed of one job for some epochs, then damages what it has stored.
///
/// # Errors
/// When damage is not noticed, does not name the object, or makes something panic.
pub fn sweep_seed(job: JobKind, seed: u64) -> Result<SweepReport, Box<Failure>> {
    let mut world = World::new(job, seed, None);
    let mut report = SweepReport::default();
    let swept = run(&mut world).and_then(|()| sweep(&world, &mut SplitMix64::new(seed), &mut report));
    match swept {
        Ok(()) => Ok(report),
        Err(reason) => Err(world.failure(reason)),
    }
}

fn run(world: &mut World) -> Result<(), String> {
    world.become_calm();
    while world.checker.completed() < EPOCHS && !world.done && world.counters.steps < STEPS {
        world.step()?;
    }
    Ok(())
}

fn sweep(world: &World, random: &mut SplitMix64, report: &mut SweepReport) -> Result<(), String> {
    let Some(newest) = world.checker.newest() else { return Ok(()) };
    let sound = world.memory.snapshot();
    let names = Names::new(JOB).map_err(|error| error.to_string())?;
    let data: BTreeSet<&ObjectName> = newest.objects().collect();
    let manifests: Vec<ObjectName> =
        (newest.retained_from..=newest.sequence).map(|sequence| names.manifest(sequence)).collect();
    for object in some(data.iter().copied().collect(), random).into_iter().chain(&manifests) {
        report.objects += 1;
        for (what, bytes) in damages(&sound, object, random) {
            let case = |reason: String| format!("{object} {what}: {reason}");
            let storage = damaged(&sound, object, bytes.as_deref());
            let fenced = || {
                let publisher = Publisher::new(storage.clone(), JOB, WriterId(7))?;
                publisher.check_log_end()?;
                Ok(publisher.fence(RestoreFrom::Latest, newest.max_parallelism, 0)?.base().clone())
            };
            judge(world, random, report, object, &storage, fenced).map_err(case)?;
            if data.contains(object) {
                notice(newest, object, &storage).map_err(case)?;
            }
        }
    }
    sweep_savepoint(world, newest, &names, random, report)
}

/// The same with a savepoint, which is taken over by a job of another name.
fn sweep_savepoint(
    world: &World,
    newest: &Manifest,
    names: &Names,
    random: &mut SplitMix64,
    report: &mut SweepReport,
) -> Result<(), String> {
    if newest.kind == ManifestKind::Fence && newest.operators.is_empty() {
        return Ok(());
    }
    let shelf = MemoryStorage::new();
    write(&world.memory, newest, names.prefix(), &shelf, 0).map_err(|error| chain(&error))?;
    let sound = shelf.snapshot();
    let objects: Vec<ObjectName> = sound.iter().map(|(object, _)| object.clone()).collect();
    for object in some(objects.iter().collect(), random) {
        report.objects += 1;
        for (what, bytes) in damages(&sound, object, random) {
            let case = |reason: String| format!("savepoint with {object} {what}: {reason}");
            let (shelf, own) = (damaged(&sound, object, bytes.as_deref()), MemoryStorage::new());
            let imported = || {
                let savepoint = Savepoint::read(&shelf)?.to_manifest();
                let publisher = Publisher::new(own.clone(), "another job", WriterId(7))?;
                Ok(publisher.fence_imported(&shelf, &savepoint, 0)?.base().clone())
            };
            judge(world, random, report, object, &own, imported).map_err(case)?;
        }
    }
    Ok(())
}

/// At most [`OBJECTS`] of `all`, drawn.
fn some<'a>(mut all: Vec<&'a ObjectName>, random: &mut SplitMix64) -> Vec<&'a ObjectName> {
    while all.len() > OBJECTS {
        all.swap_remove(random.below(all.len() as u64) as usize);
    }
    all
}

/// What may have become of an object: a name for it, and its bytes if there are any.
fn damages(sound: &MemorySnapshot, object: &ObjectName, random: &mut SplitMix64) -> Vec<(String, Option<Vec<u8>>)> {
    let whole = sound.get(object).unwrap_or_default();
    let length = whole.len();
    let mut damages = vec![("is gone".to_owned(), None), ("is empty".to_owned(), Some(Vec::new()))];
    let places = [0, 9, length / 3, length / 2, length.saturating_sub(40), length.saturating_sub(1)];
    let drawn = [random.below(length.max(1) as u64) as usize, random.below(length.max(1) as u64) as usize];
    for at in places.into_iter().chain(drawn).filter(|at| *at < length) {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 1 << random.below(8);
        damages.push((format!("has another byte {at} of {length}"), Some(bytes)));
    }
    for cut in [1, 16, length / 2, length.saturating_sub(1)] {
        damages.push((format!("is cut to {cut} of {length} bytes"), Some(whole[..cut.min(length)].to_vec())));
    }
    damages.push(("has a byte more".to_owned(), Some([whole, &[0]].concat())));
    let others: Vec<&ObjectName> = sound.iter().map(|(other, _)| other).filter(|other| *other != object).collect();
    // Those of its own length are the ones that are hardest to notice.
    let (twins, rest): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|other| sound.get(other).is_some_and(|bytes| bytes.len() == length));
    let (mut swaps, more) = (some(twins, random), some(rest, random));
    swaps.truncate(SWAPS);
    swaps.extend(more.into_iter().take(SWAPS));
    for other in swaps {
        damages.push((format!("is replaced by {other}"), sound.get(other).map(<[u8]>::to_vec)));
    }
    damages.retain(|(_, bytes)| bytes.as_deref() != Some(whole));
    damages
}

fn damaged(sound: &MemorySnapshot, object: &ObjectName, bytes: Option<&[u8]>) -> MemoryStorage {
    let storage = MemoryStorage::from_snapshot(sound.clone());
    match bytes {
        Some(bytes) => storage.overwrite(object, bytes),
        // Memory refuses nothing.
        None => drop(storage.delete(object)),
    }
    storage
}

/// Starts on `storage`, from what `begin` gives, with state in memory or beneath it.
fn judge(
    world: &World,
    random: &mut SplitMix64,
    report: &mut SweepReport,
    object: &ObjectName,
    storage: &MemoryStorage,
    begin: impl FnOnce() -> Result<Manifest, CheckpointError>,
) -> Result<(), String> {
    let workers = (1 + random.below(3) as u32).min(world.conditions.max_parallelism.get());
    let cold = random.chance(500);
    let start = || match begin() {
        Ok(base) => restored(world, base, storage, workers, cold),
        Err(error) => Outcome::refused(&error, error.kind()),
    };
    let manifest = job_of_manifest(object).is_some();
    match catch_unwind(AssertUnwindSafe(start)) {
        Err(payload) => Err(format!("panicked: {}", panic_message(payload.as_ref()))),
        Ok(Outcome::Right) => {
            report.restored += 1;
            Ok(())
        }
        Ok(Outcome::Wrong(reason)) => Err(reason),
        Ok(Outcome::Refused(words, kind)) => {
            report.refused += 1;
            let typed = matches!(kind, ErrorKind::Corrupt | ErrorKind::Invalid);
            // What nothing names can only be missed: by what was written after it.
            let named = words.contains(object.as_str()) || manifest && words.contains("newest manifests of job");
            if typed && named { Ok(()) } else { Err(format!("refused as {kind:?} by {words:?}")) }
        }
    }
}

/// How a start ends.
enum Outcome {
    Right,
    Wrong(String),
    Refused(String, ErrorKind),
}

impl Outcome {
    fn refused(error: &dyn std::error::Error, kind: ErrorKind) -> Outcome {
        Outcome::Refused(chain(error), kind)
    }
}

fn restored(world: &World, base: Manifest, storage: &MemoryStorage, workers: u32, cold: bool) -> Outcome {
    let epoch = base.epoch;
    let restore =
        RestorePoint::new(Arc::new(base), Arc::new(storage.clone()) as Arc<dyn Storage>, false).reading_in_order();
    let site = Site { outside: Outside::lenient(), trap: Trap::default(), attempt: Attempt(u64::MAX) };
    let execution = Execution::build(&ExecutionSpec {
        job: &|flow| world.job.build(flow, &site),
        workers,
        max_parallelism: world.conditions.max_parallelism,
        attempt: site.attempt,
        clock: Arc::new(ManualClock::new(0)),
        restore: (epoch > millpond_core::Epoch::ZERO).then_some(&restore),
        flow: world.conditions.flow,
        cold: cold.then(|| ColdBacking { stores: Arc::new(MemoryColdStores), budget: MemoryBudget::new(0) }),
        wire: false,
    });
    let mut execution = match execution {
        Ok(execution) => execution,
        Err(error @ SimError::Network(_)) => return Outcome::Wrong(error.to_string()),
        Err(error) => return Outcome::refused(&error, error.kind()),
    };
    if epoch == millpond_core::Epoch::ZERO {
        return Outcome::Right;
    }
    let right = world.checker.cut(&restore, world.conditions.max_parallelism);
    let right = right.and_then(|cut| world.job.check_state(&cut, &mut States { execution: &mut execution }));
    right.map_or_else(Outcome::Wrong, |()| Outcome::Right)
}

/// `checkpoints verify` and a copy notice damage to data, whatever a restore needs of it.
fn notice(newest: &Manifest, object: &ObjectName, storage: &MemoryStorage) -> Result<(), String> {
    let shared: Arc<dyn Storage> = Arc::new(storage.clone());
    let found = Verifier::new().verify(newest, &shared);
    if !found.iter().any(|damage| damage.object.as_ref() == Some(object)) {
        return Err(format!("verification does not name it: {found:?}"));
    }
    let prefix = Names::new(JOB).map_err(|error| error.to_string())?.prefix().to_owned();
    match write(storage, newest, &prefix, &MemoryStorage::new(), 0) {
        Ok(_) => Err("a savepoint was made of it".to_owned()),
        Err(error) if chain(&error).contains(object.as_str()) => Ok(()),
        Err(error) => Err(format!("a savepoint was refused by {:?}", chain(&error))),
    }
}
