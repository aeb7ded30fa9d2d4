use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use millpond_jobmanager::Components;

use super::*;
use crate::error::CliError;
use crate::extensions::Extensions;
use crate::storage::Opening;

#[test]
fn a_job_answers_on_its_socket_and_leaves_none_behind() {
    let parent = tempfile::tempdir().unwrap();
    // Longer than an address of a socket may be.
    let state = parent.path().join("s".repeat(120));
    std::fs::create_dir(&state).unwrap();
    assert!(matches!(ask(&state, &Request::Status {}), Err(CliError::NotRunning { .. })));
    let components = Components::new(None);
    let opening = Opening { extensions: &Extensions::default(), timeout_ms: 1_000 };
    let server = ControlServer::start(&state, &components, opening).unwrap();
    let status = ask(&state, &Request::Status {}).unwrap();
    assert_eq!(status.status, Some(Status::default()));
    let mode = std::fs::metadata(state.join(DIRECTORY)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    drop(server);
    assert!(matches!(ask(&state, &Request::Checkpoint {}), Err(CliError::NotRunning { .. })));
}

#[test]
fn what_is_no_request_is_refused_and_a_silent_connection_does_not_hold_up_the_end() {
    let state = tempfile::tempdir().unwrap();
    let components = Components::new(None);
    let opening = Opening { extensions: &Extensions::default(), timeout_ms: 1_000 };
    let server = ControlServer::start(state.path(), &components, opening).unwrap();
    let connect = || UnixStream::connect(state.path().join(DIRECTORY).join(SOCKET)).unwrap();
    for line in ["rubbish\n", "{\"do\":\"dance\"}\n", "{\"do\":\"status\",\"more\":1}\n"] {
        let mut stream = connect();
        stream.write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.starts_with("{\"error\":{\"message\":\"this is no request"), "{line}: {answer}");
    }
    let silent = connect();
    drop(server);
    drop(silent);
}

#[test]
fn requests_read_as_documented() {
    let read = |line: &str| serde_json::from_str::<Request>(line).unwrap();
    assert_eq!(read("{\"do\":\"stop\"}"), Request::Stop { drain: false, savepoint: None });
    assert_eq!(read("{\"do\":\"savepoint\",\"to\":\"/s\"}"), Request::Savepoint { to: "/s".to_owned() });
    let reply = Reply::Ok(Outcome { epoch: 7, ..Outcome::default() });
    assert_eq!(serde_json::to_string(&reply).unwrap(), "{\"ok\":{\"epoch\":7}}");
}
