//! `#[derive(State)]`: what it makes of types, and that types may change between two runs.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use millpond::prelude::*;
use millpond::testing::{TestDriver, TestFlow, TestInput, TestOutput, TestStream, check_released_schemas};
use millpond::{Schema, StateType};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, State)]
#[state(key)]
enum Airport {
    Iata(String),
    Unknown,
}

#[derive(Clone, Debug, PartialEq, State)]
struct Pair<T>(T, u32);

#[derive(Clone, Debug, PartialEq, State)]
struct Trip {
    airports: BTreeMap<Airport, Vec<Pair<f64>>>,
    next: Option<Box<Trip>>,
}

#[derive(Clone, Debug, PartialEq, State)]
struct Marker;

fn is_state<T: StateType + std::fmt::Debug>(value: &T) -> T {
    let bytes = millpond_core::codec::encode(value).unwrap();
    millpond_core::codec::decode(&bytes).unwrap()
}

#[test]
fn derived_types_come_back() {
    let end = Trip { airports: BTreeMap::new(), next: None };
    let airports = BTreeMap::from([(Airport::Iata("JFK".into()), vec![Pair(0.5, 7)]), (Airport::Unknown, vec![])]);
    let trip = Trip { airports, next: Some(Box::new(end)) };
    assert_eq!(is_state(&trip), trip);
    assert_eq!(is_state(&Marker), Marker);
    assert!(matches!(Schema::of::<Trip>(), Schema::Struct(_)));
}

mod first {
    use millpond::prelude::*;

    #[derive(Clone, Debug, PartialEq, State)]
    pub(super) struct Total {
        pub(super) carrier: String,
        pub(super) flights: u16,
    }
}

mod second {
    use millpond::prelude::*;

    #[derive(Clone, Debug, PartialEq, State)]
    pub(super) struct Total {
        pub(super) flights: u64,
        #[state(alias = "carrier")]
        pub(super) airline: String,
        #[state(default = "40 + 2")]
        pub(super) delay: i32,
        #[state(default)]
        pub(super) airports: Vec<String>,
    }
}

#[test]
fn se_03_a_job_starts_with_a_changed_type_and_goes_on() {
    let (names, output) = (TestInput::new(), TestOutput::new());
    let old = |flow: &mut Dataflow| {
        let keyed = flow.test_input("names", &names).key_by(|name: &String| name.clone());
        let empty = first::Total { carrier: String::new(), flights: 0 };
        let add = |total: &mut first::Total, name: String| {
            total.carrier = name;
            total.flights += 1;
        };
        keyed.fold("totals", empty, add).map(|(_, total)| total.flights.to_string()).test_output("out", &output);
        Ok(())
    };
    let mut driver = TestDriver::build(old).unwrap();
    ["UA", "AA", "UA"].iter().for_each(|name| names.push((*name).to_owned()));
    driver.run().unwrap();
    let snapshot = driver.checkpoint().unwrap();
    driver.kill();

    let new = |flow: &mut Dataflow| {
        let keyed = flow.test_input("names", &names).key_by(|name: &String| name.clone());
        let empty = second::Total { flights: 0, airline: "new".into(), delay: 0, airports: Vec::new() };
        let add = |total: &mut second::Total, _: String| total.flights += 1;
        keyed.fold("totals", empty, add).map(|(_, total)| total.flights.to_string()).test_output("out", &output);
        Ok(())
    };
    let mut driver = TestDriver::builder().parallelism(3).restore(new, &snapshot).unwrap();
    names.push("UA".to_owned());
    driver.run().unwrap();
    let total = driver.keyed_state::<String, second::Total>("totals", "accumulator", &"UA".to_owned()).unwrap();
    let expected = second::Total { flights: 3, airline: "UA".into(), delay: 42, airports: Vec::new() };
    assert_eq!(total, Some(expected));
}

#[test]
fn released_schemas_are_watched() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("total.json");
    let released = vec![Schema::of::<first::Total>(), Schema::of::<second::Total>()];
    std::fs::write(&file, serde_json::to_vec(&released).unwrap()).unwrap();
    assert_eq!(check_released_schemas::<second::Total>(&file), Ok(()));
    let changed = check_released_schemas::<first::Total>(&file).unwrap_err();
    assert!(changed.contains("schema 2 of"), "{changed}");
    std::fs::write(&file, serde_json::to_vec(&released[..1]).unwrap()).unwrap();
    let unknown = check_released_schemas::<second::Total>(&file).unwrap_err();
    assert!(unknown.contains("MILLPOND_UPDATE_SCHEMAS=1"), "{unknown}");
    assert!(check_released_schemas::<u64>(&folder.path().join("none.json")).is_err());
}

#[test]
fn the_schemas_of_these_types_are_released() {
    millpond::assert_schema_unchanged!(second::Total, "tests/schemas/total.json");
}
