use std::any::TypeId;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use millpond_core::{Data, ErrorKind, ManualClock};
use millpond_dataflow::output::SidePort;
use millpond_dataflow::{Output, Outputs, ReadStatus, Source, Split, SplitReader};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::*;
use crate::ConnectorError;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u64,
    name: String,
}

fn order(id: u64, name: &str) -> Order {
    Order {
        id,
        name: name.to_owned(),
    }
}

fn write(directory: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn append(path: &Path, bytes: &[u8]) {
    fs::OpenOptions::new()
        .append(true)
        .open(path)
        .unwrap()
        .write_all(bytes)
        .unwrap();
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// What a reader gives in one call: the records, the bad records, and how it stands.
fn read_once<R: SplitReader>(
    reader: &mut R,
    limit: usize,
) -> (Vec<R::Record>, Vec<BadRecord>, ReadStatus) {
    let mut output = Output::new();
    output.listen(&[SidePort {
        name: BAD_RECORDS.name(),
        record_type: TypeId::of::<BadRecord>(),
        port: 1,
    }]);
    let status = reader.read(limit, &mut output).unwrap();
    let mut outputs = Outputs::default();
    output.flush(&mut outputs);
    let (mut records, mut bad) = (Vec::new(), Vec::new());
    for (port, batch) in outputs.drain() {
        match port {
            0 => records.extend(batch.downcast::<R::Record>().records),
            _ => bad.extend(batch.downcast::<BadRecord>().records),
        }
    }
    (records, bad, status)
}

fn read_all<S: Source>(source: &mut S) -> (Vec<S::Record>, Vec<BadRecord>) {
    let (mut records, mut bad) = (Vec::new(), Vec::new());
    for split in source.enumerate().unwrap() {
        let mut reader = source.open_split(split).unwrap();
        loop {
            let (more, more_bad, status) = read_once(&mut reader, 3);
            records.extend(more);
            bad.extend(more_bad);
            if status != ReadStatus::Ready {
                break;
            }
        }
    }
    (records, bad)
}

fn reader_of<S: Source>(source: &mut S) -> S::Reader {
    let split = source.enumerate().unwrap().remove(0);
    source.open_split(split).unwrap()
}

/// The error of reading the first file of a source to its end.
fn failure<S: Source>(mut source: S) -> ConnectorError {
    let outcome = source.enumerate().and_then(|splits| {
        let mut reader = source.open_split(splits[0].clone())?;
        while reader.read(10, &mut Output::new())? == ReadStatus::Ready {}
        Ok(())
    });
    *outcome.unwrap_err().downcast().unwrap()
}

/// The error of going on at `split`.
fn failure_at<S: Source>(mut source: S, split: S::Split) -> ConnectorError {
    let mut reader = source.open_split(split).unwrap();
    *reader
        .read(10, &mut Output::new())
        .unwrap_err()
        .downcast()
        .unwrap()
}

/// Reads in calls of the given limits and goes on in a new reader after each of them.
fn read_with_restarts<S: Source>(source: &mut S, limits: &[usize]) -> Vec<S::Record> {
    let mut split = source.enumerate().unwrap().remove(0);
    let mut records = Vec::new();
    for limit in limits.iter().cycle() {
        let mut reader = source.open_split(split).unwrap();
        let (more, _, status) = read_once(&mut reader, *limit);
        records.extend(more);
        if status == ReadStatus::Finished {
            return records;
        }
        split = reader.split();
    }
    records
}

mod lines {
    use super::*;

    fn lines_of(bytes: &[u8]) -> Vec<String> {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.txt", bytes);
        read_all(&mut FileSource::lines(path)).0
    }

    #[test]
    fn endings_of_both_kinds_and_a_last_line_without_one() {
        assert_eq!(
            lines_of(b"a\r\nb\n\nc\rd\r\r\ne"),
            ["a", "b", "", "c\rd\r", "e"]
        );
        assert_eq!(lines_of(b"a\r"), ["a\r"]);
        assert!(lines_of(b"").is_empty());
        assert_eq!(lines_of(b"\n"), [""]);
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_line() {
        assert_eq!(
            lines_of(b"\xEF\xBB\xBFa\n\xEF\xBB\xBFb"),
            ["a", "\u{feff}b"]
        );
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
        assert_eq!(
            read_once(&mut reader, 0),
            (vec![], vec![], ReadStatus::Ready)
        );
        assert_eq!(read_once(&mut reader, 7).2, ReadStatus::Finished);
    }

    #[test]
    fn a_line_that_is_too_long_is_a_bad_record_and_reading_goes_on() {
        let directory = TempDir::new().unwrap();
        let long = "y".repeat(1_000);
        for max in [3, 15, 16, 17, 31, 40] {
            let fits = "z".repeat(max);
            let path = write(
                &directory,
                "a.txt",
                format!("a\n{long}\r\n{fits}\r\n{fits}!\n{long}"),
            );
            let source = FileSource::lines(path)
                .max_record_bytes(max)
                .bad_records(BadRecords::SideOutput);
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
}

mod csv {
    use super::*;

    #[test]
    fn fields_belong_to_columns_by_name() {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.csv", "name,id\n\"a, \"\"b\"\"\",1\n\nc,2");
        let (records, _) = read_all(&mut FileSource::csv::<Order>(path));
        assert_eq!(records, [order(1, "a, \"b\""), order(2, "c")]);
    }

    #[test]
    fn without_header_fields_belong_to_columns_by_order() {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.csv", "1;a\r\n2;b\r\n");
        let (records, _) = read_all(
            &mut FileSource::csv::<Order>(path)
                .without_header()
                .delimiter(b';'),
        );
        assert_eq!(records, [order(1, "a"), order(2, "b")]);
    }

    #[test]
    fn bad_records_are_told_with_their_line_and_bytes() {
        let directory = TempDir::new().unwrap();
        let path = write(
            &directory,
            "a.csv",
            b"id,name\n1,\"a\nb\"\nx,c\n3\n4,\xff\n5,e\n",
        );
        let mut source = FileSource::csv::<Order>(&path).bad_records(BadRecords::SideOutput);
        let (records, bad) = read_all(&mut source);
        assert_eq!(records, [order(1, "a\nb"), order(5, "e")]);
        let told: Vec<_> = bad
            .iter()
            .map(|bad| (bad.line, bad.offset, bad.bytes.as_slice()))
            .collect();
        assert_eq!(
            told,
            [(4, 16, &b"x,c"[..]), (5, 20, b"3"), (6, 22, b"4,\xff")]
        );
        assert!(bad[0].error.contains("invalid digit"), "{}", bad[0].error);
        assert_eq!(bad[1].error, "the record has 1 fields, the header has 2");
    }

    #[test]
    fn a_record_that_is_too_long_ends_where_its_quotes_end() {
        let directory = TempDir::new().unwrap();
        let long = "x\n,".repeat(100);
        let path = write(&directory, "a.csv", format!("id,name\n1,\"{long}\"\n2,b\n"));
        let source = FileSource::csv::<Order>(path)
            .max_record_bytes(50)
            .bad_records(BadRecords::SideOutput);
        let (records, bad) = read_all(&mut { source });
        assert_eq!(records, [order(2, "b")]);
        assert_eq!((bad.len(), bad[0].line, bad[0].bytes.len()), (1, 2, 50));
    }

    #[test]
    fn a_file_with_nothing_but_a_header_or_not_even_that_is_empty() {
        let directory = TempDir::new().unwrap();
        for text in ["", "\n\r\n", "id,name", "\u{feff}id,name\n"] {
            let path = write(&directory, "a.csv", text);
            assert!(read_all(&mut FileSource::csv::<Order>(path)).0.is_empty());
        }
    }

    #[test]
    fn a_header_that_is_no_text_fails_the_file_by_name() {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.csv", b"id,\xff\n1,a\n");
        let error = failure(FileSource::csv::<Order>(path));
        assert!(
            matches!(error, ConnectorError::BadHeader { ref path, .. } if path.ends_with("a.csv")),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn sr_01_records_equal_those_of_the_csv_crate_at_any_restart(
            rows in prop::collection::vec(("[a-z\",\r\n ]{0,12}", any::<u32>()), 0..20),
            limits in prop::collection::vec(1usize..4, 1..6),
            windows_endings: bool,
        ) {
            let mut builder = ::csv::WriterBuilder::new();
            if windows_endings { builder.terminator(::csv::Terminator::CRLF); }
            let mut writer = builder.from_writer(Vec::new());
            writer.write_record(["name", "id"]).unwrap();
            for row in &rows { writer.serialize(row).unwrap(); }
            let bytes = writer.into_inner().unwrap();
            let expected: Vec<Order> = ::csv::Reader::from_reader(&bytes[..]).deserialize().map(Result::unwrap).collect();
            let directory = TempDir::new().unwrap();
            let path = write(&directory, "a.csv", &bytes);
            prop_assert_eq!(&read_all(&mut FileSource::csv::<Order>(&path)).0, &expected);
            prop_assert_eq!(read_with_restarts(&mut FileSource::csv::<Order>(&path), &limits), expected);
        }

        #[test]
        fn any_bytes_give_the_records_of_the_csv_crate(bytes in prop::collection::vec(
            prop::sample::select(b"a,\"\r\n ".to_vec()), 0..60)) {
            let mut reader = ::csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&bytes[..]);
            let expected: Vec<Vec<String>> = reader.deserialize().map(Result::unwrap).collect();
            let directory = TempDir::new().unwrap();
            let path = write(&directory, "a.csv", &bytes);
            let mut source = FileSource::csv::<Vec<String>>(&path).without_header();
            prop_assert_eq!(&read_all(&mut source).0, &expected);
            prop_assert_eq!(read_with_restarts(&mut source, &[1]), expected);
        }
    }
}

mod json_and_bad_records {
    use super::*;

    #[test]
    fn one_value_a_line_and_blank_lines_are_skipped() {
        let directory = TempDir::new().unwrap();
        let path = write(
            &directory,
            "a.json",
            "{\"id\":1,\"name\":\"a\"}\n \r\n\n{\"name\":\"b\",\"id\":2}",
        );
        let mut source = FileSource::json::<Order>(path);
        assert_eq!(read_all(&mut source).0, [order(1, "a"), order(2, "b")]);
        assert_eq!(
            read_with_restarts(&mut source, &[1]),
            [order(1, "a"), order(2, "b")]
        );
    }

    #[test]
    fn a_bad_record_fails_with_file_line_and_byte() {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.json", "1\n2\n{\n4\n");
        let error = failure(FileSource::json::<u32>(path));
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let text = error.to_string();
        assert!(text.contains("a.json at line 3, byte 4: "), "{text}");
    }

    #[test]
    fn skipped_records_are_counted() {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.json", "1\n-\n3\n-\n-\n");
        let counter = BadRecordCounter::new();
        let source = FileSource::json::<u32>(path)
            .bad_records(BadRecords::SkipAndCount)
            .bad_record_counter(&counter);
        assert_eq!(read_all(&mut { source }).0, [1, 3]);
        assert_eq!(counter.count(), 3);
    }

    #[test]
    fn text_that_is_not_utf_8_goes_to_the_side_output_as_it_is() {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.txt", b"a\nb\xff\xfe\nc\n");
        let (records, bad) =
            read_all(&mut FileSource::lines(&path).bad_records(BadRecords::SideOutput));
        assert_eq!(records, ["a", "c"]);
        let file = path.to_str().unwrap().to_owned();
        let error = "not valid utf-8 from byte 1 on".to_owned();
        assert_eq!(
            bad,
            [BadRecord {
                file,
                line: 2,
                offset: 2,
                bytes: b"b\xff\xfe".to_vec(),
                error
            }]
        );
    }
}

mod files {
    use super::*;

    fn names<S: Source>(mut source: S) -> Vec<String> {
        let splits = source.enumerate().unwrap();
        splits
            .iter()
            .map(|split| split.id().rsplit('/').next().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_directory_gives_its_visible_files_in_order() {
        let directory = TempDir::new().unwrap();
        for name in ["b.txt", "a.txt", ".hidden", "c.gz"] {
            write(&directory, name, "");
        }
        fs::create_dir(directory.path().join("below")).unwrap();
        assert_eq!(
            names(FileSource::lines(directory.path())),
            ["a.txt", "b.txt", "c.gz"]
        );
    }

    #[test]
    fn a_pattern_gives_what_matches() {
        let directory = TempDir::new().unwrap();
        for name in ["b.txt", "a.txt", "a.csv", ".a.txt", "[x].csv"] {
            write(&directory, name, "");
        }
        assert_eq!(
            names(FileSource::lines(directory.path().join("*.txt"))),
            ["a.txt", "b.txt"]
        );
        assert_eq!(
            names(FileSource::lines(directory.path().join("[x].csv"))),
            ["[x].csv"]
        );
    }

    #[test]
    fn what_leads_to_no_file_is_a_typed_error() {
        let directory = TempDir::new().unwrap();
        let path = directory.path();
        assert!(matches!(
            failure(FileSource::lines(path.join("a"))),
            ConnectorError::NotFound { .. }
        ));
        assert!(matches!(
            failure(FileSource::lines(path)),
            ConnectorError::NoFiles { .. }
        ));
        assert!(matches!(
            failure(FileSource::lines(path.join("*.x"))),
            ConnectorError::NoFiles { .. }
        ));
        assert!(matches!(
            failure(FileSource::lines(path.join("***"))),
            ConnectorError::Pattern { .. }
        ));
        assert!(matches!(
            failure(FileSource::lines("/dev/null")),
            ConnectorError::NotAFile { .. }
        ));
    }

    #[test]
    fn a_file_that_may_not_be_read_is_a_typed_error() {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.txt", "a");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        if fs::File::open(&path).is_ok() {
            return; // The superuser may read everything.
        }
        assert!(matches!(
            failure(FileSource::lines(path)),
            ConnectorError::PermissionDenied { .. }
        ));
    }

    #[test]
    fn gzip_files_may_have_several_members_and_be_empty() {
        let directory = TempDir::new().unwrap();
        let path = write(
            &directory,
            "a.gz",
            [gzip(b"a\nb"), gzip(b"c\n"), gzip(b"")].concat(),
        );
        assert_eq!(read_all(&mut FileSource::lines(path)).0, ["a", "bc"]);
        for bytes in [gzip(b""), Vec::new()] {
            let path = write(&directory, "b.gz", bytes);
            assert!(read_all(&mut FileSource::lines(path)).0.is_empty());
        }
    }

    #[test]
    fn a_gzip_file_that_breaks_off_is_a_typed_error() {
        let directory = TempDir::new().unwrap();
        let whole = gzip("some text\n".repeat(50).as_bytes());
        let path = write(&directory, "a.gz", &whole[..whole.len() - 3]);
        let error = failure(FileSource::lines(path));
        assert!(
            matches!(error, ConnectorError::DamagedGzip { .. }),
            "{error}"
        );
        assert_eq!(error.kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_file_that_shrank_below_its_position_is_a_typed_error() {
        let directory = TempDir::new().unwrap();
        let text = "0123456789\n".repeat(20);
        for (name, before, after) in [
            (
                "a.txt",
                text.clone().into_bytes(),
                text.as_bytes()[..99].to_vec(),
            ),
            ("b.gz", gzip(text.as_bytes()), gzip(&text.as_bytes()[..99])),
            ("c.txt", text.clone().into_bytes(), Vec::new()),
        ] {
            let path = write(&directory, name, before);
            let mut reader = reader_of(&mut FileSource::lines(&path));
            read_once(&mut reader, 15);
            write(&directory, name, after);
            let error = failure_at(FileSource::lines(&path), reader.split());
            assert!(
                matches!(error, ConnectorError::Shrunk { position: 165, .. }),
                "{name}: {error}"
            );
        }
    }

    #[test]
    fn a_file_with_another_beginning_is_not_the_file_that_was_read() {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.txt", "0123456789\n".repeat(20));
        let mut reader = reader_of(&mut FileSource::lines(&path));
        read_once(&mut reader, 1);
        write(&directory, "a.txt", "012345678X\n".repeat(20));
        let error = failure_at(FileSource::lines(&path), reader.split());
        assert!(
            matches!(error, ConnectorError::Replaced { position: 11, .. }),
            "{error}"
        );
    }
}

mod follow {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(100);

    #[test]
    fn a_line_is_emitted_when_its_ending_arrives() {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.txt", "one\ntw");
        let mut source = FileSource::lines(&path).follow(INTERVAL);
        let mut reader = reader_of(&mut source);
        assert_eq!(
            read_once(&mut reader, 9),
            (vec!["one".to_owned()], vec![], ReadStatus::Idle)
        );
        assert_eq!(reader.split().offset, 4);
        append(&path, b"o\nthree");
        assert_eq!(
            read_once(&mut reader, 9),
            (vec!["two".to_owned()], vec![], ReadStatus::Idle)
        );
        let mut restored = source.open_split(reader.split()).unwrap();
        append(&path, b"\n");
        assert_eq!(read_once(&mut restored, 9).0, ["three"]);
        assert_eq!(read_once(&mut restored, 9).2, ReadStatus::Idle);
    }

    #[test]
    fn a_header_may_arrive_late_and_in_pieces() {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.csv", "");
        let mut source = FileSource::csv::<Order>(&path).follow(INTERVAL);
        let mut split = source.enumerate().unwrap().remove(0);
        let mut records = Vec::new();
        for byte in "\u{feff}id,name\r\n1,\"a\nb\"\r\n2,c\r\n".as_bytes() {
            append(&path, &[*byte]);
            let mut reader = source.open_split(split).unwrap();
            let (more, _, status) = read_once(&mut reader, 9);
            records.extend(more);
            assert_eq!(status, ReadStatus::Idle);
            split = reader.split();
        }
        assert_eq!(records, [order(1, "a\nb"), order(2, "c")]);
    }

    #[test]
    fn new_files_are_found_and_there_may_be_none_at_first() {
        let directory = TempDir::new().unwrap();
        let mut source = FileSource::lines(directory.path()).follow(INTERVAL);
        assert!(source.enumerate().unwrap().is_empty());
        write(&directory, "a.txt", "");
        assert_eq!(source.enumerate().unwrap().len(), 1);
        assert_eq!(source.discovery_interval(), Some(INTERVAL));
    }

    #[test]
    fn following_a_gzip_file_is_refused() {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.gz", gzip(b"a"));
        let error = failure(FileSource::lines(path).follow(INTERVAL));
        assert!(
            matches!(error, ConnectorError::FollowGzip { .. }),
            "{error}"
        );
    }

    #[test]
    fn a_file_that_shrinks_or_is_replaced_while_followed_is_a_typed_error() {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.txt", "one\ntwo\n");
        let mut reader = reader_of(&mut FileSource::lines(&path).follow(INTERVAL));
        read_once(&mut reader, 9);
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(2)
            .unwrap();
        let error = reader.read(9, &mut Output::new()).unwrap_err();
        assert!(matches!(
            error.downcast_ref(),
            Some(ConnectorError::Shrunk {
                size: 2,
                position: 8,
                ..
            })
        ));

        let path = write(&directory, "b.txt", "one\n");
        let mut reader = reader_of(&mut FileSource::lines(&path).follow(INTERVAL));
        read_once(&mut reader, 9);
        fs::rename(&path, directory.path().join("b.old")).unwrap();
        write(&directory, "b.txt", "one\nmore\n");
        let error = reader.read(9, &mut Output::new()).unwrap_err();
        assert!(matches!(
            error.downcast_ref(),
            Some(ConnectorError::Replaced { position: 4, .. })
        ));
    }

    #[test]
    fn a_file_that_is_removed_has_been_read_to_its_end() {
        let directory = TempDir::new().unwrap();
        let path = write(&directory, "a.txt", "one\ntwo");
        let mut reader = reader_of(&mut FileSource::lines(&path).follow(INTERVAL));
        assert_eq!(read_once(&mut reader, 9).2, ReadStatus::Idle);
        fs::remove_file(&path).unwrap();
        assert_eq!(
            read_once(&mut reader, 9),
            (vec!["two".to_owned()], vec![], ReadStatus::Finished)
        );
    }
}

mod generated {
    use std::sync::Arc;

    use super::*;

    fn emitted<R: SplitReader<Record = u64>>(reader: &mut R, limit: usize) -> Vec<u64> {
        read_once(reader, limit).0
    }

    #[test]
    fn records_are_dealt_out_by_index() {
        let mut source = GeneratorSource::new(8, 3, |index| index * 10);
        let splits = source.enumerate().unwrap();
        let records: Vec<Vec<u64>> = splits
            .into_iter()
            .map(|split| emitted(&mut source.open_split(split).unwrap(), 99))
            .collect();
        assert_eq!(records, [vec![0, 30, 60], vec![10, 40, 70], vec![20, 50]]);
    }

    #[test]
    fn a_restored_split_keeps_the_stride_it_began_with() {
        let mut source = GeneratorSource::new(100, 3, |index| index);
        let split = source.enumerate().unwrap().remove(1);
        let mut reader = source.open_split(split).unwrap();
        assert_eq!(emitted(&mut reader, 2), [1, 4]);
        let mut other = GeneratorSource::new(100, 7, |index| index);
        assert_eq!(
            emitted(&mut other.open_split(reader.split()).unwrap(), 2),
            [7, 10]
        );
    }

    #[test]
    fn an_endless_generator_does_not_overflow() {
        let mut source = GeneratorSource::new(u64::MAX, 4, |index| index);
        let split = GeneratorSplit {
            index: 2,
            splits: 4,
            next: u64::MAX - 1,
        };
        let mut reader = source.open_split(split).unwrap();
        assert_eq!(
            read_once(&mut reader, 9),
            (vec![u64::MAX - 1], vec![], ReadStatus::Finished)
        );
    }

    #[test]
    fn the_rate_holds_for_all_splits_together() {
        let clock = Arc::new(ManualClock::new(5_000));
        let mut source =
            GeneratorSource::new(u64::MAX, 3, |index| index).rate_by(10, clock.clone());
        let splits = source.enumerate().unwrap();
        let mut readers: Vec<_> = splits
            .into_iter()
            .map(|split| source.open_split(split).unwrap())
            .collect();
        let mut total = 0;
        for (advance, expected) in [(0, 0), (99, 0), (1, 1), (900, 10), (10_000, 110)] {
            clock.advance(advance);
            total += readers
                .iter_mut()
                .map(|reader| emitted(reader, 1_000).len())
                .sum::<usize>();
            assert_eq!(total, expected);
        }
        assert_eq!(read_once(&mut readers[0], 1).2, ReadStatus::Idle);
    }

    #[test]
    fn no_splits_are_refused() {
        assert!(matches!(
            failure(GeneratorSource::new(1, 0, |index| index)),
            ConnectorError::Setting { .. }
        ));
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
}
