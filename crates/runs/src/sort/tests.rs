use std::collections::BTreeMap;
use std::convert::Infallible;

use millpond_core::{KeyGroup, SplitMix64};
use proptest::prelude::*;

use super::*;
use crate::buffer::StateIndex;

/// State, group, key; the value's size and fill, or a tombstone.
type Op = (u16, u16, Vec<u8>, Option<(usize, u8)>);
type Winners = Vec<(u16, u16, Vec<u8>, Option<Vec<u8>>)>;

/// State 0 comes last.
const RANKS: [u16; 3] = [2, 0, 1];

fn op() -> impl Strategy<Value = Op> {
    let group = prop_oneof![0u16..4, 254u16..258, Just(65_535)];
    let key = prop_oneof![
        proptest::collection::vec(prop_oneof![Just(0u8), Just(255)], 0..3),
        proptest::collection::vec(0u8..2, 7..11),
        (0usize..3).prop_map(|tail| vec![7; 90 + tail]),
    ];
    let bytes = prop_oneof![4 => 0usize..40, 4 => 200usize..3_000, 1 => 250_000usize..600_000];
    (0u16..3, group, key, proptest::option::weighted(0.7, (bytes, any::<u8>())))
}

fn bytes(from: &[u8]) -> impl FnOnce(&mut Vec<u8>) -> Result<(), Infallible> {
    |to| {
        to.extend_from_slice(from);
        Ok(())
    }
}

fn buffer(epochs: &[Vec<Op>]) -> RowBuffer {
    let mut all = RowBuffer::new();
    for ops in epochs {
        let mut rows = RowBuffer::new();
        for (state, group, key, value) in ops {
            let (state, group) = (StateIndex(*state), KeyGroup(*group));
            let Ok(()) = match value {
                Some((length, fill)) => rows.put(state, group, bytes(key), bytes(&vec![*fill; *length])),
                None => rows.delete(state, group, bytes(key)),
            };
        }
        all.merge_newer(rows);
    }
    all
}

/// Within an epoch a put beats a delete and a later put an earlier one; a newer epoch beats an older one.
fn model(epochs: &[Vec<Op>]) -> Winners {
    let mut all = BTreeMap::new();
    for ops in epochs {
        let mut newer = BTreeMap::new();
        for (state, group, key, value) in ops {
            let address = (RANKS[usize::from(*state)], *group, key.clone());
            if value.is_some() || !newer.contains_key(&address) {
                newer.insert(address, value.map(|(length, fill)| vec![fill; length]));
            }
        }
        all.extend(newer);
    }
    all.into_iter().map(|((rank, group, key), value)| (rank, group, key, value)).collect()
}

fn collect(into: &mut Winners) -> impl FnMut(SortedRow<'_>) {
    |row| into.push((row.rank, row.group, row.key.to_vec(), row.value.map(<[u8]>::to_vec)))
}

/// The winners when rows are copied, and when they are visited where they lie.
fn both(epochs: &[Vec<Op>]) -> [Winners; 2] {
    let mut found = [Winners::new(), Winners::new()];
    copied::for_each_winner(buffer(epochs), &RANKS, collect(&mut found[0])).unwrap();
    in_chunks::for_each_winner(buffer(epochs), &RANKS, collect(&mut found[1])).unwrap();
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn both_ways_of_sorting_find_the_winners_of_a_plain_model(
        epochs in proptest::collection::vec(proptest::collection::vec(op(), 0..60), 0..4)
    ) {
        let expected = model(&epochs);
        let [copied, in_chunks] = both(&epochs);
        prop_assert!(copied == expected, "copied");
        prop_assert!(in_chunks == expected, "in chunks");
        let mut chosen = Winners::new();
        for_each_winner(buffer(&epochs), &RANKS, collect(&mut chosen)).unwrap();
        prop_assert!(chosen == expected, "chosen by size");
    }
}

#[test]
fn both_ways_agree_on_many_chunks_and_buckets() {
    let mut random = SplitMix64::new(3);
    let mut op = |_| {
        let number = random.below(9_000);
        let value = random.chance(850).then(|| (random.below(2_000) as usize, number as u8));
        ((number % 3) as u16, (number % 500) as u16, format!("key {number:07}").into_bytes(), value)
    };
    let epochs: Vec<Vec<Op>> = [5_000, 1, 5_000].map(|rows| (0..rows).map(&mut op).collect()).to_vec();
    let expected = model(&epochs);
    let [copied, in_chunks] = both(&epochs);
    assert!(copied == expected && in_chunks == expected);
}

#[test]
fn a_row_of_an_unknown_state_is_refused_by_both_ways() {
    for bytes in [1, 10_000] {
        let rows = buffer(&[vec![(2, 1, vec![1], Some((bytes, 1)))]]);
        let refused = for_each_winner(rows, &RANKS[..2], |_| panic!("no row is visited")).unwrap_err();
        assert!(matches!(refused, RunError::UnknownState { state: 2, sections: 2 }), "{refused}");
    }
}
