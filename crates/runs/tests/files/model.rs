//! What is written is what is read, judged by a map.

use std::sync::Arc;

use crate::fixture::{
    EVERY_GROUP, NAMES, Op, buffer, contents, fold, model, op, open, ops, sections, small_settings, within,
};
use millpond_core::{ErrorKind, KeyGroupRange, SplitMix64};
use millpond_runs::{
    Compression, EncodedRun, MemoryRun, RowBuffer, RunError, RunReader, RunSettings, StoredRun, merge_runs,
    merge_runs_keeping, verify, write_runs,
};
use millpond_storage::{Effect, FaultPlan, FaultRule, Faults, MemoryStorage, ObjectName, Storage};
use proptest::prelude::*;

fn settings() -> impl Strategy<Value = RunSettings> {
    let compression = prop_oneof![Just(Compression::None), Just(Compression::Lz4)];
    (1u64..4_000, 64usize..2_000, compression).prop_map(|(target_file_bytes, block_bytes, compression)| RunSettings {
        target_file_bytes,
        block_bytes,
        compression,
    })
}

fn write(ops: &[Op], settings: &RunSettings) -> Vec<EncodedRun> {
    write_runs(buffer(ops), &sections(), settings).unwrap()
}

/// One reader per level: the levels of these tests are single files.
fn level(ops: &[Op]) -> Vec<RunReader<MemoryRun>> {
    let one_file = RunSettings { target_file_bytes: 1 << 30, ..small_settings() };
    write(ops, &one_file).iter().map(open).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn rows_written_are_the_rows_read(ops in ops(), settings in settings(), a in 0u32..40_000, b in 0u32..300) {
        let expected = model(&ops);
        let runs = write(&ops, &settings);
        let readers: Vec<_> = runs.iter().map(open).map(|reader| reader.with_read_ahead(u64::from(b))).collect();
        prop_assert_eq!(&contents(&readers, EVERY_GROUP), &expected);
        prop_assert_eq!(runs.iter().map(|run| run.info.rows).sum::<u64>(), expected.len() as u64);
        for run in &runs {
            let found = verify(MemoryRun::new("test.run", run.bytes.clone()), Some(&run.info)).unwrap();
            prop_assert_eq!(&found, &run.info);
        }
        for groups in [KeyGroupRange::new(b, a), KeyGroupRange::new(0, b), KeyGroupRange::new(b, b + 1), KeyGroupRange::new(a, 1 << 16)] {
            prop_assert_eq!(contents(&readers, groups), within(&expected, groups), "SN-06, RS-01: {}", groups);
        }
    }

    #[test]
    fn a_folded_buffer_reads_as_its_newest_rows(epochs in proptest::collection::vec(ops(), 0..4), nested: bool) {
        let mut expected = crate::fixture::Model::new();
        let mut folded = RowBuffer::new();
        for ops in &epochs {
            expected = fold(expected, model(ops));
        }
        if nested {
            for ops in epochs.iter().rev() {
                let mut older = buffer(ops);
                older.merge_newer(folded);
                folded = older;
            }
        } else {
            for ops in &epochs {
                folded.merge_newer(buffer(ops));
            }
        }
        let runs = write_runs(folded, &sections(), &small_settings()).unwrap();
        let readers: Vec<_> = runs.iter().map(open).collect();
        prop_assert_eq!(contents(&readers, EVERY_GROUP), expected);
    }

    #[test]
    fn merged_runs_read_as_their_newest_rows(
        epochs in proptest::collection::vec(ops(), 0..6), settings in settings(), drop: bool, cuts in proptest::collection::btree_set(0u32..70_000, 0..4),
    ) {
        let mut expected = crate::fixture::Model::new();
        let mut inputs = Vec::new();
        for ops in &epochs {
            expected = fold(expected, model(ops));
            inputs.extend(level(ops));
        }
        if drop {
            expected.retain(|_, value| value.is_some());
        }
        let mut runs = Vec::new();
        let cuts: Vec<u32> = cuts.into_iter().collect();
        let report = merge_runs_keeping::<_, RunError>(&inputs, drop, &cuts, &settings, |_, _, _| true, |run| {
            runs.push(run);
            Ok(())
        }).unwrap();
        for run in &runs {
            let across = |cut: &&u32| run.info.groups.start < **cut && **cut < run.info.groups.end;
            prop_assert_eq!(cuts.iter().find(across), None, "{:?}", run.info.groups);
        }
        let readers: Vec<_> = runs.iter().map(open).collect();
        prop_assert_eq!(&contents(&readers, EVERY_GROUP), &expected);
        prop_assert_eq!(report.files, runs.len() as u64);
        prop_assert_eq!(report.rows_written, expected.len() as u64);
        prop_assert_eq!(report.rows_read, report.rows_written + report.rows_superseded + report.tombstones_dropped);
        for run in &runs {
            verify(MemoryRun::new("test.run", run.bytes.clone()), Some(&run.info)).unwrap();
        }
    }

    #[test]
    fn merging_in_steps_gives_what_merging_at_once_gives(epochs in proptest::collection::vec(ops(), 3..6)) {
        let merge = |inputs: &[RunReader<MemoryRun>], drop| {
            let one_file = RunSettings { target_file_bytes: 1 << 30, ..small_settings() };
            let mut runs = Vec::new();
            merge_runs::<_, RunError>(inputs, drop, &one_file, |run| { runs.push(run); Ok(()) }).unwrap();
            runs
        };
        let inputs: Vec<_> = epochs.iter().flat_map(|ops| level(ops)).collect();
        let at_once = merge(&inputs, true);
        let newer: Vec<_> = epochs[1..].iter().flat_map(|ops| level(ops)).collect();
        let mut steps = level(&epochs[0]);
        steps.extend(merge(&newer, false).iter().map(open));
        prop_assert_eq!(merge(&steps, true), at_once);
    }

    #[test]
    fn expired_rows_become_tombstones_or_go(older in ops(), newer in ops(), drop: bool) {
        let short = |value: &[u8]| value.len() < 10;
        let mut expected = fold(model(&older), model(&newer));
        for value in expected.values_mut() {
            *value = value.take().filter(|value| short(value));
        }
        if drop {
            expected.retain(|_, value| value.is_some());
        }
        let inputs: Vec<_> = level(&older).into_iter().chain(level(&newer)).collect();
        let mut runs = Vec::new();
        let keep = |section: &str, description: &str, row: &millpond_runs::RowRef<'_>| {
            assert_eq!(description, format!("kind of {section}"));
            row.value.is_none_or(short)
        };
        merge_runs_keeping::<_, RunError>(&inputs, drop, &[], &small_settings(), keep, |run| { runs.push(run); Ok(()) }).unwrap();
        let readers: Vec<_> = runs.iter().map(open).collect();
        prop_assert_eq!(contents(&readers, EVERY_GROUP), expected);
    }

    #[test]
    fn rows_that_differ_deep_in_their_keys_are_ordered(tails in proptest::collection::vec((0u8..3, proptest::collection::vec(0u8..2, 0..30), op()), 40..200)) {
        let ops: Vec<Op> = tails.into_iter().map(|(depth, tail, op)| {
            let key = [vec![9; usize::from(depth) * 40], tail].concat();
            Op { state: 0, group: 3, key, ..op }
        }).collect();
        let readers: Vec<_> = write(&ops, &RunSettings::default()).iter().map(open).collect();
        prop_assert_eq!(contents(&readers, EVERY_GROUP), model(&ops));
    }
}

#[test]
fn sn_08_an_empty_buffer_gives_no_run() {
    assert!(write_runs(RowBuffer::new(), &sections(), &RunSettings::default()).unwrap().is_empty());
    let report = merge_runs::<MemoryRun, RunError>(&[], true, &RunSettings::default(), |_| panic!("no file")).unwrap();
    assert_eq!(report.files, 0);
}

#[test]
fn sections_without_rows_are_left_out_and_the_others_keep_their_descriptions() {
    let ops = [
        Op { state: 0, group: 5, key: vec![1], value: Some(vec![]) },
        Op { state: 1, group: 9, key: vec![], value: None },
    ];
    let runs = write(&ops, &RunSettings::default());
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].info.sections, ["count", "timers"]);
    assert_eq!(runs[0].info.groups, KeyGroupRange::new(5, 10));
    assert_eq!((runs[0].info.rows, runs[0].info.tombstones), (2, 1));
    let reader = open(&runs[0]);
    let described: Vec<_> =
        reader.sections().map(|section| (section.name.as_str(), section.descriptions[0].text.as_str())).collect();
    assert_eq!(described, [("count", "kind of count"), ("timers", "kind of timers")]);
    assert!(reader.section(NAMES[3]).is_none());
    assert_eq!(reader.scan::<RunError>("no such state", EVERY_GROUP, |_| panic!("no row")).unwrap(), 0);
}

#[test]
fn a_row_keeps_its_writers_description_through_merges() {
    let at = |key: u8, value: u8| Op { state: 0, group: 1, key: vec![key], value: Some(vec![value]) };
    let described = |ops: &[Op], text: &str| {
        let mut sections = sections();
        sections[0].description = text.to_owned();
        let runs = write_runs(buffer(ops), &sections, &RunSettings::default()).unwrap();
        open(&runs[0])
    };
    let merge = |inputs: &[RunReader<MemoryRun>]| {
        let mut runs = Vec::new();
        merge_runs::<_, RunError>(inputs, true, &RunSettings::default(), |run| {
            verify(MemoryRun::new("test.run", run.bytes.clone()), Some(&run.info))?;
            runs.push(run);
            Ok(())
        })
        .unwrap();
        open(&runs[0])
    };
    let rows = |reader: &RunReader<MemoryRun>| {
        let texts = &reader.section("timers").unwrap().descriptions;
        let mut found = Vec::new();
        let visit = |row: millpond_runs::RowRef<'_>| {
            found.push((row.key[0], row.value.unwrap()[0], texts[row.description as usize].text.clone()));
            Ok(())
        };
        reader.scan::<RunError>("timers", EVERY_GROUP, visit).unwrap();
        found
    };
    let old = described(&[at(1, 10), at(2, 20), at(3, 30)], "old");
    let both = merge(&[old, described(&[at(2, 21)], "new")]);
    assert_eq!(rows(&both), [(1, 10, "old".into()), (2, 21, "new".into()), (3, 30, "old".into())]);
    let none_old = merge(&[both, described(&[at(1, 11), at(3, 31)], "new")]);
    assert_eq!(none_old.section("timers").unwrap().descriptions[0].rows, 0, "no row has the old one any more");
    assert_eq!(rows(&none_old), [(1, 11, "new".into()), (2, 21, "new".into()), (3, 31, "new".into())]);
    let pruned = merge(&[none_old]);
    assert_eq!(pruned.section("timers").unwrap().descriptions.len(), 1);
    assert_eq!(rows(&pruned).len(), 3);
}

#[test]
fn a_scan_reads_only_the_blocks_of_its_groups() {
    let ops: Vec<Op> =
        (0..1_000u16).map(|group| Op { state: 0, group, key: vec![3], value: Some(vec![0; 20]) }).collect();
    let run =
        &write(&ops, &RunSettings { target_file_bytes: 1 << 30, block_bytes: 256, compression: Compression::None })[0];
    let mut damaged = run.bytes.clone();
    let middle = damaged.len() / 3;
    damaged[middle] ^= 1;
    let reader = RunReader::open(MemoryRun::new("test.run", damaged)).unwrap();
    let scan = |start, end| reader.scan::<RunError>("timers", KeyGroupRange::new(start, end), |_| Ok(()));
    assert!(matches!(scan(0, 1_000), Err(RunError::Checksum { .. })));
    assert_eq!(scan(0, 100).unwrap(), 100, "the damaged block is not touched");
    assert_eq!(scan(900, 1_000).unwrap(), 100);
}

#[test]
fn files_are_cut_near_their_target() {
    let ops: Vec<Op> = (0..5_000u16)
        .map(|i| Op {
            state: 0,
            group: i % 64,
            key: i.to_be_bytes().to_vec(),
            value: Some(i.wrapping_mul(40_503).to_be_bytes().to_vec()),
        })
        .collect();
    let settings = RunSettings { target_file_bytes: 4_096, block_bytes: 512, compression: Compression::Lz4 };
    let runs = write(&ops, &settings);
    assert!(runs.len() > 3);
    for run in &runs {
        assert!(run.info.bytes < 4_096 + 1_024 + 1_024, "{} bytes", run.info.bytes);
        assert_eq!(run.info.bytes, run.bytes.len() as u64);
    }
    let shared = |pair: &[EncodedRun]| pair[0].info.groups.intersects(pair[1].info.groups);
    assert!(!runs.windows(2).any(shared), "files of one section share no key group");
}

#[test]
fn a_key_group_larger_than_a_file_is_cut_all_the_same() {
    let op = |i: u16| Op { state: 0, group: 7, key: i.to_be_bytes().to_vec(), value: Some(vec![1; 20]) };
    let settings = RunSettings { target_file_bytes: 4_096, block_bytes: 512, compression: Compression::None };
    let runs = write(&(0..2_000).map(op).collect::<Vec<_>>(), &settings);
    assert!(runs.len() > 5);
    assert!(runs.iter().all(|run| run.info.bytes < 4_096 / 4 * 5 + 1_024));
}

#[test]
fn a_run_in_a_storage_reads_like_one_in_memory() {
    let ops = [Op { state: 0, group: 5, key: vec![1], value: Some(vec![2]) }];
    let run = &write(&ops, &RunSettings::default())[0];
    let storage = MemoryStorage::new();
    let name = ObjectName::new("job/op/1.run").unwrap();
    let absent = RunReader::open(StoredRun::new(storage.clone(), name.clone())).unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::Corrupt);
    assert_eq!(absent.to_string(), "cannot tell the size of run job/op/1.run");
    storage.create(&name, &run.bytes).unwrap();
    let source = StoredRun::new(storage, name);
    assert_eq!(verify(&source, Some(&run.info)).unwrap(), run.info);
    let reader = RunReader::open_stated(&source, run.info.bytes, run.info.checksum).unwrap();
    let mut cursor = reader.cursor("timers", EVERY_GROUP);
    assert!(cursor.current().is_none());
    assert!(cursor.advance().unwrap());
    assert_eq!(cursor.current().map(|row| row.key.to_vec()), Some(vec![1]));
    assert!(!cursor.advance().unwrap() && !cursor.advance().unwrap());
    assert!(cursor.current().is_none());
    let wrong_size = RunReader::open_stated(&source, run.info.bytes - 1, run.info.checksum).unwrap_err();
    assert_eq!(wrong_size.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_hundred_thousand_rows_in_random_order_come_back_sorted() {
    let mut random = SplitMix64::new(7);
    let ops: Vec<Op> = (0..100_000)
        .map(|_| {
            let number = random.below(60_000);
            let value = random.chance(800).then(|| number.to_le_bytes().to_vec());
            let key = format!("flight {number:06}").into_bytes();
            Op { state: (number % 3) as u16, group: (number % 700) as u16, key, value }
        })
        .collect();
    let readers: Vec<_> = write(&ops, &RunSettings::default()).iter().map(open).collect();
    assert_eq!(contents(&readers, EVERY_GROUP), model(&ops));
}

#[test]
fn a_storage_that_is_away_is_told_from_a_damaged_file() {
    let ops: Vec<Op> =
        (0..500u16).map(|group| Op { state: 0, group, key: vec![3], value: Some(vec![0; 20]) }).collect();
    let settings = RunSettings { target_file_bytes: 1 << 30, compression: Compression::None, ..small_settings() };
    let run = &write(&ops, &settings)[0];
    let plan = FaultPlan::new(1);
    let storage = Arc::new(Faults::new(MemoryStorage::new(), plan.clone()));
    let name = ObjectName::new("1.run").unwrap();
    storage.create(&name, &run.bytes).unwrap();
    let reader = RunReader::open(StoredRun::new(storage, name)).unwrap().with_read_ahead(1_000);
    let mut cursor = reader.cursor("timers", EVERY_GROUP);
    assert!(cursor.advance().unwrap());
    plan.add(FaultRule::new(Effect::FailBefore).times(1));
    let error = loop {
        match cursor.advance() {
            Ok(more) => assert!(more, "the fault comes before the last block"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(cursor.current().is_none() && !cursor.advance().unwrap(), "it stays at its end");
    assert_eq!(reader.scan::<RunError>("timers", EVERY_GROUP, |_| Ok(())).unwrap(), 500);
}
