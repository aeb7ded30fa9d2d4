//! The sink against a real server.

mod support;

use std::sync::Arc;
use std::time::Duration;

use millpond::RestartPolicy;
use millpond::operators::{Change, ChangelogOperators, InsertOperators};
use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond_connectors_postgres::{PostgresChangeSinks, PostgresSink, PostgresSinks};
use support::{Database, Job, after_epochs, chain};

/// A key and how often it was seen.
type Count = (i64, i64);

fn counts(url: &str) -> PostgresSink<Count> {
    PostgresSink::table(url, "counts").column("key", |count: &Count| count.0).column("n", |count: &Count| count.1)
}

/// Counts numbers by their last digit; user code fails at every record of which `fails` is true.
fn count(
    numbers: i64,
    sink: impl Fn() -> PostgresSink<Count> + Send + Sync + 'static,
    fails: impl Fn() -> bool + Send + Sync + 'static,
) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static {
    let fails = Arc::new(fails);
    move |flow| {
        let fails = Arc::clone(&fails);
        let counted = flow.from_iter("numbers", 0..numbers).key_by(|n| n % 10).process_with(
            "count",
            |states| states.value::<i64>("count"),
            move |count, n: i64, context, output| {
                if fails() {
                    return Err("user code fails on purpose".into());
                }
                let seen = count.get(context)?.map_or(0, |seen| *seen) + 1;
                count.set(context, seen)?;
                output.emit((n % 10, seen));
                Ok(())
            },
        );
        counted.to_postgres("out", sink());
        Ok(())
    }
}

#[test]
fn ex_02_a_job_that_fails_again_and_again_inserts_every_row_once() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE counts (key bigint, n bigint)");
    let mut job = Job::new(&MemoryStorage::new(), 2, 20);
    job.settings.restart = RestartPolicy::Fixed { restarts: 100, delay_ms: 5 };
    job.settings.channel_records = 100;
    let (fails, url) = (after_epochs(&job, 6), database.url.clone());
    job.run(count(20_000, move || counts(&url).log_bytes(4_000), fails)).unwrap();
    let rows =
        database.sql("SELECT key, count(*), count(DISTINCT n), min(n), max(n) FROM counts GROUP BY key ORDER BY key");
    let expected: Vec<String> = (0..10).map(|key| format!("{key}|2000|2000|1|2000")).collect();
    assert_eq!(rows, expected);
    // Every writer has its marker, and all writers of the last attempt are at their last output.
    let markers = database.sql("SELECT count(*) FROM millpond_markers WHERE epoch IS NOT NULL");
    assert!(markers[0].parse::<u64>().unwrap() >= 2, "{markers:?}");
}

#[test]
fn ex_02_upserts_end_with_the_last_row_of_every_key() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE counts (key bigint PRIMARY KEY, n bigint NOT NULL, note text DEFAULT 'untouched')");
    let mut job = Job::new(&MemoryStorage::new(), 2, 20);
    job.settings.restart = RestartPolicy::Fixed { restarts: 100, delay_ms: 5 };
    job.settings.channel_records = 100;
    let (fails, url) = (after_epochs(&job, 3), database.url.clone());
    job.run(count(20_000, move || counts(&url).key(["key"]).log_bytes(4_000), fails)).unwrap();
    let rows = database.sql("SELECT key, n, note FROM counts ORDER BY key");
    assert_eq!(rows, (0..10).map(|key| format!("{key}|2000|untouched")).collect::<Vec<_>>());
}

#[test]
fn a_changelog_keeps_a_table_as_it_says() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE counts (key numeric PRIMARY KEY, n bigint)");
    database.sql("INSERT INTO counts SELECT n, 0 FROM generate_series(5, 20) n");
    database.sql("ALTER TABLE counts ALTER key TYPE bigint");
    let url = database.url.clone();
    let changes = [
        Change::insert((1, 10)),
        Change::insert((2, 20)),
        Change::delete((5, 0)),
        Change::update_before((1, 10)),
        Change::update_after((1, 11)),
        Change::delete((2, 20)),
        Change::delete((6, 0)),
        Change::insert((6, 60)),
        // The key itself changes.
        Change::update_before((7, 0)),
        Change::update_after((100, 70)),
    ];
    Job::new(&MemoryStorage::new(), 1, 20)
        .run(move |flow| {
            flow.from_iter("changes", changes).changes_to_postgres("out", counts(&url).key(["key"]));
            Ok(())
        })
        .unwrap();
    let rows = database.sql("SELECT key, n FROM counts WHERE n > 0 OR key < 9 ORDER BY key");
    assert_eq!(rows, ["1|11", "6|60", "8|0", "100|70"]);
}

#[test]
fn rows_of_a_top_n_come_and_go_in_the_table_as_in_the_changelog() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE counts (key bigint PRIMARY KEY, n bigint)");
    let url = database.url.clone();
    Job::new(&MemoryStorage::new(), 2, 5)
        .run(move |flow| {
            let scores = flow.from_iter("scores", (0..2_000i64).map(|n| (n, n * 7_919 % 1_009)));
            let even = scores.as_inserts().filter_rows(|score| score.1 % 2 == 0);
            let best = even.key_by_row(|_| 0u8).top_rows("best", 5, |score| std::cmp::Reverse(*score));
            best.changes_to_postgres("out", counts(&url).key(["key"]));
            Ok(())
        })
        .unwrap();
    let mut scores: Vec<Count> = (0..2_000).map(|n| (n, n * 7_919 % 1_009)).filter(|score| score.1 % 2 == 0).collect();
    scores.sort_unstable_by_key(|score| std::cmp::Reverse(*score));
    let expected: Vec<String> = scores[..5].iter().map(|(key, n)| format!("{key}|{n}")).collect();
    assert_eq!(database.sql("SELECT key, n FROM counts ORDER BY key DESC"), expected);
}

#[test]
fn records_can_say_that_their_row_goes_and_keys_that_the_server_calls_equal_are_one() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)");
    database.sql("CREATE TABLE words (word text COLLATE caseless PRIMARY KEY, n bigint)");
    let url = database.url.clone();
    let words = [("Pond", Some(1)), ("mill", Some(2)), ("POND", Some(3)), ("Mill", None), ("stone", Some(4))];
    Job::new(&MemoryStorage::new(), 1, 20)
        .run(move |flow| {
            let sink = PostgresSink::table(&url, "words").key(["word"]);
            let sink = sink.column("word", |word: &(String, Option<i64>)| word.0.clone()).column("n", |word| word.1);
            let words = words.map(|(word, n)| (word.to_owned(), n));
            flow.from_iter("words", words).to_postgres("out", sink.delete_if(|word| word.1.is_none()));
            Ok(())
        })
        .unwrap();
    assert_eq!(database.sql("SELECT lower(word COLLATE \"C\"), n FROM words ORDER BY n"), ["pond|3", "stone|4"]);
}

#[test]
fn a_server_that_is_restarted_only_makes_output_late() {
    let Some(mut database) = Database::start() else { return };
    database.sql("CREATE TABLE counts (key bigint, n bigint)");
    let job = Job::new(&MemoryStorage::new(), 2, 20);
    let url = database.url.clone();
    let slow = || {
        std::thread::sleep(Duration::from_micros(300));
        false
    };
    let running = job.spawn(count(6_000, move || counts(&url), slow));
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(200));
        database.stop();
        std::thread::sleep(Duration::from_millis(100));
        database.restart();
    }
    assert_eq!(running.wait().unwrap().restarts, 0);
    assert_eq!(database.sql("SELECT count(*), count(DISTINCT (key, n)) FROM counts"), ["6000|6000"]);
}

#[test]
fn tp_07_a_job_that_is_stopped_and_started_with_other_numbers_of_workers_writes_every_row_once() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE counts (key bigint, n bigint)");
    let storage = MemoryStorage::new();
    for workers in [2, 4, 1, 3, 2] {
        let job = Job::new(&storage, workers, 10);
        let url = database.url.clone();
        let slow = || {
            std::thread::sleep(Duration::from_micros(100));
            false
        };
        let running = job.spawn(count(6_000, move || counts(&url), slow));
        std::thread::sleep(Duration::from_millis(150));
        running.stop().unwrap();
    }
    let url = database.url.clone();
    Job::new(&storage, 2, 10).run(count(6_000, move || counts(&url), || false)).unwrap();
    assert_eq!(database.sql("SELECT count(*), count(DISTINCT (key, n)) FROM counts"), ["6000|6000"]);
}

#[test]
fn a_row_that_the_table_refuses_ends_the_job_with_an_error_that_says_so() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE counts (key bigint, n bigint CHECK (n < 100))");
    let url = database.url.clone();
    let error = Job::new(&MemoryStorage::new(), 1, 20).run(count(5_000, move || counts(&url), || false)).unwrap_err();
    let error = chain(&error);
    assert!(error.contains("table public.counts refuses a row") && error.contains("counts_n_check"), "{error}");
}
