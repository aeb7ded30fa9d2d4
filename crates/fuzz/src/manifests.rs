//! Manifests, savepoints, the log and the names of objects.

use millpond_checkpoint::names::job_of_manifest;
use millpond_checkpoint::savepoint::Savepoint;
use millpond_checkpoint::{
    Blob, DataObject, History, KeyedStateInfo, Manifest, ManifestKind, Names, OperatorManifest, RunRef, Writer,
    WriterId, format,
};
use millpond_core::codec::checksum;
use millpond_core::{Attempt, Epoch, KeyGroupRange, SubtaskIndex};
use millpond_storage::{MemoryStorage, ObjectName, Storage, StorageAddress};

const JOB: &str = "a job";

fn own_names() -> Names {
    Names::new(JOB).expect("the name is plain")
}

fn any_object() -> ObjectName {
    own_names().manifest(7)
}

/// The bytes of a manifest.
pub(crate) fn manifest(bytes: &[u8]) {
    if let Ok(manifest) = format::decode(&any_object(), bytes) {
        // What is read may be spelt otherwise than we would, but means the same.
        let again = format::encode(&manifest).expect("a manifest that was read is possible");
        assert_eq!(format::decode(&any_object(), &again).expect("what was written can be read"), manifest);
        let total: u64 = manifest.sizes().fold(0, |sum, (_, bytes)| bytes.saturating_add(sum));
        assert!(total <= manifest.state_bytes());
    }
}

fn framed(magic: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{magic} 1 {} {:08x}\n", body.len(), checksum(body)).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// A body of a manifest or savepoint under a right checksum.
pub(crate) fn manifest_body(body: &[u8]) {
    manifest(&framed("millpond-manifest", body));
    savepoint(&framed("millpond-savepoint", body));
}

/// The bytes of a savepoint's manifest.
pub(crate) fn savepoint(bytes: &[u8]) {
    if let Ok(savepoint) = Savepoint::decode(bytes) {
        let again = savepoint.encode().expect("a savepoint that was read is possible");
        assert_eq!(Savepoint::decode(&again).expect("what was written can be read"), savepoint);
        let _ = savepoint.to_manifest().state_bytes();
    }
}

/// Up to four manifests of a log, each any bytes: the sound ones are listed, the newest is never passed over.
pub(crate) fn log(bytes: &[u8]) {
    let storage = MemoryStorage::new();
    let names = own_names();
    let pieces: Vec<&[u8]> = bytes.splitn(4, |byte| *byte == 0).collect();
    for (sequence, piece) in (1..).zip(&pieces) {
        let body = framed("millpond-manifest", piece);
        let bytes = if piece.starts_with(b"millpond-") { *piece } else { body.as_slice() };
        storage.create(&names.manifest(sequence), bytes).expect("memory holds everything");
    }
    let history = History::new(storage, JOB).expect("the name is plain");
    let entries = history.entries().expect("memory can be listed");
    let newest_is_sound = history.read(pieces.len() as u64).is_ok();
    assert_eq!(history.latest().is_ok(), newest_is_sound, "a damaged manifest is never passed over");
    for entry in entries.iter().filter_map(|entry| entry.manifest.as_ref().ok()) {
        assert_eq!(history.load(entry.epoch).expect("a listed epoch can be loaded").epoch, entry.epoch);
    }
}

/// Names of objects and addresses of storages.
pub(crate) fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let _ = StorageAddress::parse(text);
    if let Ok(names) = Names::new(text) {
        assert_eq!(job_of_manifest(&names.manifest(3)).as_deref(), Some(text));
        let _ = names.run(&data(text));
    }
    let Ok(object) = ObjectName::new(text) else { return };
    if let Some(job) = job_of_manifest(&object) {
        let names = Names::new(&job).expect("a job that was read has a name");
        assert!(names.parse(&object).is_some());
    }
    let _ = own_names().parse(&object);
}

fn data(operator: &str) -> DataObject {
    let (operator, writer) = (operator.to_owned(), Writer::Subtask(SubtaskIndex(1)));
    DataObject { operator, attempt: Attempt(2), writer, epoch: Epoch(3), counter: 0 }
}

fn example(sequence: u64, kind: ManifestKind) -> Manifest {
    let names = own_names();
    let run = RunRef {
        object: names.run(&data("counts")).expect("the name is plain"),
        bytes: 4_711,
        raw_bytes: 9_999,
        rows: 100,
        tombstones: 3,
        groups: KeyGroupRange::new(0, 64),
        checksum: 0xdead_beef,
        epoch: Epoch(3),
        level: 1,
    };
    let states = vec![KeyedStateInfo { name: "count".to_owned(), description: "{}".to_owned() }];
    let object = names.blob(&data("source")).expect("the name is plain");
    let blobs = vec![
        None,
        Some(Blob::Inline(vec![1, 2, 255])),
        Some(Blob::Object { object, bytes: 30_000, checksum: 7, hash: Some(u64::MAX) }),
    ];
    let counts =
        OperatorManifest { name: "counts".to_owned(), parallelism: 0, states, runs: vec![run], subtasks: Vec::new() };
    let source = OperatorManifest {
        name: "source".to_owned(),
        parallelism: 3,
        states: Vec::new(),
        runs: Vec::new(),
        subtasks: blobs,
    };
    Manifest {
        sequence,
        attempt: Attempt(2),
        writer: WriterId(77),
        kind,
        epoch: Epoch(4),
        created_ms: 1_700_000_000_000,
        operators: vec![counts, source],
        ..Manifest::empty(JOB, 128)
    }
}

fn encoded(sequence: u64, kind: ManifestKind) -> Vec<u8> {
    format::encode(&example(sequence, kind)).expect("the example is possible")
}

fn body_of(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    bytes[end..].to_vec()
}

pub(crate) fn manifest_seeds() -> Vec<Vec<u8>> {
    let empty = format::encode(&Manifest { sequence: 1, ..Manifest::empty(JOB, 1) }).expect("it is possible");
    vec![encoded(1, ManifestKind::Fence), encoded(2, ManifestKind::Checkpoint), empty]
}

pub(crate) fn savepoint_seeds() -> Vec<Vec<u8>> {
    let prefix = own_names().prefix().to_owned();
    let savepoint = Savepoint::of(&example(1, ManifestKind::Checkpoint), &prefix, 5).expect("it is possible");
    vec![savepoint.encode().expect("it is possible")]
}

pub(crate) fn body_seeds() -> Vec<Vec<u8>> {
    manifest_seeds().iter().chain(&savepoint_seeds()).map(|bytes| body_of(bytes)).collect()
}

pub(crate) fn log_seeds() -> Vec<Vec<u8>> {
    let kinds = [ManifestKind::Fence, ManifestKind::Checkpoint, ManifestKind::Checkpoint];
    let bodies: Vec<Vec<u8>> = (1..).zip(kinds).map(|(sequence, kind)| body_of(&encoded(sequence, kind))).collect();
    let whole = [encoded(1, ManifestKind::Fence), encoded(2, ManifestKind::Checkpoint)];
    vec![bodies.join(&0), whole.join(&0)]
}

pub(crate) fn name_seeds() -> Vec<Vec<u8>> {
    let names = own_names();
    let run = names.run(&data("per carrier/x")).expect("the name is plain");
    let texts = ["s3://bucket/a/b?region=x&endpoint=http://h:1", "hdfs://host:8020", "größe~2F+.x", "a/b/c"];
    let objects = [names.manifest(12).to_string(), run.to_string()];
    objects.into_iter().chain(texts.map(str::to_owned)).map(String::into_bytes).collect()
}
