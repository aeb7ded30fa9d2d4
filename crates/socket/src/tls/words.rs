//! What TLS says, in words for people.

use std::io;
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error};

/// Why the other side is not trusted, or does not trust this one, if that is what the error is about: a sentence about it.
pub(crate) fn why_untrusted(error: &io::Error) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    match error {
        Error::InvalidCertificate(wrong) => Some(format!("its certificate {}", wrong_certificate(wrong))),
        Error::AlertReceived(alert) => about_alert(*alert),
        _ => None,
    }
}

/// What is wrong with a certificate, as the end of a sentence about it.
pub(super) fn wrong_certificate(wrong: &CertificateError) -> String {
    match wrong {
        CertificateError::ExpiredContext { time, not_after } => {
            format!("has expired {} ago", between(not_after, time))
        }
        CertificateError::Expired => "has expired".to_owned(),
        CertificateError::NotValidYetContext { time, not_before } => {
            format!("is valid only in {}", between(time, not_before))
        }
        CertificateError::NotValidYet => "is not valid yet".to_owned(),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "was not signed by an authority of this process".to_owned()
        }
        CertificateError::NotValidForName => "is for another name".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            format!("is not for {}, but for {}", expected.to_str(), names(presented))
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "must be allowed for clients and for servers (extended key usage)".to_owned()
        }
        CertificateError::BadEncoding => "is damaged".to_owned(),
        other => format!("cannot be trusted: {other}"),
    }
}

fn names(presented: &[String]) -> String {
    if presented.is_empty() { "no name".to_owned() } else { presented.join(", ") }
}

/// What an alert says about trust; `None` for what happens in other ways.
fn about_alert(alert: AlertDescription) -> Option<String> {
    let words = match alert {
        AlertDescription::InsufficientSecurity => "it does not use TLS",
        AlertDescription::UnknownCA | AlertDescription::DecryptError => {
            "it does not know the authority that has signed the certificate of this process"
        }
        AlertDescription::CertificateExpired => {
            "to it the certificate of this process has expired, or is not valid yet"
        }
        AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::AccessDenied
        | AlertDescription::UnrecognisedName => {
            return Some(format!("it does not accept the certificate of this process ({alert:?})"));
        }
        AlertDescription::CertificateRequired => "it wants a certificate, and was shown none",
        AlertDescription::ProtocolVersion | AlertDescription::NoApplicationProtocol => {
            "it speaks another protocol under TLS"
        }
        _ => return None,
    };
    Some(words.to_owned())
}

/// The time from one moment to another, roughly.
fn between(earlier: &UnixTime, later: &UnixTime) -> String {
    let seconds = later.as_secs().saturating_sub(earlier.as_secs());
    roughly(Duration::from_secs(seconds))
}

pub(super) fn roughly(time: Duration) -> String {
    let seconds = time.as_secs();
    let (number, unit) = match seconds {
        0..=119 => (seconds, "second"),
        120..=7_199 => (seconds / 60, "minute"),
        7_200..=172_799 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}
