//! The place of TLS in a program that was built without it: there is none, and who asks for it is told so.

use std::io;
use std::net::TcpStream;
use std::time::Instant;

use crate::error::{HandshakeError, TlsError};
use crate::settings::TlsSettings;

/// Never there.
pub(crate) enum Tls {}

/// Never there.
pub(crate) enum Session {}

impl Tls {
    pub(crate) fn open(_: &TlsSettings, _: &str) -> Result<Tls, TlsError> {
        Err(TlsError::NotBuilt)
    }

    pub(crate) fn call(&self, _: TcpStream, _: &str, _: Instant) -> Result<Session, HandshakeError> {
        match *self {}
    }

    pub(crate) fn answer(&self, _: TcpStream, _: &[u8], _: Instant) -> Result<Session, HandshakeError> {
        match *self {}
    }

    pub(crate) fn check_name(&self, _: &Session, _: &str) -> Result<(), String> {
        match *self {}
    }
}

impl Session {
    pub(crate) fn tcp(&self) -> &TcpStream {
        match *self {}
    }

    pub(crate) fn say_farewell(&self) {
        match *self {}
    }

    pub(crate) fn read(&self, _: &mut [u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(crate) fn write(&self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }
}

pub(crate) fn why_untrusted(_: &io::Error) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use crate::{Security, TlsSettings};

    #[test]
    fn without_the_feature_tls_is_refused_by_name() {
        let settings = TlsSettings { certificate: "a".into(), key: "b".into(), authority: "c".into(), name: None };
        let refused = Security::open(Some(&settings), "localhost").unwrap_err().to_string();
        assert!(refused.contains("built without the feature \"tls\""), "{refused}");
        assert!(!Security::open(None, "localhost").unwrap().is_tls());
    }
}
