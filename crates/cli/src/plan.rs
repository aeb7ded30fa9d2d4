//! The command `plan`: how the job would be laid out. Builds the job, runs nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

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
    match catch_unwind(AssertUnwindSafe(|| Dataflow::build(|dataflow| job(dataflow)))) {
        Ok(built) => Ok(built?),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let message = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("without a message");
            Err(CliError::JobPanicked { message: message.to_owned() })
        }
    }
}
