//! The listening socket of a process, and who comes.
//!
//! Every connection gets a thread and a deadline for its greeting, so that a stray hinders nobody. Links of meshes wait until
//! the attempt that they belong to collects them; those of older attempts are dropped.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use millpond_socket::{Security, Socket};

use crate::error::ClusterError;
use crate::greeting::{LinkHello, LinkKind};
use crate::reception::{Call, Expectation, Greeted, Stray, Visitor, greet};
use crate::settings::ClusterSettings;

/// Callers that have not said who they are, at most.
const UNKNOWN_CALLERS: usize = 256;
/// Links that wait for their attempt, at most.
const WAITING_LINKS: usize = 4_096;
/// An address that is still in use right after another process has ended is tried again for so long.
const LISTEN_PATIENCE: Duration = Duration::from_secs(2);

/// What is done with whoever comes. Called on a thread of its own for each.
pub type Receive = Arc<dyn Fn(Visitor) + Send + Sync>;

/// Listens until dropped.
pub struct Door {
    arrivals: Arc<Arrivals>,
    address: SocketAddr,
    security: Security,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Links that have come, and wait for their attempt.
#[derive(Default)]
pub(crate) struct Arrivals {
    links: Mutex<Vec<(LinkHello, Socket)>>,
    came: Condvar,
}

impl Arrivals {
    fn lock(&self) -> MutexGuard<'_, Vec<(LinkHello, Socket)>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, hello: LinkHello, socket: Socket) {
        let mut links = self.lock();
        if links.len() < WAITING_LINKS {
            links.push((hello, socket));
        }
        self.came.notify_all();
    }

    /// Takes one link out, if it is there; links of older attempts are dropped.
    pub(crate) fn take(&self, attempt: u64, token: u64, from: u32, kind: LinkKind) -> Option<Socket> {
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
    expected: Arc<Expectation>,
    receive: Receive,
    arrivals: Arc<Arrivals>,
    unknown: Arc<AtomicUsize>,
    /// Who was turned away last: said once, since it will come again.
    turned_away: Arc<Mutex<Option<(IpAddr, String)>>>,
}

impl Door {
    /// Listens as the process of these settings, for `job`.
    ///
    /// # Errors
    /// [`ClusterError::Listen`] when that address cannot be had.
    pub fn open(
        settings: &ClusterSettings,
        security: &Security,
        job: &str,
        receive: Receive,
    ) -> Result<Door, ClusterError> {
        let (process, address) = (settings.process, settings.own_address());
        let refused = |source| ClusterError::Listen { process, address: address.to_owned(), source };
        let listener = listen(address).map_err(refused)?;
        let bound = listener.local_addr().map_err(refused)?;
        let (arrivals, closing): (Arc<Arrivals>, _) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (job, hosts, security) = (job.to_owned(), settings.hosts.clone(), security.clone());
        let expected = Expectation { job, process, hosts, security: security.clone() };
        let host = Host {
            expected: Arc::new(expected),
            receive,
            arrivals: Arc::clone(&arrivals),
            unknown: Arc::default(),
            turned_away: Arc::default(),
        };
        let closed = Arc::clone(&closing);
        let accept = move || accept(&listener, &host, &closed);
        let thread = std::thread::Builder::new().name("door".to_owned()).spawn(accept)?;
        Ok(Door { arrivals, address: bound, security, closing, thread: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How the connections of this process are secured.
    pub(crate) fn security(&self) -> &Security {
        &self.security
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

impl Host {
    /// Passes on whoever has come; links go to where they wait.
    fn receive(&self, greeted: Result<Greeted, Stray>, from: SocketAddr) {
        match greeted {
            Ok(Greeted::Join(hello, socket)) => (self.receive)(Visitor::Caller(Call { hello, from, socket })),
            Ok(Greeted::Link(hello, socket)) => self.arrivals.add(hello, socket),
            Err(Stray::Stranger(error)) => tracing::debug!(%from, %error, "a stray connection is dropped"),
            Err(Stray::Untrusted(reason)) => {
                let now = Some((from.ip(), reason.clone()));
                let mut last = self.turned_away.lock().unwrap_or_else(PoisonError::into_inner);
                if *last == now {
                    tracing::debug!(%from, reason, "a caller is turned away");
                } else {
                    tracing::warn!(%from, reason, "a caller is turned away");
                }
                *last = now;
                drop(last);
                (self.receive)(Visitor::TurnedAway { from, reason });
            }
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
                    let greeted = greet(stream, &own.expected);
                    own.unknown.fetch_sub(1, Ordering::AcqRel);
                    own.receive(greeted, from);
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
