//! Records that cannot be decoded, under each policy.

use std::fs;
use std::path::Path;

use crate::processes::{ended, lines};

const CSV: &str = "id,amount\n1,10\n2,ten\n3,30\n4\n5,50\n";
const JSON: &str = "{\"id\":1,\"amount\":10}\n{\"id\":2,\"amount\":\"ten\"}\n{\"id\":3,\"amount\":30}\n{\"id\":\n{\"id\":5,\"amount\":50}\n";

fn repaired(text: &str) -> String {
    text.replace("ten", "20")
        .replace("\"20\"", "20")
        .replace("4\n5", "4,40\n5")
        .replace("{\"id\":\n", "{\"id\":4,\"amount\":40}\n")
}

/// The error names operator, subtask, file, line, byte and cause; no restart, though ten are allowed.
fn check_fail(directory: &Path, format: &str, file: &str, position: [&str; 2]) {
    let flags = format!("-w 2 --state-dir {format}-state -- {format} {file} {format}-out");
    let failed = ended("misbehave", directory, &flags);
    let [place, cause] = position;
    failed.refused(2, &["operator \"orders\"", "subtask 0 of 2", "while reading", file, place, cause]);
    assert!(!failed.stderr.contains("restarting"), "{}", failed.stderr);
    assert!(lines(&directory.join(format!("{format}-out"))).is_empty());
    // Repaired behind what was read, the job goes on from its checkpoint.
    let text = fs::read_to_string(directory.join(file)).unwrap();
    fs::write(directory.join(file), repaired(&text)).unwrap();
    ended("misbehave", directory, &flags).succeeded();
    let all: Vec<String> = (1..=5).map(|id| format!("[{id},{id}0]")).collect();
    assert_eq!(lines(&directory.join(format!("{format}-out"))), all);
}

fn check_skip_and_side(directory: &Path, format: &str, file: &str, bad: [&str; 2]) {
    let good = ["[1,10]", "[3,30]", "[5,50]"];
    let skipped = ended("misbehave", directory, &format!("-w 1 -- {format}-skip {file} {format}-skipped"));
    skipped.succeeded();
    assert_eq!(lines(&directory.join(format!("{format}-skipped"))), good);
    assert_eq!(skipped.stderr.matches("skipped a bad record").count(), 2, "{}", skipped.stderr);

    ended("misbehave", directory, &format!("-w 1 -- {format}-side {file} {format}-side")).succeeded();
    assert_eq!(lines(&directory.join(format!("{format}-side"))), good);
    let told = lines(&directory.join(format!("{format}-side-bad")));
    assert_eq!(told.len(), 2, "{told:?}");
    for (line, beginning) in told.iter().zip(bad) {
        assert!(line.starts_with(beginning), "{line}");
    }
}

#[test]
fn bad_csv_records_fail_or_are_skipped_or_come_out_at_the_side() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("orders.csv"), CSV).unwrap();
    check_skip_and_side(directory.path(), "csv", "orders.csv", ["[3,15,", "[5,26,"]);
    check_fail(directory.path(), "csv", "orders.csv", ["line 3, byte 15", "invalid digit"]);
}

#[test]
fn bad_json_records_fail_or_are_skipped_or_come_out_at_the_side() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("orders.json"), JSON).unwrap();
    check_skip_and_side(directory.path(), "json", "orders.json", ["[2,21,", "[4,66,"]);
    check_fail(directory.path(), "json", "orders.json", ["line 2, byte 21", "expected u64 at column 22"]);
}

#[test]
fn a_file_that_is_not_utf_8_is_refused_with_the_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.txt");
    fs::write(&path, b"good\nb\xffd\nfine\n").unwrap();
    let bad = ended("misbehave", directory.path(), "-w 1 --state-dir s -- lines a.txt out");
    bad.refused(2, &["operator \"lines\"", "a.txt at line 2, byte 5", "utf-8"]);
    ended("misbehave", directory.path(), "-w 1 -- lines-skip a.txt skipped").succeeded();
    assert_eq!(lines(&directory.path().join("skipped")), ["fine", "good"]);
    fs::write(&path, "good\nbad\nfine\n").unwrap();
    ended("misbehave", directory.path(), "-w 1 --state-dir s -- lines a.txt out").succeeded();
    assert_eq!(lines(&directory.path().join("out")), ["bad", "fine", "good"]);

    fs::write(directory.path().join("h.csv"), b"id,am\xffount\n1,1\n").unwrap();
    let header = ended("misbehave", directory.path(), "-w 1 -- csv h.csv out2");
    header.refused(2, &["operator \"orders\"", "h.csv has no usable header", "utf-8"]);
}
