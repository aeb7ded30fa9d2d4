//! The plan of a job: its operators grouped in chains, and the exchanges between chains.
//!
//! A chain runs in one subtask: batches pass between its operators by a function call. An operator
//! joins the chain of its inputs when all of them come forward from that one chain at the same
//! parallelism; every other edge is an exchange. The plan is pure data, the same on every worker.

use std::fmt::Write as _;

use millpond_core::MaxParallelism;

use crate::batch::DecodeBatch;
use crate::graph::{Graph, OperatorIndex};
use crate::partition::{MakePartition, Routing};

/// Index of a chain in the plan; every chain comes after the chains it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainIndex(pub usize);

/// Index of an exchange in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EdgeIndex(pub usize);

/// Where an output port of an operator leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To another operator of the same chain.
    Local {
        /// Position of the operator in the chain.
        position: usize,
        /// Which of its inputs.
        input: usize,
    },
    /// To an exchange.
    Exchange(EdgeIndex),
}

/// An operator inside a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainedOperator {
    /// Which operator.
    pub operator: OperatorIndex,
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: &'static str,
    /// Where each output port leads; a port may lead to several places or to none.
    pub destinations: Vec<(usize, Destination)>,
}

/// Operators that run together in one subtask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainPlan {
    /// Number of subtasks.
    pub parallelism: u32,
    /// The operators, inputs before readers.
    pub operators: Vec<ChainedOperator>,
    /// Exchanges that lead in.
    pub inputs: Vec<EdgeIndex>,
    /// Exchanges that lead out.
    pub outputs: Vec<EdgeIndex>,
}

/// An exchange between two chains.
#[derive(Clone, Debug)]
pub struct EdgePlan {
    /// The sending chain.
    pub from: ChainIndex,
    /// The receiving chain.
    pub to: ChainIndex,
    /// Position of the receiving operator in its chain.
    pub position: usize,
    /// Which of its inputs.
    pub input: usize,
    /// How records are distributed.
    pub routing: Routing,
    /// Makes the distributor for [`Routing::Hash`].
    pub hash: Option<MakePartition>,
    /// Reads a batch from the wire.
    pub decode: DecodeBatch,
}

/// The whole job.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of workers.
    pub workers: u32,
    /// Number of key groups.
    pub max_parallelism: MaxParallelism,
    /// The chains, readers after what they read.
    pub chains: Vec<ChainPlan>,
    /// The exchanges.
    pub edges: Vec<EdgePlan>,
}

impl Plan {
    /// Plans `graph` for `workers` workers.
    #[must_use]
    pub fn new(graph: &Graph, workers: u32, max_parallelism: MaxParallelism) -> Plan {
        let mut plan = Plan { workers, max_parallelism, chains: Vec::new(), edges: Vec::new() };
        // Where each operator went: chain and position in it.
        let mut placed: Vec<(ChainIndex, usize)> = Vec::with_capacity(graph.operators.len());
        for (index, entry) in graph.operators.iter().enumerate() {
            let parallelism = entry.parallelism.unwrap_or(workers).min(workers);
            let chained = ChainedOperator {
                operator: OperatorIndex(index),
                name: entry.name.clone(),
                kind: entry.kind,
                destinations: Vec::new(),
            };
            let joined = plan.chain_to_join(entry, parallelism, &placed);
            let chain = joined.unwrap_or_else(|| plan.open_chain(parallelism));
            let position = plan.chains[chain.0].operators.len();
            plan.chains[chain.0].operators.push(chained);
            placed.push((chain, position));
            for (input, source) in entry.inputs.iter().enumerate() {
                let (from, from_position) = placed[source.from.operator.0];
                let destination = if joined.is_some() {
                    Destination::Local { position, input }
                } else {
                    let same = plan.chains[from.0].parallelism == parallelism;
                    let routing = match source.routing {
                        Routing::Forward if !same => Routing::Rebalance,
                        routing => routing,
                    };
                    let edge = EdgePlan {
                        from,
                        to: chain,
                        position,
                        input,
                        routing,
                        hash: source.partition,
                        decode: source.decode,
                    };
                    Destination::Exchange(plan.add_edge(edge))
                };
                plan.chains[from.0].operators[from_position].destinations.push((source.from.port, destination));
            }
        }
        plan
    }

    fn chain_to_join(
        &self,
        entry: &crate::graph::OperatorEntry,
        parallelism: u32,
        placed: &[(ChainIndex, usize)],
    ) -> Option<ChainIndex> {
        let (chain, _) = placed[entry.inputs.first()?.from.operator.0];
        let all = entry
            .inputs
            .iter()
            .all(|input| input.routing == Routing::Forward && placed[input.from.operator.0].0 == chain);
        (all && self.chains[chain.0].parallelism == parallelism).then_some(chain)
    }

    fn open_chain(&mut self, parallelism: u32) -> ChainIndex {
        let chain = ChainPlan { parallelism, operators: Vec::new(), inputs: Vec::new(), outputs: Vec::new() };
        self.chains.push(chain);
        ChainIndex(self.chains.len() - 1)
    }

    fn add_edge(&mut self, edge: EdgePlan) -> EdgeIndex {
        let index = EdgeIndex(self.edges.len());
        self.chains[edge.from.0].outputs.push(index);
        self.chains[edge.to.0].inputs.push(index);
        self.edges.push(edge);
        index
    }

    /// Number of subtasks over all chains.
    #[must_use]
    pub fn subtasks(&self) -> u32 {
        self.chains.iter().map(|chain| chain.parallelism).sum()
    }

    /// The plan for a reader on a terminal.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (index, chain) in self.chains.iter().enumerate() {
            let names: Vec<&str> = chain.operators.iter().map(|operator| operator.name.as_str()).collect();
            let _ = writeln!(text, "chain {index} (×{}): {}", chain.parallelism, names.join(" → "));
            for edge in &chain.inputs {
                let edge = &self.edges[edge.0];
                let to = &chain.operators[edge.position].name;
                let _ = writeln!(text, "  ← chain {} by {} into {to}", edge.from.0, routing_word(edge.routing));
            }
        }
        text
    }

    /// The plan as a graph in the DOT language.
    #[must_use]
    pub fn to_dot(&self) -> String {
        let mut dot = String::from("digraph plan {\n  rankdir=LR;\n  node [shape=box];\n");
        for (index, chain) in self.chains.iter().enumerate() {
            let _ = writeln!(dot, "  subgraph cluster_{index} {{\n    label=\"chain {index} ×{}\";", chain.parallelism);
            for operator in &chain.operators {
                let (id, name) = (operator.operator.0, operator.name.replace('"', "\\\""));
                let _ = writeln!(dot, "    o{id} [label=\"{name}\\n{}\"];", operator.kind);
            }
            dot.push_str("  }\n");
        }
        for chain in &self.chains {
            for operator in &chain.operators {
                for (_, destination) in &operator.destinations {
                    let (to, label) = match destination {
                        Destination::Local { position, .. } => (chain.operators[*position].operator.0, ""),
                        Destination::Exchange(edge) => {
                            let edge = &self.edges[edge.0];
                            let to = self.chains[edge.to.0].operators[edge.position].operator.0;
                            (to, routing_word(edge.routing))
                        }
                    };
                    let _ = writeln!(dot, "  o{} -> o{to} [label=\"{label}\"];", operator.operator.0);
                }
            }
        }
        dot.push_str("}\n");
        dot
    }
}

/// The routing in one word.
#[must_use]
pub fn routing_word(routing: Routing) -> &'static str {
    match routing {
        Routing::Forward => "forward",
        Routing::Hash => "hash",
        Routing::Rebalance => "rebalance",
        Routing::Broadcast => "broadcast",
    }
}
