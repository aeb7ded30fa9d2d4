//! The rotations of an aircraft: its departures between two long rests.

use millpond::prelude::*;

use crate::calendar;
use crate::records::Departure;

/// A departure: when, how late in minutes, from where to where.
pub(crate) type Leg = (i64, i64, String);

/// Gathers departures.
pub(crate) struct Rotations;

impl AggregateFunction for Rotations {
    type Input = Departure;
    type Accumulator = Vec<Leg>;
    type Output = Vec<Leg>;

    fn create_accumulator(&self) -> Vec<Leg> {
        Vec::new()
    }

    fn add(&self, departure: Departure, legs: &mut Vec<Leg>) {
        let (delay_minutes, route) = departure.leg();
        legs.push((departure.departed_ms, delay_minutes, route));
    }

    /// Sessions merge in no particular order, and departures come out of order: time decides.
    fn result(&self, legs: &Vec<Leg>) -> Vec<Leg> {
        let mut legs = legs.clone();
        legs.sort_unstable();
        legs
    }

    fn merge(&self, mut legs: Vec<Leg>, other: Vec<Leg>) -> Vec<Leg> {
        legs.extend(other);
        legs
    }
}

/// The departures of an aircraft without a long rest in between.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Rotation {
    tailnum: String,
    from: String,
    to: String,
    legs: Vec<String>,
    delay_minutes: i64,
}

impl Rotation {
    /// Of departures in the order of time.
    pub(crate) fn new(tailnum: &str, legs: Vec<Leg>) -> Self {
        let time = |leg: Option<&Leg>| leg.map(|leg| calendar::format(leg.0)).unwrap_or_default();
        Rotation {
            tailnum: tailnum.to_owned(),
            from: time(legs.first()),
            to: time(legs.last()),
            delay_minutes: legs.iter().map(|leg| leg.1).sum(),
            legs: legs.into_iter().map(|leg| leg.2).collect(),
        }
    }
}
