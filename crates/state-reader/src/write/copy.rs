//! Operators and states taken over as they are.

use std::collections::BTreeMap;

use millpond_state::OperatorStateSnapshot;

use super::StateWriter;
use super::keyed::KeyedRows;
use crate::error::ReaderError;
use crate::info::StateInfo;
use crate::operator::load_snapshot;
use crate::reader::StateReader;

impl StateWriter {
    /// Takes over all state of an operator as it is, under the name `to`: files are copied, not decoded.
    ///
    /// # Errors
    /// When there is no such operator, the number of key groups differs, `to` has state already, an object
    /// is damaged, or storage fails.
    pub fn copy_operator(&mut self, from: &StateReader, operator: &str, to: &str) -> Result<(), ReaderError> {
        self.check_key_groups(from)?;
        let stored = from.operator(operator)?.clone();
        if self.operators.contains_key(to) {
            return Err(ReaderError::StateExists { operator: to.to_owned(), state: "any".to_owned() });
        }
        // Files of one writer and epoch keep their numbers, which tell its sorted runs.
        let mut sets: BTreeMap<String, u64> = BTreeMap::new();
        for run in &stored.runs {
            let source = run.object.clone();
            let bytes = from.storage().read(&source).map_err(|error| ReaderError::Storage {
                operator: operator.to_owned(),
                object: source.to_string(),
                source: error,
            })?;
            run.stated().check(&bytes).map_err(|reason| {
                let (operator, object) = (operator.to_owned(), source.to_string());
                ReaderError::OtherObject { operator, object, reason }
            })?;
            let (shared, number) = millpond_checkpoint::names::place_in_sorted_run(&source);
            let set = match sets.get(shared) {
                Some(set) => *set,
                None => self.begin_set(),
            };
            sets.insert(shared.to_owned(), set);
            let counter = number.unwrap_or(0);
            let object = self.names.run(&self.data(to, set, counter))?;
            self.create_object(to, &object, &bytes)?;
            let epoch = self.epoch.min(run.epoch);
            self.part(to).runs.push(millpond_checkpoint::RunRef { object, epoch, ..run.clone() });
        }
        let mut subtasks = Vec::with_capacity(stored.subtasks.len());
        for blob in &stored.subtasks {
            let load = |blob| load_snapshot(from.storage(), operator, blob);
            subtasks.push(blob.as_ref().map(load).transpose()?);
        }
        self.put_subtasks(to, &subtasks)?;
        self.part(to).states = stored.states;
        Ok(())
    }

    /// Takes over one keyed state, under the name `state` of operator `operator`: to rename it, to move it
    /// to another operator, or to leave out others. Rows are not decoded.
    ///
    /// # Errors
    /// When `info` is no keyed state, the number of key groups differs, the state is written already, what
    /// is stored is damaged, or storage fails.
    pub fn copy_state(
        &mut self,
        from: &StateReader,
        info: &StateInfo,
        operator: &str,
        state: &str,
    ) -> Result<(), ReaderError> {
        self.check_key_groups(from)?;
        let mut rows = from.rows(info)?;
        let description = from.description(info)?;
        let mut copy = KeyedRows::begin(self, operator, state, &description)?;
        let mut key = Vec::new();
        while rows.advance()? {
            let Some(row) = rows.current()? else { break };
            copy.describe(row.written)?;
            key.clear();
            key.extend_from_slice(&row.key_place());
            key.extend_from_slice(row.suffix);
            copy.put_raw(row.group, &key, row.value)?;
        }
        copy.finish()
    }

    /// Takes over the operator state (lists, broadcast maps) of an operator, subtask by subtask.
    ///
    /// # Errors
    /// When there is no such operator, `to` has operator state already, an object is damaged, or storage
    /// fails.
    pub fn copy_operator_state(&mut self, from: &StateReader, operator: &str, to: &str) -> Result<(), ReaderError> {
        let stored = from.operator(operator)?;
        let load = |blob| load_snapshot(from.storage(), operator, blob);
        let subtasks: Vec<Option<OperatorStateSnapshot>> =
            stored.subtasks.iter().map(|blob| blob.as_ref().map(load).transpose()).collect::<Result<_, _>>()?;
        self.put_subtasks(to, &subtasks)
    }

    /// Keys are in the groups where they are only with the same number of groups.
    fn check_key_groups(&self, from: &StateReader) -> Result<(), ReaderError> {
        let (left, right) = (from.key_groups(), self.max.get());
        if left == right { Ok(()) } else { Err(ReaderError::OtherKeyGroups { left, right }) }
    }
}
