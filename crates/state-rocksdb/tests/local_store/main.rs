//! What happens to the local store when its disk misbehaves, and how much memory it takes.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod faults;
mod load;
mod memory;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millpond_core::{KeyGroup, SplitMix64};
use millpond_runs::StateIndex;
use millpond_state::{ColdError, ColdRow, ColdStore};

/// The state of all rows.
const STATE: StateIndex = StateIndex(2);

/// The group of row `number`.
fn group(number: u64) -> KeyGroup {
    KeyGroup((number % 16) as u16)
}

/// The key of row `number`, as rows of a value have it: its length in front.
fn key(number: u64) -> [u8; 9] {
    let mut key = [8; 9];
    key[1..].copy_from_slice(&SplitMix64::nth(number).to_be_bytes());
    key
}

/// A value that does not compress, different in each version.
fn value(number: u64, version: u64, bytes: usize) -> Vec<u8> {
    let mut random = SplitMix64::new(number ^ version << 32);
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes());
    words.take(bytes).collect()
}

/// Writes the rows `numbers` in some version, 100 at a time.
fn write(
    store: &Arc<dyn ColdStore>,
    numbers: std::ops::Range<u64>,
    version: u64,
    bytes: usize,
) -> Result<(), ColdError> {
    for start in numbers.clone().step_by(100) {
        let rows: Vec<_> = (start..numbers.end.min(start + 100))
            .map(|number| (group(number), key(number), value(number, version, bytes)))
            .collect();
        store.write(&mut rows.iter().map(|(group, key, value)| ColdRow {
            state: STATE,
            group: *group,
            key,
            value: Some(value),
        }))?;
    }
    Ok(())
}

/// Looks up the rows `numbers`, and checks that each has its value in one of the versions.
fn check(
    store: &Arc<dyn ColdStore>,
    numbers: std::ops::Range<u64>,
    versions: &[u64],
    bytes: usize,
) -> Result<(), ColdError> {
    for start in numbers.clone().step_by(200) {
        let numbers: Vec<u64> = (start..numbers.end.min(start + 200)).collect();
        let keys: Vec<_> = numbers.iter().map(|number| (group(*number), key(*number))).collect();
        let keys: Vec<(KeyGroup, &[u8])> = keys.iter().map(|(group, key)| (*group, &key[..])).collect();
        store.get_many(STATE, &keys, &mut |position, found| {
            let number = numbers[position];
            let known = versions.iter().any(|version| found == Some(&value(number, *version, bytes)[..]));
            assert!(known, "row {number} has a value that was never written");
        })?;
    }
    Ok(())
}

/// The table files of a database below `directory`.
fn tables(directory: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(directory.join("database")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "sst")).collect()
}
