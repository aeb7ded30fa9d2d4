//! Operators without state: `map`, `filter`, `flat_map`, `inspect`, `union`, and their `try_` forms.

use std::marker::PhantomData;
use std::panic::Location;

use millpond_core::{Data, Key, UserResult};
use millpond_dataflow::graph::{Naming, NewOperator};
use millpond_dataflow::output::{MAIN_PORT, SidePort};
use millpond_dataflow::{BoxBatch, KeyedStream, OpenContext, Operator, OperatorContext, Output, Stream};

use crate::async_map::{AsyncMap, AsyncOperator};
use crate::broadcast::BroadcastConnected;
use crate::connect::Connected;
use crate::key_by::KeyBy;
use crate::process::{Process, ProcessOperator};
use crate::record::for_each_record;
use crate::watermarks::{AssignTimestamps, WatermarkStrategy};
use crate::windows::{AllWindowedStream, Windows};

/// Calls a function for each record.
pub(crate) struct Stateless<T, U, F> {
    function: F,
    output: Output<U>,
    input: PhantomData<fn(T)>,
}

impl<T, U: Data, F> Stateless<T, U, F> {
    pub(crate) fn new(function: F) -> Self {
        Stateless { function, output: Output::new(), input: PhantomData }
    }

    fn listen(&mut self, sides: &[SidePort]) {
        self.output.listen(sides);
    }
}

impl<T: Data, U: Data, F> Operator for Stateless<T, U, F>
where
    F: FnMut(T, &mut Output<U>) -> UserResult + 'static,
{
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.listen(context.sides);
        Ok(())
    }

    fn on_batch(
        &mut self,
        _input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        let function = &mut self.function;
        for_each_record(batch.downcast::<T>(), &mut self.output, context.outputs, |record, _, output| {
            function(record, output)
        })
    }
}

/// Passes batches on as they are: the meeting point of a union.
struct PassThrough;

impl Operator for PassThrough {
    fn open(&mut self, _context: &mut OpenContext<'_>) -> UserResult {
        Ok(())
    }

    fn on_batch(
        &mut self,
        _input: usize,
        batch: BoxBatch,
        context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        context.outputs.push(MAIN_PORT, batch);
        Ok(None)
    }
}

/// Methods of every stream.
///
/// The plain forms take functions that cannot fail; the `try_` forms take functions that return a
/// `Result`, whose error ends the attempt with the operator, the subtask and the cause named. A panic
/// in either does the same.
pub trait StreamOperators<T: Data> {
    /// Turns each record into another.
    #[track_caller]
    fn map<U: Data>(&self, function: impl FnMut(T) -> U + 'static) -> Stream<U>;

    /// Turns each record into another, or fails.
    #[track_caller]
    fn try_map<U: Data>(&self, function: impl FnMut(T) -> UserResult<U> + 'static) -> Stream<U>;

    /// Turns each record into any number of others.
    #[track_caller]
    fn flat_map<U: Data, I: IntoIterator<Item = U>>(&self, function: impl FnMut(T) -> I + 'static) -> Stream<U>;

    /// Turns each record into any number of others, or fails. The function emits into the output, side
    /// outputs included.
    #[track_caller]
    fn try_flat_map<U: Data>(&self, function: impl FnMut(T, &mut Output<U>) -> UserResult + 'static) -> Stream<U>;

    /// Keeps the records for which `predicate` holds.
    #[track_caller]
    fn filter(&self, predicate: impl FnMut(&T) -> bool + 'static) -> Stream<T>;

    /// Keeps the records for which `predicate` holds, or fails.
    #[track_caller]
    fn try_filter(&self, predicate: impl FnMut(&T) -> UserResult<bool> + 'static) -> Stream<T>;

    /// Looks at each record and passes it on.
    #[track_caller]
    fn inspect(&self, function: impl FnMut(&T) + 'static) -> Stream<T>;

    /// Joins this stream and another of the same type into one.
    #[track_caller]
    fn union(&self, other: &Stream<T>) -> Stream<T>;

    /// Begins event time anew: finds the event time of each record by `strategy`, and sends watermarks of its own;
    /// those from upstream end here, but for the last.
    #[track_caller]
    fn assign_timestamps(&self, strategy: WatermarkStrategy<T>) -> Stream<T>;

    /// Gives each record a key: all records of one key meet in one subtask of the next operator.
    #[track_caller]
    fn key_by<K: Key>(&self, key: impl FnMut(&T) -> K + 'static) -> KeyedStream<K, T>;

    /// Gives each record a key, or fails (KG-06).
    #[track_caller]
    fn try_key_by<K: Key>(&self, key: impl FnMut(&T) -> UserResult<K> + 'static) -> KeyedStream<K, T>;

    /// Cuts the stream into windows over all its records, whatever their keys; what becomes of them is said next.
    fn window_all(&self, windows: Windows<T>) -> AllWindowedStream<T>;

    /// Runs a function with operator state over a stream without keys.
    #[track_caller]
    fn process<P: Process<Input = T>>(&self, name: &str, process: P) -> Stream<P::Output>;

    /// Calls something outside of the job for each record, many at a time: `function` returns a future, which is
    /// polled on the subtask's thread and must not block (see [`BlockingPool`](crate::BlockingPool) for calls that
    /// do). Records under way are in the checkpoint and are called for again after a restore.
    #[track_caller]
    fn async_map<U: Data, F: Future<Output = UserResult<U>> + 'static>(
        &self,
        name: &str,
        how: AsyncMap<T>,
        function: impl FnMut(T) -> F + 'static,
    ) -> Stream<U>;

    /// Connects two streams of different types, to be processed by one function.
    fn connect<U: Data>(&self, other: &Stream<U>) -> Connected<T, U>;

    /// Connects a stream whose records go to every subtask, to keep as broadcast state.
    fn connect_broadcast<U: Data>(&self, rules: &Stream<U>) -> BroadcastConnected<T, U>;
}

impl<T: Data> StreamOperators<T> for Stream<T> {
    fn window_all(&self, windows: Windows<T>) -> AllWindowedStream<T> {
        AllWindowedStream::new(self.clone(), windows)
    }

    #[track_caller]
    fn map<U: Data>(&self, mut function: impl FnMut(T) -> U + 'static) -> Stream<U> {
        stateless(self, "map", move |record, output: &mut Output<U>| {
            output.emit(function(record));
            Ok(())
        })
    }

    #[track_caller]
    fn try_map<U: Data>(&self, mut function: impl FnMut(T) -> UserResult<U> + 'static) -> Stream<U> {
        stateless(self, "map", move |record, output: &mut Output<U>| {
            output.emit(function(record)?);
            Ok(())
        })
    }

    #[track_caller]
    fn flat_map<U: Data, I: IntoIterator<Item = U>>(&self, mut function: impl FnMut(T) -> I + 'static) -> Stream<U> {
        stateless(self, "flat_map", move |record, output: &mut Output<U>| {
            function(record).into_iter().for_each(|produced| output.emit(produced));
            Ok(())
        })
    }

    #[track_caller]
    fn try_flat_map<U: Data>(&self, function: impl FnMut(T, &mut Output<U>) -> UserResult + 'static) -> Stream<U> {
        stateless(self, "flat_map", function)
    }

    #[track_caller]
    fn filter(&self, mut predicate: impl FnMut(&T) -> bool + 'static) -> Stream<T> {
        stateless(self, "filter", move |record, output: &mut Output<T>| {
            if predicate(&record) {
                output.emit(record);
            }
            Ok(())
        })
    }

    #[track_caller]
    fn try_filter(&self, mut predicate: impl FnMut(&T) -> UserResult<bool> + 'static) -> Stream<T> {
        stateless(self, "filter", move |record, output: &mut Output<T>| {
            if predicate(&record)? {
                output.emit(record);
            }
            Ok(())
        })
    }

    #[track_caller]
    fn inspect(&self, mut function: impl FnMut(&T) + 'static) -> Stream<T> {
        stateless(self, "inspect", move |record, output: &mut Output<T>| {
            function(&record);
            output.emit(record);
            Ok(())
        })
    }

    #[track_caller]
    fn union(&self, other: &Stream<T>) -> Stream<T> {
        let location = Location::caller();
        self.dataflow().check_same(other.dataflow(), "union", location);
        let inputs = vec![self.input(), other.input()];
        let added = NewOperator { naming: Naming::Automatic("union"), kind: "union", location, inputs };
        let handle = self.dataflow().add_operator(added, PassThrough);
        Stream::new(self.dataflow().clone(), handle.output(MAIN_PORT))
    }

    #[track_caller]
    fn assign_timestamps(&self, strategy: WatermarkStrategy<T>) -> Stream<T> {
        let kind = "assign_timestamps";
        self.transform(Naming::Automatic(kind), kind, Location::caller(), AssignTimestamps::new(&strategy))
    }

    #[track_caller]
    fn key_by<K: Key>(&self, mut key: impl FnMut(&T) -> K + 'static) -> KeyedStream<K, T> {
        self.try_key_by(move |record| Ok(key(record)))
    }

    #[track_caller]
    fn try_key_by<K: Key>(&self, key: impl FnMut(&T) -> UserResult<K> + 'static) -> KeyedStream<K, T> {
        let operator = KeyBy::new(key);
        KeyedStream::new(self.transform(Naming::Automatic("key_by"), "key_by", Location::caller(), operator))
    }

    #[track_caller]
    fn process<P: Process<Input = T>>(&self, name: &str, process: P) -> Stream<P::Output> {
        let operator = ProcessOperator::new(process);
        self.transform(Naming::Given(name), "process", Location::caller(), operator)
    }

    #[track_caller]
    fn async_map<U: Data, F: Future<Output = UserResult<U>> + 'static>(
        &self,
        name: &str,
        how: AsyncMap<T>,
        function: impl FnMut(T) -> F + 'static,
    ) -> Stream<U> {
        let location = Location::caller();
        if let Err(error) = how.check() {
            self.dataflow().refuse(name, location, error);
        }
        self.transform(Naming::Given(name), "async_map", location, AsyncOperator::new(how, function))
    }

    fn connect<U: Data>(&self, other: &Stream<U>) -> Connected<T, U> {
        Connected::new(self.clone(), other.clone())
    }

    fn connect_broadcast<U: Data>(&self, rules: &Stream<U>) -> BroadcastConnected<T, U> {
        BroadcastConnected::new(self.clone(), rules.broadcast())
    }
}

#[track_caller]
fn stateless<T: Data, U: Data>(
    stream: &Stream<T>,
    kind: &'static str,
    function: impl FnMut(T, &mut Output<U>) -> UserResult + 'static,
) -> Stream<U> {
    stream.transform(Naming::Automatic(kind), kind, Location::caller(), Stateless::<T, U, _>::new(function))
}
