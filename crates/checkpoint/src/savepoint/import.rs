//! Taking a savepoint, or a checkpoint of another job, over into a job's own storage.
//!
//! The copies bear the number of the attempt that is about to start, and the process's random number:
//! running attempts leave them alone as those of a newer attempt, and when the attempt does not come
//! about, the next one to start collects them.

use std::collections::BTreeMap;

use millpond_core::{Attempt, Epoch};
use millpond_storage::{ObjectName, Storage};

use super::copy::{Copying, contents, copy_all};
use super::{Part, rename};
use crate::error::CheckpointError;
use crate::log::WriterId;
use crate::manifest::Manifest;
use crate::names::{DataObject, Names, Writer, place_in_sorted_run};

/// An import that is planned: what to copy, and the content that names the copies.
pub(crate) struct Import {
    copies: Vec<Copying>,
    /// The content to start from, with the job's own names.
    pub(crate) content: Manifest,
}

impl Import {
    /// Plans the import of `foreign` for `attempt` of the job of `names`.
    pub(crate) fn plan(
        names: &Names,
        attempt: Attempt,
        writer: WriterId,
        foreign: &Manifest,
    ) -> Result<Import, CheckpointError> {
        let mut content = Manifest { job: names.job().to_owned(), committed: false, ..foreign.clone() };
        let epoch = foreign.epoch;
        for operator in &mut content.operators {
            let operator_name = operator.name.clone();
            let mut own = Naming { names, operator: operator_name, attempt, writer, epoch, sets: BTreeMap::new() };
            rename(std::slice::from_mut(operator), |part, object| own.name(part, object))?;
        }
        let pairs = contents(&foreign.operators).zip(contents(&content.operators));
        let copies =
            pairs.map(|((from, stated), (to, _))| Copying { from: from.clone(), to: to.clone(), stated }).collect();
        Ok(Import { copies, content })
    }

    /// Copies everything. What a failed call has made is deleted again as far as possible.
    pub(crate) fn carry_out<S: Storage, T: Storage>(&self, source: &S, target: &T) -> Result<(), CheckpointError> {
        let mut made = Vec::new();
        let outcome = copy_all(source, target, &self.copies, &mut made);
        if outcome.is_err() {
            for object in &made {
                let _ = target.delete(object);
            }
        }
        outcome
    }
}

/// Gives the objects of one operator names of the job. Files of one writer and epoch keep their numbers, and so
/// stay sorted runs.
struct Naming<'a> {
    names: &'a Names,
    operator: String,
    attempt: Attempt,
    writer: WriterId,
    epoch: Epoch,
    /// What the names of files share, and the number that stands for it.
    sets: BTreeMap<String, u32>,
}

impl Naming<'_> {
    fn name(&mut self, part: Part, object: &ObjectName) -> Result<ObjectName, CheckpointError> {
        match part {
            Part::Run => {
                let (shared, number) = place_in_sorted_run(object);
                let named = self.named(shared, number.unwrap_or(0));
                self.names.run(&named)
            }
            Part::Blob => {
                let named = self.named(object.as_str(), 0);
                self.names.blob(&named)
            }
        }
    }

    fn named(&mut self, shared: &str, counter: u32) -> DataObject {
        let fresh = u32::try_from(self.sets.len()).unwrap_or(u32::MAX);
        let set = self.sets.entry(shared.to_owned()).or_insert(fresh);
        DataObject {
            operator: self.operator.clone(),
            attempt: self.attempt,
            writer: Writer::Import { writer: self.writer, set: *set },
            epoch: self.epoch,
            counter,
        }
    }
}
