//! **q10, log to files**: every bid into files, with the day and the minute in columns of their own, by which a later
//! reader may look for them. Files appear when their checkpoint is durable, each bid in exactly one of them.

use std::path::Path;

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use super::time::{day, minute};
use crate::Streams;

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LoggedBid {
    /// The auction.
    pub auction: u64,
    /// Who bids.
    pub bidder: u64,
    /// The price, in cents.
    pub price: u64,
    /// When, in milliseconds since 1970-01-01 UTC.
    pub date_time: i64,
    /// The rest of the bid.
    pub extra: String,
    /// The day, as in `2015-07-15`.
    pub day: String,
    /// The minute of the day, as in `23:59`.
    pub minute: String,
}

/// Every bid with its day and minute.
#[must_use]
pub fn q10(streams: &Streams) -> Stream<LoggedBid> {
    streams.bids.map(|bid| LoggedBid {
        auction: bid.auction,
        bidder: bid.bidder,
        price: bid.price,
        date_time: bid.date_time,
        extra: bid.extra,
        day: day(bid.date_time),
        minute: minute(bid.date_time),
    })
}

/// Comma separated files in `directory`, a new one with each checkpoint and after 128 MiB.
pub fn q10_files(directory: &Path) -> FileSink<LoggedBid> {
    FileSink::csv(directory)
}
