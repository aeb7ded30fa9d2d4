//! What states say they take, beside what was put into them.

use millpond_core::MaxParallelism;
use millpond_state::{KeyedBackend, KeyedBackendControl};

const TEXT_BYTES: usize = 1_000;

/// The bytes that `backend` says it holds, in multiples of the `texts` in it.
fn per_text(backend: &KeyedBackend<u64>, texts: usize) -> f64 {
    backend.memory_bytes() as f64 / (texts * TEXT_BYTES) as f64
}

fn backend() -> KeyedBackend<u64> {
    let max = MaxParallelism::new(16).unwrap();
    KeyedBackend::new(max, max.all())
}

fn text() -> String {
    "x".repeat(TEXT_BYTES)
}

#[test]
fn ks_03_values_count_with_what_they_own_on_the_heap() {
    let mut backend = backend();
    let value = backend.declarer().value::<String>("value").unwrap();
    for key in 0..3_000 {
        backend.set_current_key_of(key).unwrap();
        value.set(backend.states_mut(), text()).unwrap();
    }
    let ratio = per_text(&backend, 3_000);
    assert!((1.0..1.3).contains(&ratio), "{ratio}");
}

#[test]
fn ks_10_lists_count_with_what_their_elements_own() {
    let mut backend = backend();
    let list = backend.declarer().list::<String>("list").unwrap();
    for key in 0..100 {
        backend.set_current_key_of(key).unwrap();
        (0..40).for_each(|_| list.add(backend.states_mut(), text()).unwrap());
    }
    let ratio = per_text(&backend, 4_000);
    assert!((1.0..1.3).contains(&ratio), "{ratio}");
    let mut numbers = self::backend();
    let list = numbers.declarer().list::<u64>("list").unwrap();
    for key in 0..100 {
        numbers.set_current_key_of(key).unwrap();
        list.update(numbers.states_mut(), 0..1_000).unwrap();
    }
    let bytes = numbers.memory_bytes();
    assert!((800_000..1_000_000).contains(&bytes), "{bytes} bytes of 800,000");
}

#[test]
fn ks_30_maps_count_with_entries_and_index_whatever_their_size() {
    for (keys, entries) in [(1_000u64, 3u64), (20, 200), (1, 40_000)] {
        let mut backend = backend();
        let map = backend.declarer().map::<u64, u64>("map").unwrap();
        for key in 0..keys {
            backend.set_current_key_of(key).unwrap();
            (0..entries).for_each(|entry| map.put(backend.states_mut(), entry, entry).unwrap());
        }
        let per_entry = backend.memory_bytes() as f64 / (keys * entries) as f64;
        assert!((16.0..150.0).contains(&per_entry), "{per_entry} bytes per entry of {entries}");
    }
    let mut backend = backend();
    let map = backend.declarer().map::<u64, String>("map").unwrap();
    for key in 0..10 {
        backend.set_current_key_of(key).unwrap();
        (0..300).for_each(|entry| map.put(backend.states_mut(), entry, text()).unwrap());
    }
    let ratio = per_text(&backend, 3_000);
    assert!((1.0..1.4).contains(&ratio), "{ratio}");
}
