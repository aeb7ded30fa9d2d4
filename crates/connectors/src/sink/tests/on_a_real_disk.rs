use super::*;

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    id: u64,
    name: String,
}

fn orders() -> Vec<Order> {
    vec![Order { id: 1, name: "a,b".to_owned() }, Order { id: 2, name: "c".to_owned() }]
}

fn info() -> SubtaskInfo {
    SubtaskInfo {
        operator: "out".into(),
        index: 3,
        parallelism: 4,
        max_parallelism: MaxParallelism::new(16).unwrap(),
        attempt: Attempt(2),
    }
}

fn open<T: Data>(sink: &mut FileSink<T>) -> millpond_core::UserResult {
    sink.open(&SinkContext { info: &info(), restored: false, end: &millpond_dataflow::AttemptEnd::default() })
}

/// The visible files after one epoch with these records.
fn written<T: Data>(mut sink: FileSink<T>, directory: &Path, records: Vec<T>) -> Vec<(String, String)> {
    open(&mut sink).unwrap();
    for record in records {
        sink.write(record).unwrap();
    }
    for file in sink.prepare(Epoch(5)).unwrap() {
        sink.commit(file).unwrap();
    }
    sink.clean_up().unwrap();
    let mut files: Vec<(String, String)> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    files
}

fn file(name: &str, text: &str) -> (String, String) {
    (name.to_owned(), text.to_owned())
}

#[test]
fn lines_in_a_directory_that_is_made() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("a/b");
    let files = written(FileSink::lines(&out), &out, vec![1, 2]);
    assert_eq!(files, [file("part-3-2-5-0.txt", "1\n2\n")]);
}

#[test]
fn a_relative_directory_is_made_absolute_when_it_is_declared() {
    let here = std::env::current_dir().unwrap();
    let out = TempDir::new_in(&here).unwrap();
    let mut sink = FileSink::<u32>::lines(out.path().strip_prefix(&here).unwrap());
    open(&mut sink).unwrap();
    sink.write(1).unwrap();
    let prepared = sink.prepare(Epoch(1)).unwrap();
    assert_eq!(Path::new(&prepared[0].directory), out.path());
}

#[test]
fn a_directory_that_is_removed_while_the_sink_writes_there_is_unavailable() {
    let directory = TempDir::new().unwrap();
    let out = directory.path().join("out");
    for written_before in [true, false] {
        let mut sink = FileSink::<u32>::lines(&out);
        open(&mut sink).unwrap();
        if written_before {
            sink.write(1).unwrap();
        }
        fs::remove_dir_all(&out).unwrap();
        let error = if written_before { sink.prepare(Epoch(1)).unwrap_err() } else { sink.write(1).unwrap_err() };
        let error = connector_error(error);
        assert!(matches!(error, ConnectorError::OutputRemoved { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
}

#[test]
fn json_with_a_prefix_of_its_own() {
    let out = TempDir::new().unwrap();
    let files = written(FileSink::json(out.path()).prefix("orders"), out.path(), orders());
    assert_eq!(files, [file("orders-3-2-5-0.json", "{\"id\":1,\"name\":\"a,b\"}\n{\"id\":2,\"name\":\"c\"}\n")]);
}

#[test]
fn fs_02_every_rolled_csv_file_has_the_header() {
    let out = TempDir::new().unwrap();
    let files = written(FileSink::csv(out.path()).roll_bytes(10).extension("data"), out.path(), orders());
    let expected = [file("part-3-2-5-0.data", "id,name\n1,\"a,b\"\n"), file("part-3-2-5-1.data", "id,name\n2,c\n")];
    assert_eq!(files, expected);
}

#[test]
fn leftovers_of_older_attempts_go_and_other_hidden_files_stay() {
    let out = TempDir::new().unwrap();
    let theirs = [".part-0-2-00000000000000aa-0.txt.prepared", ".part-0-x-1-1.txt.prepared", ".keep"];
    for name in theirs.into_iter().chain([".part-0-1-00000000000000aa-0.txt.prepared"]) {
        fs::write(out.path().join(name), "").unwrap();
    }
    let files = written(FileSink::<u32>::lines(out.path()), out.path(), vec![]);
    let mut expected = theirs.map(|name| file(name, ""));
    expected.sort();
    assert_eq!(files, expected);
}

#[test]
fn a_target_that_is_a_file_is_a_typed_error_and_stays_as_it_is() {
    let directory = TempDir::new().unwrap();
    let target = directory.path().join("target");
    fs::write(&target, "precious").unwrap();
    for path in [target.clone(), target.join("below")] {
        let error = open(&mut FileSink::<u32>::lines(path)).unwrap_err();
        let error = connector_error(error);
        assert!(matches!(error, ConnectorError::NotADirectory { .. }), "{error}");
    }
    assert_eq!(fs::read_to_string(target).unwrap(), "precious");
}

#[test]
fn settings_that_cannot_be_used_are_refused() {
    let out = TempDir::new().unwrap();
    for mut sink in [FileSink::<u32>::lines(out.path()).roll_bytes(0), FileSink::lines(out.path()).prefix("a/b")] {
        let error = open(&mut sink).unwrap_err();
        assert!(matches!(connector_error(error), ConnectorError::Setting { .. }));
    }
}

#[test]
fn what_a_file_sink_wrote_a_file_source_reads() {
    use crate::source::FileSource;
    use millpond_dataflow::{Output, Outputs, Source, SplitReader};
    let out = TempDir::new().unwrap();
    let strange = Order { id: 7, name: "line\nbreak, \"quote\"\r".to_owned() };
    written(FileSink::csv(out.path()), out.path(), vec![strange.clone()]);
    let mut source = FileSource::csv::<Order>(out.path());
    let split = source.enumerate().unwrap().remove(0);
    let (mut output, mut outputs) = (Output::new(), Outputs::default());
    source.open_split(split).unwrap().read(9, &mut output).unwrap();
    output.flush(&mut outputs);
    let records = outputs.drain().next().unwrap().1.into_batch().unwrap().downcast::<Order>().records;
    assert_eq!((records.len(), &records[0].name), (1, &strange.name));
}
