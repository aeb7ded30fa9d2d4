//! A connection for messages, with signs of life in both directions.
//!
//! One thread writes, so that nobody waits for a socket, and gives a sign of life when there is nothing to say; one reads, and
//! takes silence for loss. Messages arrive in the order in which they were sent, or not at all.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use millpond_core::codec;
use millpond_socket::{HandshakeError, Security, Socket, why_untrusted};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::frame;
use crate::greeting::{Greeting, Hello, MAGIC, Reply};
use crate::hosts::host_name;
use crate::settings::ClusterSettings;

/// What comes over a wire.
#[derive(Debug)]
pub enum Heard<M> {
    /// A message.
    Message(M),
    /// The last thing that is heard: nothing comes any more.
    Lost(String),
}

/// The sending end of a connection; the receiving end is a thread that calls back. Dropped, it says what is left to say, and
/// closes.
#[derive(Debug)]
pub struct Wire {
    outgoing: Option<Sender<Vec<u8>>>,
    socket: Socket,
    writer: Option<std::thread::JoinHandle<()>>,
}

impl Wire {
    /// Starts the threads of a connection. `hear` is called on one of them, at last with [`Heard::Lost`].
    ///
    /// # Errors
    /// When the socket cannot be set up or threads cannot be started.
    pub fn start<M: DeserializeOwned>(
        socket: Socket,
        settings: &ClusterSettings,
        mut hear: impl FnMut(Heard<M>) + Send + 'static,
    ) -> io::Result<Wire> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(settings.lost_after()))?;
        socket.set_write_timeout(Some(settings.lost_after()))?;
        let (outgoing, messages) = channel();
        let (writing, mut reading) = (socket.try_clone()?, socket.try_clone()?);
        let pause = settings.heartbeat();
        let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
        let writer = thread("wire-out").spawn(move || write(&writing, &messages, pause))?;
        thread("wire-in").spawn(move || {
            let reason = loop {
                match frame::read(&mut reading, frame::LONGEST) {
                    Ok(content) if content.is_empty() => {}
                    Ok(content) => match codec::decode(&content) {
                        Ok(message) => hear(Heard::Message(message)),
                        Err(error) => break format!("it says what cannot be understood: {error}"),
                    },
                    Err(error) => break lost(&error),
                }
            };
            let _ = reading.shutdown(Shutdown::Both);
            hear(Heard::Lost(reason));
        })?;
        Ok(Wire { outgoing: Some(outgoing), socket, writer: Some(writer) })
    }

    /// Sends a message. One that cannot be sent is followed by [`Heard::Lost`].
    pub fn send(&self, message: &impl Serialize) {
        match (codec::encode(message), &self.outgoing) {
            (Ok(content), Some(outgoing)) => drop(outgoing.send(content)),
            (Err(error), _) => {
                tracing::error!(%error, "a message for another process cannot be encoded");
                self.close();
            }
            (_, None) => {}
        }
    }

    /// Closes the connection at once.
    pub fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.outgoing = None;
        if let Some(writer) = self.writer.take() {
            // Its writes have a deadline.
            let _ = writer.join();
        }
    }
}

fn write(mut socket: &Socket, messages: &Receiver<Vec<u8>>, pause: Duration) {
    loop {
        let written = match messages.recv_timeout(pause) {
            Ok(content) => frame::write(&mut socket, &content),
            Err(RecvTimeoutError::Timeout) => frame::write(&mut socket, &[]),
            Err(RecvTimeoutError::Disconnected) => {
                let _ = socket.shutdown(Shutdown::Write);
                return;
            }
        };
        if written.is_err() {
            // The reading side notices, and says so.
            let _ = socket.shutdown(Shutdown::Both);
            return;
        }
    }
}

fn lost(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no sign of life".to_owned(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => "it closed the connection".to_owned(),
        _ => error.to_string(),
    }
}

/// How a call did not come to an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It cannot be reached, or does not answer: it may be there in a moment.
    #[error("{0}")]
    Unreachable(String),
    /// The two do not trust each other. The sentence is about the other.
    #[error("{0}")]
    Untrusted(String),
}

impl From<HandshakeError> for CallError {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Untrusted(reason) => CallError::Untrusted(reason),
            HandshakeError::Broken(error) => error.into(),
        }
    }
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        if let Some(reason) = why_untrusted(&error) {
            return CallError::Untrusted(reason);
        }
        CallError::Unreachable(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "it does not answer".to_owned(),
            io::ErrorKind::UnexpectedEof => "it closes the connection without an answer".to_owned(),
            _ => error.to_string(),
        })
    }
}

/// Calls the process at `address` and says `hello`; returns the connection and its answer.
///
/// # Errors
/// When it cannot be reached, is not to be trusted, or does not answer within `time`.
pub fn call(security: &Security, address: &str, hello: Hello, time: Duration) -> Result<(Socket, Reply), CallError> {
    let mut socket = connect(security, address, time)?;
    let said = greet(&mut socket, &Greeting::Join(hello));
    socket.set_read_timeout(Some(time))?;
    // Whoever does not listen may still have said why.
    match (frame::read_value(&mut socket, frame::LONGEST_GREETING), said) {
        (Ok(reply), _) => Ok((socket, reply)),
        (Err(error), said) => match (CallError::from(error), said) {
            (CallError::Unreachable(_), Err(unsaid)) => Err(unsaid.into()),
            (error, _) => Err(error),
        },
    }
}

/// Says who calls.
pub(crate) fn greet(socket: &mut Socket, greeting: &Greeting) -> io::Result<()> {
    socket.write_all(MAGIC)?;
    frame::write_value(socket, greeting)
}

/// Connects to the first address of `address` that answers, within `time`.
pub(crate) fn connect(security: &Security, address: &str, time: Duration) -> Result<Socket, HandshakeError> {
    let until = Instant::now() + time;
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for one in address.to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let secured = TcpStream::connect_timeout(&one, left).map_err(HandshakeError::from).and_then(|stream| {
            stream.set_nodelay(true)?;
            let socket = security.call(stream, host_name(address), until)?;
            socket.set_write_timeout(Some(time))?;
            Ok(socket)
        });
        match secured {
            Err(HandshakeError::Broken(error)) => failure = error,
            decided => return decided,
        }
    }
    Err(failure.into())
}
