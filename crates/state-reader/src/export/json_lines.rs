//! One JSON object per line.

use std::io::Write;

use crate::entry::StateEntry;
use crate::error::ReaderError;

pub(super) fn write(
    entries: impl Iterator<Item = Result<StateEntry, ReaderError>>,
    mut out: impl Write,
) -> Result<u64, ReaderError> {
    let mut written = 0;
    for entry in entries {
        serde_json::to_writer(&mut out, &entry?).map_err(std::io::Error::from)?;
        out.write_all(b"\n")?;
        written += 1;
    }
    out.flush()?;
    Ok(written)
}
