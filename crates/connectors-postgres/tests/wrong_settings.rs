//! Wrong settings of the sink: one typed error each, within the deadline.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod support;

use std::time::{Duration, Instant};

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond_connectors_postgres::{PostgresSink, PostgresSinks};
use support::{Database, Job, chain};

const DEADLINE: Duration = Duration::from_secs(3);

type Row = (i64, Option<String>);

fn sink(url: &str, table: &str) -> PostgresSink<Row> {
    let sink = PostgresSink::table(url, table).deadline(DEADLINE).patience(Duration::from_secs(1));
    sink.column("id", |row: &Row| row.0).column("name", |row: &Row| row.1.clone())
}

/// The error with which a job with this sink ends.
fn error(sink: impl Fn() -> PostgresSink<Row> + Send + Sync + 'static) -> String {
    let started = Instant::now();
    let job = Job::new(&MemoryStorage::new(), 1, 20).run(move |flow| {
        flow.from_iter("rows", (0..10).map(|n| (n, None))).to_postgres("out", sink());
        Ok(())
    });
    assert!(started.elapsed() < 3 * DEADLINE, "{:?}", started.elapsed());
    chain(&job.unwrap_err())
}

fn contains(error: &str, words: &str) {
    assert!(error.contains(words), "{error}");
}

#[test]
fn every_wrong_setting_of_the_way_to_the_server_is_named() {
    let Some(database) = Database::start() else { return };
    let (server, url) = (database.server(), database.url.clone());
    let with = |from: &str, to: &str| {
        let url = url.replace(from, to);
        error(move || sink(&url, "rows"))
    };
    let wrong_password = with("not-a-secret", "wrong-words");
    contains(&wrong_password, &format!("{server} refuses the credentials"));
    assert!(!wrong_password.contains("wrong-words"));
    contains(&with("/postgres", "/nowhere"), &format!("database nowhere does not exist at {server}"));
    contains(&with("/postgres", "/postgres?sslmode=require"), &format!("cannot agree with {server} on TLS"));
    contains(&with("postgresql://", "http://"), "setting url is invalid");
    let nobody = error(|| sink("postgresql://somebody:words@127.0.0.1:1/postgres", "rows"));
    contains(&nobody, "127.0.0.1:1 does not answer within");
}

#[test]
fn every_table_column_type_and_key_that_does_not_fit_is_named() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE rows (id bigint PRIMARY KEY, name varchar(3), small int NOT NULL, made bigint GENERATED ALWAYS AS (id) STORED)");
    let url = database.url.clone();
    let check = |words: &str, change: fn(PostgresSink<Row>) -> PostgresSink<Row>| {
        let url = url.clone();
        contains(&error(move || change(sink(&url, "rows"))), words);
    };
    let nowhere = url.clone();
    contains(&error(move || sink(&nowhere, "nowhere")), "table nowhere does not exist in database postgres at");
    check("table public.rows has no column color; it has id, name, small, made", |sink| {
        sink.column("color", |row| row.0)
    });
    check("column small of table public.rows has type integer, which i64 cannot be", |sink| {
        sink.column("small", |row| row.0)
    });
    check("column id is given twice", |sink| sink.column("id", |row| row.0));
    check("column made of table public.rows is generated", |sink| sink.column("made", |row| row.0));
    check("columns name of table public.rows cannot be a key: name may be null", |sink| sink.key(["name"]));
    check("key is invalid: small is none of the columns", |sink| sink.key(["small"]));
    check("columns id, small of table public.rows cannot be a key: there is no unique index", |sink| {
        sink.column("small", |row| row.0 as i32).key(["id", "small"])
    });
    check("rows to delete are found by it", |sink| sink.delete_if(|_| true));
    check("cannot make a row of table public.rows of a record: column small: it is null", |sink| {
        sink.column("small", |_| None::<i32>)
    });
}

#[test]
fn a_table_that_may_not_be_written_is_named() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE rows (id bigint PRIMARY KEY, name text)");
    database.sql("CREATE ROLE reader LOGIN PASSWORD 'words'; GRANT SELECT ON rows TO reader");
    let url = database.url.replace("millpond:not-a-secret", "reader:words");
    contains(&error(move || sink(&url, "rows")), "not permitted: cannot make table millpond_markers");
}
