//! What q4, q6 and q9 are made of: the winning bid of each auction, once it has ended.
//!
//! A bid counts when it comes while its auction runs, the last time included; the highest wins, of equal ones the
//! earliest. Auctions and bids meet by the number of the auction, in any order. An auction and its best bid are kept until
//! event time has passed its end; a bid without an auction until event time has passed its own, for then no auction that
//! could hold it may come any more.

use std::cmp::Reverse;

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

/// An auction: when it runs, and what the query wants to know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing<A> {
    /// The auction.
    pub auction: u64,
    /// The first time at which a bid counts, in milliseconds.
    pub opens: i64,
    /// The last time at which a bid counts, in milliseconds.
    pub closes: i64,
    /// What else is wanted.
    pub item: A,
}

/// A bid, and what the query wants to know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer<B> {
    /// The auction.
    pub auction: u64,
    /// The price, in cents.
    pub price: u64,
    /// When, in milliseconds.
    pub time_ms: i64,
    /// What else is wanted.
    pub bid: B,
}

impl<B> Offer<B> {
    /// The greatest wins.
    fn rank(&self) -> (u64, Reverse<i64>) {
        (self.price, Reverse(self.time_ms))
    }
}

/// The winning bid of each auction that had one, when the auction has ended.
#[track_caller]
pub fn winning_bids<A: Data, B: Data>(
    name: &str,
    listings: &Stream<Listing<A>>,
    offers: &Stream<Offer<B>>,
) -> Stream<(Listing<A>, Offer<B>)> {
    let listings = listings.key_by(|listing| listing.auction);
    listings.connect(&offers.key_by(|offer| offer.auction)).process(name, Winning(None))
}

/// What is known of an auction.
#[derive(Clone, Serialize, Deserialize)]
enum Known<A, B> {
    /// It has begun: itself, and the best bid so far.
    Running(Listing<A>, Option<Offer<B>>),
    /// It has not come; these bids for it have.
    Expected(Vec<Offer<B>>),
}

struct Winning<A, B>(Option<ValueState<Known<A, B>>>);

/// Lets `offer` be the best if it is.
fn consider<A, B>(listing: &Listing<A>, best: &mut Option<Offer<B>>, offer: Offer<B>) {
    let in_time = (listing.opens..=listing.closes).contains(&offer.time_ms);
    if in_time && best.as_ref().is_none_or(|best| offer.rank() > best.rank()) {
        *best = Some(offer);
    }
}

impl<A: Data, B: Data> KeyedCoProcess for Winning<A, B> {
    type Key = u64;
    type Left = Listing<A>;
    type Right = Offer<B>;
    type Output = (Listing<A>, Offer<B>);

    fn open(&mut self, states: &mut StateDeclarer<'_, u64>, _: &mut OpenContext<'_>) -> UserResult {
        self.0 = Some(states.value("auction")?);
        Ok(())
    }

    fn process_left(
        &mut self,
        listing: Listing<A>,
        context: &mut KeyedContext<'_, u64>,
        _: &mut Output<Self::Output>,
    ) -> UserResult {
        let Some(auction) = self.0 else { return Ok(()) };
        context.set_event_timer(listing.closes)?;
        auction.modify(context, |known| {
            let mut best = None;
            if let Some(Known::Expected(offers)) = known.take() {
                offers.into_iter().for_each(|offer| consider(&listing, &mut best, offer));
            }
            *known = Some(Known::Running(listing, best));
        })?;
        Ok(())
    }

    fn process_right(
        &mut self,
        offer: Offer<B>,
        context: &mut KeyedContext<'_, u64>,
        _: &mut Output<Self::Output>,
    ) -> UserResult {
        let Some(auction) = self.0 else { return Ok(()) };
        let (time_ms, watermark) = (offer.time_ms, context.watermark());
        // Most bids are not better than the best: they are only looked at.
        match auction.get(context)? {
            Some(Known::Running(listing, best)) => {
                let in_time = (listing.opens..=listing.closes).contains(&time_ms);
                if !in_time || best.as_ref().is_some_and(|best| offer.rank() <= best.rank()) {
                    return Ok(());
                }
            }
            _ if time_ms <= watermark => return Ok(()),
            _ => context.set_event_timer(time_ms)?,
        }
        auction.modify_or(
            context,
            || Known::Expected(Vec::new()),
            |known| match known {
                Known::Running(listing, best) => consider(listing, best, offer),
                Known::Expected(offers) => offers.push(offer),
            },
        )?;
        Ok(())
    }

    fn on_timer(
        &mut self,
        timer: Timer,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<Self::Output>,
    ) -> UserResult {
        let Some(auction) = self.0 else { return Ok(()) };
        auction.modify(context, |known| match known.take() {
            Some(Known::Running(listing, best)) if listing.closes <= timer.time_ms => {
                output_winner(listing, best, output);
            }
            Some(Known::Expected(mut offers)) => {
                offers.retain(|offer| offer.time_ms > timer.time_ms);
                *known = (!offers.is_empty()).then_some(Known::Expected(offers));
            }
            running => *known = running,
        })?;
        Ok(())
    }
}

/// An auction without bids has no winner.
fn output_winner<A: Data, B: Data>(
    listing: Listing<A>,
    best: Option<Offer<B>>,
    output: &mut Output<(Listing<A>, Offer<B>)>,
) {
    if let Some(best) = best {
        output.emit((listing, best));
    }
}
