//! The live operator state of one subtask.
//!
//! Owns, for each state, the native values that user code sees and beside them an encoded twin in a
//! collection that shares structure; a change goes to both, a freeze copies the twins in O(1). States
//! that were restored and not declared stay as they are and are part of every later snapshot.

use std::any::{Any, type_name};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use millpond_core::codec::{decode, encode};
use millpond_core::name::check_name;
use millpond_core::{Data, Evolution, Key, KeyGroup, Schema};

use super::broadcast::{BroadcastReader, BroadcastState, LiveMap};
use super::list::OperatorListState;
use super::pieces::{Entries, Pieces};
use super::snapshot::{BroadcastSnapshot, ListMode, ListSnapshot, OperatorStateSnapshot};
use crate::error::StateError;
use crate::keyed::schema_changed;

/// A state with its encoded twin `S` and, once declared, its native values.
pub(crate) struct Live<S> {
    pub(crate) stored: S,
    values: Option<Box<dyn Any + Send>>,
    label: String,
}

impl<S> Live<S> {
    fn undeclared(stored: S) -> Self {
        Live { stored, values: None, label: String::new() }
    }

    /// The native values, when declared as `V`.
    pub(crate) fn values<V: Any>(&self) -> Option<&V> {
        self.values.as_ref()?.downcast_ref()
    }

    pub(crate) fn parts_mut<V: Any>(&mut self) -> Option<(&mut S, &mut V)> {
        Some((&mut self.stored, self.values.as_mut()?.downcast_mut()?))
    }
}

/// The operator states of one subtask.
#[derive(Default)]
pub struct OperatorStates {
    lists: Vec<Live<ListSnapshot>>,
    broadcasts: Vec<Live<BroadcastSnapshot>>,
    raw_pieces: Pieces,
    raw_keyed: BTreeMap<KeyGroup, Arc<[u8]>>,
    version: u64,
}

impl OperatorStates {
    /// Without any state.
    #[must_use]
    pub fn new() -> Self {
        OperatorStates::default()
    }

    /// With what a snapshot holds: all its states are present at once, and are decoded when they
    /// are declared. Several pieces of one state are concatenated, of one map the later wins.
    #[must_use]
    pub fn restore(snapshots: impl IntoIterator<Item = OperatorStateSnapshot>) -> Self {
        let mut states = OperatorStates::default();
        for snapshot in snapshots {
            for list in snapshot.lists {
                match states.lists.iter_mut().find(|known| known.stored.name == list.name) {
                    Some(known) => list.elements.iter().for_each(|piece| known.stored.elements.push(Arc::clone(piece))),
                    None => states.lists.push(Live::undeclared(list)),
                }
            }
            for map in snapshot.broadcasts {
                let Some(known) = states.broadcasts.iter_mut().find(|known| known.stored.name == map.name) else {
                    states.broadcasts.push(Live::undeclared(map));
                    continue;
                };
                let entries = map.entries.iter();
                entries.for_each(|(key, value)| known.stored.entries.put(Arc::clone(key), Arc::clone(value)));
            }
            snapshot.raw_pieces.iter().for_each(|piece| states.raw_pieces.push(Arc::clone(piece)));
            states.raw_keyed.extend(snapshot.raw_keyed);
        }
        states
    }

    /// Grows with every change: a snapshot taken at the same version is the same snapshot.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn changed(&mut self) {
        self.version += 1;
    }

    /// A list whose elements are dealt out evenly when the parallelism changes.
    ///
    /// # Errors
    /// When the name is refused, or known with another mode or type, or when stored elements cannot
    /// be read as `T`; nothing is declared then.
    pub fn list<T: Data>(&mut self, name: &str) -> Result<OperatorListState<T>, StateError> {
        self.declare_list(name, ListMode::Split)
    }

    /// A list of which every subtask gets all elements of all subtasks on restore.
    ///
    /// # Errors
    /// As [`OperatorStates::list`].
    pub fn union_list<T: Data>(&mut self, name: &str) -> Result<OperatorListState<T>, StateError> {
        self.declare_list(name, ListMode::Union)
    }

    /// A map of which every subtask has a copy.
    ///
    /// # Errors
    /// As [`OperatorStates::list`].
    pub fn broadcast_map<K: Key, V: Data>(&mut self, name: &str) -> Result<BroadcastState<K, V>, StateError> {
        check_name(name)?;
        let label = format!("broadcast map from {} to {}", type_name::<K>(), type_name::<V>());
        let (key, value) = (Schema::of::<K>(), Schema::of::<V>());
        let Some(index) = self.broadcasts.iter().position(|live| live.stored.name == name) else {
            let stored = BroadcastSnapshot { name: name.to_owned(), key, value, entries: Default::default() };
            let values: Option<Box<dyn Any + Send>> = Some(Box::new(LiveMap::<K, V>::new()));
            self.broadcasts.push(Live { stored, values, label });
            self.changed();
            return Ok(BroadcastState::at(self.broadcasts.len() - 1));
        };
        let live = &mut self.broadcasts[index];
        if live.values.is_some() {
            check_same::<LiveMap<K, V>, _>(name, live, label)?;
            return Ok(BroadcastState::at(index));
        }
        let same_key = live.stored.key.check_readable_as(&key);
        same_key.map_err(|mismatch| schema_changed(name, "key", mismatch))?;
        let elements = Elements::<V>::new(name, &live.stored.value, &value)?;
        let (mut values, mut entries) = (LiveMap::<K, V>::new(), Entries::default());
        for (key, piece) in live.stored.entries.iter() {
            let (value, piece) = elements.read(piece)?;
            let native = decode(key).map_err(|source| StateError::codec(name, source))?;
            values.insert(key.to_vec(), (native, value));
            entries.put(Arc::clone(key), piece);
        }
        let migrated = elements.evolution == Evolution::Migrated;
        live.stored.entries = entries;
        live.stored.key = key;
        live.stored.value = value;
        live.values = Some(Box::new(values));
        live.label = label;
        self.version += u64::from(migrated);
        Ok(BroadcastState::at(index))
    }

    fn declare_list<T: Data>(&mut self, name: &str, mode: ListMode) -> Result<OperatorListState<T>, StateError> {
        check_name(name)?;
        let label = format!("list of {}", type_name::<T>());
        let schema = Schema::of::<T>();
        let Some(index) = self.lists.iter().position(|live| live.stored.name == name) else {
            let stored = ListSnapshot { name: name.to_owned(), mode, schema, elements: Pieces::default() };
            self.lists.push(Live { stored, values: Some(Box::new(Vec::<T>::new())), label });
            self.changed();
            return Ok(OperatorListState::at(self.lists.len() - 1));
        };
        let live = &mut self.lists[index];
        if live.stored.mode != mode {
            let (known, asked) = (live.stored.mode.word(), mode.word());
            return Err(StateError::ModeChanged { state: name.to_owned(), known, asked });
        }
        if live.values.is_some() {
            check_same::<Vec<T>, _>(name, live, label)?;
            return Ok(OperatorListState::at(index));
        }
        let elements = Elements::<T>::new(name, &live.stored.schema, &schema)?;
        let read = live.stored.elements.iter().map(|piece| elements.read(piece));
        let (values, pieces): (Vec<T>, Vec<Arc<[u8]>>) = read.collect::<Result<_, _>>()?;
        let migrated = elements.evolution == Evolution::Migrated;
        live.stored.elements = pieces.into_iter().collect();
        live.values = Some(Box::new(values));
        live.stored.schema = schema;
        live.label = label;
        self.version += u64::from(migrated);
        Ok(OperatorListState::at(index))
    }

    pub(crate) fn list_at<V: Any>(&self, index: usize) -> Result<&V, StateError> {
        self.lists.get(index).and_then(Live::values).ok_or_else(|| foreign::<V>(index))
    }

    pub(crate) fn list_at_mut<V: Any>(&mut self, index: usize) -> Result<(&mut ListSnapshot, &mut V), StateError> {
        self.lists.get_mut(index).and_then(Live::parts_mut).ok_or_else(|| foreign::<V>(index))
    }

    pub(crate) fn map_at<V: Any>(&self, index: usize) -> Result<(&BroadcastSnapshot, &V), StateError> {
        let live = self.broadcasts.get(index);
        live.and_then(|live| Some((&live.stored, live.values()?))).ok_or_else(|| foreign::<V>(index))
    }

    pub(crate) fn map_at_mut<V: Any>(&mut self, index: usize) -> Result<(&mut BroadcastSnapshot, &mut V), StateError> {
        self.broadcasts.get_mut(index).and_then(Live::parts_mut).ok_or_else(|| foreign::<V>(index))
    }

    /// What the side without the broadcast stream gets: broadcast maps, for reading only.
    #[must_use]
    pub fn reader(&self) -> BroadcastReader<'_> {
        BroadcastReader::new(self)
    }

    /// The user's own bytes, in pieces that are redistributed like a split list.
    #[must_use]
    pub fn raw_pieces(&self) -> &Pieces {
        &self.raw_pieces
    }

    /// Replaces the user's own pieces.
    pub fn set_raw_pieces(&mut self, pieces: impl IntoIterator<Item = Vec<u8>>) {
        self.raw_pieces = pieces.into_iter().map(Arc::from).collect();
        self.changed();
    }

    /// The user's own bytes of a key group.
    #[must_use]
    pub fn raw_keyed(&self, group: KeyGroup) -> Option<&[u8]> {
        self.raw_keyed.get(&group).map(AsRef::as_ref)
    }

    /// Sets the user's own bytes of a key group; `None` removes them.
    pub fn set_raw_keyed(&mut self, group: KeyGroup, bytes: Option<Vec<u8>>) {
        match bytes {
            Some(bytes) => self.raw_keyed.insert(group, bytes.into()),
            None => self.raw_keyed.remove(&group),
        };
        self.changed();
    }

    /// Names of restored states that nobody declared yet: lists, then broadcast maps.
    pub fn undeclared(&self) -> impl Iterator<Item = &str> {
        let lists = self.lists.iter().filter(|live| live.values.is_none()).map(|live| live.stored.name.as_str());
        let maps = self.broadcasts.iter().filter(|live| live.values.is_none());
        lists.chain(maps.map(|live| live.stored.name.as_str()))
    }

    /// The first restored state that holds something and that nobody declared yet.
    #[must_use]
    pub fn first_undeclared(&self) -> Option<&str> {
        let list = |live: &&Live<ListSnapshot>| live.values.is_none() && live.stored.elements.iter().next().is_some();
        let map =
            |live: &&Live<BroadcastSnapshot>| live.values.is_none() && live.stored.entries.iter().next().is_some();
        let lists = self.lists.iter().filter(list).map(|live| live.stored.name.as_str());
        let maps = self.broadcasts.iter().filter(map).map(|live| live.stored.name.as_str());
        lists.chain(maps).next()
    }

    /// Forgets what restored states hold that nobody declared yet.
    pub fn empty_undeclared(&mut self) {
        // The states themselves stay, because handles refer to them by position.
        for live in self.lists.iter_mut().filter(|live| live.values.is_none()) {
            live.stored.elements = Pieces::default();
        }
        for live in self.broadcasts.iter_mut().filter(|live| live.values.is_none()) {
            live.stored.entries = Default::default();
        }
        self.changed();
    }

    /// Everything as it is now; later changes are not in it. O(number of states and raw groups).
    #[must_use]
    pub fn freeze(&self) -> OperatorStateSnapshot {
        let mut lists: Vec<_> = self.lists.iter().map(|live| live.stored.clone()).collect();
        let mut broadcasts: Vec<_> = self.broadcasts.iter().map(|live| live.stored.clone()).collect();
        lists.sort_by(|a, b| a.name.cmp(&b.name));
        broadcasts.sort_by(|a, b| a.name.cmp(&b.name));
        let (raw_pieces, raw_keyed) = (self.raw_pieces.clone(), self.raw_keyed.clone());
        OperatorStateSnapshot { lists, broadcasts, raw_pieces, raw_keyed }
    }
}

fn check_same<V: Any, S>(name: &str, live: &Live<S>, asked: String) -> Result<(), StateError> {
    match live.values::<V>() {
        Some(_) => Ok(()),
        None => {
            let declared = live.label.clone();
            Err(StateError::DeclaredDifferently { state: name.to_owned(), declared, asked })
        }
    }
}

/// Reads stored elements, which may have been written under another schema.
struct Elements<'a, T> {
    state: &'a str,
    stored: &'a Schema,
    evolution: Evolution,
    read: PhantomData<fn() -> T>,
}

impl<'a, T: Data> Elements<'a, T> {
    fn new(state: &'a str, stored: &'a Schema, now: &Schema) -> Result<Self, StateError> {
        let evolution = Schema::evolution_of::<T>(stored, now);
        let evolution = evolution.map_err(|mismatch| schema_changed(state, "value", mismatch))?;
        Ok(Elements { state, stored, evolution, read: PhantomData })
    }

    /// The value, and its encoding of today.
    fn read(&self, piece: &Arc<[u8]>) -> Result<(T, Arc<[u8]>), StateError> {
        let fault = |source| StateError::codec(self.state, source);
        if self.evolution == Evolution::AsIs {
            return Ok((decode(piece).map_err(fault)?, Arc::clone(piece)));
        }
        let value: T = self
            .stored
            .read(piece)
            .map_err(|error| StateError::NotMigrated { state: self.state.to_owned(), source: Box::new(error) })?;
        let piece = encode(&value).map_err(fault)?;
        Ok((value, piece.into()))
    }
}

#[cold]
fn foreign<V>(index: usize) -> StateError {
    StateError::ForeignHandle { index, asked: type_name::<V>() }
}
