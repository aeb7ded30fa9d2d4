use super::*;

const INTERVAL: Duration = Duration::from_millis(100);

#[test]
fn a_line_is_emitted_when_its_ending_arrives() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "a.txt", "one\ntw");
    let mut source = FileSource::lines(&path).follow(INTERVAL);
    let mut reader = reader_of(&mut source);
    assert_eq!(read_once(&mut reader, 9), (vec!["one".to_owned()], vec![], ReadStatus::Idle));
    assert_eq!(reader.split().offset, 4);
    append(&path, b"o\nthree");
    assert_eq!(read_once(&mut reader, 9), (vec!["two".to_owned()], vec![], ReadStatus::Idle));
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
    assert!(matches!(error, ConnectorError::FollowGzip { .. }), "{error}");
}

#[test]
fn a_file_that_shrinks_while_followed_is_a_typed_error() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "a.txt", "one\ntwo\n");
    let mut reader = reader_of(&mut FileSource::lines(&path).follow(INTERVAL));
    read_once(&mut reader, 9);
    fs::File::options().write(true).open(&path).unwrap().set_len(2).unwrap();
    let error = connector_error(reader.read(9, &mut Output::new()).unwrap_err());
    assert!(matches!(error, ConnectorError::Shrunk { size: 2, position: 8, .. }));
}

#[test]
fn a_file_that_is_removed_has_been_read_to_its_end() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "a.txt", "one\ntwo");
    let mut reader = reader_of(&mut FileSource::lines(&path).follow(INTERVAL));
    assert_eq!(read_once(&mut reader, 9).2, ReadStatus::Idle);
    fs::remove_file(&path).unwrap();
    assert_eq!(read_once(&mut reader, 9), (vec!["two".to_owned()], vec![], ReadStatus::Finished));
}
