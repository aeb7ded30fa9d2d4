//! What happens in the auction house.

use serde::{Deserialize, Serialize};

/// Somebody registers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Person {
    /// Number of the person, from 1,000.
    pub id: u64,
    /// First and last name.
    pub name: String,
    /// E-mail address.
    pub email_address: String,
    /// Four groups of four digits.
    pub credit_card: String,
    /// A city.
    pub city: String,
    /// A state, two letters.
    pub state: String,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub date_time: i64,
    /// Anything, to fill up the size.
    pub extra: String,
}

/// An item is put up for auction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Auction {
    /// Number of the auction, from 1,000.
    pub id: u64,
    /// What is sold.
    pub item_name: String,
    /// What it is like.
    pub description: String,
    /// The first price, in cents.
    pub initial_bid: u64,
    /// The price at which it is sold at all, in cents.
    pub reserve: u64,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub date_time: i64,
    /// The last time at which a bid counts, in milliseconds since 1970-01-01 UTC.
    pub expires: i64,
    /// Who sells.
    pub seller: u64,
    /// Number of the category, from 10.
    pub category: u64,
    /// Anything, to fill up the size.
    pub extra: String,
}

/// Somebody bids.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Bid {
    /// For which auction: one that is running, has ended, or begins soon.
    pub auction: u64,
    /// Who bids.
    pub bidder: u64,
    /// The price, in cents.
    pub price: u64,
    /// Through which channel it came.
    pub channel: String,
    /// From which address.
    pub url: String,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub date_time: i64,
    /// Anything, to fill up the size.
    pub extra: String,
}

/// One event. Most are bids, so the others stand in boxes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Event {
    /// Somebody registers.
    Person(Box<Person>),
    /// An item is put up for auction.
    Auction(Box<Auction>),
    /// Somebody bids.
    Bid(Bid),
}

impl Event {
    /// When it happened, in milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn date_time(&self) -> i64 {
        match self {
            Event::Person(person) => person.date_time,
            Event::Auction(auction) => auction.date_time,
            Event::Bid(bid) => bid.date_time,
        }
    }
}
