//! Every storage and every layer keeps the one contract.

use std::sync::Arc;
use std::time::Duration;

use millpond_storage::{
    Deadline, Effect, FaultPlan, FaultRule, Faults, Interrupt, LocalCopies, LocalStorage, MemoryStorage, Meter,
    ObjectName, Operation, Retry, RetryPolicy, Storage, Within, contract,
};

/// A policy so patient that no seed exhausts it.
fn patient() -> RetryPolicy {
    RetryPolicy { attempts: 60, ..RetryPolicy::default() }
}

#[test]
fn memory_keeps_the_contract() {
    contract::check(MemoryStorage::new);
}

#[test]
fn a_local_directory_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let next = std::cell::Cell::new(0);
    contract::check(|| {
        next.set(next.get() + 1);
        LocalStorage::open(directory.path().join(next.get().to_string())).unwrap()
    });
}

#[test]
fn pointers_keep_the_contract() {
    contract::check(|| Arc::new(MemoryStorage::new()));
    contract::check(|| Arc::new(MemoryStorage::new()) as Arc<dyn Storage>);
    contract::check(|| Box::new(MemoryStorage::new()) as Box<dyn Storage>);
}

#[test]
fn a_meter_keeps_the_contract() {
    contract::check(|| Meter::new(MemoryStorage::new()));
}

#[test]
fn local_copies_keep_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let next = std::cell::Cell::new(0);
    contract::check(|| {
        next.set(next.get() + 1);
        LocalCopies::new(MemoryStorage::new(), directory.path().join(next.get().to_string()), |_| true).unwrap()
    });
}

#[test]
fn a_deadline_keeps_the_contract() {
    contract::check(|| Deadline::new(MemoryStorage::new(), Duration::from_secs(600), Interrupt::new()));
}

#[test]
fn a_retry_keeps_the_contract() {
    contract::check(|| Retry::new(MemoryStorage::new(), RetryPolicy::default(), 1, |_: Duration| {}));
}

#[test]
fn faults_without_a_rule_or_switched_off_keep_the_contract() {
    contract::check(|| Faults::new(MemoryStorage::new(), FaultPlan::new(1)));
    contract::check(|| {
        let plan = FaultPlan::new(1);
        plan.add(FaultRule::new(Effect::FailBefore));
        plan.set_enabled(false);
        Faults::new(MemoryStorage::new(), plan)
    });
}

#[test]
fn a_part_of_a_storage_keeps_the_contract_and_sees_nothing_else() {
    let all = Arc::new(MemoryStorage::new());
    let next = std::cell::Cell::new(0);
    contract::check(|| {
        next.set(next.get() + 1);
        Within::new(Arc::clone(&all), ObjectName::new(format!("places/{}", next.get())).unwrap())
    });
    let (one, ten) = (ObjectName::new("places/1").unwrap(), ObjectName::new("places/10/x").unwrap());
    all.create(&ten, b"").unwrap();
    let listed = Within::new(Arc::clone(&all), one).list("").unwrap();
    assert!(listed.iter().all(|info| info.name.as_str() != "x"), "{listed:?}");
}

#[test]
fn retries_hide_unavailable_storage_from_the_contract() {
    for seed in 0..10 {
        contract::check(|| {
            let plan = FaultPlan::new(seed);
            plan.add(FaultRule::new(Effect::FailBefore).chance(300));
            plan.add(FaultRule::new(Effect::Full).on(Operation::Create).chance(100));
            Retry::new(Faults::new(MemoryStorage::new(), plan), patient(), seed, |_: Duration| {})
        });
    }
}
