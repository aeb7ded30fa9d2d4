//! From sockets to what timely's workers are built from, and back to nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use timely::communication::allocator::ProcessBuilder;
use timely::communication::allocator::zero_copy::initialize::{CommsGuard, initialize_networking_from_sockets};
use timely::communication::{AllocatorBuilder, Hooks};

use super::credits::{CreditLink, CreditLinks, TakeCredit};
use super::link::{Broken, Link};
use super::{Links, Mesh};
use crate::error::EngineError;
use crate::worker::Execution;

/// The running connections of an attempt.
pub(crate) struct Connections {
    links: Arc<Links>,
    data: CommsGuard,
    credits: CreditLinks,
}

impl Connections {
    /// Starts the threads of all connections.
    ///
    /// # Errors
    /// What the system said, as text.
    pub(crate) fn start(
        mesh: Mesh,
        execution: &Arc<Execution>,
    ) -> Result<(Vec<AllocatorBuilder>, Connections), String> {
        let links = Arc::new(Links::default());
        let started = start(mesh, execution, &links);
        if started.is_err() {
            // Threads that were started already end with their sockets.
            links.workers_ended();
            links.close();
        }
        started.map_err(|error| error.to_string())
    }

    /// Ends all reading and writing at once.
    pub(crate) fn close(&self) {
        self.links.close();
    }

    /// The workers are gone: waits for the threads of the connections. Without [`Self::close`] before, until the other
    /// processes have come to their end as well.
    pub(crate) fn join(self, execution: &Execution, closed: bool) {
        self.links.workers_ended();
        let data = self.data;
        // A thread of timely that panicked all the same has ended the attempt by its silence.
        let _ = catch_unwind(AssertUnwindSafe(move || drop(data)));
        execution.connect_far(Vec::new());
        self.credits.join(closed);
    }
}

fn start(
    mesh: Mesh,
    execution: &Arc<Execution>,
    links: &Arc<Links>,
) -> std::io::Result<(Vec<AllocatorBuilder>, Connections)> {
    let (process, heartbeat) = (mesh.process as usize, mesh.heartbeat);
    let workers = execution.geography.workers as usize;
    let mut credits = CreditLinks::new();
    let (mut sockets, mut far) = (Vec::new(), Vec::new());
    for (peer, own) in mesh.peers.into_iter().enumerate() {
        let Some(own) = own else {
            sockets.push(None);
            far.push(None);
            continue;
        };
        own.data.set_nodelay(true)?;
        links.add(own.data.try_clone()?);
        links.add(own.credits.try_clone()?);
        let broken = broken(execution, links, peer as u32);
        let data = Link::new(own.data, Arc::clone(links), Arc::clone(&broken));
        let link = CreditLink { process: peer as u32, socket: own.credits, data: data.end(), broken };
        far.push(Some(credits.start(link, heartbeat, take(execution))?));
        sockets.push(Some(data));
    }
    execution.connect_far(far);
    let hooks = Hooks::default();
    let inside = ProcessBuilder::new_typed_vector(workers, hooks.refill.clone(), None);
    let (builders, data) = initialize_networking_from_sockets(inside, sockets, process, workers, hooks)?;
    let builders = builders.into_iter().map(AllocatorBuilder::Tcp).collect();
    Ok((builders, Connections { links: Arc::clone(links), data, credits }))
}

// The threads of connections may outlive the attempt a little, and must not keep it alive.

fn broken(execution: &Arc<Execution>, links: &Arc<Links>, process: u32) -> Broken {
    let (execution, links): (Weak<Execution>, _) = (Arc::downgrade(execution), Arc::downgrade(links));
    Arc::new(move |reason| {
        if let Some(execution) = execution.upgrade() {
            execution.fail(EngineError::Peer { process, reason });
        }
        // Nobody shall wait for the lost one, nor the others for us.
        if let Some(links) = links.upgrade() {
            links.close();
        }
    })
}

fn take(execution: &Arc<Execution>) -> TakeCredit {
    let execution: Weak<Execution> = Arc::downgrade(execution);
    Arc::new(move |credit| {
        if let Some(execution) = execution.upgrade() {
            return execution.take_far_credit(credit);
        }
        Ok(())
    })
}
