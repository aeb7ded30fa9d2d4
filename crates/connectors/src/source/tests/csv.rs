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
    let (records, _) = read_all(&mut FileSource::csv::<Order>(path).without_header().delimiter(b';'));
    assert_eq!(records, [order(1, "a"), order(2, "b")]);
}

#[test]
fn bad_records_are_told_with_their_line_and_bytes() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "a.csv", b"id,name\n1,\"a\nb\"\nx,c\n3\n4,\xff\n5,e\n");
    let mut source = FileSource::csv::<Order>(&path).bad_records(BadRecords::SideOutput);
    let (records, bad) = read_all(&mut source);
    assert_eq!(records, [order(1, "a\nb"), order(5, "e")]);
    let told: Vec<_> = bad.iter().map(|bad| (bad.line, bad.offset, bad.bytes.as_slice())).collect();
    assert_eq!(told, [(4, 16, &b"x,c"[..]), (5, 20, b"3"), (6, 22, b"4,\xff")]);
    assert!(bad[0].error.contains("invalid digit"), "{}", bad[0].error);
    assert_eq!(bad[1].error, "the record has 1 fields, the header has 2");
}

#[test]
fn a_record_that_is_too_long_ends_where_its_quotes_end() {
    let directory = TempDir::new().unwrap();
    let long = "x\n,".repeat(100);
    let path = write(&directory, "a.csv", format!("id,name\n1,\"{long}\"\n2,b\n"));
    let source = FileSource::csv::<Order>(path).max_record_bytes(50).bad_records(BadRecords::SideOutput);
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
    assert!(matches!(error, ConnectorError::BadHeader { ref path, .. } if path.ends_with("a.csv")), "{error}");
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
