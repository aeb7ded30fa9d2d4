//! How much memory keyed state may take, over all subtasks of a process.
//!
//! Owns the total and its split: half of it in equal shares, half by use, so that a subtask with little state
//! gives what it does not need to one with much, and can always grow again. Does *not* evict anything.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::{ColdError, ColdStore, ColdStores};

/// After how many looks of one holder the shares are computed anew.
const REBALANCE_EVERY: u32 = 64;

/// A number of bytes that all keyed states of a process share.
#[derive(Debug)]
pub struct MemoryBudget {
    total_bytes: usize,
    /// What cold stores will need once somebody spills, and nobody needs before.
    idle_bytes: usize,
    spilling: AtomicBool,
    shares: Mutex<Vec<Weak<Share>>>,
}

#[derive(Debug)]
struct Share {
    limit: AtomicUsize,
    used: AtomicUsize,
}

impl MemoryBudget {
    /// A budget of this many bytes.
    #[must_use]
    pub fn new(total_bytes: usize) -> Arc<MemoryBudget> {
        MemoryBudget::with_idle(total_bytes, 0)
    }

    /// A budget of this many bytes, and of `idle_bytes` more until state goes to a cold store for the first time: that
    /// memory is the store's, which is empty until then. The store takes it as state leaves the budget.
    #[must_use]
    pub fn with_idle(total_bytes: usize, idle_bytes: usize) -> Arc<MemoryBudget> {
        Arc::new(MemoryBudget {
            total_bytes,
            idle_bytes,
            spilling: AtomicBool::new(false),
            shares: Mutex::new(Vec::new()),
        })
    }

    /// The whole budget once state goes to a cold store, in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// What all holders use, in bytes, as they last said.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        let shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.iter().filter_map(Weak::upgrade).map(|share| share.used.load(Ordering::Relaxed)).sum()
    }

    /// A share, which is given back when it is dropped.
    #[must_use]
    pub fn share(self: &Arc<Self>) -> BudgetShare {
        let share = Arc::new(Share { limit: AtomicUsize::new(0), used: AtomicUsize::new(0) });
        self.shares.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&share));
        self.rebalance();
        BudgetShare { budget: Arc::clone(self), share, looks: 0 }
    }

    fn rebalance(&self) {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.retain(|share| share.strong_count() > 0);
        let live: Vec<Arc<Share>> = shares.iter().filter_map(Weak::upgrade).collect();
        let used: Vec<usize> = live.iter().map(|share| share.used.load(Ordering::Relaxed)).collect();
        let (count, all) = (live.len().max(1), used.iter().sum::<usize>());
        let idle = if self.spilling.load(Ordering::Relaxed) { 0 } else { self.idle_bytes };
        let half = self.total_bytes.saturating_add(idle) / 2;
        for (share, used) in live.iter().zip(used) {
            let by_use = (half as u128 * used as u128).checked_div(all as u128);
            let by_use = by_use.map_or(half / count, |bytes| bytes as usize);
            share.limit.store(half / count + by_use, Ordering::Relaxed);
        }
    }
}

/// The part of a [`MemoryBudget`] that one subtask of one operator may use.
#[derive(Debug)]
pub struct BudgetShare {
    budget: Arc<MemoryBudget>,
    share: Arc<Share>,
    looks: u32,
}

impl BudgetShare {
    /// State goes to a cold store from now on, and does so until the budget is dropped.
    pub(crate) fn begin_spilling(&self) {
        if !self.budget.spilling.swap(true, Ordering::Relaxed) {
            self.budget.rebalance();
        }
    }

    /// Says how many bytes are used, and returns how many may be.
    pub(crate) fn look(&mut self, used: usize) -> usize {
        self.share.used.store(used, Ordering::Relaxed);
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(REBALANCE_EVERY) {
            self.budget.rebalance();
        }
        self.share.limit.load(Ordering::Relaxed)
    }
}

/// Where state goes that does not fit into memory, and how much does: what a job hands down to its operators.
#[derive(Clone)]
pub struct ColdBacking {
    /// Opens a store for each subtask.
    pub stores: Arc<dyn ColdStores>,
    /// The memory that all of them share.
    pub budget: Arc<MemoryBudget>,
}

impl std::fmt::Debug for ColdBacking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ColdBacking").field("stores", &self.stores.name()).field("budget", &self.budget).finish()
    }
}

impl ColdBacking {
    /// A store and a share for one subtask of an operator.
    ///
    /// # Errors
    /// When the store cannot be created.
    pub fn open(&self, operator: &str, subtask: u32) -> Result<(Arc<dyn ColdStore>, BudgetShare), ColdError> {
        Ok((self.stores.open(operator, subtask)?, self.budget.share()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_budget_and_follow_use() {
        let budget = MemoryBudget::new(1_000);
        let (mut idle, mut busy) = (budget.share(), budget.share());
        assert_eq!((idle.look(0), busy.look(0)), (500, 500));
        for _ in 0..REBALANCE_EVERY {
            idle.look(100);
            busy.look(900);
        }
        assert_eq!((idle.look(100), busy.look(900)), (300, 700));
        assert_eq!(budget.used_bytes(), 1_000);
        drop(idle);
        budget.rebalance();
        assert_eq!(busy.look(900), 1_000);
    }

    #[test]
    fn the_memory_of_an_empty_store_is_used_until_the_first_spill() {
        let budget = MemoryBudget::with_idle(900, 400);
        let (mut first, mut second) = (budget.share(), budget.share());
        assert_eq!((first.look(0), second.look(0)), (650, 650));
        first.begin_spilling();
        assert_eq!((first.look(0), second.look(0)), (450, 450));
        assert_eq!(budget.total_bytes(), 900);
    }
}
