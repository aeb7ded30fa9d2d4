//! The data connection to one process, as timely reads and writes it.
//!
//! Timely's threads panic when a socket fails. So none does, as they see it: what is written to a broken connection is
//! dropped, and a broken stream that is read comes to its proper end, once no worker reads any more.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond_socket::Socket;
use timely::communication::allocator::zero_copy::stream::Stream;

use super::Links;
use super::framing::Framing;

/// What is called once with the reason when a connection breaks.
pub(crate) type Broken = Arc<dyn Fn(String) + Send + Sync>;

/// One of the two ends that timely's threads hold of a connection.
pub(crate) struct Link {
    socket: Socket,
    framing: Framing,
    end: Arc<LinkEnd>,
}

/// What the clones of a link share.
pub(crate) struct LinkEnd {
    links: Arc<Links>,
    broken: AtomicBool,
    ended: AtomicBool,
    tell: Broken,
}

impl LinkEnd {
    /// Whether the other side has said that nothing follows.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn break_with(&self, reason: impl FnOnce() -> String) {
        if !self.broken.swap(true, Ordering::AcqRel) {
            (self.tell)(reason());
        }
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }
}

impl Link {
    pub(crate) fn new(socket: Socket, links: Arc<Links>, tell: Broken) -> Link {
        let end = LinkEnd { links, broken: AtomicBool::new(false), ended: AtomicBool::new(false), tell };
        Link { socket, framing: Framing::new(), end: Arc::new(end) }
    }

    pub(crate) fn end(&self) -> Arc<LinkEnd> {
        Arc::clone(&self.end)
    }

    /// Bytes that bring a broken stream to its end.
    fn make_up(&mut self, buffer: &mut [u8]) -> usize {
        // What is made up must not reach a worker: nobody may be there any more.
        self.end.links.wait_for_workers();
        if self.framing.has_ended() {
            return 0;
        }
        let bytes = self.framing.missing().min(buffer.len());
        buffer[..bytes].fill(0);
        self.framing.follow(&buffer[..bytes]);
        bytes
    }
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.end.is_broken() {
                return Ok(self.make_up(buffer));
            }
            match self.socket.read(buffer) {
                Ok(0) if self.framing.has_ended() || buffer.is_empty() => return Ok(0),
                Ok(0) => self.end.break_with(|| "it closed the connection".to_owned()),
                Ok(bytes) => {
                    self.framing.follow(&buffer[..bytes]);
                    if self.framing.has_ended() {
                        self.end.ended.store(true, Ordering::Release);
                    }
                    return Ok(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // After the end of the stream, no other end is needed.
                Err(_) if self.framing.has_ended() => return Ok(0),
                Err(error) => self.end.break_with(|| format!("cannot read from the connection: {error}")),
            }
        }
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.end.is_broken() {
            match self.socket.write(bytes) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    self.end.break_with(|| format!("cannot write to the connection: {error}"));
                }
                result => return result,
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream for Link {
    fn try_clone(&self) -> io::Result<Self> {
        Ok(Link { socket: self.socket.try_clone()?, framing: Framing::new(), end: Arc::clone(&self.end) })
    }

    fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(nonblocking)
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        // The other side may have gone.
        let _ = self.socket.shutdown(how);
        Ok(())
    }
}
