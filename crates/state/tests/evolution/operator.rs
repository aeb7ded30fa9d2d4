use millpond_state::{OperatorStateSnapshot, OperatorStates, StateError};

use crate::types::{Flight1, Flight2, Flight3, new, newest, old};

#[test]
fn se_09_lists_union_lists_and_broadcast_values_are_read_by_the_type_of_today() {
    let mut states = OperatorStates::new();
    let list = states.list::<Flight1>("list").unwrap();
    let union = states.union_list::<Flight1>("union").unwrap();
    let map = states.broadcast_map::<u16, Flight1>("map").unwrap();
    for number in 0..20 {
        list.add(&mut states, old(number)).unwrap();
        union.add(&mut states, old(number)).unwrap();
        map.put(&mut states, number, old(number)).unwrap();
    }
    let stored = states.freeze().encode();

    let mut states = OperatorStates::restore([OperatorStateSnapshot::decode(&stored).unwrap()]);
    let list = states.list::<Flight2>("list").unwrap();
    states.union_list::<Flight2>("union").unwrap();
    let map = states.broadcast_map::<u16, Flight2>("map").unwrap();
    assert_eq!(list.get(&states).unwrap(), (0..20).map(new).collect::<Vec<_>>());
    assert_eq!(map.get(&states, &3).unwrap(), Some(&new(3)));
    let stored = states.freeze().encode();

    // What a migrated state is saved as is of today: the next type reads it without knowing the first.
    let mut states = OperatorStates::restore([OperatorStateSnapshot::decode(&stored).unwrap()]);
    let union = states.union_list::<Flight3>("union").unwrap();
    assert_eq!(union.get(&states).unwrap(), (0..20).map(newest).collect::<Vec<_>>());
    let map = states.broadcast_map::<u16, Flight3>("map").unwrap();
    assert_eq!(map.get(&states, &3).unwrap(), Some(&newest(3)));
}

#[test]
fn os_17_the_first_restored_state_that_holds_something_and_is_not_declared_is_named() {
    let mut states = OperatorStates::new();
    states.list::<u64>("empty").unwrap();
    let list = states.list::<u64>("list").unwrap();
    let map = states.broadcast_map::<u16, u64>("map").unwrap();
    list.add(&mut states, 1).unwrap();
    map.put(&mut states, 1, 1).unwrap();
    assert_eq!(states.first_undeclared(), None);
    let mut states = OperatorStates::restore([states.freeze()]);
    assert_eq!(states.first_undeclared(), Some("list"));
    states.list::<u64>("list").unwrap();
    assert_eq!(states.first_undeclared(), Some("map"));
    states.broadcast_map::<u16, u64>("map").unwrap();
    assert_eq!(states.first_undeclared(), None);
}

#[test]
fn a_refused_operator_state_is_not_declared_and_keeps_what_it_holds() {
    let mut states = OperatorStates::new();
    let list = states.list::<u64>("list").unwrap();
    states.broadcast_map::<u16, u64>("map").unwrap();
    list.add(&mut states, 1 << 40).unwrap();
    let mut states = OperatorStates::restore([states.freeze()]);
    let error = states.list::<u32>("list").map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "state \"list\": the stored value cannot be read: at value: stored as u64, now u32");
    assert!(matches!(states.broadcast_map::<u32, u64>("map"), Err(StateError::SchemaChanged { part: "key", .. })));
    let list = states.list::<u128>("list").unwrap();
    assert_eq!(list.get(&states).unwrap(), [1 << 40]);
}
