//! Opens a checkpoint and finds the states in it.

use std::sync::Arc;

use millpond_checkpoint::history::load_object;
use millpond_checkpoint::{History, Manifest, OperatorManifest};
use millpond_core::{Epoch, KeyGroup, KeyGroupRange, MaxParallelism};
use millpond_state::StateDescription;
use millpond_storage::{ObjectName, Storage};

use crate::entry::Entries;
use crate::error::ReaderError;
use crate::info::{Kind, StateInfo};
use crate::operator::OperatorStateReader;
use crate::rows::Rows;

/// The state in one checkpoint. Cheap to clone.
#[derive(Clone)]
pub struct StateReader {
    storage: Arc<dyn Storage>,
    manifest: Arc<Manifest>,
}

impl StateReader {
    /// The state that `manifest` names, whose objects are in `storage`.
    #[must_use]
    pub fn new(storage: Arc<dyn Storage>, manifest: Arc<Manifest>) -> Self {
        StateReader { storage, manifest }
    }

    /// The newest completed checkpoint of `job`.
    ///
    /// # Errors
    /// When there is none, its manifest is damaged, or storage fails.
    pub fn latest(storage: Arc<dyn Storage>, job: &str) -> Result<Self, ReaderError> {
        let latest = History::new(Arc::clone(&storage), job)?.latest()?;
        let manifest = latest.ok_or_else(|| ReaderError::NoCheckpoint { job: job.to_owned() })?;
        Ok(StateReader::new(storage, Arc::new(manifest)))
    }

    /// The checkpoint of `job` at `epoch`.
    ///
    /// # Errors
    /// When it is not retained, its manifest is damaged, or storage fails.
    pub fn epoch(storage: Arc<dyn Storage>, job: &str, epoch: Epoch) -> Result<Self, ReaderError> {
        let manifest = History::new(Arc::clone(&storage), job)?.load(epoch)?;
        Ok(StateReader::new(storage, Arc::new(manifest)))
    }

    /// The checkpoint whose manifest is `object`.
    ///
    /// # Errors
    /// When there is no such object, it is no sound manifest, or storage fails.
    pub fn object(storage: Arc<dyn Storage>, object: &ObjectName) -> Result<Self, ReaderError> {
        let manifest = load_object(&storage, object)?;
        Ok(StateReader::new(storage, Arc::new(manifest)))
    }

    /// What the checkpoint says.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The epoch.
    #[must_use]
    pub fn at(&self) -> Epoch {
        self.manifest.epoch
    }

    /// Number of key groups of the job.
    #[must_use]
    pub fn key_groups(&self) -> u32 {
        self.manifest.max_parallelism
    }

    pub(crate) fn max_parallelism(&self) -> Result<MaxParallelism, ReaderError> {
        MaxParallelism::new(self.manifest.max_parallelism).map_err(|error| {
            let object = self.manifest.job.clone();
            let reason = error.to_string();
            let operator = String::new();
            ReaderError::Damaged { operator, state: object, part: "manifest", group: None, reason }
        })
    }

    pub(crate) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// All states, by operator and name; those of one operator if it is given.
    ///
    /// # Errors
    /// When there is no such operator, or what is stored about its states is damaged.
    pub fn states(&self, operator: Option<&str>) -> Result<Vec<StateInfo>, ReaderError> {
        let operators: Vec<&OperatorManifest> = match operator {
            Some(name) => vec![self.operator(name)?],
            None => self.manifest.operators.iter().collect(),
        };
        let mut states = Vec::new();
        for operator in operators {
            for state in &operator.states {
                let description = StateDescription::from_json(&state.name, &state.description)
                    .map_err(|source| ReaderError::State { operator: operator.name.clone(), source })?;
                states.push(StateInfo::keyed(&operator.name, &state.name, description.as_stored()));
            }
            states.extend(OperatorStateReader::load(self, operator)?.states());
        }
        Ok(states)
    }

    /// The state called `state`; of several with this name (an operator may have a keyed state, a list
    /// and a broadcast map of one name) the one of this kind.
    ///
    /// # Errors
    /// When there is none, or several and no kind is given; else as [`Self::states`].
    pub fn state(&self, operator: &str, state: &str, kind: Option<Kind>) -> Result<StateInfo, ReaderError> {
        let all = self.states(Some(operator))?;
        let known = || all.iter().map(|info| info.state.clone()).collect();
        let named = all.iter().filter(|info| info.state == state && kind.is_none_or(|kind| kind == info.kind));
        let mut found: Vec<StateInfo> = named.cloned().collect();
        let (operator, state) = (operator.to_owned(), state.to_owned());
        match found.len() {
            0 => Err(ReaderError::NoSuchState { operator, state, known: known() }),
            1 => Ok(found.remove(0)),
            _ => {
                let kinds = found.iter().map(|info| info.kind.to_string()).collect();
                Err(ReaderError::SeveralStates { operator, state, kinds })
            }
        }
    }

    /// The live entries of a state in order.
    ///
    /// # Errors
    /// When what is stored is damaged or storage fails; so may every step.
    pub fn entries(&self, info: &StateInfo) -> Result<Entries, ReaderError> {
        if info.kind.is_keyed() {
            return Ok(Entries::keyed(info.clone(), self.rows(info)?));
        }
        let operator = self.operator(&info.operator)?;
        Entries::operator(info, OperatorStateReader::load(self, operator)?)
    }

    /// The live entries of a keyed state in one key group; only the group's blocks are read.
    ///
    /// # Errors
    /// When it is no keyed state; else as [`Self::entries`].
    pub fn entries_of_group(&self, info: &StateInfo, group: KeyGroup) -> Result<Entries, ReaderError> {
        self.check_keyed(info, "key groups")?;
        let start = u32::from(group.0);
        let groups = KeyGroupRange::new(start, start + 1);
        let rows = Rows::new(Arc::clone(&self.storage), self.operator(&info.operator)?, &info.state, groups);
        Ok(Entries::keyed(info.clone(), rows))
    }

    /// The live rows of a keyed state in order, not decoded.
    ///
    /// # Errors
    /// When it is no keyed state.
    pub fn rows(&self, info: &StateInfo) -> Result<Rows, ReaderError> {
        self.check_keyed(info, "rows")?;
        let operator = self.operator(&info.operator)?;
        let all = self.max_parallelism()?.all();
        Ok(Rows::new(Arc::clone(&self.storage), operator, &info.state, all))
    }

    /// What the manifest says about a keyed state.
    pub(crate) fn description(&self, info: &StateInfo) -> Result<StateDescription, ReaderError> {
        let operator = self.operator(&info.operator)?;
        let found = operator.states.iter().find(|state| state.name == info.state);
        let found = found.ok_or_else(|| ReaderError::NoSuchState {
            operator: info.operator.clone(),
            state: info.state.clone(),
            known: operator.states.iter().map(|state| state.name.clone()).collect(),
        })?;
        StateDescription::from_json(&found.name, &found.description)
            .map_err(|source| ReaderError::State { operator: operator.name.clone(), source })
    }

    pub(crate) fn check_keyed(&self, info: &StateInfo, what: &'static str) -> Result<(), ReaderError> {
        if info.kind.is_keyed() {
            return Ok(());
        }
        let (operator, state) = (info.operator.clone(), info.state.clone());
        Err(ReaderError::WrongKind { operator, state, kind: info.kind.word(), what })
    }

    pub(crate) fn operator(&self, name: &str) -> Result<&OperatorManifest, ReaderError> {
        self.manifest.operator(name).ok_or_else(|| ReaderError::NoSuchOperator {
            operator: name.to_owned(),
            known: self.manifest.operators.iter().map(|operator| operator.name.clone()).collect(),
        })
    }
}
