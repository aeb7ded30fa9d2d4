//! Watermarks through whole jobs: from splits over exchanges to operators.

use std::time::Duration;

use millpond_core::UserResult;
use millpond_dataflow::{Dataflow, Output, ProcessContext, ReadStatus, Source, Split, SplitReader, Stream};
use millpond_operators::{
    CoProcess, KeyedProcess, KeyedStreamOperators, Process, SourceOperators, StreamOperators, WatermarkStrategy,
};
use millpond_sim::{SimError, TestDriver, TestFlow, TestInput, TestOutput, TestStream};
use serde::{Deserialize, Serialize};

const MIN: i64 = i64::MIN;
const MAX: i64 = i64::MAX;

fn bounded(ms: u64) -> WatermarkStrategy<i64> {
    WatermarkStrategy::bounded_out_of_orderness(Duration::from_millis(ms))
}

/// Tells each record with its time, and the watermark that was there before it.
struct Times;

impl Process for Times {
    type Input = i64;
    type Output = (i64, Option<i64>, i64);

    fn process(
        &mut self,
        record: i64,
        context: &mut ProcessContext<'_>,
        output: &mut Output<Self::Output>,
    ) -> UserResult {
        output.emit((record, context.timestamp(), context.watermark()));
        Ok(())
    }
}

type Seen = TestOutput<(i64, Option<i64>, i64)>;

fn end(stream: &Stream<i64>, output: &Seen) {
    stream.process("times", Times).test_output("out", output);
}

#[test]
fn tm_31_a_record_sees_the_watermark_before_it() {
    let (input, output) = (TestInput::new(), Seen::new());
    let job = |flow: &mut Dataflow| {
        end(&flow.timed_test_input("in", &input, bounded(0).timestamps(|time| *time)), &output);
        Ok(())
    };
    let mut driver = TestDriver::build(job).unwrap();
    input.push(100);
    driver.run().unwrap();
    input.push(50);
    driver.run().unwrap();
    assert_eq!(output.take(), [(100, Some(100), MIN), (50, Some(50), 99)]);
    input.close();
    driver.run().unwrap();
    assert_eq!(driver.watermarks("times"), [MAX], "wm_21: a bounded source sends the last watermark at its end");
}

#[test]
fn wm_13_the_splits_of_a_subtask_and_the_subtasks_of_a_source_combine_to_the_least() {
    let (input, output) = (TestInput::with_splits(4), Seen::new());
    let job = |flow: &mut Dataflow| {
        let source = flow.timed_test_input("in", &input, bounded(0));
        end(&source.rebalance(), &output);
        Ok(())
    };
    let mut driver = TestDriver::builder().parallelism(2).build(job).unwrap();
    for (split, time) in [(0, 10), (1, 20), (2, 30)] {
        input.push_to_at(split, 0, time);
    }
    driver.run().unwrap();
    assert_eq!(driver.watermarks("times"), [MIN, MIN], "the fourth split has said nothing");
    input.push_to_at(3, 0, 5);
    driver.run().unwrap();
    assert_eq!(driver.watermarks("times"), [4, 4]);
    input.push_to_at(3, 0, 50);
    driver.run().unwrap();
    assert_eq!(driver.watermarks("times"), [9, 9]);
}

#[test]
fn an_idle_split_does_not_hold_event_time_back() {
    for parallelism in [1, 2] {
        let (input, output) = (TestInput::with_splits(2), Seen::new());
        let job = |flow: &mut Dataflow| {
            let strategy = bounded(0).idle_after(Duration::from_secs(1));
            end(&flow.timed_test_input("in", &input, strategy).rebalance(), &output);
            Ok(())
        };
        let mut driver = TestDriver::builder().parallelism(parallelism).build(job).unwrap();
        input.push_to_at(0, 0, 10);
        driver.run().unwrap();
        let all = |watermark| vec![watermark; parallelism as usize];
        assert_eq!(driver.watermarks("times"), all(MIN));
        driver.advance_time(1_000);
        input.push_to_at(0, 0, 11);
        driver.run().unwrap();
        assert_eq!(driver.watermarks("times"), all(MIN));
        driver.advance_time(1);
        input.push_to_at(0, 0, 12);
        driver.run().unwrap();
        assert_eq!(driver.watermarks("times"), all(11));
        // It comes back far behind: nothing goes back, and event time waits for it (WM-05).
        input.push_to_at(1, 0, 3);
        input.push_to_at(0, 0, 20);
        driver.run().unwrap();
        let behind = driver.watermarks("times");
        assert!(behind.iter().all(|watermark| (11..=19).contains(watermark)), "{behind:?}");
        input.push_to_at(1, 0, 100);
        driver.run().unwrap();
        assert_eq!(driver.watermarks("times"), all(19));
    }
}

#[test]
fn a_source_without_event_time_takes_no_part_in_it() {
    struct Both;
    impl CoProcess for Both {
        type Left = i64;
        type Right = String;
        type Output = i64;
        fn process_left(&mut self, record: i64, _: &mut ProcessContext<'_>, output: &mut Output<i64>) -> UserResult {
            output.emit(record);
            Ok(())
        }
        fn process_right(&mut self, _: String, _: &mut ProcessContext<'_>, _: &mut Output<i64>) -> UserResult {
            Ok(())
        }
    }
    let (timed, rules, output) = (TestInput::new(), TestInput::<String>::new(), TestOutput::new());
    let job = |flow: &mut Dataflow| {
        let rules = flow.test_input("rules", &rules).broadcast();
        let timed = flow.timed_test_input("timed", &timed, bounded(0));
        timed.connect(&rules).process("both", Both).test_output("out", &output);
        Ok(())
    };
    let mut driver = TestDriver::build(job).unwrap();
    timed.push_at(1, 10);
    driver.run().unwrap();
    assert_eq!(driver.watermarks("both"), [9]);
    rules.close();
    driver.run().unwrap();
    assert_eq!(driver.watermarks("both"), [9], "its end is no watermark for the other");
    timed.close();
    driver.run().unwrap();
    assert_eq!(driver.watermarks("both"), [MAX]);
}

#[test]
fn wm_15_assign_timestamps_drops_watermarks_from_upstream_but_the_last() {
    let (input, output) = (TestInput::new(), Seen::new());
    let job = |flow: &mut Dataflow| {
        let source = flow.timed_test_input("in", &input, bounded(0).timestamps(|time| *time));
        let anew = source.map(|time| time * 10).assign_timestamps(bounded(100).timestamps(|time| *time));
        end(&anew, &output);
        Ok(())
    };
    let mut driver = TestDriver::build(job).unwrap();
    input.push(100);
    driver.run().unwrap();
    assert_eq!(driver.watermarks("times"), [899]);
    input.push(101);
    driver.run().unwrap();
    assert_eq!(output.take(), [(1_000, Some(1_000), MIN), (1_010, Some(1_010), 899)]);
    input.close();
    driver.run().unwrap();
    assert_eq!(driver.watermarks("times"), [MAX]);
}

#[test]
fn wm_19_times_pass_map_filter_and_key_by_unchanged() {
    struct Stamp;
    impl KeyedProcess for Stamp {
        type Key = i64;
        type Input = i64;
        type Output = (i64, Option<i64>, i64);
        fn open(
            &mut self,
            _: &mut millpond_state::StateDeclarer<'_, i64>,
            _: &mut millpond_dataflow::OpenContext<'_>,
        ) -> UserResult {
            Ok(())
        }
        fn process(
            &mut self,
            record: i64,
            context: &mut millpond_dataflow::KeyedContext<'_, i64>,
            output: &mut Output<Self::Output>,
        ) -> UserResult {
            output.emit((record, context.timestamp(), context.watermark()));
            Ok(())
        }
    }
    let (input, output) = (TestInput::new(), Seen::new());
    let job = |flow: &mut Dataflow| {
        let source = flow.timed_test_input("in", &input, bounded(0)).filter(|record| *record > 0);
        source.map(|record| record * 2).key_by(|record| *record).process("times", Stamp).test_output("out", &output);
        Ok(())
    };
    let mut driver = TestDriver::builder().parallelism(2).build(job).unwrap();
    for record in 0..50 {
        input.push_at(record, record + 1_000);
    }
    input.push(77);
    driver.run().unwrap();
    let mut seen = output.take();
    seen.sort_unstable();
    let mut expected: Vec<_> = (1..50).map(|record| (record * 2, Some(record + 1_000), MIN)).collect();
    expected.push((154, None, MIN));
    expected.sort_unstable();
    assert_eq!(seen, expected);
    assert_eq!(driver.watermarks("times"), [1_048, 1_048]);
}

#[test]
fn tm_08_after_a_restore_event_time_begins_at_the_least_again() {
    let (input, output) = (TestInput::new(), Seen::new());
    let job = |flow: &mut Dataflow| {
        end(&flow.timed_test_input("in", &input, bounded(0)), &output);
        Ok(())
    };
    let mut driver = TestDriver::build(job).unwrap();
    input.push_at(1, 500);
    driver.run().unwrap();
    let snapshot = driver.checkpoint().unwrap();
    assert_eq!(driver.watermarks("times"), [499]);
    driver.kill();
    let mut driver = TestDriver::builder().parallelism(2).restore(job, &snapshot).unwrap();
    driver.run().unwrap();
    assert!(driver.watermarks("times").contains(&MIN));
}

#[test]
fn wm_21_the_end_of_input_and_a_drain_send_the_last_watermark_through_every_operator() {
    let (input, output) = (TestInput::with_splits(3), Seen::new());
    let job = |flow: &mut Dataflow| {
        let source = flow.timed_test_input("in", &input, bounded(0)).rebalance().filter(|_| true);
        end(&source.rebalance(), &output);
        Ok(())
    };
    let mut driver = TestDriver::builder().parallelism(3).build(job).unwrap();
    input.push_at(1, 500);
    driver.finish().unwrap();
    assert_eq!(driver.watermarks("times"), [MAX; 3]);
}

/// Short files of records that are their own times, one of which is open at a time.
struct Files(Vec<Vec<i64>>);

#[derive(Clone, Serialize, Deserialize)]
struct File(usize, Vec<i64>);

impl Split for File {
    fn id(&self) -> String {
        self.0.to_string()
    }
}

impl Source for Files {
    type Record = i64;
    type Split = File;
    type Reader = File;

    fn enumerate(&mut self) -> UserResult<Vec<File>> {
        Ok(self.0.iter().cloned().enumerate().map(|(index, records)| File(index, records)).collect())
    }

    fn open_split(&mut self, split: File) -> UserResult<File> {
        Ok(split)
    }

    fn concurrent_splits(&self) -> usize {
        1
    }
}

impl SplitReader for File {
    type Record = i64;
    type Split = File;

    fn read(&mut self, _limit: usize, output: &mut Output<i64>) -> UserResult<ReadStatus> {
        self.1.drain(..).for_each(|record| output.emit(record));
        Ok(ReadStatus::Finished)
    }

    fn split(&self) -> File {
        self.clone()
    }
}

fn read_files(parallelism: u32, files: &[&[i64]]) -> Result<Vec<(i64, Option<i64>, i64)>, SimError> {
    let output = Seen::new();
    let job = |flow: &mut Dataflow| {
        let strategy = bounded(0).timestamps(|time| *time).interval(Duration::ZERO);
        let files = Files(files.iter().map(|file| file.to_vec()).collect());
        let records = flow.timed_source("files", files, strategy);
        records.rebalance().process("times", Times).parallelism(1).test_output("out", &output);
        Ok(())
    };
    let mut driver = TestDriver::builder().parallelism(parallelism).build(job)?;
    driver.run()?;
    Ok(output.take())
}

#[test]
fn wm_13_a_file_that_is_read_at_once_moves_event_time_before_the_end_of_input() {
    let seen = read_files(1, &[&[1, 3], &[5], &[], &[8]]).unwrap();
    assert_eq!(seen, [(1, Some(1), MIN), (3, Some(3), MIN), (5, Some(5), 2), (8, Some(8), 4)]);
}

#[test]
fn wm_13_a_subtask_between_two_files_holds_event_time_back() {
    // The first subtask reads the even ones.
    let mut seen = read_files(2, &[&[1], &[100], &[10], &[200], &[20], &[300]]).unwrap();
    seen.retain(|(record, ..)| *record < 100);
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|(record, _, watermark)| watermark < record), "{seen:?}");
}

#[test]
fn wm_20_a_split_that_runs_ahead_waits_for_the_slowest_of_its_group_in_any_subtask() {
    for parallelism in [1, 2] {
        let (input, output) = (TestInput::with_splits(2), Seen::new());
        let job = |flow: &mut Dataflow| {
            let strategy = bounded(0).timestamps(|time| *time).idle_after(Duration::from_secs(5));
            let strategy = strategy.aligned("all", Duration::from_millis(100));
            end(&flow.timed_test_input("in", &input, strategy).rebalance(), &output);
            Ok(())
        };
        let mut driver = TestDriver::builder().parallelism(parallelism).build(job).unwrap();
        let furthest = |output: &Seen| output.take().into_iter().map(|(record, ..)| record).max();
        // What is read at once may be beyond the bound.
        let turn = 4_096;
        (0..100_000).for_each(|time| input.push_to(0, time));
        driver.run().unwrap();
        let first = furthest(&output).unwrap();
        assert!(first < turn, "split 0 came to {first} while split 1 has said nothing");
        input.push_to(1, 20_000);
        driver.run().unwrap();
        let second = furthest(&output).unwrap();
        assert!((20_000..20_100 + turn).contains(&second), "split 0 came to {second}, split 1 is at 20,000");
        // An idle split is not waited for.
        driver.advance_time(5_001);
        driver.run().unwrap();
        driver.advance_time(5_001);
        driver.run().unwrap();
        assert_eq!(furthest(&output), Some(99_999));
        // It goes on where the other is.
        input.push_to(1, 30_000);
        driver.run().unwrap();
        assert_eq!(furthest(&output), Some(30_000));
        input.close();
        driver.run().unwrap();
        assert_eq!(driver.watermarks("times"), vec![MAX; parallelism as usize]);
    }
}

#[test]
fn wm_20_sources_of_one_group_wait_for_each_other_and_not_for_one_that_has_ended() {
    let (quick, slow, output) = (TestInput::new(), TestInput::new(), Seen::new());
    let job = |flow: &mut Dataflow| {
        let strategy = || bounded(0).timestamps(|time: &i64| *time).aligned("both", Duration::from_millis(10));
        let one = flow.timed_test_input("quick", &quick, strategy());
        let other = flow.timed_test_input("slow", &slow, strategy());
        end(&one.union(&other), &output);
        Ok(())
    };
    let mut driver = TestDriver::build(job).unwrap();
    (0..50_000).for_each(|time| quick.push(time));
    driver.run().unwrap();
    assert!(output.take().len() < 4_096);
    slow.push(10_000);
    driver.run().unwrap();
    let seen = output.take();
    assert!(seen.iter().all(|(record, ..)| *record < 10_010 + 4_096));
    // A checkpoint does not wait, and a restore begins anew.
    let snapshot = driver.checkpoint().unwrap();
    driver.kill();
    let mut driver = TestDriver::builder().restore(job, &snapshot).unwrap();
    driver.run().unwrap();
    slow.close();
    driver.run().unwrap();
    assert_eq!(output.take().last().map(|(record, ..)| *record), Some(49_999));
}
