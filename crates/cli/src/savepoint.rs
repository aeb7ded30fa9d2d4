//! The commands `savepoint` and `stop`: the user's own copies of checkpoints.
//!
//! Owns where savepoints go when nobody says, and what is asked of a running job. Does *not* own how one
//! is written (see `checkpoint`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_checkpoint::savepoint::{self, Shelved};
use millpond_checkpoint::{CheckpointError, History, Manifest, Names, SavepointReport};
use millpond_core::{Clock, Epoch, SystemClock};
use millpond_jobmanager::StartFrom;
use millpond_storage::Storage;
use serde::Serialize;

use crate::arguments::{CreateFlags, ListFlags, StopArguments};
use crate::error::CliError;
use crate::lock::StateLock;
use crate::place::{self, absolute, resolve};
use crate::settings::{Setting, Settings, Start};
use crate::socket::{Request, Written, ask};
use crate::storage::Opening;
use crate::units::{bytes_words, duration_words, time_text};

/// Where savepoints go inside the job's local directory.
const SAVEPOINTS_BELOW_STATE: &str = "savepoints";
/// Where a local storage keeps unfinished writes and the locks of their writers.
const WRITERS_BELOW_STORAGE: &str = ".tmp";
/// How often a copy begins anew with a newer checkpoint, when the one being copied is subsumed.
const COPY_TRIES: u32 = 10;
/// How long a job that has answered may take to end.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// A savepoint that was made, as JSON.
#[derive(Debug, Serialize)]
struct Made {
    epoch: u64,
    #[serde(flatten)]
    written: Written,
}

/// Makes a savepoint: of the running job if there is one and nothing older is asked for, else of a
/// completed checkpoint.
pub(crate) fn create(arguments: &CreateFlags, settings: &Settings, opening: Opening<'_>) -> Result<String, CliError> {
    let target = match &arguments.to {
        Some(to) => absolute(to),
        None => default_target(settings)?,
    };
    let live = match &settings.state_directory {
        Some(state) if arguments.live || settings.start == Start::Latest => {
            match ask(state, &Request::Savepoint { to: text_of(&target)? }) {
                Err(CliError::NotRunning { .. }) if !arguments.live => None,
                answer => Some(answer?),
            }
        }
        None if arguments.live => return Err(CliError::NoStateDirectory),
        _ => None,
    };
    let made = match live.and_then(|outcome| Some((outcome.epoch, outcome.savepoint?))) {
        Some((epoch, written)) => Made { epoch, written },
        None => {
            let report = copy(settings, &target, opening)?;
            Made { epoch: report.epoch.0, written: Written::new(text_of(&target)?, &report) }
        }
    };
    Ok(made_text(&made, arguments.json))
}

fn made_text(made: &Made, json: bool) -> String {
    if json {
        return format!("{}\n", serde_json::to_string_pretty(made).unwrap_or_default());
    }
    let Made { epoch, written: Written { path, objects, bytes } } = made;
    format!("savepoint of epoch {epoch} in {path} ({objects} objects, {})\n", bytes_words(*bytes))
}

/// A name that no other savepoint of the job has.
fn default_target(settings: &Settings) -> Result<PathBuf, CliError> {
    let state = settings.state_directory.as_deref().ok_or(CliError::NoSavepointPath)?;
    let names = Names::new(&settings.job.name)?;
    let time = time_text(SystemClock.now_ms()).replace(' ', "T").replace(':', "-");
    let shelf = absolute(state).join(SAVEPOINTS_BELOW_STATE);
    let name = |number: u32| match number {
        0 => format!("{}-{time}", names.prefix().trim_end_matches('/')),
        _ => format!("{}-{time}-{number}", names.prefix().trim_end_matches('/')),
    };
    let free = (0..1_000).map(|number| shelf.join(name(number))).find(|path| !path.exists());
    free.ok_or(CliError::NoSavepointPath)
}

fn text_of(path: &Path) -> Result<String, CliError> {
    path.to_str().map(str::to_owned).ok_or_else(|| CliError::NotText { path: path.to_owned() })
}

/// Copies a completed checkpoint. The job may run, and delete what it does not need any more: what is
/// gone before it is copied shows that the epoch is subsumed, and a newer one is taken.
fn copy(settings: &Settings, target: &Path, opening: Opening<'_>) -> Result<SavepointReport, CliError> {
    let own = settings.checkpoints.as_ref().map(|place| opening.for_reading(place));
    // A start from elsewhere does not need the job's own storage.
    let opened = own.as_ref().and_then(|own| own.as_ref().ok());
    let origin = resolve(&settings.start, false, &settings.job.name, opened, opening)?;
    let at = |source| CliError::Savepoint { path: target.to_owned(), source };
    let now_ms = SystemClock.now_ms();
    if let StartFrom::Foreign { object, .. } = &origin.from {
        let storage = origin.storage.ok_or(CliError::NoCheckpointDirectory)?;
        let (manifest, prefix) = foreign(&storage, object)?;
        let written = savepoint::write(&storage, &manifest, &prefix, &place::create(target, opening)?, now_ms);
        return written.map_err(at);
    }
    let own = own.ok_or(CliError::NoCheckpointDirectory)??;
    let history = History::new(own.storage, &settings.job.name)?;
    let mut tries = 0;
    loop {
        let manifest = wanted(&history, &origin.from)?;
        let storage = place::create(target, opening)?;
        let written = savepoint::write(history.storage(), &manifest, history.names().prefix(), &storage, now_ms);
        match written {
            Err(CheckpointError::Gone { .. }) if tries < COPY_TRIES && is_subsumed(&history, &manifest)? => tries += 1,
            other => {
                if other.is_err() {
                    remove_empty(target);
                }
                return other.map_err(at);
            }
        }
    }
}

fn wanted(history: &History<Arc<dyn Storage>>, from: &StartFrom) -> Result<Manifest, CliError> {
    let none = || CliError::NothingToSave { job: history.names().job().to_owned() };
    match from {
        StartFrom::Epoch(epoch) => Ok(history.load(Epoch(*epoch))?),
        StartFrom::Object(object) => {
            let entries = history.entries()?;
            let entry = entries.into_iter().find(|entry| entry.object.as_str() == object);
            Ok(entry.ok_or_else(none)?.manifest?)
        }
        _ => history.latest()?.ok_or_else(none),
    }
}

/// Whether the log has moved on past `manifest`, so that its objects may be deleted.
fn is_subsumed(history: &History<Arc<dyn Storage>>, manifest: &Manifest) -> Result<bool, CliError> {
    let entries = history.entries()?;
    Ok(entries.iter().all(|entry| entry.sequence != manifest.sequence))
}

/// A manifest of whatever job, and what the names of its objects begin with.
pub(crate) fn foreign(storage: &Arc<dyn Storage>, object: &str) -> Result<(Manifest, String), CliError> {
    if object == savepoint::MANIFEST_NAME {
        return Ok((savepoint::Savepoint::read(storage)?.to_manifest(), String::new()));
    }
    let name = millpond_storage::ObjectName::new(object).map_err(CheckpointError::from)?;
    let manifest = millpond_checkpoint::history::load_object(storage, &name)?;
    let prefix = Names::new(&manifest.job)?.prefix().to_owned();
    Ok((manifest, prefix))
}

/// One line of the list.
#[derive(Debug, Serialize)]
struct Row {
    path: String,
    #[serde(flatten)]
    content: Content,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Content {
    Savepoint { job: String, epoch: u64, created_ms: i64, written_ms: i64, total_bytes: u64, finished: bool },
    Damaged(String),
}

/// Lists the savepoints in `directory` and below; by default those of the state directory.
pub(crate) fn list(flags: &ListFlags, settings: &Settings, opening: Opening<'_>) -> Result<String, CliError> {
    let directory = match (&flags.directory, &settings.state_directory) {
        (Some(directory), _) => directory.to_owned(),
        (None, Some(state)) => state.join(SAVEPOINTS_BELOW_STATE),
        (None, None) => return Err(CliError::NoSavepointPath),
    };
    let found = match place::open(&directory, opening) {
        Err(CliError::NoSuchDirectory { .. }) => Vec::new(),
        storage => savepoint::list(&storage?)?,
    };
    let rows: Vec<Row> = found.into_iter().map(|shelved| row(&directory, shelved)).collect();
    if flags.json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&rows).unwrap_or_default()));
    }
    if rows.is_empty() {
        return Ok(format!("no savepoints in {}\n", directory.display()));
    }
    let mut text = format!("{:>7}  {:19}  {:>9}  {:20}  PATH\n", "EPOCH", "TIME (UTC)", "TOTAL", "JOB");
    for Row { path, content } in rows {
        text.push_str(&match content {
            Content::Savepoint { job, epoch, written_ms, total_bytes, .. } => {
                format!("{epoch:>7}  {:19}  {:>9}  {job:20}  {path}\n", time_text(written_ms), bytes_words(total_bytes))
            }
            Content::Damaged(reason) => format!("damaged: {path}: {reason}\n"),
        });
    }
    Ok(text)
}

fn row(directory: &Path, shelved: Shelved) -> Row {
    let path = directory.join(&shelved.place).display().to_string();
    let content = match shelved.savepoint {
        Err(error) => Content::Damaged(error.to_string()),
        Ok(savepoint) => Content::Savepoint {
            epoch: savepoint.epoch.0,
            created_ms: savepoint.created_ms,
            written_ms: savepoint.written_ms,
            total_bytes: savepoint.to_manifest().state_bytes(),
            finished: savepoint.finished,
            job: savepoint.job,
        },
    };
    Row { path: path.trim_end_matches('/').to_owned(), content }
}

/// Deletes a savepoint, whole or half-written.
pub(crate) fn dispose(path: &Path, opening: Opening<'_>) -> Result<String, CliError> {
    let storage = place::open_to_delete(path, opening)?;
    let disposed = savepoint::dispose(&storage);
    disposed.map_err(|source| CliError::Savepoint { path: path.to_owned(), source })?;
    drop(storage);
    // What writers leave for other writers; there will be none.
    let _ = std::fs::remove_dir_all(path.join(WRITERS_BELOW_STORAGE));
    remove_empty(path);
    Ok(format!("disposed of {}\n", path.display()))
}

/// Removes the directories that a savepoint leaves behind, those that hold nothing else.
fn remove_empty(path: &Path) {
    if let Ok(entries) = std::fs::read_dir(path) {
        for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            remove_empty(&entry.path());
        }
    }
    let _ = std::fs::remove_dir(path);
}

/// Asks the running job to stop, with a savepoint if one is wanted, and waits until it has ended.
pub(crate) fn stop(arguments: &StopArguments, settings: &Settings) -> Result<String, CliError> {
    let state = settings.state_directory.as_deref().ok_or(CliError::NoStateDirectory)?;
    let target = arguments.savepoint.as_deref().map(|path| text_of(&absolute(path))).transpose()?;
    let outcome = ask(state, &Request::Stop { drain: arguments.drain, savepoint: target })?;
    let since = Instant::now();
    while let Err(CliError::InUse { .. }) = StateLock::acquire(state) {
        if since.elapsed() >= END_PATIENCE {
            return Err(CliError::StillRunning { directory: state.to_owned() });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut text = format!("stopped at epoch {}\n", outcome.epoch);
    if let Some(written) = outcome.savepoint {
        text.push_str(&made_text(&Made { epoch: outcome.epoch, written }, false));
    }
    Ok(text)
}

/// Asks the running job to go on with the number of workers that the flag gives.
pub(crate) fn rescale(settings: &Settings) -> Result<String, CliError> {
    let state = settings.state_directory.as_deref().ok_or(CliError::NoStateDirectory)?;
    if !settings.is_flag(Setting::Workers) {
        return Err(CliError::NoWorkers);
    }
    let workers = settings.job.workers;
    let outcome = ask(state, &Request::Rescale { workers })?;
    let still = duration_words(outcome.still_ms.unwrap_or_default());
    Ok(format!("goes on with {workers} workers from epoch {}, after {still} without output\n", outcome.epoch))
}
