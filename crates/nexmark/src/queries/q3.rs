//! **q3, local items**: who sells things of category 10 in Oregon, Idaho or California? A join without windows: sellers
//! and auctions wait for each other for ever, since either may come first.

use millpond::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{Auction, Person, Streams};

const CATEGORY: u64 = 10;
const STATES: [&str; 3] = ["OR", "ID", "CA"];

/// Something to buy nearby.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LocalItem {
    /// Who sells.
    pub name: String,
    /// In which city.
    pub city: String,
    /// In which state.
    pub state: String,
    /// The auction.
    pub auction: u64,
}

/// Things of category 10 that are sold in three states.
#[must_use]
pub fn q3(streams: &Streams) -> Stream<LocalItem> {
    let sellers = streams.persons.filter(|person| STATES.contains(&person.state.as_str()));
    let items = streams.auctions.filter(|auction| auction.category == CATEGORY);
    let items = items.map(|Auction { id, seller, .. }| (seller, id));
    sellers
        .map(|Person { id, name, city, state, .. }| Seller { id, name, city, state })
        .key_by(|seller| seller.id)
        .connect(&items.key_by(|(seller, _)| *seller))
        .process("q3 join", Join::default())
}

#[derive(Clone, Serialize, Deserialize)]
struct Seller {
    id: u64,
    name: String,
    city: String,
    state: String,
}

impl Seller {
    fn sells(&self, auction: u64) -> LocalItem {
        LocalItem { name: self.name.clone(), city: self.city.clone(), state: self.state.clone(), auction }
    }
}

/// Keeps the seller, and the auctions of one who has not come yet.
#[derive(Default)]
struct Join {
    states: Option<(ValueState<Seller>, ListState<u64>)>,
}

impl KeyedCoProcess for Join {
    type Key = u64;
    type Left = Seller;
    type Right = (u64, u64);
    type Output = LocalItem;

    fn open(&mut self, states: &mut StateDeclarer<'_, u64>, _: &mut OpenContext<'_>) -> UserResult {
        self.states = Some((states.value("seller")?, states.list("waiting")?));
        Ok(())
    }

    fn process_left(
        &mut self,
        seller: Seller,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<LocalItem>,
    ) -> UserResult {
        let Some((known, waiting)) = self.states else { return Ok(()) };
        for auction in waiting.get(context)? {
            output.emit(seller.sells(*auction));
        }
        waiting.clear(context)?;
        known.set(context, seller)?;
        Ok(())
    }

    fn process_right(
        &mut self,
        (_, auction): (u64, u64),
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<LocalItem>,
    ) -> UserResult {
        let Some((known, waiting)) = self.states else { return Ok(()) };
        match known.get(context)? {
            Some(seller) => output.emit(seller.sells(auction)),
            None => waiting.add(context, auction)?,
        }
        Ok(())
    }
}
