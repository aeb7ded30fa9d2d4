//! The command `plan`: how the job would be laid out. Builds the job, runs nothing.

use millpond_dataflow::{Dataflow, Graph, Plan};
use millpond_jobmanager::Job;

use crate::error::CliError;
use crate::settings::Settings;

/// The plan of `job` as text, or as a graph in the DOT language.
///
/// # Errors
/// When the job cannot be built.
pub(crate) fn describe(job: &Job, settings: &Settings, dot: bool) -> Result<String, CliError> {
    let graph = build(job)?;
    let plan = Plan::new(&graph, settings.job.workers, settings.max_parallelism);
    Ok(if dot { plan.to_dot() } else { plan.to_text() })
}

/// Builds the job and checks it.
///
/// # Errors
/// When the job breaks a rule, fails or panics while it is built.
pub(crate) fn build(job: &Job) -> Result<Graph, CliError> {
    Ok(Dataflow::build(|dataflow| job(dataflow))?)
}
