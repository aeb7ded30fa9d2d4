//! Mutual TLS 1.3: who is trusted, and the handshake.
//!
//! Both sides show a certificate that one of the authorities has signed. The caller looks for the host that it has called in
//! the certificate of the other side; whoever is called does the same once the caller has said which process it is
//! ([`Tls::check_name`]). Sessions are never resumed, so that every connection checks anew.

mod load;
mod session;
#[cfg(test)]
mod tests;
mod words;

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::verify_server_name;
use rustls::pki_types::ServerName;
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use crate::error::{HandshakeError, TlsError};
use crate::parting::part;
use crate::settings::TlsSettings;
pub(crate) use session::Session;
use session::{Plain, feed, seal};
pub(crate) use words::why_untrusted;

/// Told in the handshake, so that another service with a certificate of the same authority is not taken for a process.
const PROTOCOL: &[u8] = b"millpond/1";

/// What this process shows, and whom it trusts.
pub(crate) struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    name: Option<String>,
}

impl Tls {
    pub(crate) fn open(settings: &TlsSettings, host: &str) -> Result<Tls, TlsError> {
        load::load(settings, host)
    }

    pub(crate) fn call(&self, stream: TcpStream, host: &str, until: Instant) -> Result<Session, HandshakeError> {
        let name = server_name(self.name.as_deref().unwrap_or(host)).map_err(io::Error::other)?;
        let connection = ClientConnection::new(Arc::clone(&self.client), name).map_err(io::Error::other)?;
        shake(connection.into(), stream, &[], until)
    }

    pub(crate) fn answer(&self, stream: TcpStream, first: &[u8], until: Instant) -> Result<Session, HandshakeError> {
        let connection = ServerConnection::new(Arc::clone(&self.server)).map_err(io::Error::other)?;
        shake(connection.into(), stream, first, until)
    }

    pub(crate) fn check_name(&self, session: &Session, host: &str) -> Result<(), String> {
        let name = self.name.as_deref().unwrap_or(host);
        let expected = server_name(name).map_err(|error| error.to_string())?;
        let certificate = ParsedCertificate::try_from(session.peer());
        let checked = certificate.and_then(|certificate| verify_server_name(&certificate, &expected));
        checked.map_err(|_| format!("shows a certificate that is not for {name}"))
    }
}

/// The name of a host as certificates have it.
fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned()).map_err(|_| TlsError::BadName { name: host.to_owned() })
}

/// Takes a connection through its handshake, of which `first` was read already.
fn shake(
    mut connection: Connection,
    mut stream: TcpStream,
    first: &[u8],
    until: Instant,
) -> Result<Session, HandshakeError> {
    let (mut plain, mut sealed, mut ended) = (Plain::default(), Vec::new(), false);
    let mut buffer = [0; 4_096];
    let mut read = first.len();
    buffer[..read].copy_from_slice(first);
    loop {
        match feed(&mut connection, &buffer[..read], &mut plain) {
            Ok(farewell) => ended |= farewell,
            Err(error) => return Err(turn_away(&mut connection, &stream, error)),
        }
        seal(&mut connection, &mut sealed)?;
        if !sealed.is_empty() {
            stream.set_write_timeout(Some(left(until)?))?;
            stream.write_all(&sealed)?;
            sealed.clear();
        }
        if !connection.is_handshaking() {
            break;
        }
        stream.set_read_timeout(Some(left(until)?))?;
        read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    let peer = connection.peer_certificates().and_then(|chain| chain.first()).map(|first| first.clone().into_owned());
    let (Some(peer), Some(PROTOCOL)) = (peer, connection.alpn_protocol()) else {
        return Err(io::Error::other("it is no process of a job").into());
    };
    Ok(Session::new(stream, connection, peer, plain, ended))
}

fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Tells the other side why this goes no further.
fn turn_away(connection: &mut Connection, stream: &TcpStream, error: io::Error) -> HandshakeError {
    let mut alert = Vec::new();
    // Without an alert it reads the end.
    let _ = seal(connection, &mut alert);
    part(stream, &alert);
    match why_untrusted(&error) {
        Some(reason) => HandshakeError::Untrusted(reason),
        None => HandshakeError::Broken(error),
    }
}
