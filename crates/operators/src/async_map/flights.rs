//! The records under way, in the order of arrival, and the marks of event time among them. Pure.
//!
//! Owns which record is begun next, and which result or mark may go out next: nothing passes a mark, and with `ordered`
//! nothing passes an earlier record.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millpond_dataflow::TimeMark;

/// A record and its event time.
pub(crate) type Timed<T> = (T, i64);

/// How it stands with a record. `R` is what runs for it, `O` what came of it.
pub(crate) enum Phase<R, O> {
    /// Not begun.
    Queued,
    /// An attempt is running.
    Running(R),
    /// The next attempt comes later.
    Resting,
    /// Done; the result waits until it may go out.
    Done(O),
}

/// A record under way.
pub(crate) struct Flight<T, R, O> {
    pub(crate) record: Timed<T>,
    pub(crate) attempts: u32,
    pub(crate) phase: Phase<R, O>,
    /// When something is to be done about it by the clock, in milliseconds.
    due_ms: Option<i64>,
}

enum Entry<T, R, O> {
    Flight(Flight<T, R, O>),
    Mark(TimeMark),
}

/// What goes out next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Departure<T, O> {
    /// A record, with what came of it.
    Result(Timed<T>, O),
    /// A mark of event time.
    Mark(TimeMark),
}

/// See the module.
pub(crate) struct Flights<T, R, O> {
    ordered: bool,
    capacity: usize,
    entries: BTreeMap<u64, Entry<T, R, O>>,
    next: u64,
    marks: VecDeque<u64>,
    queued: VecDeque<u64>,
    done: BTreeSet<u64>,
    due: BTreeSet<(i64, u64)>,
    records: usize,
}

impl<T, R, O> Flights<T, R, O> {
    pub(crate) fn new(ordered: bool, capacity: usize) -> Self {
        Flights {
            ordered,
            capacity,
            entries: BTreeMap::new(),
            next: 0,
            marks: VecDeque::new(),
            queued: VecDeque::new(),
            done: BTreeSet::new(),
            due: BTreeSet::new(),
            records: 0,
        }
    }

    fn add(&mut self, entry: Entry<T, R, O>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.entries.insert(number, entry);
        number
    }

    /// A record has come.
    pub(crate) fn push(&mut self, record: T, time_ms: i64) {
        let phase = Phase::Queued;
        let number = self.add(Entry::Flight(Flight { record: (record, time_ms), attempts: 0, phase, due_ms: None }));
        self.queued.push_back(number);
        self.records += 1;
    }

    /// A mark has come, behind all records so far.
    pub(crate) fn mark(&mut self, mark: TimeMark) {
        let number = self.add(Entry::Mark(mark));
        self.marks.push_back(number);
    }

    /// Whether nothing is under way, marks included.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether no record is under way.
    pub(crate) fn has_no_records(&self) -> bool {
        self.records == 0
    }

    /// Whether another record could be begun at once.
    pub(crate) fn has_room(&self) -> bool {
        self.records < self.capacity
    }

    /// Whether a record that waits could be begun.
    pub(crate) fn can_begin(&self) -> bool {
        !self.queued.is_empty() && self.records - self.queued.len() < self.capacity
    }

    /// The next record to begin, if there is room.
    pub(crate) fn begin(&mut self) -> Option<u64> {
        if self.can_begin() { self.queued.pop_front() } else { None }
    }

    /// A record under way.
    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Flight<T, R, O>> {
        match self.entries.get_mut(&number)? {
            Entry::Flight(flight) => Some(flight),
            Entry::Mark(_) => None,
        }
    }

    /// A record moves on; until `due_ms`, when there is such a time.
    pub(crate) fn set(&mut self, number: u64, phase: Phase<R, O>, due_ms: Option<i64>) {
        let Some(Entry::Flight(flight)) = self.entries.get_mut(&number) else { return };
        if let Some(before) = std::mem::replace(&mut flight.due_ms, due_ms) {
            self.due.remove(&(before, number));
        }
        if let Some(due_ms) = due_ms {
            self.due.insert((due_ms, number));
        }
        if matches!(phase, Phase::Done(_)) {
            self.done.insert(number);
        }
        flight.phase = phase;
    }

    /// When the first of them is due.
    pub(crate) fn first_due(&self) -> Option<i64> {
        self.due.first().map(|(due_ms, _)| *due_ms)
    }

    /// One that is due by `now_ms`.
    pub(crate) fn next_due(&mut self, now_ms: i64) -> Option<u64> {
        let (_, number) = *self.due.first().filter(|(due_ms, _)| *due_ms <= now_ms)?;
        Some(number)
    }

    /// What may go out now.
    pub(crate) fn depart(&mut self) -> Option<Departure<T, O>> {
        let first = *self.entries.first_key_value()?.0;
        if self.marks.front() == Some(&first) {
            self.marks.pop_front();
            let Some(Entry::Mark(mark)) = self.entries.remove(&first) else { return None };
            return Some(Departure::Mark(mark));
        }
        let number = *self.done.first()?;
        let passes = if self.ordered { number > first } else { self.marks.front().is_some_and(|mark| number > *mark) };
        if passes {
            return None;
        }
        self.done.remove(&number);
        self.records -= 1;
        match self.entries.remove(&number) {
            Some(Entry::Flight(Flight { record, phase: Phase::Done(outcome), .. })) => {
                Some(Departure::Result(record, outcome))
            }
            _ => None,
        }
    }

    /// All records under way, in the order of arrival.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Timed<T>> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::Flight(flight) => Some(&flight.record),
            Entry::Mark(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Names = Flights<&'static str, (), u32>;

    fn departures(flights: &mut Names) -> Vec<String> {
        let name = |departure| match departure {
            Departure::Result((record, _), outcome) => format!("{record}{outcome}"),
            Departure::Mark(mark) => format!("{mark:?}"),
        };
        std::iter::from_fn(|| flights.depart()).map(name).collect()
    }

    fn flights(ordered: bool) -> Names {
        let mut flights = Flights::new(ordered, 10);
        for name in ["a", "b"] {
            flights.push(name, 0);
        }
        flights.mark(TimeMark::Idle);
        flights.push("c", 0);
        while flights.begin().is_some() {}
        flights
    }

    #[test]
    fn in_order_results_wait_for_earlier_ones() {
        let mut flights = flights(true);
        flights.set(3, Phase::Done(3), None);
        flights.set(1, Phase::Done(1), None);
        assert_eq!(departures(&mut flights), [""; 0]);
        flights.set(0, Phase::Done(0), None);
        assert_eq!(departures(&mut flights), ["a0", "b1", "Idle", "c3"]);
        assert!(flights.is_empty());
    }

    #[test]
    fn out_of_order_results_wait_only_for_marks() {
        let mut flights = flights(false);
        flights.set(3, Phase::Done(3), None);
        flights.set(1, Phase::Done(1), None);
        assert_eq!(departures(&mut flights), ["b1"]);
        flights.set(0, Phase::Done(0), None);
        assert_eq!(departures(&mut flights), ["a0", "Idle", "c3"]);
    }

    #[test]
    fn no_more_than_the_capacity_is_begun_and_each_is_due_once() {
        let mut flights = Flights::<u64, (), ()>::new(true, 2);
        (0..4).for_each(|record| flights.push(record, 0));
        assert_eq!([flights.begin(), flights.begin(), flights.begin()], [Some(0), Some(1), None]);
        flights.set(0, Phase::Running(()), Some(50));
        flights.set(1, Phase::Running(()), Some(40));
        assert_eq!((flights.first_due(), flights.next_due(39), flights.next_due(45)), (Some(40), None, Some(1)));
        flights.set(1, Phase::Done(()), None);
        assert_eq!((flights.first_due(), flights.begin()), (Some(50), None), "its result waits, and takes its place");
        flights.set(0, Phase::Done(()), None);
        assert!(flights.depart().is_some() && flights.depart().is_some());
        assert_eq!((flights.begin(), flights.first_due()), (Some(2), None));
    }
}
