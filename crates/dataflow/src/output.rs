//! Where operators put what they produce.
//!
//! User code emits single records into a typed [`Output`]; the operator hands full batches to the
//! erased [`Outputs`], from which the runtime takes them on their way.

use std::any::{Any, TypeId};
use std::marker::PhantomData;

use millpond_core::Data;

use crate::BATCH_RECORDS;
use crate::batch::{Batch, BoxBatch, NO_TIME};
use crate::time::{Element, TimeMark};

/// Port of the main output of an operator. Side outputs have the ports after it.
pub const MAIN_PORT: usize = 0;

/// Names a side output and its record type.
///
/// ```
/// use millpond_dataflow::SideTag;
/// const LATE: SideTag<u64> = SideTag::new("late");
/// assert_eq!(LATE.name(), "late");
/// ```
pub struct SideTag<T> {
    name: &'static str,
    records: PhantomData<fn() -> T>,
}

impl<T> Clone for SideTag<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for SideTag<T> {}

impl<T> SideTag<T> {
    /// A side output called `name`. The name is unique within its operator.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        SideTag { name, records: PhantomData }
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

/// A side output that somebody listens to.
#[derive(Clone, Debug)]
pub struct SidePort {
    /// Name of the tag.
    pub name: &'static str,
    /// Type of its records.
    pub record_type: TypeId,
    /// Output port of the operator.
    pub port: usize,
}

/// Collects the records that user code emits, and gathers them in batches.
pub struct Output<R> {
    batch: Batch<R>,
    full: Vec<Batch<R>>,
    time: i64,
    sides: Vec<Side>,
}

/// See [`Output::position`].
#[derive(Clone, Copy, Debug)]
pub struct OutputPosition {
    batches: usize,
    records: usize,
}

impl<R> Default for Output<R> {
    fn default() -> Self {
        Output { batch: Batch::default(), full: Vec::new(), time: NO_TIME, sides: Vec::new() }
    }
}

struct Side {
    port: SidePort,
    batch: Box<dyn AnySide>,
}

trait AnySide: Any {
    fn take(&mut self) -> Option<BoxBatch>;
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

impl<S: Data> AnySide for Batch<S> {
    fn take(&mut self) -> Option<BoxBatch> {
        (!self.records.is_empty()).then(|| std::mem::take(self).boxed())
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

struct Unused;

impl AnySide for Unused {
    fn take(&mut self) -> Option<BoxBatch> {
        None
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl<R: Data> Output<R> {
    /// An output without side outputs.
    #[must_use]
    pub fn new() -> Self {
        Output::default()
    }

    /// Says which side outputs somebody listens to. Called once, when the operator opens.
    pub fn listen(&mut self, sides: &[SidePort]) {
        self.sides = sides.iter().map(|port| Side { port: port.clone(), batch: Box::new(Unused) }).collect();
    }

    /// Sets the event time that records emitted from now on carry; [`NO_TIME`] for none.
    #[inline]
    pub fn set_time(&mut self, time: i64) {
        self.time = time;
    }

    /// Emits a record with the event time of the record being processed, if that has one.
    #[inline]
    pub fn emit(&mut self, record: R) {
        if self.time != NO_TIME || !self.batch.times.is_empty() {
            self.push_time(self.time);
        }
        self.batch.records.push(record);
        if self.batch.records.len() >= BATCH_RECORDS {
            self.close_batch();
        }
    }

    /// Emits a record with an event time, in milliseconds.
    #[inline]
    pub fn emit_at(&mut self, record: R, time_ms: i64) {
        let before = std::mem::replace(&mut self.time, time_ms);
        self.emit(record);
        self.time = before;
    }

    /// Emits a record to a side output. Nothing happens when nobody listens to it.
    pub fn emit_side<S: Data>(&mut self, tag: SideTag<S>, record: S) {
        let Some(side) = self.sides.iter_mut().find(|side| side.port.name == tag.name) else { return };
        if side.port.record_type != TypeId::of::<S>() {
            // Two tags of one name and different types: the one that is listened to wins.
            return;
        }
        if !side.batch.as_any_mut().is::<Batch<S>>() {
            side.batch = Box::new(Batch::<S>::default());
        }
        if let Some(batch) = side.batch.as_any_mut().downcast_mut::<Batch<S>>() {
            if self.time != NO_TIME || !batch.times.is_empty() {
                batch.times.resize(batch.records.len(), NO_TIME);
                batch.times.push(self.time);
            }
            batch.records.push(record);
        }
    }

    /// Number of records that wait to be taken.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.full.len() * BATCH_RECORDS + self.batch.records.len()
    }

    /// How much was emitted since the last flush, to tell later what has come since.
    #[must_use]
    pub fn position(&self) -> OutputPosition {
        OutputPosition { batches: self.full.len(), records: self.batch.records.len() }
    }

    /// The batches with records emitted since `position`, each with the index of its first such record.
    pub fn since(&mut self, position: OutputPosition) -> impl Iterator<Item = (usize, &mut Batch<R>)> {
        let batches = self.full.iter_mut().skip(position.batches).chain(std::iter::once(&mut self.batch));
        let from = std::iter::once(position.records).chain(std::iter::repeat(0));
        from.zip(batches).filter(|(from, batch)| *from < batch.len())
    }

    /// Moves everything emitted so far to `outputs`.
    pub fn flush(&mut self, outputs: &mut Outputs) {
        for batch in self.full.drain(..) {
            outputs.push(MAIN_PORT, batch.boxed());
        }
        if !self.batch.records.is_empty() {
            let capacity = self.batch.records.len();
            let records = std::mem::replace(&mut self.batch.records, Vec::with_capacity(capacity));
            let times = std::mem::take(&mut self.batch.times);
            outputs.push(MAIN_PORT, Batch { records, times }.boxed());
        }
        for side in &mut self.sides {
            if let Some(batch) = side.batch.take() {
                outputs.push(side.port.port, batch);
            }
        }
    }

    #[cold]
    fn close_batch(&mut self) {
        let records = std::mem::replace(&mut self.batch.records, Vec::with_capacity(BATCH_RECORDS));
        let times = std::mem::take(&mut self.batch.times);
        self.full.push(Batch { records, times });
    }

    fn push_time(&mut self, time: i64) {
        self.batch.times.resize(self.batch.records.len(), NO_TIME);
        self.batch.times.push(time);
    }
}

/// Batches that an operator has produced and the runtime has not yet taken, and marks of event time among them.
#[derive(Default)]
pub struct Outputs {
    elements: Vec<(usize, Element)>,
    records: usize,
}

impl Outputs {
    /// Adds a batch for output `port`.
    pub fn push(&mut self, port: usize, batch: BoxBatch) {
        self.records += batch.len();
        self.elements.push((port, Element::Batch(batch)));
    }

    /// Adds a mark of event time, behind everything pushed before. It goes to every port.
    pub fn mark(&mut self, mark: TimeMark) {
        self.elements.push((MAIN_PORT, Element::Mark(mark)));
    }

    /// Number of records that wait here.
    #[must_use]
    pub fn records(&self) -> usize {
        self.records
    }

    /// Roughly how many bytes of memory wait here.
    #[must_use]
    pub fn estimate_bytes(&self) -> usize {
        self.elements.iter().map(|(_, element)| element.estimate_bytes()).sum()
    }

    /// Takes everything, in the order in which it was pushed, with the port of each batch.
    pub fn drain(&mut self) -> std::vec::Drain<'_, (usize, Element)> {
        self.records = 0;
        self.elements.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ODD: SideTag<String> = SideTag::new("odd");

    #[test]
    fn records_are_gathered_in_batches_and_keep_their_order() {
        let mut output = Output::<u64>::new();
        let mut outputs = Outputs::default();
        for i in 0..2_500 {
            output.emit(i);
        }
        output.flush(&mut outputs);
        let batches: Vec<Batch<u64>> =
            outputs.drain().filter_map(|(_, batch)| Some(batch.into_batch()?.downcast())).collect();
        assert_eq!(batches.iter().map(Batch::len).collect::<Vec<_>>(), [1_024, 1_024, 452]);
        assert!(batches.iter().flat_map(|batch| &batch.records).copied().eq(0..2_500));
    }

    #[test]
    fn wm_19_a_record_without_time_beside_one_with_time_has_none() {
        let mut output = Output::<u64>::new();
        let mut outputs = Outputs::default();
        output.emit(1);
        output.emit_at(2, 77);
        output.emit(3);
        output.flush(&mut outputs);
        let batch = outputs.drain().next().unwrap().1.into_batch().unwrap().downcast::<u64>();
        assert_eq!(batch.times, [NO_TIME, 77, NO_TIME]);
    }

    #[test]
    fn a_side_output_without_listener_drops_its_records() {
        let mut output = Output::<u64>::new();
        let mut outputs = Outputs::default();
        output.emit_side(ODD, "lost".to_owned());
        output.listen(&[SidePort { name: "odd", record_type: TypeId::of::<String>(), port: 1 }]);
        output.emit_side(ODD, "kept".to_owned());
        output.flush(&mut outputs);
        let (port, batch) = outputs.drain().next().unwrap();
        assert_eq!((port, batch.into_batch().unwrap().downcast::<String>().records), (1, vec!["kept".to_owned()]));
    }
}
