use std::sync::Arc;

use super::*;

fn emitted<R: SplitReader<Record = u64>>(reader: &mut R, limit: usize) -> Vec<u64> {
    read_once(reader, limit).0
}

#[test]
fn records_are_dealt_out_by_index() {
    let mut source = GeneratorSource::new(8, 3, |index| index * 10);
    let splits = source.enumerate().unwrap();
    let records: Vec<Vec<u64>> =
        splits.into_iter().map(|split| emitted(&mut source.open_split(split).unwrap(), 99)).collect();
    assert_eq!(records, [vec![0, 30, 60], vec![10, 40, 70], vec![20, 50]]);
}

#[test]
fn a_restored_split_keeps_the_stride_it_began_with() {
    let mut source = GeneratorSource::new(100, 3, |index| index);
    let split = source.enumerate().unwrap().remove(1);
    let mut reader = source.open_split(split).unwrap();
    assert_eq!(emitted(&mut reader, 2), [1, 4]);
    let mut other = GeneratorSource::new(100, 7, |index| index);
    assert_eq!(emitted(&mut other.open_split(reader.split()).unwrap(), 2), [7, 10]);
}

#[test]
fn an_endless_generator_does_not_overflow() {
    let mut source = GeneratorSource::new(u64::MAX, 4, |index| index);
    let split = GeneratorSplit { index: 2, splits: 4, next: u64::MAX - 1 };
    let mut reader = source.open_split(split).unwrap();
    assert_eq!(read_once(&mut reader, 9), (vec![u64::MAX - 1], vec![], ReadStatus::Finished));
}

#[test]
fn the_rate_holds_for_all_splits_together() {
    let clock = Arc::new(ManualClock::new(5_000));
    let mut source = GeneratorSource::new(u64::MAX, 3, |index| index).rate_by(10, clock.clone());
    let splits = source.enumerate().unwrap();
    let mut readers: Vec<_> = splits.into_iter().map(|split| source.open_split(split).unwrap()).collect();
    let mut total = 0;
    for (advance, expected) in [(0, 0), (99, 0), (1, 1), (900, 10), (10_000, 110)] {
        clock.advance(advance);
        total += readers.iter_mut().map(|reader| emitted(reader, 1_000).len()).sum::<usize>();
        assert_eq!(total, expected);
    }
    assert_eq!(read_once(&mut readers[0], 1).2, ReadStatus::Idle);
}

#[test]
fn no_splits_are_refused() {
    assert!(matches!(failure(GeneratorSource::new(1, 0, |index| index)), ConnectorError::Setting { .. }));
}

#[test]
fn given_records_come_out_once_from_any_restarts() {
    fn check<T: Data + PartialEq + std::fmt::Debug>(records: Vec<T>) {
        let mut source = VecSource::new(records.clone());
        assert_eq!(read_with_restarts(&mut source, &[2, 1]), records);
    }
    check((0..7).collect());
    check(Vec::<String>::new());
    let (mut dealt, _) = read_all(&mut VecSource::new(0..7).splits(3));
    dealt.sort_unstable();
    assert!(dealt.into_iter().eq(0..7));
}
