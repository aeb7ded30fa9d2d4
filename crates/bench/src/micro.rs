//! `micro`: no dataflow: setting a key, getting and updating a value in a loop, nanoseconds per operation.
//!
//! Keys are hashed when they are set, as the peers do; a job hashes once, at `key_by`, and fetches state ahead, so
//! `ahead_get_update_ns` is what it sees.

use std::hint::black_box;
use std::time::Instant;

use millpond_core::hash::stable_hash;
use millpond_core::{KeyHash, MaxParallelism, SplitMix64};
use millpond_state::{KeyedBackend, StateError, ValueState};

use crate::measure::{Span, peak_rss_mb};
use crate::parameters::Parameters;

/// Records whose state is asked for ahead.
const WINDOW: u64 = 32;

#[derive(Clone, Copy)]
enum Phase {
    GetUpdate,
    Get,
    Update,
    SetKeyOnly,
    AheadGetUpdate,
}

const PHASES: [(Phase, &str); 5] = [
    (Phase::GetUpdate, "get_update"),
    (Phase::Get, "get"),
    (Phase::Update, "update"),
    (Phase::SetKeyOnly, "set_key_only"),
    (Phase::AheadGetUpdate, "ahead_get_update"),
];

struct Bench {
    backend: KeyedBackend<u64>,
    value: ValueState<u64>,
    max: MaxParallelism,
    keys: u64,
}

impl Bench {
    fn hash(&self, key: u64) -> Result<KeyHash, String> {
        let stable = stable_hash(&key, &mut Vec::new()).map_err(|error| error.to_string())?;
        Ok(KeyHash::from_stable(stable, self.max))
    }

    fn step(&mut self, phase: Phase, index: u64) -> Result<u64, StateError> {
        self.backend.set_current_key_of(SplitMix64::nth(index) % self.keys)?;
        let states = self.backend.states_mut();
        match phase {
            Phase::GetUpdate | Phase::AheadGetUpdate => {
                let next = self.value.get(states)?.copied().unwrap_or(0) + 1;
                self.value.set(states, next)?;
            }
            Phase::Get => return Ok(self.value.get(states)?.copied().unwrap_or(0)),
            Phase::Update => self.value.set(states, index)?,
            Phase::SetKeyOnly => {}
        }
        Ok(0)
    }

    /// As the keyed loop does it: hashes come with the records, windows are fetched ahead.
    fn round_ahead(&mut self, from: u64, hashes: &[KeyHash]) -> Result<(), StateError> {
        let window = |start: usize| hashes[start.min(hashes.len())..(start + WINDOW as usize).min(hashes.len())].iter();
        for (position, hash) in hashes.iter().enumerate() {
            if position % WINDOW as usize == 0 {
                let (soon, later) = (position + WINDOW as usize, position + 2 * WINDOW as usize);
                self.backend.prefetch(window(soon).copied(), window(later).copied());
            }
            let key = SplitMix64::nth(from + position as u64) % self.keys;
            self.backend.set_current_key(*hash, key)?;
            let states = self.backend.states_mut();
            let next = self.value.get(states)?.copied().unwrap_or(0) + 1;
            self.value.set(states, next)?;
        }
        Ok(())
    }

    /// Nanoseconds per operation in one round over as many records as there are keys.
    fn round(&mut self, phase: Phase, from: u64) -> Result<f64, String> {
        let failed = |error: StateError| error.to_string();
        let started = if let Phase::AheadGetUpdate = phase {
            let drawn = (from..from + self.keys).map(|index| self.hash(SplitMix64::nth(index) % self.keys));
            let hashes: Vec<KeyHash> = drawn.collect::<Result<_, _>>()?;
            let started = Instant::now();
            self.round_ahead(from, &hashes).map_err(failed)?;
            started
        } else {
            let started = Instant::now();
            let mut sum = 0u64;
            for index in from..from + self.keys {
                sum = sum.wrapping_add(self.step(phase, index).map_err(failed)?);
            }
            black_box(sum);
            started
        };
        Ok(started.elapsed().as_nanos() as f64 / self.keys as f64)
    }
}

/// Runs the workload; returns the fields of its line.
pub(crate) fn run(parameters: &Parameters) -> Result<serde_json::Value, String> {
    if !matches!(parameters.text("backend", "heap"), "heap" | "hashmap") {
        return Err(
            "micro measures the hot table alone: what lies beneath it is fetched by a job, batch by batch".to_owned()
        );
    }
    let keys = parameters.number("keys", 1_000_000)?;
    let rounds = parameters.number("rounds", 20)?.max(2);
    let max = MaxParallelism::new(128).map_err(|error| error.to_string())?;
    let mut backend = KeyedBackend::<u64>::new(max, max.all());
    // Without checkpoints, as the peers run it.
    millpond_state::KeyedBackendControl::stop_tracking(&mut backend);
    let value = backend.declarer().value::<u64>("count").map_err(|error| error.to_string())?;
    let mut bench = Bench { backend, value, max, keys };
    for key in 0..keys {
        bench.backend.set_current_key_of(key).map_err(|error| error.to_string())?;
        bench.value.set(bench.backend.states_mut(), 0).map_err(|error| error.to_string())?;
    }
    let mut line = serde_json::json!({ "engine": "millpond", "workload": "micro", "keys": keys, "rounds": rounds });
    line["backend"] = "heap".into();
    let span = Span::start();
    for (phase, name) in PHASES {
        let (mut best, mut total, half) = (f64::MAX, 0.0, rounds / 2);
        for round in 0..rounds {
            let ns = bench.round(phase, round * keys)?;
            if round >= half {
                total += ns;
                best = best.min(ns);
            }
        }
        line[format!("{name}_ns")] = (total / (rounds - half) as f64).into();
        line[format!("{name}_best_ns")] = best.into();
    }
    let (wall_s, cpu_s, other_cpu_s) = span.stop();
    line["wall_s"] = wall_s.into();
    line["cpu_s"] = cpu_s.into();
    line["other_cpu_s"] = other_cpu_s.into();
    line["peak_rss_mb"] = peak_rss_mb().into();
    Ok(line)
}
