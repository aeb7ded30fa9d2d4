//! Events on their way to the coordinator: late by chance, in order for each sender.

use std::collections::{BTreeMap, VecDeque};

use millpond_checkpoint::Event;
use millpond_core::SplitMix64;

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sender {
    Keeper,
    Compaction,
    Engine,
    Outside,
    Upload(usize),
}

/// Events that have not arrived.
#[derive(Default)]
pub(crate) struct Mailbox {
    lanes: BTreeMap<Sender, VecDeque<(i64, Event)>>,
}

impl Mailbox {
    /// Sends an event that arrives at `due_ms`, or right after what the sender has sent before.
    pub(crate) fn send(&mut self, sender: Sender, due_ms: i64, event: Event) {
        let lane = self.lanes.entry(sender).or_default();
        let last_ms = lane.back().map_or(due_ms, |(last_ms, _)| *last_ms);
        lane.push_back((due_ms.max(last_ms), event));
    }

    /// An event that has arrived by `now_ms`, of a sender by chance.
    pub(crate) fn take(&mut self, now_ms: i64, random: &mut SplitMix64) -> Option<Event> {
        let arrived = |lane: &&Sender| self.lanes[*lane].front().is_some_and(|(due_ms, _)| *due_ms <= now_ms);
        let senders: Vec<Sender> = self.lanes.keys().filter(arrived).copied().collect();
        let sender = senders.get(random.below(senders.len() as u64) as usize)?;
        self.lanes.get_mut(sender)?.pop_front().map(|(_, event)| event)
    }
}
