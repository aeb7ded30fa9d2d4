//! The Nexmark benchmark: an auction house as a stream of people, auctions and bids, and queries over it.
//!
//! Owns the events, where they come from, and the queries. Does *not* own any operator: everything here is written with
//! what a user of `millpond` has, one query to a file.
//!
//! ```
//! use millpond::prelude::*;
//! use millpond_nexmark::{Nexmark, Streams, queries};
//!
//! let job = |flow: &mut Dataflow| -> UserResult {
//!     let streams = Streams::new(&Nexmark::new(10_000).events(flow));
//!     queries::q2(&streams).print_debug("selected");
//!     Ok(())
//! };
//! # let _ = job;
//! ```
//!
//! The benchmark was described first by Tucker, Tufte, Papadimos and Maier ("NEXMark – A Benchmark for Queries over Data
//! Streams"); the queries from q9 on come from Apache Beam and from the public Nexmark repository for Apache Flink, which
//! are the source of the proportions and rules of the generator as well. Those draw from unseeded random numbers, so
//! there are no bytes to be equal to; here event *i* is the same for ever, on every machine.

mod generator;
mod model;
pub mod queries;
mod random;
mod source;
mod streams;
mod text;

pub use generator::Generator;
pub use model::{Auction, Bid, Event, Person};
pub use source::Nexmark;
pub use streams::Streams;
