//! Paths and settings that lead nowhere, or to the wrong thing.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;

use crate::examples::example;
use crate::processes::{Running, check_counts, ended, lines};

#[test]
fn inputs_that_are_not_there_or_no_files_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &str| ended("misbehave", directory.path(), arguments);
    fs::create_dir_all(directory.path().join("empty/below")).unwrap();
    run("-w 2 -- lines missing.txt out").refused(2, &["operator \"lines\"", "missing.txt does not exist"]);
    run("-w 2 -- lines empty out").refused(2, &["empty leads to no file"]);
    run("-w 2 -- lines empty/*.csv out").refused(2, &["empty/*.csv leads to no file"]);
    run("-w 2 -- lines a[.csv out").refused(2, &["a[.csv is not a pattern"]);
    fs::write(directory.path().join("cut.gz"), [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]).unwrap();
    let damaged = run("-w 1 -- lines cut.gz out");
    damaged.refused(4, &["cut.gz is not a whole gzip file"]);
    assert!(!damaged.stderr.contains("hint: the command `checkpoints`"), "{}", damaged.stderr);
    fs::write(directory.path().join("empty.txt"), "").unwrap();
    run("-w 2 -- lines empty.txt out").succeeded();
}

#[test]
fn a_directory_as_input_means_the_files_in_it() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("in/below")).unwrap();
    fs::write(directory.path().join("in/a.txt"), "a\n").unwrap();
    fs::write(directory.path().join("in/b.txt"), "b\n").unwrap();
    ended("misbehave", directory.path(), "-w 2 -- lines in out").succeeded();
    assert_eq!(lines(&directory.path().join("out")), ["a", "b"]);
}

#[test]
fn directories_that_are_files_are_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "precious").unwrap();
    fs::write(directory.path().join("a.txt"), "a\n").unwrap();
    let run = |arguments: &str| ended("misbehave", directory.path(), arguments);
    run("-w 1 -- lines a.txt file").refused(2, &["operator \"out\"", "file is not a directory"]);
    run("-w 1 --state-dir file -- lines a.txt out").refused(2, &["cannot use state directory file"]);
    run("-w 1 --checkpoint-dir file -- lines a.txt out").refused(2, &["file"]);
    assert_eq!(fs::read_to_string(directory.path().join("file")).unwrap(), "precious");
}

#[test]
fn settings_that_cannot_be_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.txt"), "a\n").unwrap();
    let run = |arguments: &str| ended("misbehave", directory.path(), arguments);
    let job = "-- lines a.txt out";
    run(&format!("-w 0 {job}")).refused(2, &["bad value \"0\" for workers", "from 1 on"]);
    run(&format!("-w 8 --max-parallelism 4 {job}")).refused(2, &["8", "4"]);
    run(&format!("--max-parallelism 0 {job}")).refused(2, &["max-parallelism"]);
    run(&format!("--name a/b {job}")).refused(2, &["name"]);
    run(&format!("--from 0 --state-dir s {job}")).refused(2, &["epochs are counted from 1"]);
    run(&format!("--from 7 {job}")).refused(2, &["no checkpoint directory is set"]);
    run("-- strange a.txt out").refused(2, &["no job is called \"strange\""]);
}

#[test]
fn rs_27_a_start_from_what_is_no_checkpoint_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let run =
        |from: &str| ended("misbehave", directory.path(), &format!("-w 2 --state-dir s --from {from} -- many - out"));
    run("7").refused(2, &["job \"misbehave\" has no retained checkpoint of epoch 7"]);
    run("latest").succeeded();
    run("7").refused(2, &["job \"misbehave\" has no retained checkpoint of epoch 7"]);
    fs::write(directory.path().join("s/checkpoints/notes.txt"), "notes").unwrap();
    run("s/checkpoints/notes.txt").refused(2, &["s/checkpoints/notes.txt is neither a savepoint nor a manifest"]);
    run("s/checkpoints/misbehave").refused(2, &["s/checkpoints/misbehave is neither a savepoint nor a manifest"]);
    run("s/lock").refused(2, &["s/lock is neither a savepoint nor a manifest"]);
    run("s/missing").refused(2, &["cannot find checkpoint s/missing"]);
    run("latest").succeeded();
    assert_eq!(check_counts(&directory.path().join("out")), 40_000);
}

#[test]
fn a_reader_that_goes_away_ends_the_job_at_once() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("a.txt"), "to be or not\n".repeat(50_000)).unwrap();
    let mut command = example("wordcount", directory.path(), "-w 1 -- a.txt");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(writer);
    let stderr = directory.path().join("stderr");
    command.stderr(fs::File::create(&stderr).unwrap());
    let child = Running::watch(command.spawn().unwrap(), &stderr);
    drop(command);
    child.wait().refused(2, &["operator \"out\"", "cannot print", "Broken pipe"]);
}

/// A user without rights.
const NOBODY: u32 = 65_534;

/// Runs the job without the rights of root; `None` where the program itself cannot be run so.
fn without_rights(directory: &Path, arguments: &str) -> Option<Running> {
    let mut command = example("misbehave", directory, arguments);
    if fs::metadata(directory).unwrap().uid() == 0 {
        command.uid(NOBODY).gid(NOBODY);
    }
    let stderr = directory.join("stderr");
    command.stdout(std::process::Stdio::null()).stderr(fs::File::create(&stderr).unwrap());
    match command.spawn() {
        Ok(child) => Some(Running::watch(child, &stderr)),
        Err(error) => {
            println!("not tested, the program cannot be run without rights: {error}");
            None
        }
    }
}

#[test]
fn missing_rights_are_refused_at_once_and_with_them_the_job_runs() {
    let directory = tempfile::tempdir().unwrap();
    let allow = |path: &str, mode: u32| {
        fs::set_permissions(directory.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    allow("", 0o755);
    fs::write(directory.path().join("secret.txt"), "a\n").unwrap();
    fs::write(directory.path().join("a.txt"), "a\n").unwrap();
    allow("secret.txt", 0);
    for locked in ["out", "s", "checkpoints"] {
        fs::create_dir(directory.path().join(locked)).unwrap();
        allow(locked, 0o555);
    }
    for (arguments, parts) in [
        ("-w 1 -- lines secret.txt out", ["operator \"lines\"", "secret.txt: permission denied"]),
        ("-w 1 -- lines a.txt out", ["operator \"out\"", "out/.part-0-1-"]),
        ("-w 1 --state-dir s -- lines a.txt out", ["cannot use state directory s", "Permission denied"]),
        ("-w 1 --checkpoint-dir checkpoints -- lines a.txt out", ["cannot create", "permission denied"]),
    ] {
        let Some(job) = without_rights(directory.path(), arguments) else { return };
        let refused = job.wait();
        refused.refused(2, &parts);
        assert!(!refused.stderr.contains("restarting"), "{}", refused.stderr);
    }
    for locked in ["out", "s", "checkpoints"] {
        allow(locked, 0o777);
    }
    allow("secret.txt", 0o644);
    without_rights(directory.path(), "-w 1 --state-dir s -- lines secret.txt out").unwrap().wait().succeeded();
    assert_eq!(lines(&directory.path().join("out")), ["a"]);
}
