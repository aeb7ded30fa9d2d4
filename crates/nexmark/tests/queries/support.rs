//! The events of all tests, and how a query is run over them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::OnceLock;

use millpond::operators::MaterializedView;
use millpond::prelude::*;
use millpond::testing::{TestDriver, TestFlow, TestInput, TestOutput, TestStream};
use millpond_nexmark::{Auction, Bid, Event, Generator, Person, Streams};

const EVENTS: u64 = 30_000;
/// One event a millisecond: no two happen at once, so that no order is left to chance.
const EVENTS_PER_SECOND: u64 = 1_000;
/// Ten seconds before a midnight.
const FIRST_TIME_MS: i64 = 1_436_918_400_000 - 10_000;

pub(crate) fn events() -> &'static [Event] {
    static ALL: OnceLock<Vec<Event>> = OnceLock::new();
    ALL.get_or_init(|| {
        let generator = Generator::new(EVENTS_PER_SECOND).starting_at(FIRST_TIME_MS);
        (0..EVENTS).map(|number| generator.event(number)).collect()
    })
}

pub(crate) fn bids() -> impl Iterator<Item = &'static Bid> + Clone {
    events().iter().filter_map(|event| if let Event::Bid(bid) = event { Some(bid) } else { None })
}

pub(crate) fn auctions() -> impl Iterator<Item = &'static Auction> + Clone {
    events().iter().filter_map(|event| if let Event::Auction(auction) = event { Some(&**auction) } else { None })
}

pub(crate) fn persons() -> impl Iterator<Item = &'static Person> + Clone {
    events().iter().filter_map(|event| if let Event::Person(person) = event { Some(&**person) } else { None })
}

/// Rows by a key, in the order in which they come.
pub(crate) fn grouped<K: Ord, T>(rows: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> BTreeMap<K, Vec<T>> {
    let mut groups = BTreeMap::<K, Vec<T>>::new();
    rows.into_iter().for_each(|row| groups.entry(key(&row)).or_default().push(row));
    groups
}

/// What a query emits over all events, exactly once, although the job dies twice: it is restored with more subtasks, then
/// with one and as little state in memory as can be.
pub(crate) fn run<T: Data>(query: impl Fn(&Streams) -> Stream<T>) -> Vec<T> {
    let (input, output) = (TestInput::with_splits(3), TestOutput::new());
    let job = |flow: &mut Dataflow| {
        let strategy = WatermarkStrategy::monotonous().timestamps(Event::date_time);
        let streams = Streams::new(&flow.timed_test_input("events", &input, strategy));
        query(&streams).test_output("results", &output);
        Ok(())
    };
    let mut pieces = events().chunks(events().len() / 4);
    let mut push = || pieces.next().unwrap().iter().for_each(|event| input.push(event.clone()));

    push();
    let mut driver = TestDriver::builder().parallelism(2).build(job).unwrap();
    let first = driver.checkpoint().unwrap();
    push();
    for _ in 0..7 {
        driver.step().unwrap();
    }
    driver.kill();

    let mut driver = TestDriver::builder().parallelism(3).restore(job, &first).unwrap();
    push();
    let second = driver.checkpoint().unwrap();
    push();
    for _ in 0..7 {
        driver.step().unwrap();
    }
    driver.kill();

    let mut driver = TestDriver::builder().memory_budget(0).restore(job, &second).unwrap();
    driver.run().unwrap();
    // For what goes by the wall clock.
    driver.advance_time(10_000);
    driver.run().unwrap();
    driver.finish().unwrap();
    output.committed()
}

/// Checks a query whose results never change.
pub(crate) fn check<T: Data + Ord + Debug>(
    query: impl Fn(&Streams) -> Stream<T>,
    expected: impl IntoIterator<Item = T>,
) {
    compare(run(query), expected);
}

/// Checks the rows that the changes of a query leave.
pub(crate) fn check_changes<T: Data + Ord + Debug>(
    query: impl Fn(&Streams) -> Stream<Change<T>>,
    expected: impl IntoIterator<Item = T>,
) {
    let mut view = MaterializedView::new();
    view.apply_all(run(query)).unwrap();
    compare(view.into_rows(), expected);
}

fn compare<T: Ord + Debug>(mut found: Vec<T>, expected: impl IntoIterator<Item = T>) {
    let mut expected: Vec<T> = expected.into_iter().collect();
    assert!(!expected.is_empty(), "a query without results shows nothing");
    found.sort();
    expected.sort();
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found, expected);
    }
}
