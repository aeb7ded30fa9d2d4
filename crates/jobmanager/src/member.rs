//! The life of a process other than process 0: it joins, runs its part of one attempt after the other, and ends when process 0
//! says so.
//!
//! Owns the wire to process 0 and the engine of this process. Decides nothing about checkpoints, attempts or restarts; only
//! whether process 0 can still be expected. When it is lost, the own part of the attempt ends, and this process calls again.

mod part;
mod values;

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use millpond_cluster::{
    CallError, ClusterError, ClusterSettings, Door, Fact, Hello, Reply, Security, Visitor, Wire, call,
};
use millpond_storage::Storage;

use crate::crew::says::{FromMember, JobEnd, ToMember};
use crate::crew::{facts, warn_of_open_network};
use crate::error::JobError;
use crate::job::{JobOutcome, JobReport, is_stop_asked};
use crate::launch::Given;
use crate::look;
use part::{Heard, Inbox, Part, PartEnd, Presence};

/// How long is waited before process 0 is called again.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a wish to stop is looked for.
const TICK: Duration = Duration::from_millis(20);

/// Runs this process until process 0 ends the job.
///
/// # Errors
/// When this process does not fit the job, process 0 cannot be reached for too long, or ends the job with an error.
pub(crate) fn run(
    given: Given<'_>,
    cluster: &ClusterSettings,
    security: &Security,
    storage: Option<&Arc<dyn Storage>>,
) -> Result<JobReport, JobError> {
    cluster.check()?;
    let facts = facts(given, cluster)?;
    let refuse = |visitor: Visitor| {
        if let Visitor::Caller(call) = visitor {
            let reason = "this is not process 0: the hosts differ, or their order".to_owned();
            let _ = call.answer(&Reply::Refused { reason });
        }
    };
    let door = Door::open(cluster, security, &given.settings.name, Arc::new(refuse))?;
    warn_of_open_network(cluster);
    let member = Member {
        given,
        cluster,
        security,
        door: &door,
        storage,
        incarnation: RandomState::new().build_hasher().finish(),
    };
    let mut rounds = 0;
    loop {
        let Some((wire, inbox, presence)) = member.join(&facts)? else {
            return Ok(member.stopped());
        };
        if let Some(epoch) = storage.and_then(|storage| look::finished(given.settings, storage)) {
            return Ok(JobReport { outcome: JobOutcome::Finished, epoch, restarts: rounds });
        }
        match member.serve(&Arc::new(wire), &inbox, &presence)? {
            Served::Ended(JobEnd::Finished { epoch }) => {
                return Ok(JobReport { outcome: JobOutcome::Finished, epoch, restarts: rounds });
            }
            Served::Ended(JobEnd::Stopped { epoch }) => {
                return Ok(JobReport { outcome: JobOutcome::Stopped, epoch, restarts: rounds });
            }
            Served::Ended(JobEnd::Failed { kind, reason }) => return Err(JobError::Ended { kind, reason }),
            Served::Lost(reason) => {
                tracing::warn!(process = 0, reason, "process 0 is lost, calling it again");
                rounds += 1;
            }
        }
    }
}

/// How the conversation with process 0 came to its end.
enum Served {
    Ended(JobEnd),
    Lost(String),
}

struct Member<'a> {
    given: Given<'a>,
    cluster: &'a ClusterSettings,
    security: &'a Security,
    door: &'a Door,
    storage: Option<&'a Arc<dyn Storage>>,
    incarnation: u64,
}

type Joined = (Wire, Receiver<Inbox>, Arc<Presence>);

impl Member<'_> {
    fn stopped(&self) -> JobReport {
        let epoch = self.given.components.status.snapshot().epoch;
        self.given.components.control.stopped(millpond_core::Epoch(epoch));
        JobReport { outcome: JobOutcome::Stopped, epoch: millpond_core::Epoch(epoch), restarts: 0 }
    }

    /// Calls process 0 until it answers. `None` when this process is asked to stop before.
    fn join(&self, facts: &[Fact]) -> Result<Option<Joined>, JobError> {
        let (process, address) = (self.cluster.process, self.cluster.host(0).to_owned());
        let until = Instant::now() + self.cluster.wait();
        // So long an earlier process with our index may be taken for alive.
        let taken_until = Instant::now() + 3 * self.cluster.lost_after();
        loop {
            if is_stop_asked(self.given.components) {
                return Ok(None);
            }
            let job = self.given.settings.name.clone();
            let hello = Hello { job, process, incarnation: self.incarnation, facts: facts.to_vec() };
            let failure = match call(self.security, &address, hello, self.cluster.lost_after()) {
                Ok((stream, Reply::Welcome)) => {
                    let (sender, inbox) = channel();
                    let presence = Arc::new(Presence::new(sender));
                    let hears = Arc::clone(&presence);
                    let wire = Wire::start(stream, self.cluster, move |heard: Heard| hears.hear(heard));
                    return Ok(Some((wire.map_err(ClusterError::from)?, inbox, presence)));
                }
                Ok((_, Reply::Refused { reason })) => {
                    return Err(ClusterError::Refused { process, address, reason }.into());
                }
                Ok((_, Reply::Taken { reason })) if Instant::now() >= taken_until => {
                    return Err(ClusterError::Taken { process, reason }.into());
                }
                Ok((_, Reply::Taken { reason })) => reason,
                Err(CallError::Untrusted(reason)) => {
                    return Err(ClusterError::Untrusted { process: 0, address, reason }.into());
                }
                Err(CallError::Unreachable(reason)) => reason,
            };
            if Instant::now() >= until {
                return Err(ClusterError::Unreachable { process: 0, address, reason: failure }.into());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Does what process 0 says.
    fn serve(&self, wire: &Arc<Wire>, inbox: &Receiver<Inbox>, presence: &Arc<Presence>) -> Result<Served, JobError> {
        let stop_told = Cell::new(false);
        loop {
            if !stop_told.get() && is_stop_asked(self.given.components) {
                stop_told.set(true);
                wire.send(&FromMember::Stop);
            }
            match inbox.recv_timeout(TICK) {
                Ok(Inbox::Heard(ToMember::Start(order))) => {
                    let part = Part {
                        given: self.given,
                        cluster: self.cluster,
                        door: self.door,
                        wire,
                        presence,
                        order: &order,
                        has_storage: self.storage.is_some(),
                    };
                    match part.run(inbox, &stop_told) {
                        PartEnd::Gone => {}
                        PartEnd::Ended(end) => return Ok(Served::Ended(end)),
                        PartEnd::Lost(reason) => return Ok(Served::Lost(reason)),
                    }
                }
                Ok(Inbox::Heard(ToMember::End(end))) => return Ok(Served::Ended(end)),
                Ok(Inbox::Lost(reason)) => return Ok(Served::Lost(reason)),
                // About an attempt that is over.
                Ok(Inbox::Heard(_) | Inbox::Engine(..)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Served::Lost("its wire has ended".to_owned())),
            }
        }
    }
}
