//! The one file that spells the names of all objects of a job, and reads them back.
//!
//! ```text
//! {job}/manifests/{sequence:020}
//! {job}/runs/{operator}/a{attempt:010}-{writer}-e{epoch:010}-{counter:06}
//! {job}/blobs/{operator}/a{attempt:010}-{writer}-e{epoch:010}-{counter:06}
//! writer = s{index:05} (a subtask), c{plan:010} (a compaction) or i{writer:016x}x{set:06} (an import)
//! ```
//!
//! No two writers produce the same name: an attempt number has one owner, a subtask index is
//! unique within an operator and attempt, a plan number within an attempt, and the writer counts
//! its own files. An import happens before its attempt number has an owner, so its names bear the
//! random number of the process. Names sort by age. A name parses only if it is spelt exactly as it would be
//! written, so foreign objects are never taken for garbage.

use millpond_core::{Attempt, Epoch, SubtaskIndex};
use millpond_storage::ObjectName;

use crate::error::CheckpointError;
use crate::log::WriterId;

/// Who writes a data object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Writer {
    /// A subtask of the operator.
    Subtask(SubtaskIndex),
    /// The compaction with this plan number.
    Compaction(u64),
    /// The start that took over a savepoint.
    Import {
        /// The process.
        writer: WriterId,
        /// Distinguishes the sorted runs and blobs of one operator, from 0.
        set: u32,
    },
}

/// A data object, as its name tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataObject {
    /// Name of the operator.
    pub operator: String,
    /// The execution that wrote it.
    pub attempt: Attempt,
    /// Who wrote it.
    pub writer: Writer,
    /// The epoch it was written for; of a compaction, the newest epoch among its inputs.
    pub epoch: Epoch,
    /// Distinguishes the files of one writer and epoch, from 0.
    pub counter: u32,
}

/// Any object of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobObject {
    /// A manifest with its sequence number.
    Manifest(u64),
    /// A run: sorted rows of keyed state.
    Run(DataObject),
    /// A blob: operator state of one subtask.
    Blob(DataObject),
}

/// Spells and reads the names of one job's objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Names {
    job: String,
    prefix: String,
}

impl Names {
    /// Names of the objects of `job`.
    ///
    /// # Errors
    /// [`CheckpointError::Name`] when the job's name is empty or too long.
    pub fn new(job: &str) -> Result<Names, CheckpointError> {
        let refuse = || CheckpointError::Name { what: "job", name: job.to_owned() };
        let component = escape(job).ok_or_else(refuse)?;
        ObjectName::new(&component).map_err(|_| refuse())?;
        Ok(Names { job: job.to_owned(), prefix: format!("{component}/") })
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &str {
        &self.job
    }

    /// What the names of all objects of the job begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What the names of all manifests of the job begin with.
    #[must_use]
    pub fn manifest_prefix(&self) -> String {
        format!("{}manifests/", self.prefix)
    }

    /// Name of the manifest with this sequence number.
    #[must_use]
    pub fn manifest(&self, sequence: u64) -> ObjectName {
        self.checked(&format!("manifests/{sequence:020}"))
    }

    /// Name of a run.
    ///
    /// # Errors
    /// [`CheckpointError::Name`] when the operator's name is empty or too long.
    pub fn run(&self, object: &DataObject) -> Result<ObjectName, CheckpointError> {
        self.data("runs", object)
    }

    /// Name of a blob.
    ///
    /// # Errors
    /// [`CheckpointError::Name`] when the operator's name is empty or too long.
    pub fn blob(&self, object: &DataObject) -> Result<ObjectName, CheckpointError> {
        self.data("blobs", object)
    }

    /// Reads a name back; `None` when it is not one of this job's or not spelt canonically.
    #[must_use]
    pub fn parse(&self, name: &ObjectName) -> Option<JobObject> {
        let (kind, rest) = name.as_str().strip_prefix(&self.prefix)?.split_once('/')?;
        let object = match kind {
            "manifests" => JobObject::Manifest(rest.parse().ok()?),
            "runs" => JobObject::Run(parse_data(rest)?),
            "blobs" => JobObject::Blob(parse_data(rest)?),
            _ => return None,
        };
        let spelt = match &object {
            JobObject::Manifest(sequence) => self.manifest(*sequence),
            JobObject::Run(object) => self.run(object).ok()?,
            JobObject::Blob(object) => self.blob(object).ok()?,
        };
        (spelt == *name).then_some(object)
    }

    fn data(&self, kind: &str, object: &DataObject) -> Result<ObjectName, CheckpointError> {
        let refuse = || CheckpointError::Name { what: "operator", name: object.operator.clone() };
        let operator = escape(&object.operator).ok_or_else(refuse)?;
        let writer = match object.writer {
            Writer::Subtask(index) => format!("s{:05}", index.0),
            Writer::Compaction(plan) => format!("c{plan:010}"),
            Writer::Import { writer, set } => format!("i{:016x}x{set:06}", writer.0),
        };
        let (attempt, epoch, counter) = (object.attempt.0, object.epoch.0, object.counter);
        let file = format!("a{attempt:010}-{writer}-e{epoch:010}-{counter:06}");
        ObjectName::new(format!("{}{kind}/{operator}/{file}", self.prefix)).map_err(|_| refuse())
    }

    fn checked(&self, below: &str) -> ObjectName {
        ObjectName::new(format!("{}{below}", self.prefix))
            .expect("the prefix was checked by new and digits are always allowed")
    }
}

/// The place of a file among those of its writer and epoch: what all their names share, and its number; of a
/// name without a number, the whole name.
///
/// Files with numbers that follow on each other are one sorted run: they hold different rows even where their key
/// groups touch. Between two sorted runs of one writer and epoch, a number is left out: who copies files
/// under other names keeps the numbers.
#[must_use]
pub fn place_in_sorted_run(object: &ObjectName) -> (&str, Option<u32>) {
    let numbered = object.as_str().rsplit_once('-');
    let numbered = numbered.and_then(|(shared, number)| Some((shared, number.parse().ok()?)));
    numbered.map_or((object.as_str(), None), |(shared, number)| (shared, Some(number)))
}

/// The job whose manifest is called `object`; `None` when it is no manifest's name.
#[must_use]
pub fn job_of_manifest(object: &ObjectName) -> Option<String> {
    let (job, _) = object.as_str().split_once('/')?;
    let names = Names::new(&unescape(job)?).ok()?;
    match names.parse(object)? {
        JobObject::Manifest(_) => Some(names.job().to_owned()),
        JobObject::Run(_) | JobObject::Blob(_) => None,
    }
}

fn parse_data(rest: &str) -> Option<DataObject> {
    let (operator, file) = rest.split_once('/')?;
    let mut parts = file.split('-');
    let attempt = Attempt(parts.next()?.strip_prefix('a')?.parse().ok()?);
    let writer = parts.next()?;
    let (kind, number) = writer.split_at_checked(1)?;
    let writer = match kind {
        "s" => Writer::Subtask(SubtaskIndex(number.parse().ok()?)),
        "c" => Writer::Compaction(number.parse().ok()?),
        "i" => {
            let (writer, set) = number.split_once('x')?;
            Writer::Import { writer: WriterId(u64::from_str_radix(writer, 16).ok()?), set: set.parse().ok()? }
        }
        _ => return None,
    };
    let epoch = Epoch(parts.next()?.strip_prefix('e')?.parse().ok()?);
    let counter = parts.next()?.parse().ok()?;
    let operator = unescape(operator)?;
    parts.next().is_none().then_some(DataObject { operator, attempt, writer, epoch, counter })
}

/// One component: letters and digits of any script, `-`, `_`, `.` (not in front) stay; a space
/// becomes `+`; every other character becomes `~XX` per byte of its UTF-8 form. Reversible.
fn escape(name: &str) -> Option<String> {
    let mut escaped = String::with_capacity(name.len());
    for (position, character) in name.char_indices() {
        match character {
            ' ' => escaped.push('+'),
            '.' if position > 0 => escaped.push('.'),
            '-' | '_' => escaped.push(character),
            letter if letter.is_alphanumeric() => escaped.push(letter),
            other => {
                for byte in other.encode_utf8(&mut [0; 4]).bytes() {
                    escaped.push_str(&format!("~{byte:02X}"));
                }
            }
        }
    }
    (!escaped.is_empty()).then_some(escaped)
}

fn unescape(escaped: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'~' => {
                let (high, low) = (char::from(rest.next()?), char::from(rest.next()?));
                u8::try_from(high.to_digit(16)? * 16 + low.to_digit(16)?).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data(operator: &str, writer: Writer) -> DataObject {
        DataObject { operator: operator.to_owned(), attempt: Attempt(3), writer, epoch: Epoch(41), counter: 2 }
    }

    #[test]
    fn names_are_spelt_as_documented() {
        let names = Names::new("flight delays").unwrap();
        assert_eq!(names.manifest(7).as_str(), "flight+delays/manifests/00000000000000000007");
        let run = names.run(&data("per carrier/x", Writer::Subtask(SubtaskIndex(1)))).unwrap();
        assert_eq!(run.as_str(), "flight+delays/runs/per+carrier~2Fx/a0000000003-s00001-e0000000041-000002");
        let import = names.run(&data("o", Writer::Import { writer: WriterId(0xbeef), set: 7 })).unwrap();
        assert_eq!(import.as_str(), "flight+delays/runs/o/a0000000003-i000000000000beefx000007-e0000000041-000002");
        let blob = names.blob(&data(".größe", Writer::Compaction(9))).unwrap();
        assert_eq!(blob.as_str(), "flight+delays/blobs/~2Egröße/a0000000003-c0000000009-e0000000041-000002");
    }

    #[test]
    fn foreign_and_misspelt_names_are_not_parsed() {
        let names = Names::new("job").unwrap();
        for name in [
            "job/manifests/7",
            "job/manifests/+0000000000000000007",
            "other/manifests/00000000000000000007",
            "job/savepoints/00000000000000000007",
            "job/runs/op/a3-s1-e41-2",
            "job/runs/op/a0000000003-s00001-e0000000041-000002-1",
            "job/runs/op/a0000000003-x00001-e0000000041-000002",
            "job/runs/~6Fp/a0000000003-s00001-e0000000041-000002",
            "job/runs/op/deep/a0000000003-s00001-e0000000041-000002",
        ] {
            assert_eq!(names.parse(&ObjectName::new(name).unwrap()), None, "{name}");
        }
    }

    #[test]
    fn a_manifest_tells_its_job_and_nothing_else_does() {
        let names = Names::new("a job/ö").unwrap();
        assert_eq!(job_of_manifest(&names.manifest(7)), Some("a job/ö".to_owned()));
        let run = names.run(&data("op", Writer::Compaction(1))).unwrap();
        assert_eq!(job_of_manifest(&run), None);
        assert_eq!(job_of_manifest(&ObjectName::new("job/manifests/7").unwrap()), None);
    }

    #[test]
    fn the_longest_operator_name_fits() {
        let names = Names::new(&"j".repeat(128)).unwrap();
        for name in [" ".repeat(128), ".".repeat(128), "ö".repeat(64)] {
            assert!(names.run(&data(&name, Writer::Compaction(u64::MAX))).is_ok(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn names_parse_back_and_differ_when_anything_differs(
            operators in proptest::collection::vec("[a-c~+/ .ö_-]{1,6}", 2),
            attempts: [u64; 2], subtask: [u8; 2], index: [u32; 2], epochs: [u64; 2], counters: [u32; 2],
        ) {
            let names = Names::new("a job").unwrap();
            let objects: Vec<DataObject> = (0..2).map(|i| DataObject {
                operator: operators[i].clone(),
                attempt: Attempt(attempts[i]),
                writer: match subtask[i] % 3 {
                    0 => Writer::Subtask(SubtaskIndex(index[i])),
                    1 => Writer::Compaction(u64::from(index[i])),
                    _ => Writer::Import { writer: WriterId(epochs[1 - i]), set: index[i] },
                },
                epoch: Epoch(epochs[i]),
                counter: counters[i],
            }).collect();
            let spelt: Vec<ObjectName> = objects.iter().map(|object| names.run(object).unwrap()).collect();
            for (object, name) in objects.iter().zip(&spelt) {
                prop_assert_eq!(names.parse(name), Some(JobObject::Run(object.clone())));
                let blob = names.blob(object).unwrap();
                prop_assert_eq!(names.parse(&blob), Some(JobObject::Blob(object.clone())));
            }
            prop_assert_eq!(objects[0] == objects[1], spelt[0] == spelt[1]);
        }
    }
}
