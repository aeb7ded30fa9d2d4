use std::sync::Arc;
use std::task::Waker;

use millpond_core::hash::stable_hash;
use millpond_core::{Attempt, Clock, Epoch, KeyHash, ManualClock, MaxParallelism};
use millpond_dataflow::batch::Batch;
use millpond_dataflow::context::OncePerAttempt;
use millpond_dataflow::time::{Element, MIN_WATERMARK};
use millpond_dataflow::{AttemptEnd, Keyed, OpenContext, Operator, OperatorContext, Outputs, SubtaskInfo};
use millpond_state::{OperatorStateSnapshot, OperatorStates};

use super::function::AsWindowed;
use super::lattice::Lattice;
use super::slices::SliceOperator;
use super::*;

const MS: fn(u64) -> Duration = Duration::from_millis;
const GROUPS: u32 = 16;

struct Sum;

impl AggregateFunction for Sum {
    type Input = u64;
    type Accumulator = u64;
    type Output = u64;

    fn create_accumulator(&self) -> u64 {
        0
    }

    fn add(&self, input: u64, sum: &mut u64) {
        *sum += input;
    }

    fn result(&self, sum: &u64) -> u64 {
        *sum
    }

    fn merge(&self, one: u64, other: u64) -> u64 {
        one + other
    }
}

struct Alone;

impl OncePerAttempt for Alone {
    fn get_or_compute(&self, _name: &str, compute: &mut dyn FnMut() -> UserResult<Vec<u8>>) -> UserResult<Vec<u8>> {
        compute()
    }

    fn alignment(&self, group: &str) -> Arc<millpond_dataflow::align::AlignmentGroup> {
        millpond_dataflow::align::AlignmentGroups::default().group(group)
    }
}

/// One subtask of windows.
struct Subtask {
    operator: Box<dyn Operator>,
    states: OperatorStates,
    info: SubtaskInfo,
    outputs: Outputs,
    clock: Arc<dyn Clock>,
    watermark: i64,
}

type Restored = [OperatorStateSnapshot];

fn max() -> MaxParallelism {
    MaxParallelism::new(GROUPS).unwrap_or_default()
}

/// Sums of `windows` in subtask `index` of `parallelism`.
fn subtask(
    windows: &Windows<u64>,
    lateness_ms: i64,
    (index, parallelism): (u32, u32),
    from: &Restored,
) -> UserResult<Subtask> {
    let lattice = Lattice::of(windows).ok_or(WindowError::Count)?;
    let mut operator: SliceOperator<u64, _, _, Windowed<u64, u64>> =
        SliceOperator::new(lattice, lateness_ms, None, Sum, AsWindowed);
    let attempt = Attempt(1);
    let info = SubtaskInfo { operator: "sums".into(), index, parallelism, max_parallelism: max(), attempt };
    let mut states = OperatorStates::restore(from.iter().cloned());
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(0));
    let restored = !from.is_empty();
    let once = &Alone;
    let (stored_sections, sides, cold, finished, has_stored_state) = (&[], &[], None, false, restored);
    let states_mut = &mut states;
    operator.open(&mut OpenContext {
        info: &info,
        states: states_mut,
        stored_sections,
        restored,
        finished,
        takes_checkpoints: true,
        has_stored_state,
        sides,
        cold,
        once,
        clock: &clock,
        end: &AttemptEnd::default(),
    })?;
    let (operator, outputs) = (Box::new(operator), Outputs::default());
    Ok(Subtask { operator, states, info, outputs, clock, watermark: MIN_WATERMARK })
}

impl Subtask {
    fn call<R>(&mut self, call: impl FnOnce(&mut dyn Operator, &mut OperatorContext<'_>) -> R) -> R {
        let Subtask { operator, states, info, outputs, clock, watermark } = self;
        call(
            &mut **operator,
            &mut OperatorContext {
                info,
                states,
                outputs,
                clock,
                watermark: *watermark,
                gauge: &millpond_dataflow::TimeGauge::default(),
                waker: Waker::noop(),
            },
        )
    }

    /// What has come out: keys, starts of windows, sums.
    fn seen(&mut self) -> Vec<(u64, i64, u64)> {
        let batches = self.outputs.drain().filter_map(|(_, element)| match element {
            Element::Batch(batch) => Some(batch.downcast::<Windowed<u64, u64>>().records),
            Element::Mark(_) => None,
        });
        batches.flatten().map(|result| (result.key, result.window.start, result.value)).collect()
    }

    fn record(&mut self, key: u64, time: i64, value: u64) -> UserResult<Vec<(u64, i64, u64)>> {
        let batch = Batch { records: vec![Keyed { hash: hash(key), key, value }], times: vec![time] }.boxed();
        self.call(|operator, context| operator.on_batch(0, batch, context))?;
        Ok(self.seen())
    }

    fn advance(&mut self, watermark: i64) -> UserResult<Vec<(u64, i64, u64)>> {
        self.watermark = watermark;
        self.call(|operator, context| operator.on_watermark(watermark, context))?;
        Ok(self.seen())
    }

    fn snapshot(&mut self) -> UserResult<OperatorStateSnapshot> {
        self.call(|operator, context| operator.prepare_snapshot(Epoch(1), context))?;
        Ok(self.states.freeze())
    }
}

fn hash(key: u64) -> KeyHash {
    KeyHash::from_stable(stable_hash(&key, &mut Vec::new()).unwrap_or_default(), max())
}

/// A key of the lower half of the key groups and one of the upper.
fn keys() -> (u64, u64) {
    let first = |upper: bool| (0..).find(|key| (u32::from(hash(*key).group().0) >= GROUPS / 2) == upper);
    (first(false).unwrap_or_default(), first(true).unwrap_or_default())
}

/// The first subtask has come to `watermark`, the second nowhere.
fn differing(windows: &Windows<u64>, lateness_ms: i64, watermark: i64) -> UserResult<Vec<OperatorStateSnapshot>> {
    let mut first = subtask(windows, lateness_ms, (0, 2), &[])?;
    first.advance(watermark)?;
    Ok(vec![first.snapshot()?, subtask(windows, lateness_ms, (1, 2), &[])?.snapshot()?])
}

#[test]
fn tm_08_a_key_goes_on_from_where_the_windows_of_its_group_had_fired() {
    let (lower, upper) = keys();
    for windows in [Windows::tumbling(MS(10)), Windows::sliding(MS(10), MS(10)), Windows::cumulative(MS(10), MS(10))] {
        let from = differing(&windows, 100, 9).unwrap();
        let mut one = subtask(&windows, 100, (0, 1), &from).unwrap();
        assert_eq!(one.record(lower, 5, 3).unwrap(), [(lower, 0, 3)], "it had fired, and fires again");
        assert_eq!(one.record(upper, 5, 4).unwrap(), []);
        // Another restore before event time has come that far anew.
        let from = [one.snapshot().unwrap()];
        let mut one = subtask(&windows, 100, (0, 1), &from).unwrap();
        assert_eq!(one.record(lower, 5, 3).unwrap(), [(lower, 0, 3)]);
        assert_eq!(one.record(upper, 5, 4).unwrap(), []);
        assert_eq!(one.advance(9).unwrap(), [(upper, 0, 4)], "once");
        assert_eq!(one.record(upper, 6, 1).unwrap(), [(upper, 0, 5)]);
    }
}

#[test]
fn tm_08_a_record_that_was_late_for_its_key_stays_late() {
    let (lower, upper) = keys();
    let windows = Windows::tumbling(MS(10));
    let from = differing(&windows, 0, 9).unwrap();
    let mut halves = [subtask(&windows, 0, (0, 2), &from).unwrap(), subtask(&windows, 0, (1, 2), &from).unwrap()];
    halves[0].record(lower, 5, 3).unwrap();
    halves[1].record(upper, 5, 4).unwrap();
    assert_eq!(halves[0].advance(9).unwrap(), []);
    assert_eq!(halves[1].advance(9).unwrap(), [(upper, 0, 4)]);
    let mut one = subtask(&windows, 0, (0, 1), &from).unwrap();
    one.record(lower, 5, 3).unwrap();
    one.record(upper, 5, 4).unwrap();
    assert_eq!(one.advance(9).unwrap(), [(upper, 0, 4)]);
}

#[test]
fn other_windows_under_the_same_name_are_refused() {
    let stored = Windows::sliding(MS(10), MS(5));
    let from = [subtask(&stored, 0, (0, 1), &[]).unwrap().snapshot().unwrap()];
    for parallelism in [1, 2] {
        assert!(subtask(&stored, 7, (0, parallelism), &from).is_ok(), "lateness may change");
    }
    let others = [
        Windows::tumbling(MS(10)),
        Windows::sliding(MS(20), MS(5)),
        Windows::sliding(MS(10), MS(2)),
        Windows::sliding(MS(10), MS(5)).offset_ms(1),
        Windows::cumulative(MS(10), MS(5)),
    ];
    for other in &others {
        assert!(subtask(other, 0, (0, 1), &from).is_err());
    }
    let Err(error) = subtask(&others[1], 0, (0, 1), &from) else { panic!("refused") };
    assert_eq!(
        error.to_string(),
        "operator `sums` has sliding windows of 20 ms every 5 ms with an offset of 0 ms, but the checkpoint holds \
         sliding windows of 10 ms every 5 ms with an offset of 0 ms for it: give the new windows another name"
    );
}
