use super::*;

#[test]
fn one_value_a_line_and_blank_lines_are_skipped() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "a.json", "{\"id\":1,\"name\":\"a\"}\n \r\n\n{\"name\":\"b\",\"id\":2}");
    let mut source = FileSource::json::<Order>(path);
    assert_eq!(read_all(&mut source).0, [order(1, "a"), order(2, "b")]);
    assert_eq!(read_with_restarts(&mut source, &[1]), [order(1, "a"), order(2, "b")]);
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
    let source = FileSource::json::<u32>(path).bad_records(BadRecords::SkipAndCount).bad_record_counter(&counter);
    assert_eq!(read_all(&mut { source }).0, [1, 3]);
    assert_eq!(counter.count(), 3);
}

#[test]
fn text_that_is_not_utf_8_goes_to_the_side_output_as_it_is() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "a.txt", b"a\nb\xff\xfe\nc\n");
    let (records, bad) = read_all(&mut FileSource::lines(&path).bad_records(BadRecords::SideOutput));
    assert_eq!(records, ["a", "c"]);
    let file = path.to_str().unwrap().to_owned();
    let error = "not valid utf-8 from byte 1 on".to_owned();
    assert_eq!(bad, [BadRecord { file, line: 2, offset: 2, bytes: b"b\xff\xfe".to_vec(), error }]);
}
