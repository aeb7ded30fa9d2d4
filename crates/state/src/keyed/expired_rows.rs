//! Which rows of runs are past their time to live, for those who merge runs without the job's types.

use std::collections::BTreeMap;

use millpond_core::codec::take_varint;

use super::description::{StateDescription, StateKind};
use super::expiring::Ttl;

/// Judges rows by the time to live that their state has today.
///
/// Rows of any description with times are judged; those without times stay, as they begin to live when they are
/// restored. Lists stay too: a list without one of its rows could not be read.
#[derive(Debug)]
pub struct ExpiredRows<'a> {
    expiring: BTreeMap<&'a str, Ttl>,
    /// State and description of rows that were met, and whether they have times.
    met: Vec<(String, String, bool)>,
    now_ms: i64,
}

impl<'a> ExpiredRows<'a> {
    /// Over the names and descriptions that the states of an operator have today.
    pub fn new(states: impl IntoIterator<Item = (&'a str, &'a str)>, now_ms: i64) -> Self {
        let expiring = states.into_iter().filter_map(|(name, text)| {
            let description = StateDescription::from_json(name, text).ok()?;
            let ttl = description.ttl.filter(|_| description.kind != StateKind::List)?;
            Some((name, ttl))
        });
        ExpiredRows { expiring: expiring.collect(), met: Vec::new(), now_ms }
    }

    /// Whether the time of a row with this description is over.
    pub fn is_expired(&mut self, state: &str, description: &str, value: Option<&[u8]>) -> bool {
        let (Some(ttl), Some(value)) = (self.expiring.get(state).copied(), value) else { return false };
        is_over(value, ttl, self.now_ms) && self.has_times(state, description)
    }

    fn has_times(&mut self, state: &str, description: &str) -> bool {
        if let Some((.., timed)) = self.met.iter().find(|(name, text, _)| name == state && text == description) {
            return *timed;
        }
        let parsed = StateDescription::from_json(state, description);
        let timed = parsed.is_ok_and(|parsed| parsed.ttl.is_some() && parsed.kind != StateKind::List);
        self.met.push((state.to_owned(), description.to_owned(), timed));
        timed
    }
}

/// Whether the time in front of a value is over.
pub(crate) fn is_over(value: &[u8], ttl: Ttl, now_ms: i64) -> bool {
    let Some((zigzag, _)) = take_varint(value) else { return false };
    ttl.is_expired((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64), now_ms)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use millpond_core::Schema;
    use millpond_core::codec::encode;

    use super::*;
    use crate::keyed::Timed;

    #[test]
    fn tl_18_rows_are_judged_by_their_time_and_the_time_to_live_of_today() {
        let describe = |kind, after| {
            let ttl = Ttl::after(Duration::from_millis(after));
            StateDescription::new(kind, Schema::of::<u8>(), None, Schema::of::<u8>()).with_ttl(ttl).to_json()
        };
        let (value, list, before) =
            (describe(StateKind::Value, 100), describe(StateKind::List, 100), describe(StateKind::Value, 50));
        let untimed = StateDescription::new(StateKind::Value, Schema::of::<u8>(), None, Schema::of::<u8>()).to_json();
        let mut rows = ExpiredRows::new([("value", value.as_str()), ("list", list.as_str()), ("odd", "{")], 1_000);
        for (at_ms, expired) in [(899, true), (900, true), (901, false), (-5, true), (i64::MAX, false)] {
            let row = encode(&Timed { at_ms, value: 7u8 }).unwrap();
            assert_eq!(rows.is_expired("value", &value, Some(&row)), expired, "{at_ms}");
            assert_eq!(rows.is_expired("value", &before, Some(&row)), expired, "{at_ms}: it lives longer today");
            assert!(!rows.is_expired("value", &untimed, Some(&row)));
            assert!(!rows.is_expired("list", &list, Some(&row)));
            assert!(!rows.is_expired("other", &value, Some(&row)));
        }
        assert!(!rows.is_expired("value", &value, None));
        assert!(!rows.is_expired("value", &value, Some(&[])));
    }
}
