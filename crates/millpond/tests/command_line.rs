//! The command line as users meet it: the examples as processes of their own.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod endless;
mod examples;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;

use endless::{Endless, lines};
use examples::example;

fn wordcount(directory: &Path, arguments: &str) -> Output {
    fs::write(directory.join("a.txt"), "to be or not\nto be\n").unwrap();
    example("wordcount", directory, arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What a failed process says on standard error, without its log.
fn complaint(output: &Output) -> String {
    let text = stderr(output);
    text.find("error: ").map_or(String::new(), |start| text[start..].to_owned())
}

#[test]
fn words_are_counted_on_any_number_of_workers() {
    for workers in 1..=3 {
        let directory = tempfile::tempdir().unwrap();
        let output = wordcount(directory.path(), &format!("--workers {workers} -- a.txt"));
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        let mut counts: Vec<&str> = text.lines().collect();
        counts.sort_unstable();
        assert_eq!(counts, ["be 1", "be 2", "not 1", "or 1", "to 1", "to 2"]);
        assert!(stderr(&output).contains("runs without durable checkpoints"));
    }
}

#[test]
fn a_plan_is_printed_as_text_and_as_a_graph() {
    let directory = tempfile::tempdir().unwrap();
    let text = stdout(&wordcount(directory.path(), "plan -w 2 -- a.txt"));
    assert!(text.starts_with("chain 0 (×2): texts → "), "{text}");
    assert!(text.contains("by hash into counts"), "{text}");
    let dot = stdout(&wordcount(directory.path(), "plan --dot -- a.txt"));
    assert!(dot.starts_with("digraph "), "{dot}");
}

#[test]
fn the_state_of_a_checkpoint_is_listed_looked_up_compared_and_exported() {
    let directory = tempfile::tempdir().unwrap();
    let run = wordcount(directory.path(), "run -w 2 --state-dir state -- a.txt out");
    assert!(run.status.success(), "{}", stderr(&run));
    let state = |command: &str| wordcount(directory.path(), &format!("state {command} --state-dir state"));
    let json = |output: &Output| -> Vec<serde_json::Value> {
        assert!(output.status.success(), "{}", stderr(output));
        stdout(output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let listed = json(&state("ls counts"));
    let name = listed[0]["state"].as_str().unwrap().to_owned();
    assert_eq!((&listed[0]["operator"], listed.len()), (&"counts".into(), 1));
    let mut counts: Vec<(String, u64)> = json(&state(&format!("scan counts {name}")))
        .iter()
        .map(|entry| (entry["key"].as_str().unwrap().to_owned(), entry["value"].as_u64().unwrap()))
        .collect();
    counts.sort();
    assert_eq!(counts, [("be", 2), ("not", 1), ("or", 1), ("to", 2)].map(|(word, times)| (word.to_owned(), times)));
    let found = json(&state(&format!("get counts {name} be")));
    assert_eq!((&found[0]["value"], found.len()), (&2.into(), 1));
    assert!(json(&state(&format!("get counts {name} never"))).is_empty());
    assert_eq!(json(&state("count counts"))[0]["keys"], 4);
    assert!(json(&state("diff 1 latest")).is_empty());
    assert!(state(&format!("export counts {name} --to counts.csv")).status.success());
    let csv = fs::read_to_string(directory.path().join("counts.csv")).unwrap();
    assert!(csv.starts_with("key_group,key,value\n") && csv.lines().count() == 5, "{csv}");
    for (command, code, words) in [
        ("ls other", 2, "error: the checkpoint has no operator \"other\", only "),
        ("count counts other", 2, "error: operator \"counts\" has no state \"other\", only "),
        ("ls --from 7", 2, "error: job \"wordcount\" has no retained checkpoint of epoch 7"),
    ] {
        let output = state(command);
        assert_eq!(output.status.code(), Some(code), "{command}");
        assert!(complaint(&output).starts_with(words), "{}", complaint(&output));
    }
}

#[test]
fn checkpoints_are_listed_after_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let run = wordcount(directory.path(), "run -w 2 --state-dir state -- a.txt out");
    assert!(run.status.success(), "{}", stderr(&run));
    let text = stdout(&wordcount(directory.path(), "checkpoints --state-dir state"));
    assert!(text.starts_with("EPOCH") && text.contains("[finished]"), "{text}");
    let json = stdout(&wordcount(directory.path(), "checkpoints --state-dir state --json"));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["checkpoint"]["epoch"], 1);
    let mut out = lines(&directory.path().join("out"));
    out.sort_unstable();
    assert_eq!(out, ["be 1", "be 2", "not 1", "or 1", "to 1", "to 2"]);
}

#[test]
fn mistakes_end_with_one_error_and_code_2() {
    let directory = tempfile::tempdir().unwrap();
    let unknown = wordcount(directory.path(), "--wrokers 2");
    assert_eq!(unknown.status.code(), Some(2));
    let bad = wordcount(directory.path(), "--workers none");
    assert_eq!(bad.status.code(), Some(2));
    let expected = "error: bad value \"none\" for workers (flag --workers): expected a whole number from 1 on\n";
    assert_eq!(stderr(&bad), expected);
    let nowhere = wordcount(directory.path(), "checkpoints");
    assert_eq!(nowhere.status.code(), Some(2));
    assert_eq!(stderr(&nowhere), "error: no checkpoint directory is set\nhint: give --state-dir or --checkpoint-dir\n");
    let unbuilt = example("endless", directory.path(), "--state-dir state").output().unwrap();
    assert_eq!(unbuilt.status.code(), Some(2));
    assert!(complaint(&unbuilt).contains("give an output directory after --"));
    assert!(!directory.path().join("state").exists(), "a job that cannot be built claims nothing");
}

#[test]
fn a_missing_input_ends_with_code_2_and_names_the_operator() {
    let directory = tempfile::tempdir().unwrap();
    let failed = wordcount(directory.path(), "-w 1 -- missing.txt");
    assert_eq!(failed.status.code(), Some(2));
    let said = complaint(&failed);
    assert!(said.starts_with("error: ") && said.matches('\n').count() == 1, "{said}");
    assert!(said.contains("operator \"texts\", subtask 0 of 1"), "{said}");
}

#[test]
fn a_state_directory_in_use_ends_with_code_3_and_names_the_holder() {
    let directory = tempfile::tempdir().unwrap();
    let mut holder = Endless::start(directory.path(), "-w 1");
    holder.wait_for_epoch(1);
    let second = wordcount(directory.path(), "--state-dir state -- a.txt");
    assert_eq!(second.status.code(), Some(3));
    let expected = format!("error: state directory state is in use by process {}\n", holder.process.id());
    assert!(complaint(&second).starts_with(&expected), "{}", stderr(&second));
}

#[test]
fn damage_ends_with_code_4_and_is_listed() {
    let directory = tempfile::tempdir().unwrap();
    let checkpoints = directory.path().join("state/checkpoints/wordcount/manifests");
    assert!(wordcount(directory.path(), "--state-dir state -- a.txt out").status.success());
    fs::write(checkpoints.join(format!("{:020}", 99)), "rubbish").unwrap();
    let output = wordcount(directory.path(), "--state-dir state -- a.txt out");
    assert_eq!(output.status.code(), Some(4));
    assert!(complaint(&output).contains("\nhint: "), "{}", stderr(&output));
    let text = stdout(&wordcount(directory.path(), "checkpoints --state-dir state"));
    assert!(text.lines().last().unwrap().starts_with("damaged: "), "{text}");
}

#[test]
fn a_job_that_is_stopped_killed_and_rescaled_counts_every_record_exactly_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut reached = 0;
    for (round, (signal, workers)) in
        [("TERM", 2), ("KILL", 1), ("INT", 3), ("KILL", 2), ("TERM", 1)].iter().enumerate()
    {
        let mut job = Endless::start(directory.path(), &format!("-w {workers}"));
        job.wait_for_epoch(reached + 2);
        job.signal(signal);
        let status = job.end();
        assert_eq!(status.code(), (*signal != "KILL").then_some(0), "round {round}");
        reached = job.epoch();
    }
    // The last round was stopped cleanly: everything up to its end is committed.
    let mut counts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for line in lines(&directory.path().join("out")) {
        let (key, count): (u64, u64) = serde_json::from_str(&line).unwrap();
        counts.entry(key).or_default().push(count);
    }
    assert_eq!(counts.len(), 10);
    for (key, mut seen) in counts {
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(1..=seen.len() as u64), "key {key}: {seen:?}");
    }
}
