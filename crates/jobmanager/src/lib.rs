//! The life of a job: start, checkpoints, failure, restart, end.
//!
//! Owns: attempts, the restart budget, carrying out what the checkpoint coordinator decides. Does *not*
//! own: how records move (see `engine`), what is decided about checkpoints (see `checkpoint`).
//!
//! An attempt: fence in → restore point → engine starts → events go to the coordinator, its actions are
//! carried out → the attempt ends finished, stopped, or failed; when failed, the restart policy says
//! whether and when the next begins.

mod attempt;
mod cause;
mod claim;
mod cold;
mod control;
mod copies;
mod crew;
mod error;
mod fleet;
mod job;
mod keeper;
mod launch;
mod look;
mod member;
mod memory;
mod patience;
mod requests;
mod restart;
mod settings;
mod status;

pub use control::{Answer, ControlError, Done, JobControl, StopRequest};
pub use error::JobError;
pub use job::{Components, Job, JobOutcome, JobReport, run};
pub use memory::MemoryPlan;
pub use millpond_cluster::{ClusterError, ClusterSettings, TlsError, TlsSettings, parse_hosts};
pub use millpond_dataflow::{OperatorTime, TimeBoard};
pub use millpond_engine::UploadLimits;
pub use millpond_runtime::{QueryBoard, QueryError, StateQuery};
pub use millpond_state::{ColdBackend, ColdError};
pub use restart::{RestartBudget, RestartPolicy};
pub use settings::{Backend, JobSettings, StartFrom, StorageSettings};
pub use status::{JobStatus, StatusSnapshot, StopSignal};
