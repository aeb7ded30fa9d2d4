//! Keyed operators, one behaviour each, and what becomes of their state.

use millpond_core::UserResult;
use millpond_dataflow::{Dataflow, KeyedContext, KeyedStream, OpenContext, Output, Stream};
use millpond_operators::{KeyedProcess, KeyedStreamOperators, StreamOperators};
use millpond_sim::{SimError, TestDriver, TestFlow, TestInput, TestOutput, TestStream};
use millpond_state::{AggregateFunction, ListState, MapState, StateDeclarer};

type Pair = (String, u64);

fn pair(key: &str, value: u64) -> Pair {
    (key.to_owned(), value)
}

fn by_name(pairs: &Stream<Pair>) -> KeyedStream<String, Pair> {
    pairs.key_by(|(name, _)| name.clone())
}

/// A driver, its input and its output, for one operator over pairs.
fn start<U: millpond_core::Data>(
    parallelism: u32,
    pipeline: impl Fn(KeyedStream<String, Pair>) -> Stream<U>,
) -> (TestDriver, TestInput<Pair>, TestOutput<U>) {
    let (input, output) = (TestInput::with_splits(3), TestOutput::new());
    let job = |flow: &mut Dataflow| {
        pipeline(by_name(&flow.test_input("in", &input))).test_output("out", &output);
        Ok(())
    };
    let driver = TestDriver::builder().parallelism(parallelism).build(job);
    (driver.expect("nothing in these jobs fails to open"), input, output)
}

#[test]
fn key_by_keeps_the_order_of_each_key() {
    let (mut driver, input, output) = start(4, |pairs| {
        pairs.process_with(
            "pass",
            |_| Ok(()),
            |(), pair, _context, output: &mut Output<Pair>| {
                output.emit(pair);
                Ok(())
            },
        )
    });
    for value in 0..3_000 {
        input.push_to(value % 3, pair(&format!("key {}", value % 3 + 3 * (value % 7)), value as u64));
    }
    driver.run().unwrap();
    let pairs = output.take();
    assert_eq!(pairs.len(), 3_000);
    for key in 0..30 {
        let name = format!("key {key}");
        let values: Vec<u64> = pairs.iter().filter(|(key, _)| *key == name).map(|(_, value)| *value).collect();
        assert!(values.is_sorted(), "{name}: {values:?}");
    }
}

#[test]
fn ks_40_reduce_begins_with_the_first_record() {
    let (mut driver, input, output) = start(1, |pairs| pairs.reduce("largest", |a, b| if a.1 > b.1 { a } else { b }));
    [("a", 3), ("b", 1), ("a", 2), ("a", 9)].into_iter().for_each(|(key, value)| input.push_to(0, pair(key, value)));
    driver.run().unwrap();
    let largest: Vec<(String, u64)> = output.take().into_iter().map(|(key, (_, value))| (key, value)).collect();
    assert_eq!(largest, [pair("a", 3), pair("b", 1), pair("a", 3), pair("a", 9)]);
    assert_eq!(driver.keyed_state("largest", "result", &"a".to_owned()).unwrap(), Some(pair("a", 9)));
}

#[test]
fn fold_and_count_emit_the_accumulator_after_each_record() {
    let (mut driver, input, output) =
        start(1, |pairs| pairs.fold("sum", 100, |sum: &mut u64, (_, value)| *sum += value));
    [("a", 3), ("b", 1), ("a", 2)].into_iter().for_each(|(key, value)| input.push_to(0, pair(key, value)));
    driver.run().unwrap();
    assert_eq!(output.take(), [pair("a", 103), pair("b", 101), pair("a", 105)]);
    let (mut driver, input, output) = start(1, |pairs| pairs.count("count"));
    [("a", 3), ("b", 1), ("a", 2)].into_iter().for_each(|(key, value)| input.push_to(0, pair(key, value)));
    driver.run().unwrap();
    assert_eq!(output.take(), [pair("a", 1), pair("b", 1), pair("a", 2)]);
}

struct Mean;

impl AggregateFunction for Mean {
    type Input = Pair;
    type Accumulator = (u64, u64);
    type Output = u64;

    fn create_accumulator(&self) -> (u64, u64) {
        (0, 0)
    }

    fn add(&self, (_, value): Pair, accumulator: &mut (u64, u64)) {
        *accumulator = (accumulator.0 + value, accumulator.1 + 1);
    }

    fn result(&self, accumulator: &(u64, u64)) -> u64 {
        accumulator.0 / accumulator.1
    }

    fn merge(&self, one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
        (one.0 + other.0, one.1 + other.1)
    }
}

#[test]
fn aggregate_emits_the_result_after_each_record() {
    let (mut driver, input, output) = start(1, |pairs| pairs.aggregate("mean", Mean));
    [("a", 4), ("b", 1), ("a", 2)].into_iter().for_each(|(key, value)| input.push_to(0, pair(key, value)));
    driver.run().unwrap();
    assert_eq!(output.take(), [pair("a", 4), pair("b", 1), pair("a", 3)]);
}

/// Remembers all values of a key, and how often each came; says so at the end.
#[derive(Default)]
struct Remember {
    states: Option<(ListState<u64>, MapState<u64, u64>)>,
}

impl KeyedProcess for Remember {
    type Key = String;
    type Input = Pair;
    type Output = Pair;

    fn open(&mut self, states: &mut StateDeclarer<'_, String>, _context: &mut OpenContext<'_>) -> UserResult {
        self.states = Some((states.list("values")?, states.map("times")?));
        Ok(())
    }

    fn process(
        &mut self,
        (_, value): Pair,
        context: &mut KeyedContext<'_, String>,
        _output: &mut Output<Pair>,
    ) -> UserResult {
        let (values, times) = self.states.expect("declared in open");
        values.add(context, value)?;
        let seen = times.get(context, &value)?.copied().unwrap_or(0);
        times.put(context, value, seen + 1)?;
        Ok(())
    }

    fn on_end(&mut self, context: &mut KeyedContext<'_, String>, output: &mut Output<Pair>) -> UserResult {
        let (values, _) = self.states.expect("declared in open");
        context.for_each_key("values", |states| {
            let length = values.len(states)? as u64;
            output.emit((states.current_key().cloned().unwrap_or_default(), length));
            Ok::<(), millpond_state::StateError>(())
        })?;
        Ok(())
    }
}

fn remember(input: &TestInput<Pair>, output: &TestOutput<Pair>) -> impl Fn(&mut Dataflow) -> UserResult {
    move |flow| {
        by_name(&flow.test_input("in", input)).process("remember", Remember::default()).test_output("out", output);
        Ok(())
    }
}

#[test]
fn ks_01_lists_and_maps_of_a_key_come_back_with_another_parallelism() {
    let (input, output) = (TestInput::with_splits(2), TestOutput::new());
    let mut driver = TestDriver::builder().parallelism(3).build(remember(&input, &output)).unwrap();
    for value in 0..100 {
        input.push_to(0, pair(&format!("key {}", value % 5), value % 4));
    }
    let snapshot = driver.checkpoint().unwrap();
    input.push_to(0, pair("key 0", 77));
    driver.run().unwrap();
    driver.kill();
    let mut driver = TestDriver::builder().parallelism(2).restore(remember(&input, &output), &snapshot).unwrap();
    let key = "key 1".to_owned();
    let expected: Vec<u64> = (0..100).filter(|value| value % 5 == 1).map(|value| value % 4).collect();
    assert_eq!(driver.keyed_list::<String, u64>("remember", "values", &key).unwrap(), expected);
    let mut times = driver.keyed_map::<String, u64, u64>("remember", "times", &key).unwrap();
    times.sort_unstable();
    assert_eq!(times, [(0, 5), (1, 5), (2, 5), (3, 5)]);
    driver.run().unwrap();
    let read_again = driver.keyed_list::<String, u64>("remember", "values", &"key 0".to_owned()).unwrap();
    assert_eq!((read_again.len(), read_again.last()), (21, Some(&77)));
}

#[test]
fn ex_08_the_end_of_input_is_heard_once_and_its_output_is_committed() {
    let (input, output) = (TestInput::new(), TestOutput::new());
    let mut driver = TestDriver::builder().parallelism(2).build(remember(&input, &output)).unwrap();
    ["a", "b", "a"].into_iter().for_each(|key| input.push(pair(key, 1)));
    driver.finish().unwrap();
    let mut committed = output.committed();
    committed.sort_unstable();
    assert_eq!(committed, [pair("a", 2), pair("b", 1)]);
    assert!(matches!(driver.run(), Err(SimError::Ended)));
}

#[test]
fn rs_25_a_stop_is_not_an_end_and_the_job_goes_on_from_it() {
    let (input, output) = (TestInput::new(), TestOutput::new());
    let mut driver = TestDriver::build(remember(&input, &output)).unwrap();
    input.push(pair("a", 1));
    let snapshot = driver.stop().unwrap();
    assert!(output.committed().is_empty(), "a stop drains nothing");
    let mut driver = TestDriver::restore(remember(&input, &output), &snapshot).unwrap();
    input.push(pair("a", 1));
    driver.finish().unwrap();
    assert_eq!(output.committed(), [pair("a", 2)]);
}

#[test]
fn state_that_is_not_there_is_an_error_that_names_it() {
    let (mut driver, _input, _output) = start(1, |pairs| pairs.count("count"));
    let key = "a".to_owned();
    let error = driver.keyed_state::<String, u64>("count", "other", &key).unwrap_err();
    assert_eq!(error.to_string(), "operator \"count\" has no keyed state \"other\" with these types");
    assert!(driver.keyed_state::<u64, u64>("count", "accumulator", &1).is_err());
    assert!(driver.keyed_state::<String, u64>("nobody", "accumulator", &key).is_err());
    assert_eq!(driver.keyed_state::<String, u64>("count", "accumulator", &key).unwrap(), None);
}
