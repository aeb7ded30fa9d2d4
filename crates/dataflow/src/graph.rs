//! The graph of a job: operators with names, and the edges between them.
//!
//! Owns the rules that a job must obey before it may run: every stateful operator, source and sink has
//! a name, no name stands twice, every input exists. Does *not* own how operators are chained or placed
//! (see `plan`).

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::rc::Rc;

use millpond_core::error::panic_message;
use millpond_core::{Data, ErrorKind, NameError, name::check_name};

use crate::batch::{DecodeBatch, decode};
use crate::operator::{Instance, Operator, SourceOperator};
use crate::output::{MAIN_PORT, SidePort};
use crate::partition::{MakePartition, Routing};
use crate::stream::Stream;

/// A job that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// Two operators have one name.
    #[error("operator name {name:?} is used twice: at {first} and at {second}")]
    DuplicateName {
        /// The name.
        name: String,
        /// Where it was used first.
        first: String,
        /// Where it was used again.
        second: String,
    },
    /// A name that cannot be used.
    #[error("the operator at {location} has no usable name")]
    Name {
        /// Where.
        location: String,
        /// What is wrong with it.
        source: NameError,
    },
    /// The job has no source.
    #[error("the job has no source")]
    NoSource,
    /// A parallelism of zero.
    #[error("operator {name:?} at {location}: parallelism must be at least 1")]
    ZeroParallelism {
        /// The operator.
        name: String,
        /// Where.
        location: String,
    },
    /// A side output was asked for under one name with two types.
    #[error("side output {tag:?} of operator {operator:?} is used with two record types")]
    SideType {
        /// Name of the tag.
        tag: String,
        /// The operator.
        operator: String,
    },
    /// Streams of two jobs were mixed.
    #[error("operator {name:?} at {location} combines streams of different jobs")]
    ForeignStream {
        /// The operator.
        name: String,
        /// Where.
        location: String,
    },
    /// An operator that cannot do what is asked of it.
    #[error("operator {name:?} at {location} cannot be built")]
    Refused {
        /// The operator.
        name: String,
        /// Where.
        location: String,
        /// Why.
        source: millpond_core::UserError,
    },
    /// The job function itself failed.
    #[error("the job could not be built")]
    Job(#[source] millpond_core::UserError),
    /// The job function panicked.
    #[error("the job function panicked: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
    },
}

impl GraphError {
    /// Always [`ErrorKind::Invalid`].
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

/// Index of an operator in the graph, in the order in which the job added them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorIndex(pub usize);

/// One end of an edge: an output of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutputPort {
    /// The operator.
    pub operator: OperatorIndex,
    /// Which of its outputs.
    pub port: usize,
}

/// An input of an operator.
#[derive(Clone, Copy)]
pub struct Input {
    /// Where records come from.
    pub from: OutputPort,
    /// How they are distributed.
    pub routing: Routing,
    /// Makes the distributor for [`Routing::Hash`]; the others need no types.
    pub partition: Option<MakePartition>,
    /// Reads a batch from the wire.
    pub decode: DecodeBatch,
}

impl Input {
    /// An input that takes records of `R` from `from`.
    #[must_use]
    pub fn new<R: Data>(from: OutputPort, routing: Routing, partition: Option<MakePartition>) -> Self {
        Input { from, routing, partition, decode: decode::<R> }
    }
}

/// How an operator is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming<'a> {
    /// By the user's name; its state is stored under it.
    Given(&'a str),
    /// By what it does; it has no state.
    Automatic(&'a str),
}

/// An operator in the graph.
pub struct OperatorEntry {
    /// The user's name, or `map-3` for an operator without state.
    pub name: String,
    /// What it is: `map`, `process`, `source`, …
    pub kind: &'static str,
    /// Whether the user named it.
    pub named: bool,
    /// Where in the user's code.
    pub location: &'static Location<'static>,
    /// Upper limit of parallel instances; `None` for as many as there are workers.
    pub parallelism: Option<u32>,
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// Side outputs that somebody listens to.
    pub sides: Vec<SidePort>,
    /// The operator itself; taken out by whoever runs it.
    pub instance: Option<Instance>,
}

/// A job as a graph, checked.
pub struct Graph {
    /// Operators in an order in which every input comes before its reader.
    pub operators: Vec<OperatorEntry>,
}

#[derive(Default)]
struct Builder {
    operators: Vec<OperatorEntry>,
    names: HashMap<String, &'static Location<'static>>,
    error: Option<GraphError>,
}

impl Builder {
    fn fail(&mut self, error: GraphError) {
        self.error.get_or_insert(error);
    }
}

/// The job under construction. Given to the job function, once per worker.
#[derive(Clone, Default)]
pub struct Dataflow {
    builder: Rc<RefCell<Builder>>,
}

/// What is known of an operator when it is added.
pub struct NewOperator<'a> {
    /// How it is known.
    pub naming: Naming<'a>,
    /// What it is.
    pub kind: &'static str,
    /// Where in the user's code.
    pub location: &'static Location<'static>,
    /// Its inputs.
    pub inputs: Vec<Input>,
}

impl Dataflow {
    /// Builds and checks the graph that `job` describes.
    ///
    /// # Errors
    /// The first rule that the job breaks, with the places in the user's code.
    pub fn build(job: impl FnOnce(&mut Dataflow) -> millpond_core::UserResult) -> Result<Graph, GraphError> {
        let mut dataflow = Dataflow::default();
        let outcome = catch_unwind(AssertUnwindSafe(|| job(&mut dataflow)));
        let mut builder = std::mem::take(&mut *dataflow.builder.borrow_mut());
        if let Some(error) = builder.error.take() {
            return Err(error);
        }
        match outcome {
            Ok(built) => built.map_err(GraphError::Job)?,
            Err(payload) => return Err(GraphError::Panicked { message: panic_message(payload.as_ref()) }),
        }
        if !builder.operators.iter().any(|entry| matches!(entry.instance, Some(Instance::Source(_)))) {
            return Err(GraphError::NoSource);
        }
        Ok(Graph { operators: builder.operators })
    }

    /// Adds a source operator. Most users call `source` instead.
    #[track_caller]
    pub fn add_source<R: Data>(&mut self, name: &str, operator: impl SourceOperator + 'static) -> Stream<R> {
        let added = NewOperator {
            naming: Naming::Given(name),
            kind: "source",
            location: Location::caller(),
            inputs: Vec::new(),
        };
        let handle = self.add(added, Instance::Source(Box::new(operator)));
        Stream::new(self.clone(), handle.output(MAIN_PORT))
    }

    /// The operator called `name` cannot be built: the job will be refused for this reason.
    pub fn refuse(
        &self,
        name: &str,
        location: &'static Location<'static>,
        reason: impl Into<millpond_core::UserError>,
    ) {
        let (name, location, source) = (name.to_owned(), location.to_string(), reason.into());
        self.builder.borrow_mut().fail(GraphError::Refused { name, location, source });
    }

    /// Adds an operator with inputs.
    pub fn add_operator(&self, added: NewOperator<'_>, operator: impl Operator + 'static) -> OperatorHandle {
        self.add(added, Instance::Operator(Box::new(operator)))
    }

    fn add(&self, added: NewOperator<'_>, instance: Instance) -> OperatorHandle {
        let mut builder = self.builder.borrow_mut();
        let index = OperatorIndex(builder.operators.len());
        let location = added.location;
        let (name, named) = match added.naming {
            Naming::Given(name) => (name.to_owned(), true),
            Naming::Automatic(kind) => (format!("{kind}-{}", index.0), false),
        };
        if let Err(source) = check_name(&name) {
            builder.fail(GraphError::Name { location: location.to_string(), source });
        }
        if let Some(first) = builder.names.insert(name.clone(), location) {
            let (first, second) = (first.to_string(), location.to_string());
            builder.fail(GraphError::DuplicateName { name: name.clone(), first, second });
        }
        builder.operators.push(OperatorEntry {
            name,
            kind: added.kind,
            named,
            location,
            parallelism: None,
            inputs: added.inputs,
            sides: Vec::new(),
            instance: Some(instance),
        });
        OperatorHandle { dataflow: self.clone(), index }
    }

    /// Whether two streams belong to the same job; if not, the job does not build.
    pub fn check_same(&self, other: &Dataflow, name: &str, location: &'static Location<'static>) {
        if !Rc::ptr_eq(&self.builder, &other.builder) {
            let location = location.to_string();
            self.builder.borrow_mut().fail(GraphError::ForeignStream { name: name.to_owned(), location });
        }
    }
}

/// An operator that has been added.
#[derive(Clone)]
pub struct OperatorHandle {
    dataflow: Dataflow,
    index: OperatorIndex,
}

impl OperatorHandle {
    /// The operator `index` of `dataflow`.
    #[must_use]
    pub fn new(dataflow: Dataflow, index: OperatorIndex) -> Self {
        OperatorHandle { dataflow, index }
    }

    /// One of its outputs.
    #[must_use]
    pub fn output(&self, port: usize) -> OutputPort {
        OutputPort { operator: self.index, port }
    }

    /// Limits it to `subtasks` parallel instances.
    pub fn set_parallelism(&self, subtasks: u32) {
        let mut builder = self.dataflow.builder.borrow_mut();
        let entry = &mut builder.operators[self.index.0];
        entry.parallelism = Some(subtasks);
        if subtasks == 0 {
            let (name, location) = (entry.name.clone(), entry.location.to_string());
            builder.fail(GraphError::ZeroParallelism { name, location });
        }
    }

    /// The output port of side output `name` with records of `S`; somebody now listens to it.
    #[must_use]
    pub fn side_output<S: Data>(&self, name: &'static str) -> OutputPort {
        let mut builder = self.dataflow.builder.borrow_mut();
        let entry = &mut builder.operators[self.index.0];
        let record_type = TypeId::of::<S>();
        if let Some(side) = entry.sides.iter().find(|side| side.name == name) {
            let (port, stored_type) = (side.port, side.record_type);
            if stored_type != record_type {
                let operator = entry.name.clone();
                builder.fail(GraphError::SideType { tag: name.to_owned(), operator });
            }
            return self.output(port);
        }
        let port = entry.sides.len() + 1;
        entry.sides.push(SidePort { name, record_type, port });
        self.output(port)
    }
}
