//! **q8, new sellers**: who has registered and put something up for auction within the same ten seconds? A join of two
//! streams in tumbling windows, where it is enough to know whether there was an auction.

use std::time::Duration;

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use crate::Streams;

const SIZE: Duration = Duration::from_secs(10);

/// Somebody who is new and sells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NewSeller {
    /// The person.
    pub id: u64,
    /// The name.
    pub name: String,
    /// The first of the ten seconds, in milliseconds.
    pub window_start: i64,
}

/// What happens in a window.
#[derive(Clone, Serialize, Deserialize)]
enum Happening {
    Registered(u64, String),
    Sells(u64),
}

impl Happening {
    fn person(&self) -> u64 {
        match self {
            Happening::Registered(person, _) | Happening::Sells(person) => *person,
        }
    }
}

/// People who registered and sold within the same ten seconds.
#[must_use]
pub fn q8(streams: &Streams) -> Stream<NewSeller> {
    let registered = streams.persons.map(|person| Happening::Registered(person.id, person.name));
    let sells = streams.auctions.map(|auction| Happening::Sells(auction.seller));
    registered.union(&sells).key_by(Happening::person).window(Windows::tumbling(SIZE)).aggregate_with(
        "q8 windows",
        Both,
        |id, window, name, output| {
            if let Some(name) = name {
                output.emit(NewSeller { id: *id, name, window_start: window.start });
            }
            Ok(())
        },
    )
}

/// The name of one who has registered and sells.
struct Both;

impl AggregateFunction for Both {
    type Input = Happening;
    /// The name, and whether there was an auction.
    type Accumulator = (Option<String>, bool);
    type Output = Option<String>;

    fn create_accumulator(&self) -> (Option<String>, bool) {
        (None, false)
    }

    fn add(&self, happening: Happening, (name, sells): &mut (Option<String>, bool)) {
        match happening {
            Happening::Registered(_, new) => *name = Some(new),
            Happening::Sells(_) => *sells = true,
        }
    }

    fn result(&self, (name, sells): &(Option<String>, bool)) -> Option<String> {
        name.clone().filter(|_| *sells)
    }

    fn merge(&self, one: (Option<String>, bool), other: (Option<String>, bool)) -> (Option<String>, bool) {
        (one.0.or(other.0), one.1 || other.1)
    }
}
