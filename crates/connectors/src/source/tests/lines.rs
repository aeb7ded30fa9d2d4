use super::*;

fn lines_of(bytes: &[u8]) -> Vec<String> {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "a.txt", bytes);
    read_all(&mut FileSource::lines(path)).0
}

#[test]
fn endings_of_both_kinds_and_a_last_line_without_one() {
    assert_eq!(lines_of(b"a\r\nb\n\nc\rd\r\r\ne"), ["a", "b", "", "c\rd\r", "e"]);
    assert_eq!(lines_of(b"a\r"), ["a\r"]);
    assert!(lines_of(b"").is_empty());
    assert_eq!(lines_of(b"\n"), [""]);
}

#[test]
fn a_byte_order_mark_is_not_part_of_the_first_line() {
    assert_eq!(lines_of(b"\xEF\xBB\xBFa\n\xEF\xBB\xBFb"), ["a", "\u{feff}b"]);
    assert!(lines_of(b"\xEF\xBB\xBF").is_empty());
}

#[test]
fn sr_04_the_position_is_behind_the_last_emitted_line() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "a.txt", b"one\r\ntwo\nthree");
    let mut reader = reader_of(&mut FileSource::lines(path));
    let mut positions = Vec::new();
    while read_once(&mut reader, 1).2 == ReadStatus::Ready {
        positions.push((reader.split().offset, reader.split().line));
    }
    assert_eq!(positions, [(5, 2), (9, 3), (14, 4)]);
}

#[test]
fn the_limit_is_respected() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "a.txt", "x\n".repeat(10));
    let mut reader = reader_of(&mut FileSource::lines(path));
    assert_eq!(read_once(&mut reader, 4).0.len(), 4);
    assert_eq!(read_once(&mut reader, 0), (vec![], vec![], ReadStatus::Ready));
    assert_eq!(read_once(&mut reader, 7).2, ReadStatus::Finished);
}

#[test]
fn a_line_that_is_too_long_is_a_bad_record_and_reading_goes_on() {
    let directory = TempDir::new().unwrap();
    let long = "y".repeat(1_000);
    for max in [3, 15, 16, 17, 31, 40] {
        let fits = "z".repeat(max);
        let path = write(&directory, "a.txt", format!("a\n{long}\r\n{fits}\r\n{fits}!\n{long}"));
        let source = FileSource::lines(path).max_record_bytes(max).bad_records(BadRecords::SideOutput);
        let (records, bad) = read_all(&mut { source });
        assert_eq!(records, ["a", &fits]);
        let found: Vec<_> = bad.iter().map(|bad| (bad.line, bad.bytes.len())).collect();
        assert_eq!(found, [(2, max), (4, max), (5, max)], "max {max}");
    }
}

#[test]
fn a_file_over_many_chunks_is_read_whole() {
    let expected: Vec<String> = (0..500).map(|i| "x".repeat(i % 97)).collect();
    assert_eq!(lines_of((expected.join("\n") + "\n").as_bytes()), expected);
}

proptest! {
    #[test]
    fn sr_01_any_restarts_give_the_same_lines(
        lines in prop::collection::vec("[a-zé\\r]{0,20}", 0..30),
        limits in prop::collection::vec(1usize..5, 1..8),
        ended: bool,
        compressed: bool,
    ) {
        let mut text = lines.join("\n");
        if ended { text.push('\n') }
        let name = if compressed { "a.gz" } else { "a.txt" };
        let bytes = if compressed { gzip(text.as_bytes()) } else { text.clone().into_bytes() };
        let directory = TempDir::new().unwrap();
        let path = write(&directory, name, bytes);
        let expected: Vec<&str> = text.lines().collect();
        prop_assert_eq!(&read_all(&mut FileSource::lines(&path)).0, &expected);
        prop_assert_eq!(read_with_restarts(&mut FileSource::lines(&path), &limits), expected);
    }

    #[test]
    fn any_bytes_are_lines_or_bad_records(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.txt", &bytes);
        let (records, bad) = read_all(&mut FileSource::lines(path).bad_records(BadRecords::SideOutput));
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        prop_assert_eq!(records.len() + bad.len(), lines.len());
        for bad in bad {
            prop_assert!(std::str::from_utf8(&bad.bytes).is_err());
            prop_assert!(lines[bad.line as usize - 1].starts_with(&bad.bytes));
        }
    }
}
