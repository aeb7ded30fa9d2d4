//! The command `run`: hands the job manager what it needs, and tells how the job gets on.
//!
//! Owns everything that a job touches outside of itself: the state directory's lock, the checkpoint
//! directory, signals, the progress line. All of it is given back on return.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use millpond_jobmanager::{Components, Job, JobSettings};

use crate::alike;
use crate::error::CliError;
use crate::extensions::Extensions;
use crate::lock::StateLock;
use crate::message;
use crate::place::resolve;
use crate::plan;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::signals::Listener;
use crate::socket::ControlServer;
use crate::storage::Opening;
use crate::supervisor;
use crate::terminal::Terminal;

/// Where state goes inside the job's local directory that memory does not hold.
const COLD_BELOW_STATE: &str = "cold";
/// Where copies of what checkpoints hold go inside the job's local directory.
const COPIES_BELOW_STATE: &str = "copies";

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
    let opening = Opening::new(settings, extensions);
    let opened = settings.checkpoints.as_ref().map(|place| opening.for_writing(place)).transpose()?;
    let origin = resolve(&settings.start, settings.claim, &settings.job.name, opened.as_ref(), opening)?;
    let mut job_settings = JobSettings { from: origin.from, ..settings.job.clone() };
    if let Some(cluster) = &mut job_settings.cluster {
        cluster.facts = alike::facts(settings);
    }
    let mut components = Components::new(opened.map(|opened| opened.storage));
    components.origin = origin.storage;
    components.cold_backend.clone_from(&extensions.cold);
    let below_state = |name: &str| settings.state_directory.as_deref().map(|directory| directory.join(name));
    components.local_directory = below_state(COLD_BELOW_STATE);
    components.copies_directory = below_state(COPIES_BELOW_STATE).filter(|_| settings.local_recovery);
    tracing::info!(
        job = job_settings.name,
        workers = job_settings.workers,
        "{}",
        message::checkpoints_go_to(settings.checkpoints.as_ref())
    );
    let started = Instant::now();
    let outcome = {
        let _listener = Listener::start(Arc::clone(&components.stop), Arc::clone(terminal))?;
        supervisor::follow();
        let _progress =
            settings.progress.then(|| Progress::start(Arc::clone(&components.status), Arc::clone(terminal)));
        // What is asked of the job is asked of its leading process.
        let leads = job_settings.cluster.as_ref().is_none_or(|cluster| cluster.process == 0);
        let socket_in = settings.state_directory.as_deref().filter(|_| leads);
        let _control = socket_in.and_then(|directory| control(directory, &components, opening));
        millpond_jobmanager::run(job, &job_settings, &components)
    };
    let report = outcome?;
    let elapsed_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    let records = components.status.snapshot().records;
    tracing::info!("{}", message::summary(&job_settings.name, &report, records, elapsed_ms));
    Ok(())
}

/// Without its control socket a job runs as well; it only cannot be asked for anything.
fn control(directory: &Path, components: &Components, opening: Opening<'_>) -> Option<ControlServer> {
    match ControlServer::start(directory, components, opening) {
        Ok(server) => Some(server),
        Err(error) => {
            tracing::warn!(%error, "cannot open the control socket: `savepoint create --live` and `stop` will not work");
            None
        }
    }
}
