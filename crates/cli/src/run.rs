//! The command `run`: hands the job manager what it needs, and tells how the job gets on.
//!
//! Owns everything that a job touches outside of itself: the state directory's lock, the checkpoint
//! directory, signals, the progress line. All of it is given back on return.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use millpond_jobmanager::{Components, Job, JobSettings, StartFrom};
use millpond_storage::ObjectName;

use crate::error::CliError;
use crate::extensions::Extensions;
use crate::lock::StateLock;
use crate::message;
use crate::plan;
use crate::progress::Progress;
use crate::settings::{Settings, Start};
use crate::signals::Listener;
use crate::storage::{Opened, Opening};
use crate::terminal::Terminal;

/// Runs `job` until it finishes or is stopped.
///
/// # Errors
/// When something it needs cannot be had, or the job fails.
pub(crate) fn run(
    job: &Job,
    settings: &Settings,
    extensions: &Extensions,
    terminal: &Arc<Terminal>,
) -> Result<(), CliError> {
    // A job that cannot be built claims nothing.
    plan::build(job)?;
    let _lock = settings.state_directory.as_deref().map(StateLock::acquire).transpose()?;
    let opening = Opening { extensions, timeout_ms: settings.job.storage.timeout_ms };
    let opened = settings.checkpoints.as_ref().map(|place| opening.for_writing(place)).transpose()?;
    let from = start_from(&settings.start, opened.as_ref())?;
    let job_settings = JobSettings { from, ..settings.job.clone() };
    let components = Components::new(opened.map(|opened| opened.storage));
    tracing::info!(
        job = job_settings.name,
        workers = job_settings.workers,
        "{}",
        message::checkpoints_go_to(settings.checkpoints.as_ref())
    );
    let started = Instant::now();
    let outcome = {
        let _listener = Listener::start(Arc::clone(&components.stop), Arc::clone(terminal))?;
        let _progress =
            settings.progress.then(|| Progress::start(Arc::clone(&components.status), Arc::clone(terminal)));
        millpond_jobmanager::run(job, &job_settings, &components)
    };
    let report = outcome?;
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let records = components.status.snapshot().records;
    tracing::info!("{}", message::summary(&job_settings.name, &report, records, elapsed_ms));
    Ok(())
}

/// What the user's wish to start from means in the job's own checkpoint storage.
fn start_from(start: &Start, own: Option<&Opened>) -> Result<StartFrom, CliError> {
    match (start, own) {
        (Start::Latest, _) => Ok(StartFrom::Latest),
        (Start::Nothing, _) => Ok(StartFrom::Nothing),
        (Start::Epoch(_) | Start::Path(_), None) => Err(CliError::NoCheckpointDirectory),
        (Start::Epoch(epoch), Some(_)) => Ok(StartFrom::Epoch(*epoch)),
        (Start::Path(path), Some(own)) => {
            let object = match &own.directory {
                Some(directory) => object_at(path, directory)?,
                None => object_below(path, &own.storage.location())?,
            };
            Ok(StartFrom::Object(object.to_string()))
        }
    }
}

/// The name of the object whose address is `path`, in the storage at `location`; also without the address
/// of the storage, as lists of checkpoints show it.
fn object_below(path: &Path, location: &str) -> Result<ObjectName, CliError> {
    let foreign = || CliError::ForeignCheckpoint { path: path.to_owned(), directory: location.into() };
    let text = path.to_str().ok_or_else(foreign)?;
    let below = text.strip_prefix(location).and_then(|below| below.strip_prefix('/')).unwrap_or(text);
    ObjectName::new(below).map_err(|_| foreign())
}

/// The name of the object whose file is `path`, which may be spelt in any way.
fn object_at(path: &Path, own: &Path) -> Result<ObjectName, CliError> {
    let canonical = |path: &Path| {
        path.canonicalize().map_err(|source| CliError::NoSuchCheckpoint { path: path.to_owned(), source })
    };
    let foreign = || CliError::ForeignCheckpoint { path: path.to_owned(), directory: own.to_owned() };
    let (file, root) = (canonical(path)?, canonical(own)?);
    let inside = file.strip_prefix(&root).map_err(|_| foreign())?;
    let name: Option<Vec<&str>> = inside.components().map(|component| component.as_os_str().to_str()).collect();
    ObjectName::new(name.ok_or_else(foreign)?.join("/")).map_err(|_| foreign())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Place;

    fn opened(directory: &Path) -> Opened {
        let opening = Opening { extensions: &Extensions::default(), timeout_ms: 1_000 };
        opening.for_writing(&Place::Directory(directory.to_owned())).unwrap()
    }

    #[test]
    fn rs_27_a_path_becomes_the_object_of_that_file() {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("checkpoints");
        let manifests = own.join("job/manifests");
        std::fs::create_dir_all(&manifests).unwrap();
        std::fs::write(manifests.join("7"), "").unwrap();
        let start = Start::Path(manifests.join("../manifests/7"));
        assert_eq!(start_from(&start, Some(&opened(&own))).unwrap(), StartFrom::Object("job/manifests/7".to_owned()));

        std::fs::write(directory.path().join("8"), "").unwrap();
        let outside = start_from(&Start::Path(directory.path().join("8")), Some(&opened(&own)));
        assert!(matches!(outside, Err(CliError::ForeignCheckpoint { .. })), "{outside:?}");
        let missing = start_from(&Start::Path(manifests.join("9")), Some(&opened(&own)));
        assert!(matches!(missing, Err(CliError::NoSuchCheckpoint { .. })), "{missing:?}");
    }

    #[test]
    fn rs_27_an_address_becomes_the_object_behind_it() {
        for path in ["s3://bucket/jobs/job/manifests/7", "job/manifests/7"] {
            assert_eq!(object_below(Path::new(path), "s3://bucket/jobs").unwrap().as_str(), "job/manifests/7");
        }
        assert!(object_below(Path::new("s3://other/jobs/job/manifests/7"), "s3://bucket/jobs").is_err());
    }

    #[test]
    fn an_epoch_can_only_be_found_in_a_checkpoint_directory() {
        let directory = tempfile::tempdir().unwrap();
        let own = opened(directory.path());
        assert_eq!(start_from(&Start::Epoch(7), Some(&own)).unwrap(), StartFrom::Epoch(7));
        assert!(matches!(start_from(&Start::Epoch(7), None), Err(CliError::NoCheckpointDirectory)));
        assert_eq!(start_from(&Start::Latest, None).unwrap(), StartFrom::Latest);
    }
}
