//! Event `i` of the auction house, computed from `i`.
//!
//! Of 50 events one is a person, three are auctions and the rest bids. Three quarters of the auctions are of a popular
//! seller, half of the bids for a popular auction, three quarters of them by a popular bidder; who is popular changes
//! with every hundredth. Other bids go to one of the last 100 auctions or one of the next ten.

use crate::model::{Auction, Bid, Event, Person};
use crate::random::Random;
use crate::text::{CITIES, FIRST_NAMES, LAST_NAMES, STATES, channel, extra, some_letters};

const PERSONS: u64 = 1;
const AUCTIONS: u64 = 3;
/// Persons, auctions and bids that make one round.
const ROUND: u64 = 50;

const FIRST_ID: u64 = 1_000;
const FIRST_CATEGORY: u64 = 10;
const CATEGORIES: u64 = 5;

/// Every so many persons and auctions there is a popular one.
const POPULAR_EVERY: u64 = 100;
/// One in so many is of somebody, for something that is not popular.
const UNPOPULAR_SELLER: u64 = 4;
const UNPOPULAR_AUCTION: u64 = 2;
const UNPOPULAR_BIDDER: u64 = 4;

/// Auctions that run at a time.
const RUNNING_AUCTIONS: u64 = 100;
/// Persons that bid and sell at a time.
const ACTIVE_PERSONS: u64 = 1_000;
/// Persons and auctions that are spoken of before they come.
const AHEAD: u64 = 10;

/// Average sizes in bytes.
const PERSON_BYTES: usize = 200;
const AUCTION_BYTES: usize = 500;
const BID_BYTES: usize = 100;

/// Midnight of 15 July 2015 UTC, in milliseconds.
const FIRST_TIME_MS: i64 = 1_436_918_400_000;

/// Computes events from their numbers.
///
/// ```
/// use millpond_nexmark::{Event, Generator};
///
/// let generator = Generator::new(10_000);
/// assert!(matches!(generator.event(0), Event::Person(_)));
/// assert_eq!(generator.event(77), generator.event(77));
/// assert_eq!(generator.time_ms(20_000) - generator.time_ms(0), 2_000);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Generator {
    events_per_second: u64,
    first_time_ms: i64,
}

impl Generator {
    /// `events_per_second` events in a second of event time, at least one; the first at midnight of 15 July 2015 UTC.
    #[must_use]
    pub fn new(events_per_second: u64) -> Self {
        Generator { events_per_second: events_per_second.max(1), first_time_ms: FIRST_TIME_MS }
    }

    /// The first event happens at this time instead, in milliseconds since 1970-01-01 UTC.
    #[must_use]
    pub fn starting_at(self, first_time_ms: i64) -> Self {
        Generator { first_time_ms, ..self }
    }

    /// When event `number` happens, in milliseconds since 1970-01-01 UTC.
    #[inline]
    #[must_use]
    pub fn time_ms(&self, number: u64) -> i64 {
        let (seconds, rest) = (number / self.events_per_second, number % self.events_per_second);
        self.first_time_ms + (seconds * 1_000 + rest * 1_000 / self.events_per_second) as i64
    }

    /// Event `number`, from 0.
    #[inline]
    #[must_use]
    pub fn event(&self, number: u64) -> Event {
        let place = number % ROUND;
        if place >= PERSONS + AUCTIONS {
            Event::Bid(self.bid(number))
        } else if place >= PERSONS {
            Event::Auction(Box::new(self.auction(number)))
        } else {
            Event::Person(Box::new(self.person(number)))
        }
    }

    fn person(&self, number: u64) -> Person {
        let random = &mut Random::of_event(number);
        let name = format!("{} {}", random.one_of(&FIRST_NAMES), random.one_of(&LAST_NAMES));
        let email_address = format!("{}@{}.com", some_letters(random, 7), some_letters(random, 5));
        let mut digits = || random.below(10_000);
        let credit_card = format!("{:04} {:04} {:04} {:04}", digits(), digits(), digits(), digits());
        let (city, state) = (random.one_of(&CITIES), random.one_of(&STATES));
        let size = 8 + name.len() + email_address.len() + credit_card.len() + city.len() + state.len();
        Person {
            id: FIRST_ID + last_person(number),
            name,
            email_address,
            credit_card,
            city: (*city).to_owned(),
            state: (*state).to_owned(),
            date_time: self.time_ms(number),
            extra: extra(random, size, PERSON_BYTES),
        }
    }

    fn auction(&self, number: u64) -> Auction {
        let random = &mut Random::of_event(number);
        let date_time = self.time_ms(number);
        // As long as it takes for so many others to begin, on average.
        let events = RUNNING_AUCTIONS * ROUND / AUCTIONS;
        let average_ms = (self.time_ms(number + events) - date_time) as u64;
        let expires = date_time + 1 + random.below((2 * average_ms).max(1)) as i64;
        let popular = random.below(UNPOPULAR_SELLER) > 0;
        let seller =
            if popular { last_person(number) / POPULAR_EVERY * POPULAR_EVERY } else { some_person(number, random) };
        let (item_name, description) = (some_letters(random, 20), some_letters(random, 100));
        let initial_bid = random.price();
        let size = 8 * 6 + item_name.len() + description.len();
        Auction {
            id: FIRST_ID + last_auction(number),
            item_name,
            description,
            initial_bid,
            reserve: initial_bid + random.price(),
            date_time,
            expires,
            seller: FIRST_ID + seller,
            category: FIRST_CATEGORY + random.below(CATEGORIES),
            extra: extra(random, size, AUCTION_BYTES),
        }
    }

    #[inline]
    fn bid(&self, number: u64) -> Bid {
        let random = &mut Random::of_event(number);
        let popular = random.below(UNPOPULAR_AUCTION) > 0;
        let auction =
            if popular { last_auction(number) / POPULAR_EVERY * POPULAR_EVERY } else { some_auction(number, random) };
        let popular = random.below(UNPOPULAR_BIDDER) > 0;
        // Not the popular seller, but the one after.
        let bidder =
            if popular { last_person(number) / POPULAR_EVERY * POPULAR_EVERY + 1 } else { some_person(number, random) };
        let price = random.price();
        let channel = channel(random);
        Bid {
            auction: FIRST_ID + auction,
            bidder: FIRST_ID + bidder,
            price,
            channel: channel.name.clone(),
            url: channel.url.clone(),
            date_time: self.time_ms(number),
            extra: extra(random, 8 * 4, BID_BYTES),
        }
    }
}

/// The newest person at event `number`, counted from 0.
fn last_person(number: u64) -> u64 {
    number / ROUND * PERSONS
}

/// One of the active persons, or one of those to come.
fn some_person(number: u64, random: &mut Random) -> u64 {
    let persons = last_person(number) + 1;
    let active = persons.min(ACTIVE_PERSONS);
    persons - active + random.below(active + AHEAD)
}

/// The newest auction at event `number`, which is not a person, counted from 0.
fn last_auction(number: u64) -> u64 {
    let place = (number % ROUND).clamp(PERSONS, PERSONS + AUCTIONS - 1);
    number / ROUND * AUCTIONS + (place - PERSONS)
}

/// One of the running auctions, or one of those to come.
fn some_auction(number: u64, random: &mut Random) -> u64 {
    let last = last_auction(number);
    let first = last.saturating_sub(RUNNING_AUCTIONS);
    first + random.below(last - first + 1 + AHEAD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_fifty_events_one_is_a_person_and_three_are_auctions_with_numbers_in_a_row() {
        let generator = Generator::new(10_000);
        let (mut persons, mut auctions, mut bids) = (Vec::new(), Vec::new(), 0);
        for number in 0..5_000 {
            match generator.event(number) {
                Event::Person(person) => persons.push(person.id),
                Event::Auction(auction) => auctions.push(auction.id),
                Event::Bid(_) => bids += 1,
            }
        }
        assert!(persons.into_iter().eq(1_000..1_100));
        assert!(auctions.into_iter().eq(1_000..1_300));
        assert_eq!(bids, 4_600);
    }

    #[test]
    fn sizes_are_as_said_on_average_and_bids_are_for_auctions_that_are_near() {
        let generator = Generator::new(10_000);
        let (mut bytes, mut count) = (0, 0);
        for number in 50_000..60_000 {
            if let Event::Bid(bid) = generator.event(number) {
                bytes += 32 + bid.extra.len();
                count += 1;
                let newest = FIRST_ID + last_auction(number);
                assert!(bid.auction + 200 > newest && bid.auction <= newest + AHEAD);
            }
        }
        assert!((98..=102).contains(&(bytes / count)), "{} bytes", bytes / count);
    }

    #[test]
    fn event_times_are_exact_far_out() {
        let generator = Generator::new(3);
        assert_eq!(generator.time_ms(3_000_000_000_001) - FIRST_TIME_MS, 1_000_000_000_000_333);
    }
}
