//! **q13, bounded side input**: every bid with the value that a table has for its auction. The table is a stream that
//! ends; bids wait for their row, so that the result does not depend on which comes first.

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{Bid, Streams};

/// Rows of the table; an auction has the row of its number, modulo this.
pub const SIDE_ROWS: u64 = 10_000;

/// The value of a row of the table.
#[must_use]
pub fn side_value(row: u64) -> String {
    format!("value {row}")
}

/// A bid with the value of its row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SideBid {
    /// The auction.
    pub auction: u64,
    /// Who bids.
    pub bidder: u64,
    /// The price, in cents.
    pub price: u64,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub date_time: i64,
    /// The value of the row.
    pub value: String,
}

/// Every bid with the value that the table has for its auction.
#[must_use]
pub fn q13(streams: &Streams) -> Stream<SideBid> {
    let rows = GeneratorSource::new(SIDE_ROWS, 1, |row| (row, side_value(row)));
    let rows = streams.bids.dataflow().clone().source("q13 side input", rows);
    let bids = streams.bids.map(|Bid { auction, bidder, price, date_time, .. }| SideBid {
        auction,
        bidder,
        price,
        date_time,
        value: String::new(),
    });
    bids.key_by(|bid| bid.auction % SIDE_ROWS).connect(&rows.key_by(|(row, _)| *row)).process("q13 join", Join(None))
}

/// Keeps the value of a row, and the bids that wait for it.
struct Join(Option<(ValueState<String>, ListState<SideBid>)>);

impl KeyedCoProcess for Join {
    type Key = u64;
    type Left = SideBid;
    type Right = (u64, String);
    type Output = SideBid;

    fn open(&mut self, states: &mut StateDeclarer<'_, u64>, _: &mut OpenContext<'_>) -> UserResult {
        self.0 = Some((states.value("value")?, states.list("waiting")?));
        Ok(())
    }

    fn process_left(
        &mut self,
        bid: SideBid,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<SideBid>,
    ) -> UserResult {
        let Some((value, waiting)) = self.0 else { return Ok(()) };
        match value.get(context)? {
            Some(value) => output.emit(SideBid { value: value.clone(), ..bid }),
            None => waiting.add(context, bid)?,
        }
        Ok(())
    }

    fn process_right(
        &mut self,
        (_, row): (u64, String),
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<SideBid>,
    ) -> UserResult {
        let Some((value, waiting)) = self.0 else { return Ok(()) };
        for bid in waiting.get(context)? {
            output.emit_at(SideBid { value: row.clone(), ..bid.clone() }, bid.date_time);
        }
        waiting.clear(context)?;
        value.set(context, row)?;
        Ok(())
    }
}
