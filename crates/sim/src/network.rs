//! The channels between subtasks: first in, first out, one per exchange, sender and receiver.
//!
//! Owns the order of messages and what a receiver may conclude from them: a channel carries batches and
//! the words "nothing below epoch e any more", and a receiver's frontier is the lowest word over all its
//! channels. Does *not* own when a message is delivered.

use std::collections::VecDeque;
use std::sync::Arc;

use millpond_core::Epoch;
use millpond_dataflow::Element;
use millpond_dataflow::plan::{EdgeIndex, Plan};
use millpond_runtime::{ChannelCredits, FlowLimits};

use crate::error::SimError;

/// What travels through a channel.
#[derive(Debug)]
pub(crate) enum Message {
    /// Records of an epoch, or what is said about event time in it.
    Element(Epoch, Element),
    /// Nothing below this epoch follows; nothing at all when `None`.
    Frontier(Option<Epoch>),
}

/// A channel from a subtask to another.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) edge: EdgeIndex,
    pub(crate) sender: u32,
    pub(crate) receiver: u32,
    queue: VecDeque<Message>,
    announced: Option<Epoch>,
    delivered: Option<Epoch>,
    credits: Arc<ChannelCredits>,
}

/// All channels of an attempt.
#[derive(Debug)]
pub(crate) struct Network {
    channels: Vec<Channel>,
    /// By exchange: the first of its channels, and its number of receivers.
    edges: Vec<(usize, u32)>,
}

impl Network {
    /// Empty channels for `plan`, all open from `first` on.
    pub(crate) fn new(plan: &Plan, limits: FlowLimits, first: Epoch) -> Network {
        let mut network = Network { channels: Vec::new(), edges: Vec::new() };
        for (index, edge) in plan.edges.iter().enumerate() {
            let (senders, receivers) = (plan.chains[edge.from.0].parallelism, plan.chains[edge.to.0].parallelism);
            network.edges.push((network.channels.len(), receivers));
            for (sender, receiver) in (0..senders).flat_map(|s| (0..receivers).map(move |r| (s, r))) {
                network.channels.push(Channel {
                    edge: EdgeIndex(index),
                    sender,
                    receiver,
                    queue: VecDeque::new(),
                    announced: Some(first),
                    delivered: Some(first),
                    credits: Arc::new(ChannelCredits::new(limits)),
                });
            }
        }
        network
    }

    fn of_edge(&self, edge: EdgeIndex) -> impl Iterator<Item = &Channel> {
        let (first, _) = self.edges[edge.0];
        self.channels[first..].iter().take_while(move |channel| channel.edge == edge)
    }

    fn at(&mut self, edge: EdgeIndex, sender: u32, receiver: u32) -> &mut Channel {
        let (first, receivers) = self.edges[edge.0];
        &mut self.channels[first + (sender * receivers + receiver) as usize]
    }

    /// Credits of the channels from `sender` over `edge`, by receiver.
    pub(crate) fn from(&self, edge: EdgeIndex, sender: u32) -> Vec<Arc<ChannelCredits>> {
        let channels = self.of_edge(edge).filter(|channel| channel.sender == sender);
        channels.map(|channel| Arc::clone(&channel.credits)).collect()
    }

    /// Credits of the channels to `receiver` over `edge`, by sender.
    pub(crate) fn to(&self, edge: EdgeIndex, receiver: u32) -> Vec<Arc<ChannelCredits>> {
        let channels = self.of_edge(edge).filter(|channel| channel.receiver == receiver);
        channels.map(|channel| Arc::clone(&channel.credits)).collect()
    }

    /// Sends a batch.
    ///
    /// # Errors
    /// When the sender has said that nothing of its epoch follows.
    pub(crate) fn send(
        &mut self,
        edge: EdgeIndex,
        sender: u32,
        receiver: u32,
        epoch: Epoch,
        element: Element,
    ) -> Result<(), SimError> {
        let channel = self.at(edge, sender, receiver);
        if channel.announced.is_none_or(|announced| epoch < announced) {
            let announced = channel.announced;
            let edge = edge.0;
            return Err(SimError::Network(format!(
                "subtask {sender} sent a batch of {epoch} over exchange {edge} after it had announced {announced:?}"
            )));
        }
        channel.queue.push_back(Message::Element(epoch, element));
        Ok(())
    }

    /// `sender` sends nothing below `frontier` over `edge` any more.
    pub(crate) fn announce(&mut self, edge: EdgeIndex, sender: u32, frontier: Option<Epoch>) {
        let (first, receivers) = self.edges[edge.0];
        let own = first + (sender * receivers) as usize;
        for channel in &mut self.channels[own..own + receivers as usize] {
            if channel.announced != frontier {
                channel.announced = frontier;
                channel.queue.push_back(Message::Frontier(frontier));
            }
        }
    }

    /// Indexes of the channels that hold messages.
    pub(crate) fn busy(&self) -> impl Iterator<Item = usize> {
        let channels = self.channels.iter().enumerate();
        channels.filter(|(_, channel)| !channel.queue.is_empty()).map(|(index, _)| index)
    }

    /// Takes the oldest message of a channel.
    pub(crate) fn pop(&mut self, channel: usize) -> Option<(EdgeIndex, u32, u32, Message)> {
        let channel = &mut self.channels[channel];
        let message = channel.queue.pop_front()?;
        if let Message::Frontier(frontier) = &message {
            channel.delivered = *frontier;
        }
        Some((channel.edge, channel.sender, channel.receiver, message))
    }

    /// The lowest epoch that may still reach `receiver` over `edges`; `None` when nothing can.
    pub(crate) fn frontier(&self, edges: &[EdgeIndex], receiver: u32) -> Option<Epoch> {
        let channels = edges.iter().flat_map(|edge| self.of_edge(*edge));
        channels.filter(|channel| channel.receiver == receiver).filter_map(|channel| channel.delivered).min()
    }

    /// Records in flight on all channels, as the credits have it.
    pub(crate) fn in_flight_records(&self) -> u64 {
        self.channels.iter().map(|channel| channel.credits.in_flight_records()).sum()
    }
}
