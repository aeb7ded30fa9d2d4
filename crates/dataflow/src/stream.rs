//! Streams: what the user holds while describing a job.

use std::marker::PhantomData;
use std::panic::Location;

use millpond_core::{Data, Key};

use crate::batch::Keyed;
use crate::graph::{Dataflow, Input, Naming, NewOperator, OperatorHandle, OutputPort};
use crate::operator::Operator;
use crate::output::{MAIN_PORT, SideTag};
use crate::partition::{HashPartition, MakePartition, Routing};

/// A stream of records of `T`. Cheap to clone; using it several times branches it.
pub struct Stream<T> {
    dataflow: Dataflow,
    from: OutputPort,
    routing: Routing,
    records: PhantomData<fn() -> T>,
}

impl<T> Clone for Stream<T> {
    fn clone(&self) -> Self {
        Stream { dataflow: self.dataflow.clone(), from: self.from, routing: self.routing, records: PhantomData }
    }
}

impl<T: Data> Stream<T> {
    /// The stream that comes out of `from`.
    #[must_use]
    pub fn new(dataflow: Dataflow, from: OutputPort) -> Self {
        Stream { dataflow, from, routing: Routing::Forward, records: PhantomData }
    }

    /// The job it belongs to.
    #[must_use]
    pub fn dataflow(&self) -> &Dataflow {
        &self.dataflow
    }

    /// This stream as an input of an operator.
    #[must_use]
    pub fn input(&self) -> Input {
        Input::new::<T>(self.from, self.routing, None)
    }

    /// Adds an operator that reads this stream and returns the stream of its main output.
    ///
    /// This is the door for own operators; everything in the prelude is built on it.
    pub fn transform<U: Data>(
        &self,
        naming: Naming<'_>,
        kind: &'static str,
        location: &'static Location<'static>,
        operator: impl Operator + 'static,
    ) -> Stream<U> {
        let added = NewOperator { naming, kind, location, inputs: vec![self.input()] };
        let handle = self.dataflow.add_operator(added, operator);
        Stream::new(self.dataflow.clone(), handle.output(MAIN_PORT))
    }

    /// Distributes the records evenly over the subtasks of the next operator.
    #[must_use]
    pub fn rebalance(&self) -> Stream<T> {
        Stream { routing: Routing::Rebalance, ..self.clone() }
    }

    /// Sends every record to every subtask of the next operator.
    #[must_use]
    pub fn broadcast(&self) -> Stream<T> {
        Stream { routing: Routing::Broadcast, ..self.clone() }
    }

    /// Limits the operator that produces this stream to `subtasks` parallel instances.
    #[must_use]
    pub fn parallelism(self, subtasks: u32) -> Stream<T> {
        self.producer().set_parallelism(subtasks);
        self
    }

    /// The records that the operator producing this stream emits to side output `tag`.
    #[must_use]
    pub fn side_output<S: Data>(&self, tag: SideTag<S>) -> Stream<S> {
        let port = self.producer().side_output::<S>(tag.name());
        Stream::new(self.dataflow.clone(), port)
    }

    fn producer(&self) -> OperatorHandle {
        OperatorHandle::new(self.dataflow.clone(), self.from.operator)
    }
}

/// A stream whose records carry a key: all records of one key meet in one subtask.
pub struct KeyedStream<K, T> {
    stream: Stream<Keyed<K, T>>,
}

impl<K, T> Clone for KeyedStream<K, T> {
    fn clone(&self) -> Self {
        KeyedStream { stream: self.stream.clone() }
    }
}

impl<K: Key, T: Data> KeyedStream<K, T> {
    /// Records that an upstream operator has keyed already.
    #[must_use]
    pub fn new(stream: Stream<Keyed<K, T>>) -> Self {
        KeyedStream { stream }
    }

    /// The job it belongs to.
    #[must_use]
    pub fn dataflow(&self) -> &Dataflow {
        self.stream.dataflow()
    }

    /// This stream as an input of an operator, distributed by key group.
    #[must_use]
    pub fn input(&self) -> Input {
        let partition: MakePartition = |facts| Box::new(HashPartition::<K, T>::new(facts));
        Input::new::<Keyed<K, T>>(self.stream.from, Routing::Hash, Some(partition))
    }

    /// Adds a keyed operator and returns the stream of its main output.
    pub fn transform<U: Data>(
        &self,
        naming: Naming<'_>,
        kind: &'static str,
        location: &'static Location<'static>,
        operator: impl Operator + 'static,
    ) -> Stream<U> {
        let added = NewOperator { naming, kind, location, inputs: vec![self.input()] };
        let handle = self.dataflow().add_operator(added, operator);
        Stream::new(self.dataflow().clone(), handle.output(MAIN_PORT))
    }
}
