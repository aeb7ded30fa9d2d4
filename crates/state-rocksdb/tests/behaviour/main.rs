//! The suites of keyed state (those of `state`) over RocksDB: with nothing of it in memory, with some, and with a budget
//! of 1 MB beside more state than that.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "the suites' own room uses more of them")]

#[path = "../../../state/tests/keyed_state/cluster.rs"]
mod cluster;
#[path = "../../../state/tests/keyed_state/expiring.rs"]
mod expiring;
#[path = "../../../state/tests/keyed_state/isolation.rs"]
mod isolation;
#[path = "../../../state/tests/keyed_state/support.rs"]
mod support;

use millpond_state::ColdBackend;
use millpond_state_rocksdb::RocksBackend;
use proptest::prelude::*;

use cluster::Memory;

const MIB: usize = 1 << 20;

/// RocksDB in as little memory as it takes, with so many bytes of state in memory above it.
fn rocksdb(bytes: usize) -> Option<Memory> {
    Some(Memory { stores: RocksBackend.start(None, MIB as u64).unwrap(), bytes })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn ks_01_ks_20_ks_40_ks_63_ks_64_sn_01_sn_02_sn_03_sn_06_sn_09_hold_with_all_of_it_in_rocksdb(operations in isolation::operations()) {
        isolation::run(operations, rocksdb(0), 0);
    }

    #[test]
    fn ks_01_ks_20_ks_40_ks_63_ks_64_sn_01_sn_02_sn_03_sn_06_sn_09_hold_with_some_of_it_in_rocksdb(operations in isolation::operations(), memory in 500usize..8_000) {
        isolation::run(operations, rocksdb(memory), 0);
    }

    #[test]
    fn tl_01_to_tl_09_tl_12_tl_17_hold_with_all_of_it_in_rocksdb((used, operations) in expiring::operations()) {
        expiring::run(used, operations, rocksdb(0));
    }

    #[test]
    fn tl_01_to_tl_09_tl_12_tl_17_hold_with_some_of_it_in_rocksdb((used, operations) in expiring::operations(), memory in 500usize..8_000) {
        expiring::run(used, operations, rocksdb(memory));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn ks_01_ks_20_ks_40_ks_63_ks_64_sn_01_sn_02_sn_03_sn_06_sn_09_hold_over_rocksdb_with_a_budget_of_1_mb(operations in isolation::operations()) {
        isolation::run(operations, rocksdb(MIB), 3 * MIB);
    }
}
