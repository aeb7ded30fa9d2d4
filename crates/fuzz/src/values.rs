//! Values by their schemas, and batches of records.

use std::collections::BTreeMap;

use millpond_core::{Data, Schema, codec};
use millpond_dataflow::{Batch, batch as wire};
use serde::{Deserialize, Serialize};

/// What types of jobs are made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Flight {
    number: u16,
    carrier: String,
    delay: Option<i64>,
    seats: Vec<(u8, char)>,
    phase: Phase,
    by_city: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Phase {
    Planned,
    Delayed { minutes: i32, reason: Option<Box<Phase>> },
    Gone(u128, i128, [u8; 3]),
}

fn flight() -> Flight {
    let inner = Phase::Delayed { minutes: -5, reason: Some(Box::new(Phase::Planned)) };
    Flight {
        number: 1_234,
        carrier: "größe".to_owned(),
        delay: Some(-7),
        seats: vec![(1, 'a'), (255, '😀')],
        phase: inner,
        by_city: BTreeMap::from([("JFK".to_owned(), f64::NAN), ("LGA".to_owned(), -0.0)]),
    }
}

/// A schema as JSON, a zero, and a value.
fn parts(bytes: &[u8]) -> Option<(Schema, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    Some((serde_json::from_slice(&bytes[..end]).ok()?, &bytes[end + 1..]))
}

/// Any value under any schema becomes JSON and comes back.
pub(crate) fn schema(bytes: &[u8]) {
    let Some((schema, value)) = parts(bytes) else { return };
    let text = serde_json::to_vec(&schema).expect("a schema can be written");
    assert_eq!(serde_json::from_slice::<Schema>(&text).expect("what was written can be read"), schema);
    let _ = schema.to_string();
    assert!(schema.check_readable_as(&schema).is_ok(), "a schema is readable as itself");
    if let Ok(json) = schema.to_json(value) {
        let again = schema.encode_json(&json).expect("JSON that came of a value becomes one");
        assert_eq!(schema.to_json(&again).expect("what was encoded can be read"), json);
    }
    if let Ok(json) = serde_json::from_slice::<serde_json::Value>(value)
        && let Ok(encoded) = schema.encode_json(&json)
    {
        let _ = schema.to_json(&encoded).expect("what was encoded can be read");
    }
}

/// Any value under any schema, read as types of today.
pub(crate) fn evolution(bytes: &[u8]) {
    let Some((schema, value)) = parts(bytes) else { return };
    read_as::<Flight>(&schema, value);
    read_as::<(u64, Option<String>)>(&schema, value);
    read_as::<Vec<i64>>(&schema, value);
    read_as::<BTreeMap<String, Vec<u8>>>(&schema, value);
    read_as::<Phase>(&schema, value);
}

fn read_as<T: Data>(schema: &Schema, value: &[u8]) {
    let now = Schema::of::<T>();
    let _ = Schema::evolution_of::<T>(schema, &now);
    let mut bytes = Vec::new();
    if Schema::transcode::<T>(schema, value, &mut bytes).is_ok() {
        let read: T = codec::decode(&bytes).expect("what was written can be read");
        assert_eq!(codec::encode(&read).expect("it can be written"), bytes);
    } else {
        assert!(bytes.is_empty(), "an error leaves nothing behind");
    }
}

/// Batches as they cross the wire.
pub(crate) fn batch(bytes: &[u8]) {
    records::<u64>(bytes);
    records::<(String, Option<u32>)>(bytes);
    records::<Flight>(bytes);
    records::<Vec<u8>>(bytes);
}

fn records<T: Data>(bytes: &[u8]) {
    let Ok(batch) = wire::decode::<T>(bytes) else { return };
    let (length, again) = (batch.len(), batch.encode().expect("what was read can be written"));
    let _ = batch.estimate_bytes();
    let batch = batch.downcast::<T>();
    for index in 0..batch.len() {
        let _ = batch.time(index);
    }
    assert_eq!(wire::decode::<T>(&again).expect("what was written can be read").len(), length);
}

fn with_schema<T: Data>(value: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(&Schema::of::<T>()).expect("a schema can be written");
    bytes.push(0);
    bytes.extend(codec::encode(value).expect("the example can be written"));
    bytes
}

pub(crate) fn schema_seeds() -> Vec<Vec<u8>> {
    let mut json = serde_json::to_vec(&Schema::of::<(u8, String)>()).expect("a schema can be written");
    json.extend_from_slice(b"\0[3,\"x\"]");
    let phase = Phase::Gone(u128::MAX, i128::MIN, [1, 2, 3]);
    vec![
        with_schema(&flight()),
        with_schema(&(7u64, Some("be".to_owned()))),
        with_schema(&vec![-1i64, 1 << 40]),
        with_schema(&BTreeMap::from([("a".to_owned(), vec![1u8])])),
        with_schema(&phase),
        with_schema(&BTreeMap::from([(3u8, Some(Some(())))])),
        json,
    ]
}

pub(crate) fn batch_seeds() -> Vec<Vec<u8>> {
    let timed = Batch { records: vec![1u64, 1 << 50], times: vec![5, -7] };
    let batches = [
        timed.boxed(),
        Batch::from(vec![("be".to_owned(), Some(3u32)), (String::new(), None)]).boxed(),
        Batch::from(vec![flight(), flight()]).boxed(),
        Batch::from(vec![vec![1u8; 40]]).boxed(),
    ];
    batches.iter().map(|batch| batch.encode().expect("the example can be written")).collect()
}
