//! One number bounds caches, indexes, filters and write buffers.

use millpond_state::ColdStores;
use millpond_state_rocksdb::RocksStores;

use super::{check, write};

#[test]
fn caches_and_write_buffers_keep_to_the_given_memory() {
    let memory = 16 << 20;
    let stores = RocksStores::start(None, memory).unwrap();
    // Several column families, as several subtasks have.
    let opened: Vec<_> = (0..4).map(|subtask| stores.open("operator", subtask).unwrap()).collect();
    let mut most = 0;
    for version in 1..4 {
        for store in &opened {
            write(store, 0..10_000, version, 1_000).unwrap();
            most = most.max(stores.memory_bytes());
            check(store, 0..10_000, &[version], 1_000).unwrap();
            most = most.max(stores.memory_bytes());
        }
    }
    println!("at most {} MB of {} MB", most >> 20, memory >> 20);
    assert!(most <= memory + memory / 4, "{most} of {memory} bytes");
}
