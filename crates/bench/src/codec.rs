//! What the encoding of values costs: bytes and nanoseconds per value, for the types that state has most.

use std::hint::black_box;
use std::time::Instant;

use millpond_core::codec::{decode, encode_into};
use millpond_core::{Data, Schema, SplitMix64};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::parameters::Parameters;

/// A record of the kind that jobs keep: text, numbers, something optional, a short list.
#[derive(Clone, Serialize, Deserialize)]
struct Flight {
    carrier: String,
    number: u16,
    delay_minutes: Option<i32>,
    departed_ms: i64,
    price: f64,
    legs: Vec<(String, u32)>,
}

/// The same with one field wider, renamed and added.
#[derive(Clone, Serialize, Deserialize)]
struct FlightToday {
    #[serde(alias = "carrier")]
    airline: String,
    number: u64,
    delay_minutes: Option<i64>,
    departed_ms: i64,
    price: f64,
    legs: Vec<(String, u32)>,
    #[serde(default)]
    seats: u32,
}

fn flight(seed: u64) -> Flight {
    let random = SplitMix64::nth(seed);
    Flight {
        carrier: ["UA", "AA", "DL", "B6"][random as usize % 4].to_owned(),
        number: (random >> 8) as u16 % 7_000,
        delay_minutes: (random & 16 > 0).then_some((random >> 24) as i32 % 300),
        departed_ms: 1_700_000_000_000 + (random >> 32) as i64,
        price: (random >> 40) as f64 / 100.0,
        legs: vec![("JFK".to_owned(), (random >> 52) as u32), ("SFO".to_owned(), 7)],
    }
}

/// `values=` values of each type, `rounds=` times over.
pub(crate) fn run(parameters: &Parameters) -> Result<Value, String> {
    let (values, rounds) = (parameters.number("values", 100_000)?, parameters.number("rounds", 10)?);
    let flights: Vec<Flight> = (0..values).map(flight).collect();
    let counts: Vec<u64> = (0..values).map(|seed| SplitMix64::nth(seed) >> 44).collect();
    let words: Vec<String> = (0..values).map(|seed| format!("word-{}", SplitMix64::nth(seed) >> 40)).collect();
    let pairs: Vec<(u64, f64)> = counts.iter().map(|count| (*count, *count as f64)).collect();
    Ok(json!({
        "workload": "codec",
        "values": values,
        "rounds": rounds,
        "u64": measure(&counts, rounds)?,
        "string": measure(&words, rounds)?,
        "u64_f64": measure(&pairs, rounds)?,
        "flight": measure(&flights, rounds)?,
        "flight_migrated": migrate(&flights, rounds)?,
    }))
}

fn encoded<T: Data>(values: &[T]) -> Result<Vec<Vec<u8>>, String> {
    let encode = |value: &T| millpond_core::codec::encode(value).map_err(|error| error.to_string());
    values.iter().map(encode).collect()
}

fn per_value(started: Instant, values: usize, rounds: u64) -> f64 {
    let each = started.elapsed().as_nanos() as f64 / (values as u64 * rounds).max(1) as f64;
    (each * 10.0).round() / 10.0
}

fn measure<T: Data>(values: &[T], rounds: u64) -> Result<Value, String> {
    let rows = encoded(values)?;
    let bytes: usize = rows.iter().map(Vec::len).sum();
    let mut buffer = Vec::with_capacity(1 << 20);
    let started = Instant::now();
    for _ in 0..rounds {
        for value in values {
            if buffer.len() > 1 << 19 {
                buffer.clear();
            }
            encode_into(black_box(value), &mut buffer).map_err(|error| error.to_string())?;
        }
    }
    let encode_ns = per_value(started, values.len(), rounds);
    let started = Instant::now();
    for _ in 0..rounds {
        for row in &rows {
            black_box(decode::<T>(black_box(row)).map_err(|error| error.to_string())?);
        }
    }
    let decode_ns = per_value(started, values.len(), rounds);
    let bytes_per_value = bytes as f64 / values.len().max(1) as f64;
    Ok(json!({ "bytes_per_value": bytes_per_value, "encode_ns": encode_ns, "decode_ns": decode_ns }))
}

/// Old values through their schema into the type of today, and as JSON.
fn migrate(flights: &[Flight], rounds: u64) -> Result<Value, String> {
    let (stored, rows) = (Schema::of::<Flight>(), encoded(flights)?);
    let started = Instant::now();
    for _ in 0..rounds {
        for row in &rows {
            black_box(stored.read::<FlightToday>(black_box(row)).map_err(|error| error.to_string())?);
        }
    }
    let decode_ns = per_value(started, rows.len(), rounds);
    let started = Instant::now();
    for row in &rows {
        black_box(stored.to_json(black_box(row)).map_err(|error| error.to_string())?);
    }
    Ok(json!({ "decode_ns": decode_ns, "to_json_ns": per_value(started, rows.len(), 1) }))
}
