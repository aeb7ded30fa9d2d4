//! Measures, does not judge: `cargo test --release -p millpond-runs --test speed -- --ignored --nocapture`.

#![expect(clippy::unwrap_used, reason = "a measurement that fails panics")]

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Instant;

use millpond_core::{KeyGroup, KeyGroupRange, MaxParallelism, SplitMix64};
use millpond_runs::{
    EncodedRun, MemoryRun, RowBuffer, RunError, RunReader, RunSettings, SectionInfo, StateIndex, merge_runs, write_runs,
};

const ROWS: u64 = 1_000_000;

fn sections() -> Vec<SectionInfo> {
    ["counts", "timers"].map(|name| SectionInfo { name: name.to_owned(), description: "{}".to_owned() }).to_vec()
}

fn fill(seed: u64) -> RowBuffer {
    let max = MaxParallelism::default();
    let owned = max.range_of(0, 2);
    let mut rng = SplitMix64::new(seed);
    let mut rows = RowBuffer::new();
    for _ in 0..ROWS {
        let random = rng.next_u64();
        let group = KeyGroup((random % u64::from(owned.len())) as u16);
        let key = format_key(random);
        let count = (random >> 40) as u8;
        let put: Result<(), Infallible> = rows.put(
            StateIndex((random >> 63) as u16),
            group,
            |bytes| {
                bytes.extend_from_slice(&key);
                Ok(())
            },
            |bytes| {
                bytes.extend_from_slice(&[count, 1, 0]);
                Ok(())
            },
        );
        put.unwrap();
    }
    rows
}

/// 12 bytes like a length-prefixed short text: only some of the bits differ.
fn format_key(random: u64) -> [u8; 12] {
    let mut key = *b"\x0bN000000000\0";
    let mut rest = random >> 20;
    for digit in &mut key[2..11] {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn open(runs: Vec<EncodedRun>) -> Vec<RunReader<MemoryRun>> {
    runs.into_iter().map(|run| RunReader::open(MemoryRun::new("run", run.bytes)).unwrap()).collect()
}

#[test]
#[ignore = "a measurement"]
fn speed_of_a_million_rows() {
    for round in 0..4 {
        let started = Instant::now();
        let rows = fill(round);
        let filled = started.elapsed();
        let arena = rows.bytes();

        let started = Instant::now();
        let runs = write_runs(rows, &sections(), &RunSettings::default()).unwrap();
        let written = started.elapsed();
        let bytes: u64 = runs.iter().map(|run| run.info.bytes).sum();
        let raw: u64 = runs.iter().map(|run| run.info.raw_bytes).sum();

        let readers = open(runs);
        let started = Instant::now();
        let mut total = 0;
        for reader in &readers {
            for section in ["counts", "timers"] {
                reader
                    .scan::<RunError>(section, KeyGroupRange::new(0, 1024), |row| {
                        total += black_box(row).key.len();
                        Ok(())
                    })
                    .unwrap();
            }
        }
        let scanned = started.elapsed();

        let mut inputs = readers;
        for seed in 10..13 {
            inputs.extend(open(write_runs(fill(seed), &sections(), &RunSettings::default()).unwrap()));
        }
        let started = Instant::now();
        let report = merge_runs::<_, RunError>(&inputs, true, &RunSettings::default(), |run| {
            black_box(run);
            Ok(())
        })
        .unwrap();
        let merged = started.elapsed();
        println!(
            "fill {filled:?} (arena {arena}), sort+encode {written:?} ({bytes} bytes, raw {raw}), \
             scan {scanned:?}, merge of {} rows {merged:?}, key bytes {total}",
            report.rows_read
        );
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_of_writing_alone() {
    for round in 0..20 {
        let rows = fill(round);
        let started = Instant::now();
        black_box(write_runs(rows, &sections(), &RunSettings::default()).unwrap());
        println!("{:?}", started.elapsed());
    }
}
