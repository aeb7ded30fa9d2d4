//! Credit on its way between processes, and signs of life.
//!
//! One thread writes to each process and one reads, so that no worker ever waits for a socket. A process that says nothing
//! for the timeout, or closes the connection before its data has come to an end, is lost.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use millpond_core::codec;
use millpond_runtime::ReturnedCredit;
use millpond_socket::Socket;
use serde::{Deserialize, Serialize};

use super::Heartbeat;
use super::link::{Broken, LinkEnd};

/// Credits that are sent together, at most.
const CREDITS_TOGETHER: usize = 256;
/// A longer frame is none of ours.
const LONGEST_FRAME: u32 = 1 << 20;

/// Credit for one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FarCredit {
    /// Index of the exchange in the plan.
    pub(crate) edge: u32,
    /// The subtask that may send.
    pub(crate) sender: u32,
    /// The subtask that has processed.
    pub(crate) receiver: u32,
    pub(crate) credit: ReturnedCredit,
}

#[derive(Debug, Serialize, Deserialize)]
enum Note {
    Alive,
    Credits(Vec<FarCredit>),
    /// The attempt has ended well on this side.
    Bye,
}

/// The connections to all other processes.
pub(crate) struct CreditLinks {
    writers: Vec<JoinHandle<()>>,
    readers: Vec<JoinHandle<()>>,
}

/// What is done with the credit that arrives.
pub(crate) type TakeCredit = Arc<dyn Fn(FarCredit) -> Result<(), String> + Send + Sync>;

/// One connection before its threads run.
pub(crate) struct CreditLink {
    pub(crate) process: u32,
    pub(crate) socket: Socket,
    /// The data connection to the same process.
    pub(crate) data: Arc<LinkEnd>,
    pub(crate) broken: Broken,
}

impl CreditLinks {
    pub(crate) fn new() -> Self {
        CreditLinks { writers: Vec::new(), readers: Vec::new() }
    }

    /// Starts the threads of one connection. What is sent to the returned end goes to the other process; when it is
    /// dropped, the connection comes to its end.
    pub(crate) fn start(
        &mut self,
        link: CreditLink,
        heartbeat: Heartbeat,
        take: TakeCredit,
    ) -> io::Result<Sender<FarCredit>> {
        let CreditLink { process, socket, data, broken } = link;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(heartbeat.timeout))?;
        socket.set_write_timeout(Some(heartbeat.timeout))?;
        let (sender, credits) = channel();
        let writing = socket.try_clone()?;
        let (tell, ended) = (Arc::clone(&broken), Arc::clone(&data));
        let name = |what: &str| std::thread::Builder::new().name(format!("{what}-{process}"));
        self.writers.push(name("credits-to").spawn(move || {
            if let Err(error) = write(&writing, &credits, heartbeat)
                && !ended.has_ended()
            {
                tell(format!("cannot write to it: {error}"));
            }
        })?);
        self.readers.push(name("credits-from").spawn(move || {
            if let Err(reason) = read(&socket, &take)
                && !data.has_ended()
            {
                broken(reason);
            }
        })?);
        Ok(sender)
    }

    /// Waits for the writers, whose ends must have been dropped; for the readers as well when the sockets are closed.
    pub(crate) fn join(self, closed: bool) {
        let readers = self.readers.into_iter().filter(|_| closed);
        for thread in self.writers.into_iter().chain(readers) {
            let _ = thread.join();
        }
    }
}

fn write(mut socket: &Socket, credits: &Receiver<FarCredit>, heartbeat: Heartbeat) -> io::Result<()> {
    loop {
        let note = match credits.recv_timeout(heartbeat.interval) {
            Ok(first) => {
                let more = credits.try_iter().take(CREDITS_TOGETHER - 1);
                Note::Credits(std::iter::once(first).chain(more).collect())
            }
            Err(RecvTimeoutError::Timeout) => Note::Alive,
            Err(RecvTimeoutError::Disconnected) => Note::Bye,
        };
        let content = codec::encode(&note).map_err(io::Error::other)?;
        let mut frame = (content.len() as u32).to_le_bytes().to_vec();
        frame.extend_from_slice(&content);
        socket.write_all(&frame)?;
        if matches!(note, Note::Bye) {
            return socket.shutdown(Shutdown::Write);
        }
    }
}

/// Ends well only with the other side's farewell.
fn read(mut socket: &Socket, take: &TakeCredit) -> Result<(), String> {
    let mut content = Vec::new();
    loop {
        let mut length = [0; 4];
        socket.read_exact(&mut length).map_err(|error| lost(&error))?;
        let length = u32::from_le_bytes(length);
        if length > LONGEST_FRAME {
            return Err(format!("it sent a frame of {length} bytes where credit was expected"));
        }
        content.resize(length as usize, 0);
        socket.read_exact(&mut content).map_err(|error| lost(&error))?;
        match codec::decode(&content) {
            Ok(Note::Alive) => {}
            Ok(Note::Credits(credits)) => credits.into_iter().try_for_each(|credit| take(credit))?,
            Ok(Note::Bye) => return Ok(()),
            Err(error) => return Err(format!("it sent something else where credit was expected: {error}")),
        }
    }
}

fn lost(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no sign of life".to_owned(),
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        _ => format!("cannot read from it: {error}"),
    }
}
