//! A source as an operator: its splits, their positions in operator state, and who reads which.
//!
//! Three operator states keep a source: `splits` (even-split list) holds the unfinished splits with their
//! positions; `known` (union list) holds the id of every split ever found, so that a split that has
//! ended is not read again and a new one is found by exactly one subtask; `ended` (union list) holds which
//! of them have ended, where new splits are looked for while running.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use millpond_core::{Epoch, UserResult, codec, hash::hash_bytes};
use millpond_dataflow::align::AlignmentMember;
use millpond_dataflow::{
    BoxBatch, Dataflow, OpenContext, Operator, OperatorContext, Output, ReadStatus, RestoredSplits, Source,
    SourceOperator, SourceStatus, Split, SplitReader, Stream,
};
use millpond_state::OperatorListState;

use crate::watermarks::{Pacer, SplitClock, Standing, WatermarkStrategy};

/// Methods of a job under construction that add sources.
pub trait SourceOperators {
    /// Adds a source. `name` identifies its positions in checkpoints.
    #[track_caller]
    fn source<S: Source>(&mut self, name: &str, source: S) -> Stream<S::Record>;

    /// Adds a source whose records have event times: each split has a clock of its own, by `strategy`. A source
    /// without a strategy takes no part in event time.
    #[track_caller]
    fn timed_source<S: Source>(
        &mut self,
        name: &str,
        source: S,
        strategy: WatermarkStrategy<S::Record>,
    ) -> Stream<S::Record>;
}

impl SourceOperators for Dataflow {
    #[track_caller]
    fn source<S: Source>(&mut self, name: &str, source: S) -> Stream<S::Record> {
        self.add_source(name, SplitSource::new(source, None))
    }

    #[track_caller]
    fn timed_source<S: Source>(
        &mut self,
        name: &str,
        source: S,
        strategy: WatermarkStrategy<S::Record>,
    ) -> Stream<S::Record> {
        self.add_source(name, SplitSource::new(source, Some(strategy)))
    }
}

/// Of so many snapshots whose epochs are not completed the positions are kept for who wants to know.
const PROGRESS_EPOCHS: usize = 64;

/// A reader that is open, and whether it has anything now.
struct OpenSplit<R: SplitReader> {
    reader: R,
    idle: bool,
    /// Whether it is ahead of others that it waits for.
    held: bool,
    clock: Option<SplitClock<R::Record>>,
}

/// The place of a subtask among the sources that wait for each other.
struct Aligned {
    member: AlignmentMember,
    max_drift_ms: i64,
}

/// Reads up to [`Source::concurrent_splits`] of its splits in turn; the others wait, not opened.
struct SplitSource<S: Source> {
    source: S,
    waiting: VecDeque<S::Split>,
    states: Option<SourceStates<S::Split>>,
    known: BTreeSet<String>,
    /// How many ids there were when they were last written to state; ids are never forgotten.
    stored_known: usize,
    /// Ids of splits that ended here, and of those that ended before the restore and whose share is ours.
    ended: BTreeSet<String>,
    stored_ended: usize,
    readers: VecDeque<OpenSplit<S::Reader>>,
    next_discovery_ms: i64,
    /// Splits that have ended since the last snapshot, when somebody wants to know.
    ended_since: Vec<S::Split>,
    /// Positions in snapshots of epochs that are not completed.
    progress: VecDeque<(Epoch, Vec<S::Split>)>,
    strategy: Option<WatermarkStrategy<S::Record>>,
    aligned: Option<Aligned>,
    pacer: Pacer,
    /// Since when there has been no split, once there was one.
    unoccupied: Unoccupied,
    output: Output<S::Record>,
}

/// Whether this subtask has splits to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unoccupied {
    /// It never had any.
    Always,
    /// It has.
    No,
    /// Its last one ended by this time.
    Since(i64),
}

struct SourceStates<P> {
    splits: OperatorListState<P>,
    known: OperatorListState<String>,
    ended: OperatorListState<String>,
}

impl<S: Source> SplitSource<S> {
    fn new(source: S, strategy: Option<WatermarkStrategy<S::Record>>) -> Self {
        let (interval_ms, immediate) = strategy.as_ref().map_or((0, false), |s| (s.interval_ms, s.is_immediate()));
        SplitSource {
            strategy,
            aligned: None,
            pacer: Pacer::new(interval_ms, immediate),
            source,
            waiting: VecDeque::new(),
            states: None,
            known: BTreeSet::new(),
            stored_known: 0,
            ended: BTreeSet::new(),
            stored_ended: 0,
            ended_since: Vec::new(),
            progress: VecDeque::new(),
            readers: VecDeque::new(),
            next_discovery_ms: i64::MIN,
            unoccupied: Unoccupied::Always,
            output: Output::new(),
        }
    }

    /// All subtasks deal out the same list, so that each split has one owner.
    fn deal_out(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        let source = &mut self.source;
        let name = format!("splits of {}", context.info.operator);
        let bytes = context.once.get_or_compute(&name, &mut || Ok(codec::encode(&source.enumerate()?)?))?;
        let splits: Vec<S::Split> = codec::decode(&bytes)?;
        for (index, split) in splits.into_iter().enumerate() {
            if self.known.insert(split.id()) && index as u32 % context.info.parallelism == context.info.index {
                self.waiting.push_back(split);
            }
        }
        Ok(())
    }

    /// Goes on with this subtask's unfinished splits, and deals out those that are new since the checkpoint.
    /// All subtasks hold the same ids, and one of them compares these with what there is now.
    fn resume(
        &mut self,
        context: &mut OpenContext<'_>,
        unfinished: Vec<S::Split>,
        known: BTreeSet<String>,
        ended: &BTreeSet<String>,
    ) -> UserResult {
        let known: Vec<String> = known.into_iter().collect();
        let source = &mut self.source;
        let name = format!("restored splits of {}", context.info.operator);
        let compare = &mut || Ok(codec::encode(&source.restore(&known, ended)?)?);
        let bytes = context.once.get_or_compute(&name, compare)?;
        let RestoredSplits::<S::Split> { ids, new } = codec::decode(&bytes)?;
        let present: BTreeMap<String, Option<String>> = known.into_iter().zip(ids).collect();
        let (parallelism, index) = (context.info.parallelism, context.info.index);
        self.known.extend(present.values().flatten().cloned());
        let ended = ended.iter().filter_map(|id| present.get(id)?.clone());
        self.ended.extend(ended.filter(|id| is_share_of(id, parallelism, index)));
        let unfinished = unfinished.into_iter().map(|split| {
            let id = present.get(&split.id()).cloned().flatten().unwrap_or_else(|| split.id());
            (split, id)
        });
        let unfinished: Vec<(S::Split, String)> = unfinished.collect();
        self.known.extend(unfinished.iter().map(|(_, id)| id.clone()));
        self.waiting.extend(self.source.resume(unfinished)?);
        if context.finished {
            return Ok(());
        }
        for (position, split) in new.into_iter().enumerate() {
            if self.known.insert(split.id()) && position as u32 % parallelism == index {
                self.waiting.push_back(split);
            }
        }
        Ok(())
    }

    /// A split that appears later belongs to the subtask that its name selects.
    fn discover(&mut self, context: &OperatorContext<'_>) -> UserResult {
        let Some(interval) = self.source.discovery_interval() else {
            return Ok(());
        };
        let now_ms = context.clock.now_ms();
        if now_ms < self.next_discovery_ms {
            return Ok(());
        }
        self.next_discovery_ms = now_ms.saturating_add(i64::try_from(interval.as_millis()).unwrap_or(i64::MAX));
        for split in self.source.discover()? {
            let id = split.id();
            let ours = is_share_of(&id, context.info.parallelism, context.info.index);
            if self.known.insert(id) && ours {
                self.waiting.push_back(split);
            }
        }
        Ok(())
    }

    /// Event time over the splits that are being read, and `ended` over those that have just come to their end;
    /// `None` when there is nothing new to say (WM-13). A source without a strategy is idle in it.
    fn standing(&mut self, ended: Option<Standing>, now_ms: i64) -> Option<Standing> {
        let Some(strategy) = &self.strategy else { return Some(Standing::Idle) };
        let clocks = self.readers.iter_mut().filter_map(|open| open.clock.as_mut());
        if let Some(standing) = Standing::of_all(clocks.map(SplitClock::standing).chain(ended)) {
            self.unoccupied = Unoccupied::No;
            return Some(standing);
        }
        // The last split has ended: the next may go on where it did, so that the others have to wait for it, for
        // as long as they wait for any split.
        match (self.unoccupied, strategy.idle_after_ms) {
            (Unoccupied::Always, _) => Some(Standing::Idle),
            (Unoccupied::No, _) => {
                self.unoccupied = Unoccupied::Since(now_ms);
                None
            }
            (Unoccupied::Since(since), Some(after)) if now_ms.saturating_sub(since) > after => Some(Standing::Idle),
            (Unoccupied::Since(_), _) => None,
        }
    }

    /// Which splits are too far ahead of the slowest of their group to be read now.
    fn hold_back(&mut self, operator: &str) {
        let Some(aligned) = &self.aligned else { return };
        let clocks = self.readers.iter_mut().filter_map(|open| open.clock.as_mut());
        let reached = match Standing::of_all(clocks.map(SplitClock::standing)) {
            Some(Standing::Active(watermark)) => Some(watermark),
            // Those that wait to be opened take no part.
            Some(Standing::Idle) | None => None,
        };
        let until_ms = aligned.member.report(reached).saturating_add(aligned.max_drift_ms);
        for open in &mut self.readers {
            let standing = open.clock.as_mut().map(SplitClock::standing);
            let held = matches!(standing, Some(Standing::Active(watermark)) if watermark > until_ms);
            if held != open.held {
                let split = open.reader.split().id();
                tracing::debug!(operator, split, until_ms, held, "a split waits for others, or goes on");
            }
            open.held = held;
        }
    }

    fn open_waiting(&mut self) -> UserResult {
        while self.readers.len() < self.source.concurrent_splits().max(1) {
            let Some(split) = self.waiting.pop_front() else { break };
            let reader = self.source.open_split(split)?;
            let clock = self.strategy.as_ref().map(SplitClock::new);
            self.readers.push_back(OpenSplit { reader, idle: false, held: false, clock });
        }
        Ok(())
    }
}

impl<S: Source> Operator for SplitSource<S> {
    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.output.listen(context.sides);
        let splits = context.states.list::<S::Split>("splits")?;
        let known = context.states.union_list::<String>("known")?;
        let ended = context.states.union_list::<String>("ended")?;
        if context.has_stored_state {
            let stored =
                |list: &OperatorListState<String>, context: &OpenContext<'_>| -> UserResult<BTreeSet<String>> {
                    Ok(list.get(context.states)?.iter().cloned().collect())
                };
            let (all_known, all_ended) = (stored(&known, context)?, stored(&ended, context)?);
            let unfinished = splits.get(context.states)?.to_vec();
            self.resume(context, unfinished, all_known, &all_ended)?;
        } else {
            self.deal_out(context)?;
        }
        // A restored list holds the shares of all subtasks: the first snapshot writes the own share again.
        self.stored_ended = if context.has_stored_state { usize::MAX } else { 0 };
        if let Some(alignment) = self.strategy.as_ref().and_then(|strategy| strategy.alignment.as_ref()) {
            let (group, info) = (context.once.alignment(&alignment.group), context.info);
            let member = group.join(&info.operator, info.index, info.parallelism);
            let max_drift_ms = alignment.max_drift_ms;
            self.aligned = Some(Aligned { member, max_drift_ms });
        }
        self.states = Some(SourceStates { splits, known, ended });
        Ok(())
    }

    fn on_batch(
        &mut self,
        _input: usize,
        _batch: BoxBatch,
        _context: &mut OperatorContext<'_>,
    ) -> UserResult<Option<BoxBatch>> {
        unreachable!("a source has no inputs")
    }

    fn prepare_snapshot(&mut self, epoch: Epoch, context: &mut OperatorContext<'_>) -> UserResult {
        if let Some(states) = &self.states {
            let open = self.readers.iter().map(|open| open.reader.split());
            let positions: Vec<S::Split> = open.chain(self.waiting.iter().cloned()).collect();
            if self.source.wants_progress() {
                let all = positions.iter().cloned().chain(self.ended_since.drain(..));
                self.progress.push_back((epoch, all.collect()));
                if self.progress.len() > PROGRESS_EPOCHS {
                    self.progress.pop_front();
                }
            }
            states.splits.update(context.states, positions)?;
            // Union state is gathered from all subtasks: each writes a share, so that it does not grow
            // with the parallelism. All ids are known everywhere once discovered or dealt out.
            let (parallelism, index) = (context.info.parallelism, context.info.index);
            if self.known.len() != self.stored_known {
                self.stored_known = self.known.len();
                let share = self.known.iter().filter(|id| is_share_of(id, parallelism, index));
                let share: Vec<String> = share.cloned().collect();
                states.known.update(context.states, share)?;
            }
            if self.ended.len() != self.stored_ended {
                self.stored_ended = self.ended.len();
                states.ended.update(context.states, self.ended.iter().cloned())?;
            }
        }
        Ok(())
    }

    fn on_completed(&mut self, epoch: Epoch, _context: &mut OperatorContext<'_>) -> UserResult {
        let completed = self.progress.partition_point(|(at, _)| *at <= epoch);
        // Those that ended are in the list of their epoch only; of the others the newest position counts.
        let splits: BTreeMap<String, S::Split> =
            self.progress.drain(..completed).flat_map(|(_, splits)| splits).map(|split| (split.id(), split)).collect();
        if splits.is_empty() { Ok(()) } else { self.source.progress(splits.into_values().collect()) }
    }
}

impl<S: Source> SourceOperator for SplitSource<S> {
    fn poll(&mut self, limit: usize, context: &mut OperatorContext<'_>) -> UserResult<SourceStatus> {
        self.discover(context)?;
        let now_ms = context.clock.now_ms();
        // Splits take turns; one that has nothing now is asked again on the next poll.
        for open in &mut self.readers {
            open.idle = false;
        }
        self.open_waiting()?;
        self.hold_back(&context.info.operator);
        let mut ended = None;
        // One turn each at most: a reader may be ready for ever without emitting anything here, because
        // it skips records or sends them to a side output, and epochs must close all the same.
        for _ in 0..self.readers.len() {
            let wanted = limit.saturating_sub(self.output.pending());
            if wanted == 0 {
                break;
            }
            let Some(mut open) = self.readers.pop_front() else { break };
            if open.held {
                open.idle = true;
                self.readers.push_back(open);
                continue;
            }
            let before = self.output.position();
            let status = open.reader.read(wanted, &mut self.output)?;
            if let Some(clock) = &mut open.clock {
                let mut quiet = true;
                for (from, batch) in self.output.since(before) {
                    quiet = false;
                    clock.observe(from, batch, now_ms)?;
                }
                if quiet {
                    clock.quiet(now_ms);
                }
            }
            if status == ReadStatus::Finished {
                if self.source.wants_progress() {
                    self.ended_since.push(open.reader.split());
                }
                ended = Standing::of_all(ended.into_iter().chain(open.clock.as_mut().map(SplitClock::standing)));
            }
            match status {
                ReadStatus::Ready => self.readers.push_back(open),
                ReadStatus::Idle => {
                    open.idle = true;
                    self.readers.push_back(open);
                }
                ReadStatus::Finished if self.source.discovery_interval().is_some() => {
                    self.ended.insert(open.reader.split().id());
                }
                ReadStatus::Finished => {}
            }
        }
        let emitted = self.output.pending();
        let standing = self.standing(ended, now_ms);
        if matches!(standing, Some(Standing::Active(_))) {
            self.pacer.wake(context.outputs);
        }
        self.output.flush(context.outputs);
        let left = !self.readers.is_empty() || !self.waiting.is_empty();
        if !left && let Some(aligned) = &self.aligned {
            let _ = aligned.member.report(None);
        }
        let status = if !left && self.source.discovery_interval().is_none() {
            SourceStatus::Exhausted
        } else if emitted > 0 || !self.waiting.is_empty() || self.readers.iter().any(|open| !open.idle) {
            SourceStatus::Ready
        } else {
            SourceStatus::Idle
        };
        match standing {
            Some(Standing::Active(watermark)) => {
                self.pacer.offer(emitted, watermark, now_ms, context.outputs);
                if status != SourceStatus::Ready {
                    self.pacer.send(now_ms, context.outputs);
                }
            }
            // A source that has ended is not idle: its last watermark follows.
            Some(Standing::Idle) if status != SourceStatus::Exhausted => self.pacer.rest(now_ms, context.outputs),
            _ => {}
        }
        Ok(status)
    }
}

/// Whether what belongs to the split `id` alone is kept by subtask `index`.
fn is_share_of(id: &str, parallelism: u32, index: u32) -> bool {
    hash_bytes(id.as_bytes()) % u64::from(parallelism) == u64::from(index)
}
