//! The job's side of the control socket.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use millpond_core::{ErrorKind, error::chain};
use millpond_jobmanager::{Answer, Components, Done, StopRequest};

use super::{DIRECTORY, MAX_LINE_BYTES, OperatorStatus, Outcome, Reply, Request, SOCKET, Status, Written};
use crate::extensions::Extensions;
use crate::place;
use crate::storage::Opening;

/// Connections served at once.
const MAX_CONNECTIONS: usize = 16;
/// How long a connection may take to say what it wants, and to take in the answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves the socket until dropped; then every request that was taken in is answered.
pub(crate) struct ControlServer {
    path: PathBuf,
    /// Keeps the name valid by which the socket was bound.
    _directory: File,
    bound: PathBuf,
    ended: Arc<AtomicBool>,
    connections: Connections,
    thread: Option<JoinHandle<()>>,
}

type Connections = Arc<Mutex<Vec<(UnixStream, JoinHandle<()>)>>>;

/// What requests are carried out with.
#[derive(Clone)]
struct Served {
    components: Components,
    extensions: Extensions,
    timeout_ms: u64,
}

impl Served {
    fn new(components: &Components, opening: Opening<'_>) -> Served {
        let (components, extensions) = (components.clone(), opening.extensions.clone());
        Served { components, extensions, timeout_ms: opening.timeout_ms }
    }
}

impl ControlServer {
    /// Listens in `state_directory`, which this process has locked.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn start(
        state_directory: &Path,
        components: &Components,
        opening: Opening<'_>,
    ) -> io::Result<ControlServer> {
        let directory = state_directory.join(DIRECTORY);
        make_private(&directory)?;
        let path = directory.join(SOCKET);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let opened = File::open(&directory)?;
        let bound = short_name(&opened);
        let listener = UnixListener::bind(&bound)?;
        let ended = Arc::new(AtomicBool::new(false));
        let connections = Connections::default();
        let (own_ended, own_connections, served) =
            (Arc::clone(&ended), Arc::clone(&connections), Served::new(components, opening));
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || listen(&listener, &own_ended, &own_connections, &served))?;
        Ok(ControlServer { path, _directory: opened, bound, ended, connections, thread: Some(thread) })
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Wakes the listener; that it fails means that it is awake.
        let _ = UnixStream::connect(&self.bound);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let connections = std::mem::take(&mut *self.connections.lock().unwrap_or_else(PoisonError::into_inner));
        for (stream, thread) in connections {
            // Who has not yet said what it wants will not be heard.
            let _ = stream.shutdown(Shutdown::Read);
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

/// Makes a directory that only its owner may enter.
fn make_private(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::set_permissions(directory, Permissions::from_mode(0o700))
        }
        other => other,
    }
}

/// A name for the socket in an open directory that is short enough for an address, however long the
/// directory's own name is.
pub(super) fn short_name(directory: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))
}

fn listen(listener: &UnixListener, ended: &AtomicBool, connections: &Connections, served: &Served) {
    for stream in listener.incoming() {
        if ended.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        let mut connections = connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|(_, thread)| !thread.is_finished());
        if connections.len() >= MAX_CONNECTIONS {
            let busy = refusal("too many requests at once".to_owned(), ErrorKind::Unavailable);
            let _ = send(&stream, &busy);
            continue;
        }
        let served = served.clone();
        let serve = {
            let Ok(stream) = stream.try_clone() else { continue };
            move || serve(&stream, &served)
        };
        if let Ok(thread) = std::thread::Builder::new().name("control".to_owned()).spawn(serve) {
            connections.push((stream, thread));
        }
    }
}

fn serve(stream: &UnixStream, served: &Served) {
    let patience = stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
    let reply = match patience.and_then(|()| read_line(stream)) {
        Err(_) => return,
        Ok(line) => match serde_json::from_str(&line) {
            Ok(request) => carry_out(request, served),
            Err(error) => refusal(format!("this is no request: {error}"), ErrorKind::Invalid),
        },
    };
    if let Err(error) = send(stream, &reply) {
        tracing::debug!(%error, "cannot answer on the control socket");
    }
    let _ = stream.shutdown(Shutdown::Both);
}

fn read_line(stream: &UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(stream.take(MAX_LINE_BYTES)).read_line(&mut line)?;
    Ok(line)
}

fn send(mut stream: &UnixStream, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_string(reply)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

fn carry_out(request: Request, served: &Served) -> Reply {
    let components = &served.components;
    let opening = Opening { extensions: &served.extensions, timeout_ms: served.timeout_ms };
    tracing::info!(?request, "asked on the control socket");
    match request {
        Request::Status {} => {
            let now = components.status.snapshot();
            let status = Status {
                attempt: now.attempt,
                restarts: now.restarts,
                records: now.records,
                state_entries: now.state_entries,
                state_bytes: now.state_bytes,
                operators: components.times.snapshot().iter().map(OperatorStatus::of).collect(),
            };
            Reply::Ok(Outcome { epoch: now.epoch, status: Some(status), ..Outcome::default() })
        }
        Request::Rescale { workers } => reply(components.control.rescale(workers), None),
        Request::Checkpoint {} => reply(components.control.checkpoint(), None),
        Request::Savepoint { to } => match place::create(Path::new(&to), opening) {
            Ok(target) => reply(components.control.savepoint(target), Some(to)),
            Err(error) => refusal(chain(&error), error.kind()),
        },
        Request::Stop { drain, savepoint } => {
            let target = savepoint.as_deref().map(|to| place::create(Path::new(to), opening)).transpose();
            match target {
                Ok(target) => reply(components.control.stop(StopRequest { drain, savepoint: target }), savepoint),
                Err(error) => refusal(chain(&error), error.kind()),
            }
        }
    }
}

fn reply(answer: Answer, path: Option<String>) -> Reply {
    match answer {
        Ok(Done { epoch, savepoint, still_ms }) => {
            let written = path.zip(savepoint).map(|(path, report)| Written::new(path, &report));
            Reply::Ok(Outcome { epoch: epoch.0, savepoint: written, still_ms, status: None })
        }
        Err(error) => refusal(chain(&error), error.kind()),
    }
}

fn refusal(message: String, kind: ErrorKind) -> Reply {
    Reply::Error { message, kind: kind.to_string() }
}
