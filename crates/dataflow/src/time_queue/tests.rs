use std::collections::BTreeMap;
use std::sync::Arc;

use millpond_core::{ErrorKind, MaxParallelism};
use millpond_state::cold::{ColdFile, MemoryFiles};
use millpond_state::{ColdError, ColdFiles};
use proptest::prelude::*;

use super::*;

fn backend<K: Key>() -> KeyedBackend<K> {
    let max = MaxParallelism::new(16).unwrap();
    KeyedBackend::new(max, max.all())
}

fn room(files: &Arc<MemoryFiles>, limit_bytes: usize) -> BesideRoom {
    BesideRoom { files: Arc::clone(files) as Arc<dyn ColdFiles>, limit_bytes }
}

fn entry<K, N>(key: K, namespace: N) -> Queued<K, N> {
    Queued { hash: KeyHash(7), key, namespace }
}

/// What may happen to a queue.
#[derive(Clone, Debug)]
enum Step {
    Push(i64, u8),
    Pop(i64),
    Clear,
}

fn time() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => 0..1_000i64,
        2 => Just(500i64),
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(-1), Just(i64::MIN + 1)],
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        600 => (time(), any::<u8>()).prop_map(|(time, key)| Step::Push(time, key)),
        200 => time().prop_map(Step::Pop),
        1 => Just(Step::Clear),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn tm_02_entries_come_in_order_of_time_whatever_lies_in_files(
        steps in prop::collection::vec(step(), 0..3_000),
        limit in prop_oneof![Just(64usize), Just(2_000), Just(20_000)],
    ) {
        let files = Arc::new(MemoryFiles::default());
        let room = room(&files, limit);
        let mut backend = backend::<String>();
        let mut queue: TimeQueue<String, u8> = TimeQueue::new("timers");
        let mut model: BTreeMap<i64, Vec<u8>> = BTreeMap::new();
        for step in steps.into_iter().chain(std::iter::repeat_n(Step::Pop(i64::MAX), 3_000)) {
            match step {
                Step::Push(time, key) => {
                    queue.push_within(time, entry(format!("key {key}"), key), Some(&room)).unwrap();
                    model.entry(time).or_default().push(key);
                }
                Step::Pop(until) => {
                    let popped = queue.pop(until, &mut backend).unwrap();
                    let first = model.first_entry().filter(|first| *first.key() <= until);
                    prop_assert_eq!(popped.as_ref().map(|(time, _)| *time), first.as_ref().map(|first| *first.key()));
                    if let (Some((_, popped)), Some(mut first)) = (popped, first) {
                        let position = first.get().iter().position(|key| *key == popped.namespace);
                        prop_assert!(position.is_some());
                        first.get_mut().swap_remove(position.unwrap_or(0));
                        prop_assert_eq!(popped.key, format!("key {}", popped.namespace));
                        if first.get().is_empty() {
                            first.remove();
                        }
                    }
                }
                Step::Clear => {
                    queue.clear(&mut backend).unwrap();
                    model.clear();
                }
            }
            prop_assert_eq!(queue.first(), model.keys().next().copied());
            prop_assert_eq!(queue.len(), model.values().map(Vec::len).sum::<usize>());
        }
        prop_assert_eq!(files.bytes(), 0, "files go with their last entry");
    }
}

#[test]
fn many_entries_take_no_more_memory_than_they_may() {
    let files = Arc::new(MemoryFiles::default());
    const LIMIT: usize = 256 << 10;
    let room = room(&files, LIMIT);
    let (mut backend, mut queue) = (backend::<u64>(), TimeQueue::<u64, ()>::new("timers"));
    let mut most = 0;
    for number in 0..200_000u64 {
        let time = (millpond_core::seed::mix64(number) % 1_000_000) as i64;
        queue.push_within(time, entry(number, ()), Some(&room)).unwrap();
        most = most.max(queue.memory_bytes());
    }
    assert!(most < LIMIT + LOOK_EVERY * 100, "{most} bytes");
    let mut last = i64::MIN;
    while let Some((time, _)) = queue.pop(i64::MAX, &mut backend).unwrap() {
        assert!(time >= last);
        last = time;
        most = most.max(queue.memory_bytes());
    }
    assert!(most < 2 * LIMIT, "{most} bytes, with a block of each file");
    assert!(queue.is_empty());
}

#[test]
fn damaged_bytes_are_never_taken_for_entries() {
    for byte in [0, 5, 9, 15, 40, 300] {
        let files = Arc::new(MemoryFiles::default());
        let room = room(&files, 64);
        let (mut backend, mut queue) = (backend::<u64>(), TimeQueue::<u64, ()>::new("timers"));
        for number in 0..1_024u64 {
            queue.push_within(number as i64, entry(number, ()), Some(&room)).unwrap();
        }
        files.for_each(|bytes| bytes.iter_mut().skip(byte).take(1).for_each(|byte| *byte ^= 0x10));
        let error = loop {
            match queue.pop(i64::MAX, &mut backend) {
                Ok(Some((time, entry))) => assert_eq!(time, entry.key as i64),
                Ok(None) => panic!("byte {byte}: what is damaged was passed over"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::Unavailable, "the next attempt does without: {error}");
    }
}

/// Files of which nothing can be written any more.
struct Full(MemoryFiles);

impl ColdFiles for Full {
    fn create(&self) -> Result<ColdFile, ColdError> {
        self.0.create()
    }
    fn append(&self, _: ColdFile, _: &[u8]) -> Result<(), ColdError> {
        Err(ColdError::Write { place: "here".to_owned(), reason: "no space left".to_owned() })
    }
    fn read(&self, file: ColdFile, from: u64, into: &mut [u8]) -> Result<(), ColdError> {
        self.0.read(file, from, into)
    }
    fn remove(&self, file: ColdFile) -> Result<(), ColdError> {
        self.0.remove(file)
    }
}

#[test]
fn a_full_disk_is_an_error_of_the_state_whose_entries_they_are() {
    let room = BesideRoom { files: Arc::new(Full(MemoryFiles::default())), limit_bytes: 64 };
    let mut queue = TimeQueue::<u64, ()>::new("timers.event");
    let error = (0..1_024u64).find_map(|number| queue.push_within(0, entry(number, ()), Some(&room)).err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("timers.event"), "{error}");
}
