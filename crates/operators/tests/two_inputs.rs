//! Operators with two inputs: connect, keyed connect, broadcast state.

use millpond_core::UserResult;
use millpond_dataflow::{Dataflow, KeyedContext, OpenContext, Output, ProcessContext};
use millpond_operators::{
    BroadcastProcess, CoProcess, KeyedBroadcastProcess, KeyedCoProcess, KeyedStreamOperators, StreamOperators,
};
use millpond_sim::{SimError, TestDriver, TestFlow, TestInput, TestOutput, TestStream};
use millpond_state::{BroadcastReader, BroadcastState, StateDeclarer, ValueState};

/// Says from where a record came.
struct Label;

impl CoProcess for Label {
    type Left = u64;
    type Right = String;
    type Output = String;

    fn process_left(&mut self, record: u64, _: &mut ProcessContext<'_>, output: &mut Output<String>) -> UserResult {
        output.emit(format!("left {record}"));
        Ok(())
    }

    fn process_right(&mut self, record: String, _: &mut ProcessContext<'_>, output: &mut Output<String>) -> UserResult {
        output.emit(format!("right {record}"));
        Ok(())
    }
}

#[test]
fn connect_tells_its_two_inputs_apart() {
    let (left, right, output) = (TestInput::new(), TestInput::new(), TestOutput::new());
    let job = |flow: &mut Dataflow| {
        let (left, right) = (flow.test_input("left", &left), flow.test_input("right", &right));
        left.connect(&right).process("label", Label).test_output("out", &output);
        Ok(())
    };
    let mut driver = TestDriver::builder().parallelism(2).build(job).unwrap();
    left.push(1u64);
    right.push("a".to_owned());
    driver.run().unwrap();
    let mut labels = output.take();
    labels.sort_unstable();
    assert_eq!(labels, ["left 1", "right a"]);
}

/// Adds left values and subtracts right ones, in one state.
#[derive(Default)]
struct Balance(Option<ValueState<i64>>);

impl Balance {
    fn add(&self, by: i64, context: &mut KeyedContext<'_, u64>, output: &mut Output<(u64, i64)>) -> UserResult {
        let state = self.0.expect("declared in open");
        let balance = state.get(context)?.copied().unwrap_or(0) + by;
        state.set(context, balance)?;
        output.emit((*context.key()?, balance));
        Ok(())
    }
}

impl KeyedCoProcess for Balance {
    type Key = u64;
    type Left = (u64, i64);
    type Right = (u64, i64);
    type Output = (u64, i64);

    fn open(&mut self, states: &mut StateDeclarer<'_, u64>, _: &mut OpenContext<'_>) -> UserResult {
        self.0 = Some(states.value("balance")?);
        Ok(())
    }

    fn process_left(
        &mut self,
        (_, by): (u64, i64),
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<(u64, i64)>,
    ) -> UserResult {
        self.add(by, context, output)
    }

    fn process_right(
        &mut self,
        (_, by): (u64, i64),
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<(u64, i64)>,
    ) -> UserResult {
        self.add(-by, context, output)
    }
}

#[test]
fn keyed_inputs_share_the_state_of_a_key_and_restore_together() {
    let (left, right, output) = (TestInput::new(), TestInput::new(), TestOutput::new());
    let job = |flow: &mut Dataflow| {
        let keyed =
            |name, input, flow: &mut Dataflow| flow.test_input(name, input).key_by(|(key, _): &(u64, i64)| *key);
        let (left, right) = (keyed("left", &left, flow), keyed("right", &right, flow));
        left.connect(&right).process("balance", Balance::default()).test_output("out", &output);
        Ok(())
    };
    let mut driver = TestDriver::builder().parallelism(2).build(job).unwrap();
    (0..20).for_each(|key| left.push((key, 10)));
    (0..20).for_each(|key| right.push((key, key as i64)));
    let snapshot = driver.checkpoint().unwrap();
    driver.kill();
    let mut driver = TestDriver::builder().parallelism(3).restore(job, &snapshot).unwrap();
    (0..20).for_each(|key| right.push((key, 1)));
    driver.run().unwrap();
    for key in 0..20 {
        assert_eq!(driver.keyed_state::<u64, i64>("balance", "balance", &key).unwrap(), Some(9 - key as i64));
    }
}

/// Emits a record with the number of rules known.
#[derive(Default)]
struct Rules(Option<BroadcastState<String, u64>>);

impl BroadcastProcess for Rules {
    type Input = u64;
    type Broadcast = (String, u64);
    type Output = (u64, u64);

    fn open(&mut self, context: &mut OpenContext<'_>) -> UserResult {
        self.0 = Some(context.states.broadcast_map("rules")?);
        Ok(())
    }

    fn process(&mut self, record: u64, rules: BroadcastReader<'_>, output: &mut Output<(u64, u64)>) -> UserResult {
        let rules = rules.view(&self.0.expect("declared in open"))?;
        output.emit((record, rules.iter().map(|(_, value)| value).sum()));
        Ok(())
    }

    fn process_broadcast(
        &mut self,
        (name, value): (String, u64),
        context: &mut ProcessContext<'_>,
        _output: &mut Output<(u64, u64)>,
    ) -> UserResult {
        self.0.expect("declared in open").put(context.operator_states_mut(), name, value)?;
        Ok(())
    }
}

/// The same with keys.
#[derive(Default)]
struct KeyedRules(Rules);

impl KeyedBroadcastProcess for KeyedRules {
    type Key = u64;
    type Input = u64;
    type Broadcast = (String, u64);
    type Output = (u64, u64);

    fn open(&mut self, _states: &mut StateDeclarer<'_, u64>, context: &mut OpenContext<'_>) -> UserResult {
        BroadcastProcess::open(&mut self.0, context)
    }

    fn process(
        &mut self,
        record: u64,
        context: &mut KeyedContext<'_, u64>,
        output: &mut Output<(u64, u64)>,
    ) -> UserResult {
        BroadcastProcess::process(&mut self.0, record, context.operator_states().reader(), output)
    }

    fn process_broadcast(
        &mut self,
        (name, value): (String, u64),
        context: &mut KeyedContext<'_, u64>,
        _output: &mut Output<(u64, u64)>,
    ) -> UserResult {
        self.0.0.expect("declared in open").put(context.operator_states_mut(), name, value)?;
        Ok(())
    }
}

fn rule(name: &str, value: u64) -> (String, u64) {
    (name.to_owned(), value)
}

/// BS-01 and OS-14: rules reach every subtask, and every subtask of a restored job has them.
fn rules_reach_everybody(keyed: bool) -> Result<(), SimError> {
    let (numbers, rules, output) = (TestInput::new(), TestInput::new(), TestOutput::new());
    let job = |flow: &mut Dataflow| {
        let (numbers, rules) = (flow.test_input("numbers", &numbers), flow.test_input("rules", &rules));
        let summed = if keyed {
            numbers.key_by(|n: &u64| *n).connect_broadcast(&rules).process("sum", KeyedRules::default())
        } else {
            numbers.rebalance().map(|n| n).connect_broadcast(&rules).process("sum", Rules::default())
        };
        summed.test_output("out", &output);
        Ok(())
    };
    let all = |value: u64| (0..50u64).map(|n| (n, value)).collect::<Vec<_>>();
    let mut driver = TestDriver::builder().parallelism(2).build(job)?;
    rules.push(rule("a", 1));
    rules.push(rule("b", 10));
    rules.push(rule("a", 2));
    driver.run()?;
    (0..50).for_each(|n| numbers.push(n));
    let snapshot = driver.checkpoint()?;
    let mut found = output.take();
    found.sort_unstable();
    assert_eq!(found, all(12));
    driver.kill();
    let mut driver = TestDriver::builder().parallelism(4).restore(job, &snapshot)?;
    (0..50).for_each(|n| numbers.push(n));
    driver.run()?;
    let mut found = output.take();
    found.sort_unstable();
    assert_eq!(found, all(12), "restored subtasks know the rules, new ones too");
    Ok(())
}

#[test]
fn os_14_broadcast_rules_reach_every_subtask_and_survive_a_rescale() {
    rules_reach_everybody(false).unwrap();
}

#[test]
fn os_14_keyed_broadcast_rules_reach_every_subtask_and_survive_a_rescale() {
    rules_reach_everybody(true).unwrap();
}
