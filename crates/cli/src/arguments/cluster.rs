//! Flags of a job that runs in several processes.

use clap::Args;

use crate::settings::Setting;

/// Flags of a job that runs in several processes.
#[derive(Debug, Default, Args)]
pub(crate) struct ClusterFlags {
    /// Number of processes of the job [default: 1, or as many as there are hosts]
    #[arg(long, value_name = "N")]
    processes: Option<String>,
    /// Which of the processes this is, counted from 0; or pod, for the number at the end of HOSTNAME
    #[arg(long, value_name = "I")]
    process: Option<String>,
    /// Where the processes are: a file with one HOST:PORT a line, or a list with commas
    #[arg(long, value_name = "FILE")]
    hosts: Option<String>,
    /// Where this process listens [default: its HOST:PORT]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// How long a process waits for the others [default: 1m]
    #[arg(long, value_name = "DURATION")]
    peer_wait: Option<String>,
    /// Time between signs of life [default: 500ms]
    #[arg(long, value_name = "DURATION")]
    heartbeat: Option<String>,
    /// Silence after which a process is lost [default: 4s]
    #[arg(long, value_name = "DURATION")]
    lost_after: Option<String>,
    /// Certificate of this process (PEM), and those between it and the authority; with it, the processes use mutual TLS
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<String>,
    /// Private key of the certificate (PEM, not encrypted)
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Authorities (PEM): who has a certificate of them may take part
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<String>,
    /// The name in the certificates of all processes [default: each has that of its host]
    #[arg(long, value_name = "NAME")]
    tls_name: Option<String>,
}

impl ClusterFlags {
    /// The flags, as given.
    pub(crate) fn given(&self) -> [(Setting, &Option<String>); 11] {
        [
            (Setting::Processes, &self.processes),
            (Setting::Process, &self.process),
            (Setting::Hosts, &self.hosts),
            (Setting::Listen, &self.listen),
            (Setting::PeerWait, &self.peer_wait),
            (Setting::Heartbeat, &self.heartbeat),
            (Setting::LostAfter, &self.lost_after),
            (Setting::TlsCertificate, &self.tls_certificate),
            (Setting::TlsKey, &self.tls_key),
            (Setting::TlsCa, &self.tls_ca),
            (Setting::TlsName, &self.tls_name),
        ]
    }
}
