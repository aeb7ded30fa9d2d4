//! A stream between two processes.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::tls::Session;

/// A stream between two processes, which one thread may read while another writes. What is said of [`TcpStream`]'s methods holds
/// for these. With TLS, a write that runs into its timeout breaks the stream for writing: half a record cannot be taken back.
pub struct Socket {
    stream: Stream,
}

enum Stream {
    Plain(TcpStream),
    Secure(Arc<Session>),
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Self {
        Socket { stream: Stream::Plain(stream) }
    }
}

impl Socket {
    pub(crate) fn secured(session: Session) -> Socket {
        Socket { stream: Stream::Secure(Arc::new(session)) }
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        match &self.stream {
            Stream::Plain(_) => None,
            Stream::Secure(session) => Some(session),
        }
    }

    fn tcp(&self) -> &TcpStream {
        match &self.stream {
            Stream::Plain(stream) => stream,
            Stream::Secure(session) => session.tcp(),
        }
    }

    /// The same stream for another thread.
    ///
    /// # Errors
    /// When the system has no handle left.
    pub fn try_clone(&self) -> io::Result<Socket> {
        let stream = match &self.stream {
            Stream::Plain(stream) => Stream::Plain(stream.try_clone()?),
            Stream::Secure(session) => Stream::Secure(Arc::clone(session)),
        };
        Ok(Socket { stream })
    }

    /// Whether small writes are sent at once.
    ///
    /// # Errors
    /// What the system said.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.tcp().set_nodelay(nodelay)
    }

    /// Whether reading and writing return when they would have to wait. With TLS, only `false` is of use for writing.
    ///
    /// # Errors
    /// What the system said.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.tcp().set_nonblocking(nonblocking)
    }

    /// How long reading waits for bytes.
    ///
    /// # Errors
    /// What the system said.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.tcp().set_read_timeout(timeout)
    }

    /// How long writing waits for room.
    ///
    /// # Errors
    /// What the system said.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.tcp().set_write_timeout(timeout)
    }

    /// Ends the stream: for writing with a farewell, which the other side reads as the end; in both directions at once, whatever
    /// other threads do, and then the other side may read it as a cut.
    ///
    /// # Errors
    /// What the system said.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if let (Stream::Secure(session), Shutdown::Write) = (&self.stream, how) {
            session.say_farewell();
        }
        self.tcp().shutdown(how)
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.stream {
            Stream::Plain(stream) => (&mut &*stream).read(buffer),
            Stream::Secure(session) => session.read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.stream {
            Stream::Plain(stream) => (&mut &*stream).write(bytes),
            Stream::Secure(session) => session.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        // Nothing is held back.
        Ok(())
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&mut &*self).read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&mut &*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.session().is_some() { "TLS" } else { "plain" };
        write!(f, "Socket({kind}, {:?})", self.tcp())
    }
}
