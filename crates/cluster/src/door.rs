//! The listening socket of a process, and who comes.
//!
//! Every connection gets a thread and a deadline for its greeting, so that a stray hinders nobody. Links of meshes wait until
//! the attempt that they belong to collects them; those of older attempts are dropped.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::ClusterError;
use crate::frame;
use crate::greeting::{Greeting, Hello, LinkHello, LinkKind, MAGIC, Reply};

/// How long a caller may take to say who it is.
const GREETING_TIME: Duration = Duration::from_secs(5);
/// Callers that have not said who they are, at most.
const UNKNOWN_CALLERS: usize = 256;
/// Links that wait for their attempt, at most.
const WAITING_LINKS: usize = 4_096;
/// An address that is still in use right after another process has ended is tried again for so long.
const LISTEN_PATIENCE: Duration = Duration::from_secs(2);

/// A process that wants to take part, and waits for the answer.
pub struct Call {
    /// Who it is.
    pub hello: Hello,
    /// Where it calls from.
    pub from: SocketAddr,
    stream: TcpStream,
}

impl Call {
    /// Answers; the connection goes on only after a welcome.
    ///
    /// # Errors
    /// When the caller has gone.
    pub fn answer(mut self, reply: &Reply) -> io::Result<Option<TcpStream>> {
        frame::write_value(&mut self.stream, reply)?;
        if *reply == Reply::Welcome {
            return Ok(Some(self.stream));
        }
        self.stream.shutdown(Shutdown::Write)?;
        Ok(None)
    }
}

/// What is done with a process that wants to take part. Called on a thread of its own for each.
pub type Answer = Arc<dyn Fn(Call) + Send + Sync>;

/// Listens until dropped.
pub struct Door {
    arrivals: Arc<Arrivals>,
    address: SocketAddr,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Links that have come, and wait for their attempt.
#[derive(Default)]
pub(crate) struct Arrivals {
    links: Mutex<Vec<(LinkHello, TcpStream)>>,
    came: Condvar,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Vec<(LinkHello, TcpStream)>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, hello: LinkHello, stream: TcpStream) {
        let mut links = self.lock();
        if links.len() < WAITING_LINKS {
            links.push((hello, stream));
        }
        self.came.notify_all();
    }

    /// Takes one link out, if it is there; links of older attempts are dropped.
    pub(crate) fn take(&self, attempt: u64, token: u64, from: u32, kind: LinkKind) -> Option<TcpStream> {
        let mut links = self.lock();
        links.retain(|(hello, _)| hello.attempt >= attempt);
        let wanted =
            |hello: &LinkHello| (hello.attempt, hello.token, hello.from, hello.kind) == (attempt, token, from, kind);
        let position = links.iter().position(|(hello, _)| wanted(hello))?;
        Some(links.swap_remove(position).1)
    }

    /// Waits until something comes, or for `time`.
    pub(crate) fn wait(&self, time: Duration) {
        drop(self.came.wait_timeout(self.lock(), time).unwrap_or_else(PoisonError::into_inner));
    }
}

/// Who is at this address.
#[derive(Clone)]
struct Host {
    job: String,
    process: u32,
    answer: Answer,
    arrivals: Arc<Arrivals>,
    unknown: Arc<AtomicUsize>,
}

impl Door {
    /// Listens at `address` as process `process` of `job`.
    ///
    /// # Errors
    /// [`ClusterError::Listen`] when that address cannot be had.
    pub fn open(address: &str, job: &str, process: u32, answer: Answer) -> Result<Door, ClusterError> {
        let refused = |source| ClusterError::Listen { process, address: address.to_owned(), source };
        let listener = listen(address).map_err(refused)?;
        let bound = listener.local_addr().map_err(refused)?;
        let (arrivals, closing): (Arc<Arrivals>, _) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let host = Host {
            job: job.to_owned(),
            process,
            answer,
            arrivals: Arc::clone(&arrivals),
            unknown: Arc::new(AtomicUsize::new(0)),
        };
        let closed = Arc::clone(&closing);
        let accept = move || accept(&listener, &host, &closed);
        let thread = std::thread::Builder::new().name("door".to_owned()).spawn(accept)?;
        Ok(Door { arrivals, address: bound, closing, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Release);
        // Wakes the thread that accepts; without it, it ends with the process.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(match own {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let woken = TcpStream::connect_timeout(&own, Duration::from_secs(1)).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

fn listen(address: &str) -> io::Result<TcpListener> {
    let until = Instant::now() + LISTEN_PATIENCE;
    loop {
        let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
        match TcpListener::bind(addresses.as_slice()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

fn accept(listener: &TcpListener, host: &Host, closing: &AtomicBool) {
    loop {
        let accepted = listener.accept();
        if closing.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            Ok((stream, from)) if host.unknown.fetch_add(1, Ordering::AcqRel) < UNKNOWN_CALLERS => {
                let own = host.clone();
                let greet = move || {
                    let greeted = greet(stream, from, &own);
                    own.unknown.fetch_sub(1, Ordering::AcqRel);
                    match greeted {
                        Ok(Some(call)) => (own.answer)(call),
                        Ok(None) => {}
                        Err(error) => tracing::debug!(%from, %error, "a stray connection is dropped"),
                    }
                };
                if std::thread::Builder::new().name("greeting".to_owned()).spawn(greet).is_err() {
                    host.unknown.fetch_sub(1, Ordering::AcqRel);
                }
            }
            Ok(_) => {
                host.unknown.fetch_sub(1, Ordering::AcqRel);
            }
            // Such as too many open files: others may be closed meanwhile.
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Hears who calls. Links go to where they wait.
fn greet(mut stream: TcpStream, from: SocketAddr, host: &Host) -> io::Result<Option<Call>> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GREETING_TIME))?;
    stream.set_write_timeout(Some(GREETING_TIME))?;
    let mut magic = [0; MAGIC.len()];
    stream.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err(io::Error::other("it does not speak as a process of a job of this version"));
    }
    match frame::read_value(&mut stream, frame::LONGEST_GREETING)? {
        Greeting::Join(hello) => Ok(Some(Call { hello, from, stream })),
        Greeting::Link(hello) if hello.job == host.job && hello.to == host.process => {
            stream.set_read_timeout(None)?;
            stream.set_write_timeout(None)?;
            host.arrivals.add(hello, stream);
            Ok(None)
        }
        Greeting::Link(hello) => Err(io::Error::other(format!("it wants process {} of job {:?}", hello.to, hello.job))),
    }
}
