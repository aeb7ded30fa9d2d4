//! The queries, one to a file; each says in its own words what it asks.
//!
//! A query is a function from the three streams of events to a stream of results. Where rows that were emitted may change
//! again, the results are [`Change`](millpond::prelude::Change)s.

mod distinct;
mod q0;
mod q1;
mod q10;
mod q11;
mod q12;
mod q13;
mod q14;
mod q15;
mod q16;
mod q17;
mod q18;
mod q19;
mod q2;
mod q20;
mod q21;
mod q22;
mod q3;
mod q4;
mod q5;
mod q6;
mod q7;
mod q8;
mod q9;
mod time;
mod winning;

pub use distinct::{ByLevel, Counts};
pub use q0::q0;
pub use q1::q1;
pub use q2::{BidPrice, q2};
pub use q3::{LocalItem, q3};
pub use q4::q4;
pub use q5::{HotItem, q5};
pub use q6::q6;
pub use q7::q7;
pub use q8::{NewSeller, q8};
pub use q9::{WinningBid, q9};
pub use q10::{LoggedBid, q10, q10_files};
pub use q11::q11;
pub use q12::q12;
pub use q13::{SIDE_ROWS, SideBid, q13, side_value};
pub use q14::{DearBid, TimeOfDay, q14};
pub use q15::q15;
pub use q16::q16;
pub use q17::{Prices, q17};
pub use q18::q18;
pub use q19::q19;
pub use q20::{ExpandedBid, q20};
pub use q21::{ChannelBid, q21};
pub use q22::{BidPath, q22};
pub use winning::{Listing, Offer, winning_bids};
