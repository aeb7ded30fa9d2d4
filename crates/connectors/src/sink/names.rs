//! Names of output files: all of them are spelled here.
//!
//! ```text
//! .part-3-2-00c0ffee00c0ffee-7.json.inprogress   being written (subtask 3, attempt 2, writer, sequence)
//! .part-3-2-00c0ffee00c0ffee-7.json.prepared     complete and durable, waits for its checkpoint
//! part-3-2-41-6.json                             visible (subtask 3, attempt 2, epoch 41, counter)
//! ```
//!
//! A hidden name holds the writer's own number, so that a writer left over from an older attempt never
//! touches a file of ours.

use millpond_core::{Attempt, Epoch, SubtaskIndex};

use crate::ConnectorError;

const IN_PROGRESS: &str = "inprogress";
const PREPARED: &str = "prepared";

/// Who writes a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriterId {
    pub(crate) subtask: SubtaskIndex,
    pub(crate) attempt: Attempt,
    pub(crate) unique: u64,
}

/// The parts of names that the user may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameStyle {
    pub(crate) prefix: String,
    pub(crate) extension: String,
}

impl NameStyle {
    /// Checks that names can be made, shown and told apart.
    pub(crate) fn check(&self) -> Result<(), ConnectorError> {
        check_part("prefix", &self.prefix)?;
        check_part("extension", &self.extension)
    }

    /// Name while being written.
    pub(crate) fn in_progress(&self, writer: WriterId, sequence: u64) -> String {
        self.hidden(writer, sequence, IN_PROGRESS)
    }

    /// Name while waiting for its checkpoint.
    pub(crate) fn prepared(&self, writer: WriterId, sequence: u64) -> String {
        self.hidden(writer, sequence, PREPARED)
    }

    /// Name for readers.
    pub(crate) fn visible(&self, writer: WriterId, epoch: Epoch, counter: u64) -> String {
        let NameStyle { prefix, extension } = self;
        format!("{prefix}-{}-{}-{}-{counter}.{extension}", writer.subtask.0, writer.attempt.0, epoch.0)
    }

    fn hidden(&self, writer: WriterId, sequence: u64, stage: &str) -> String {
        let NameStyle { prefix, extension } = self;
        let WriterId { subtask, attempt, unique } = writer;
        format!(".{prefix}-{}-{}-{unique:016x}-{sequence}.{extension}.{stage}", subtask.0, attempt.0)
    }

    /// The attempt that wrote a hidden file; `None` for all files that are not hidden files of a sink
    /// with this prefix. The extension may have changed since.
    pub(crate) fn attempt_of_hidden(&self, name: &str) -> Option<Attempt> {
        let (rest, stage) = name.strip_prefix('.')?.rsplit_once('.')?;
        if stage != IN_PROGRESS && stage != PREPARED {
            return None;
        }
        let numbers = rest.strip_prefix(&self.prefix)?.strip_prefix('-')?;
        let (numbers, _extension) = numbers.split_once('.')?;
        let numbers: Vec<&str> = numbers.split('-').collect();
        let [subtask, attempt, unique, sequence] = numbers[..] else {
            return None;
        };
        let all_are_numbers = subtask.parse::<u32>().is_ok()
            && unique.len() == 16
            && u64::from_str_radix(unique, 16).is_ok()
            && sequence.parse::<u64>().is_ok();
        if all_are_numbers { attempt.parse().ok().map(Attempt) } else { None }
    }
}

fn check_part(setting: &'static str, part: &str) -> Result<(), ConnectorError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if part.is_empty() || part.starts_with('.') || !part.chars().all(allowed) || part.len() > 100 {
        let reason = format!("{part:?} is not 1 to 100 letters, digits, '-', '_' or inner '.'");
        return Err(ConnectorError::Setting { setting, reason });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITER: WriterId = WriterId { subtask: SubtaskIndex(3), attempt: Attempt(2), unique: 0x00c0_ffee_00c0_ffee };

    fn style(prefix: &str) -> NameStyle {
        NameStyle { prefix: prefix.to_owned(), extension: "json".to_owned() }
    }

    #[test]
    fn names_are_as_documented() {
        let part = style("part");
        assert_eq!(part.in_progress(WRITER, 7), ".part-3-2-00c0ffee00c0ffee-7.json.inprogress");
        assert_eq!(part.prepared(WRITER, 7), ".part-3-2-00c0ffee00c0ffee-7.json.prepared");
        assert_eq!(part.visible(WRITER, Epoch(41), 6), "part-3-2-41-6.json");
    }

    #[test]
    fn a_hidden_name_gives_its_attempt_back() {
        for prefix in ["part", "a-1", "x.y"] {
            let style = style(prefix);
            assert_eq!(style.attempt_of_hidden(&style.in_progress(WRITER, 7)), Some(Attempt(2)));
            assert_eq!(style.attempt_of_hidden(&style.prepared(WRITER, 7)), Some(Attempt(2)));
        }
    }

    #[test]
    fn files_of_other_sinks_and_of_the_user_are_not_ours() {
        let part = style("part");
        let other = style("part-0").in_progress(WRITER, 7);
        for name in [other.as_str(), ".part", ".bashrc", ".part-1-2-3-4.json.prepared", "part-3-2-41-6.json", "."] {
            assert_eq!(part.attempt_of_hidden(name), None, "{name}");
        }
    }

    #[test]
    fn a_prefix_that_leaves_the_directory_is_refused() {
        assert!(style("../part").check().is_err());
        assert!(style(".part").check().is_err());
        assert!(style("").check().is_err());
        assert!(style("part_1").check().is_ok());
    }
}
