//! RocksDB keeps the contract of cold stores, in little memory and in much.

use millpond_state::ColdBackend;
use millpond_state::cold::contract;
use millpond_state_rocksdb::RocksBackend;

#[test]
fn rocksdb_keeps_the_contract_of_cold_stores() {
    for bytes in [0, 64 << 20] {
        let stores = RocksBackend.start(None, bytes).unwrap();
        contract::check(&*stores);
    }
}
