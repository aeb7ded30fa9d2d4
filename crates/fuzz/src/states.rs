//! State as it is stored: operator state, and rows of keyed state of every kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_checkpoint::{KeyedStateInfo, Manifest, ManifestKind, OperatorManifest, RunRef};
use millpond_core::hash::stable_hash;
use millpond_core::{Epoch, KeyGroup, KeyHash, MaxParallelism};
use millpond_runs::{EncodedRun, RowBuffer, RunSettings, SectionInfo, StateIndex, write_runs};
use millpond_state::{
    KeyedBackend, KeyedBackendControl, ListState, MapState, OperatorStateSnapshot, OperatorStates, ReducingState,
    RowVersion, SliceProgress, StateError, ValueState, redistribute,
};
use millpond_state_reader::StateReader;
use millpond_storage::{MemoryStorage, ObjectName, Storage};
use serde_json::Value;

use crate::runs::push;

fn max() -> MaxParallelism {
    MaxParallelism::new(8).expect("8 is a number of key groups")
}

/// The operator state of one subtask; what is read can be dealt out and written again.
pub(crate) fn operator_state(bytes: &[u8]) {
    let Ok(snapshot) = OperatorStateSnapshot::decode(bytes) else { return };
    let again = OperatorStateSnapshot::decode(&snapshot.encode()).expect("what was written can be read");
    assert_eq!(again, snapshot);
    for parallelism in [1, 3] {
        if let Ok(shares) = redistribute(&[snapshot.clone(), again.clone()], max(), parallelism) {
            assert_eq!(shares.len(), parallelism as usize);
        }
    }
    let mut states = OperatorStates::restore([snapshot]);
    // Types that may or may not be those that are stored.
    let _ = states.list::<u64>("positions").map(|list| list.get(&states).map(<[u64]>::len));
    let _ = states.union_list::<(String, u32)>("known");
    let _ = states.broadcast_map::<String, Vec<u8>>("rules");
}

struct States {
    value: ValueState<(u64, String)>,
    list: ListState<u32>,
    map: MapState<String, i16>,
    sum: ReducingState<u64>,
}

/// In the order in which they are declared.
const NAMES: [&str; 4] = ["value", "list", "map", "sum"];

fn backend() -> (KeyedBackend<String>, States) {
    let mut backend = KeyedBackend::new(max(), max().all());
    let states = declare(&mut backend).expect("the names differ");
    (backend, states)
}

fn declare(backend: &mut KeyedBackend<String>) -> Result<States, StateError> {
    let mut states = backend.declarer();
    Ok(States {
        value: states.value("value")?,
        list: states.list("list")?,
        map: states.map("map")?,
        sum: states.reducing("sum", |a, b| a + b)?,
    })
}

fn described() -> BTreeMap<String, String> {
    let (backend, _) = backend();
    backend.sections().into_iter().map(|section| (section.name, section.description)).collect()
}

/// A row taken from the front of the input: state, key group or `0xff` for that of the key, lengths, key, value.
struct RawRow<'a> {
    state: &'static str,
    group: KeyGroup,
    key: &'a [u8],
    value: Option<&'a [u8]>,
}

fn take_row<'a>(rest: &mut &'a [u8]) -> Option<RawRow<'a>> {
    let (&[state, group, key_bytes, value_bytes], bytes) = rest.split_first_chunk::<4>()?;
    let (key, bytes) = bytes.split_at_checked(usize::from(key_bytes))?;
    let (value, bytes) = match value_bytes {
        0xff => (None, bytes),
        length => bytes.split_at_checked(usize::from(length)).map(|(value, bytes)| (Some(value), bytes))?,
    };
    *rest = bytes;
    let group = if group == 0xff { group_of(key) } else { KeyGroup(u16::from(group % 8)) };
    Some(RawRow { state: NAMES[usize::from(state) % NAMES.len()], group, key, value })
}

/// The group of the key that a row begins with, so that some rows get past that check.
fn group_of(row_key: &[u8]) -> KeyGroup {
    let key = row_key.split_first().and_then(|(length, rest)| rest.get(..usize::from(*length)));
    let key: Option<String> = key.and_then(|key| millpond_core::codec::decode(key).ok());
    let hash = key.and_then(|key| stable_hash(&key, &mut Vec::new()).ok());
    hash.map_or(KeyGroup(0), |hash| KeyHash::from_stable(hash, max()).group())
}

/// Rows that a keyed backend restores: then its state can be read, changed, and written.
pub(crate) fn keyed_rows(mut bytes: &[u8]) {
    let (mut backend, states) = backend();
    let described = described();
    let versions: BTreeMap<&str, RowVersion> = NAMES
        .into_iter()
        .map(|name| (name, backend.row_version(name, &described[name]).expect("it is declared like this")))
        .collect();
    while let Some(row) = take_row(&mut bytes) {
        if backend.restore_row(versions[row.state], row.group, row.key, row.value).is_err() {
            return;
        }
    }
    if backend.finish_restore().is_err() {
        return;
    }
    let mut keys: Vec<String> = NAMES.iter().flat_map(|name| backend.keys(name).expect("it is declared")).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        backend.set_current_key_of(key).expect("a restored key has a group here");
        let _ = states.value.get(backend.states_mut()).expect("a restored value can be read");
        let _ = states.sum.get(backend.states_mut()).expect("a restored sum can be read");
        let length = states.list.get(backend.states_mut()).expect("a restored list can be read").len();
        states.list.add(backend.states_mut(), 7).expect("a restored list can grow");
        assert_eq!(states.list.len(backend.states_mut()).expect("a list has a length"), length + 1);
        let _ = states.map.iter(backend.states_mut()).expect("a restored map can be read").count();
    }
    backend.clear_current_key();
    backend.freeze(Epoch(1)).expect("nothing else is frozen");
    while !matches!(backend.serialise_slice(1 << 20).expect("restored state can be written"), SliceProgress::Idle) {}
}

/// The same rows in a checkpoint, read without the job's code.
pub(crate) fn state_reader(mut bytes: &[u8]) {
    let described = described();
    let sections: Vec<SectionInfo> = NAMES
        .iter()
        .map(|name| SectionInfo { name: (*name).to_owned(), description: described[*name].clone() })
        .collect();
    let mut buffer = RowBuffer::new();
    while let Some(row) = take_row(&mut bytes) {
        let state = NAMES.iter().position(|name| *name == row.state).unwrap_or(0);
        push(&mut buffer, StateIndex(state as u16), row.group, row.key, row.value);
    }
    let Ok(runs) = write_runs(buffer, &sections, &RunSettings::default()) else { return };
    let reader = StateReader::new(Arc::new(MemoryStorage::new()), Arc::new(Manifest::empty("job", 8)));
    assert!(reader.states(None).expect("nothing is stored").is_empty());
    let reader = stored(runs, sections);
    for info in reader.states(None).expect("the descriptions are sound") {
        let mut entries = 0u64;
        let sound = reader.entries(&info).expect("the runs are sound").all(|entry| {
            entries += 1;
            entry.is_ok()
        });
        match reader.count(&info) {
            Ok(count) if sound => assert_eq!(count.entries, entries),
            _ => {}
        }
        let _ = reader.top(&info, 3);
        let _ = reader.get(&info, &Value::String("be".to_owned()), None);
    }
}

fn stored(runs: Vec<EncodedRun>, sections: Vec<SectionInfo>) -> StateReader {
    let storage = MemoryStorage::new();
    let mut named = Vec::new();
    for (number, EncodedRun { bytes, info }) in runs.into_iter().enumerate() {
        let object = ObjectName::new(format!("runs/{number}")).expect("the name is plain");
        storage.create(&object, &bytes).expect("memory holds everything");
        named.push(RunRef {
            object,
            bytes: info.bytes,
            raw_bytes: info.raw_bytes,
            rows: info.rows,
            tombstones: info.tombstones,
            groups: info.groups,
            checksum: info.checksum,
            epoch: Epoch(1),
            level: 0,
        });
    }
    let states =
        sections.into_iter().map(|section| KeyedStateInfo { name: section.name, description: section.description });
    let operator = OperatorManifest {
        name: "op".to_owned(),
        parallelism: 0,
        states: states.collect(),
        runs: named,
        subtasks: Vec::new(),
    };
    let manifest = Manifest {
        sequence: 1,
        kind: ManifestKind::Checkpoint,
        epoch: Epoch(1),
        operators: vec![operator],
        ..Manifest::empty("job", 8)
    };
    StateReader::new(Arc::new(storage), Arc::new(manifest))
}

pub(crate) fn operator_state_seeds() -> Vec<Vec<u8>> {
    let mut states = OperatorStates::new();
    let fill = |states: &mut OperatorStates| -> Result<(), StateError> {
        let positions = states.list::<u64>("positions")?;
        positions.add_all(states, 0..40)?;
        let known = states.union_list::<(String, u32)>("known")?;
        known.add(states, ("file".to_owned(), 9))?;
        let rules = states.broadcast_map::<String, Vec<u8>>("rules")?;
        rules.put(states, "be".to_owned(), vec![1, 2, 3])
    };
    fill(&mut states).expect("the names differ");
    vec![states.freeze().encode(), OperatorStates::new().freeze().encode()]
}

pub(crate) fn row_seeds() -> Vec<Vec<u8>> {
    let (mut backend, states) = backend();
    for (number, key) in ["be", "to", "or", "not"].into_iter().enumerate() {
        backend.set_current_key_of(key.to_owned()).expect("every key has a group here");
        let all = backend.states_mut();
        let mut fill = || -> Result<(), StateError> {
            states.value.set(all, (number as u64, key.repeat(number)))?;
            (0..150).try_for_each(|i| states.list.add(all, i))?;
            states.map.put(all, "x".to_owned(), -3)?;
            states.map.put(all, "long user key".to_owned(), 300)?;
            states.sum.add(all, 1 << 40)
        };
        fill().expect("a current key is set");
    }
    backend.clear_current_key();
    backend.freeze(Epoch(1)).expect("nothing else is frozen");
    let mut bytes = Vec::new();
    loop {
        match backend.serialise_slice(1 << 20).expect("the state can be written") {
            SliceProgress::Idle => break,
            SliceProgress::More | SliceProgress::Waiting => {}
            SliceProgress::Part { rows, .. } | SliceProgress::Done { rows, .. } => append_rows(&rows, &mut bytes),
        }
    }
    vec![bytes]
}

/// In the form that [`take_row`] takes; what is longer than that can say is left out.
fn append_rows(rows: &RowBuffer, bytes: &mut Vec<u8>) {
    for row in rows.iter() {
        let (key, value) = (row.key, row.value.unwrap_or_default());
        if key.len() < 255 && value.len() < 255 {
            let length = row.value.map_or(255, |value| value.len() as u8);
            bytes.extend_from_slice(&[row.state as u8, row.group as u8, key.len() as u8, length]);
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value);
        }
    }
}
