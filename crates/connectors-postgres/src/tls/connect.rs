//! The handshake: whom a certificate proves, and the client's own.

use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, SignatureScheme,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Mode, Tls};
use crate::PostgresError;

/// Makes TLS connections; its files have been read.
#[derive(Clone)]
pub(crate) struct Connector {
    config: Arc<ClientConfig>,
}

impl Connector {
    /// Reads the files that the address names.
    pub(crate) fn new(tls: &Tls) -> Result<Connector, PostgresError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Arc::new(Verifier::new(tls, &provider)?);
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| setting("sslmode", error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match &tls.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let key_of = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable("sslkey", key, &error))?;
                let fits = builder.with_client_auth_cert(certificates("sslcert", certificate)?, key_of);
                fits.map_err(|error| unreadable("sslkey", key, &error))?
            }
        };
        Ok(Connector { config: Arc::new(config) })
    }

    /// A handshake with the server called `host`.
    pub(crate) async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        host: &str,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await
    }
}

fn setting(setting: &str, reason: String) -> PostgresError {
    PostgresError::Setting { setting: setting.to_owned(), reason }
}

fn unreadable(name: &str, path: &Path, error: &dyn std::fmt::Display) -> PostgresError {
    setting(name, format!("{}: {error}", path.display()))
}

fn certificates(name: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, PostgresError> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| unreadable(name, path, &error))?;
    if found.is_empty() { Err(unreadable(name, path, &"it holds no certificate")) } else { Ok(found) }
}

/// Judges the server's certificate as the mode says.
#[derive(Debug)]
struct Verifier {
    /// `None` when anybody will do.
    authority: Option<Arc<WebPkiServerVerifier>>,
    /// Whether the name counts.
    name: bool,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(tls: &Tls, provider: &Arc<CryptoProvider>) -> Result<Verifier, PostgresError> {
        let verifies = matches!(tls.mode, Mode::VerifyCa | Mode::VerifyFull);
        let authority = match tls.authority.as_ref().filter(|_| verifies) {
            None => None,
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates("sslrootcert", path)? {
                    roots.add(certificate).map_err(|error| unreadable("sslrootcert", path, &error))?;
                }
                let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
                Some(built.map_err(|error| unreadable("sslrootcert", path, &error))?)
            }
        };
        Ok(Verifier { authority, name: tls.mode == Mode::VerifyFull, provider: Arc::clone(provider) })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        match authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last: all else is right.
            Err(TlsError::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.name => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Connector {
    type Stream = Secure<S>;
    type TlsConnect = ToHost;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<ToHost> {
        Ok(ToHost { connector: self.clone(), host: host.to_owned() })
    }
}

/// A connector, and whom to expect.
pub(crate) struct ToHost {
    connector: Connector,
    host: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for ToHost {
    type Stream = Secure<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Secure<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { self.connector.handshake(&self.host, stream).await.map(Secure) })
    }
}

/// A connection under TLS.
pub(crate) struct Secure<S>(TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> tokio_postgres::tls::TlsStream for Secure<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Secure<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Secure<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
