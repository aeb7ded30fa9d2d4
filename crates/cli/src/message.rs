//! Every sentence that the command line says to people.
//!
//! Owns wording alone: nothing here reads, writes or decides.

use std::error::Error;

use millpond_checkpoint::CheckpointError;
use millpond_core::{ErrorKind, error::chain};
use millpond_jobmanager::{JobError, JobOutcome, JobReport};

use crate::error::CliError;
use crate::settings::{Place, Setting};
use crate::units::{count_words, duration_words};

/// An error as one line, then a line that says what may help.
#[must_use]
pub(crate) fn failure(error: &CliError) -> String {
    let what = chain(error as &dyn Error).replace('\n', " ");
    match hint(error) {
        None => format!("error: {what}\n"),
        Some(hint) => format!("error: {what}\nhint: {hint}\n"),
    }
}

fn hint(error: &CliError) -> Option<String> {
    let words = match error {
        CliError::UnknownKey { .. } => {
            let known: Vec<&str> = Setting::ALL.iter().map(|setting| setting.key()).collect();
            return Some(format!("the settings are {}", known.join(", ")));
        }
        CliError::InUse { .. } => "wait for that process to end, or give this job another --state-dir",
        CliError::NoCheckpointDirectory => "give --state-dir or --checkpoint-dir",
        CliError::NoSuchScheme { feature: Some(feature), .. } => {
            return Some(format!("build the program with millpond = {{ features = [\"{feature}\"] }}"));
        }
        CliError::NoSuchDirectory { .. } => "the job has not run with checkpoints there yet",
        CliError::WhichJob { jobs } if !jobs.is_empty() => "say which with --job NAME",
        CliError::NoStateDirectory => "give --state-dir",
        CliError::NoSavepointPath => "give the path, or --state-dir",
        CliError::Damage { .. } => "`run --from EPOCH` starts from an epoch of which nothing is damaged",
        CliError::Savepoint { source: CheckpointError::NotEmpty { .. } | CheckpointError::SavepointExists, .. } => {
            "give another path; `savepoint dispose PATH` removes a savepoint, also a half-written one"
        }
        CliError::Missing { setting: Setting::TlsCertificate | Setting::TlsKey | Setting::TlsCa } => {
            "TLS between processes needs tls-certificate, tls-key and tls-ca, or none of them"
        }
        CliError::Job(error) if error.is_tls_not_built() => {
            "build the program with millpond = { features = [\"tls\"] }"
        }
        CliError::BadValue { setting: Setting::Name, .. } => "give the job another name with --name",
        CliError::Job(error) if matches!(**error, JobError::NoBackend { .. }) => {
            "build it with `millpond = { features = [\"rocksdb\"] }`, or take --backend heap"
        }
        CliError::Job(error) if error.is_unknown_state() => "--allow-dropped-state drops it for good",
        CliError::Job(error) if error.kind() == ErrorKind::Corrupt && !error.is_about_a_checkpoint() => return None,
        other => return hint_by_kind(other.kind()).map(str::to_owned),
    };
    Some(words.to_owned())
}

const fn hint_by_kind(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Fenced => Some("a newer execution owns this job; this one has stopped and left no trace"),
        ErrorKind::Corrupt => Some(
            "the command `checkpoints` shows what can still be read, `run --from EPOCH` starts from an older epoch",
        ),
        ErrorKind::Bug => Some("this is a mistake in Millpond; please report it with the log"),
        ErrorKind::Unavailable | ErrorKind::Uncertain | ErrorKind::Invalid => None,
    }
}

/// How a job ended.
#[must_use]
pub(crate) fn summary(name: &str, report: &JobReport, records: u64, elapsed_ms: u64) -> String {
    let how = match report.outcome {
        JobOutcome::Finished => "finished",
        JobOutcome::Stopped => "stopped, and can be resumed,",
    };
    let rate = records.saturating_mul(1_000).checked_div(elapsed_ms).unwrap_or(records);
    format!(
        "job {name:?} {how} at {}: {} in {} ({}/s), {}",
        report.epoch,
        counted(records, "record"),
        duration_words(elapsed_ms),
        count_words(rate),
        counted(u64::from(report.restarts), "restart"),
    )
}

/// A count with its noun: `1 restart`, `12.3k records`.
#[must_use]
pub(crate) fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{} {noun}s", count_words(count)) }
}

/// Where checkpoints of a starting job go.
#[must_use]
pub(crate) fn checkpoints_go_to(place: Option<&Place>) -> String {
    match place {
        Some(place) => format!("checkpoints go to {place}"),
        None => "the job runs without durable checkpoints: results appear at its end, a failure starts it anew; \
                 --state-dir DIR makes it resumable"
            .to_owned(),
    }
}

/// A signal asked for the stop.
#[must_use]
pub(crate) fn stopping(signal: &str) -> String {
    format!("{signal}: stopping with a last checkpoint; once more to exit at once")
}

/// An environment variable is no setting.
#[must_use]
pub(crate) fn unknown_variable(name: &str) -> String {
    format!("environment variable {name} is not a setting of Millpond")
}

#[cfg(test)]
mod tests {
    use std::io;

    use millpond_core::Epoch;

    use super::*;

    #[test]
    fn an_error_is_one_line_with_its_causes_and_a_hint_line() {
        let source = io::Error::new(io::ErrorKind::PermissionDenied, "not\nallowed");
        let refused = CliError::StateDirectory { directory: "s".into(), source };
        assert_eq!(failure(&refused), "error: cannot use state directory s: not allowed\n");
        let used = CliError::InUse { directory: "s".into(), holder: Some(7) };
        let expected = "error: state directory s is in use by process 7\n\
                        hint: wait for that process to end, or give this job another --state-dir\n";
        assert_eq!(failure(&used), expected);
    }

    #[test]
    fn an_unknown_key_is_answered_with_the_known_ones() {
        let error = CliError::UnknownKey { file: "millpond.toml".into(), key: "x".to_owned() };
        assert!(failure(&error).contains("hint: the settings are name, workers, max-parallelism, "));
    }

    #[test]
    fn a_summary_counts_and_names() {
        let mut report = JobReport { outcome: JobOutcome::Finished, epoch: Epoch(12), restarts: 1 };
        let text = summary("wordcount", &report, 1_234_567, 3_200);
        assert_eq!(text, "job \"wordcount\" finished at epoch 12: 1.2M records in 3.2 s (385.8k/s), 1 restart");
        report.outcome = JobOutcome::Stopped;
        let text = summary("wordcount", &report, 7, 0);
        assert_eq!(
            text,
            "job \"wordcount\" stopped, and can be resumed, at epoch 12: 7 records in 0 ms (7/s), 1 restart"
        );
    }
}
