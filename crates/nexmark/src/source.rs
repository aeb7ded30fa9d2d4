//! The events as a source of a job.

use millpond::prelude::*;

use crate::generator::Generator;
use crate::model::Event;

/// Which events, and how they come.
///
/// Event `i` belongs to split `i mod splits`; the positions of the splits are operator state, so that a restored job goes
/// on with any number of subtasks.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Nexmark {
    events: u64,
    splits: u32,
    events_per_second: u64,
    rate: Option<u64>,
}

impl Nexmark {
    /// The first `events` events; `u64::MAX` never end. In 4 splits, 10,000 events in a second of event time, as fast as
    /// they go.
    pub fn new(events: u64) -> Self {
        Nexmark { events, splits: 4, events_per_second: 10_000, rate: None }
    }

    /// How many splits there are, at least one: so many subtasks can read.
    pub fn splits(self, splits: u32) -> Self {
        Nexmark { splits, ..self }
    }

    /// How many events happen in a second of event time.
    pub fn events_per_second(self, events_per_second: u64) -> Self {
        Nexmark { events_per_second, ..self }
    }

    /// How many events are emitted in a second of processing time, over all splits.
    pub fn rate(self, events_per_second: u64) -> Self {
        Nexmark { rate: Some(events_per_second), ..self }
    }

    /// What computes the events.
    #[must_use]
    pub fn generator(&self) -> Generator {
        Generator::new(self.events_per_second)
    }

    /// The events as a stream, with event time; each split is in order of time.
    #[track_caller]
    pub fn events(&self, flow: &mut Dataflow) -> Stream<Event> {
        let generator = self.generator();
        let source = GeneratorSource::new(self.events, self.splits, move |number| generator.event(number));
        let source = match self.rate {
            Some(rate) => source.rate(rate),
            None => source,
        };
        flow.timed_source("events", source, WatermarkStrategy::monotonous().timestamps(Event::date_time))
    }
}
