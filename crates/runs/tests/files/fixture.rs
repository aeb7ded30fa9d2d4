//! Rows for tests: made from a short list of operations, and judged by a map.

use std::collections::BTreeMap;
use std::convert::Infallible;

use millpond_core::{KeyGroup, KeyGroupRange};
use millpond_runs::{
    Compression, EncodedRun, MemoryRun, RowBuffer, RunError, RunReader, RunSettings, SectionInfo, StateIndex,
};
use proptest::prelude::*;

/// Section name, group, key → value or tombstone.
pub(crate) type Model = BTreeMap<(String, u16, Vec<u8>), Option<Vec<u8>>>;

/// One row that is put or deleted.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) state: u16,
    pub(crate) group: u16,
    pub(crate) key: Vec<u8>,
    pub(crate) value: Option<Vec<u8>>,
}

/// Not in the order of the names, one name a prefix of another, one without rows.
pub(crate) const NAMES: [&str; 4] = ["timers", "count", "counts", "never"];
pub(crate) const EVERY_GROUP: KeyGroupRange = KeyGroupRange::new(0, 1 << 16);

pub(crate) fn sections() -> Vec<SectionInfo> {
    NAMES.iter().map(|name| SectionInfo { name: (*name).to_owned(), description: format!("kind of {name}") }).collect()
}

pub(crate) fn small_settings() -> RunSettings {
    RunSettings { target_file_bytes: 700, block_bytes: 64, compression: Compression::Lz4 }
}

/// Few different bytes and groups, so that keys share prefixes and come again.
pub(crate) fn op() -> impl Strategy<Value = Op> {
    let key = prop_oneof![
        proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..4),
        proptest::collection::vec(0u8..2, 0..14),
        proptest::collection::vec(any::<u8>(), 0..40),
        (0usize..3, any::<bool>()).prop_map(|(tail, long)| vec![7; if long { 200 } else { 20 } + tail]),
    ];
    let group = prop_oneof![0u16..4, 254u16..258, Just(32_767), Just(65_535)];
    let value = proptest::option::weighted(0.7, proptest::collection::vec(any::<u8>(), 0..30));
    (0u16..3, group, key, value).prop_map(|(state, group, key, value)| Op { state, group, key, value })
}

pub(crate) fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop_oneof![proptest::collection::vec(op(), 0..12), proptest::collection::vec(op(), 0..300)]
}

fn bytes(from: &[u8]) -> impl FnOnce(&mut Vec<u8>) -> Result<(), Infallible> {
    |to| {
        to.extend_from_slice(from);
        Ok(())
    }
}

pub(crate) fn buffer(ops: &[Op]) -> RowBuffer {
    let mut rows = RowBuffer::new();
    for op in ops {
        push(&mut rows, op);
    }
    rows
}

pub(crate) fn push(rows: &mut RowBuffer, op: &Op) {
    let (state, group) = (StateIndex(op.state), KeyGroup(op.group));
    let pushed = match &op.value {
        Some(value) => rows.put(state, group, bytes(&op.key), bytes(value)),
        None => rows.delete(state, group, bytes(&op.key)),
    };
    pushed.unwrap();
}

/// What the rows of one buffer mean: a put beats a delete, the later of two puts wins.
pub(crate) fn model(ops: &[Op]) -> Model {
    let mut model = Model::new();
    for op in ops {
        let key = (NAMES[usize::from(op.state)].to_owned(), op.group, op.key.clone());
        if op.value.is_some() || !model.contains_key(&key) {
            model.insert(key, op.value.clone());
        }
    }
    model
}

/// Everything in the newer wins.
pub(crate) fn fold(mut older: Model, newer: Model) -> Model {
    older.extend(newer);
    older
}

pub(crate) fn open(run: &EncodedRun) -> RunReader<MemoryRun> {
    RunReader::open(MemoryRun::new("test.run", run.bytes.clone())).unwrap()
}

/// All rows of the readers in `groups`; panics if a row occurs twice or out of order.
pub(crate) fn contents(readers: &[RunReader<MemoryRun>], groups: KeyGroupRange) -> Model {
    let mut all = Model::new();
    for reader in readers {
        for section in reader.sections() {
            let mut last = None;
            let scanned = reader.scan::<RunError>(&section.name, groups, |row| {
                let here = (row.group.0, row.key.to_vec());
                assert!(last.replace(here.clone()) < Some(here.clone()), "rows ascend");
                let row_key = (section.name.clone(), here.0, here.1);
                assert!(all.insert(row_key, row.value.map(<[u8]>::to_vec)).is_none(), "each row is in one file");
                Ok(())
            });
            scanned.unwrap();
        }
    }
    all
}

pub(crate) fn within(model: &Model, groups: KeyGroupRange) -> Model {
    model
        .iter()
        .filter(|((_, group, _), _)| groups.contains(KeyGroup(*group)))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}
