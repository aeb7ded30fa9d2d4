//! Which transactions a snapshot of the database sees.

use std::collections::BTreeSet;

use crate::PostgresError;

/// A snapshot, as `pg_current_snapshot()` tells it: `xmin:xmax:xip,xip,…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Visible {
    /// Everything before this was over.
    first: u64,
    /// Nothing from this on had begun.
    end: u64,
    /// Under way.
    open: BTreeSet<u64>,
}

impl Visible {
    pub(super) fn parse(text: &str) -> Result<Visible, PostgresError> {
        let wrong = || PostgresError::Stream { what: "a snapshot of the database", at: 0, bytes: text.len() };
        let mut parts = text.split(':');
        let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).ok_or_else(wrong);
        let (first, end) = (number()?, number()?);
        let open = parts.next().ok_or_else(wrong)?;
        let open = open.split(',').filter(|id| !id.is_empty()).map(|id| id.parse().map_err(|_| wrong()));
        Ok(Visible { first, end, open: open.collect::<Result<_, _>>()? })
    }

    /// Whether it sees what a transaction that was committed at some time has done. Of its id the lower 32 bits are known, which
    /// is enough: ids that are in use at one time are less than 2³¹ apart.
    pub(super) fn sees(&self, id: u32) -> bool {
        let apart = i64::from(id.wrapping_sub(self.end as u32) as i32);
        let id = self.end.saturating_add_signed(apart);
        id < self.end && (id < self.first || !self.open.contains(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_what_was_committed_before_it_and_nothing_that_was_under_way() {
        let visible = Visible::parse("10:20:10,14").unwrap();
        let seen: Vec<u32> = (5..25).filter(|id| visible.sees(*id)).collect();
        assert_eq!(seen, [5, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 18, 19]);
    }

    #[test]
    fn ids_that_began_again_at_zero_are_told_apart() {
        let visible = Visible::parse("4294967290:4294967300:4294967295").unwrap();
        assert!(visible.sees(u32::MAX - 1) && visible.sees(3) && visible.sees(4_294_967_000));
        assert!(!visible.sees(u32::MAX) && !visible.sees(4) && !visible.sees(100));
    }

    #[test]
    fn what_is_no_snapshot_is_an_error() {
        for text in ["", "1", "1:2", "a:2:", "1:2:x", "1:2:3,x"] {
            assert!(Visible::parse(text).is_err(), "{text}");
        }
        assert!(Visible::parse("1:2:").is_ok());
    }
}
