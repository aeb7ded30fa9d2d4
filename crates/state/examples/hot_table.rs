//! Nanoseconds per record of the hot table beside a standard `HashMap`, for counting by key.
//!
//! `cargo run --release -p millpond-state --example hot_table -- [keys] [records]`

#![expect(
    clippy::print_stdout,
    reason = "an example that prints what it measured"
)]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::Instant;

use millpond_core::seed::mix64;
use millpond_core::{Epoch, KeyHash, MaxParallelism};
use millpond_state::{KeyedBackend, KeyedBackendControl, SliceProgress, StateError};

const WINDOW: usize = 32;

fn report(what: &str, records: usize, begun: Instant) {
    println!(
        "{what:<44} {:>7.1} ns/record",
        begun.elapsed().as_nanos() as f64 / records as f64
    );
}

fn main() -> Result<(), StateError> {
    let argument = |n, default: u64| {
        std::env::args()
            .nth(n)
            .and_then(|a| a.parse().ok())
            .unwrap_or(default)
    };
    let keys = argument(1, 1_000_000);
    let records = argument(2, 8_000_000) as usize;
    let max = MaxParallelism::default();
    let input: Vec<(KeyHash, u64)> = (0..records as u64)
        .map(|i| mix64(i + 1) % keys)
        .map(|key| (KeyHash::from_stable(mix64(key), max), key))
        .collect();

    let mut map: HashMap<u64, u64> = HashMap::new();
    for key in 0..keys {
        map.insert(key, 0);
    }
    let begun = Instant::now();
    for (_, key) in &input {
        *map.entry(*key).or_default() += 1;
    }
    report("std HashMap, entry += 1", records, begun);
    black_box(&map);

    let mut backend = KeyedBackend::<u64>::new(max, max.all());
    let count = backend.declarer().value::<u64>("count")?;
    let begun = Instant::now();
    for key in 0..keys {
        backend.set_current_key(KeyHash::from_stable(mix64(key), max), key)?;
        count.set(backend.states_mut(), 0)?;
    }
    report("hot table, insert", keys as usize, begun);

    let begun = Instant::now();
    for (hash, key) in &input {
        backend.set_current_key(*hash, *key)?;
        let states = backend.states_mut();
        let old = count.get(states)?.copied().unwrap_or(0);
        count.set(states, old + 1)?;
    }
    report("hot table, get + set", records, begun);

    let begun = Instant::now();
    for window in input.chunks(WINDOW) {
        backend.prefetch(window.iter().map(|(hash, _)| *hash));
        for (hash, key) in window {
            backend.set_current_key(*hash, *key)?;
            let states = backend.states_mut();
            let old = count.get(states)?.copied().unwrap_or(0);
            count.set(states, old + 1)?;
        }
    }
    report("hot table, get + set, prefetched", records, begun);

    let begun = Instant::now();
    for window in input.chunks(WINDOW) {
        backend.prefetch(window.iter().map(|(hash, _)| *hash));
        for (hash, key) in window {
            backend.set_current_key(*hash, *key)?;
            count.modify_or(backend.states_mut(), || 0, |count| *count += 1)?;
        }
    }
    report("hot table, modify_or, prefetched", records, begun);

    let begun = Instant::now();
    for window in input.chunks(WINDOW) {
        backend.prefetch(window.iter().map(|(hash, _)| *hash));
        for (hash, key) in window {
            backend.set_current_key(*hash, *key)?;
            count.modify(backend.states_mut(), |count| {
                *count = Some(count.unwrap_or(0) + 1)
            })?;
        }
    }
    report("hot table, modify, prefetched", records, begun);

    let begun = Instant::now();
    backend.freeze(Epoch(1))?;
    let frozen = begun.elapsed();
    let (mut slices, mut longest) = (0, std::time::Duration::ZERO);
    let rows = loop {
        let slice = Instant::now();
        let progress = backend.serialise_slice(256 << 10)?;
        longest = longest.max(slice.elapsed());
        slices += 1;
        if let SliceProgress::Done { rows, .. } = progress {
            break rows;
        }
    };
    report("snapshot of all keys (per key)", keys as usize, begun);
    println!(
        "freeze {frozen:?}, {slices} slices of 256 KiB, longest {longest:?}, {} rows",
        rows.rows()
    );

    let begun = Instant::now();
    for (hash, key) in &input[..input.len().min(keys as usize)] {
        backend.set_current_key(*hash, *key)?;
        count.modify_or(backend.states_mut(), || 0, |count| *count += 1)?;
    }
    report(
        "first pass after a snapshot, not prefetched",
        keys as usize,
        begun,
    );
    println!("{:?}", backend.state_sizes());
    Ok(())
}
