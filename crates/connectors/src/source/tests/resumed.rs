//! What a source makes of the files of a checkpoint.

use std::collections::BTreeSet;

use millpond_core::{Schema, codec};

use super::*;

const INTERVAL: Duration = Duration::from_millis(100);

/// A split as it was stored before files had identities and paths were whole.
#[derive(Serialize, Deserialize)]
struct FormerSplit {
    path: String,
    offset: u64,
    line: u64,
    head_checksum: u32,
}

fn ids<S: Source>(source: &mut S) -> Vec<String> {
    source.enumerate().unwrap().iter().map(Split::id).collect()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_relative_path_is_made_absolute_when_it_is_declared() {
    let here = std::env::current_dir().unwrap();
    assert_eq!(ids(&mut FileSource::lines("Cargo.toml")), [text(&here.join("Cargo.toml"))]);
    assert_eq!(ids(&mut FileSource::lines("Cargo.*")), [text(&here.join("Cargo.toml"))]);
}

#[test]
fn a_checkpoint_with_relative_paths_is_still_restored() {
    assert_eq!(Schema::of::<FileSplit>(), Schema::of::<FormerSplit>());
    let former = FormerSplit { path: "Cargo.toml".to_owned(), offset: 0, line: 1, head_checksum: 0 };
    let stored: FileSplit = codec::decode(&codec::encode(&former).unwrap()).unwrap();
    assert_eq!(stored.id(), "Cargo.toml");
    let whole = text(&std::env::current_dir().unwrap().join("Cargo.toml"));
    let mut source = FileSource::lines("Cargo.toml");
    let restored = source.restore(&["Cargo.toml".to_owned()], &BTreeSet::new()).unwrap();
    assert_eq!((restored.ids, restored.new), (vec![Some(whole.clone())], vec![]), "it is no new file");
    let resumed = source.resume(vec![(stored, whole.clone())]).unwrap();
    assert_eq!(resumed, [FileSplit::new(whole)]);
}

#[test]
fn a_split_is_stored_with_the_identity_of_its_file() {
    let split = FileSplit { identity: Some("1-2".to_owned()), ..FileSplit::new("/a/b".to_owned()) };
    let stored: FileSplit = codec::decode(&codec::encode(&split).unwrap()).unwrap();
    assert_eq!(stored, split);
    assert_ne!(split.id(), FileSplit::new("/a/b".to_owned()).id());
}

#[test]
fn files_that_the_checkpoint_does_not_know_are_new_and_finished_ones_may_be_gone() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| text(&directory.path().join(name));
    write(&directory, "b", "");
    write(&directory, "c", "");
    let known = [path("a"), path("b")];
    let mut source = FileSource::lines(directory.path());
    let restored = source.restore(&known, &BTreeSet::new()).unwrap();
    assert_eq!(restored.ids, known.map(Some));
    assert_eq!(restored.new, [FileSplit::new(path("c"))]);
    let gone = FileSource::lines(directory.path().join("no such file"));
    assert!({ gone }.restore(&[path("a")], &BTreeSet::new()).unwrap().new.is_empty());
}

#[test]
fn files_that_are_gone_before_they_were_read_to_their_end_are_named() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| text(&directory.path().join(name));
    write(&directory, "b", "");
    let splits = ["a", "b", "c"].map(|name| (FileSplit::new(path(name)), path(name)));
    let error = connector_error(FileSource::lines(directory.path()).resume(splits.to_vec()).unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let expected = format!("input that was not read to its end is gone: {}, {}", path("a"), path("c"));
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_followed_file_made_again_under_its_name_is_another_split() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "a.txt", "one\n");
    let mut source = FileSource::lines(&path).follow(INTERVAL);
    let before = ids(&mut source);
    let mut reader = reader_of(&mut source);
    read_once(&mut reader, 9);
    append(&path, b"two\n");
    assert_eq!(ids(&mut source), before, "a file that grows stays the same");
    fs::remove_file(&path).unwrap();
    write(&directory, "a.txt", "three\n");
    assert_ne!(ids(&mut source), before);
    // What was written before the removal is read; the rest belongs to the new file.
    assert_eq!(read_once(&mut reader, 9), (vec!["two".to_owned()], vec![], ReadStatus::Finished));
    assert_eq!(read_once(&mut reader_of(&mut source), 9).0, ["three"]);
}

#[test]
fn a_file_that_was_replaced_before_it_was_opened_is_left_to_its_own_split() {
    let directory = TempDir::new().unwrap();
    let path = write(&directory, "a.txt", "one\n");
    let mut source = FileSource::lines(&path).follow(INTERVAL);
    let mut former = reader_of(&mut source);
    fs::rename(&path, directory.path().join("elsewhere")).unwrap();
    write(&directory, "a.txt", "two\n");
    assert_eq!(read_once(&mut former, 9), (vec![], vec![], ReadStatus::Finished));
    assert_eq!(read_once(&mut reader_of(&mut source), 9).0, ["two"]);
}

#[test]
fn followed_files_that_ended_are_forgotten_and_the_others_are_known_by_what_is_there() {
    let directory = TempDir::new().unwrap();
    let (ended, moved) = (write(&directory, "ended", ""), write(&directory, "moved", ""));
    let mut source = FileSource::lines(directory.path()).follow(INTERVAL);
    let present = ids(&mut source);
    // Another machine gives the same files other identities; older checkpoints hold none.
    for known in [[format!("{}\0old", text(&ended)), format!("{}\0old", text(&moved))], [text(&ended), text(&moved)]] {
        let restored = source.restore(&known, &BTreeSet::from([known[0].clone()])).unwrap();
        assert_eq!(restored.ids, [None, Some(present[1].clone())]);
        assert_eq!(restored.new.iter().map(Split::id).collect::<Vec<_>>(), [present[0].clone()]);
    }
}
