//! TLS to the server, as the address asks for it: `sslmode`, `sslrootcert`, `sslcert`, `sslkey`, as in libpq.
//!
//! Owns: what the address says of TLS, whom a certificate proves, the connection of replication under TLS. Does *not* own the
//! protocol (`rustls`). Without the feature `tls` an address that asks for it is an error.

#[cfg(feature = "tls")]
mod bridge;
#[cfg(feature = "tls")]
mod connect;

use std::path::PathBuf;

use tokio_postgres::config::SslMode;

#[cfg(feature = "tls")]
pub(crate) use bridge::{Bridge, NoBridge};
#[cfg(feature = "tls")]
pub(crate) use connect::Connector;

/// How sure one must be of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// No TLS.
    Disable,
    /// TLS where the server has it, whoever it is.
    Prefer,
    /// TLS, whoever the server is.
    Require,
    /// A certificate that the authority has signed, for whatever name.
    VerifyCa,
    /// A certificate that the authority has signed for this host.
    VerifyFull,
}

/// What an address says of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) mode: Mode,
    /// The certificates of the authority.
    pub(crate) authority: Option<PathBuf>,
    /// The client's certificate and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

/// A setting and the rule that it breaks.
type Wrong = (&'static str, String);

impl Tls {
    /// Takes out of an address what it says of TLS; gives what is left of it.
    pub(crate) fn of(address: &str) -> Result<(String, Tls), Wrong> {
        let mut found: [Option<String>; 4] = Default::default();
        let mut take = |name: &str, value: String| {
            let place = NAMES.iter().position(|known| *known == name);
            place.map(|place| found[place] = Some(value)).is_some()
        };
        let is_url = address.starts_with("postgresql://") || address.starts_with("postgres://");
        let rest = if is_url { of_url(address, &mut take) } else { of_words(address, &mut take) };
        let [mode, authority, certificate, key] = found;
        let authority = authority.map(PathBuf::from);
        let mode = match mode.as_deref() {
            None | Some("prefer" | "allow") => Mode::Prefer,
            Some("disable") => Mode::Disable,
            // With an authority at hand nobody means to ignore it; libpq does the same.
            Some("require") if authority.is_some() => Mode::VerifyCa,
            Some("require") => Mode::Require,
            Some("verify-ca") => Mode::VerifyCa,
            Some("verify-full") => Mode::VerifyFull,
            Some(other) => {
                let reason = format!("{other:?} is none of disable, prefer, require, verify-ca, verify-full");
                return Err(("sslmode", reason));
            }
        };
        if matches!(mode, Mode::VerifyCa | Mode::VerifyFull) && authority.is_none() {
            return Err(("sslrootcert", "the server is to be verified: name a file with its authority".to_owned()));
        }
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            (Some(_), None) => return Err(("sslkey", "sslcert is given without it".to_owned())),
            (None, Some(_)) => return Err(("sslcert", "sslkey is given without it".to_owned())),
        };
        Ok((rest, Tls { mode, authority, identity }))
    }

    /// The same in the words of the client.
    pub(crate) fn client_mode(&self) -> SslMode {
        match self.mode {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }
}

const NAMES: [&str; 4] = ["sslmode", "sslrootcert", "sslcert", "sslkey"];

/// `postgresql://…?name=value&…`; `take` says whether a value is one of ours.
fn of_url(address: &str, take: &mut dyn FnMut(&str, String) -> bool) -> String {
    let Some((base, query)) = address.split_once('?') else { return address.to_owned() };
    let others = query.split('&').filter(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        !take(name, percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned())
    });
    let others = others.collect::<Vec<_>>().join("&");
    if others.is_empty() { base.to_owned() } else { format!("{base}?{others}") }
}

/// `name=value name='a value' …`; what cannot be read is left to the client, which says what is wrong with it.
fn of_words(address: &str, take: &mut dyn FnMut(&str, String) -> bool) -> String {
    let (mut left, mut rest) = (String::new(), address);
    while let Some((name, after)) = rest.split_once('=') {
        let trimmed = after.trim_start();
        let (mut value, mut end, mut escaped) = (String::new(), trimmed.len(), false);
        let quoted = trimmed.starts_with('\'');
        for (at, letter) in trimmed.char_indices().skip(usize::from(quoted)) {
            if escaped {
                escaped = false;
            } else if letter == '\\' {
                escaped = true;
                continue;
            } else if quoted && letter == '\'' {
                end = at + 1;
                break;
            } else if !quoted && letter.is_whitespace() {
                end = at;
                break;
            }
            value.push(letter);
        }
        if !take(name.trim(), value) {
            left.push_str(&format!(" {}={}", name.trim(), &trimmed[..end]));
        }
        rest = &trimmed[end..];
    }
    left.push_str(rest);
    left.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> (String, Tls) {
        Tls::of(address).unwrap()
    }

    #[test]
    fn an_address_without_a_word_of_tls_stays_as_it_is() {
        for address in
            ["postgresql://u:p@h:1/d", "postgresql://u@h/d?connect_timeout=3&options=-c%20x%3D1", "host=h user=u"]
        {
            let (rest, tls) = of(address);
            assert_eq!((rest.as_str(), tls.mode, tls.authority, tls.identity), (address, Mode::Prefer, None, None));
        }
    }

    #[test]
    fn both_forms_of_an_address_say_the_same() {
        let url = of(
            "postgres://u@h/d?sslmode=verify-full&connect_timeout=3&sslrootcert=%2Fa%20b%2Fca.pem&sslcert=c&sslkey=k",
        );
        assert_eq!(url.0, "postgres://u@h/d?connect_timeout=3");
        let words =
            of(r"host=h sslmode = verify-full user='u v' sslrootcert='/a b/ca.pem' sslcert=c sslkey=k  dbname='d\'e'");
        assert_eq!(words.0, r"host=h user='u v' dbname='d\'e'");
        assert_eq!(url.1, words.1);
        let identity = Some((PathBuf::from("c"), PathBuf::from("k")));
        assert_eq!(url.1, Tls { mode: Mode::VerifyFull, authority: Some("/a b/ca.pem".into()), identity });
        assert_eq!(of("host=h sslmode=require sslrootcert=ca").1.mode, Mode::VerifyCa);
        assert_eq!(of("postgresql://h?sslmode=require").1.mode, Mode::Require);
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        for (address, setting) in [
            ("postgresql://h?sslmode=verify-full", "sslrootcert"),
            ("host=h sslmode=verify-ca", "sslrootcert"),
            ("host=h sslmode=full", "sslmode"),
            ("host=h sslcert=c", "sslkey"),
            ("host=h sslkey=k", "sslcert"),
        ] {
            assert_eq!(Tls::of(address).unwrap_err().0, setting, "{address}");
        }
    }
}
