//! **q20, bids with their auctions**, of category 10 only. A join without windows, of which one side is filtered: of other
//! auctions it is remembered that they are of no interest, so that their bids need not wait.

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{Auction, Bid, Streams};

const CATEGORY: u64 = 10;

/// A bid and the auction it is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ExpandedBid {
    /// The bid.
    pub bid: Bid,
    /// Its auction.
    pub auction: Auction,
}

/// Bids for auctions of category 10, with those.
#[must_use]
pub fn q20(streams: &Streams) -> Stream<ExpandedBid> {
    let items = streams.auctions.map(|auction| (auction.id, (auction.category == CATEGORY).then_some(auction)));
    let bids = streams.bids.key_by(|bid| bid.auction);
    bids.connect(&items.key_by(|(auction, _)| *auction)).process("q20 join", Join(None))
}

/// Keeps the auction, if it is of interest, and the bids that came before it.
struct Join(Option<(ValueState<Option<Auction>>, ListState<Bid>)>);

impl KeyedCoProcess for Join {
    type Key = u64;
    type Left = Bid;
    type Right = (u64, Option<Auction>);
    type Output = ExpandedBid;

    fn open(&mut self, states: &mut StateDeclarer<'_, u64>, _: &mut OpenContext<'_>) -> UserResult {
        self.0 = Some((states.value("auction")?, states.list("waiting")?));
        Ok(())
    }

    fn process_left(
        &mut self,
        bid: Bid,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<ExpandedBid>,
    ) -> UserResult {
        let Some((auction, waiting)) = self.0 else { return Ok(()) };
        match auction.get(context)? {
            Some(Some(auction)) => output.emit(ExpandedBid { bid, auction: auction.clone() }),
            Some(None) => {}
            None => waiting.add(context, bid)?,
        }
        Ok(())
    }

    fn process_right(
        &mut self,
        (_, item): (u64, Option<Auction>),
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<ExpandedBid>,
    ) -> UserResult {
        let Some((auction, waiting)) = self.0 else { return Ok(()) };
        if let Some(item) = &item {
            for bid in waiting.get(context)? {
                output.emit(ExpandedBid { bid: bid.clone(), auction: item.clone() });
            }
        }
        waiting.clear(context)?;
        auction.set(context, item)?;
        Ok(())
    }
}
