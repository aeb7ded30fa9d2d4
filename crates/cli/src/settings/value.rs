//! Values of single settings: from text to types and back.

use std::fmt;
use std::path::PathBuf;

use millpond_jobmanager::{Backend, MemoryPlan, RestartPolicy};
use millpond_storage::StorageAddress;
use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::units::{bytes_text, duration_text, parse_bytes, parse_duration_ms};

/// Where the user wants to start from; a path is not yet looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The newest checkpoint, if any.
    Latest,
    /// An empty state.
    Nothing,
    /// The checkpoint of this epoch.
    Epoch(u64),
    /// The savepoint or manifest at this path.
    Path(PathBuf),
}

/// Where checkpoints go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A local directory.
    Directory(PathBuf),
    /// Something else, for an opener that knows the scheme.
    Address(StorageAddress),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Directory(directory) => write!(f, "{}", directory.display()),
            Place::Address(address) => write!(f, "{address}"),
        }
    }
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// Lines for eyes.
    Text,
    /// One JSON object per line.
    Json,
}

/// Reads `latest`, `none`, an epoch number, or a path.
pub(crate) fn parse_start(text: &str) -> Result<Start, String> {
    match text {
        "" => Err("expected latest, none, an epoch number or the path of a savepoint or manifest".to_owned()),
        "latest" => Ok(Start::Latest),
        "none" => Ok(Start::Nothing),
        number if number.bytes().all(|byte| byte.is_ascii_digit()) => match number.parse() {
            Ok(0) | Err(_) => Err("epochs are counted from 1".to_owned()),
            Ok(epoch) => Ok(Start::Epoch(epoch)),
        },
        path => Ok(Start::Path(PathBuf::from(path))),
    }
}

/// Reads a level, or levels per target.
pub(super) fn parse_log(text: &str) -> Result<Targets, String> {
    // A bare name would be a target at its most detailed level and silence all others: it is a misspelt level.
    let bare = text.split(',').map(str::trim).find(|part| !part.contains('=') && part.parse::<LevelFilter>().is_err());
    match bare {
        Some(part) => Err(format!("{part:?} is no level; for a target, write {part}=LEVEL")),
        None => text.parse::<Targets>().map_err(|error| error.to_string()),
    }
}

/// Reads the path of a directory, or an address with a scheme.
pub(super) fn parse_place(text: &str) -> Result<Place, String> {
    if text.is_empty() {
        return Err("expected the path of a directory, or an address such as s3://bucket/prefix".to_owned());
    }
    match StorageAddress::parse(text) {
        Ok(Some(address)) => Ok(Place::Address(address)),
        Ok(None) => Ok(Place::Directory(PathBuf::from(text))),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads `claim` or `no-claim`.
pub(super) fn parse_claim(text: &str) -> Result<bool, String> {
    match text {
        "claim" => Ok(true),
        "no-claim" => Ok(false),
        _ => Err("expected claim or no-claim".to_owned()),
    }
}

/// Reads `text` or `json`.
pub(super) fn parse_log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "text" => Ok(LogFormat::Text),
        "json" => Ok(LogFormat::Json),
        _ => Err("expected text or json".to_owned()),
    }
}

/// Reads the name of a backend.
pub(super) fn parse_backend(text: &str) -> Result<Backend, String> {
    let named = Backend::ALL.into_iter().find(|backend| backend.name() == text);
    named.ok_or_else(|| format!("expected {}", Backend::ALL.map(Backend::name).join(" or ")))
}

/// Reads the memory of a process.
pub(super) fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_bytes(text)? {
        bytes if bytes < MemoryPlan::LEAST => Err(format!("expected at least {}", bytes_text(MemoryPlan::LEAST))),
        bytes => Ok(bytes),
    }
}

/// Reads `true` or `false`.
pub(super) fn parse_switch(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "expected true or false".to_owned())
}

/// Reads a whole number of at least `least`.
pub(super) fn parse_number<N>(text: &str, least: N) -> Result<N, String>
where
    N: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| format!("expected a whole number from {least} on"))
}

/// Reads a duration, or `none`.
pub(super) fn parse_interval(text: &str) -> Result<Option<u64>, String> {
    if text == "none" {
        return Ok(None);
    }
    match parse_duration_ms(text)? {
        0 => Err("expected a duration above 0, or none".to_owned()),
        ms => Ok(Some(ms)),
    }
}

/// Reads `never`, `fixed:N:DELAY` or `backoff:N:INITIAL:MAX[:CALM]`.
pub(super) fn parse_restart(text: &str) -> Result<RestartPolicy, String> {
    let parts: Vec<&str> = text.split(':').collect();
    let number = |text: &str| parse_number::<u32>(text, 0).map_err(|reason| format!("{text:?}: {reason}"));
    match parts.as_slice() {
        ["never"] => Ok(RestartPolicy::Never),
        ["fixed", restarts, delay] => {
            Ok(RestartPolicy::Fixed { restarts: number(restarts)?, delay_ms: parse_duration_ms(delay)? })
        }
        ["backoff", restarts, initial, max, rest @ ..] if rest.len() <= 1 => {
            let calm_ms = rest.first().map_or(Ok(DEFAULT_CALM_MS), |calm| parse_duration_ms(calm))?;
            let (initial_ms, max_ms) = (parse_duration_ms(initial)?, parse_duration_ms(max)?);
            if initial_ms > max_ms {
                return Err(format!("the first pause {initial} is above the longest {max}"));
            }
            Ok(RestartPolicy::Backoff { restarts: number(restarts)?, initial_ms, max_ms, calm_ms })
        }
        _ => {
            Err("expected never, fixed:N:DELAY or backoff:N:INITIAL:MAX[:CALM], such as backoff:10:100ms:1m".to_owned())
        }
    }
}

/// An attempt that ran this long counts as calm, when nobody says otherwise.
const DEFAULT_CALM_MS: u64 = 300_000;

/// A restart policy as [`parse_restart`] reads it.
#[must_use]
pub(super) fn restart_text(policy: &RestartPolicy) -> String {
    match policy {
        RestartPolicy::Never => "never".to_owned(),
        RestartPolicy::Fixed { restarts, delay_ms } => {
            format!("fixed:{restarts}:{}", duration_text(*delay_ms))
        }
        RestartPolicy::Backoff { restarts, initial_ms, max_ms, calm_ms } => {
            let [initial, max, calm] = [initial_ms, max_ms, calm_ms].map(|ms| duration_text(*ms));
            format!("backoff:{restarts}:{initial}:{max}:{calm}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_is_a_word_a_number_or_a_path() {
        assert_eq!(parse_start("latest"), Ok(Start::Latest));
        assert_eq!(parse_start("none"), Ok(Start::Nothing));
        assert_eq!(parse_start("41"), Ok(Start::Epoch(41)));
        assert_eq!(parse_start("cp/job/manifests/7"), Ok(Start::Path("cp/job/manifests/7".into())));
        assert!(parse_start("0").is_err() && parse_start("").is_err());
    }

    #[test]
    fn restart_policies_read_back() {
        for text in ["never", "fixed:3:10s", "backoff:10:100ms:1m:5m", "fixed:0:0"] {
            assert_eq!(restart_text(&parse_restart(text).unwrap()), text);
        }
        assert_eq!(parse_restart("backoff:10:100ms:60s"), Ok(RestartPolicy::default()));
    }

    #[test]
    fn restart_policies_without_sense_are_refused() {
        for text in
            ["", "always", "never:1", "fixed:3", "fixed:x:1s", "fixed:3:10", "backoff:1:2s:1s", "backoff:1:1s:1s:1s:1s"]
        {
            assert!(parse_restart(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_interval_is_a_positive_duration_or_none() {
        assert_eq!(parse_interval("none"), Ok(None));
        assert_eq!(parse_interval("2s"), Ok(Some(2_000)));
        assert!(parse_interval("0").is_err() && parse_interval("0s").is_err());
    }
}
