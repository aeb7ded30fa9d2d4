//! Nanoseconds per record of the hot table beside a standard `HashMap`, for counting by key. Shows
//! the best of several rounds: others may be busy on the same machine.
//!
//! `cargo run --release -p millpond-state --example hot_table -- [keys] [records]`

#![expect(clippy::print_stdout, reason = "an example that prints what it measured")]

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use millpond_core::seed::mix64;
use millpond_core::{Epoch, KeyHash, MaxParallelism};
use millpond_state::{KeyedBackend, KeyedBackendControl, SliceProgress, StateError, ValueState};

const WINDOW: usize = 32;
const ROUNDS: usize = 40;

type Input = [(KeyHash, u64)];

/// The quickest of many short rounds, each over another part of the input.
fn best(what: &str, input: &Input, mut round: impl FnMut(&Input) -> Result<(), StateError>) -> Result<(), StateError> {
    let mut best = f64::MAX;
    for part in input.chunks(input.len().div_ceil(ROUNDS)) {
        let begun = Instant::now();
        round(part)?;
        best = best.min(begun.elapsed().as_nanos() as f64 / part.len() as f64);
    }
    println!("{what:<44} {best:>7.1} ns/record");
    Ok(())
}

/// Processes the input in windows, each prefetched while the one before is processed.
fn windows(
    backend: &mut KeyedBackend<u64>,
    input: &Input,
    mut process: impl FnMut(&mut KeyedBackend<u64>) -> Result<(), StateError>,
) -> Result<(), StateError> {
    let windows: Vec<&[(KeyHash, u64)]> = input.chunks(WINDOW).collect();
    for (at, window) in windows.iter().enumerate() {
        let hashes = |nth: usize| windows.get(at + nth).copied().unwrap_or_default().iter().map(|(hash, _)| *hash);
        backend.prefetch(hashes(1), hashes(2));
        for (hash, key) in *window {
            backend.set_current_key(*hash, *key)?;
            process(backend)?;
        }
    }
    Ok(())
}

fn get_and_set(backend: &mut KeyedBackend<u64>, count: ValueState<u64>) -> Result<(), StateError> {
    let states = backend.states_mut();
    let old = count.get(states)?.copied().unwrap_or(0);
    count.set(states, old + 1)
}

fn snapshot(backend: &mut KeyedBackend<u64>, keys: usize) -> Result<(), StateError> {
    let begun = Instant::now();
    backend.freeze(Epoch(1))?;
    let frozen = begun.elapsed();
    let (mut slices, mut total) = (Vec::new(), Duration::ZERO);
    loop {
        let slice = Instant::now();
        let progress = backend.serialise_slice(128 << 10)?;
        slices.push(slice.elapsed());
        total += slice.elapsed();
        if matches!(progress, SliceProgress::Done { .. }) {
            break;
        }
    }
    slices.sort();
    let median = slices[slices.len() / 2];
    println!("{:<44} {:>7.1} ns/key", "snapshot of all keys", total.as_nanos() as f64 / keys as f64);
    println!("freeze {frozen:?}, {} slices of 128 KiB, median {median:?}", slices.len());
    Ok(())
}

fn main() -> Result<(), StateError> {
    let argument = |n, default: u64| std::env::args().nth(n).and_then(|a| a.parse().ok()).unwrap_or(default);
    let keys = argument(1, 1_000_000);
    let records = argument(2, 4_000_000) as usize;
    let max = MaxParallelism::default();
    let hashed = |key: u64| (KeyHash::from_stable(mix64(key), max), key);
    let input: Vec<(KeyHash, u64)> = (0..records as u64).map(|i| hashed(mix64(i + 1) % keys)).collect();

    let mut map: HashMap<u64, u64> = (0..keys).map(|key| (key, 0)).collect();
    best("std HashMap, entry += 1", &input, |input| {
        input.iter().for_each(|(_, key)| *map.entry(*key).or_default() += 1);
        Ok(())
    })?;
    black_box(map);

    let mut backend = KeyedBackend::<u64>::new(max, max.all());
    let count = backend.declarer().value::<u64>("count")?;
    for key in 0..keys {
        let (hash, key) = hashed(key);
        backend.set_current_key(hash, key)?;
        count.set(backend.states_mut(), 0)?;
    }
    best("hot table, get + set, not prefetched", &input, |input| {
        input.iter().try_for_each(|(hash, key)| {
            backend.set_current_key(*hash, *key)?;
            get_and_set(&mut backend, count)
        })
    })?;
    best("hot table, get + set", &input, |input| windows(&mut backend, input, |backend| get_and_set(backend, count)))?;
    best("hot table, modify_or", &input, |input| {
        windows(&mut backend, input, |backend| count.modify_or(backend.states_mut(), || 0, |count| *count += 1))
    })?;
    best("hot table, modify", &input, |input| {
        windows(&mut backend, input, |backend| {
            count.modify(backend.states_mut(), |count| *count = Some(count.unwrap_or(0) + 1))
        })
    })?;
    snapshot(&mut backend, keys as usize)?;
    println!("{:?}", backend.state_sizes());
    Ok(())
}
