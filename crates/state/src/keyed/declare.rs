//! Declaring keyed states: once, when the operator opens, before anything is restored.

use std::any::{Any, type_name};
use std::sync::Arc;

use millpond_core::name::check_name;
use millpond_core::{Data, Key, KeyGroupRange, Schema};
use millpond_runs::StateIndex;

use super::aggregating::{AggregateFunction, AggregatingState, AggregatingTable};
use super::any_table::AnyTable;
use super::description::{StateDescription, StateKind};
use super::list::{ListState, ListTable};
use super::map::MapState;
use super::map_table::MapTable;
use super::migration::RowContent;
use super::reducing::{ReducingState, ReducingTable};
use super::slice_table::SliceTable;
use super::slices::SliceState;
use super::states::{Declared, KeyedStates, Phase};
use super::tracked::Tracked;
use super::value::{ValueState, ValueTable};
use crate::error::StateError;

/// Declares the keyed states of an operator.
///
/// ```
/// use millpond_core::{KeyHash, MaxParallelism};
/// use millpond_state::KeyedBackend;
///
/// let max = MaxParallelism::default();
/// let mut backend = KeyedBackend::<String>::new(max, max.all());
/// let count = backend.declarer().value::<u64>("count")?;
/// backend.set_current_key_of("a".to_owned())?;
/// count.set(backend.states_mut(), 7)?;
/// assert_eq!(count.get(backend.states_mut())?, Some(&7));
/// # Ok::<(), millpond_state::StateError>(())
/// ```
pub struct StateDeclarer<'a, K> {
    pub(super) states: &'a mut KeyedStates<K>,
}

impl<'a, K: Key> StateDeclarer<'a, K> {
    pub(crate) fn new(states: &'a mut KeyedStates<K>) -> Self {
        StateDeclarer { states }
    }

    /// One value per key.
    ///
    /// # Errors
    /// When the name is refused, is declared with another kind or type, or is stored in the
    /// checkpoint with another kind or a type that `V` cannot read.
    pub fn value<V: Data>(&mut self, name: &str) -> Result<ValueState<V>, StateError> {
        let label = format!("value of {}", type_name::<V>());
        let describe = || describe::<K, V>(StateKind::Value, None);
        let content = RowContent::one::<V>();
        let index = self.declare::<ValueTable<K, V>>(name, label, content, describe, |name, state, range| {
            Tracked::new(name, state, range, ())
        })?;
        Ok(ValueState::at(index))
    }

    /// A list per key.
    ///
    /// # Errors
    /// As [`StateDeclarer::value`].
    pub fn list<T: Data>(&mut self, name: &str) -> Result<ListState<T>, StateError> {
        let label = format!("list of {}", type_name::<T>());
        let describe = || describe::<K, T>(StateKind::List, None);
        let content = RowContent::many::<T>();
        let index = self.declare::<ListTable<K, T>>(name, label, content, describe, |name, state, range| {
            Tracked::new(name, state, range, ())
        })?;
        Ok(ListState::at(index))
    }

    /// A map per key.
    ///
    /// # Errors
    /// As [`StateDeclarer::value`].
    pub fn map<UK: Key, UV: Data>(&mut self, name: &str) -> Result<MapState<UK, UV>, StateError> {
        let label = format!("map from {} to {}", type_name::<UK>(), type_name::<UV>());
        let describe = || describe::<K, UV>(StateKind::Map, Some(Schema::of::<UK>()));
        let content = RowContent::one::<UV>();
        let index = self.declare::<MapTable<K, UK, UV>>(name, label, content, describe, MapTable::new)?;
        Ok(MapState::at(index))
    }

    /// A value per key and slice of time, laid out by slice; stored as a map from `i64`. Not with a cold store: all
    /// of it stays in memory.
    ///
    /// # Errors
    /// As [`StateDeclarer::value`], or when there is a cold store.
    pub fn slices<V: Data>(&mut self, name: &str) -> Result<SliceState<V>, StateError> {
        let label = format!("slices of {}", type_name::<V>());
        if self.states.epochs.cold.is_some() {
            return Err(StateError::OnlyInMemory { state: name.to_owned() });
        }
        let describe = || describe::<K, V>(StateKind::Map, Some(Schema::of::<i64>()));
        let content = RowContent::one::<V>();
        let index = self.declare::<SliceTable<K, V>>(name, label, content, describe, SliceTable::new)?;
        Ok(SliceState::at(index))
    }

    /// One value per key that additions are folded into by `reduce(stored, added)`. When the name
    /// is declared already, the first function stays.
    ///
    /// # Errors
    /// As [`StateDeclarer::value`].
    pub fn reducing<T: Data>(
        &mut self,
        name: &str,
        reduce: impl Fn(T, T) -> T + Send + 'static,
    ) -> Result<ReducingState<T>, StateError> {
        let label = format!("reducing of {}", type_name::<T>());
        let describe = || describe::<K, T>(StateKind::Reducing, None);
        let content = RowContent::one::<T>();
        let index = self.declare::<ReducingTable<K, T>>(name, label, content, describe, |name, state, range| {
            Tracked::new(name, state, range, Box::new(reduce))
        })?;
        Ok(ReducingState::at(index))
    }

    /// One accumulator per key. When the name is declared already, the first function stays.
    ///
    /// # Errors
    /// As [`StateDeclarer::value`].
    pub fn aggregating<A: AggregateFunction>(
        &mut self,
        name: &str,
        function: A,
    ) -> Result<AggregatingState<A>, StateError> {
        let label = format!("aggregating by {} in {}", type_name::<A>(), type_name::<A::Accumulator>());
        let describe = || describe::<K, A::Accumulator>(StateKind::Aggregating, None);
        let content = RowContent::one::<A::Accumulator>();
        let index = self.declare::<AggregatingTable<K, A>>(name, label, content, describe, |name, state, range| {
            Tracked::new(name, state, range, function)
        })?;
        Ok(AggregatingState::at(index))
    }

    pub(super) fn declare<T: AnyTable<K>>(
        &mut self,
        name: &str,
        label: String,
        content: RowContent,
        describe: impl FnOnce() -> StateDescription,
        make: impl FnOnce(Arc<str>, StateIndex, KeyGroupRange) -> T,
    ) -> Result<u16, StateError> {
        check_name(name)?;
        if let Some(index) = self.states.position(name) {
            let table: &dyn Any = &*self.states.tables[index];
            if table.is::<T>() {
                return Ok(index as u16);
            }
            let declared = self.states.declared[index].label.clone();
            return Err(StateError::DeclaredDifferently { state: name.to_owned(), declared, asked: label });
        }
        let index = u16::try_from(self.states.tables.len()).map_err(|_| StateError::Full {
            what: "the table of keyed states of one operator".to_owned(),
            limit: u64::from(u16::MAX) + 1,
        })?;
        let description = describe();
        self.check_stored(name, &description, content)?;
        let name: Arc<str> = name.into();
        let mut table = Box::new(make(Arc::clone(&name), StateIndex(index), self.states.range));
        if self.states.epochs.cold.is_some() {
            table.attach_cold();
        }
        // Timers are declared with the first of them.
        table.set_tracking(self.states.tracking || self.states.epochs.spills());
        self.states.expiring |= description.ttl.is_some();
        self.states.tables.push(table);
        self.states.declared.push(Declared { name, label, description, content, versions: Vec::new() });
        Ok(index)
    }

    fn check_stored(&self, name: &str, now: &StateDescription, content: RowContent) -> Result<(), StateError> {
        for section in self.states.stored.iter().filter(|section| section.name == name) {
            if self.states.phase != Phase::Declaring {
                return Err(StateError::DeclaredTooLate { state: name.to_owned() });
            }
            StateDescription::from_json(name, &section.description)?.evolution(name, now, content)?;
        }
        Ok(())
    }
}

pub(super) fn describe<K: Key, V: Data>(kind: StateKind, user_key: Option<Schema>) -> StateDescription {
    StateDescription::new(kind, Schema::of::<K>(), user_key, Schema::of::<V>())
}
