//! From files to what is needed for a handshake; whatever is wrong with them is found here, before anybody is called.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::ServerCertVerifier;
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, Error, InconsistentKeys, RootCertStore, ServerConfig};

use super::words::{roughly, wrong_certificate};
use super::{PROTOCOL, Tls, server_name};
use crate::error::{PemFile, TlsError};
use crate::settings::TlsSettings;

/// A certificate that expires within this time is warned of.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 86_400);

/// The files of a process, read.
struct Files<'a> {
    settings: &'a TlsSettings,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

pub(super) fn load(settings: &TlsSettings, host: &str) -> Result<Tls, TlsError> {
    let loaded = Loaded::new(settings)?;
    loaded.files.check_own(settings.name.as_deref().unwrap_or(host), &*loaded.servers, &*loaded.clients)?;
    Ok(loaded.tls)
}

/// What this process would show to others, whether they trust it or not.
#[cfg(test)]
pub(super) fn load_unchecked(settings: &TlsSettings) -> Tls {
    Loaded::new(settings).unwrap().tls
}

/// Files that fit each other.
struct Loaded<'a> {
    files: Files<'a>,
    servers: Arc<WebPkiServerVerifier>,
    clients: Arc<dyn ClientCertVerifier>,
    tls: Tls,
}

impl Loaded<'_> {
    fn new(settings: &TlsSettings) -> Result<Loaded<'_>, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let files = Files {
            settings,
            chain: certificates(PemFile::Certificate, &settings.certificate)?,
            key: key(&settings.key)?,
        };
        let authorities = authorities(&settings.authority)?;
        let servers = WebPkiServerVerifier::builder_with_provider(Arc::clone(&authorities), Arc::clone(&provider));
        let servers = servers.build().map_err(|error| bad_authority(settings, &error))?;
        let clients = WebPkiClientVerifier::builder_with_provider(authorities, Arc::clone(&provider));
        let clients = clients.build().map_err(|error| bad_authority(settings, &error))?;
        let client = Arc::new(files.client(Arc::clone(&provider), Arc::clone(&servers))?);
        let server = Arc::new(files.server(provider, Arc::clone(&clients))?);
        let tls = Tls { client, server, name: settings.name.clone() };
        Ok(Loaded { files, servers, clients, tls })
    }
}

impl Files<'_> {
    fn client(
        &self,
        provider: Arc<CryptoProvider>,
        servers: Arc<WebPkiServerVerifier>,
    ) -> Result<ClientConfig, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(|error| self.bad_key(&error))?.with_webpki_verifier(servers);
        let config = builder.with_client_auth_cert(self.chain.clone(), self.key.clone_key());
        let mut config = config.map_err(|error| self.bad_key(&error))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn server(
        &self,
        provider: Arc<CryptoProvider>,
        clients: Arc<dyn ClientCertVerifier>,
    ) -> Result<ServerConfig, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
        let builder = builder.map_err(|error| self.bad_key(&error))?.with_client_cert_verifier(clients);
        let config = builder.with_single_cert(self.chain.clone(), self.key.clone_key());
        let mut config = config.map_err(|error| self.bad_key(&error))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn bad_key(&self, error: &Error) -> TlsError {
        match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsError::WrongKey { key: self.settings.key.clone(), certificate: self.settings.certificate.clone() }
            }
            Error::InvalidCertificate(wrong) => self.useless(wrong_certificate(wrong)),
            error => not_usable(PemFile::Key, &self.settings.key, error.to_string()),
        }
    }

    fn useless(&self, reason: String) -> TlsError {
        TlsError::Useless { certificate: self.settings.certificate.clone(), reason }
    }

    /// Looks at the certificate of this process as the others will.
    fn check_own(
        &self,
        name: &str,
        servers: &dyn ServerCertVerifier,
        clients: &dyn ClientCertVerifier,
    ) -> Result<(), TlsError> {
        let name = server_name(name)?;
        let (own, between) = self.chain.split_first().expect("a file without certificates was refused");
        let check_at = |now| {
            servers.verify_server_cert(own, between, &name, &[], now)?;
            clients.verify_client_cert(own, between, now).map(drop)
        };
        check_at(UnixTime::now()).map_err(|error| match error {
            Error::InvalidCertificate(wrong) => self.useless(wrong_certificate(&wrong)),
            error => self.useless(format!("cannot be trusted: {error}")),
        })?;
        let soon = Duration::from_secs(UnixTime::now().as_secs()) + EXPIRY_WARNING;
        if check_at(UnixTime::since_unix_epoch(soon)).is_err() {
            let within = roughly(EXPIRY_WARNING);
            tracing::warn!(
                certificate = %self.settings.certificate.display(),
                "the certificate of this process, or one that it depends on, expires within {within}"
            );
        }
        Ok(())
    }
}

fn read(what: PemFile, file: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(file).map_err(|source| TlsError::Unreadable { what, file: file.to_owned(), source })
}

fn not_usable(what: PemFile, file: &Path, reason: String) -> TlsError {
    TlsError::NotUsable { what, file: file.to_owned(), reason }
}

fn certificates(what: PemFile, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(what, file)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if found.is_empty() => Err(not_usable(what, file, "it has no section CERTIFICATE".to_owned())),
        Ok(found) => Ok(found),
        Err(error) => Err(not_usable(what, file, format!("it is no PEM: {error}"))),
    }
}

fn key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read(PemFile::Key, file)?;
    warn_of_open_key(file);
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let encrypted = text.windows(9).any(|window| window == b"ENCRYPTED");
        let reason = if encrypted { "it is encrypted".to_owned() } else { format!("{error}") };
        not_usable(PemFile::Key, file, reason)
    })
}

fn authorities(file: &Path) -> Result<Arc<RootCertStore>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(PemFile::Authority, file)? {
        roots.add(certificate).map_err(|error| not_usable(PemFile::Authority, file, error.to_string()))?;
    }
    Ok(Arc::new(roots))
}

fn bad_authority(settings: &TlsSettings, error: &dyn std::error::Error) -> TlsError {
    not_usable(PemFile::Authority, &settings.authority, error.to_string())
}

/// Says so when everybody on this machine can read the key.
#[cfg(unix)]
fn warn_of_open_key(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(file).map_or(0, |metadata| metadata.permissions().mode());
    if mode & 0o007 != 0 {
        let mode = format!("{:o}", mode & 0o777);
        tracing::warn!(file = %file.display(), mode, "the private key is open to every user of this machine");
    }
}

#[cfg(not(unix))]
fn warn_of_open_key(_: &Path) {}
