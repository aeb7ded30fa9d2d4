//! Lists, union lists and broadcast maps of the subtasks.

use millpond_state::OperatorStates;
use millpond_state_reader::{Kind, ReaderError};
use serde_json::{Value, json};

use crate::support::{Job, OPERATOR};

fn job() -> Job {
    let mut job = Job::new(4);
    for subtask in 0..2u32 {
        let mut states = OperatorStates::new();
        let offsets = states.list::<(String, u64)>("offsets").unwrap();
        offsets.add(&mut states, (format!("part {subtask}"), 7)).unwrap();
        let all = states.union_list::<u32>("all").unwrap();
        all.add_all(&mut states, [subtask, 9]).unwrap();
        let rules = states.broadcast_map::<String, bool>("offsets").unwrap();
        rules.put(&mut states, "on".to_owned(), true).unwrap();
        job.operator_states.push(states);
    }
    job.checkpoint();
    job
}

fn lines(job: &Job, state: &str, kind: Option<Kind>) -> Vec<Value> {
    let reader = job.reader();
    let info = reader.state(OPERATOR, state, kind).unwrap();
    reader.entries(&info).unwrap().map(|entry| serde_json::to_value(entry.unwrap()).unwrap()).collect()
}

#[test]
fn os_05_every_subtask_and_both_states_of_one_name_are_shown() {
    let job = job();
    let expected = [
        json!({"subtask": 0, "index": 0, "value": ["part 0", 7]}),
        json!({"subtask": 1, "index": 0, "value": ["part 1", 7]}),
    ];
    assert_eq!(lines(&job, "offsets", Some(Kind::SplitList)), expected);
    let expected = [
        json!({"subtask": 0, "user_key": "on", "value": true}),
        json!({"subtask": 1, "user_key": "on", "value": true}),
    ];
    assert_eq!(lines(&job, "offsets", Some(Kind::Broadcast)), expected);
    let values: Vec<Value> = lines(&job, "all", None).into_iter().map(|line| line["value"].clone()).collect();
    assert_eq!(values, [json!(0), json!(9), json!(1), json!(9)]);
}

#[test]
fn an_unclear_or_unknown_name_is_answered_with_what_there_is() {
    let reader = job().reader();
    let several = reader.state(OPERATOR, "offsets", None).unwrap_err();
    assert!(matches!(&several, ReaderError::SeveralStates { kinds, .. } if *kinds == ["split-list", "broadcast"]));
    let unknown = reader.state(OPERATOR, "offset", None).unwrap_err().to_string();
    assert!(unknown.starts_with("operator \"per key\" has no state \"offset\", only "), "{unknown}");
    let unknown = reader.states(Some("other")).unwrap_err().to_string();
    assert_eq!(unknown, "the checkpoint has no operator \"other\", only \"per key\"");
    let info = reader.state(OPERATOR, "all", None).unwrap();
    let keyless = reader.get(&info, &json!(1), None).unwrap_err().to_string();
    assert_eq!(keyless, "state \"all\" of operator \"per key\" is union-list state and has no keys");
}
