//! HDFS on a real NameNode and DataNode.

#![cfg(feature = "hdfs")]
#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use millpond_core::ErrorKind;
use millpond_storage::{Interrupt, ObjectName, Retry, RetryPolicy, Storage, StorageError, contract};
use millpond_storage_object::HdfsSettings;
use support::Server;

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

/// Settings for the server, with a directory of their own.
fn settings(server: &Server) -> HdfsSettings {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    HdfsSettings::new(server.text("address"), format!("jobs/{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

#[test]
#[ignore = "its server is a download of 220 MB and it takes minutes: add --run-ignored only --test hdfs"]
fn hdfs_keeps_the_contract() {
    let Some(server) = Server::start("hdfs") else { return };
    contract::check(|| settings(&server).open().unwrap());

    let storage = settings(&server).open().unwrap();
    let content: Vec<u8> = (0..23_000_001u32).map(|i| (i % 251) as u8).collect();
    storage.create(&name("large"), &content).unwrap();
    assert!(storage.create(&name("large"), &content).unwrap_err().is_already_exists());
    assert!(storage.read(&name("large")).unwrap() == content);

    // HDFS has no such names.
    let error = storage.create(&name("a:b"), b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");

    let unreachable = HdfsSettings::new("127.0.0.1:1", "jobs").open().unwrap();
    let error = unreachable.list("").unwrap_err();
    assert!(matches!(error, StorageError::Unavailable { .. }), "{error:?}");
}

#[test]
#[ignore = "its server is a download of 220 MB and it takes minutes: add --run-ignored only --test hdfs"]
fn a_name_node_that_hangs_or_dies_is_waited_for_and_what_was_stored_is_still_there() {
    let Some(mut server) = Server::start("hdfs") else { return };
    let settings = HdfsSettings { timeout: Duration::from_secs(2), ..settings(&server) };
    let policy = RetryPolicy { patience: Duration::from_secs(180), ..RetryPolicy::default() };
    let storage = Retry::new(settings.open().unwrap(), policy, 1, Interrupt::new());
    storage.create(&name("before"), b"1").unwrap();

    server.signal("STOP");
    std::thread::scope(|scope| {
        let creates = scope.spawn(|| storage.create(&name("hung"), b"2"));
        std::thread::sleep(Duration::from_secs(3));
        server.signal("CONT");
        creates.join().unwrap().unwrap();
    });
    assert_eq!(storage.read(&name("hung")).unwrap(), b"2");

    server.signal("KILL");
    std::thread::scope(|scope| {
        let creates = scope.spawn(|| storage.create(&name("dead"), b"3"));
        server.restart();
        creates.join().unwrap().unwrap();
    });
    let names: Vec<_> = storage.list("").unwrap().into_iter().map(|object| object.name.to_string()).collect();
    assert_eq!(names, ["before", "dead", "hung"]);
    assert_eq!(storage.read(&name("before")).unwrap(), b"1");
}
