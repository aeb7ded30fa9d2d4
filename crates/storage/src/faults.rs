//! A layer that fails on purpose, from a script or a seed, for tests and the simulator.
//!
//! Owns the decision which call fails and how. Does *not* own time: a delay is whatever the hook
//! that is handed in does. With calls made one after the other, equal plans give equal faults.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millpond_core::SplitMix64;

use crate::error::{Operation, StorageError, cause};
use crate::name::ObjectName;
use crate::storage::{ObjectInfo, Storage};

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Does not happen, and says so: [`StorageError::Unavailable`].
    FailBefore,
    /// Does not happen, but the caller cannot know: [`StorageError::Uncertain`].
    LoseRequest,
    /// Happens, but the caller cannot know: [`StorageError::Uncertain`], whatever the outcome was.
    FailAfter,
    /// Does not happen for want of space: [`StorageError::Full`].
    Full,
}

/// Which calls fail, how, and how often.
///
/// ```
/// use millpond_storage::{Effect, FaultRule, Operation};
///
/// // The next create under `job/manifests/` happens, but its answer is lost.
/// let rule = FaultRule::new(Effect::FailAfter).on(Operation::Create).under("job/manifests/").times(1);
/// # let _ = rule;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRule {
    effect: Effect,
    operation: Option<Operation>,
    prefix: String,
    per_mille: u64,
    skip: u64,
    times: u64,
}

impl FaultRule {
    /// A rule for every call, for ever.
    #[must_use]
    pub fn new(effect: Effect) -> Self {
        FaultRule { effect, operation: None, prefix: String::new(), per_mille: 1_000, skip: 0, times: u64::MAX }
    }

    /// Only for calls of `operation`.
    #[must_use]
    pub fn on(self, operation: Operation) -> Self {
        FaultRule { operation: Some(operation), ..self }
    }

    /// Only for names (for `list`: prefixes) that begin with `prefix`.
    #[must_use]
    pub fn under(self, prefix: impl Into<String>) -> Self {
        FaultRule { prefix: prefix.into(), ..self }
    }

    /// Only for `per_mille` of 1,000 of the calls, drawn from the plan's seed.
    #[must_use]
    pub fn chance(self, per_mille: u64) -> Self {
        FaultRule { per_mille, ..self }
    }

    /// Only after `calls` calls of those that match (and are drawn) have passed unharmed.
    #[must_use]
    pub fn after(self, calls: u64) -> Self {
        FaultRule { skip: calls, ..self }
    }

    /// Only for the next `calls` calls of those that match.
    #[must_use]
    pub fn times(self, calls: u64) -> Self {
        FaultRule { times: calls, ..self }
    }

    fn matches(&self, operation: Operation, name: &str) -> bool {
        self.times > 0 && self.operation.is_none_or(|only| only == operation) && name.starts_with(&self.prefix)
    }

    /// Whether the rule strikes a call that matches; counts the call.
    fn strikes(&mut self, random: &mut SplitMix64) -> bool {
        if self.per_mille < 1_000 && !random.chance(self.per_mille) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.times -= 1;
        true
    }
}

type Hook = Arc<dyn Fn(Operation, &str) + Send + Sync>;

struct Plan {
    rules: Vec<FaultRule>,
    random: SplitMix64,
    hook: Option<Hook>,
    injected: u64,
}

struct Shared {
    enabled: AtomicBool,
    plan: Mutex<Plan>,
}

/// What shall fail. Clones share one plan, which can be changed and switched off while in use.
#[derive(Clone)]
pub struct FaultPlan {
    shared: Arc<Shared>,
}

impl FaultPlan {
    /// A plan without rules, switched on; `seed` fixes what [`FaultRule::chance`] draws.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let plan = Plan { rules: Vec::new(), random: SplitMix64::new(seed), hook: None, injected: 0 };
        FaultPlan { shared: Arc::new(Shared { enabled: AtomicBool::new(true), plan: Mutex::new(plan) }) }
    }

    /// Adds a rule behind the others. The first rule that strikes decides a call's fate.
    pub fn add(&self, rule: FaultRule) {
        self.plan().rules.push(rule);
    }

    /// Removes all rules and the hook.
    pub fn clear(&self) {
        let mut plan = self.plan();
        plan.rules.clear();
        plan.hook = None;
    }

    /// Calls `hook` with operation and name (for `list`: the prefix) before each call, also before
    /// those that fail. It may block, move a clock or record.
    pub fn before_each_call(&self, hook: impl Fn(Operation, &str) + Send + Sync + 'static) {
        self.plan().hook = Some(Arc::new(hook));
    }

    /// Switches rules and hook on or off. While off, nothing is counted or drawn.
    pub fn set_enabled(&self, enabled: bool) {
        self.shared.enabled.store(enabled, Ordering::SeqCst);
    }

    /// How many calls have failed on purpose.
    #[must_use]
    pub fn injected(&self) -> u64 {
        self.plan().injected
    }

    // A panic cannot leave the plan broken: every field is valid after every statement.
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.shared.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, operation: Operation, name: &str) -> Option<Effect> {
        if !self.shared.enabled.load(Ordering::SeqCst) {
            return None;
        }
        let hook = self.plan().hook.clone();
        if let Some(hook) = hook {
            hook(operation, name);
        }
        let mut plan = self.plan();
        let Plan { rules, random, injected, .. } = &mut *plan;
        let mut matching = rules.iter_mut().filter(|rule| rule.matches(operation, name));
        let effect = matching.find_map(|rule| rule.strikes(random).then_some(rule.effect))?;
        *injected += 1;
        Some(effect)
    }
}

/// Wraps a storage and fails as planned.
pub struct Faults<S> {
    inner: S,
    plan: FaultPlan,
}

impl<S> Faults<S> {
    /// A layer around `inner` that follows `plan`; keep a clone of the plan to change it.
    pub fn new(inner: S, plan: FaultPlan) -> Self {
        Faults { inner, plan }
    }

    /// The plan, shared.
    pub fn plan(&self) -> FaultPlan {
        self.plan.clone()
    }

    fn run<T>(
        &self,
        operation: Operation,
        name: &str,
        call: impl FnOnce() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let Some(effect) = self.plan.decide(operation, name) else {
            return call();
        };
        let name = name.to_owned();
        let source = cause(format!("fault on purpose: {effect:?}"));
        let changes = matches!(operation, Operation::Create | Operation::Delete);
        if effect == Effect::FailAfter {
            // The answer is lost, whichever it was.
            drop(call());
        }
        Err(match effect {
            Effect::Full => StorageError::Full { operation, name, source },
            Effect::FailAfter | Effect::LoseRequest if changes => StorageError::Uncertain { operation, name, source },
            // There is nothing uncertain about a read that gave no answer.
            _ => StorageError::Unavailable { operation, name, source },
        })
    }
}

impl<S: Storage> Storage for Faults<S> {
    fn create(&self, name: &ObjectName, bytes: &[u8]) -> Result<(), StorageError> {
        self.run(Operation::Create, name.as_str(), || self.inner.create(name, bytes))
    }

    fn read(&self, name: &ObjectName) -> Result<Vec<u8>, StorageError> {
        self.run(Operation::Read, name.as_str(), || self.inner.read(name))
    }

    fn read_range(&self, name: &ObjectName, offset: u64, length: u64) -> Result<Vec<u8>, StorageError> {
        self.run(Operation::ReadRange, name.as_str(), || self.inner.read_range(name, offset, length))
    }

    fn size(&self, name: &ObjectName) -> Result<u64, StorageError> {
        self.run(Operation::Size, name.as_str(), || self.inner.size(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StorageError> {
        self.run(Operation::List, prefix, || self.inner.list(prefix))
    }

    fn delete(&self, name: &ObjectName) -> Result<(), StorageError> {
        self.run(Operation::Delete, name.as_str(), || self.inner.delete(name))
    }

    fn location(&self) -> String {
        self.inner.location()
    }
}
