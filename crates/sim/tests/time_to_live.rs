//! A job whose state has a time to live, in the test driver with its clock.

use std::time::Duration;

use millpond_core::UserResult;
use millpond_dataflow::{Dataflow, KeyedContext, OpenContext, Output};
use millpond_operators::{KeyedProcess, KeyedStreamOperators, StreamOperators};
use millpond_sim::{TestDriver, TestFlow, TestInput, TestOutput, TestStream};
use millpond_state::{ExpiringMap, ExpiringValue, StateDeclarer, Ttl};

const MINUTE: i64 = 60_000;

/// Emits a visitor that was not seen for a minute, and how many pages were seen by it in that time.
#[derive(Default)]
struct FirstVisit {
    seen: Option<ExpiringValue<u64>>,
    pages: Option<ExpiringMap<u64, u64>>,
}

impl KeyedProcess for FirstVisit {
    type Key = u64;
    type Input = (u64, u64);
    type Output = (u64, u64);

    fn open(&mut self, states: &mut StateDeclarer<'_, u64>, _: &mut OpenContext<'_>) -> UserResult {
        let ttl = Ttl::after(Duration::from_millis(MINUTE as u64));
        self.seen = Some(states.expiring_value("seen", ttl)?);
        self.pages = Some(states.expiring_map("pages", ttl.on_read_and_write())?);
        Ok(())
    }

    fn process(
        &mut self,
        (visitor, page): (u64, u64),
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<(u64, u64)>,
    ) -> UserResult {
        let (Some(seen), Some(pages)) = (self.seen, self.pages) else { return Ok(()) };
        let first = seen.get(context)?.is_none();
        seen.modify(context, |visits| *visits = Some(visits.unwrap_or(0) + 1))?;
        pages.modify(context, page, |views| *views = Some(views.unwrap_or(0) + 1))?;
        if first {
            output.emit((visitor, pages.len(context)? as u64));
        }
        Ok(())
    }
}

fn job<'a>(
    visits: &'a TestInput<(u64, u64)>,
    firsts: &'a TestOutput<(u64, u64)>,
) -> impl Fn(&mut Dataflow) -> UserResult + Copy + 'a {
    move |flow| {
        let visits = flow.test_input("visits", visits);
        visits.key_by(|(visitor, _)| *visitor).process("first", FirstVisit::default()).test_output("firsts", firsts);
        Ok(())
    }
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

#[test]
fn tl_01_tl_09_time_goes_on_through_kills_rescales_and_the_cold_store() {
    for budget in [None, Some(0), Some(4_000)] {
        let (visits, firsts) = (TestInput::new(), TestOutput::new());
        let job = job(&visits, &firsts);
        let builder = |parallelism| {
            let builder = TestDriver::builder().parallelism(parallelism);
            budget.map_or(TestDriver::builder().parallelism(parallelism), |bytes| builder.memory_budget(bytes))
        };
        let all: Vec<(u64, u64)> = (0..50).map(|visitor| (visitor, visitor % 3)).collect();
        let mut driver = builder(1).time(5 * MINUTE).build(job).unwrap();
        all.iter().for_each(|visit| visits.push(*visit));
        driver.run().unwrap();
        assert_eq!(sorted(firsts.take()), (0..50).map(|visitor| (visitor, 1)).collect::<Vec<_>>());
        let snapshot = driver.checkpoint().unwrap();
        driver.kill();

        // Down for all but a millisecond of the minute: everybody is known.
        let mut driver = builder(3).time(6 * MINUTE - 1).restore(job, &snapshot).unwrap();
        all[..25].iter().for_each(|visit| visits.push(*visit));
        driver.run().unwrap();
        assert_eq!(firsts.take(), []);
        assert_eq!(driver.keyed_state::<u64, u64>("first", "seen", &7).unwrap(), Some(2));
        driver.advance_time(1);
        assert_eq!(driver.keyed_state::<u64, u64>("first", "seen", &7).unwrap(), Some(2), "written a moment ago");
        assert_eq!(driver.keyed_state::<u64, u64>("first", "seen", &30).unwrap(), None);
        all.iter().for_each(|(visitor, page)| visits.push((*visitor, page + 10)));
        driver.run().unwrap();
        assert_eq!(sorted(firsts.take()), (25..50).map(|visitor| (visitor, 1)).collect::<Vec<_>>());
        assert_eq!(driver.keyed_map::<u64, u64, u64>("first", "pages", &7).unwrap().len(), 2);
        driver.finish().unwrap();
    }
}

#[test]
fn tl_17_tl_18_state_that_nobody_reads_leaves_memory_and_the_cold_store() {
    for budget in [None, Some(0)] {
        let (visits, firsts) = (TestInput::new(), TestOutput::new());
        let builder = TestDriver::builder();
        let builder = budget.map_or(builder, |bytes| TestDriver::builder().memory_budget(bytes));
        let mut driver = builder.max_parallelism(16).build(job(&visits, &firsts)).unwrap();
        (0..1_000).for_each(|visitor| visits.push((visitor, 0)));
        driver.run().unwrap();
        driver.checkpoint().unwrap();
        assert_eq!(driver.live_entries("first").unwrap(), 2_000);
        driver.advance_time(MINUTE);
        for _ in 0..60 {
            (0..100).for_each(|_| visits.push((0, 0)));
            driver.run().unwrap();
        }
        assert_eq!(driver.live_entries("first").unwrap(), 2);
        driver.finish().unwrap();
    }
}
