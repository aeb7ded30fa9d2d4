//! Rows that a table does not take.

mod support;

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond_connectors_postgres::{PostgresChangeSinks, PostgresSink, PostgresSinks, RefusedRowCounter, RefusedRows};
use support::{Database, Job, chain};

/// Id, name, amount.
type Row = (i64, String, f64);

fn sink(url: &str) -> PostgresSink<Row> {
    let sink = PostgresSink::table(url, "rows").column("id", |row: &Row| row.0);
    sink.column("name", |row| row.1.clone()).column("amount", |row| row.2)
}

fn rows(count: i64) -> impl Iterator<Item = Row> + Send + 'static {
    (0..count).map(|id| (id, format!("name {}", id % 1_000), id as f64 / 2.0))
}

fn job(
    count: i64,
    sink: impl Fn() -> PostgresSink<Row> + Send + Sync + 'static,
) -> impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static {
    move |flow| {
        flow.from_iter("rows", rows(count).collect::<Vec<_>>()).to_postgres("out", sink());
        Ok(())
    }
}

const TABLE: &str =
    "CREATE TABLE rows (id bigint CONSTRAINT odd_thousands CHECK (id % 1000 <> 7), name text, amount float8)";

#[test]
fn a_job_with_a_refused_row_names_it_and_goes_on_with_another_policy_or_another_table() {
    let Some(database) = Database::start() else { return };
    database.sql(TABLE);
    let storage = MemoryStorage::new();
    let (url, strict) = (database.url.clone(), database.url.clone());
    for _ in 0..2 {
        let strict = strict.clone();
        let error = chain(&Job::new(&storage, 1, 20).run(job(5_000, move || sink(&strict))).unwrap_err());
        let words = "table public.rows refuses a row with id 7, name \"name 7\", amount 3.5 (constraint odd_thousands)";
        assert!(error.contains(words), "{error}");
        assert_eq!(database.sql("SELECT count(*) FROM rows"), ["0"]);
    }
    let counter = RefusedRowCounter::new();
    let counts = counter.clone();
    let skipping = move || sink(&url).refused_rows(RefusedRows::SkipAndCount).refused_row_counter(&counts);
    Job::new(&storage, 1, 20).run(job(5_000, skipping)).unwrap();
    assert_eq!(database.sql("SELECT count(*), count(DISTINCT id) FROM rows"), ["4995|4995"]);
    assert_eq!(counter.count(), 5);
}

#[test]
fn refused_rows_go_into_a_table_of_dead_letters_in_the_same_transaction() {
    let Some(database) = Database::start() else { return };
    // Names are unique, amounts are looked at when the transaction ends, and ids by a trigger.
    database.sql(
        "CREATE TABLE amounts (amount float8 PRIMARY KEY); INSERT INTO amounts SELECT n / 2.0 FROM generate_series(0, 2000) n WHERE n <> 11; \
         CREATE TABLE rows (id bigint PRIMARY KEY, name text UNIQUE, \
         amount float8 REFERENCES amounts DEFERRABLE INITIALLY DEFERRED); \
         CREATE FUNCTION dislikes() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF NEW.id = 13 THEN RAISE EXCEPTION 'thirteen'; END IF; RETURN NEW; END $$; \
         CREATE TRIGGER dislikes BEFORE INSERT ON rows FOR EACH ROW EXECUTE FUNCTION dislikes()",
    );
    let (url, counter) = (database.url.clone(), RefusedRowCounter::new());
    let counts = counter.clone();
    let letters = move || {
        let sink = sink(&url).key(["id"]).log_bytes(20_000).refused_row_counter(&counts);
        sink.refused_rows(RefusedRows::DeadLetter("dead.letters".to_owned()))
    };
    database.sql("CREATE SCHEMA dead");
    Job::new(&MemoryStorage::new(), 1, 10).run(job(1_003, letters)).unwrap();
    assert_eq!(database.sql("SELECT count(*), min(id), max(id) FROM rows"), ["998|0|999"]);
    let dead = database.sql("SELECT row->>'id', constraint_name, deletes, table_name, row->>'name' FROM dead.letters ORDER BY (row->>'id')::int");
    let expected = [
        "11|rows_amount_fkey|f|public.rows|name 11",
        "13|-|f|public.rows|name 13",
        "1000|rows_name_key|f|public.rows|name 0",
        "1001|rows_name_key|f|public.rows|name 1",
        "1002|rows_name_key|f|public.rows|name 2",
    ];
    assert_eq!(dead, expected);
    assert_eq!(counter.count(), 5);
    assert_eq!(database.sql("SELECT reason FROM dead.letters WHERE row->>'id' = '13'").len(), 1);
}

#[test]
fn a_deletion_that_is_refused_is_a_dead_letter_and_the_row_stays() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE rows (id bigint PRIMARY KEY, name text, amount float8); INSERT INTO rows SELECT n, n FROM generate_series(1, 9) n");
    database.sql("CREATE TABLE uses (id bigint REFERENCES rows); INSERT INTO uses VALUES (3)");
    let url = database.url.clone();
    Job::new(&MemoryStorage::new(), 1, 20)
        .run(move |flow| {
            let gone = (1..=9i64).map(|id| Change::delete((id, String::new(), f64::NAN)));
            let letters = RefusedRows::DeadLetter("letters".to_owned());
            flow.from_iter("rows", gone.collect::<Vec<_>>())
                .changes_to_postgres("out", sink(&url).key(["id"]).refused_rows(letters));
            Ok(())
        })
        .unwrap();
    assert_eq!(database.sql("SELECT id FROM rows"), ["3"]);
    let dead = database.sql("SELECT deletes, constraint_name, row FROM letters");
    assert_eq!(dead, ["t|uses_id_fkey|{\"id\": 3, \"name\": \"\", \"amount\": \"\\\\x7ff8000000000000\"}"]);
}

#[test]
fn no_policy_leaves_out_rows_because_the_table_was_altered_or_the_dead_letters_cannot_be_written() {
    let Some(database) = Database::start() else { return };
    database.sql("CREATE TABLE rows (id bigint PRIMARY KEY, name text, amount float8)");
    let storage = MemoryStorage::new();
    let url = database.url.clone();
    let slow = move |flow: &mut Dataflow| {
        let rows = flow.from_iter("rows", rows(20_000).collect::<Vec<_>>());
        let rows = rows.inspect(|_| std::thread::sleep(std::time::Duration::from_micros(200)));
        rows.to_postgres("out", sink(&url).refused_rows(RefusedRows::SkipAndCount));
        Ok(())
    };
    let running = Job::new(&storage, 1, 20).spawn(slow);
    support::until("rows are written", || database.sql("SELECT count(*) FROM rows") != ["0"]);
    database.sql("ALTER TABLE rows ALTER id TYPE integer");
    let error = chain(&running.wait().unwrap_err());
    assert!(error.contains("table public.rows does not take rows any more"), "{error}");
    // With the table as it was, all rows are there.
    database.sql("ALTER TABLE rows ALTER id TYPE bigint");
    let url = database.url.clone();
    Job::new(&storage, 1, 20).run(job(20_000, move || sink(&url))).unwrap();
    assert_eq!(database.sql("SELECT count(*), count(DISTINCT id) FROM rows"), ["20000|20000"]);
    let url = database.url.clone();
    let into_itself = move || sink(&url).refused_rows(RefusedRows::DeadLetter("rows".to_owned()));
    let error = chain(&Job::new(&MemoryStorage::new(), 1, 20).run(job(1, into_itself)).unwrap_err());
    assert!(error.contains("setting refused_rows is invalid: public.rows is the table of the sink itself"), "{error}");
    database.sql("CREATE TABLE letters (reason text)");
    let url = database.url.clone();
    let unfit = move || sink(&url).refused_rows(RefusedRows::DeadLetter("letters".to_owned()));
    let error = chain(&Job::new(&MemoryStorage::new(), 1, 20).run(job(1, unfit)).unwrap_err());
    assert!(error.contains("table public.letters has no column table_name"), "{error}");
}

#[test]
fn after_an_outage_epochs_go_into_transactions_of_the_size_that_is_set() {
    let Some(mut database) = Database::start() else { return };
    for (table, bytes) in [("small", 2_000), ("large", usize::MAX)] {
        database.sql(&format!("CREATE TABLE {table} (id bigint)"));
        let (url, job) = (database.url.clone(), Job::new(&MemoryStorage::new(), 1, 10));
        let status = std::sync::Arc::clone(&job.components.status);
        let running = job.spawn(move |flow| {
            let sink = PostgresSink::table(&url, table).column("id", |row: &i64| *row).transaction_bytes(bytes);
            let rows = flow.from_iter("rows", 0..10_000i64);
            rows.inspect(|_| std::thread::sleep(std::time::Duration::from_micros(200))).to_postgres("out", sink);
            Ok(())
        });
        support::until("rows are written", || database.sql(&format!("SELECT count(*) FROM {table}")) != ["0"]);
        database.stop();
        let epoch = status.snapshot().epoch;
        support::until("epochs are due", || status.snapshot().epoch >= epoch + 60);
        database.restart();
        running.wait().unwrap();
        let most = format!("SELECT count(*), max(n) < 1000 FROM (SELECT count(*) n FROM {table} GROUP BY xmin) s");
        let most = database.sql(&most)[0].clone();
        assert_eq!(most.ends_with("|t"), bytes < 10_000, "{table}: {most}");
        assert_eq!(database.sql(&format!("SELECT count(DISTINCT id) FROM {table}")), ["10000"]);
    }
}
