//! Starting an attempt, and talking to it.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use millpond_checkpoint::Names;
use millpond_core::{Attempt, Clock, Epoch, MaxParallelism, UserResult};
use millpond_dataflow::{Dataflow, TimeBoard};
use millpond_runtime::{ColdBacking, EndKind, FlowLimits, QueryBoard, RestorePoint, UploadSettings};
use millpond_storage::Storage;
use timely::communication::WorkerGuards;
use timely::{CommunicationConfig, WorkerConfig};

use crate::control::{Control, SharedValues};
use crate::error::EngineError;
use crate::event::EngineEvent;
use crate::mesh::{Connections, Geography, Mesh};
use crate::pause::PauseHistogram;
use crate::upload::{UploadLimits, UploadPool, UploadTarget};
use crate::worker::{Execution, run_worker};

/// The function that describes a job; called once per worker.
pub type Job = Arc<dyn Fn(&mut Dataflow) -> UserResult + Send + Sync>;

/// Everything from which an attempt is started.
pub struct EngineSpec {
    /// The job.
    pub job: Job,
    /// Number of worker threads of this process; the same in all processes.
    pub workers: u32,
    /// The connections to the other processes; `None` for a job in one process.
    pub mesh: Option<Mesh>,
    /// What all processes must see alike; `None` for a job in one process.
    pub shared: Option<Arc<dyn SharedValues>>,
    /// Number of key groups.
    pub max_parallelism: MaxParallelism,
    /// Which execution.
    pub attempt: Attempt,
    /// Where to start from; `None` for an empty state.
    pub restore: Option<RestorePoint>,
    /// Where snapshots are stored; `None` for a job without checkpoints.
    pub storage: Option<(Arc<dyn Storage>, Names)>,
    /// How much uploading may take.
    pub uploads: UploadLimits,
    /// Where keyed state goes that does not fit into memory; `None` to keep all of it there.
    pub cold: Option<ColdBacking>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// How much may be in flight on one channel.
    pub flow: FlowLimits,
    /// Where pauses are counted.
    pub pauses: Arc<PauseHistogram>,
    /// Where it is shown how far event time has come.
    pub times: Arc<TimeBoard>,
    /// Where subtasks can be asked about their keyed state; empty again when the attempt has ended.
    pub queries: Arc<QueryBoard>,
    /// Whom to tell.
    pub events: Sender<EngineEvent>,
}

/// An attempt that runs.
pub struct Engine {
    control: Arc<Control>,
    execution: Arc<Execution>,
    workers: Option<WorkerGuards<()>>,
    connections: Option<Connections>,
    uploads: Option<UploadPool>,
}

impl Engine {
    /// Starts worker threads. What goes wrong in them comes as an event.
    ///
    /// # Errors
    /// When the number of workers is out of bounds or threads cannot be started.
    pub fn start(mut spec: EngineSpec) -> Result<Engine, EngineError> {
        let workers = spec.workers;
        let mesh = spec.mesh.take();
        let geography = match &mesh {
            Some(mesh) => Geography { process: mesh.process, processes: mesh.processes(), workers },
            None => Geography::alone(workers),
        };
        spec.max_parallelism.check(geography.total_workers())?;
        let failed = |reason: String| EngineError::Start { workers, reason };
        let control = Arc::new(Control::default());
        let defaults = millpond_runtime::RunSettings::default();
        let runs = millpond_runtime::RunSettings { target_file_bytes: spec.uploads.file_bytes, ..defaults };
        let target = spec.storage.as_ref().map(|(storage, names)| UploadTarget {
            storage: Arc::clone(storage),
            settings: UploadSettings { names: names.clone(), attempt: spec.attempt, runs },
        });
        let uploads = if target.is_some() || spec.cold.is_some() {
            let pool = UploadPool::start(&spec.uploads, target.as_ref(), &control, &spec.events);
            Some(pool.map_err(|error| failed(error.to_string()))?)
        } else {
            None
        };
        let queue = uploads.as_ref().map(UploadPool::queue);
        let execution = Arc::new(Execution::new(spec, geography, Arc::clone(&control), queue));
        let mut engine = Engine { control, execution, workers: None, connections: None, uploads };
        let builders = match mesh {
            Some(mesh) => {
                let (builders, connections) = Connections::start(mesh, &engine.execution).map_err(failed)?;
                engine.connections = Some(connections);
                builders
            }
            None => CommunicationConfig::Process(workers as usize).try_build().map_err(failed)?.0,
        };
        let shared = Arc::clone(&engine.execution);
        let run = move |worker: &mut _| run_worker(worker, &shared);
        let guards = timely::execute::execute_from(builders, Box::new(()), WorkerConfig::default(), run);
        engine.workers = Some(guards.map_err(failed)?);
        Ok(engine)
    }

    /// Sources shall close every epoch up to `epoch`; with `end`, the stream ends there.
    pub fn trigger(&self, epoch: Epoch, end: Option<EndKind>) {
        self.control.trigger(epoch, end);
    }

    /// `epoch` is durable: sinks commit up to it.
    pub fn complete(&self, epoch: Epoch) {
        self.control.complete(epoch);
    }

    /// Records that sources have emitted.
    #[must_use]
    pub fn source_records(&self) -> u64 {
        self.execution.source_records()
    }

    /// Live keyed entries and bytes of memory of keyed state.
    #[must_use]
    pub fn state_size(&self) -> (u64, u64) {
        self.execution.state_size()
    }

    /// The last epoch is durable and completed: waits until every subtask has committed it.
    pub fn finish(mut self) {
        self.control.finish();
        self.join();
    }

    /// Stops all workers of this process as they stand, and waits for them. Connections to other processes are cut.
    pub fn abort(mut self) {
        self.stop();
    }

    fn stop(&mut self) {
        self.control.abort();
        self.join();
    }

    fn join(&mut self) {
        if let Some(workers) = self.workers.take() {
            // What a worker has to say it has said as an event.
            drop(workers.join());
        }
        if let Some(connections) = self.connections.take() {
            let aborted = self.control.is_aborted();
            if aborted {
                // Now at the latest, so that nobody waits for us, and we for nobody.
                connections.close();
            }
            connections.join(&self.execution, aborted);
        }
        self.execution.spec.queries.clear();
        self.execution.close_uploads();
        if let Some(uploads) = self.uploads.take() {
            uploads.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if self.workers.is_some() || self.connections.is_some() {
            self.stop();
        }
    }
}
