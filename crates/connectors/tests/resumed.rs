//! Jobs that go on from a checkpoint after files came, went, or were made again.

use std::fs;
use std::path::Path;
use std::time::Duration;

use millpond_connectors::FileSource;
use millpond_core::UserResult;
use millpond_dataflow::Dataflow;
use millpond_operators::SourceOperators;
use millpond_sim::{TestDriver, TestOutput, TestStream};
use tempfile::TempDir;

fn job(directory: &Path, follow: bool, output: &TestOutput<String>) -> impl Fn(&mut Dataflow) -> UserResult {
    move |flow| {
        let mut source = FileSource::lines(directory);
        if follow {
            source = source.follow(Duration::from_millis(100));
        }
        flow.source("lines", source).test_output("out", output);
        Ok(())
    }
}

fn taken(output: &TestOutput<String>) -> Vec<String> {
    let mut lines = output.take();
    lines.sort();
    lines
}

#[test]
fn a_restored_job_reads_new_files_once_and_no_old_one_again() {
    let (directory, output) = (TempDir::new().unwrap(), TestOutput::new());
    for name in ["a", "b", "c"] {
        fs::write(directory.path().join(name), format!("{name} 1\n{name} 2\n")).unwrap();
    }
    let mut driver = TestDriver::builder().parallelism(2).build(job(directory.path(), false, &output)).unwrap();
    driver.run().unwrap();
    assert_eq!(taken(&output).len(), 6);
    let snapshot = driver.stop().unwrap();
    fs::remove_file(directory.path().join("a")).unwrap();
    for name in ["d", "e", "f"] {
        fs::write(directory.path().join(name), format!("{name} 1\n")).unwrap();
    }
    for parallelism in [1, 3] {
        let first = job(directory.path(), false, &output);
        let mut driver = TestDriver::builder().parallelism(parallelism).restore(first, &snapshot).unwrap();
        let second = driver.checkpoint().unwrap();
        driver.kill();
        assert_eq!(taken(&output), ["d 1", "e 1", "f 1"]);
        let again = job(directory.path(), false, &output);
        let mut driver = TestDriver::builder().parallelism(2).restore(again, &second).unwrap();
        driver.finish().unwrap();
        assert!(taken(&output).is_empty(), "they are known now");
    }
}

#[test]
fn a_followed_file_that_is_made_again_is_read_again_before_and_after_a_restore() {
    let (directory, output) = (TempDir::new().unwrap(), TestOutput::new());
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let remove = |name: &str| fs::remove_file(directory.path().join(name)).unwrap();
    let names = ["a", "b", "c", "d"];
    names.iter().for_each(|name| write(name, &format!("{name} 1\n")));
    let mut driver = TestDriver::builder().parallelism(2).build(job(directory.path(), true, &output)).unwrap();
    let look = |driver: &mut TestDriver| {
        driver.advance_time(100);
        driver.run().unwrap();
        taken(&output)
    };
    assert_eq!(look(&mut driver), ["a 1", "b 1", "c 1", "d 1"]);
    // While the job runs, with a look in between and without.
    names.iter().for_each(|name| remove(name));
    assert!(look(&mut driver).is_empty());
    names.iter().for_each(|name| write(name, &format!("{name} 2\n")));
    assert_eq!(look(&mut driver), ["a 2", "b 2", "c 2", "d 2"]);
    remove("a");
    remove("b");
    look(&mut driver);
    let snapshot = driver.checkpoint().unwrap();
    driver.kill();
    // While it does not run: a and b had ended, c goes on.
    write("a", "a 3\n");
    write("c", "c 2\nc 3\n");
    let again = job(directory.path(), true, &output);
    let mut driver = TestDriver::builder().parallelism(3).restore(again, &snapshot).unwrap();
    assert_eq!(look(&mut driver), ["a 3", "c 3"]);
    write("b", "b 3\n");
    assert_eq!(look(&mut driver), ["b 3"]);
    driver.kill();
}
