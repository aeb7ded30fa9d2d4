//! Keeps a table of totals by customer, from a table of orders, exactly once.
//!
//! ```text
//! postgres-totals run --state-dir DIR -- --url postgresql://USER:PASSWORD@HOST/DATABASE [--publication NAME] [--slot NAME]
//! postgres-totals run -- --url … --drop-slot yes          drops the slot, when the job is not to run again
//! ```
//!
//! The tables are made by whoever owns the database:
//!
//! ```sql
//! CREATE TABLE orders (id bigint PRIMARY KEY, customer int NOT NULL, cents bigint NOT NULL);
//! ALTER TABLE orders REPLICA IDENTITY FULL;
//! CREATE PUBLICATION shop FOR TABLE orders;
//! CREATE TABLE totals (customer int PRIMARY KEY, orders bigint NOT NULL, cents bigint NOT NULL);
//! ```

use millpond::operators::{CountRows, Sum};
use millpond::postgres::{PostgresChangeSinks, PostgresSink, PostgresSource, drop_replication_slot};
use millpond::prelude::*;

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    customer: i32,
    cents: i64,
}

/// A customer, how many orders there are, and what they cost together.
type Total = (i32, (u64, i64));

/// What stands after `--`.
struct Options {
    url: String,
    publication: String,
    slot: String,
    drop_slot: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> UserResult<Options> {
        let mut options = Options {
            url: "postgresql://postgres@localhost/postgres".to_owned(),
            publication: "shop".to_owned(),
            slot: "totals".to_owned(),
            drop_slot: false,
        };
        for pair in arguments.chunks(2) {
            let [name, value] = pair else { return Err(format!("{} needs a value", pair[0]).into()) };
            match name.as_str() {
                "--url" => options.url.clone_from(value),
                "--publication" => options.publication.clone_from(value),
                "--slot" => options.slot.clone_from(value),
                "--drop-slot" => options.drop_slot = value == "yes",
                _ => return Err(format!("unknown argument {name} {value}").into()),
            }
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    if let Ok(Options { url, slot, drop_slot: true, .. }) = Options::parse(&millpond::args()) {
        return match drop_replication_slot(&url, &slot) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        };
    }
    millpond::main(|flow| {
        let Options { url, publication, slot, .. } = Options::parse(&millpond::args())?;
        let totals = PostgresSink::table(&url, "totals")
            .column("customer", |(customer, _): &Total| *customer)
            .column("orders", |(_, (orders, _))| *orders as i64)
            .column("cents", |(_, (_, cents))| *cents)
            .key(["customer"]);
        flow.source("orders", PostgresSource::changes::<Order>(&url, &publication, &slot))
            .key_by_row(|order| order.customer)
            .aggregate_rows("totals", (CountRows::default(), Sum::new(|order: &Order| order.cents)))
            .changes_to_postgres("out", totals);
        Ok(())
    })
}
