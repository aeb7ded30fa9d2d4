//! State with a time to live, of all kinds that differ, beside state without one that knows what must be shown.
//!
//! What has expired depends on the clock, so a line says only whether everything that was shown was right: the clock of the
//! simulation stands still while a record is processed, so there is no doubt about that.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use millpond_core::{SplitMix64, UserResult};
use millpond_dataflow::{Dataflow, KeyedContext, OpenContext, Output};
use millpond_operators::{KeyedProcess, KeyedStreamOperators, SinkOperators, SourceOperators, StreamOperators};
use millpond_state::{ExpiringList, ExpiringMap, ExpiringValue, StateDeclarer, Ttl, ValueState};
use serde::{Deserialize, Serialize};

use super::{Cut, Expected, SimJob, States, lengths, same};
use crate::outside::{Line, Site, TransactionSink, Trap};
use crate::source::{Record, Script, ScriptSource};

/// What a line says when everything was shown as it must be.
const RIGHT: u64 = 1;
/// The value of a key's last line.
const LAST: u64 = u64::MAX;
/// After so many records, a key forgets its list and its map by itself.
const FORGETS: u64 = 12;
/// User keys of the map.
const BUCKETS: u64 = 3;

pub(super) struct Expiring {
    script: Rc<Script>,
    ttl_ms: u64,
}

impl Expiring {
    pub(super) fn new(random: &mut SplitMix64) -> Self {
        let lengths = lengths(random, 5, 250);
        let (keys, salt) = (1 + random.below(12), random.next_u64());
        let ttl_ms = [30, 300, 3_000][random.below(3) as usize];
        Expiring { script: Rc::new(Script { lengths, keys, own_keys: true, salt }), ttl_ms }
    }
}

impl SimJob for Expiring {
    fn build(&self, flow: &mut Dataflow, site: &Site) -> UserResult {
        flow.source("events", ScriptSource::new(&self.script, &site.trap))
            .key_by(|record| record.key)
            .process("recent", Recent { trap: site.trap.clone(), ttl_ms: self.ttl_ms, states: None })
            .sink("out", TransactionSink::new(site));
        Ok(())
    }

    fn sources(&self) -> Vec<(&'static str, Rc<Script>)> {
        vec![("events", Rc::clone(&self.script))]
    }

    fn expected(&self) -> Expected {
        let mut expected = Expected::new();
        for (key, records) in self.counts(&self.script.end()) {
            let lines = (0..records).map(|_| Some(RIGHT)).chain([Some(LAST)]);
            expected.insert(key, lines.collect());
        }
        expected
    }

    fn check_state(&self, cut: &Cut, states: &mut States<'_>) -> Result<(), String> {
        let found = states.keyed::<u64, u64>("recent", "noted", |backend| {
            let noted = backend.declarer().value::<Noted>("noted")?;
            Ok(noted.get(backend.states_mut())?.map_or(0, |noted| noted.records))
        })?;
        same("state of \"recent\"", &found, &self.counts(&cut["events"]))
    }
}

impl Expiring {
    /// Records of each key before `ends`.
    fn counts(&self, ends: &[u64]) -> BTreeMap<u64, u64> {
        let mut counts = BTreeMap::new();
        for (split, end) in ends.iter().enumerate() {
            self.script.records(split as u32, *end).for_each(|record| *counts.entry(record.key).or_default() += 1);
        }
        counts
    }
}

/// What a key knows of its expiring states: values and when they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    records: u64,
    written: Vec<(u64, i64)>,
    /// The value that reading renews.
    renewed: Option<(u64, i64)>,
}

impl Noted {
    /// What is not over of the values that the list and the map hold.
    fn live(&self, ttl_ms: i64, now_ms: i64) -> impl Iterator<Item = u64> {
        self.written.iter().filter(move |(_, at_ms)| at_ms + ttl_ms > now_ms).map(|(value, _)| *value)
    }

    /// The newest value of each bucket, over or not, as far as it is not over.
    fn buckets(&self, ttl_ms: i64, now_ms: i64) -> BTreeMap<u64, u64> {
        let newest: BTreeMap<u64, (u64, i64)> =
            self.written.iter().map(|(value, at_ms)| (value % BUCKETS, (*value, *at_ms))).collect();
        let live = newest.into_iter().filter(|(_, (_, at_ms))| at_ms + ttl_ms > now_ms);
        live.map(|(bucket, (value, _))| (bucket, value)).collect()
    }
}

#[derive(Clone, Copy)]
struct Declared {
    noted: ValueState<Noted>,
    last: ExpiringValue<u64>,
    renewed: ExpiringValue<u64>,
    all: ExpiringList<u64>,
    buckets: ExpiringMap<u64, u64>,
}

struct Recent {
    trap: Trap,
    ttl_ms: u64,
    states: Option<Declared>,
}

impl Declared {
    /// Whether the expiring states show what `noted` says.
    fn shows(&self, noted: &Noted, ttl_ms: i64, context: &mut KeyedContext<'_, u64>) -> UserResult<bool> {
        let now_ms = context.processing_time();
        let last = self.last.get(context)?.copied();
        let renewed = self.renewed.get(context)?.copied();
        let all = self.all.get(context)?.copied().collect::<Vec<u64>>();
        let mut buckets = BTreeMap::new();
        for bucket in 0..BUCKETS {
            if let Some(value) = self.buckets.get(context, &bucket)? {
                buckets.insert(bucket, *value);
            }
        }
        let newest = noted.written.last().filter(|(_, at_ms)| at_ms + ttl_ms > now_ms).map(|(value, _)| *value);
        let kept = noted.renewed.filter(|(_, at_ms)| at_ms + ttl_ms > now_ms).map(|(value, _)| value);
        let live: Vec<u64> = noted.live(ttl_ms, now_ms).collect();
        Ok(last == newest && renewed == kept && all == live && buckets == noted.buckets(ttl_ms, now_ms))
    }
}

impl KeyedProcess for Recent {
    type Key = u64;
    type Input = Record;
    type Output = Line;

    fn open(&mut self, states: &mut StateDeclarer<'_, u64>, _context: &mut OpenContext<'_>) -> UserResult {
        self.trap.spring()?;
        let ttl = Ttl::after(Duration::from_millis(self.ttl_ms));
        self.states = Some(Declared {
            noted: states.value("noted")?,
            last: states.expiring_value("last", ttl)?,
            renewed: states.expiring_value("renewed", ttl.on_read_and_write())?,
            all: states.expiring_list("all", ttl)?,
            buckets: states.expiring_map("buckets", ttl)?,
        });
        Ok(())
    }

    fn process(
        &mut self,
        record: Record,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<Line>,
    ) -> UserResult {
        self.trap.spring()?;
        let (Some(declared), ttl_ms) = (self.states, self.ttl_ms as i64) else { return Ok(()) };
        let Declared { noted, last, renewed, all, buckets } = declared;
        let mut known = noted.get(context)?.cloned().unwrap_or_default();
        let right = declared.shows(&known, ttl_ms, context)?;
        let (value, now_ms) = (record.value, context.processing_time());
        known.renewed = known.renewed.filter(|(_, at_ms)| at_ms + ttl_ms > now_ms).map(|(value, _)| (value, now_ms));
        known.records += 1;
        if known.records % FORGETS == 0 {
            known.written.clear();
            all.clear(context)?;
            buckets.clear(context)?;
            last.clear(context)?;
        } else {
            known.written.push((value, now_ms));
            all.add(context, value)?;
            buckets.put(context, value % BUCKETS, value)?;
            last.set(context, value)?;
        }
        if value % 4 == 0 {
            known.renewed = Some((value, now_ms));
            renewed.set(context, value)?;
        }
        let seq = known.records;
        noted.set(context, known)?;
        output.emit(Line { key: record.key, seq, value: if right { RIGHT } else { 0 } });
        Ok(())
    }

    fn on_end(&mut self, context: &mut KeyedContext<'_, u64>, output: &mut Output<Line>) -> UserResult {
        let Some(Declared { noted, .. }) = self.states else { return Ok(()) };
        context.for_each_key("noted", |states| {
            let records = noted.get(states)?.map_or(0, |noted| noted.records);
            let key = states.current_key().copied().unwrap_or(0);
            output.emit(Line { key, seq: records + 1, value: LAST });
            Ok(())
        })
    }
}
