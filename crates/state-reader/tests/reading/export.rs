//! Files that other programs read.

use millpond_state_reader::{Format, export};

use crate::support::{Job, OPERATOR, Seen};

fn exported(format: Format, state: &str) -> Vec<u8> {
    let mut job = Job::new(4);
    let (seen, map) = (job.states.seen, job.states.map);
    for (key, delay) in [("a", Some(-3)), ("b, \"c\"", None)] {
        let value = Seen { times: 1 << 60, delay, last: format!("{key}\n") };
        seen.set(job.at(key).states_mut(), value).unwrap();
        map.put(job.at(key).states_mut(), "x".to_owned(), 7).unwrap();
    }
    job.checkpoint();
    let reader = job.reader();
    let info = reader.state(OPERATOR, state, None).unwrap();
    let mut bytes = Vec::new();
    assert_eq!(export(&info, reader.entries(&info).unwrap(), format, &mut bytes).unwrap(), 2);
    bytes
}

fn sorted_lines(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = String::from_utf8(bytes.to_vec()).unwrap().lines().map(str::to_owned).collect();
    lines[1..].sort();
    lines
}

#[test]
fn csv_has_a_column_per_field_and_quotes_what_must_be_quoted() {
    let text = String::from_utf8(exported(Format::Csv, "seen")).unwrap();
    assert!(text.starts_with("key_group,key,value.times,value.delay,value.last\n"), "{text}");
    assert!(text.contains(",a,1152921504606846976,-3,\"a\n\"\n"), "{text}");
    assert!(text.contains(",\"b, \"\"c\"\"\",1152921504606846976,,\"b, \"\"c\"\"\n\"\n"), "{text}");
    assert_eq!(sorted_lines(&exported(Format::Csv, "map"))[0], "key_group,key,user_key,value");
}

#[test]
fn json_lines_are_the_entries() {
    let lines = sorted_lines(&exported(Format::JsonLines, "map"));
    for line in &lines {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["user_key"], &line["value"]), (&"x".into(), &7.into()));
    }
    assert_eq!(lines.len(), 2);
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_begins_and_ends_with_its_mark() {
    let bytes = exported(Format::Parquet, "seen");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
}

#[cfg(not(feature = "parquet"))]
#[test]
fn without_the_feature_parquet_is_refused() {
    let job = Job::new(4);
    let refused = export(
        &millpond_state_reader::StateInfo {
            operator: String::new(),
            state: String::new(),
            kind: millpond_state_reader::Kind::Value,
            key: None,
            user_key: None,
            value: millpond_core::Schema::of::<u8>(),
        },
        std::iter::empty(),
        Format::Parquet,
        Vec::new(),
    );
    assert!(refused.unwrap_err().to_string().contains("without parquet"));
    drop(job);
}
