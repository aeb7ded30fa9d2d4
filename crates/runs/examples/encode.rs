//! What it costs to encode a large snapshot, again and again: `cargo run --release -p millpond-runs --example encode
//! -- row_bytes=1000 total_mb=512 rounds=6 values=random pause_ms=1000 spare_mb=256`. Prints for each round the wall time of filling
//! and encoding, nanoseconds per row, processor seconds and page faults of the process.

#![expect(clippy::print_stdout, reason = "a measurement prints")]

use std::convert::Infallible;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use millpond_core::{Epoch, KeyGroup, MaxParallelism, SplitMix64};
use millpond_runs::{
    RowBuffer, RunError, RunSettings, SectionInfo, StateIndex, give_back, set_spare_limit, spare_epoch, write_each_run,
};

/// As in the benchmark's binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What the process has used so far: processor ticks of 10 ms (user, system), page faults.
#[derive(Clone, Copy)]
struct Used {
    user: u64,
    system: u64,
    faults: u64,
}

impl Used {
    fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let fields: Vec<u64> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        let field = |index: usize| fields.get(index).copied().unwrap_or(0);
        Used { user: field(11), system: field(12), faults: field(7) }
    }

    fn since(self, before: Used) -> String {
        let seconds = |ticks: u64| ticks as f64 / 100.0;
        let (user, system) = (seconds(self.user - before.user), seconds(self.system - before.system));
        format!("user {user:.2} s, system {system:.2} s, {} faults", self.faults - before.faults)
    }
}

fn argument(name: &str, default: &str) -> String {
    std::env::args()
        .find_map(|given| given.strip_prefix(name)?.strip_prefix('=').map(str::to_owned))
        .unwrap_or_else(|| default.to_owned())
}

/// Rows of `row_bytes` with keys of 8 bytes in random order, `values` of random words or of one text.
fn fill(seed: u64, rows: u64, row_bytes: usize, random: bool) -> RowBuffer {
    let range = MaxParallelism::default().range_of(0, 2);
    let mut rng = SplitMix64::new(seed);
    let mut buffer = RowBuffer::new();
    for _ in 0..rows {
        let number = rng.next_u64();
        let group = KeyGroup((range.start as u64 + number % u64::from(range.len())) as u16);
        let put: Result<(), Infallible> = buffer.put(
            StateIndex(0),
            group,
            |key| {
                key.extend_from_slice(&number.to_be_bytes());
                Ok(())
            },
            |value| {
                let end = value.len() + row_bytes.saturating_sub(8);
                let mut word = 0;
                while value.len() < end {
                    word += 1;
                    let bytes =
                        if random { SplitMix64::new(number ^ word).next_u64().to_le_bytes() } else { *b"a value " };
                    value.extend_from_slice(&bytes[..(end - value.len()).min(8)]);
                }
                Ok(())
            },
        );
        let Ok(()) = put;
    }
    buffer
}

/// As an upload thread does; returns the bytes of all files.
fn encode(buffer: RowBuffer) -> Result<u64, RunError> {
    let sections = [SectionInfo { name: "state".to_owned(), description: "{}".to_owned() }];
    let mut stored = 0;
    write_each_run(buffer, &sections, &RunSettings::default(), |run| {
        let bytes = black_box(run.bytes);
        stored += bytes.len() as u64;
        give_back(bytes);
    })?;
    Ok(stored)
}

fn main() -> Result<(), Box<dyn Error>> {
    let row_bytes: usize = argument("row_bytes", "1000").parse()?;
    let total: u64 = argument("total_mb", "512").parse::<u64>()? << 20;
    let rounds: u64 = argument("rounds", "6").parse()?;
    let random = argument("values", "random") == "random";
    let rows = total / row_bytes.max(8) as u64;
    let pause = Duration::from_millis(argument("pause_ms", "1000").parse()?);
    set_spare_limit(argument("spare_mb", "256").parse::<usize>()? << 20);
    for round in 0..rounds {
        spare_epoch(Epoch(round));
        let (start, before) = (Instant::now(), Used::now());
        let buffer = fill(round, rows, row_bytes, random);
        let (filled, middle) = (start.elapsed(), Used::now());
        let start = Instant::now();
        let stored = std::thread::scope(|scope| scope.spawn(|| encode(buffer)).join())
            .map_err(|_| "the encoding thread panicked")??;
        let (encoded, after) = (start.elapsed(), Used::now());
        println!(
            "{rows} rows of {row_bytes} B: fill {:.0} ns/row ({}); encode {:.0} ns/row ({}), {} MB stored",
            filled.as_nanos() as f64 / rows as f64,
            middle.since(before),
            encoded.as_nanos() as f64 / rows as f64,
            after.since(middle),
            stored >> 20,
        );
        std::thread::sleep(pause);
    }
    Ok(())
}
