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

/// Time on the processor where the system tells it, else wall-clock time: others may be busy here.
struct Stopwatch {
    on_cpu_ns: Option<u64>,
    wall: Instant,
}

impl Stopwatch {
    fn start() -> Self {
        Stopwatch {
            on_cpu_ns: on_cpu_ns(),
            wall: Instant::now(),
        }
    }

    fn report(self, what: &str, records: usize) {
        let ns = match (self.on_cpu_ns, on_cpu_ns()) {
            (Some(begun), Some(now)) => now - begun,
            _ => self.wall.elapsed().as_nanos() as u64,
        };
        println!("{what:<44} {:>7.1} ns/record", ns as f64 / records as f64);
    }
}

fn on_cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
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
    let begun = Stopwatch::start();
    for (_, key) in &input {
        *map.entry(*key).or_default() += 1;
    }
    begun.report("std HashMap, entry += 1", records);
    black_box(&map);

    let mut backend = KeyedBackend::<u64>::new(max, max.all());
    let count = backend.declarer().value::<u64>("count")?;
    let begun = Stopwatch::start();
    for key in 0..keys {
        backend.set_current_key(KeyHash::from_stable(mix64(key), max), key)?;
        count.set(backend.states_mut(), 0)?;
    }
    begun.report("hot table, insert", keys as usize);

    let begun = Stopwatch::start();
    for (hash, key) in &input {
        backend.set_current_key(*hash, *key)?;
        let states = backend.states_mut();
        let old = count.get(states)?.copied().unwrap_or(0);
        count.set(states, old + 1)?;
    }
    begun.report("hot table, get + set", records);

    let begun = Stopwatch::start();
    for window in input.chunks(WINDOW) {
        backend.prefetch(window.iter().map(|(hash, _)| *hash));
        for (hash, key) in window {
            backend.set_current_key(*hash, *key)?;
            let states = backend.states_mut();
            let old = count.get(states)?.copied().unwrap_or(0);
            count.set(states, old + 1)?;
        }
    }
    begun.report("hot table, get + set, prefetched", records);

    let begun = Stopwatch::start();
    for window in input.chunks(WINDOW) {
        backend.prefetch(window.iter().map(|(hash, _)| *hash));
        for (hash, key) in window {
            backend.set_current_key(*hash, *key)?;
            count.modify_or(backend.states_mut(), || 0, |count| *count += 1)?;
        }
    }
    begun.report("hot table, modify_or, prefetched", records);

    let begun = Stopwatch::start();
    for window in input.chunks(WINDOW) {
        backend.prefetch(window.iter().map(|(hash, _)| *hash));
        for (hash, key) in window {
            backend.set_current_key(*hash, *key)?;
            count.modify(backend.states_mut(), |count| {
                *count = Some(count.unwrap_or(0) + 1)
            })?;
        }
    }
    begun.report("hot table, modify, prefetched", records);

    let begun = Stopwatch::start();
    let instant = Instant::now();
    backend.freeze(Epoch(1))?;
    let frozen = instant.elapsed();
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
    begun.report("snapshot of all keys (per key)", keys as usize);
    println!(
        "freeze {frozen:?}, {slices} slices of 256 KiB, longest {longest:?}, {} rows",
        rows.rows()
    );

    let begun = Stopwatch::start();
    for (hash, key) in &input[..input.len().min(keys as usize)] {
        backend.set_current_key(*hash, *key)?;
        count.modify_or(backend.states_mut(), || 0, |count| *count += 1)?;
    }
    begun.report("first pass after a snapshot, not prefetched", keys as usize);
    println!("{:?}", backend.state_sizes());
    Ok(())
}
