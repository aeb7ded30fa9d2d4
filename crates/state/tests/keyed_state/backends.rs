//! The suites on the heap, and over a cold store in memory.

use std::sync::Arc;

use millpond_state::MemoryColdStores;
use proptest::prelude::*;

use crate::cluster::Memory;
use crate::{expiring, isolation};

/// So many bytes may be in memory.
fn some(bytes: usize) -> Option<Memory> {
    Some(Memory { stores: Arc::new(MemoryColdStores), bytes })
}

proptest! {
    #[test]
    fn ks_01_ks_20_ks_40_ks_63_ks_64_sn_01_sn_02_sn_03_sn_06_sn_09_hold_on_the_heap(operations in isolation::operations()) {
        isolation::run(operations, None, 0);
    }

    #[test]
    fn ks_01_ks_20_ks_40_ks_63_ks_64_sn_01_sn_02_sn_03_sn_06_sn_09_hold_with_everything_cold(operations in isolation::operations()) {
        isolation::run(operations, some(0), 0);
    }

    #[test]
    fn ks_01_ks_20_ks_40_ks_63_ks_64_sn_01_sn_02_sn_03_sn_06_sn_09_hold_with_some_of_it_cold(operations in isolation::operations(), memory in 500usize..8_000) {
        isolation::run(operations, some(memory), 0);
    }

    #[test]
    fn tl_01_to_tl_09_tl_12_tl_17_hold_on_the_heap((used, operations) in expiring::operations()) {
        expiring::run(used, operations, None);
    }

    #[test]
    fn tl_01_to_tl_09_tl_12_tl_17_hold_with_everything_cold((used, operations) in expiring::operations()) {
        expiring::run(used, operations, some(0));
    }

    #[test]
    fn tl_01_to_tl_09_tl_12_tl_17_hold_with_some_of_it_cold((used, operations) in expiring::operations(), memory in 500usize..8_000) {
        expiring::run(used, operations, some(memory));
    }
}
