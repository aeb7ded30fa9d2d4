//! Two sources, united and rebalanced; a buffer in operator list state with raw state beside it; two
//! branches and a side output, united again.

use std::collections::BTreeSet;
use std::rc::Rc;

use millpond_core::{SplitMix64, UserResult, codec};
use millpond_dataflow::{Dataflow, OpenContext, Output, ProcessContext, SideTag};
use millpond_operators::{Process, SinkOperators, SourceOperators, StreamOperators};
use millpond_state::OperatorListState;

use super::{Cut, Expected, SimJob, States, lengths, same};
use crate::outside::{Line, Site, TransactionSink, Trap};
use crate::source::{Record, Script, ScriptSource};

const THIRD: SideTag<Record> = SideTag::new("third");
/// Records wait until this many are there.
const BUFFER_RECORDS: usize = 5;
/// More than fits into a manifest.
const FILLER_BYTES: usize = 21 * 1_024;

pub(super) struct Branches {
    left: Rc<Script>,
    right: Rc<Script>,
    filler_bytes: usize,
}

impl Branches {
    pub(super) fn new(random: &mut SplitMix64) -> Self {
        let mut script = |splits| {
            let lengths = lengths(random, splits, 200);
            Rc::new(Script { lengths, keys: 1 << 20, own_keys: false, salt: random.next_u64() })
        };
        let (left, right) = (script(3), script(2));
        let filler_bytes = if random.chance(300) { FILLER_BYTES } else { 0 };
        Branches { left, right, filler_bytes }
    }

    fn script(&self, right: bool) -> &Script {
        if right { &self.right } else { &self.left }
    }
}

/// Names a record among those of both sources. Splits of the right source are tagged.
fn key_of(record: &Record) -> u64 {
    u64::from(record.split) << 32 | record.index
}

const RIGHT: u32 = 1 << 16;

impl SimJob for Branches {
    fn build(&self, flow: &mut Dataflow, site: &Site) -> UserResult {
        let left = flow.source("left", ScriptSource::new(&self.left, &site.trap));
        let right = flow
            .source("right", ScriptSource::new(&self.right, &site.trap))
            .map(|record| Record { split: record.split | RIGHT, ..record });
        let buffer = Buffer { trap: site.trap.clone(), filler_bytes: self.filler_bytes, waiting: None, passed: 0 };
        let buffered = left.union(&right).rebalance().process("buffer", buffer);
        let third = buffered.side_output(THIRD);
        let even = buffered.filter(|record| record.value % 2 == 0);
        let odd = buffered.filter(|record| record.value % 2 == 1).rebalance().inspect(|_| {}).parallelism(2);
        even.union(&odd)
            .union(&third)
            .map(|record| Line { key: key_of(&record), seq: 1, value: record.value })
            .sink("out", TransactionSink::new(site));
        Ok(())
    }

    fn sources(&self) -> Vec<(&'static str, Rc<Script>)> {
        vec![("left", Rc::clone(&self.left)), ("right", Rc::clone(&self.right))]
    }

    fn expected(&self) -> Expected {
        let mut expected = Expected::new();
        for right in [false, true] {
            let script = self.script(right);
            for (split, end) in script.end().into_iter().enumerate() {
                for record in script.records(split as u32, end) {
                    let split = record.split | if right { RIGHT } else { 0 };
                    expected.insert(key_of(&Record { split, ..record }), vec![Some(record.value)]);
                }
            }
        }
        expected
    }

    fn check_state(&self, cut: &Cut, states: &mut States<'_>) -> Result<(), String> {
        let total: u64 = cut.values().flatten().sum();
        let (mut passed, mut waiting) = (0, BTreeSet::new());
        for snapshot in states.operator("buffer") {
            passed += counts(snapshot.raw_pieces.iter().map(|piece| &**piece))?;
            let lists = snapshot.lists.iter().filter(|list| list.name == "waiting");
            for piece in lists.flat_map(|list| list.elements.iter()) {
                let record: Record = codec::decode(piece).map_err(|error| error.to_string())?;
                let (source, right) = if record.split & RIGHT > 0 { ("right", true) } else { ("left", false) };
                let split = record.split & !RIGHT;
                if record.index >= cut[source][split as usize] {
                    return Err(format!("{record:?} waits, but lies behind the cut {cut:?}"));
                }
                same("a waiting record", &record.value, &self.script(right).record(split, record.index).value)?;
                if !waiting.insert(key_of(&record)) {
                    return Err(format!("{record:?} waits twice"));
                }
            }
        }
        same("number of records counted in raw state", &passed, &total)
    }
}

/// Sum of the counts at the beginning of raw pieces.
fn counts<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Result<u64, String> {
    pieces
        .map(|piece| {
            let count: Option<[u8; 8]> = piece.get(..8).and_then(|bytes| bytes.try_into().ok());
            count.map(u64::from_le_bytes).ok_or_else(|| format!("a raw piece of {} bytes", piece.len()))
        })
        .sum()
}

struct Buffer {
    trap: Trap,
    filler_bytes: usize,
    waiting: Option<OperatorListState<Record>>,
    passed: u64,
}

impl Buffer {
    fn emit(records: Vec<Record>, output: &mut Output<Record>) {
        for record in records {
            if record.value % 3 == 0 {
                output.emit_side(THIRD, record);
            } else {
                output.emit(record);
            }
        }
    }
}

impl Process for Buffer {
    type Input = Record;
    type Output = Record;

    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.waiting = Some(context.states.list("waiting")?);
        self.passed = counts(context.states.raw_pieces().iter().map(|piece| &**piece))?;
        Ok(())
    }

    fn process(&mut self, record: Record, context: &mut ProcessContext<'_>, output: &mut Output<Record>) -> UserResult {
        self.trap.spring()?;
        self.passed += 1;
        let Some(waiting) = self.waiting else { return Ok(()) };
        waiting.add(context.operator_states_mut(), record)?;
        if waiting.get(context.operator_states())?.len() >= BUFFER_RECORDS {
            Buffer::emit(waiting.get(context.operator_states())?.to_vec(), output);
            waiting.update(context.operator_states_mut(), [])?;
        }
        Ok(())
    }

    fn snapshot(&mut self, _epoch: millpond_core::Epoch, context: &mut ProcessContext<'_>) -> UserResult {
        let mut piece = self.passed.to_le_bytes().to_vec();
        piece.resize(8 + self.filler_bytes, 0x5a);
        context.operator_states_mut().set_raw_pieces([piece]);
        Ok(())
    }

    fn on_end(&mut self, context: &mut ProcessContext<'_>, output: &mut Output<Record>) -> UserResult {
        let Some(waiting) = self.waiting else { return Ok(()) };
        Buffer::emit(waiting.get(context.operator_states())?.to_vec(), output);
        waiting.update(context.operator_states_mut(), [])?;
        Ok(())
    }
}
