//! Damaged files give typed errors, never a panic, never a wrong row.

use crate::fixture::{EVERY_GROUP, Model, Op, buffer, model, sections, small_settings};
use millpond_core::{ErrorKind, KeyGroup};
use millpond_runs::{
    Compression, MemoryRun, RowBuffer, RunError, RunReader, RunSettings, SectionInfo, StateIndex, verify, write_runs,
};
use proptest::prelude::*;

fn ops() -> Vec<Op> {
    let value = |i: u16| (!i.is_multiple_of(5)).then(|| vec![i as u8; 3]);
    (0..40u16).map(|i| Op { state: i % 3, group: i / 4, key: vec![1, 2, i as u8], value: value(i) }).collect()
}

fn small_file(compression: Compression) -> Vec<u8> {
    let settings = RunSettings { target_file_bytes: 1 << 20, compression, ..small_settings() };
    write_runs(buffer(&ops()), &sections(), &settings).unwrap().remove(0).bytes
}

/// Reads everything; the rows that were visited before an error must be right.
fn read_all(bytes: Vec<u8>, truth: &Model) -> Result<Model, RunError> {
    let reader = RunReader::open(MemoryRun::new("some/test.run", bytes))?;
    let mut found = Model::new();
    for section in reader.sections() {
        reader.scan::<RunError>(&section.name, EVERY_GROUP, |row| {
            let key = (section.name.clone(), row.group.0, row.key.to_vec());
            let value = row.value.map(<[u8]>::to_vec);
            assert_eq!(truth.get(&key), Some(&value), "a wrong row");
            found.insert(key, value);
            Ok(())
        })?;
    }
    Ok(found)
}

#[track_caller]
fn assert_typed(error: &RunError) {
    let kind = error.kind();
    assert!(kind == ErrorKind::Corrupt || matches!(error, RunError::UnsupportedVersion { .. }), "{kind}: {error}");
    assert!(error.to_string().contains("some/test.run"), "{error}");
}

#[test]
fn every_changed_byte_is_found() {
    let truth = model(&ops());
    for compression in [Compression::None, Compression::Lz4] {
        let bytes = small_file(compression);
        for position in 0..bytes.len() {
            for change in [1u8, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[position] ^= change;
                let error = read_all(damaged.clone(), &truth).expect_err("damage is found on reading");
                assert_typed(&error);
                assert_typed(&verify(MemoryRun::new("some/test.run", damaged), None).unwrap_err());
            }
        }
    }
}

#[test]
fn every_cut_and_every_extension_is_found() {
    let truth = model(&ops());
    let bytes = small_file(Compression::Lz4);
    for length in 0..bytes.len() {
        assert_typed(&read_all(bytes[..length].to_vec(), &truth).unwrap_err());
        assert_typed(&read_all(bytes[length + 1..].to_vec(), &truth).unwrap_err());
    }
    assert_typed(&read_all([bytes.as_slice(), &[0]].concat(), &truth).unwrap_err());
    assert_typed(&read_all([&[0], bytes.as_slice()].concat(), &truth).unwrap_err());
    assert_typed(&read_all([bytes.as_slice(), &bytes].concat(), &truth).unwrap_err());
}

/// Sets the checksums of a changed file right, so that only the rules of the format can find it.
fn reseal(bytes: &mut [u8]) {
    let sum = |bytes: &[u8]| millpond_core::codec::checksum(bytes).to_le_bytes();
    let trailer = bytes.len() - 36;
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (offset, length) = (number(trailer) as usize, number(trailer + 8) as usize);
    if let Some(footer) = offset.checked_add(length).and_then(|end| bytes.get(offset..end)) {
        let footer_sum = sum(footer);
        bytes[trailer + 16..trailer + 20].copy_from_slice(&footer_sum);
    }
    let trailer_sum = sum(&bytes[trailer..trailer + 24]);
    bytes[trailer + 24..trailer + 28].copy_from_slice(&trailer_sum);
    let header_sum = sum(&bytes[..12]);
    bytes[12..16].copy_from_slice(&header_sum);
}

#[test]
fn a_footer_with_right_checksums_and_wrong_contents_does_no_harm() {
    let bytes = small_file(Compression::None);
    let trailer = bytes.len() - 36;
    let footer = u64::from_le_bytes(bytes[trailer..trailer + 8].try_into().unwrap()) as usize;
    let mut found = 0;
    for position in footer..trailer + 24 {
        for change in 1..=255u8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= change;
            reseal(&mut damaged);
            match verify(MemoryRun::new("some/test.run", damaged), None) {
                Ok(_) => {}
                Err(error) => {
                    assert_typed(&error);
                    found += 1;
                }
            }
        }
    }
    assert!(found > 0);
}

/// A file of one block with any bytes in it, with right checksums.
fn forge(block: &[u8], rows: u8, encoding: u8, raw_bytes: u8) -> Vec<u8> {
    let mut bytes = small_file(Compression::None)[..16].to_vec();
    bytes.extend_from_slice(block);
    let footer = bytes.len();
    bytes.extend_from_slice(&[1, 1, b's', 1, 0, rows, 0, 1, block.len() as u8, raw_bytes, encoding]);
    bytes.extend_from_slice(&millpond_core::codec::checksum(block).to_le_bytes());
    bytes.extend_from_slice(&[rows, 0, 0]);
    let length = bytes.len() - footer;
    bytes.extend_from_slice(&(footer as u64).to_le_bytes());
    bytes.extend_from_slice(&(length as u64).to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&1u32.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(b"mpondrun");
    reseal(&mut bytes);
    bytes
}

#[test]
fn rows_out_of_order_are_found_though_every_checksum_is_right() {
    let row = |key: u8| [0, 3, 1, 0, 0, key];
    let next = |shared: u8, suffix: &[u8]| [&[shared, suffix.len() as u8, 1], suffix].concat();
    let check = |block: Vec<u8>, rows: u8| {
        verify(MemoryRun::new("some/test.run", forge(&block, rows, 0, block.len() as u8)), None)
    };
    assert_eq!(check([row(5).to_vec(), next(2, &[6])].concat(), 2).unwrap().rows, 2);
    assert_eq!(check([row(5).to_vec(), next(3, &[0])].concat(), 2).unwrap().rows, 2);
    for wrong in [next(2, &[5]), next(2, &[4]), next(3, &[]), next(2, &[]), next(1, &[0, 6]), next(4, &[9])] {
        assert_typed(&check([row(5).to_vec(), wrong].concat(), 2).unwrap_err());
    }
    assert_typed(&check([row(5).to_vec(), next(2, &[6])].concat(), 1).unwrap_err());
    assert_typed(&check(row(5).to_vec(), 2).unwrap_err());
    assert_typed(&check(vec![0, 1, 1, 0], 1).unwrap_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_in_a_block_with_right_checksums_do_no_harm(block in proptest::collection::vec(any::<u8>(), 1..100), rows in 1u8..20, encoding in 0u8..3, raw_bytes in 1u8..127) {
        let raw_bytes = if encoding == 0 { block.len() as u8 } else { raw_bytes };
        match verify(MemoryRun::new("some/test.run", forge(&block, rows, encoding, raw_bytes)), None) {
            Ok(info) => prop_assert_eq!(info.rows, u64::from(rows)),
            Err(error) => assert_typed(&error),
        }
    }

    #[test]
    fn any_bytes_as_a_file_do_no_harm(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), seal: bool) {
        if seal && bytes.len() >= 52 {
            let end = bytes.len();
            bytes[end - 8..].copy_from_slice(b"mpondrun");
            bytes[end - 16..end - 12].copy_from_slice(&1u32.to_le_bytes());
            bytes[..8].copy_from_slice(b"mpondrun");
            bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
            let footer = 16.max(end / 2).min(end - 36);
            bytes[end - 36..end - 28].copy_from_slice(&(footer as u64).to_le_bytes());
            bytes[end - 28..end - 20].copy_from_slice(&((end - 36 - footer) as u64).to_le_bytes());
            reseal(&mut bytes);
        }
        if let Err(error) = verify(MemoryRun::new("some/test.run", bytes), None) {
            assert_typed(&error);
        }
    }
}

#[test]
fn another_format_version_is_named() {
    let mut bytes = small_file(Compression::Lz4);
    let trailer = bytes.len() - 36;
    bytes[trailer + 20] = 2;
    reseal(&mut bytes);
    let error = RunReader::open(MemoryRun::new("some/test.run", bytes)).unwrap_err();
    assert!(matches!(error, RunError::UnsupportedVersion { version: 2, supported: 1, .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

#[test]
fn a_sound_file_that_is_not_the_expected_one_is_found() {
    let runs = write_runs(buffer(&ops()), &sections(), &RunSettings::default()).unwrap();
    let mut expected = runs[0].info.clone();
    expected.checksum ^= 1;
    let error = verify(MemoryRun::new("some/test.run", runs[0].bytes.clone()), Some(&expected)).unwrap_err();
    assert!(matches!(error, RunError::Mismatch { what: "checksum", .. }), "{error}");
    assert_typed(&error);
}

#[test]
fn wrong_calls_are_refused() {
    let one_row = || buffer(&[Op { state: 3, group: 0, key: vec![], value: None }]);
    let kinds = [
        write_runs(one_row(), &sections()[..2], &RunSettings::default()).unwrap_err(),
        write_runs(one_row(), &[], &RunSettings::default()).unwrap_err(),
        write_runs(one_row(), &sections(), &RunSettings { block_bytes: 1, ..RunSettings::default() }).unwrap_err(),
        write_runs(one_row(), &vec![sections().remove(0); 4], &RunSettings::default()).unwrap_err(),
    ];
    let said: Vec<String> = kinds.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "row of state 3, but there are only 2 sections",
            "row of state 3, but there are only 0 sections",
            "block_bytes is 1, not in 64..=16777216",
            "section \"timers\" is declared twice",
        ]
    );
    assert!(kinds.iter().all(|error| error.kind() == ErrorKind::Invalid));
}

#[test]
fn a_failed_put_leaves_the_buffer_as_it_was() {
    let mut rows = RowBuffer::new();
    let fail = |bytes: &mut Vec<u8>| {
        bytes.push(1);
        Err("no")
    };
    let pass = |bytes: &mut Vec<u8>| {
        bytes.push(2);
        Ok(())
    };
    assert_eq!(rows.put(StateIndex(0), KeyGroup(1), fail, pass), Err("no"));
    assert_eq!(rows.put(StateIndex(0), KeyGroup(1), pass, fail), Err("no"));
    assert_eq!(rows.delete(StateIndex(0), KeyGroup(1), fail), Err("no"));
    assert_eq!((rows.rows(), rows.bytes(), rows.is_empty()), (0, 0, true));
    assert_eq!(rows.put(StateIndex(0), KeyGroup(1), pass, pass), Ok(()));
    let section = SectionInfo { name: "s".to_owned(), description: String::new() };
    let runs = write_runs(rows, &[section], &RunSettings::default()).unwrap();
    assert_eq!(runs[0].info.rows, 1);
}

/// A reader knew a file by its size alone: another sound run of the same size under the name was read as if nothing
/// had happened, and gave wrong values.
#[test]
fn another_sound_run_of_the_same_size_is_refused_before_a_row_is_read() {
    let settings = RunSettings { target_file_bytes: 1 << 20, compression: Compression::None, ..small_settings() };
    let mut other = ops();
    other[7].value = Some(vec![0xee; 3]);
    let [one, other] = [ops(), other].map(|ops| write_runs(buffer(&ops), &sections(), &settings).unwrap().remove(0));
    assert_eq!(one.info.bytes, other.info.bytes);
    let open = |bytes: &[u8]| {
        RunReader::open_stated(MemoryRun::new("some/test.run", bytes), one.info.bytes, one.info.checksum).map(|_| ())
    };
    open(&one.bytes).unwrap();
    let error = open(&other.bytes).unwrap_err();
    assert!(matches!(error, RunError::Mismatch { what: "checksum", .. }), "{error}");
    assert_typed(&error);
}
