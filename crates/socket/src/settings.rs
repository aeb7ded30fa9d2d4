//! Settings of TLS: data that can be printed and compared.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a process shows, and whom it trusts. All files are PEM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsSettings {
    /// The certificate of this process, then those between it and the authority.
    pub certificate: PathBuf,
    /// The private key of that certificate, not encrypted.
    pub key: PathBuf,
    /// The authorities: whoever has a certificate that one of them has signed, and that has the right name, belongs to the job.
    pub authority: PathBuf,
    /// The name that the certificates of all processes have; `None` when each has that of its host.
    pub name: Option<String>,
}
