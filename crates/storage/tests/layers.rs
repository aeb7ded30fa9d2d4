//! What retries make of faults.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millpond_core::ErrorKind;
use millpond_storage::{
    Deadline, Effect, FaultPlan, FaultRule, Faults, Interrupt, MAX_HUNG_CALLS, MemoryStorage, Meter, ObjectName,
    Operation, Retry, RetryPolicy, Storage, StorageError, ThreadSleep,
};
use proptest::prelude::*;

type Waits = Arc<Mutex<Vec<Duration>>>;

struct Stack {
    memory: MemoryStorage,
    plan: FaultPlan,
    waits: Waits,
    storage: Retry<Meter<Faults<MemoryStorage>>>,
    calls: millpond_storage::Counters,
}

fn stack(attempts: u32, seed: u64) -> Stack {
    let (memory, plan, waits) = (MemoryStorage::new(), FaultPlan::new(seed), Waits::default());
    let meter = Meter::new(Faults::new(memory.clone(), plan.clone()));
    let calls = meter.counters();
    let (first_backoff, max_backoff) = (Duration::from_millis(100), Duration::from_secs(1));
    let policy = RetryPolicy { attempts, first_backoff, max_backoff, patience: Duration::MAX };
    let recorded = waits.clone();
    let storage =
        Retry::new(meter, policy, seed, move |wait: Duration| recorded.lock().expect("no recorder panics").push(wait));
    Stack { memory, plan, waits, storage, calls }
}

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).expect("tests use valid names")
}

fn next_create(effect: Effect) -> FaultRule {
    FaultRule::new(effect).on(Operation::Create).times(1)
}

#[test]
fn an_uncertain_create_that_happened_succeeds_after_a_look() {
    let stack = stack(3, 1);
    stack.plan.add(next_create(Effect::FailAfter));
    stack.storage.create(&name("a"), b"mine").unwrap();
    assert_eq!(stack.memory.read(&name("a")).unwrap(), b"mine");
    assert_eq!(stack.calls.snapshot().of(Operation::Read).calls, 1);
}

#[test]
fn an_uncertain_create_that_did_not_happen_is_made_again() {
    let stack = stack(3, 1);
    stack.plan.add(next_create(Effect::LoseRequest));
    stack.storage.create(&name("a"), b"mine").unwrap();
    assert_eq!(stack.memory.read(&name("a")).unwrap(), b"mine");
}

#[test]
fn an_uncertain_create_of_a_name_that_another_took_is_already_exists() {
    let stack = stack(3, 1);
    stack.memory.create(&name("a"), b"theirs").unwrap();
    for effect in [Effect::FailAfter, Effect::LoseRequest] {
        stack.plan.add(next_create(effect));
        assert!(stack.storage.create(&name("a"), b"mine").unwrap_err().is_already_exists());
    }
    assert_eq!(stack.memory.read(&name("a")).unwrap(), b"theirs");
}

#[test]
fn a_taken_name_is_not_looked_at_when_nothing_was_uncertain() {
    let stack = stack(3, 1);
    stack.memory.create(&name("a"), b"equal").unwrap();
    stack.plan.add(next_create(Effect::FailBefore));
    assert!(stack.storage.create(&name("a"), b"equal").unwrap_err().is_already_exists());
    assert_eq!(stack.calls.snapshot().of(Operation::Read).calls, 0);
}

#[test]
fn giving_up_after_an_uncertain_attempt_is_uncertain_whatever_came_last() {
    for last in [Effect::FailBefore, Effect::Full] {
        let stack = stack(3, 1);
        stack.plan.add(next_create(Effect::FailAfter));
        stack.plan.add(FaultRule::new(last));
        assert_eq!(stack.storage.create(&name("a"), b"x").unwrap_err().kind(), ErrorKind::Uncertain);
    }
    // The look itself fails until the attempts are used up.
    let stack = stack(3, 1);
    stack.plan.add(next_create(Effect::FailAfter));
    stack.plan.add(FaultRule::new(Effect::FailBefore).on(Operation::Read));
    assert_eq!(stack.storage.create(&name("a"), b"x").unwrap_err().kind(), ErrorKind::Uncertain);
}

#[test]
fn an_uncertain_delete_is_repeated() {
    for effect in [Effect::FailAfter, Effect::LoseRequest] {
        let stack = stack(2, 1);
        stack.memory.create(&name("a"), b"x").unwrap();
        stack.plan.add(FaultRule::new(effect).on(Operation::Delete).times(1));
        stack.storage.delete(&name("a")).unwrap();
        assert!(stack.memory.read(&name("a")).unwrap_err().is_not_found());
    }
}

#[test]
fn unavailable_is_retried_with_growing_bounded_waits_from_the_seed() {
    let waits = |seed| {
        let stack = stack(7, seed);
        stack.plan.add(FaultRule::new(Effect::FailBefore));
        let error = stack.storage.read(&name("a")).unwrap_err();
        assert!(matches!(error, StorageError::Unavailable { operation: Operation::Read, .. }));
        assert_eq!(stack.calls.snapshot().of(Operation::Read).calls, 7);
        let waits = stack.waits.lock().unwrap();
        waits.clone()
    };
    let first = waits(1);
    let bounds = [100, 200, 400, 800, 1_000, 1_000].map(Duration::from_millis);
    assert_eq!(first.len(), bounds.len());
    for (wait, bound) in first.iter().zip(bounds) {
        assert!(*wait <= bound, "{wait:?} of {bound:?}");
    }
    assert_eq!(first, waits(1));
    assert_ne!(first, waits(2));
}

#[test]
fn patience_ends_after_its_time_with_an_error_that_names_the_storage_and_keeps_its_kind() {
    for (effect, kind) in [(Effect::FailBefore, ErrorKind::Unavailable), (Effect::LoseRequest, ErrorKind::Uncertain)] {
        let (plan, waited) = (FaultPlan::new(1), Arc::new(Mutex::new(Duration::ZERO)));
        plan.add(FaultRule::new(effect));
        let (policy, total) =
            (RetryPolicy { patience: Duration::from_secs(90), ..RetryPolicy::default() }, waited.clone());
        let storage = Faults::new(MemoryStorage::new(), plan.clone());
        let storage = Retry::new(storage, policy, 1, move |wait: Duration| *total.lock().unwrap() += wait);
        let error = storage.create(&name("a"), b"x").unwrap_err();
        assert_eq!(error.kind(), kind);
        let text = millpond_core::error::chain(&error);
        assert!(text.contains("gave up on memory after") && text.contains("attempts in 90000 ms"), "{text}");
        assert!(text.ends_with(&format!("fault on purpose: {effect:?}")), "{text}");
        assert_eq!(*waited.lock().unwrap(), Duration::from_secs(90));
        assert!(plan.injected() > 20, "{} attempts", plan.injected());
    }
}

#[test]
fn an_outage_within_patience_is_not_seen() {
    let stack = stack(u32::MAX, 3);
    stack.plan.add(FaultRule::new(Effect::FailBefore).times(50));
    stack.storage.create(&name("a"), b"x").unwrap();
    assert_eq!(stack.memory.read(&name("a")).unwrap(), b"x");
}

#[test]
fn an_interrupt_ends_the_wait_and_the_attempts() {
    let (plan, interrupt) = (FaultPlan::new(1), Interrupt::new());
    plan.add(FaultRule::new(Effect::FailBefore));
    let (first_backoff, max_backoff) = (Duration::from_secs(3_600), Duration::from_secs(3_600));
    let policy = RetryPolicy { first_backoff, max_backoff, patience: Duration::MAX, attempts: u32::MAX };
    let storage = Arc::new(Retry::new(Faults::new(MemoryStorage::new(), plan.clone()), policy, 1, interrupt.clone()));
    let caller = std::thread::spawn({
        let storage = Arc::clone(&storage);
        move || storage.read(&name("a"))
    });
    while plan.injected() == 0 {
        std::thread::yield_now();
    }
    interrupt.raise();
    assert_eq!(caller.join().unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
}

/// A storage whose next call hangs until the sender is dropped.
fn hanging(operation: Operation) -> (MemoryStorage, Faults<MemoryStorage>, std::sync::mpsc::Sender<()>) {
    let (memory, plan) = (MemoryStorage::new(), FaultPlan::new(1));
    let (release, held) = std::sync::mpsc::channel();
    let held = Mutex::new(Some(held));
    plan.before_each_call(move |seen, _| {
        let own = (seen == operation).then(|| held.lock().expect("nobody panics with it").take()).flatten();
        let _ = own.map(|held| held.recv());
    });
    (memory.clone(), Faults::new(memory, plan), release)
}

#[test]
fn a_create_without_an_answer_is_uncertain_and_a_repetition_finds_it() {
    let (memory, faults, release) = hanging(Operation::Create);
    let deadline = Deadline::new(faults, Duration::from_millis(20), Interrupt::new());
    let error = deadline.create(&name("a"), b"mine").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Uncertain);
    assert!(millpond_core::error::chain(&error).ends_with("memory gave no answer within 20 ms"), "{error}");
    // The hung call wakes up and happens, late; whoever repeats the create with the same bytes is told so.
    drop(release);
    let retry = Retry::new(deadline, RetryPolicy::default(), 1, ThreadSleep);
    while memory.read(&name("a")).is_err() {
        std::thread::yield_now();
    }
    assert!(retry.create(&name("a"), b"mine").unwrap_err().is_already_exists());
    assert_eq!(memory.read(&name("a")).unwrap(), b"mine");
}

#[test]
fn a_read_without_an_answer_is_unavailable_and_a_retry_gets_it() {
    let (memory, faults, _release) = hanging(Operation::Read);
    memory.create(&name("a"), b"x").unwrap();
    let deadline = Deadline::new(faults, Duration::from_millis(20), Interrupt::new());
    let retry = Retry::new(deadline, RetryPolicy::default(), 1, ThreadSleep);
    assert_eq!(retry.read(&name("a")).unwrap(), b"x");
}

#[test]
fn after_an_interrupt_a_hung_call_has_little_time_left() {
    let (_, faults, _release) = hanging(Operation::Delete);
    let interrupt = Interrupt::new();
    let deadline = Deadline::new(faults, Duration::from_secs(86_400), interrupt.clone());
    interrupt.raise();
    assert_eq!(deadline.delete(&name("a")).unwrap_err().kind(), ErrorKind::Uncertain);
}

#[test]
fn when_too_many_calls_hang_the_next_fails_before_it_is_made() {
    let plan = FaultPlan::new(1);
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Mutex::new(held);
    plan.before_each_call(move |_, _| {
        let _ = held.lock().map(|held| held.recv());
    });
    let deadline = Deadline::new(Faults::new(MemoryStorage::new(), plan), Duration::from_millis(1), Interrupt::new());
    for _ in 0..MAX_HUNG_CALLS {
        assert!(deadline.read(&name("a")).is_err());
    }
    let error = millpond_core::error::chain(&deadline.create(&name("a"), b"x").unwrap_err());
    assert!(error.ends_with("64 earlier calls have not ended"), "{error}");
    drop(release);
}

#[test]
fn a_call_that_panics_is_an_error_and_the_layer_goes_on() {
    let plan = FaultPlan::new(1);
    plan.before_each_call(|operation, _| assert_ne!(operation, Operation::Size, "on purpose"));
    let deadline = Deadline::new(Faults::new(MemoryStorage::new(), plan), Duration::from_secs(60), Interrupt::new());
    assert_eq!(deadline.size(&name("a")).unwrap_err().kind(), ErrorKind::Unavailable);
    deadline.create(&name("a"), b"x").unwrap();
}

#[test]
fn errors_that_will_not_pass_are_not_retried() {
    let stack = stack(5, 1);
    assert!(stack.storage.read(&name("absent")).unwrap_err().is_not_found());
    stack.storage.create(&name("a"), b"x").unwrap();
    assert!(stack.storage.create(&name("a"), b"x").unwrap_err().is_already_exists());
    assert!(stack.storage.read_range(&name("a"), 0, 2).is_err());
    assert!(stack.waits.lock().unwrap().is_empty());
}

#[test]
fn no_attempts_count_as_one() {
    let stack = stack(0, 1);
    stack.plan.add(FaultRule::new(Effect::FailBefore).times(1));
    assert!(stack.storage.size(&name("a")).is_err());
    stack.storage.create(&name("a"), b"x").unwrap();
}

#[test]
fn a_rule_strikes_only_its_operation_prefix_and_number_of_calls() {
    let plan = FaultPlan::new(1);
    let storage = Faults::new(MemoryStorage::new(), plan.clone());
    plan.add(FaultRule::new(Effect::FailBefore).on(Operation::Create).under("x/").after(1).times(2));
    assert!(storage.create(&name("y/1"), b"").is_ok());
    assert!(storage.create(&name("x/1"), b"").is_ok());
    assert!(storage.read(&name("x/1")).is_ok());
    assert!(storage.create(&name("x/2"), b"").is_err());
    plan.set_enabled(false);
    assert!(storage.create(&name("x/2"), b"").is_ok());
    plan.set_enabled(true);
    assert!(storage.create(&name("x/3"), b"").is_err());
    assert!(storage.create(&name("x/3"), b"").is_ok());
    assert_eq!(plan.injected(), 2);
    plan.add(FaultRule::new(Effect::Full));
    assert!(matches!(storage.list(""), Err(StorageError::Full { .. })));
    plan.clear();
    assert_eq!(storage.list("x/").unwrap().len(), 3);
}

#[test]
fn the_hook_sees_every_call_before_it_is_made() {
    let plan = FaultPlan::new(1);
    let storage = Faults::new(MemoryStorage::new(), plan.clone());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let recorded = seen.clone();
    let own = plan.clone();
    plan.before_each_call(move |operation, name| {
        recorded.lock().unwrap().push((operation, name.to_owned()));
        // The plan may be changed from within.
        own.add(FaultRule::new(Effect::FailBefore).times(1));
    });
    assert!(storage.list("x").is_err());
    assert!(storage.delete(&name("a")).is_err());
    let expected = [(Operation::List, "x".to_owned()), (Operation::Delete, "a".to_owned())];
    assert_eq!(*seen.lock().unwrap(), expected);
}

proptest! {
    /// With any faults, a create that says `Ok` is there with these bytes, one that says
    /// `AlreadyExists` was not ours, and one that failed for certain left nothing.
    #[test]
    fn retried_creates_never_say_what_is_not_so(seed: u64, attempts in 1..6u32, per_mille in 0..900u64) {
        let stack = stack(attempts, seed);
        for effect in [Effect::FailAfter, Effect::LoseRequest, Effect::FailBefore] {
            stack.plan.add(FaultRule::new(effect).chance(per_mille));
        }
        stack.memory.create(&name("taken"), b"theirs").unwrap();
        for object in 0..20 {
            let name = name(&object.to_string());
            let result = stack.storage.create(&name, b"mine");
            let there = stack.memory.read(&name).is_ok();
            match result {
                Ok(()) => prop_assert!(there),
                Err(error) if error.kind() == ErrorKind::Uncertain => {}
                Err(error) => {
                    prop_assert!(!error.is_already_exists());
                    prop_assert!(!there, "{error}");
                }
            }
        }
        prop_assert!(stack.storage.create(&name_of_taken(), b"mine").is_err());
        prop_assert_eq!(stack.memory.read(&name_of_taken()).unwrap(), b"theirs");
    }
}

fn name_of_taken() -> ObjectName {
    name("taken")
}
