//! What was posted lately: states with a time to live, and what they must show.
//!
//! Whether an entry has expired depends on the clock, so it is not part of the output. But an account, which never
//! expires, remembers between which two readings of the clock its last posting was noted, and so knows when that may be
//! shown and when it must be: a wrong one fails the job.

use std::time::Duration;

use millpond::prelude::*;

use crate::records::Account;

/// The states of one account.
#[derive(Clone, Copy)]
pub(crate) struct Recent {
    last: ExpiringValue<u64>,
    numbers: ExpiringList<u64>,
    ttl_ms: i64,
}

impl Recent {
    pub(crate) fn declare(states: &mut StateDeclarer<'_, u64>, ttl_ms: u32) -> UserResult<Recent> {
        let ttl = Ttl::after(Duration::from_millis(ttl_ms.into()));
        let last = states.expiring_value("last posting", ttl)?;
        let numbers = states.expiring_list("recent postings", ttl)?;
        Ok(Recent { last, numbers, ttl_ms: ttl_ms.into() })
    }

    /// Fails when something is shown that is over, or is not shown and is not over, or was never noted.
    pub(crate) fn check(&self, number: u64, account: &Account, context: &mut KeyedContext<'_, u64>) -> UserResult {
        let before_ms = context.processing_time();
        let last = self.last.get(context)?.copied();
        let newest = self.numbers.get(context)?.last().copied();
        let after_ms = context.processing_time();
        let must_be_over = account.entries == 0 || before_ms >= account.noted_ms.1 + self.ttl_ms;
        let must_be_shown = account.entries > 0 && after_ms < account.noted_ms.0 + self.ttl_ms;
        for shown in [last, newest] {
            let is_wrong = match shown {
                Some(posting) => must_be_over || posting != account.last,
                None => must_be_shown,
            };
            if is_wrong {
                let (last, noted) = (account.last, account.noted_ms);
                return Err(format!(
                    "account {number} shows {shown:?} at {before_ms} to {after_ms}; its last posting is {last} of {noted:?}"
                )
                .into());
            }
        }
        Ok(())
    }

    /// Notes a posting, here and in the account.
    pub(crate) fn note(&self, posting: u64, account: &mut Account, context: &mut KeyedContext<'_, u64>) -> UserResult {
        let before_ms = context.processing_time();
        self.last.set(context, posting)?;
        self.numbers.add(context, posting)?;
        account.last = posting;
        account.noted_ms = (before_ms, context.processing_time());
        Ok(())
    }
}
