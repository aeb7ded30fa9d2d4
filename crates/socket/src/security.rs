//! From a TCP connection to one that only processes of the job take part in.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

use crate::error::{HandshakeError, TlsError};
use crate::settings::TlsSettings;
use crate::socket::Socket;
use crate::tls::{self, Tls};

/// How the connections of this process are secured: not at all, or by TLS 1.3 with certificates on both sides.
#[derive(Clone, Default)]
pub struct Security {
    pub(crate) tls: Option<Arc<Tls>>,
}

impl Security {
    /// Reads the certificates, if there are any, and checks that the other processes will trust those of this process, which is
    /// at `host`. Warns of a key that everybody may read, and of a certificate that is about to expire.
    ///
    /// # Errors
    /// [`TlsError`] when the program was built without TLS, or a file is wrong.
    pub fn open(settings: Option<&TlsSettings>, host: &str) -> Result<Security, TlsError> {
        let tls = settings.map(|settings| Tls::open(settings, host).map(Arc::new)).transpose()?;
        Ok(Security { tls })
    }

    /// Whether connections are under TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Makes a connection, on which nothing was said, one to the process at `host`.
    ///
    /// The other side learns of this one's certificate after the handshake: its refusal comes with the first reading
    /// ([`why_untrusted`]).
    ///
    /// # Errors
    /// When the other side is not to be trusted, or has not answered at `until`.
    pub fn call(&self, stream: TcpStream, host: &str, until: Instant) -> Result<Socket, HandshakeError> {
        match &self.tls {
            None => Ok(stream.into()),
            Some(tls) => tls.call(stream, host, until).map(Socket::secured),
        }
    }

    /// Makes a connection, of which `first` was read, one to whoever calls.
    ///
    /// # Errors
    /// When the caller is not to be trusted, or is not done at `until`.
    pub fn answer(&self, stream: TcpStream, first: &[u8], until: Instant) -> Result<Socket, HandshakeError> {
        match &self.tls {
            None => Ok(stream.into()),
            Some(tls) => tls.answer(stream, first, until).map(Socket::secured),
        }
    }

    /// Whether the other end of `socket` may call itself the process at `host`. Without TLS everybody may.
    ///
    /// # Errors
    /// With what is wrong, as the end of a sentence about the other end.
    pub fn check_name(&self, socket: &Socket, host: &str) -> Result<(), String> {
        match (&self.tls, socket.session()) {
            (Some(tls), Some(session)) => tls.check_name(session, host),
            (Some(_), None) => Err("does not use TLS".to_owned()),
            (None, _) => Ok(()),
        }
    }

    /// Whether a caller without TLS begins like one with it.
    #[must_use]
    pub fn looks_like_tls(first: &[u8]) -> bool {
        // A handshake record of any version.
        first.starts_with(&[0x16, 0x03])
    }

    /// What a process without TLS answers one that calls it with TLS, so that it need not guess: a fatal alert, "insufficient security".
    pub const NO_TLS_HERE: [u8; 7] = [0x15, 0x03, 0x03, 0x00, 0x02, 0x02, 71];
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_tls() { "Security(TLS)" } else { "Security(none)" })
    }
}

/// Why the other side broke off, if it did because of trust: what an error of reading or writing says of it.
#[must_use]
pub fn why_untrusted(error: &io::Error) -> Option<String> {
    tls::why_untrusted(error)
}
