//! Declaring keyed states with a time to live.

use std::any::type_name;

use millpond_core::{Data, Key, Schema};

use super::aggregating::{AggregateFunction, AggregatingState, AggregatingTable};
use super::declare::{StateDeclarer, describe};
use super::description::StateKind;
use super::expiring::{
    ExpiringAggregating, ExpiringList, ExpiringMap, ExpiringReducing, ExpiringValue, Timed, TimedAggregate, Ttl,
    cell_expiry, list_expiry, timed_reduce, value_expiry,
};
use super::list::{ListState, ListTable};
use super::map::MapState;
use super::map_table::MapTable;
use super::migration::RowContent;
use super::reducing::{ReduceFunction, ReducingState, ReducingTable};
use super::tracked::Tracked;
use super::value::{ValueState, ValueTable};
use crate::error::StateError;

impl<K: Key> StateDeclarer<'_, K> {
    /// One value per key that is forgotten after a time.
    ///
    /// Stored values without a time to live begin to live when they are restored with one; those with one
    /// live for ever when they are restored without (TL-13, TL-14). When the name is declared already, the first time to
    /// live stays.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use millpond_core::{ManualClock, MaxParallelism};
    /// use millpond_state::{KeyedBackend, Ttl};
    ///
    /// let (max, clock) = (MaxParallelism::default(), Arc::new(ManualClock::new(0)));
    /// let mut backend = KeyedBackend::<String>::new(max, max.all()).with_clock(Arc::clone(&clock) as _);
    /// let hour = Ttl::after(Duration::from_secs(3_600));
    /// let seen = backend.declarer().expiring_value::<u64>("seen", hour)?;
    /// backend.set_current_key_of("a".to_owned())?;
    /// seen.set(backend.states_mut(), 7)?;
    /// clock.advance(3_599_999);
    /// assert_eq!(seen.get(backend.states_mut())?, Some(&7));
    /// clock.advance(1);
    /// assert_eq!(seen.get(backend.states_mut())?, None);
    /// # Ok::<(), millpond_state::StateError>(())
    /// ```
    ///
    /// # Errors
    /// As [`StateDeclarer::value`], or when the time to live is below one millisecond.
    pub fn expiring_value<V: Data>(&mut self, name: &str, ttl: Ttl) -> Result<ExpiringValue<V>, StateError> {
        let label = format!("expiring value of {}", type_name::<V>());
        let (ttl, content) = (ttl.check(name)?, RowContent::timed_one::<V>());
        let describe = || describe::<K, V>(StateKind::Value, None).with_ttl(ttl);
        let make = |name, state, range| Tracked::new(name, state, range, ()).expiring(cell_expiry(ttl));
        let index = self.declare::<ValueTable<K, Timed<V>>>(name, label, content, describe, make)?;
        Ok(ExpiringValue::new(ValueState::at(index), self.ttl_at(index, ttl)))
    }

    /// A list per key whose elements are forgotten after a time.
    ///
    /// # Errors
    /// As [`StateDeclarer::expiring_value`].
    pub fn expiring_list<T: Data>(&mut self, name: &str, ttl: Ttl) -> Result<ExpiringList<T>, StateError> {
        let label = format!("expiring list of {}", type_name::<T>());
        let (ttl, content) = (ttl.check(name)?, RowContent::timed_many::<T>());
        let describe = || describe::<K, T>(StateKind::List, None).with_ttl(ttl);
        let make = |name, state, range| Tracked::new(name, state, range, ()).expiring(list_expiry(ttl));
        let index = self.declare::<ListTable<K, Timed<T>>>(name, label, content, describe, make)?;
        Ok(ExpiringList::new(ListState::at(index), self.ttl_at(index, ttl)))
    }

    /// A map per key whose entries are forgotten after a time.
    ///
    /// # Errors
    /// As [`StateDeclarer::expiring_value`].
    pub fn expiring_map<UK: Key, UV: Data>(&mut self, name: &str, ttl: Ttl) -> Result<ExpiringMap<UK, UV>, StateError> {
        let label = format!("expiring map from {} to {}", type_name::<UK>(), type_name::<UV>());
        let (ttl, content) = (ttl.check(name)?, RowContent::timed_one::<UV>());
        let describe = || describe::<K, UV>(StateKind::Map, Some(Schema::of::<UK>())).with_ttl(ttl);
        let make = |name, state, range| MapTable::new(name, state, range).expiring(value_expiry(ttl));
        let index = self.declare::<MapTable<K, UK, Timed<UV>>>(name, label, content, describe, make)?;
        Ok(ExpiringMap::new(MapState::at(index), self.ttl_at(index, ttl)))
    }

    /// One value per key that additions are folded into and that is forgotten after a time.
    ///
    /// # Errors
    /// As [`StateDeclarer::expiring_value`].
    pub fn expiring_reducing<T: Data>(
        &mut self,
        name: &str,
        ttl: Ttl,
        reduce: impl Fn(T, T) -> T + Send + 'static,
    ) -> Result<ExpiringReducing<T>, StateError> {
        let label = format!("expiring reducing of {}", type_name::<T>());
        let (ttl, content) = (ttl.check(name)?, RowContent::timed_one::<T>());
        let describe = || describe::<K, T>(StateKind::Reducing, None).with_ttl(ttl);
        let reduce: ReduceFunction<Timed<T>> = Box::new(timed_reduce(ttl, reduce));
        let make = |name, state, range| Tracked::new(name, state, range, reduce).expiring(cell_expiry(ttl));
        let index = self.declare::<ReducingTable<K, Timed<T>>>(name, label, content, describe, make)?;
        Ok(ExpiringReducing::new(ReducingState::at(index), self.ttl_at(index, ttl)))
    }

    /// One accumulator per key that is forgotten after a time.
    ///
    /// # Errors
    /// As [`StateDeclarer::expiring_value`].
    pub fn expiring_aggregating<A: AggregateFunction>(
        &mut self,
        name: &str,
        ttl: Ttl,
        function: A,
    ) -> Result<ExpiringAggregating<A>, StateError> {
        let label = format!("expiring aggregating by {} in {}", type_name::<A>(), type_name::<A::Accumulator>());
        let (ttl, content) = (ttl.check(name)?, RowContent::timed_one::<A::Accumulator>());
        let describe = || describe::<K, A::Accumulator>(StateKind::Aggregating, None).with_ttl(ttl);
        let function = TimedAggregate { function, ttl };
        let make = |name, state, range| Tracked::new(name, state, range, function).expiring(cell_expiry(ttl));
        let index = self.declare::<AggregatingTable<K, TimedAggregate<A>>>(name, label, content, describe, make)?;
        Ok(ExpiringAggregating::new(AggregatingState::at(index), self.ttl_at(index, ttl)))
    }

    /// The time to live of a declared state; `None` when it has none, or there is no such state.
    #[must_use]
    pub fn ttl(&self, name: &str) -> Option<Ttl> {
        self.states.declared[self.states.position(name)?].description.ttl
    }

    /// When the name was declared already, the first time to live stays.
    fn ttl_at(&self, index: u16, asked: Ttl) -> Ttl {
        self.states.declared[usize::from(index)].description.ttl.unwrap_or(asked)
    }
}
