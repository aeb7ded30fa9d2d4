//! S3 on a real server.

#![cfg(feature = "s3")]
#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod support;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use millpond_core::{ErrorKind, error::chain};
use millpond_storage::{Interrupt, ObjectName, Retry, RetryPolicy, Storage, StorageError, contract};
use millpond_storage_object::{ObjectStoreStorage, S3Settings};
use support::Server;

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

/// Settings for the server, with a prefix of their own.
fn settings(server: &Server) -> S3Settings {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("jobs/{}", NEXT.fetch_add(1, Ordering::Relaxed));
    S3Settings {
        endpoint: Some(server.text("endpoint").to_owned()),
        region: Some("us-east-1".to_owned()),
        credentials: Some((server.text("access_key").to_owned(), server.text("secret_key").to_owned())),
        ..S3Settings::new(server.text("bucket"), prefix)
    }
}

fn patient(storage: ObjectStoreStorage, patience: Duration) -> Retry<ObjectStoreStorage> {
    Retry::new(storage, RetryPolicy { patience, ..RetryPolicy::default() }, 1, Interrupt::new())
}

#[test]
fn s3_keeps_the_contract_also_without_a_prefix_and_large_objects_go_in_parts() {
    let Some(server) = Server::start("s3") else { return };
    contract::check(|| settings(&server).open().unwrap());
    let root = S3Settings { prefix: String::new(), ..settings(&server) }.open().unwrap();
    root.create(&name("at the root"), b"x").unwrap();
    assert_eq!(root.read(&name("at the root")).unwrap(), b"x");
    assert!(root.list("jobs/").unwrap().iter().all(|object| object.name.as_str().starts_with("jobs/")));

    // What was unfinished is not seen, and nothing of it is left.
    let left = root.list("").unwrap();
    assert!(left.iter().all(|object| !object.name.as_str().contains(".tmp")), "{left:?}");
    large_objects_are_whole(&settings(&server));
    refusals_are_typed_and_name_the_place(&server);
}

fn large_objects_are_whole(settings: &S3Settings) {
    let storage = S3Settings { single_put_bytes: 8 << 20, part_bytes: 5 << 20, ..settings.clone() }.open().unwrap();
    let content: Vec<u8> = (0..23_000_001u32).map(|i| (i % 251) as u8).collect();
    storage.create(&name("large"), &content).unwrap();
    assert!(storage.create(&name("large"), &content).unwrap_err().is_already_exists());
    assert!(storage.read(&name("large")).unwrap() == content, "read in pieces");
    assert_eq!(storage.size(&name("large")).unwrap(), 23_000_001);
    assert!(storage.read_range(&name("large"), 22_999_999, 2).unwrap() == content[22_999_999..]);
    assert_eq!(storage.list("").unwrap().len(), 1);
}

fn refusals_are_typed_and_name_the_place(server: &Server) {
    let right = settings(server);
    let credentials = Some((server.text("access_key").to_owned(), "wrong".to_owned()));
    let stranger = S3Settings { credentials, ..right.clone() }.open().unwrap();
    for error in [
        stranger.create(&name("a"), b"x").unwrap_err(),
        stranger.read(&name("a")).unwrap_err(),
        stranger.list("").unwrap_err(),
        stranger.read_range(&name("a"), 0, 1).unwrap_err(),
    ] {
        assert!(matches!(error, StorageError::PermissionDenied { .. }), "{error:?}");
        assert!(chain(&error).contains("s3://millpond/jobs/"), "{}", chain(&error));
    }

    let nowhere = S3Settings { bucket: "no-such-bucket".to_owned(), ..right.clone() }.open().unwrap();
    for error in [nowhere.create(&name("a"), b"x").unwrap_err(), nowhere.list("").unwrap_err()] {
        assert!(matches!(error, StorageError::NoSuchStore { .. }), "{error:?}");
        assert!(error.to_string().contains("s3://no-such-bucket"), "{error}");
    }

    let endpoint = Some("http://127.0.0.1:1".to_owned());
    let unreachable = S3Settings { endpoint, ..right }.open().unwrap();
    // Nothing was sent, so nothing is uncertain.
    let error = unreachable.create(&name("a"), b"x").unwrap_err();
    assert!(matches!(error, StorageError::Unavailable { .. }), "{error:?}");
    let error = patient(unreachable, Duration::from_millis(300)).list("").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(chain(&error).contains("gave up on s3://millpond/jobs/"), "{}", chain(&error));
}

#[test]
fn a_server_that_hangs_or_dies_is_waited_for_and_what_was_stored_is_still_there() {
    let Some(mut server) = Server::start("s3") else { return };
    let settings = S3Settings { timeout: Duration::from_millis(500), ..settings(&server) };
    let storage = patient(settings.open().unwrap(), Duration::from_secs(120));
    storage.create(&name("before"), b"1").unwrap();

    server.signal("STOP");
    let impatient = settings.open().unwrap();
    let started = Instant::now();
    // It may have reached the server, which will carry it out when it wakes up.
    assert_eq!(impatient.create(&name("hung"), b"2").unwrap_err().kind(), ErrorKind::Uncertain);
    assert_eq!(impatient.read(&name("before")).unwrap_err().kind(), ErrorKind::Unavailable);
    assert!(started.elapsed() < Duration::from_secs(60), "a hung call ends");
    std::thread::scope(|scope| {
        let creates = scope.spawn(|| storage.create(&name("hung"), b"2"));
        let reads = scope.spawn(|| storage.read(&name("before")));
        std::thread::sleep(Duration::from_secs(2));
        server.signal("CONT");
        creates.join().unwrap().unwrap();
        assert_eq!(reads.join().unwrap().unwrap(), b"1");
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
}
