//! The choice of the backend: what a program has, state beyond memory, and changing the backend between starts.

#![cfg_attr(feature = "rocksdb", expect(clippy::unwrap_used, reason = "a test fails by panicking"))]

#[cfg(feature = "rocksdb")]
mod beyond_memory;
#[cfg(feature = "rocksdb")]
mod local_faults;

#[cfg(not(feature = "rocksdb"))]
#[test]
fn a_backend_that_was_not_compiled_in_is_a_usage_error() {
    use millpond::prelude::*;

    let job = |flow: &mut Dataflow| {
        flow.from_iter("numbers", 0..10u64).key_by(|number| *number).count("counts");
        Ok(())
    };
    let settings = millpond::JobSettings { backend: millpond::Backend::Rocksdb, ..Default::default() };
    let error = millpond::run(job, &settings).unwrap_err();
    assert_eq!(error.kind(), millpond::ErrorKind::Invalid);
    assert_eq!(error.to_string(), "this program was built without the backend rocksdb");
}
