//! What fails between a job and its server: each time recovery or one typed error, and every row once.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond_connectors_postgres::{PostgresSink, PostgresSinks, PostgresSource};
use support::proxy::{Cut, Proxy};
use support::{Database, Job, chain, until};

const ROWS: &str = "SELECT count(*), count(DISTINCT n) FROM numbers";

/// Numbers into a table, one in so many microseconds.
fn numbers(
    sink: impl Fn() -> PostgresSink<i64> + Send + Sync + 'static,
    count: i64,
    micros: u64,
) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static {
    move |flow| {
        let numbers = flow.from_iter("numbers", 0..count);
        let slow = numbers.inspect(move |_| std::thread::sleep(Duration::from_micros(micros)));
        slow.to_postgres("out", sink());
        Ok(())
    }
}

fn sink(url: &str) -> PostgresSink<i64> {
    PostgresSink::table(url, "numbers").column("n", |n: &i64| *n).deadline(Duration::from_secs(3))
}

fn made(url: &str) -> impl Fn() -> PostgresSink<i64> + Send + Sync + 'static {
    let url = url.to_owned();
    move || sink(&url)
}

#[test]
fn a_writer_that_was_taken_over_ends_with_an_error_and_its_output_is_written_once_by_whoever_restores_it() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE numbers (n bigint)");
    let storage = MemoryStorage::new();
    let running = Job::new(&storage, 2, 20).spawn(numbers(made(&database.url), 5_000, 300));
    until("rows are written", || database.sql(ROWS) != ["0|0"]);
    // As a newer attempt does that has restored a log of each writer.
    database.sql("UPDATE millpond_markers SET token = token + 1");
    let error = chain(&running.wait().unwrap_err());
    assert!(error.contains("was taken over by a newer attempt"), "{error}");
    let left = database.sql("SELECT count(*) FROM numbers")[0].parse::<i64>().unwrap();
    assert!(left < 5_000);
    // The next attempt restores logs; a rival takes each name right after it was claimed.
    database.sql(
        "CREATE SEQUENCE rivals; \
         CREATE FUNCTION rival() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         PERFORM nextval('rivals'); UPDATE millpond_markers SET token = token + 1 WHERE writer = NEW.writer; RETURN NULL; END $$; \
         CREATE TRIGGER rival AFTER UPDATE OF token ON millpond_markers FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION rival()",
    );
    let url = database.url.clone();
    let impatient = move || sink(&url).patience(Duration::ZERO);
    let error = chain(&Job::new(&storage, 1, 20).run(numbers(impatient, 5_000, 0)).unwrap_err());
    assert!(error.contains("was claimed by another attempt meanwhile"), "{error}");
    // A patient one claims again, and has the name once nobody else takes it.
    let running = Job::new(&storage, 1, 20).spawn(numbers(made(&database.url), 5_000, 0));
    until("the rival has come again", || database.sql("SELECT last_value FROM rivals")[0].parse::<i64>().unwrap() >= 4);
    assert!(!running.is_over());
    database.sql("DROP TRIGGER rival ON millpond_markers");
    running.wait().unwrap();
    assert_eq!(database.sql(ROWS), ["5000|5000"]);
}

#[test]
fn a_connection_that_is_lost_in_a_commit_leaves_it_to_the_marker_whether_it_happened() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE numbers (n bigint)");
    let cuts = [Cut::Before, Cut::After].repeat(10);
    let proxy = Proxy::new(database.port(), &cuts);
    let report =
        Job::new(&MemoryStorage::new(), 2, 20).run(numbers(made(&database.through(&proxy)), 8_000, 200)).unwrap();
    assert_eq!(report.restarts, 0);
    assert!(proxy.commits() > 20, "{}", proxy.commits());
    assert_eq!(database.sql(ROWS), ["8000|8000"]);
}

#[test]
fn an_answer_to_a_commit_that_never_comes_is_waited_for_no_longer_than_the_limit() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE numbers (n bigint)");
    let proxy = Proxy::new(database.port(), &[Cut::After, Cut::Swallow]);
    let url = database.through(&proxy);
    let job = Job::new(&MemoryStorage::new(), 1, 20);
    let short = move || sink(&url).transaction_timeout(Duration::from_millis(500));
    let started = Instant::now();
    assert_eq!(job.run(numbers(short, 2_000, 100)).unwrap().restarts, 0);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert_eq!(database.sql(ROWS), ["2000|2000"]);
}

#[test]
fn a_server_that_hangs_for_a_while_only_makes_output_late_and_one_that_hangs_for_long_ends_the_attempt() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE numbers (n bigint)");
    let storage = MemoryStorage::new();
    let job = |patience_s: u64, micros: u64| {
        let url = database.url.clone();
        let sink = move || {
            let short = sink(&url).transaction_timeout(Duration::from_millis(500));
            short.deadline(Duration::from_secs(2)).patience(Duration::from_secs(patience_s))
        };
        numbers(sink, 60_000, micros)
    };
    let running = Job::new(&storage, 2, 20).spawn(job(60, 100));
    until("rows are written", || database.sql(ROWS) != ["0|0"]);
    let stopped = database.hang();
    std::thread::sleep(Duration::from_secs(3));
    assert!(!running.is_over());
    drop(stopped);
    running.stop().unwrap();
    let running = Job::new(&storage, 2, 20).spawn(job(1, 100));
    std::thread::sleep(Duration::from_millis(500));
    let (stopped, started) = (database.hang(), Instant::now());
    let error = chain(&running.wait().unwrap_err());
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
    assert!(error.contains("could not be applied for") && error.contains("does not answer within"), "{error}");
    // A start while it hangs is told in time, too.
    let started = Instant::now();
    let error = chain(&Job::new(&storage, 1, 20).run(job(1, 100)).unwrap_err());
    assert!(error.contains("does not answer within") && started.elapsed() < Duration::from_secs(20), "{error}");
    drop(stopped);
    Job::new(&storage, 2, 20).run(job(60, 0)).unwrap();
    assert_eq!(database.sql(ROWS), ["60000|60000"]);
}

const SOURCE: &str = "CREATE TABLE items (id bigint PRIMARY KEY, n bigint); CREATE PUBLICATION shop FOR TABLE items; \
                      CREATE TABLE numbers (n bigint)";

/// Items to numbers; waits at each while `holds`.
fn items(
    url: &str,
    holds: &Arc<AtomicBool>,
    patience: Duration,
) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static {
    let (url, holds) = (url.to_owned(), Arc::clone(holds));
    move |flow| {
        let source =
            PostgresSource::with(&url, "shop", "items", |change| Ok(Some(change.row().decode::<(i64, i64)>()?.1)));
        let holds = Arc::clone(&holds);
        let items = flow.source("items", source.deadline(Duration::from_secs(2)).patience(patience));
        let held = items.inspect(move |_| {
            while holds.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        held.to_postgres("out", sink(&url).patience(Duration::from_secs(60)));
        Ok(())
    }
}

#[test]
fn a_source_whose_server_hangs_goes_on_when_it_is_back_or_ends_the_attempt_with_an_error() {
    let Some(database) = Database::start() else { return };
    // A server that says nothing by itself, neither here.
    database.sql("ALTER SYSTEM SET wal_sender_timeout = 0");
    database.sql("SELECT pg_reload_conf()");
    database.sql(SOURCE);
    let (storage, holds) = (MemoryStorage::new(), Arc::new(AtomicBool::new(false)));
    let running = Job::new(&storage, 1, 20).spawn(items(&database.url, &holds, Duration::from_secs(60)));
    database.sql("INSERT INTO items SELECT n, n FROM generate_series(1, 100) n");
    until("rows are read", || database.sql(ROWS) == ["100|100"]);
    let stopped = database.hang();
    std::thread::sleep(Duration::from_secs(6));
    drop(stopped);
    database.sql("INSERT INTO items SELECT n, n FROM generate_series(101, 200) n");
    until("rows are read again", || database.sql(ROWS) == ["200|200"]);
    running.stop().unwrap();
    let running = Job::new(&storage, 1, 20).spawn(items(&database.url, &holds, Duration::from_secs(1)));
    database.sql("INSERT INTO items SELECT n, n FROM generate_series(201, 300) n");
    until("rows are read", || database.sql(ROWS) == ["300|300"]);
    let (stopped, started) = (database.hang(), Instant::now());
    let error = chain(&running.wait().unwrap_err());
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(error.contains("does not answer within"), "{error}");
    drop(stopped);
    database.sql("INSERT INTO items SELECT n, n FROM generate_series(301, 400) n");
    let running = Job::new(&storage, 1, 20).spawn(items(&database.url, &holds, Duration::from_secs(60)));
    until("the rest is read", || database.sql(ROWS) == ["400|400"]);
    running.stop().unwrap();
}

#[test]
fn a_slot_whose_log_was_removed_ends_the_job_with_an_error_that_says_so() {
    let Some(database) = Database::start() else { return };
    for setting in ["max_slot_wal_keep_size = '2MB'", "max_wal_size = '4MB'", "min_wal_size = '2MB'"] {
        database.sql(&format!("ALTER SYSTEM SET {setting}"));
    }
    database.sql("SELECT pg_reload_conf()");
    database.sql(SOURCE);
    let (storage, holds) = (MemoryStorage::new(), Arc::new(AtomicBool::new(false)));
    let running = Job::new(&storage, 1, 20).spawn(items(&database.url, &holds, Duration::from_secs(10)));
    database.sql("INSERT INTO items SELECT n, n FROM generate_series(1, 100) n");
    until("rows are read", || database.sql(ROWS) == ["100|100"]);
    // The job takes nothing, and the server loses patience.
    holds.store(true, Ordering::SeqCst);
    let status = "SELECT wal_status FROM pg_replication_slots";
    let mut next = 101;
    until("the log is removed", || {
        database.sql(&format!("INSERT INTO items SELECT n, n FROM generate_series({next}, {next} + 19999) n"));
        next += 20_000;
        database.sql("SELECT pg_switch_wal()");
        database.sql("CHECKPOINT");
        database.sql(status) == ["lost"]
    });
    holds.store(false, Ordering::SeqCst);
    let lost = "replication slot items has lost the write-ahead log that it needs";
    let error = chain(&running.wait().unwrap_err());
    assert!(error.contains(lost), "{error}");
    // Nor can it be started again, and nothing of what was read is there twice.
    let again = Job::new(&storage, 1, 20).run(items(&database.url, &holds, Duration::from_secs(10)));
    let error = chain(&again.unwrap_err());
    assert!(error.contains(lost), "{error}");
    let rows = database.sql("SELECT count(*) - count(DISTINCT n), count(*) >= 100 FROM numbers");
    assert_eq!(rows, ["0|t"]);
}
