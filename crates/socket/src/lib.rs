//! A connection between two processes of a job: bytes both ways at once, plain or under mutual TLS.
//!
//! Owns the stream ([`Socket`]), how it becomes one that nobody else reads or writes ([`Security`]), and what is wrong with
//! certificates ([`TlsError`]). Does *not* own who listens, who calls, and what is said (see `cluster`, `engine`).
//!
//! A connection passes through: TCP → [`Security::call`] or [`Security::answer`], within a deadline → a [`Socket`], one clone for
//! the thread that reads and one for the thread that writes.
//!
//! Invariants: reading never waits for writing, nor writing for reading; a stream that is cut is an error, and only one that
//! the other side has ended comes to its end; with TLS, no byte of ours is sent to, and none is taken from, whoever has no
//! certificate that the authority has signed.

mod error;
mod parting;
mod security;
mod settings;
mod socket;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "without_tls.rs"]
mod tls;

pub use error::{HandshakeError, PemFile, TlsError};
pub use parting::part;
pub use security::{Security, why_untrusted};
pub use settings::TlsSettings;
pub use socket::Socket;
