use std::fmt::Debug;

use millpond_core::{Data, Epoch, ErrorKind, MaxParallelism};
use millpond_runs::{MemoryRun, RunReader, RunSettings, SectionInfo, merge_runs, write_runs};
use millpond_state::{
    AggregateFunction, AggregatingState, KeyedBackend, KeyedBackendControl, ListState, MapState, ReducingState,
    SliceProgress, StateError, ValueState,
};
use serde::{Deserialize, Serialize};

use crate::types::{Flight1, Flight2, Flight3, new, newest, old};

/// Keeps the last input.
struct Last<T>(std::marker::PhantomData<fn() -> T>);

impl<T: Data> AggregateFunction for Last<T> {
    type Input = T;
    type Accumulator = Vec<T>;
    type Output = Option<T>;

    fn create_accumulator(&self) -> Vec<T> {
        Vec::new()
    }
    fn add(&self, input: T, accumulator: &mut Vec<T>) {
        *accumulator = vec![input];
    }
    fn result(&self, accumulator: &Vec<T>) -> Option<T> {
        accumulator.last().cloned()
    }
    fn merge(&self, accumulator: Vec<T>, _: Vec<T>) -> Vec<T> {
        accumulator
    }
}

struct All<T> {
    value: ValueState<T>,
    list: ListState<T>,
    map: MapState<u8, T>,
    reducing: ReducingState<T>,
    aggregating: AggregatingState<Last<T>>,
}

fn declare<T: Data>(backend: &mut KeyedBackend<u16>) -> Result<All<T>, StateError> {
    let mut declarer = backend.declarer();
    Ok(All {
        value: declarer.value("value")?,
        list: declarer.list("list")?,
        map: declarer.map("map")?,
        reducing: declarer.reducing("reducing", |_, new| new)?,
        aggregating: declarer.aggregating("aggregating", Last(std::marker::PhantomData))?,
    })
}

/// The runs of a job over the years.
#[derive(Clone, Default)]
struct Runs(Vec<MemoryRun>);

impl Runs {
    fn readers(&self) -> Vec<RunReader<MemoryRun>> {
        self.0.iter().map(|run| RunReader::open(run.clone()).unwrap()).collect()
    }

    fn sections(&self) -> Vec<SectionInfo> {
        let mut infos = Vec::new();
        for reader in self.readers() {
            for section in reader.sections() {
                infos.extend(
                    section
                        .descriptions
                        .iter()
                        .filter(|written| written.rows > 0)
                        .map(|written| SectionInfo { name: section.name.clone(), description: written.text.clone() }),
                );
            }
        }
        infos
    }

    fn merged(&self) -> Runs {
        let mut merged = Runs::default();
        merge_runs::<_, millpond_runs::RunError>(&self.readers(), true, &RunSettings::default(), |run| {
            merged.0.push(MemoryRun::new("merged".to_owned(), run.bytes));
            Ok(())
        })
        .unwrap();
        merged
    }
}

fn start<T: Data>(runs: &Runs) -> Result<(KeyedBackend<u16>, All<T>), StateError> {
    let max = MaxParallelism::new(64).unwrap();
    let mut backend = KeyedBackend::new(max, max.all());
    backend.set_stored_sections(runs.sections());
    let all = declare::<T>(&mut backend)?;
    for reader in runs.readers() {
        for section in reader.sections() {
            let mut versions = Vec::new();
            for written in &section.descriptions {
                versions.push(backend.row_version(&section.name, &written.text)?);
            }
            let mut cursor = reader.cursor(&section.name, max.all());
            while cursor.advance().unwrap() {
                let row = cursor.current().unwrap();
                backend.restore_row(versions[row.description as usize], row.group, row.key, row.value)?;
            }
        }
    }
    backend.finish_restore()?;
    Ok((backend, all))
}

fn fill<T: Data>(backend: &mut KeyedBackend<u16>, all: &All<T>, keys: std::ops::Range<u16>, make: fn(u16) -> T) {
    for key in keys {
        backend.set_current_key_of(key).unwrap();
        let states = backend.states_mut();
        all.value.set(states, make(key)).unwrap();
        all.list.update(states, (0..key + 1).map(make)).unwrap();
        all.map.put_all(states, (0..3).map(|entry| (entry, make(key + u16::from(entry))))).unwrap();
        all.reducing.add(states, make(key)).unwrap();
        all.aggregating.add(states, make(key)).unwrap();
    }
}

fn check<T: Data + PartialEq + Debug>(
    backend: &mut KeyedBackend<u16>,
    all: &All<T>,
    keys: std::ops::Range<u16>,
    make: fn(u16) -> T,
) {
    for key in keys {
        backend.set_current_key_of(key).unwrap();
        let states = backend.states_mut();
        assert_eq!(all.value.get(states).unwrap(), Some(&make(key)));
        assert_eq!(all.list.get(states).unwrap(), (0..key + 1).map(make).collect::<Vec<_>>());
        for entry in 0..3 {
            assert_eq!(all.map.get(states, &entry).unwrap(), Some(&make(key + u16::from(entry))));
        }
        assert_eq!(all.reducing.get(states).unwrap(), Some(&make(key)));
        assert_eq!(all.aggregating.get(states).unwrap(), Some(Some(make(key))));
    }
}

fn snapshot(backend: &mut KeyedBackend<u16>, epoch: u64, runs: &mut Runs) {
    backend.freeze(Epoch(epoch)).unwrap();
    while let SliceProgress::Done { rows, .. } = backend.serialise_slice(1 << 20).unwrap() {
        for run in write_runs(rows, &backend.sections(), &RunSettings::default()).unwrap() {
            runs.0.push(MemoryRun::new(format!("run {epoch}"), run.bytes));
        }
    }
}

#[test]
fn se_03_se_05_se_08_every_kind_of_state_is_read_by_the_type_of_today() {
    let mut runs = Runs::default();
    let (mut backend, all) = start::<Flight1>(&runs).unwrap();
    fill(&mut backend, &all, 0..200, old);
    snapshot(&mut backend, 1, &mut runs);
    let (mut backend, all) = start::<Flight2>(&runs).unwrap();
    check(&mut backend, &all, 0..200, new);
}

#[test]
fn rows_of_three_schemas_live_side_by_side_and_through_merges() {
    let mut runs = Runs::default();
    let (mut backend, all) = start::<Flight1>(&runs).unwrap();
    fill(&mut backend, &all, 0..60, old);
    snapshot(&mut backend, 1, &mut runs);
    let (mut backend, all) = start::<Flight2>(&runs).unwrap();
    fill(&mut backend, &all, 40..100, new);
    snapshot(&mut backend, 2, &mut runs);
    for runs in [runs.merged(), runs.clone()] {
        let (mut backend, all) = start::<Flight3>(&runs).unwrap();
        check(&mut backend, &all, 0..100, newest);
        fill(&mut backend, &all, 80..120, newest);
        let mut runs = runs;
        snapshot(&mut backend, 3, &mut runs);
        for runs in [runs.merged(), runs.merged().merged(), runs] {
            let (mut backend, all) = start::<Flight3>(&runs).unwrap();
            check(&mut backend, &all, 0..120, newest);
        }
    }
}

#[test]
fn se_16_what_is_written_after_a_migration_has_the_new_schema_only() {
    let mut runs = Runs::default();
    let (mut backend, all) = start::<Flight1>(&runs).unwrap();
    fill(&mut backend, &all, 0..10, old);
    snapshot(&mut backend, 1, &mut runs);
    let (mut backend, all) = start::<Flight2>(&runs).unwrap();
    fill(&mut backend, &all, 0..10, new);
    let mut after = Runs::default();
    snapshot(&mut backend, 2, &mut after);
    assert!(after.sections().iter().all(|section| section.description.contains("airline")));
    runs.0.extend(after.0);
    let merged = runs.merged();
    assert!(merged.sections().iter().all(|section| section.description.contains("airline")), "nothing old is left");
    let (mut backend, all) = start::<Flight2>(&merged).unwrap();
    check(&mut backend, &all, 0..10, new);
}

/// What declaring a value of `Now` says over stored values of `Stored`.
fn refusal<Stored: Data, Now: Data>(stored: Stored) -> String {
    let max = MaxParallelism::new(64).unwrap();
    let mut backend = KeyedBackend::<u16>::new(max, max.all());
    let value = backend.declarer().value::<Stored>("flight").unwrap();
    backend.set_current_key_of(1).unwrap();
    value.set(backend.states_mut(), stored).unwrap();
    let mut next = KeyedBackend::<u16>::new(max, max.all());
    next.set_stored_sections(backend.sections());
    let error = next.declarer().value::<Now>("flight").map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    error.to_string()
}

#[test]
fn se_01_se_04_a_change_that_loses_is_refused_with_state_field_and_both_types() {
    #[derive(Clone, Serialize, Deserialize)]
    struct Delay<T> {
        minutes: T,
    }
    #[derive(Clone, Serialize, Deserialize)]
    struct Renamed {
        duration: u32,
    }
    #[derive(Clone, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Strict {}
    #[derive(Clone, Serialize, Deserialize)]
    enum Two {
        A,
        B,
    }
    #[derive(Clone, Serialize, Deserialize)]
    enum One {
        A,
    }
    let delay = || Delay { minutes: 3u32 };
    let of = "state \"flight\": the stored value cannot be read: at ";
    assert_eq!(refusal::<_, Delay<u16>>(delay()), format!("{of}value.minutes: stored as u32, now u16"));
    assert_eq!(refusal::<_, Delay<i32>>(delay()), format!("{of}value.minutes: stored as u32, now i32"));
    assert_eq!(refusal::<_, Delay<f64>>(delay()), format!("{of}value.minutes: stored as u32, now f64"));
    assert_eq!(refusal::<_, Delay<String>>(delay()), format!("{of}value.minutes: stored as u32, now str"));
    assert_eq!(refusal::<_, Delay<(u32, u32)>>(delay()), format!("{of}value.minutes: stored as u32, now tuple of 2"));
    let optional = Delay { minutes: Some(3u32) };
    assert_eq!(refusal::<_, Delay<u32>>(optional), format!("{of}value.minutes: stored as option of u32, now u32"));
    let missing = format!("{of}value.duration: stored as a struct without this field, now a field without default");
    assert_eq!(refusal::<_, Renamed>(delay()), missing);
    assert!(refusal::<_, Strict>(delay()).starts_with(&format!("{of}value.minutes: ")));
    let _ = Two::A;
    assert!(refusal::<_, One>(Two::B).starts_with(&format!("{of}value::B: ")));
    assert!(
        refusal::<_, Delay<One>>(Delay { minutes: vec![Two::B] }).contains("value.minutes: stored as list of enum")
    );
}

#[test]
fn se_06_se_08_keys_do_not_change() {
    let max = MaxParallelism::new(64).unwrap();
    let mut backend = KeyedBackend::<u16>::new(max, max.all());
    backend.declarer().value::<u8>("count").unwrap();
    backend.declarer().map::<u32, u8>("map").unwrap();
    let mut other_key = KeyedBackend::<u32>::new(max, max.all());
    other_key.set_stored_sections(backend.sections());
    let error = other_key.declarer().value::<u8>("count").map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "state \"count\": the stored key cannot be read: at value: stored as u16, now u32");
    let mut other_user_key = KeyedBackend::<u16>::new(max, max.all());
    other_user_key.set_stored_sections(backend.sections());
    let error = other_user_key.declarer().map::<u64, u8>("map").map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("the stored user key cannot be read: at value: stored as u32, now u64"));
    assert!(other_user_key.declarer().map::<u32, u16>("map").is_ok());
}

#[test]
fn se_17_a_state_does_not_become_one_of_another_kind() {
    let max = MaxParallelism::new(64).unwrap();
    let mut backend = KeyedBackend::<u16>::new(max, max.all());
    backend.declarer().value::<u8>("count").unwrap();
    let mut next = KeyedBackend::<u16>::new(max, max.all());
    next.set_stored_sections(backend.sections());
    assert!(matches!(next.declarer().list::<u8>("count"), Err(StateError::KindChanged { .. })));
}

#[test]
fn a_description_that_only_a_run_knows_is_checked_before_its_rows() {
    let mut runs = Runs::default();
    let (mut backend, all) = start::<Flight1>(&runs).unwrap();
    fill(&mut backend, &all, 0..3, old);
    snapshot(&mut backend, 1, &mut runs);
    let max = MaxParallelism::new(64).unwrap();
    let mut next = KeyedBackend::<u16>::new(max, max.all());
    declare::<u64>(&mut next).unwrap();
    let sections = runs.sections();
    let written = sections.iter().find(|section| section.name == "value").unwrap();
    let error = next.row_version("value", &written.description).unwrap_err();
    assert!(matches!(error, StateError::SchemaChanged { .. }), "{error}");
}
