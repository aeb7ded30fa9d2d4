//! Whether and when a failed attempt is followed by another.

use serde::{Deserialize, Serialize};

/// What happens when an attempt fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum RestartPolicy {
    /// The job fails with its first attempt.
    Never,
    /// A fixed number of restarts, each after the same pause.
    Fixed {
        /// How many restarts.
        restarts: u32,
        /// The pause before each, in milliseconds.
        delay_ms: u64,
    },
    /// Restarts after growing pauses; the pauses and the budget begin anew after calm.
    Backoff {
        /// Restarts without calm between them, at most.
        restarts: u32,
        /// The first pause, in milliseconds.
        initial_ms: u64,
        /// The longest pause, in milliseconds.
        max_ms: u64,
        /// An attempt that ran this long counts as calm, in milliseconds.
        calm_ms: u64,
    },
}

impl Default for RestartPolicy {
    fn default() -> Self {
        RestartPolicy::Backoff { restarts: 10, initial_ms: 100, max_ms: 60_000, calm_ms: 300_000 }
    }
}

/// Counts restarts against a policy. Pure: times come in.
#[derive(Clone, Debug)]
pub struct RestartBudget {
    policy: RestartPolicy,
    used: u32,
}

impl RestartBudget {
    /// A fresh budget.
    #[must_use]
    pub fn new(policy: RestartPolicy) -> Self {
        RestartBudget { policy, used: 0 }
    }

    /// How many restarts were granted since the last calm.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.used
    }

    /// An attempt that ran for `ran_ms` has failed: the pause before the next in milliseconds, or
    /// `None` when there shall be no next.
    pub fn next_delay_ms(&mut self, ran_ms: u64) -> Option<u64> {
        match self.policy {
            RestartPolicy::Never => None,
            RestartPolicy::Fixed { restarts, delay_ms } => (self.used < restarts).then(|| {
                self.used += 1;
                delay_ms
            }),
            RestartPolicy::Backoff { restarts, initial_ms, max_ms, calm_ms } => {
                if ran_ms >= calm_ms {
                    self.used = 0;
                }
                (self.used < restarts).then(|| {
                    let delay_ms = initial_ms.saturating_mul(1u64.checked_shl(self.used).unwrap_or(u64::MAX));
                    self.used += 1;
                    delay_ms.min(max_ms)
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_off_doubles_is_bounded_and_begins_anew_after_calm() {
        let policy = RestartPolicy::Backoff { restarts: 4, initial_ms: 100, max_ms: 350, calm_ms: 1_000 };
        let mut budget = RestartBudget::new(policy);
        let delays: Vec<_> = (0..5).map(|_| budget.next_delay_ms(10)).collect();
        assert_eq!(delays, [Some(100), Some(200), Some(350), Some(350), None]);
        assert_eq!(budget.next_delay_ms(1_000), Some(100));
    }

    #[test]
    fn a_fixed_budget_is_used_up() {
        let mut budget = RestartBudget::new(RestartPolicy::Fixed { restarts: 1, delay_ms: 5 });
        assert_eq!(budget.next_delay_ms(u64::MAX), Some(5));
        assert_eq!(budget.next_delay_ms(u64::MAX), None);
        assert_eq!(RestartBudget::new(RestartPolicy::Never).next_delay_ms(0), None);
    }
}
