//! Exit codes: one per thing that a script may want to do next. Documented in `docs/settings.md`.

use millpond_core::ErrorKind;

/// The job finished, or was stopped and can be resumed.
pub(crate) const SUCCESS: u8 = 0;
/// The job failed; starting it again may help.
pub(crate) const FAILED: u8 = 1;
/// Usage, settings or the job itself are wrong; starting it again does not help.
pub(crate) const INVALID: u8 = 2;
/// Somebody else runs this job; leave it to them.
pub(crate) const FENCED: u8 = 3;
/// Stored bytes are damaged; somebody has to look.
pub(crate) const CORRUPT: u8 = 4;

/// The exit code for an error of this kind.
#[must_use]
pub(crate) const fn code(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Invalid => INVALID,
        ErrorKind::Fenced => FENCED,
        ErrorKind::Corrupt => CORRUPT,
        ErrorKind::Unavailable | ErrorKind::Uncertain | ErrorKind::Bug => FAILED,
    }
}

/// The exit code of a process that a signal ended at once, as shells report it.
#[must_use]
pub(crate) const fn signal_code(signal: i32) -> i32 {
    128 + signal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_documented_code() {
        let kinds = [
            (ErrorKind::Unavailable, 1),
            (ErrorKind::Uncertain, 1),
            (ErrorKind::Bug, 1),
            (ErrorKind::Invalid, 2),
            (ErrorKind::Fenced, 3),
            (ErrorKind::Corrupt, 4),
        ];
        for (kind, expected) in kinds {
            assert_eq!(code(kind), expected, "{kind}");
        }
        assert_eq!([signal_code(2), signal_code(15)], [130, 143]);
    }
}
