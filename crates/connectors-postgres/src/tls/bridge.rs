//! Replication under TLS: the client of replication speaks to a Unix socket of this process, behind which is the connection to the
//! server. So both clients agree on what a certificate proves, and errors of the handshake are told before replication begins.
//!
//! Invariants: the socket lies in a directory that only this user may enter, and is gone once the one client has connected.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener};
use tokio::task::JoinHandle;

use super::{Connector, Mode, Tls};
use crate::PostgresError;

/// What asks the server for TLS: the length of the message, and a code instead of a version.
const REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// A way to the server. Dropped, it is closed.
pub(crate) struct Bridge {
    /// Where the socket is; it has the name that PostgreSQL's have.
    pub(crate) directory: Directory,
    runs: JoinHandle<()>,
}

/// Why there is no bridge.
pub(crate) enum NoBridge {
    /// The server has no TLS, and none is demanded.
    Plain,
    /// The two do not agree.
    Disagree(String),
    /// The connection broke.
    Broken(io::Error),
    /// A setting is wrong.
    Wrong(PostgresError),
}

impl From<io::Error> for NoBridge {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidData => NoBridge::Disagree(error.to_string()),
            _ => NoBridge::Broken(error),
        }
    }
}

impl Bridge {
    pub(crate) async fn open(tls: &Tls, host: &str, port: u16) -> Result<Bridge, NoBridge> {
        let connector = Connector::new(tls).map_err(NoBridge::Wrong)?;
        let mut stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        stream.write_all(&REQUEST).await?;
        if stream.read_u8().await? != b'S' {
            return Err(match tls.mode {
                Mode::Prefer => NoBridge::Plain,
                _ => NoBridge::Disagree("server does not support TLS".to_owned()),
            });
        }
        let mut server = connector.handshake(host, stream).await?;
        let directory = Directory::make()?;
        let listener = UnixListener::bind(directory.path.join(format!(".s.PGSQL.{port}")))?;
        let runs = tokio::spawn(async move {
            let Ok((mut client, _)) = listener.accept().await else { return };
            drop(listener);
            if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut server).await {
                tracing::debug!(%error, "a connection of replication ended");
            }
        });
        Ok(Bridge { directory, runs })
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.runs.abort();
    }
}

/// A directory of this user alone. Dropped, it is gone.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
}

impl Directory {
    fn make() -> io::Result<Directory> {
        let drawn = RandomState::new().build_hasher().finish();
        let path = std::env::temp_dir().join(format!("millpond-{drawn:016x}"));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Directory { path })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::debug!(path = %self.path.display(), %error, "cannot remove a directory");
        }
    }
}
