//! Who calls: from a fresh connection to a greeting that is understood and trusted.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use millpond_socket::{HandshakeError, Security, Socket, part};

use crate::frame;
use crate::greeting::{Greeting, Hello, LinkHello, MAGIC, Reply};
use crate::hosts::host_name;

/// How long a caller may take to say who it is.
const GREETING_TIME: Duration = Duration::from_secs(5);

/// What callers are measured by.
#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    pub(crate) job: String,
    /// Index of this process.
    pub(crate) process: u32,
    pub(crate) hosts: Vec<String>,
    pub(crate) security: Security,
}

/// Who has called.
pub(crate) enum Greeted {
    Join(Hello, Socket),
    Link(LinkHello, Socket),
}

/// Who is not let in.
pub(crate) enum Stray {
    /// It may well belong to the job, but one of the two does not trust the other.
    Untrusted(String),
    /// It does not belong to the job.
    Stranger(io::Error),
}

impl From<io::Error> for Stray {
    fn from(error: io::Error) -> Self {
        Stray::Stranger(error)
    }
}

impl From<HandshakeError> for Stray {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Untrusted(reason) => Stray::Untrusted(reason),
            HandshakeError::Broken(error) => Stray::Stranger(error),
        }
    }
}

/// Hears who calls. Takes no longer than its deadline, however slowly the caller speaks.
pub(crate) fn greet(stream: TcpStream, expected: &Expectation) -> Result<Greeted, Stray> {
    let until = Instant::now() + GREETING_TIME;
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(GREETING_TIME))?;
    let mut first = [0; MAGIC.len()];
    let plain = Socket::from(stream.try_clone()?);
    Until { socket: &plain, until }.read_exact(&mut first)?;
    let is_tls = expected.security.is_tls();
    if is_tls && first == *MAGIC {
        return Err(turn_away_without_tls(&plain, until));
    }
    if !is_tls && Security::looks_like_tls(&first) {
        part(&stream, &Security::NO_TLS_HERE);
        return Err(Stray::Untrusted("it uses TLS, and this process does not".to_owned()));
    }
    let socket = expected.security.answer(stream, &first, until)?;
    socket.set_write_timeout(Some(GREETING_TIME))?;
    let mut timed = Until { socket: &socket, until };
    if is_tls {
        timed.read_exact(&mut first)?;
    }
    if first != *MAGIC {
        return Err(io::Error::other("it does not speak as a process of a job of this version").into());
    }
    let greeting = frame::read_value(&mut timed, frame::LONGEST_GREETING)?;
    judge(greeting, socket, expected)
}

fn judge(greeting: Greeting, socket: Socket, expected: &Expectation) -> Result<Greeted, Stray> {
    match greeting {
        Greeting::Join(hello) => match check_name(expected, &socket, hello.process) {
            Ok(()) => Ok(Greeted::Join(hello, socket)),
            Err(reason) => {
                let _ = refuse(&socket, &reason);
                Err(Stray::Untrusted(reason))
            }
        },
        Greeting::Link(hello) if hello.job == expected.job && hello.to == expected.process => {
            check_name(expected, &socket, hello.from).map_err(Stray::Untrusted)?;
            socket.set_read_timeout(None)?;
            socket.set_write_timeout(None)?;
            Ok(Greeted::Link(hello, socket))
        }
        Greeting::Link(hello) => {
            Err(io::Error::other(format!("it wants process {} of job {:?}", hello.to, hello.job)).into())
        }
    }
}

/// Whether the caller has the certificate of the process that it says it is. That there is such a process is checked by whoever is
/// asked to let it take part.
fn check_name(expected: &Expectation, socket: &Socket, process: u32) -> Result<(), String> {
    let Some(address) = expected.hosts.get(process as usize) else { return Ok(()) };
    let checked = expected.security.check_name(socket, host_name(address));
    checked.map_err(|reason| format!("it calls itself process {process}, and {reason}"))
}

/// Tells a process that calls without TLS why it cannot take part.
fn turn_away_without_tls(socket: &Socket, until: Instant) -> Stray {
    let greeting = frame::read_value(&mut Until { socket, until }, frame::LONGEST_GREETING);
    if let Ok(Greeting::Join(hello)) = greeting {
        let process = hello.process;
        let reason = format!(
            "process {process} does not use TLS, and this process does: both need tls-certificate, tls-key and tls-ca"
        );
        let _ = refuse(socket, &reason);
    }
    Stray::Untrusted("it does not use TLS".to_owned())
}

fn refuse(mut socket: &Socket, reason: &str) -> io::Result<()> {
    frame::write_value(&mut socket, &Reply::Refused { reason: reason.to_owned() })?;
    socket.shutdown(Shutdown::Write)
}

/// Somebody who wants to take part, or could not be trusted.
pub enum Visitor {
    /// A process that wants to take part, and waits for the answer.
    Caller(Call),
    /// Perhaps a process of the job, but one of the two does not trust the other: it was told so, as well as that is possible.
    TurnedAway {
        /// Where it called from.
        from: SocketAddr,
        /// Why, as a sentence about it.
        reason: String,
    },
}

/// A process that wants to take part, and waits for the answer.
pub struct Call {
    /// Who it is.
    pub hello: Hello,
    /// Where it calls from.
    pub from: SocketAddr,
    pub(crate) socket: Socket,
}

impl Call {
    /// Answers; the connection goes on only after a welcome.
    ///
    /// # Errors
    /// When the caller has gone.
    pub fn answer(mut self, reply: &Reply) -> io::Result<Option<Socket>> {
        frame::write_value(&mut self.socket, reply)?;
        if *reply == Reply::Welcome {
            return Ok(Some(self.socket));
        }
        self.socket.shutdown(Shutdown::Write)?;
        Ok(None)
    }
}

/// Reads a socket until a moment comes, however little is read at once.
struct Until<'a> {
    socket: &'a Socket,
    until: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(Some(left))?;
        (&mut &*self.socket).read(buffer)
    }
}
