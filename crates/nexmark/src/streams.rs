//! People, auctions and bids as streams of their own.

use millpond::prelude::*;

use crate::model::{Auction, Bid, Event, Person};

const PERSONS: SideTag<Person> = SideTag::new("persons");
const AUCTIONS: SideTag<Auction> = SideTag::new("auctions");

/// The three kinds of events.
#[derive(Clone)]
pub struct Streams {
    /// People who register.
    pub persons: Stream<Person>,
    /// Items that are put up for auction.
    pub auctions: Stream<Auction>,
    /// Bids.
    pub bids: Stream<Bid>,
}

impl Streams {
    /// Divides the events. Bids, which are most of them, stay in the main output.
    #[track_caller]
    #[must_use]
    pub fn new(events: &Stream<Event>) -> Self {
        let bids = events.try_flat_map(|event, output| {
            match event {
                Event::Bid(bid) => output.emit(bid),
                Event::Auction(auction) => output.emit_side(AUCTIONS, *auction),
                Event::Person(person) => output.emit_side(PERSONS, *person),
            }
            Ok(())
        });
        Streams { persons: bids.side_output(PERSONS), auctions: bids.side_output(AUCTIONS), bids }
    }
}
