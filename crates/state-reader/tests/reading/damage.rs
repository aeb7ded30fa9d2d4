//! Damaged and missing objects are errors that name them.

use millpond_core::ErrorKind;
use millpond_state_reader::ReaderError;
use millpond_storage::{ObjectName, Storage};

use crate::support::{Job, OPERATOR, Seen};

fn job() -> Job {
    let mut job = Job::new(8);
    let seen = job.states.seen;
    for key in 0..200u32 {
        let value = Seen { times: u64::from(key), delay: None, last: key.to_string() };
        seen.set(job.at(&key.to_string()).states_mut(), value).unwrap();
    }
    job.checkpoint();
    job
}

fn read_all(job: &Job) -> Result<usize, ReaderError> {
    let reader = job.reader();
    let info = reader.state(OPERATOR, "seen", None)?;
    let mut entries = reader.entries(&info)?;
    let read = entries.by_ref().try_fold(0, |read, entry| entry.map(|_| read + 1));
    if read.is_err() {
        assert!(entries.next().is_none(), "an error is the end");
    }
    read
}

#[test]
fn every_changed_byte_and_every_cut_of_a_run_is_an_error_and_never_a_wrong_entry() {
    let job = job();
    assert_eq!(read_all(&job).unwrap(), 200);
    let object = ObjectName::new("runs/0").unwrap();
    let sound = job.storage.read(&object).unwrap();
    let broken = |bytes: &[u8]| {
        job.storage.delete(&object).unwrap();
        job.storage.create(&object, bytes).unwrap();
        read_all(&job)
    };
    for at in (0..sound.len()).step_by(7) {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x41;
        match broken(&bytes) {
            Ok(_) => assert!(at < 16, "byte {at} is under no checksum"),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Invalid), "{error}"),
        }
    }
    for length in (0..sound.len()).step_by(97) {
        assert!(broken(&sound[..length]).is_err(), "cut at {length}");
    }
    job.storage.delete(&object).unwrap();
    let error = read_all(&job).unwrap_err();
    assert!(error.to_string().contains("runs/0"), "{error}");
}
