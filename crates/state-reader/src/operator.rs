//! The operator state of all subtasks of one operator: small enough to be held whole.

use std::sync::Arc;

use millpond_checkpoint::{Blob, OperatorManifest};
use millpond_core::Schema;
use millpond_state::{BroadcastSnapshot, ListSnapshot, OperatorStateSnapshot};
use millpond_storage::Storage;

use crate::entry::StateEntry;
use crate::error::ReaderError;
use crate::info::{Kind, StateInfo};
use crate::json::decode;
use crate::reader::StateReader;

/// The operator state of one operator, by old subtask.
pub(crate) struct OperatorStateReader {
    operator: String,
    subtasks: Vec<OperatorStateSnapshot>,
}

impl OperatorStateReader {
    pub(crate) fn load(reader: &StateReader, operator: &OperatorManifest) -> Result<Self, ReaderError> {
        let load = |blob: &Option<Blob>| match blob {
            Some(blob) => load_snapshot(reader.storage(), &operator.name, blob),
            None => Ok(OperatorStateSnapshot::default()),
        };
        let subtasks = operator.subtasks.iter().map(load).collect::<Result<_, _>>()?;
        Ok(OperatorStateReader { operator: operator.name.clone(), subtasks })
    }

    /// All lists and broadcast maps, each once, lists first.
    pub(crate) fn states(&self) -> Vec<StateInfo> {
        let mut states: Vec<StateInfo> = Vec::new();
        let lists = self.subtasks.iter().flat_map(|subtask| &subtask.lists).map(|list| self.list(list));
        let maps = self.subtasks.iter().flat_map(|subtask| &subtask.broadcasts).map(|map| self.broadcast(map));
        for info in lists.chain(maps) {
            let known = |known: &StateInfo| known.state == info.state && known.kind == info.kind;
            if !states.iter().any(known) {
                states.push(info);
            }
        }
        states.sort_by(|a, b| (&a.state, a.kind).cmp(&(&b.state, b.kind)));
        states
    }

    fn list(&self, list: &ListSnapshot) -> StateInfo {
        StateInfo {
            operator: self.operator.clone(),
            state: list.name.clone(),
            kind: list.mode.into(),
            key: None,
            user_key: None,
            value: list.schema.clone(),
        }
    }

    fn broadcast(&self, map: &BroadcastSnapshot) -> StateInfo {
        StateInfo {
            operator: self.operator.clone(),
            state: map.name.clone(),
            kind: Kind::Broadcast,
            key: None,
            user_key: Some(map.key.clone()),
            value: map.value.clone(),
        }
    }

    /// Entries and their encoded bytes.
    pub(crate) fn size(&self, info: &StateInfo) -> (u64, u64) {
        let mut size = (0, 0);
        let mut add = |bytes: usize| size = (size.0 + 1, size.1 + bytes as u64);
        for (_, list) in self.lists(info) {
            list.elements.iter().for_each(|element| add(element.len()));
        }
        for (_, map) in self.maps(info) {
            map.entries.iter().for_each(|(key, value)| add(key.len() + value.len()));
        }
        size
    }

    pub(crate) fn entries(&self, info: &StateInfo) -> Result<Vec<StateEntry>, ReaderError> {
        let mut entries = Vec::new();
        for (subtask, list) in self.lists(info) {
            for (index, element) in list.elements.iter().enumerate() {
                let value = decode(info, "value", None, &list.schema, element)?;
                entries.push(entry(subtask, None, Some(index as u64), value, Vec::new()));
            }
        }
        for (subtask, map) in self.maps(info) {
            for (key, value) in map.entries.iter() {
                let user_key = decode(info, "user key", None, &map.key, key)?;
                let value = decode(info, "value", None, &map.value, value)?;
                entries.push(entry(subtask, Some(user_key), None, value, key.to_vec()));
            }
        }
        Ok(entries)
    }

    /// The encoded elements of a list with their schemas.
    pub(crate) fn elements<'a>(&'a self, info: &'a StateInfo) -> impl Iterator<Item = (&'a Schema, &'a [u8])> {
        self.lists(info).flat_map(|(_, list)| list.elements.iter().map(|element| (&list.schema, &**element)))
    }

    fn lists<'a>(&'a self, info: &'a StateInfo) -> impl Iterator<Item = (u32, &'a ListSnapshot)> {
        let wanted = move |list: &ListSnapshot| list.name == info.state && Kind::from(list.mode) == info.kind;
        let all = (0..).zip(&self.subtasks);
        all.flat_map(|(index, subtask)| subtask.lists.iter().map(move |list| (index, list)))
            .filter(move |(_, list)| wanted(list))
    }

    fn maps<'a>(&'a self, info: &'a StateInfo) -> impl Iterator<Item = (u32, &'a BroadcastSnapshot)> {
        let all = (0..).zip(&self.subtasks);
        all.flat_map(|(index, subtask)| subtask.broadcasts.iter().map(move |map| (index, map)))
            .filter(move |(_, map)| info.kind == Kind::Broadcast && map.name == info.state)
    }
}

fn entry(
    subtask: u32,
    user_key: Option<serde_json::Value>,
    index: Option<u64>,
    value: serde_json::Value,
    place: Vec<u8>,
) -> StateEntry {
    StateEntry { key_group: None, subtask: Some(subtask), key: None, user_key, index, value, place }
}

/// Reads, checks and decodes the operator state of one subtask.
pub(crate) fn load_snapshot(
    storage: &Arc<dyn Storage>,
    operator: &str,
    blob: &Blob,
) -> Result<OperatorStateSnapshot, ReaderError> {
    let decode = |bytes: &[u8]| {
        OperatorStateSnapshot::decode(bytes)
            .map_err(|source| ReaderError::State { operator: operator.to_owned(), source })
    };
    let object = match blob {
        Blob::Inline(bytes) => return decode(bytes),
        Blob::Object { object, .. } => object,
    };
    let (operator_name, object_name) = (operator.to_owned(), object.to_string());
    let bytes = match storage.read(object) {
        Ok(bytes) => bytes,
        Err(source) => return Err(ReaderError::Storage { operator: operator_name, object: object_name, source }),
    };
    match blob.check(&bytes) {
        Ok(()) => decode(&bytes),
        Err(reason) => Err(ReaderError::OtherObject { operator: operator_name, object: object_name, reason }),
    }
}
