//! The way from one process of a job to another: who they are, how they meet, how they notice that one is gone.
//!
//! Owns the list of hosts, the listening socket of a process ([`Door`]), the hello and its comparison ([`Greeting`]), wires for
//! messages with signs of life ([`Wire`]), and the making of an attempt's mesh ([`connect_mesh`]). Does *not* own what is said
//! over a wire (see `jobmanager`), nor what travels through the mesh (see `engine`).
//!
//! Process 0 is the one that all others call. A connection passes through: accepted → greeting within its deadline → answered →
//! a wire, or one link of a mesh. Whoever says nothing sensible is a stray: dropped, and nothing else.
//!
//! Invariants: no call waits longer than its deadline; a stray never hinders a process that belongs here; nothing is decided
//! about an attempt here.

mod door;
mod error;
mod frame;
mod greeting;
mod hosts;
mod mesh;
mod reception;
mod settings;
mod wire;

pub use door::{Door, Receive};
pub use error::ClusterError;
pub use greeting::{Fact, Hello, Reply, difference};
pub use hosts::{is_loopback, parse_hosts};
pub use mesh::{MeshPlace, PeerLinks, connect_mesh};
pub use reception::{Call, Visitor};
pub use settings::ClusterSettings;
pub use wire::{CallError, Heard, Wire, call};

pub use millpond_socket::{Security, Socket, TlsError, TlsSettings};
