//! The mesh of one attempt: two links between any two processes.
//!
//! Of two processes the one with the higher index calls. A caller tries again until the deadline, since the other may not have
//! heard of the attempt yet; what it says with the link tells the other which attempt it belongs to.

use std::time::{Duration, Instant};

use millpond_socket::{HandshakeError, Socket};

use crate::door::Door;
use crate::error::ClusterError;
use crate::greeting::{Greeting, LinkHello, LinkKind};
use crate::settings::ClusterSettings;
use crate::wire;

/// How long is waited before the next try.
const PAUSE: Duration = Duration::from_millis(20);
/// One try to connect takes no longer.
const CALL_TIME: Duration = Duration::from_secs(2);

/// Which mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshPlace<'a> {
    /// Name of the job.
    pub job: &'a str,
    /// The attempt.
    pub attempt: u64,
    /// Tells attempts apart that have one number by mistake.
    pub token: u64,
}

/// The links to one other process.
#[derive(Debug)]
pub struct PeerLinks {
    /// For the engine's messages.
    pub data: Socket,
    /// For credit and signs of life.
    pub credits: Socket,
}

/// Connects this process with all others; the result has `None` for itself.
///
/// # Errors
/// [`ClusterError::Unreachable`] and [`ClusterError::Missing`] when somebody cannot be reached or does not call within the
/// settings' wait, [`ClusterError::Cancelled`] when `cancelled` says so before.
pub fn connect_mesh(
    door: &Door,
    settings: &ClusterSettings,
    place: &MeshPlace<'_>,
    cancelled: &dyn Fn() -> bool,
) -> Result<Vec<Option<PeerLinks>>, ClusterError> {
    let until = Instant::now() + settings.wait();
    let mut peers = Vec::new();
    for peer in 0..settings.process {
        let data = call_link(door, settings, place, peer, LinkKind::Data, until, cancelled)?;
        let credits = call_link(door, settings, place, peer, LinkKind::Credits, until, cancelled)?;
        peers.push(Some(PeerLinks { data, credits }));
    }
    peers.push(None);
    for peer in settings.process + 1..settings.processes() {
        let await_link = |kind| await_link(door, settings, place, peer, kind, until, cancelled);
        let data = await_link(LinkKind::Data)?;
        peers.push(Some(PeerLinks { data, credits: await_link(LinkKind::Credits)? }));
    }
    Ok(peers)
}

fn call_link(
    door: &Door,
    settings: &ClusterSettings,
    place: &MeshPlace<'_>,
    peer: u32,
    kind: LinkKind,
    until: Instant,
    cancelled: &dyn Fn() -> bool,
) -> Result<Socket, ClusterError> {
    let address = settings.host(peer);
    let hello = LinkHello {
        job: place.job.to_owned(),
        attempt: place.attempt,
        token: place.token,
        from: settings.process,
        to: peer,
        kind,
    };
    loop {
        if cancelled() {
            return Err(ClusterError::Cancelled);
        }
        let left = until.saturating_duration_since(Instant::now());
        let connected = wire::connect(door.security(), address, left.clamp(PAUSE, CALL_TIME)).and_then(|mut socket| {
            wire::greet(&mut socket, &Greeting::Link(hello.clone()))?;
            socket.set_read_timeout(None)?;
            socket.set_write_timeout(None)?;
            Ok(socket)
        });
        match connected {
            Ok(socket) => return Ok(socket),
            Err(HandshakeError::Untrusted(reason)) => {
                return Err(ClusterError::Untrusted { process: peer, address: address.to_owned(), reason });
            }
            Err(error) if left.is_zero() => {
                return Err(ClusterError::Unreachable {
                    process: peer,
                    address: address.to_owned(),
                    reason: error.to_string(),
                });
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

fn await_link(
    door: &Door,
    settings: &ClusterSettings,
    place: &MeshPlace<'_>,
    peer: u32,
    kind: LinkKind,
    until: Instant,
    cancelled: &dyn Fn() -> bool,
) -> Result<Socket, ClusterError> {
    loop {
        if cancelled() {
            return Err(ClusterError::Cancelled);
        }
        if let Some(socket) = door.arrivals().take(place.attempt, place.token, peer, kind) {
            return Ok(socket);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let (processes, waited_ms) = (vec![peer], settings.wait_ms);
            return Err(ClusterError::Missing { processes, waited_ms, last_refusal: None });
        }
        door.arrivals().wait(left.min(PAUSE));
    }
}
