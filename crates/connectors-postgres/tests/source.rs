//! The source against a real server.

#![expect(clippy::unwrap_used, reason = "outside of test functions, but only called by them")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millpond::RestartPolicy;
use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond_connectors_postgres::{PostgresChangeSinks, PostgresSink, PostgresSource, drop_replication_slot};
use support::{Database, Job, Running, after_epochs, chain, until};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: i64,
    customer: i32,
    cents: i64,
    note: Option<String>,
}

const ORDERS: &str = "CREATE TABLE orders (id bigint PRIMARY KEY, customer int NOT NULL, cents bigint NOT NULL, note text); \
                      ALTER TABLE orders REPLICA IDENTITY FULL; CREATE PUBLICATION shop FOR TABLE orders";
const TOTALS: &str = "CREATE TABLE totals (customer int PRIMARY KEY, cents bigint NOT NULL)";
/// What is wrong with the table of totals.
const WRONG: &str = "SELECT * FROM (SELECT customer, sum(cents) cents FROM orders GROUP BY customer) o \
                     FULL JOIN totals t USING (customer) WHERE o.cents IS DISTINCT FROM t.cents";

/// Orders to totals by customer. `slow` is how long each change takes.
fn totals(url: &str, slow: Duration) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static {
    let url = url.to_owned();
    move |flow| {
        let orders = PostgresSource::changes::<Order>(&url, "shop", "totals");
        let sink = PostgresSink::table(&url, "totals").column("customer", |total: &(i32, i64)| total.0);
        flow.source("orders", orders)
            .inspect(move |_| {
                if !slow.is_zero() {
                    std::thread::sleep(slow);
                }
            })
            .key_by_row(|order| order.customer)
            .sum_rows("totals", |order| order.cents)
            .changes_to_postgres("out", sink.column("cents", |total| total.1).key(["customer"]));
        Ok(())
    }
}

/// Random changes of orders, in transactions of several, until it is told to stop.
fn write(database: &Database, seed: u64) -> (Arc<AtomicBool>, std::thread::JoinHandle<u64>) {
    let (going, url) = (Arc::new(AtomicBool::new(true)), database.url.clone());
    let theirs = Arc::clone(&going);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            let (mut random, mut transactions) = (seed, 0);
            let mut next = |below: u64| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % below
            };
            while theirs.load(Ordering::SeqCst) {
                let mut statements = "BEGIN;".to_owned();
                for _ in 0..=next(4) {
                    let (id, customer, cents) = (next(5_000), next(20), next(1_000));
                    statements += &match next(5) {
                        0 | 1 => format!("INSERT INTO orders VALUES ({id}, {customer}, {cents}) ON CONFLICT (id) DO UPDATE SET cents = excluded.cents;"),
                        2 => format!("UPDATE orders SET customer = {customer} WHERE id = {id};"),
                        3 => format!("UPDATE orders SET id = {} WHERE id = {id} AND NOT EXISTS (SELECT 1 FROM orders WHERE id = {0});", next(5_000)),
                        _ => format!("DELETE FROM orders WHERE id = {id};"),
                    };
                }
                statements += if next(10) == 0 { "ROLLBACK" } else { "COMMIT" };
                client.batch_execute(&statements).await.unwrap();
                transactions += 1;
            }
            transactions
        })
    });
    (going, thread)
}

fn caught_up(database: &Database, running: &Running) {
    let started = Instant::now();
    while !database.sql(WRONG).is_empty() {
        assert!(!running.is_over(), "the job ended");
        assert!(started.elapsed() < support::LONG, "{:?}", &database.sql(WRONG)[..5]);
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn rows_that_are_there_and_all_changes_after_them_are_read_once() {
    let Some(database) = Database::start() else { return };
    database
        .sql(&format!("{ORDERS}; {TOTALS}; INSERT INTO orders SELECT n, n % 20, n FROM generate_series(1, 3000) n"));
    let running = Job::new(&MemoryStorage::new(), 2, 20).spawn(totals(&database.url, Duration::ZERO));
    let (going, writer) = write(&database, 1);
    std::thread::sleep(Duration::from_millis(1_500));
    going.store(false, Ordering::SeqCst);
    assert!(writer.join().unwrap() > 50);
    caught_up(&database, &running);
    running.stop().unwrap();
    let slots = database.sql("SELECT slot_name, active FROM pg_replication_slots");
    assert_eq!(slots, ["totals|f"]);
    drop_replication_slot(&database.url, "totals").unwrap();
    drop_replication_slot(&database.url, "totals").unwrap();
    assert!(database.sql("SELECT slot_name FROM pg_replication_slots").is_empty());
}

#[test]
fn ex_01_a_job_that_is_stopped_while_it_reads_the_tables_goes_on_behind_the_last_row_and_sees_every_change_once() {
    let Some(database) = Database::start() else { return };
    database
        .sql(&format!("{ORDERS}; {TOTALS}; INSERT INTO orders SELECT n, n % 20, n FROM generate_series(0, 4999) n"));
    let storage = MemoryStorage::new();
    let (going, writer) = write(&database, 2);
    for workers in [1, 2, 1, 2] {
        let job = Job::new(&storage, workers, 10);
        let running = job.spawn(totals(&database.url, Duration::from_micros(200)));
        std::thread::sleep(Duration::from_millis(300));
        running.stop().unwrap();
    }
    going.store(false, Ordering::SeqCst);
    writer.join().unwrap();
    let running = Job::new(&storage, 2, 10).spawn(totals(&database.url, Duration::ZERO));
    caught_up(&database, &running);
    running.stop().unwrap();
}

/// The table of the test below, with keys that come in another order than their bytes; `pad` is one of fixed length.
const WORDS: &str = "CREATE COLLATION folded (provider = icu, locale = 'de-u-ks-level2-kn-true', deterministic = false); \
                     CREATE TABLE words (word text COLLATE folded, pad char(6), bits bit(3), n bigint NOT NULL, PRIMARY KEY (word, pad, bits)); \
                     ALTER TABLE words REPLICA IDENTITY FULL; CREATE PUBLICATION words FOR TABLE words; \
                     CREATE TABLE sums (bits text PRIMARY KEY, n bigint)";
const WRONG_SUMS: &str = "SELECT * FROM (SELECT bits::text bits, sum(n) n FROM words GROUP BY 1) w \
                          FULL JOIN sums USING (bits) WHERE w.n IS DISTINCT FROM sums.n";

#[test]
fn ex_01_reading_a_table_goes_on_behind_keys_of_other_collations_and_of_fixed_length() {
    let Some(database) = Database::start() else { return };
    database.sql(WORDS);
    database.sql(
        "INSERT INTO words SELECT (ARRAY['a', 'B', 'ä', 'Z', 'ß', 'item '])[n % 6 + 1] || n / 20, chr(97 + n % 5), \
         (n % 8)::bit(3), n FROM generate_series(0, 1999) n",
    );
    let url = database.url.clone();
    let build = move |slow: Duration| {
        let url = url.clone();
        move |flow: &mut Dataflow| {
            let words = PostgresSource::changes::<(String, String, String, i64)>(&url, "words", "words");
            let sink = PostgresSink::table(&url, "sums").column("bits", |sum: &(String, i64)| sum.0.clone());
            flow.source("words", words)
                .inspect(move |_| std::thread::sleep(slow))
                .key_by_row(|word| word.2.clone())
                .sum_rows("sums", |word| word.3)
                .changes_to_postgres("out", sink.column("n", |sum| sum.1).key(["bits"]));
            Ok(())
        }
    };
    let storage = MemoryStorage::new();
    for round in 0..4 {
        let running = Job::new(&storage, 1, 10).spawn(build(Duration::from_micros(500)));
        std::thread::sleep(Duration::from_millis(300));
        running.stop().unwrap();
        // Everywhere in the order of keys: rows that change their values, their keys, that come and go.
        database.sql(&format!(
            "UPDATE words SET n = n + 1 WHERE n % 7 = {round}; UPDATE words SET word = upper(word) WHERE n % 11 = {round}; \
             UPDATE words SET word = 'item ' || n || '-{round}' || word, bits = bits # B'001' WHERE n % 13 = {round}; DELETE FROM words WHERE n % 17 = {round}; \
             INSERT INTO words SELECT 'Item ' || n, 'new{round}', (n % 8)::bit(3), n FROM generate_series(0, 100) n"
        ));
    }
    let running = Job::new(&storage, 2, 10).spawn(build(Duration::ZERO));
    until("the sums are right", || {
        assert!(!running.is_over(), "the job ended");
        database.sql(WRONG_SUMS).is_empty()
    });
    running.stop().unwrap();
}

#[test]
fn ex_01_a_job_that_fails_again_and_again_and_a_server_that_restarts_change_nothing() {
    let Some(mut database) = Database::start() else { return };
    database
        .sql(&format!("{ORDERS}; {TOTALS}; INSERT INTO orders SELECT n, n % 20, n FROM generate_series(1, 1000) n"));
    let mut job = Job::new(&MemoryStorage::new(), 2, 20);
    job.settings.restart = RestartPolicy::Fixed { restarts: 1_000, delay_ms: 20 };
    let (fails, url) = (Arc::new(after_epochs(&job, 12)), database.url.clone());
    let build = move |flow: &mut Dataflow| {
        let fails = Arc::clone(&fails);
        let orders = PostgresSource::changes::<Order>(&url, "shop", "totals");
        let sink = PostgresSink::table(&url, "totals").column("customer", |total: &(i32, i64)| total.0);
        flow.source("orders", orders)
            .try_map(move |order| if fails() { Err("user code fails on purpose".into()) } else { Ok(order) })
            .key_by_row(|order| order.customer)
            .sum_rows("totals", |order| order.cents)
            .changes_to_postgres("out", sink.column("cents", |total| total.1).key(["customer"]));
        Ok(())
    };
    let running = job.spawn(build);
    for round in 0..3 {
        let (going, writer) = write(&database, round);
        std::thread::sleep(Duration::from_millis(700));
        going.store(false, Ordering::SeqCst);
        writer.join().unwrap();
        database.stop();
        database.restart();
    }
    caught_up(&database, &running);
    assert!(running.stop().unwrap().restarts > 0);
}

#[test]
fn the_log_that_the_server_keeps_follows_the_checkpoints_also_when_only_other_tables_are_written() {
    let Some(database) = Database::start() else { return };
    database.sql(&format!("{ORDERS}; {TOTALS}; CREATE TABLE other (n bigint)"));
    let running = Job::new(&MemoryStorage::new(), 1, 20).spawn(totals(&database.url, Duration::ZERO));
    until("the slot is read", || database.sql("SELECT active FROM pg_replication_slots") == ["t"]);
    let kept = "SELECT pg_current_wal_lsn() - confirmed_flush_lsn < 100000 FROM pg_replication_slots";
    for _ in 0..2 {
        database.sql("INSERT INTO other SELECT n FROM generate_series(1, 20000) n");
        until("the slot has moved", || database.sql(kept) == ["t"]);
    }
    running.stop().unwrap();
}

/// What a bounded source of orders gives.
fn read<T: Data>(source: impl Fn() -> PostgresSource<T> + Send + Sync + 'static) -> Result<Vec<T>, String> {
    let out = Collector::new();
    let inside = out.clone();
    let job = Job::new(&MemoryStorage::new(), 1, 20);
    job.run(move |flow| {
        flow.source("in", source().deadline(Duration::from_secs(2)).stop_at_latest()).collect("out", &inside);
        Ok(())
    })
    .map_err(|error| chain(&error))?;
    Ok(out.take())
}

#[test]
fn a_bounded_source_ends_with_what_was_committed_when_it_started() {
    let Some(database) = Database::start() else { return };
    database.sql(&format!("{ORDERS}; INSERT INTO orders VALUES (1, 1, 10, 'a'), (2, 1, 20, NULL)"));
    let url = database.url.clone();
    let orders = move || PostgresSource::changes::<Order>(&url, "shop", "reader");
    let first = read(orders.clone()).unwrap();
    let order = |id, cents, note: Option<&str>| Order { id, customer: 1, cents, note: note.map(str::to_owned) };
    assert_eq!(first, [Change::insert(order(1, 10, Some("a"))), Change::insert(order(2, 20, None))]);
    // The slot has stayed, and what it tells was there when a new job begins; other than what comes after that.
    database.sql("UPDATE orders SET cents = 11 WHERE id = 1; DELETE FROM orders WHERE id = 2");
    assert_eq!(read(orders.clone()).unwrap(), [Change::insert(order(1, 11, Some("a")))]);
    database.sql("UPDATE orders SET id = 3 WHERE id = 1; DELETE FROM orders; INSERT INTO orders VALUES (4, 1, 40)");
    let url = database.url.clone();
    let ids = move || {
        PostgresSource::with(&url, "shop", "reader", |change| Ok(Some(change.row().decode::<Order>()?.id)))
            .without_snapshot()
    };
    // An id for each change in the log that the slot has kept; what went before may be among it.
    let ids = read(ids).unwrap();
    assert!([1, 2, 3, 3, 4].ends_with(&ids) && ids.ends_with(&[3, 3, 4]), "{ids:?}");
}

#[test]
fn upserts_need_no_more_than_the_primary_key_and_tell_keys_that_change() {
    let Some(database) = Database::start() else { return };
    database.sql(
        "CREATE TABLE prices (shop text, fruit text, price numeric(9,2), more jsonb, PRIMARY KEY (fruit, shop)); \
                  CREATE TABLE other (id int PRIMARY KEY); CREATE PUBLICATION shop FOR TABLE prices, other",
    );
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Price {
        price: Option<f64>,
        more: Vec<u8>,
    }
    let url = database.url.clone();
    let prices = move || {
        let source = PostgresSource::upserts::<(String, String), Price>(&url, "shop", "prices");
        source.table("public.prices").without_snapshot()
    };
    assert!(read(prices.clone()).unwrap().is_empty());
    database.sql("INSERT INTO other VALUES (1); INSERT INTO prices VALUES ('mill', 'plum', 1.50, '[1, 2]'), ('mill', 'pear', NULL, '[]'); \
                  UPDATE prices SET price = 2 WHERE fruit = 'plum'; UPDATE prices SET shop = 'pond' WHERE fruit = 'plum'; \
                  DELETE FROM prices WHERE fruit = 'pear'");
    let key = |fruit: &str, shop: &str| (fruit.to_owned(), shop.to_owned());
    let row = |price, more: &[u8]| Some(Price { price, more: more.to_vec() });
    assert_eq!(
        read(prices).unwrap(),
        [
            (key("plum", "mill"), row(Some(1.5), &[1, 2])),
            (key("pear", "mill"), row(None, &[])),
            (key("plum", "mill"), row(Some(2.0), &[1, 2])),
            (key("plum", "mill"), None),
            (key("plum", "pond"), row(Some(2.0), &[1, 2])),
            (key("pear", "mill"), None),
        ]
    );
}

#[test]
fn large_values_that_did_not_change_are_taken_from_the_old_row_or_refused() {
    let Some(database) = Database::start() else { return };
    database.sql(ORDERS);
    // Hexadecimal digests do not compress below what is stored in line.
    let large = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 500) n)";
    let url = database.url.clone();
    let whole = move || PostgresSource::changes::<Order>(&url, "shop", "whole").without_snapshot();
    let url = database.url.clone();
    let keyed = move || PostgresSource::upserts::<i64, Order>(&url, "shop", "keyed").without_snapshot();
    assert!(read(whole.clone()).unwrap().is_empty() && read(keyed.clone()).unwrap().is_empty());
    database.sql(&format!(
        "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL; INSERT INTO orders VALUES (1, 1, 10, {large})"
    ));
    database.sql("UPDATE orders SET cents = 11");
    let changes = read(whole).unwrap();
    let notes: Vec<usize> = changes.iter().map(|change| change.row.note.as_ref().map_or(0, String::len)).collect();
    assert_eq!(notes, [16_000, 16_000, 16_000]);
    drop_replication_slot(&database.url, "whole").unwrap();
    database.sql("ALTER TABLE orders REPLICA IDENTITY DEFAULT");
    assert_eq!(read(keyed.clone()).unwrap().len(), 2);
    database.sql("UPDATE orders SET cents = 12");
    let error = read(keyed).unwrap_err();
    assert!(error.contains("leaves out column note, which is stored out of line"), "{error}");
}

#[test]
fn a_table_that_is_truncated_and_a_row_that_does_not_fit_end_the_job_with_errors_that_name_them() {
    let Some(database) = Database::start() else { return };
    database.sql(ORDERS);
    let url = database.url.clone();
    let orders = move |slot: &'static str| {
        let url = url.clone();
        move || PostgresSource::changes::<Order>(&url, "shop", slot).without_snapshot()
    };
    for slot in ["truncated", "unfit"] {
        assert!(read(orders(slot)).unwrap().is_empty());
    }
    database.sql("TRUNCATE orders");
    let error = read(orders("truncated")).unwrap_err();
    assert!(error.contains("table public.orders was truncated at"), "{error}");
    let url = database.url.clone();
    let ignoring = move || {
        let orders = PostgresSource::changes::<Order>(&url, "shop", "truncated").without_snapshot();
        orders.on_truncate(millpond_connectors_postgres::OnTruncate::Ignore)
    };
    assert!(read(ignoring).unwrap().is_empty());
    database.sql("ALTER TABLE orders ALTER cents TYPE numeric; INSERT INTO orders VALUES (1, 1, 0.5)");
    let url = database.url.clone();
    let unfit = move || {
        let orders = PostgresSource::changes::<Order>(&url, "shop", "unfit").without_snapshot();
        orders.on_truncate(millpond_connectors_postgres::OnTruncate::Ignore)
    };
    let error = read(unfit).unwrap_err();
    assert!(error.contains("bad row of table public.orders at") && error.contains("column cents"), "{error}");
}

#[test]
fn every_wrong_setting_is_named() {
    let Some(database) = Database::start() else { return };
    database.sql(ORDERS);
    database.sql("CREATE TABLE loose (n int); CREATE TABLE keyed (n int PRIMARY KEY); CREATE PUBLICATION loose FOR TABLE loose, keyed; \
                  CREATE PUBLICATION empty");
    let server = database.server();
    type Make = fn(&str) -> PostgresSource<Change<Order>>;
    let check = |make: Make, words: &str| {
        let (started, url) = (Instant::now(), database.url.clone());
        let error = read(move || make(&url)).unwrap_err();
        assert!(error.contains(words), "{error}");
        assert!(started.elapsed() < Duration::from_secs(10));
    };
    fn orders(url: &str, publication: &str, slot: &str) -> PostgresSource<Change<Order>> {
        PostgresSource::changes::<Order>(url, publication, slot)
    }
    check(
        |url| orders(url, "nowhere", "s"),
        &format!("publication nowhere in database postgres at {server} does not exist"),
    );
    check(|url| orders(url, "empty", "s"), "publishes no table");
    check(|url| orders(url, "shop", "s").table("loose"), "does not publish table loose");
    check(|url| orders(url, "shop", "Slot"), "setting slot is invalid");
    check(|url| orders(url, "loose", "s").table("loose"), "table public.loose has no primary key");
    check(
        |url| orders(url, "loose", "s").table("keyed"),
        "table public.keyed has replica identity default, but changes need whole rows",
    );
    check(|url| orders(url, "shop", "s").create_slot(false), "replication slot s does not exist");
    check(|url| orders(&url.replace("not-a-secret", "wrong"), "shop", "s"), "refuses the credentials");
    check(|url| orders(&format!("{url}?sslmode=require"), "shop", "s"), "on TLS");
    database.sql("SELECT pg_create_logical_replication_slot('theirs', 'test_decoding')");
    check(|url| orders(url, "shop", "theirs"), "it is a logical slot of test_decoding, not of pgoutput");
    database.sql("CREATE ROLE reader LOGIN PASSWORD 'words'; GRANT SELECT ON orders TO reader");
    check(
        |url| orders(&url.replace("millpond:not-a-secret", "reader:words"), "shop", "s"),
        "not permitted: cannot make replication slot s",
    );
}

#[test]
fn a_slot_that_is_in_use_gone_or_ahead_and_a_server_without_logical_log_are_named() {
    let Some(mut database) = Database::start() else { return };
    database.sql(&format!("{ORDERS}; {TOTALS}"));
    let storage = MemoryStorage::new();
    let running = Job::new(&storage, 1, 10).spawn(totals(&database.url, Duration::ZERO));
    until("the slot is read", || database.sql("SELECT active FROM pg_replication_slots") == ["t"]);
    let url = database.url.clone();
    let error = read(move || PostgresSource::changes::<Order>(&url, "shop", "totals")).unwrap_err();
    assert!(error.contains("replication slot totals is in use by process"), "{error}");
    database.sql("INSERT INTO orders VALUES (1, 1, 1)");
    caught_up(&database, &running);
    running.stop().unwrap();
    let error =
        |database: &Database| chain(&Job::new(&storage, 1, 10).run(totals(&database.url, Duration::ZERO)).unwrap_err());
    database.sql("INSERT INTO orders VALUES (2, 1, 1)");
    until("nobody reads the slot", || database.sql("SELECT active FROM pg_replication_slots") == ["f"]);
    database.sql("SELECT pg_replication_slot_advance('totals', pg_current_wal_lsn())");
    let ahead = error(&database);
    assert!(ahead.contains("replication slot totals was read up to") && ahead.contains("is gone"), "{ahead}");
    drop_replication_slot(&database.url, "totals").unwrap();
    let gone = error(&database);
    assert!(
        gone.contains("replication slot totals does not exist") && gone.contains("are gone for this job"),
        "{gone}"
    );
    database.sql("ALTER SYSTEM SET wal_level = replica");
    database.stop();
    database.restart();
    let level = error(&database);
    assert!(level.contains("has wal_level replica, logical replication needs wal_level logical"), "{level}");
}
