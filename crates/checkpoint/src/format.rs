//! The bytes of a manifest: one header line, then readable JSON. See `docs/formats/manifest.md`.

use millpond_core::codec::checksum;
use millpond_storage::ObjectName;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::CheckpointError;
use crate::manifest::Manifest;

/// The version that is written, and the newest that is read.
pub const VERSION: u32 = 1;
const MAGIC: &str = "millpond-manifest";
/// A header is shorter than this; a damaged file is not searched any further for its end.
const HEADER_LIMIT: usize = 128;

/// The bytes of `manifest`.
///
/// # Errors
/// [`CheckpointError::Encode`] when the manifest is impossible: what could not be read back must
/// not become the newest manifest.
pub fn encode(manifest: &Manifest) -> Result<Vec<u8>, CheckpointError> {
    if let Some(reason) = manifest.fault() {
        return Err(CheckpointError::Encode { epoch: manifest.epoch, reason });
    }
    frame(MAGIC, VERSION, manifest).map_err(|reason| CheckpointError::Encode { epoch: manifest.epoch, reason })
}

/// Reads the manifest that was stored as `object`.
///
/// # Errors
/// [`CheckpointError::Damaged`] when anything does not fit, [`CheckpointError::UnsupportedVersion`]
/// when it was written by a newer Millpond.
pub fn decode(object: &ObjectName, bytes: &[u8]) -> Result<Manifest, CheckpointError> {
    let manifest: Manifest = unframe(MAGIC, VERSION, object, bytes)?;
    match manifest.fault() {
        Some(reason) => Err(CheckpointError::Damaged { object: object.clone(), reason }),
        None => Ok(manifest),
    }
}

/// A header line and `content` as JSON.
pub(crate) fn frame(magic: &str, version: u32, content: &impl Serialize) -> Result<Vec<u8>, String> {
    let mut body = serde_json::to_vec_pretty(content).map_err(|error| error.to_string())?;
    body.push(b'\n');
    let mut bytes = format!("{magic} {version} {} {:08x}\n", body.len(), checksum(&body)).into_bytes();
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// The mirror of [`frame`]: nothing but exactly what it writes is read.
pub(crate) fn unframe<T: DeserializeOwned>(
    magic: &str,
    version: u32,
    object: &ObjectName,
    bytes: &[u8],
) -> Result<T, CheckpointError> {
    let damaged = |reason: String| CheckpointError::Damaged { object: object.clone(), reason };
    let head = &bytes[..bytes.len().min(HEADER_LIMIT)];
    let end = head.iter().position(|byte| *byte == b'\n').ok_or_else(|| damaged("it has no header line".to_owned()))?;
    let header = std::str::from_utf8(&bytes[..end]).map_err(|_| damaged("its header is not text".to_owned()))?;
    let fields: Vec<&str> = header.split(' ').collect();
    if fields.first() != Some(&magic) {
        return Err(damaged(format!("it does not begin with {magic:?}")));
    }
    let found: u32 =
        fields.get(1).and_then(|v| v.parse().ok()).ok_or_else(|| damaged("it has no version".to_owned()))?;
    if found > version {
        return Err(CheckpointError::UnsupportedVersion { object: object.clone(), found, supported: version });
    }
    let body = &bytes[end + 1..];
    let expected = format!("{magic} {version} {} {:08x}", body.len(), checksum(body));
    if header != expected {
        return Err(damaged(format!("its header is {header:?}, its content gives {expected:?}")));
    }
    serde_json::from_slice(body).map_err(|error| damaged(error.to_string()))
}
