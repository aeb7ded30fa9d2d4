//! Running a job inside a program that has its own `main`.

use std::sync::Arc;

use millpond_core::UserResult;
use millpond_dataflow::Dataflow;
use millpond_jobmanager::{Components, Job, JobError, JobReport, JobSettings};

use crate::command_line;

/// Runs a job in this process until it has read all its input, without durable checkpoints: when it
/// fails, it starts anew; its output becomes visible at its end. Blocks.
///
/// ```
/// use millpond::prelude::*;
///
/// let out = Collector::new();
/// let inside = out.clone();
/// let report = millpond::run(
///     move |flow| {
///         let words = flow.from_iter("words", ["to", "be", "or", "not", "to", "be"].map(str::to_owned));
///         words.key_by(|word| word.clone()).count("counts").collect("out", &inside);
///         Ok(())
///     },
///     &millpond::JobSettings { workers: 2, ..Default::default() },
/// )?;
/// assert_eq!(report.restarts, 0);
/// assert!(out.take().contains(&("be".to_owned(), 2)));
/// # Ok::<(), millpond::JobError>(())
/// ```
///
/// # Errors
/// When the job cannot be built, or fails more often than [`JobSettings::restart`] allows.
pub fn run(
    job: impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static,
    settings: &JobSettings,
) -> Result<JobReport, JobError> {
    run_with(job, settings, &Components::new(None))
}

/// Like [`run`], with checkpoints in a storage, a clock, counters to look at, and a way to stop the job
/// from another thread: all that [`Components`] holds.
///
/// ```
/// # use std::sync::Arc;
/// use millpond::prelude::*;
/// use millpond::storage::MemoryStorage;
///
/// let storage = Arc::new(MemoryStorage::new());
/// let components = millpond::Components::new(Some(storage));
/// let settings = millpond::JobSettings::default();
/// let job = |flow: &mut Dataflow| {
///     flow.from_iter("numbers", 0..100u64).key_by(|n| n % 7).count("counts");
///     Ok(())
/// };
/// millpond::run_with(job, &settings, &components)?;
/// assert_eq!(components.status.snapshot().records, 100);
/// # Ok::<(), millpond::JobError>(())
/// ```
///
/// # Errors
/// As [`run`]; and when somebody else runs the job on the same storage, or its checkpoint does not fit.
pub fn run_with(
    job: impl Fn(&mut Dataflow) -> UserResult + Send + Sync + 'static,
    settings: &JobSettings,
    components: &Components,
) -> Result<JobReport, JobError> {
    let job: Job = Arc::new(job);
    let mut components = components.clone();
    components.cold_backend = components.cold_backend.or_else(command_line::cold);
    millpond_jobmanager::run(&job, settings, &components)
}
