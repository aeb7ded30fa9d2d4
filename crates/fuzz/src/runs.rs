//! Run files: as they are, with their checksums set right, and blocks of any bytes.

use std::convert::Infallible;

use millpond_core::codec::{checksum, put_varint};
use millpond_core::{KeyGroup, KeyGroupRange};
use millpond_runs::{
    Compression, LiveRows, MemoryRun, RowBuffer, RunError, RunReader, RunSettings, SectionInfo, StateIndex, merge_runs,
    verify, write_runs,
};

const EVERY_GROUP: KeyGroupRange = KeyGroupRange::new(0, 1 << 16);
const HEADER_BYTES: usize = 16;
const TRAILER_BYTES: usize = 36;

/// A file: whatever can be opened is read, looked through and merged.
pub(crate) fn run(bytes: &[u8]) {
    let source = MemoryRun::new("fuzzed.run", bytes);
    let verified = verify(&source, None);
    let Ok(reader) = RunReader::open(&source) else {
        assert!(verified.is_err(), "what cannot be opened is not sound");
        return;
    };
    let mut rows = 0;
    let mut scanned = true;
    for section in reader.sections() {
        let mut before: Option<(u16, Vec<u8>)> = None;
        let outcome = reader.scan::<RunError>(&section.name, EVERY_GROUP, |row| {
            let place = (row.group.0, row.key.to_vec());
            assert!(before.as_ref().is_none_or(|before| *before < place), "rows ascend");
            assert!((row.description as usize) < section.descriptions.len(), "rows have a description");
            before = Some(place);
            rows += 1;
            Ok(())
        });
        scanned &= outcome.is_ok();
        let _ = reader.scan::<RunError>(&section.name, KeyGroupRange::new(3, 5), |_| Ok(()));
        if let Ok(mut live) = LiveRows::new(vec![&reader], &section.name, EVERY_GROUP) {
            while live.advance().unwrap_or(false) {
                let _ = live.current();
            }
        }
    }
    if let Ok(info) = verified {
        assert!(scanned && info.rows == rows, "what is sound can be read");
        let stated = || RunReader::open_stated(&source, info.bytes, info.checksum);
        let readers = [stated(), stated()];
        let readers = readers.map(|reader| reader.expect("a sound file is the one that its description states"));
        let mut merged = 0;
        let outcome = merge_runs(&readers, false, &RunSettings::default(), |run| {
            merged += run.info.rows;
            Ok::<(), RunError>(())
        });
        assert!(outcome.is_ok() && merged == rows, "a run merged with itself has its rows");
    }
}

/// A file whose checksums are set right first, so that only the rules of the format stand in the way.
pub(crate) fn run_sealed(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if bytes.len() >= HEADER_BYTES + TRAILER_BYTES {
        seal(&mut bytes);
    }
    run(&bytes);
}

fn seal(bytes: &mut [u8]) {
    let trailer = bytes.len() - TRAILER_BYTES;
    let number = |bytes: &[u8], at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i])) as usize;
    let (offset, length) = (number(bytes, trailer), number(bytes, trailer + 8));
    if let Some(footer) = offset.checked_add(length).and_then(|end| bytes.get(offset..end)) {
        let sum = checksum(footer).to_le_bytes();
        bytes[trailer + 16..trailer + 20].copy_from_slice(&sum);
    }
    let sum = checksum(&bytes[trailer..trailer + 24]).to_le_bytes();
    bytes[trailer + 24..trailer + 28].copy_from_slice(&sum);
    let sum = checksum(&bytes[..12]).to_le_bytes();
    bytes[12..16].copy_from_slice(&sum);
}

/// One block of any bytes in a file that is sound but for it: first how it is stored, the number of rows and
/// descriptions, and its size when it is unpacked.
pub(crate) fn block(bytes: &[u8]) {
    let Some((&[encoding, rows, descriptions, first, second], block)) = bytes.split_first_chunk::<5>() else { return };
    let (rows, descriptions) = (u64::from(rows) + 1, u64::from(descriptions % 3) + 1);
    let raw = if encoding & 1 == 0 { block.len() as u64 } else { u64::from(u16::from_le_bytes([first, second])) };
    let mut file = seeds_of(Compression::None)[..HEADER_BYTES].to_vec();
    file.extend_from_slice(block);
    let footer = file.len();
    file.extend_from_slice(&[1, 1, b's']);
    put_varint(descriptions, &mut file);
    for number in 0..descriptions {
        file.extend_from_slice(&[1, b'd']);
        put_varint(if number == 0 { rows } else { 0 }, &mut file);
    }
    file.extend_from_slice(&[0, 1]);
    put_varint(block.len() as u64, &mut file);
    put_varint(raw, &mut file);
    file.push(encoding & 1);
    file.extend_from_slice(&checksum(block).to_le_bytes());
    put_varint(rows, &mut file);
    put_varint(0, &mut file);
    put_varint(0xffff, &mut file);
    let length = file.len() - footer;
    file.extend_from_slice(&(footer as u64).to_le_bytes());
    file.extend_from_slice(&(length as u64).to_le_bytes());
    file.extend_from_slice(&[0; 4]);
    file.extend_from_slice(&1u32.to_le_bytes());
    file.extend_from_slice(&[0; 4]);
    file.extend_from_slice(b"mpondrun");
    seal(&mut file);
    run(&file);
}

/// Appends a row of plain bytes.
pub(crate) fn push(buffer: &mut RowBuffer, state: StateIndex, group: KeyGroup, key: &[u8], value: Option<&[u8]>) {
    let append = |part: &[u8], bytes: &mut Vec<u8>| -> Result<(), Infallible> {
        bytes.extend_from_slice(part);
        Ok(())
    };
    let pushed = match value {
        Some(value) => buffer.put(state, group, |bytes| append(key, bytes), |bytes| append(value, bytes)),
        None => buffer.delete(state, group, |bytes| append(key, bytes)),
    };
    let Ok(()) = pushed;
}

fn seeds_of(compression: Compression) -> Vec<u8> {
    let mut buffer = RowBuffer::new();
    for i in 0..60u16 {
        let key = [1, (i / 4) as u8, i as u8];
        let value = [i as u8; 9];
        let value = (!i.is_multiple_of(5)).then_some(&value[..]);
        push(&mut buffer, StateIndex(i % 2), KeyGroup(i / 3), &key, value);
    }
    let section = |name: &str| SectionInfo { name: name.to_owned(), description: "{}".to_owned() };
    let settings = RunSettings { block_bytes: 64, compression, ..RunSettings::default() };
    let runs = write_runs(buffer, &[section("a"), section("b")], &settings).expect("the rows are sound");
    runs.into_iter().map(|run| run.bytes).next().expect("there are rows")
}

pub(crate) fn run_seeds() -> Vec<Vec<u8>> {
    vec![seeds_of(Compression::None), seeds_of(Compression::Lz4)]
}

pub(crate) fn block_seeds() -> Vec<Vec<u8>> {
    // Shared bytes, following bytes, value length + 1, then the rest of the key and the value.
    let rows = [0, 3, 3, 0, 1, b'k', 7, 7, 3, 1, 0, b'l', 2, 2, 2, 0, 9, b'm', b'n', 1];
    let plain = [&[0, 2, 0, 0, 0][..], &rows].concat();
    let described = [&[0, 0, 1, 0, 0][..], &[0, 3, 2, 0, 0, 1, b'k', 7]].concat();
    // Twenty literals, as LZ4 has them.
    let packed = [&[1, 2, 0, 20, 0][..], &[0xf0, 5], &rows].concat();
    vec![plain, described, packed]
}
