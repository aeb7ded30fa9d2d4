use millpond_core::{ErrorKind, KeyGroup, MaxParallelism};
use proptest::prelude::*;

use super::*;
use crate::error::StateError;

fn max() -> MaxParallelism {
    MaxParallelism::new(128).unwrap()
}

/// A subtask with a split list of the given numbers.
fn with_list(name: &str, numbers: &[u32]) -> OperatorStateSnapshot {
    let mut states = OperatorStates::new();
    let list = states.list::<u32>(name).unwrap();
    list.add_all(&mut states, numbers.iter().copied()).unwrap();
    states.freeze()
}

fn numbers(snapshot: &OperatorStateSnapshot, name: &str) -> Vec<u32> {
    let mut states = OperatorStates::restore([snapshot.clone()]);
    let list = states.list::<u32>(name).unwrap();
    list.get(&states).unwrap().to_vec()
}

#[test]
fn os_01_os_02_lists_keep_order() {
    let mut states = OperatorStates::new();
    let list = states.list::<String>("l").unwrap();
    assert!(list.get(&states).unwrap().is_empty());
    list.add(&mut states, "b".into()).unwrap();
    list.add_all(&mut states, ["a".into(), "b".into()]).unwrap();
    assert_eq!(list.get(&states).unwrap(), ["b", "a", "b"]);
    list.update(&mut states, ["c".into()]).unwrap();
    assert_eq!(list.get(&states).unwrap(), ["c"]);
    list.update(&mut states, []).unwrap();
    assert!(list.get(&states).unwrap().is_empty());
    list.add(&mut states, "d".into()).unwrap();
    list.clear(&mut states).unwrap();
    assert!(states.freeze().lists[0].elements.is_empty());
}

/// Encodes, or fails for one value: what a refused element is in Rust.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
struct Refusing(u8);

impl serde::Serialize for Refusing {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 == 7 {
            return Err(serde::ser::Error::custom("seven"));
        }
        serializer.serialize_newtype_struct("Refusing", &self.0)
    }
}

#[test]
fn os_03_a_refused_change_leaves_the_state_as_it_was() {
    let mut states = OperatorStates::new();
    let list = states.list::<Refusing>("l").unwrap();
    let map = states.broadcast_map::<u8, Refusing>("m").unwrap();
    list.add(&mut states, Refusing(1)).unwrap();
    map.put(&mut states, 1, Refusing(1)).unwrap();
    let (before, version) = (states.freeze(), states.version());
    assert_eq!(list.add_all(&mut states, [Refusing(2), Refusing(7)]).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(list.update(&mut states, [Refusing(7)]).is_err());
    assert!(map.put(&mut states, 1, Refusing(7)).is_err());
    assert_eq!((states.freeze(), states.version()), (before, version));
    assert_eq!(list.get(&states).unwrap(), [Refusing(1)]);
}

#[test]
fn os_04_the_mode_is_fixed_also_over_restore() {
    let mut states = OperatorStates::new();
    states.list::<u32>("l").unwrap();
    let error = states.union_list::<u32>("l").err().unwrap();
    assert_eq!(error.to_string(), "operator list \"l\" is a split list, now asked for as a union list");
    let mut restored = OperatorStates::restore([states.freeze()]);
    assert!(matches!(restored.union_list::<u32>("l"), Err(StateError::ModeChanged { .. })));
    assert!(matches!(restored.list::<String>("l"), Err(StateError::SchemaChanged { part: "value", .. })));
    assert_eq!(restored.undeclared().collect::<Vec<_>>(), ["l"]);
    assert!(restored.list::<u32>("l").is_ok());
    assert!(matches!(restored.list::<u64>("l"), Err(StateError::DeclaredDifferently { .. })));
}

#[test]
fn os_05_lists_and_maps_may_share_a_name() {
    let mut states = OperatorStates::new();
    let list = states.list::<u32>("x").unwrap();
    let map = states.broadcast_map::<String, u32>("x").unwrap();
    list.add(&mut states, 1).unwrap();
    map.put(&mut states, "a".into(), 2).unwrap();
    assert_eq!(list.get(&states).unwrap(), [1]);
    assert_eq!(map.get(&states, &"a".into()).unwrap(), Some(&2));
}

#[test]
fn os_06_os_07_os_08_what_is_registered_is_present_after_restore() {
    assert!(OperatorStates::new().freeze().is_empty());
    let mut states = OperatorStates::new();
    states.union_list::<u32>("empty").unwrap();
    let snapshot = OperatorStateSnapshot::decode(&states.freeze().encode()).unwrap();
    assert!(!snapshot.is_empty());
    let restored = OperatorStates::restore([snapshot.clone()]);
    assert_eq!(restored.undeclared().collect::<Vec<_>>(), ["empty"]);
    assert_eq!(restored.freeze(), snapshot, "SN-05: untouched state is part of the next snapshot");
    let mut joined = OperatorStates::restore([with_list("l", &[1, 2]), with_list("l", &[3])]);
    let list = joined.list::<u32>("l").unwrap();
    assert_eq!(list.get(&joined).unwrap(), [1, 2, 3]);
}

#[test]
fn os_09_changes_after_the_freeze_are_not_in_the_snapshot() {
    let mut states = OperatorStates::new();
    let list = states.list::<u32>("l").unwrap();
    let map = states.broadcast_map::<u32, u32>("m").unwrap();
    list.add_all(&mut states, 0..1_000).unwrap();
    (0..100).for_each(|i| map.put(&mut states, i, i).unwrap());
    let snapshot = states.freeze();
    let bytes = snapshot.encode();
    list.add(&mut states, 1).unwrap();
    map.put(&mut states, 5, 6).unwrap();
    map.remove(&mut states, &6).unwrap();
    states.list::<u32>("later").unwrap();
    assert_eq!(snapshot.encode(), bytes);
    list.clear(&mut states).unwrap();
    map.clear(&mut states).unwrap();
    assert_eq!(snapshot.encode(), bytes);
}

#[test]
fn os_10_uneven_lists_are_dealt_out_in_consecutive_runs() {
    let old = [&[0, 1, 2, 3, 4, 5, 6][..], &[7, 8], &[], &[9, 10, 11, 12, 13]].map(|list| with_list("l", list));
    let new = redistribute(&old, max(), 3).unwrap();
    assert_eq!(numbers(&new[0], "l"), [0, 1, 2, 3, 4]);
    assert_eq!(numbers(&new[1], "l"), [5, 6, 7, 8, 9]);
    assert_eq!(numbers(&new[2], "l"), [10, 11, 12, 13]);
}

#[test]
fn os_11_nothing_moves_at_equal_parallelism() {
    let old = [with_list("l", &[1, 2, 3]), with_list("l", &[]), OperatorStateSnapshot::default()];
    let new = redistribute(&old, max(), 3).unwrap();
    assert_eq!(new[..2], old[..2]);
    assert!(numbers(&new[2], "l").is_empty());
}

#[test]
fn os_12_the_next_name_begins_where_the_extra_elements_ended() {
    let mut old = with_list("a", &[1, 2, 3, 4]);
    old.lists.extend(with_list("b", &[5, 6]).lists);
    let new = redistribute(&[old], max(), 3).unwrap();
    let sizes = |name: &str| new.iter().map(|snapshot| numbers(snapshot, name)).collect::<Vec<_>>();
    assert_eq!(sizes("a"), [vec![1, 2], vec![3], vec![4]]);
    assert_eq!(sizes("b"), [vec![], vec![5], vec![6]]);
}

#[test]
fn os_13_everybody_gets_all_of_a_union_list() {
    let one = |number| {
        let mut states = OperatorStates::new();
        let list = states.union_list::<u32>("u").unwrap();
        list.add(&mut states, number).unwrap();
        states.freeze()
    };
    let old = [one(1), OperatorStateSnapshot::default(), one(3)];
    for parallelism in [1, 3, 5] {
        let new = redistribute(&old, max(), parallelism).unwrap();
        assert_eq!(new.len(), parallelism as usize);
        for snapshot in &new {
            let mut states = OperatorStates::restore([snapshot.clone()]);
            let list = states.union_list::<u32>("u").unwrap();
            assert_eq!(list.get(&states).unwrap(), [1, 3]);
        }
    }
}

#[test]
fn os_14_os_15_broadcast_copies_go_round_and_fill_gaps() {
    let copy = |number| {
        let mut states = OperatorStates::new();
        let map = states.broadcast_map::<String, u32>("m").unwrap();
        map.put(&mut states, "from".into(), number).unwrap();
        states.freeze()
    };
    let from = |snapshots: &[OperatorStateSnapshot]| {
        let from = snapshots.iter().map(|snapshot| {
            let mut states = OperatorStates::restore([snapshot.clone()]);
            let map = states.broadcast_map::<String, u32>("m").unwrap();
            *map.get(&states, &"from".into()).unwrap().unwrap()
        });
        from.collect::<Vec<_>>()
    };
    let old = [copy(0), copy(1), copy(2)];
    assert_eq!(from(&redistribute(&old, max(), 7).unwrap()), [0, 1, 2, 0, 1, 2, 0]);
    assert_eq!(from(&redistribute(&old, max(), 2).unwrap()), [0, 1]);
    let gap = [copy(0), OperatorStateSnapshot::default(), copy(2)];
    assert_eq!(from(&redistribute(&gap, max(), 3).unwrap()), [0, 2, 2]);
}

#[test]
fn os_16_raw_pieces_are_split_and_raw_keyed_bytes_follow_their_group() {
    let mut states = OperatorStates::new();
    states.set_raw_pieces([vec![1], vec![2], vec![3]]);
    states.set_raw_keyed(KeyGroup(5), Some(vec![50]));
    states.set_raw_keyed(KeyGroup(100), Some(vec![100]));
    states.set_raw_keyed(KeyGroup(6), Some(vec![60]));
    states.set_raw_keyed(KeyGroup(6), None);
    let new = redistribute(&[states.freeze()], max(), 2).unwrap();
    let new = new.into_iter().map(|snapshot| OperatorStates::restore([snapshot])).collect::<Vec<_>>();
    assert_eq!([new[0].raw_pieces().len(), new[1].raw_pieces().len()], [2, 1]);
    assert_eq!((new[0].raw_keyed(KeyGroup(5)), new[0].raw_keyed(KeyGroup(100))), (Some(&[50][..]), None));
    assert_eq!(new[1].raw_keyed(KeyGroup(100)), Some(&[100][..]));
    assert_eq!(new[0].raw_keyed(KeyGroup(6)), None);
}

#[test]
fn subtasks_that_disagree_and_bad_parallelism_are_refused() {
    let mut union = OperatorStates::new();
    union.union_list::<u32>("l").unwrap();
    let old = [with_list("l", &[1]), union.freeze()];
    assert_eq!(redistribute(&old, max(), 1).unwrap_err().kind(), ErrorKind::Corrupt);
    for parallelism in [0, 129] {
        let error = redistribute(&[], max(), parallelism).unwrap_err();
        assert_eq!(error, StateError::Parallelism { given: parallelism, max: 128 });
    }
    assert_eq!(redistribute(&[], max(), 2).unwrap().len(), 2);
}

#[test]
fn bs_02_bs_04_the_other_side_reads_maps_in_the_order_of_encoded_keys() {
    let mut states = OperatorStates::new();
    let map = states.broadcast_map::<Option<u8>, u32>("m").unwrap();
    for key in [Some(9), None, Some(3)] {
        map.put(&mut states, key, 1).unwrap();
    }
    assert_eq!(map.remove(&mut states, &Some(4)).unwrap(), None);
    assert_eq!(map.remove(&mut states, &Some(9)).unwrap(), Some(1));
    let view = states.reader().view(&map).unwrap();
    assert_eq!(view.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [None, Some(3)]);
    assert!(view.contains(&None).unwrap() && !view.contains(&Some(9)).unwrap());
    assert_eq!((view.len(), view.is_empty()), (2, false));
}

fn sample() -> OperatorStateSnapshot {
    let mut states = OperatorStates::new();
    let list = states.list::<(u32, String)>("positions").unwrap();
    let union = states.union_list::<u8>("all of them").unwrap();
    let map = states.broadcast_map::<String, Vec<u8>>("rules").unwrap();
    list.add_all(&mut states, [(1, "a".into()), (300, "bc".into())]).unwrap();
    union.add(&mut states, 7).unwrap();
    map.put(&mut states, "k".into(), vec![1, 2]).unwrap();
    states.set_raw_pieces([vec![9, 8], vec![]]);
    states.set_raw_keyed(KeyGroup(300), Some(vec![5]));
    states.freeze()
}

/// Part of the checkpoint format: a change here makes old checkpoints unreadable.
#[test]
fn format_version_1_is_still_read_and_written() {
    let golden = include_bytes!("../../tests/data/operator-state-1.bin");
    assert_eq!(OperatorStateSnapshot::decode(golden).unwrap(), sample());
    assert_eq!(sample().encode(), golden);
}

#[test]
fn every_damaged_byte_and_every_cut_is_noticed() {
    let bytes = sample().encode();
    for at in 0..bytes.len() {
        assert!(OperatorStateSnapshot::decode(&bytes[..at]).is_err(), "cut at {at}");
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x11;
        assert!(OperatorStateSnapshot::decode(&damaged).is_err(), "damaged at {at}");
    }
}

proptest! {
    #[test]
    fn the_decoder_never_panics_even_under_a_right_checksum(body: Vec<u8>) {
        let mut bytes = b"MPOS\x01\x00".to_vec();
        bytes.extend_from_slice(&body);
        let sum = millpond_core::codec::checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        let _ = OperatorStateSnapshot::decode(&bytes);
    }

    #[test]
    fn os_10_no_element_is_lost_or_doubled(lists in prop::collection::vec(0usize..20, 1..6), parallelism in 1u32..9) {
        let mut next = 0;
        let old: Vec<_> = lists.iter().map(|count| {
            let list: Vec<u32> = (next..next + *count as u32).collect();
            next += *count as u32;
            with_list("l", &list)
        }).collect();
        let new = redistribute(&old, max(), parallelism).unwrap();
        let all: Vec<u32> = new.iter().flat_map(|snapshot| numbers(snapshot, "l")).collect();
        prop_assert_eq!(all, (0..next).collect::<Vec<_>>());
        if old.len() != new.len() {
            let sizes: Vec<usize> = new.iter().map(|snapshot| numbers(snapshot, "l").len()).collect();
            prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            prop_assert!(sizes.is_sorted_by(|a, b| a >= b));
        }
    }
}
