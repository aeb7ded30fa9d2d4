//! What answers of an S3 server mean, from a server that gives one answer to all.

#![cfg(feature = "s3")]
#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use millpond_storage::{ObjectName, Storage, StorageError};
use millpond_storage_object::{ObjectStoreStorage, S3Settings};

/// A storage whose server gives `status`, which may be followed by `: ` and a code of S3, as its answer to every
/// request.
fn answering(status: &'static str) -> ObjectStoreStorage {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut request = BufReader::new(connection.try_clone().unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while request.read_line(&mut line).unwrap_or(0) > 2 {
                if let Some((name, value)) = line.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            request.read_exact(&mut body).unwrap();
            let (status, code) = status.split_once(": ").unwrap_or((status, ""));
            let body = if code.is_empty() { String::new() } else { format!("<Error><Code>{code}</Code></Error>") };
            let length = body.len();
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            let _ = connection.write_all(answer.as_bytes());
        }
    });
    let settings = S3Settings {
        endpoint: Some(endpoint),
        region: Some("us-east-1".to_owned()),
        credentials: Some(("id".to_owned(), "secret".to_owned())),
        timeout: Duration::from_secs(30),
        ..S3Settings::new("bucket", "jobs")
    };
    settings.open().unwrap()
}

fn create(status: &'static str) -> StorageError {
    answering(status).create(&ObjectName::new("a").unwrap(), b"x").unwrap_err()
}

#[test]
fn only_a_failed_precondition_means_that_the_name_is_taken() {
    assert!(create("412 Precondition Failed").is_already_exists());
    // Another request was under way; ours was not carried out.
    let conflict = create("409 Conflict");
    assert!(matches!(conflict, StorageError::Unavailable { .. }), "{conflict:?}");
}

#[test]
fn a_create_is_uncertain_unless_the_server_says_that_it_did_not_begin() {
    let timeout = "400 Bad Request: RequestTimeout";
    let may_have_begun = ["500 Internal Server Error", "502 Bad Gateway", "504 Gateway Timeout", "408 Request Timeout"];
    for status in may_have_begun.into_iter().chain([timeout]) {
        let error = create(status);
        assert!(matches!(error, StorageError::Uncertain { .. }), "{status}: {error:?}");
    }
    for status in ["503 Slow Down", "429 Too Many Requests", "400 Bad Request: ExpiredToken"] {
        let error = create(status);
        assert!(matches!(error, StorageError::Unavailable { .. }), "{status}: {error:?}");
    }
    assert!(matches!(create("507 Insufficient Storage"), StorageError::Full { .. }));
}

#[test]
fn what_will_never_work_is_said_at_once_by_a_create_and_by_a_list() {
    let list = |status| answering(status).list("").unwrap_err();
    for status in ["403 Forbidden", "403 Forbidden: SignatureDoesNotMatch", "401 Unauthorized"] {
        for error in [create(status), list(status)] {
            assert!(matches!(error, StorageError::PermissionDenied { .. }), "{status}: {error:?}");
        }
    }
    for error in [create("404 Not Found: NoSuchBucket"), list("404 Not Found: NoSuchBucket")] {
        assert!(matches!(error, StorageError::NoSuchStore { .. }), "{error:?}");
    }
    // The redirection is to another region.
    for status in ["400 Bad Request", "301 Moved Permanently: PermanentRedirect"] {
        for error in [create(status), list(status)] {
            assert!(matches!(error, StorageError::Unsupported { .. }), "{status}: {error:?}");
        }
    }
}

#[test]
fn a_read_is_never_uncertain() {
    for status in ["500 Internal Server Error", "409 Conflict"] {
        let error = answering(status).read(&ObjectName::new("a").unwrap()).unwrap_err();
        assert!(matches!(error, StorageError::Unavailable { .. }), "{status}: {error:?}");
    }
}
