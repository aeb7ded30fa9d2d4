//! The events as a source, through the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond::prelude::*;
use millpond::storage::MemoryStorage;
use millpond::{Components, JobSettings, RestartPolicy};
use millpond_nexmark::{Event, Nexmark, Streams, queries};

const EVENTS: u64 = 60_000;

#[test]
fn every_event_comes_once_although_the_job_fails_on_its_way() {
    let out = Collector::new();
    let (inside, failed) = (out.clone(), Arc::new(AtomicBool::new(false)));
    let job = move |flow: &mut Dataflow| {
        let failed = Arc::clone(&failed);
        let middle = Nexmark::new(EVENTS).generator().time_ms(EVENTS * 2 / 3);
        let events = Nexmark::new(EVENTS).rate(EVENTS * 2).events(flow).inspect(move |event| {
            let first = event.date_time() >= middle && !failed.swap(true, Ordering::Relaxed);
            assert!(!first, "a failure that the test wants");
        });
        queries::q2(&Streams::new(&events)).collect("selected", &inside);
        Ok(())
    };
    let mut settings = JobSettings {
        workers: 2,
        restart: RestartPolicy::Fixed { restarts: 3, delay_ms: 1 },
        ..JobSettings::default()
    };
    settings.checkpoints.interval_ms = Some(50);
    let components = Components::new(Some(Arc::new(MemoryStorage::new())));
    let report = millpond::run_with(job, &settings, &components).unwrap();
    let generator = Nexmark::new(EVENTS).generator();
    let mut expected: Vec<queries::BidPrice> = (0..EVENTS)
        .filter_map(|number| match generator.event(number) {
            Event::Bid(bid) if bid.auction.is_multiple_of(123) => {
                Some(queries::BidPrice { auction: bid.auction, price: bid.price })
            }
            _ => None,
        })
        .collect();
    let mut selected = out.take();
    selected.sort();
    expected.sort();
    assert_eq!(selected, expected);
    assert!(report.restarts == 1 && report.epoch.0 > 1, "{report:?}");
}
