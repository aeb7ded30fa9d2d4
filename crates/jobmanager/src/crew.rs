//! The other processes of a job, as process 0 sees them.
//!
//! Owns who takes part, what they are told, and what is known of them in the current attempt. Does *not* own attempts: what the
//! others say becomes messages like those of the own engine, and what is decided about an attempt is decided there.
//!
//! A process passes through: joins (compared with process 0) → hears of an attempt → says what its engine says → is gone from
//! the attempt, or lost. One that comes back, or comes late, joins and waits for the next attempt.
//!
//! Invariants: at most one process for each index; whoever is lost during an attempt is told to it exactly once.

pub(crate) mod says;
mod state;
pub(crate) mod values;

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use millpond_cluster::{
    ClusterError, ClusterSettings, Door, Fact, MeshPlace, PeerLinks, Security, Visitor, connect_mesh, is_loopback,
};
use millpond_engine::{Heartbeat, Mesh, PeerSockets, SharedValues};

use crate::attempt::Message;
use crate::error::JobError;
use crate::launch::{Given, Ties};
use crate::look;
use crate::status::StopSignal;
use says::{JobEnd, StartOrder, Stats, ToMember};
use state::State;
use values::LeaderValues;

/// How long one look at who is there takes, at most.
const LOOK: Duration = Duration::from_millis(50);

/// The other processes of a job.
pub(crate) struct Crew {
    settings: ClusterSettings,
    job: String,
    door: Door,
    state: Arc<State>,
}

/// What all processes must agree about, as seen by this one.
///
/// # Errors
/// When the job cannot be built.
pub(crate) fn facts(given: Given<'_>, cluster: &ClusterSettings) -> Result<Vec<Fact>, JobError> {
    let settings = given.settings;
    let groups = settings.max_parallelism.map_or("as in the checkpoint".to_owned(), |groups| groups.to_string());
    let own = [
        ("processes", cluster.processes().to_string()),
        ("workers", settings.workers.to_string()),
        ("max-parallelism", groups),
        ("checkpoints", if given.components.storage.is_some() { "kept" } else { "not kept" }.to_owned()),
        ("hosts", cluster.hosts.join("\n")),
    ];
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
    let plan = ("plan".to_owned(), look::plan_text(given.job, settings)?);
    Ok(own.chain(cluster.facts.iter().cloned()).chain([plan]).collect())
}

/// Whether others may reach this process, and nothing tells them from processes of the job.
fn is_open(cluster: &ClusterSettings) -> bool {
    cluster.tls.is_none() && !is_loopback(cluster.own_address())
}

/// Says so when others can listen to what the processes of a job say to each other.
pub(crate) fn warn_of_open_network(cluster: &ClusterSettings) {
    if is_open(cluster) {
        tracing::warn!(
            address = cluster.own_address(),
            "the processes of the job talk without TLS, and trust whoever reaches this address: let only them reach it, or give them certificates"
        );
    }
}

impl Crew {
    /// Opens the door for the other processes.
    ///
    /// # Errors
    /// When the address of process 0 cannot be had.
    pub(crate) fn open(
        given: Given<'_>,
        cluster: &ClusterSettings,
        security: &Security,
        stop: Arc<StopSignal>,
    ) -> Result<Crew, JobError> {
        let job = given.settings.name.clone();
        let state = Arc::new(State::new(cluster, &job, facts(given, cluster)?, stop));
        let judge = Arc::clone(&state);
        let receive = move |visitor| match visitor {
            Visitor::Caller(call) => judge.answer(call),
            Visitor::TurnedAway { from, reason } => judge.turned_away(from, &reason),
        };
        let door = Door::open(cluster, security, &job, Arc::new(receive))?;
        warn_of_open_network(cluster);
        tracing::info!(processes = cluster.processes(), address = %door.address(), "waiting for the other processes");
        Ok(Crew { settings: cluster.clone(), job, door, state })
    }

    /// Waits until all processes are there. False when the job is asked to stop before.
    ///
    /// # Errors
    /// [`ClusterError::Missing`] when they do not come in time.
    pub(crate) fn gather(&self, is_stop_asked: &dyn Fn() -> bool) -> Result<bool, JobError> {
        let until = Instant::now() + self.settings.wait();
        loop {
            let missing = self.state.missing();
            if missing.is_empty() {
                return Ok(true);
            }
            if is_stop_asked() {
                return Ok(false);
            }
            if Instant::now() >= until {
                let (waited_ms, last_refusal) = (self.settings.wait_ms, self.state.last_refusal());
                return Err(ClusterError::Missing { processes: missing, waited_ms, last_refusal }.into());
            }
            self.state.wait(LOOK);
        }
    }

    /// Begins an attempt: from now on what the others say of it goes to `messages`.
    pub(crate) fn begin(&self, order: StartOrder, messages: Sender<Message>) -> CrewAttempt<'_> {
        let (attempt, token) = (order.attempt, order.token);
        self.state.begin(attempt, messages);
        self.state.broadcast(&ToMember::Start(Box::new(order)));
        CrewAttempt { crew: self, attempt, token, over: false }
    }

    /// Tells everybody how the job has ended, and waits until that is said.
    pub(crate) fn end(&self, end: JobEnd) {
        self.state.end(&ToMember::End(end));
    }
}

/// The part of the others in an attempt. Dropped, the attempt is aborted everywhere, unless it is over.
pub(crate) struct CrewAttempt<'a> {
    crew: &'a Crew,
    attempt: u64,
    token: u64,
    over: bool,
}

impl CrewAttempt<'_> {
    /// Connects this process with all others.
    ///
    /// # Errors
    /// When that fails, or somebody is lost meanwhile.
    pub(crate) fn connect(&self) -> Result<Ties, JobError> {
        let Crew { settings, job, door, state } = self.crew;
        let place = MeshPlace { job, attempt: self.attempt, token: self.token };
        let peers = connect_mesh(door, settings, &place, &|| state.is_broken())?;
        let (values, telling, attempt) = (state.values(), Arc::clone(state), self.attempt);
        let tell = Box::new(move |name: &str, answers| telling.tell(attempt, name, answers));
        let shared: Arc<dyn SharedValues> = Arc::new(LeaderValues { values, tell });
        Ok(Ties { mesh: mesh(settings, peers), shared })
    }

    pub(crate) fn tell(&self, message: &ToMember) {
        self.crew.state.broadcast(message);
    }

    /// Counters of all other processes together.
    pub(crate) fn stats(&self) -> Stats {
        self.crew.state.stats()
    }

    /// Number of all processes, this one included.
    pub(crate) fn processes(&self) -> u32 {
        self.crew.settings.processes()
    }

    /// The address of a process.
    pub(crate) fn host(&self, process: u32) -> String {
        self.crew.settings.host(process).to_owned()
    }

    /// Waits until the engines of all others are gone, or their processes lost; after that nothing comes any more.
    /// Returns their last counters.
    pub(crate) fn finish(mut self) -> Stats {
        while !self.crew.state.all_gone() {
            self.crew.state.wait(LOOK);
        }
        self.over = true;
        let stats = self.crew.state.stats();
        self.crew.state.over();
        stats
    }
}

impl Drop for CrewAttempt<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.crew.state.broadcast(&ToMember::Abort { attempt: self.attempt });
            self.crew.state.over();
        }
    }
}

/// The sockets, as the engine takes them.
pub(crate) fn mesh(settings: &ClusterSettings, peers: Vec<Option<PeerLinks>>) -> Mesh {
    let sockets = |PeerLinks { data, credits }| PeerSockets { data, credits };
    Mesh {
        process: settings.process,
        peers: peers.into_iter().map(|peer| peer.map(sockets)).collect(),
        heartbeat: Heartbeat { interval: settings.heartbeat(), timeout: settings.lost_after() },
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use millpond_cluster::TlsSettings;

    use super::*;

    #[test]
    fn only_addresses_beyond_this_machine_without_tls_are_open() {
        let at = |listen: Option<&str>| ClusterSettings {
            hosts: vec!["127.0.0.1:7000".to_owned(), "127.0.0.1:7001".to_owned()],
            listen: listen.map(str::to_owned),
            ..ClusterSettings::default()
        };
        assert!(!is_open(&at(None)));
        let mut open = at(Some("0.0.0.0:7000"));
        assert!(is_open(&open));
        let file = PathBuf::from("file.pem");
        open.tls = Some(TlsSettings { certificate: file.clone(), key: file.clone(), authority: file, name: None });
        assert!(!is_open(&open));
    }
}
