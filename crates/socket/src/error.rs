//! What can be wrong with certificates, and how two processes can fail to trust each other.

use std::fmt;
use std::io;
use std::path::PathBuf;

use millpond_core::ErrorKind;

/// A file of the settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PemFile {
    /// The certificate of this process.
    Certificate,
    /// Its private key.
    Key,
    /// The authorities.
    Authority,
}

impl fmt::Display for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PemFile::Certificate => "certificate",
            PemFile::Key => "private key",
            PemFile::Authority => "certificate of an authority",
        })
    }
}

/// What is wrong with the certificates of this process. Nothing of it gets better by waiting.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The program was built without TLS.
    #[error(
        "the processes of the job cannot talk under TLS: this program was built without the feature \"tls\" of millpond"
    )]
    NotBuilt,
    /// A file cannot be read.
    #[error("cannot read the {what} in {}", file.display())]
    Unreadable {
        /// What it should hold.
        what: PemFile,
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("{} holds no {what} that can be used: {reason}", file.display())]
    NotUsable {
        /// What it should hold.
        what: PemFile,
        /// The file.
        file: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The key is that of another certificate.
    #[error("the private key in {} is not that of the certificate in {}", key.display(), certificate.display())]
    WrongKey {
        /// File of the key.
        key: PathBuf,
        /// File of the certificate.
        certificate: PathBuf,
    },
    /// The other processes would not trust the certificate of this one.
    #[error("the certificate in {} {reason}", certificate.display())]
    Useless {
        /// The file.
        certificate: PathBuf,
        /// Why, as the end of a sentence about it.
        reason: String,
    },
    /// A host cannot be found in a certificate.
    #[error("{name:?} is no name that a certificate can have")]
    BadName {
        /// The name.
        name: String,
    },
}

impl TlsError {
    /// What to do next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Invalid
    }
}

/// How a connection did not come to be.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The two do not trust each other, or only one of them uses TLS. Trying again does not help.
    #[error("{0}")]
    Untrusted(String),
    /// It broke, it took too long, or the other one is none of ours.
    #[error(transparent)]
    Broken(#[from] io::Error),
}
