//! What becomes of a log after every way in which a call of its target may end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use millpond_core::error::Classified;
use millpond_core::{Epoch, ErrorKind, UserError, UserResult, codec};
use millpond_dataflow::AttemptEnd;

use super::claim::{Claimed, apply_restored};
use super::log::{OpenLog, WriterLog, within};
use super::{EpochLog, LoggedError, LoggedTarget, LostMarker};

/// A target in memory whose calls fail as it is told.
#[derive(Clone, Default)]
struct Memory {
    inner: Rc<RefCell<Inner>>,
}

#[derive(Default)]
struct Inner {
    writer: String,
    markers: BTreeMap<String, Epoch>,
    visible: Vec<String>,
    transactions: u64,
    fail_before: u64,
    fail_after: u64,
    /// The transaction with this number fails after it had its effect.
    fail_after_transactions: Option<u64>,
}

fn fails(left: &mut u64) -> UserResult {
    if *left == 0 {
        return Ok(());
    }
    *left -= 1;
    Err("the connection broke".into())
}

impl LoggedTarget for Memory {
    fn claim(&mut self, writer: &str) -> UserResult<Option<Epoch>> {
        let mut inner = self.inner.borrow_mut();
        writer.clone_into(&mut inner.writer);
        Ok(inner.markers.get(writer).copied())
    }

    fn apply(&mut self, epoch: Epoch, logs: &[EpochLog]) -> UserResult {
        let mut inner = self.inner.borrow_mut();
        fails(&mut inner.fail_before)?;
        let writer = inner.writer.clone();
        inner.transactions += 1;
        inner.markers.insert(writer, epoch);
        for entry in logs.iter().flat_map(EpochLog::entries) {
            inner.visible.push(String::from_utf8(entry.to_vec()).unwrap());
        }
        let transactions = inner.transactions;
        if inner.fail_after_transactions.take_if(|number| *number == transactions).is_some() {
            inner.fail_after = 1;
        }
        fails(&mut inner.fail_after)
    }
}

fn log(epoch: u64, entries: &[&str]) -> EpochLog {
    let mut open = OpenLog::default();
    for entry in entries {
        open.add(|bytes| {
            bytes.extend_from_slice(entry.as_bytes());
            Ok::<(), UserError>(())
        })
        .unwrap();
    }
    open.close(Epoch(epoch)).unwrap()
}

fn claimed(memory: &Memory, writer: &str) -> Claimed<Memory> {
    Claimed::new(memory.clone(), writer.to_owned(), AttemptEnd::default())
}

fn begun(memory: &Memory, writer: &str) -> Claimed<Memory> {
    let mut claimed = claimed(memory, writer);
    claimed.begin().unwrap();
    claimed
}

fn lost(error: &UserError) -> bool {
    let classified = error.downcast_ref::<Classified>().unwrap();
    assert_eq!(classified.kind(), ErrorKind::Invalid);
    matches!(classified.get_ref().downcast_ref(), Some(LoggedError::MarkerLost { entries: 2, .. }))
}

#[test]
fn a_log_is_applied_once_whether_the_call_failed_before_or_after_it_had_its_effect() {
    let memory = Memory::default();
    let mut claimed = begun(&memory, "w");
    let logs = [log(1, &["a", "b"]), log(3, &["c"])];
    memory.inner.borrow_mut().fail_before = 1;
    assert!(claimed.apply(&logs[..1]).is_err());
    memory.inner.borrow_mut().fail_after = 1;
    assert!(claimed.apply(&logs[..1]).is_err());
    claimed.apply(&logs[..1]).unwrap();
    memory.inner.borrow_mut().fail_after = 1;
    assert!(claimed.apply(&logs).is_err());
    claimed.apply(&logs).unwrap();
    let inner = memory.inner.borrow();
    assert_eq!((inner.visible.join(""), inner.transactions), ("abc".to_owned(), 3));
}

#[test]
fn several_epochs_are_applied_in_one_transaction() {
    let memory = Memory::default();
    begun(&memory, "w").apply(&[log(1, &["a"]), log(2, &["b"]), log(5, &["c"])]).unwrap();
    let inner = memory.inner.borrow();
    assert_eq!((inner.visible.join(""), inner.transactions, inner.markers["w"]), ("abc".to_owned(), 2, Epoch(5)));
}

#[test]
fn after_a_long_outage_epochs_go_into_transactions_of_bounded_size_and_in_order() {
    let memory = Memory::default();
    begun(&memory, "w");
    let epochs: Vec<EpochLog> = (1..=5).map(|epoch| log(epoch, &["ab"])).chain([log(6, &["a long one"])]).collect();
    assert_eq!([0, 3, 6, 7, 15, 16, 100].map(|bytes| within(&epochs, bytes)), [1, 1, 2, 2, 5, 5, 6]);
    let logs = WriterLog { writer: "w".to_owned(), epochs };
    // The second transaction fails after it had its effect; what it held is not there twice.
    memory.inner.borrow_mut().fail_after_transactions = Some(3);
    for failed in [true, false] {
        let result = apply_restored(memory.clone(), &logs, (LostMarker::Fail, 6), &AttemptEnd::default()).1;
        assert_eq!(result.is_err(), failed);
    }
    let inner = memory.inner.borrow();
    assert_eq!((inner.visible.join(" "), inner.markers["w"]), ("ab ab ab ab ab a long one".to_owned(), Epoch(6)));
    // The first marker, two epochs each, one, and the one that is longer than the bound.
    assert_eq!(inner.transactions, 5);
}

#[test]
fn a_marker_is_renewed_as_it_is() {
    let memory = Memory::default();
    let mut claimed = begun(&memory, "w");
    claimed.apply(&[log(4, &["a"])]).unwrap();
    memory.inner.borrow_mut().fail_after = 1;
    assert!(claimed.renew().is_err());
    claimed.renew().unwrap();
    let inner = memory.inner.borrow();
    assert_eq!((inner.visible.join(""), inner.markers["w"], inner.transactions), ("a".to_owned(), Epoch(4), 4));
}

#[test]
fn tp_06_of_a_restored_log_only_what_its_marker_does_not_cover_is_applied() {
    let memory = Memory::default();
    begun(&memory, "old").apply(&[log(1, &["a"])]).unwrap();
    let logs = WriterLog { writer: "old".to_owned(), epochs: vec![log(1, &["a"]), log(2, &["b"])] };
    for _ in 0..2 {
        apply_restored(memory.clone(), &logs, (LostMarker::Fail, usize::MAX), &AttemptEnd::default()).1.unwrap();
    }
    assert_eq!(memory.inner.borrow().visible, ["a", "b"]);
}

#[test]
fn a_marker_that_is_gone_is_noticed_and_the_setting_says_what_happens() {
    let logs = WriterLog { writer: "w".to_owned(), epochs: vec![log(1, &["a", "b"])] };
    for (setting, visible) in [(LostMarker::Fail, ""), (LostMarker::Drop, ""), (LostMarker::Apply, "ab")] {
        let memory = Memory::default();
        let result = apply_restored(memory.clone(), &logs, (setting, usize::MAX), &AttemptEnd::default()).1;
        assert_eq!(result.as_ref().is_err_and(lost), setting == LostMarker::Fail, "{setting:?}");
        assert_eq!(memory.inner.borrow().visible.join(""), visible, "{setting:?}");
    }
}

#[test]
fn a_name_that_is_not_new_is_refused() {
    let memory = Memory::default();
    begun(&memory, "w").apply(&[log(1, &["a"])]).unwrap();
    let error = claimed(&memory, "w").begin().unwrap_err();
    assert_eq!(error.to_string(), "writer w is not new: its marker names epoch 1");
}

#[test]
fn the_stored_form_of_a_log_stays_as_it_is() {
    let log = WriterLog { writer: "w".to_owned(), epochs: vec![log(7, &["ab", ""])] };
    let bytes = codec::encode(&log).unwrap();
    assert_eq!(bytes, [1, b'w', 1, 7, 2, 4, 2, b'a', b'b', 0]);
    assert_eq!(codec::decode::<WriterLog>(&bytes).unwrap(), log);
    let entries: Vec<&[u8]> = log.epochs[0].entries().collect();
    assert_eq!((entries, log.epochs[0].len(), log.epochs[0].bytes()), (vec![&b"ab"[..], b""], 2, 4));
}
