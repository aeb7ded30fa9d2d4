//! Savepoints that are copied while the job runs, object by object.
//!
//! Owns the rule that as long as its attempt owns the job, a copy finds everything that was pinned for it.

use millpond_checkpoint::savepoint::{Savepoint, write};
use millpond_checkpoint::{CheckpointError, Coordinator, Event, Manifest, Names, Publisher, WriterId};
use millpond_core::error::chain;
use millpond_storage::{MemoryStorage, ObjectName, Storage};

use super::World;

/// Copies under way.
#[derive(Default)]
pub(super) struct Copies {
    under_way: Vec<Copy>,
}

struct Copy {
    sequence: u64,
    left: Vec<ObjectName>,
}

impl Copies {
    /// The newest manifest is complete: now and then somebody wants a savepoint of it.
    pub(super) fn completed(&mut self, world: &mut World, coordinator: &mut Coordinator) {
        if !world.aside.chance(world.conditions.savepoints_per_mille) {
            return;
        }
        let left = coordinator.log().last().map(|newest| newest.objects().cloned().collect());
        let (sequence, left) = (coordinator.pin(), left.unwrap_or_default());
        world.trace.add(|| format!("manifest {sequence} is pinned"));
        self.under_way.push(Copy { sequence, left });
    }

    /// Copies one object of some copy; after the last one, says that the pin can go.
    pub(super) fn step(&mut self, world: &mut World, owns: bool) -> Result<Option<Event>, String> {
        if self.under_way.is_empty() || !world.aside.chance(50) {
            return Ok(None);
        }
        let at = world.aside.below(self.under_way.len() as u64) as usize;
        let copy = &mut self.under_way[at];
        if let Some(object) = copy.left.pop() {
            return match world.memory.size(&object) {
                Err(_) if owns => Err(format!("{object} of manifest {} was pinned and is gone", copy.sequence)),
                _ => Ok(None),
            };
        }
        let sequence = self.under_way.swap_remove(at).sequence;
        world.counters.savepoints += 1;
        world.trace.add(|| format!("manifest {sequence} is copied"));
        Ok(Some(Event::Unpin { sequence }))
    }
}

/// Where a checkpoint is restored from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Detour {
    /// As it is.
    None,
    /// By way of a savepoint.
    Savepoint,
    /// By way of a savepoint, taken over by a job of another name.
    Import,
}

impl Detour {
    /// What is restored, and where it is.
    pub(super) fn take(self, manifest: &Manifest, memory: MemoryStorage) -> Result<(Manifest, MemoryStorage), String> {
        if matches!(self, Detour::None) {
            return Ok((manifest.clone(), memory));
        }
        let said = |error: CheckpointError| chain(&error);
        let names = Names::new(&manifest.job).map_err(said)?;
        let shelf = MemoryStorage::new();
        write(&memory, manifest, names.prefix(), &shelf, 0).map_err(said)?;
        let savepoint = Savepoint::read(&shelf).map_err(said)?.to_manifest();
        if matches!(self, Detour::Savepoint) {
            return Ok((savepoint, shelf));
        }
        let own = MemoryStorage::new();
        let publisher = Publisher::new(own.clone(), "another job", WriterId(1)).map_err(said)?;
        let started = publisher.fence_imported(&shelf, &savepoint, 0).map_err(said)?;
        Ok((started.base().clone(), own))
    }
}
