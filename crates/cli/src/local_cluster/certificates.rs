//! Certificates for the processes of a local cluster, made with the program `openssl` and thrown away at the end.
//!
//! An authority signs one certificate for 127.0.0.1, which all processes show. For trying TLS, not for the machines of others.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::CliError;

const OPENSSL: &str = "openssl";
/// How long they are good for, in days.
const DAYS: &str = "30";
const NAME: &str = "/CN=millpond local-cluster";
/// What the certificate may be used for, and by whom.
const EXTENSIONS: &str = "subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n";

/// A directory with certificates, deleted when dropped.
pub(super) struct Certificates {
    directory: PathBuf,
}

impl Certificates {
    /// Makes the certificates.
    ///
    /// # Errors
    /// When there is no `openssl`, or it fails.
    pub(super) fn make() -> Result<Certificates, CliError> {
        let name = format!("millpond-certificates-{}", std::process::id());
        let certificates = Certificates { directory: std::env::temp_dir().join(name) };
        certificates.fill().map_err(|source| CliError::Program { program: OPENSSL.to_owned(), source })?;
        Ok(certificates)
    }

    fn fill(&self) -> io::Result<()> {
        create_private(&self.directory)?;
        std::fs::write(self.directory.join("extensions"), EXTENSIONS)?;
        let elliptic = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        self.openssl(&format!("req -x509 {elliptic} -days {DAYS} -keyout ca.key -out ca.pem"), true)?;
        self.openssl(&format!("req -new {elliptic} -keyout process.key -out process.csr"), true)?;
        let authority = "-CA ca.pem -CAkey ca.key -CAcreateserial";
        let out = "-extfile extensions -in process.csr -out process.pem";
        self.openssl(&format!("x509 -req {authority} -days {DAYS} {out}"), false)
    }

    fn openssl(&self, arguments: &str, named: bool) -> io::Result<()> {
        let mut command = Command::new(OPENSSL);
        command.args(arguments.split_whitespace()).current_dir(&self.directory).stdin(Stdio::null());
        if named {
            command.args(["-subj", NAME]);
        }
        let output = command.output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(io::Error::other(format!("{}: {said}", output.status)))
    }

    pub(super) fn certificate(&self) -> PathBuf {
        self.directory.join("process.pem")
    }

    pub(super) fn key(&self) -> PathBuf {
        self.directory.join("process.key")
    }

    pub(super) fn authority(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        // What is left over is of no use to anybody for long.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[cfg(unix)]
fn create_private(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(directory)
}

#[cfg(not(unix))]
fn create_private(directory: &Path) -> io::Result<()> {
    std::fs::create_dir(directory)
}
