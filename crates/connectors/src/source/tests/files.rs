use super::*;

fn names<S: Source>(mut source: S) -> Vec<String> {
    let splits = source.enumerate().unwrap();
    splits.iter().map(|split| split.id().rsplit('/').next().unwrap().to_owned()).collect()
}

#[test]
fn a_directory_gives_its_visible_files_in_order() {
    let directory = TempDir::new().unwrap();
    for name in ["b.txt", "a.txt", ".hidden", "c.gz"] {
        write(&directory, name, "");
    }
    fs::create_dir(directory.path().join("below")).unwrap();
    assert_eq!(names(FileSource::lines(directory.path())), ["a.txt", "b.txt", "c.gz"]);
}

#[test]
fn a_pattern_gives_what_matches() {
    let directory = TempDir::new().unwrap();
    for name in ["b.txt", "a.txt", "a.csv", ".a.txt", "[x].csv"] {
        write(&directory, name, "");
    }
    assert_eq!(names(FileSource::lines(directory.path().join("*.txt"))), ["a.txt", "b.txt"]);
    assert_eq!(names(FileSource::lines(directory.path().join("[x].csv"))), ["[x].csv"]);
}

#[test]
fn what_leads_to_no_file_is_a_typed_error() {
    let directory = TempDir::new().unwrap();
    let path = directory.path();
    assert!(matches!(failure(FileSource::lines(path.join("a"))), ConnectorError::NotFound { .. }));
    assert!(matches!(failure(FileSource::lines(path)), ConnectorError::NoFiles { .. }));
    assert!(matches!(failure(FileSource::lines(path.join("*.x"))), ConnectorError::NoFiles { .. }));
    assert!(matches!(failure(FileSource::lines(path.join("***"))), ConnectorError::Pattern { .. }));
    assert!(matches!(failure(FileSource::lines("/dev/null")), ConnectorError::NotAFile { .. }));
}

#[test]
fn a_file_that_may_not_be_read_is_a_typed_error() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "a.txt", "a");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(&path).is_ok() {
        return; // The superuser may read everything.
    }
    assert!(matches!(failure(FileSource::lines(path)), ConnectorError::PermissionDenied { .. }));
}

#[test]
fn gzip_files_may_have_several_members_and_be_empty() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "a.gz", [gzip(b"a\nb"), gzip(b"c\n"), gzip(b"")].concat());
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
    assert!(matches!(error, ConnectorError::DamagedGzip { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[test]
fn a_file_that_shrank_below_its_position_is_a_typed_error() {
    let directory = TempDir::new().unwrap();
    let text = "0123456789\n".repeat(20);
    for (name, before, after) in [
        ("a.txt", text.clone().into_bytes(), text.as_bytes()[..99].to_vec()),
        ("b.gz", gzip(text.as_bytes()), gzip(&text.as_bytes()[..99])),
        ("c.txt", text.clone().into_bytes(), Vec::new()),
    ] {
        let path = write(&directory, name, before);
        let mut reader = reader_of(&mut FileSource::lines(&path));
        read_once(&mut reader, 15);
        write(&directory, name, after);
        let error = failure_at(FileSource::lines(&path), reader.split());
        assert!(matches!(error, ConnectorError::Shrunk { position: 165, .. }), "{name}: {error}");
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
    assert!(matches!(error, ConnectorError::Replaced { position: 11, .. }), "{error}");
}
