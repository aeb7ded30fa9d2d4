use millpond_core::Schema;
use millpond_state_reader::{Kind, StateInfo, StateSummary};
use serde_json::json;

use super::{json, print, schema_text};

#[test]
fn what_is_no_json_is_a_string() {
    assert_eq!(json("17"), json!(17));
    assert_eq!(json("[\"AA\",1]"), json!(["AA", 1]));
    assert_eq!(json("N725MQ"), json!("N725MQ"));
    assert_eq!(json("a b"), json!("a b"));
}

#[test]
fn schemas_are_shown_field_by_field() {
    let info = StateInfo {
        operator: "delays".to_owned(),
        state: "worst".to_owned(),
        kind: Kind::Map,
        key: Some(Schema::of::<(String, u8)>()),
        user_key: Some(Schema::of::<u64>()),
        value: Schema::Struct(vec![
            ("minutes".to_owned(), Schema::of::<Option<i32>>()),
            ("seen".to_owned(), Schema::of::<Vec<(u16, String)>>()),
        ]),
    };
    let expected =
        "delays / worst: map\n  key: (str, u8)\n  user key: u64\n  value\n    minutes: i32?\n    seen: [(u16, str)]\n";
    assert_eq!(schema_text::describe(&[info]), expected);
}

#[test]
fn a_table_is_aligned() {
    let summary = StateSummary {
        operator: "délais".to_owned(),
        state: "s".to_owned(),
        kind: Kind::Value,
        rows: 12,
        tombstones: 0,
        bytes: 2_000,
        raw_bytes: 4_000,
        runs: 1,
    };
    let expected = "OPERATOR  STATE  KIND   ROWS  TOMBSTONES  STORED     RAW  RUNS\n\
                    délais    s      value    12           0  2.0 kB  4.0 kB     1\n";
    assert_eq!(print::table(&[summary]), expected);
}
