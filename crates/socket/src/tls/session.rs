//! An established TLS connection that one thread reads while another writes.
//!
//! The keys are in one place, behind a lock that is held for computing alone. Who reads waits for the socket without that
//! lock; who writes encrypts under it, and waits for the socket under another, which keeps records in order. So neither ever
//! waits for the other's socket. Reading writes nothing: what the protocol wants to answer (a change of keys) goes out before the
//! next record that is written, as the protocol allows.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::Connection;
use rustls::pki_types::CertificateDer;

/// So many bytes are encrypted at once: four full records.
const CHUNK: usize = 4 << 14;
/// So many encrypted bytes are read at once.
const READ_AT_ONCE: usize = 32 << 10;

/// An established TLS connection.
pub(crate) struct Session {
    tcp: TcpStream,
    /// Whom the other side is, as it has proved.
    peer: CertificateDer<'static>,
    connection: Mutex<Connection>,
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Outgoing>,
}

/// Owned by the thread that reads.
struct Incoming {
    sealed: Box<[u8]>,
    plain: Plain,
    ended: bool,
}

/// Bytes that were decrypted, and not read yet.
#[derive(Default)]
pub(super) struct Plain {
    bytes: Vec<u8>,
    taken: usize,
}

/// Owned by the thread that writes.
struct Outgoing {
    sealed: Vec<u8>,
    phase: Phase,
}

enum Phase {
    Open,
    /// A record was written in part: nothing that follows would be understood.
    Broken(io::ErrorKind),
    /// The farewell was said.
    Ended,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Whoever panicked with it has left a connection that fails to decrypt, at worst.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    /// After the handshake; `plain` is what came with it.
    pub(super) fn new(
        tcp: TcpStream,
        mut connection: Connection,
        peer: CertificateDer<'static>,
        plain: Plain,
        ended: bool,
    ) -> Session {
        // Chunks bound what is encrypted and not written.
        connection.set_buffer_limit(None);
        Session {
            tcp,
            peer,
            connection: Mutex::new(connection),
            incoming: Mutex::new(Incoming { sealed: vec![0; READ_AT_ONCE].into_boxed_slice(), plain, ended }),
            outgoing: Mutex::new(Outgoing { sealed: Vec::new(), phase: Phase::Open }),
        }
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    pub(super) fn peer(&self) -> &CertificateDer<'static> {
        &self.peer
    }

    /// Reads what was decrypted; waits for the socket as its timeout says. A stream that ends without a farewell is an error.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let incoming = &mut *lock(&self.incoming);
        loop {
            let taken = incoming.plain.take(buffer);
            if taken > 0 || incoming.ended {
                return Ok(taken);
            }
            let bytes = (&self.tcp).read(&mut incoming.sealed)?;
            if bytes == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was cut"));
            }
            let fed = feed(&mut lock(&self.connection), &incoming.sealed[..bytes], &mut incoming.plain);
            incoming.ended = fed.inspect_err(|_| {
                // Nothing after it can be trusted.
                let _ = self.tcp.shutdown(std::net::Shutdown::Both);
            })?;
        }
    }

    /// Encrypts and writes some of `bytes`; waits for the socket as its timeout says.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let mut outgoing = lock(&self.outgoing);
        match outgoing.phase {
            Phase::Open => {}
            Phase::Broken(kind) => return Err(kind.into()),
            Phase::Ended => return Err(io::ErrorKind::BrokenPipe.into()),
        }
        let sealed = {
            let mut connection = lock(&self.connection);
            let written = connection.writer().write(&bytes[..bytes.len().min(CHUNK)])?;
            seal(&mut connection, &mut outgoing.sealed)?;
            written
        };
        outgoing.send(&self.tcp)?;
        Ok(sealed)
    }

    /// Tells the other side that nothing follows, as far as that is possible.
    pub(crate) fn say_farewell(&self) {
        let mut outgoing = lock(&self.outgoing);
        if !matches!(outgoing.phase, Phase::Open) {
            return;
        }
        let sealed = {
            let mut connection = lock(&self.connection);
            connection.send_close_notify();
            seal(&mut connection, &mut outgoing.sealed)
        };
        if sealed.is_ok() && outgoing.send(&self.tcp).is_ok() {
            outgoing.phase = Phase::Ended;
        }
    }

    /// New keys from now on.
    #[cfg(test)]
    pub(super) fn refresh_keys(&self) {
        lock(&self.connection).refresh_traffic_keys().unwrap();
    }
}

impl Outgoing {
    fn send(&mut self, mut tcp: &TcpStream) -> io::Result<()> {
        let sent = tcp.write_all(&self.sealed);
        self.sealed.clear();
        sent.inspect_err(|error| self.phase = Phase::Broken(error.kind()))
    }
}

impl Plain {
    fn take(&mut self, buffer: &mut [u8]) -> usize {
        let bytes = buffer.len().min(self.bytes.len() - self.taken);
        buffer[..bytes].copy_from_slice(&self.bytes[self.taken..self.taken + bytes]);
        self.taken += bytes;
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        }
        bytes
    }

    fn add_from(&mut self, connection: &mut Connection, bytes: usize) -> io::Result<()> {
        let known = self.bytes.len();
        self.bytes.resize(known + bytes, 0);
        connection.reader().read_exact(&mut self.bytes[known..])
    }
}

/// Gives what was read to the connection, and takes out what it decrypts. Returns whether the other side has said farewell.
pub(super) fn feed(connection: &mut Connection, mut sealed: &[u8], plain: &mut Plain) -> io::Result<bool> {
    let mut ended = false;
    while !sealed.is_empty() && !ended {
        connection.read_tls(&mut sealed)?;
        let state =
            connection.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        plain.add_from(connection, state.plaintext_bytes_to_read())?;
        ended = state.peer_has_closed();
    }
    Ok(ended)
}

/// Takes out what the connection wants to send.
pub(super) fn seal(connection: &mut Connection, sealed: &mut Vec<u8>) -> io::Result<()> {
    while connection.wants_write() {
        connection.write_tls(sealed)?;
    }
    Ok(())
}
