//! A real S3 server that is stopped, goes on, is killed and started again.

use std::sync::Arc;
use std::time::Duration;

use millpond::JobSettings;
use millpond::prelude::*;
use millpond_storage_object::S3Settings;

use crate::support::Server;
use crate::{Running, chain, expected, settings, sorted};

fn storage(server: &Server) -> S3Settings {
    S3Settings {
        endpoint: Some(server.text("endpoint").to_owned()),
        region: Some("us-east-1".to_owned()),
        credentials: Some((server.text("access_key").to_owned(), server.text("secret_key").to_owned())),
        timeout: Duration::from_millis(1_000),
        ..S3Settings::new(server.text("bucket"), "jobs")
    }
}

#[test]
fn cf_a_job_survives_an_s3_server_that_hangs_and_one_that_is_killed_without_a_restart() {
    let Some(mut server) = Server::start("s3") else { return };
    let storage = Arc::new(storage(&server).open().unwrap());
    let out = Collector::new();
    let job = Running::start(storage.clone(), settings(120_000), &out);
    job.wait_for_epoch(2);

    server.signal("STOP");
    job.flow_for(Duration::from_secs(4));
    let during = job.epoch();
    server.signal("CONT");
    job.wait_for_epoch(during + 2);

    server.signal("KILL");
    let during = job.epoch();
    server.restart();
    job.wait_for_epoch(during + 2);

    assert_eq!(job.finish().unwrap().restarts, 0);
    assert_eq!(sorted(&out), expected());

    // An outage beyond patience: the job fails loudly, and goes on where it was once the server is back.
    let (mut impatient, out) = (settings(1_000), Collector::new());
    impatient.name = "again".to_owned();
    let job = Running::start(storage.clone(), impatient, &out);
    job.wait_for_epoch(2);
    server.signal("STOP");
    let text = chain(&job.fail());
    assert!(text.contains("gave up on s3://millpond/jobs after"), "{text}");
    server.signal("CONT");
    Running::start(storage, JobSettings { name: "again".to_owned(), ..settings(120_000) }, &out).finish().unwrap();
    assert_eq!(sorted(&out), expected(), "every count once, over both runs");
}
