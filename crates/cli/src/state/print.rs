//! The lines and tables that the command `state` prints.

use std::io::{self, Write};

use millpond_core::KeyGroup;
use millpond_state_reader::{Difference, Kind, StateCount, StateSummary, Top};
use serde::Serialize;
use serde_json::Value;

use crate::units::bytes_words;

/// Whose state a line is about.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Named<'a> {
    pub(super) operator: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state: Option<&'a str>,
}

/// A line of `diff`.
#[derive(Debug, Serialize)]
pub(super) struct DiffLine<'a> {
    #[serde(flatten)]
    pub(super) named: Named<'a>,
    #[serde(flatten)]
    pub(super) difference: Difference,
}

/// A line of `top`. What does not apply to its measure is left out.
#[derive(Debug, Serialize)]
pub(super) struct TopLine<'a> {
    /// `state`, `key_bytes`, `key_entries`, `key_group` or `operator`.
    measure: &'static str,
    #[serde(flatten)]
    named: Named<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<Kind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_group: Option<KeyGroup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<u64>,
    entries: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_group_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_group_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skew: Option<f64>,
}

impl<'a> TopLine<'a> {
    fn new(measure: &'static str, named: Named<'a>, entries: u64, bytes: u64) -> Self {
        TopLine {
            measure,
            named,
            kind: None,
            key_group: None,
            key: None,
            keys: None,
            entries,
            bytes,
            mean_group_bytes: None,
            max_group_bytes: None,
            skew: None,
        }
    }

    /// The line of a state that has no keys.
    pub(super) fn subtasks(named: Named<'a>, count: &StateCount) -> Self {
        TopLine { kind: Some(count.kind), ..TopLine::new("state", named, count.entries, count.bytes) }
    }

    /// All lines of a keyed state.
    pub(super) fn all(named: Named<'a>, top: &Top) -> Vec<Self> {
        let state = &top.state;
        let mut lines = vec![TopLine {
            kind: Some(state.kind),
            keys: Some(state.keys),
            mean_group_bytes: Some(state.mean_group_bytes),
            max_group_bytes: Some(state.max_group_bytes),
            skew: Some(state.skew),
            ..TopLine::new("state", named, state.entries, state.bytes)
        }];
        for (measure, keys) in [("key_bytes", &top.by_bytes), ("key_entries", &top.by_entries)] {
            lines.extend(keys.iter().map(|key| TopLine {
                key_group: Some(key.key_group),
                key: Some(key.key.clone()),
                ..TopLine::new(measure, named, key.entries, key.bytes)
            }));
        }
        lines.extend(top.groups.iter().map(|group| TopLine {
            key_group: Some(group.key_group),
            keys: Some(group.keys),
            ..TopLine::new("key_group", named, group.entries, group.bytes)
        }));
        lines
    }
}

/// Adds up the states of one operator after the other.
#[derive(Debug, Default)]
pub(super) struct OperatorTotal {
    name: Option<String>,
    keys: u64,
    entries: u64,
    bytes: u64,
}

/// The line of an operator.
#[derive(Debug, Serialize)]
pub(super) struct OperatorLine {
    measure: &'static str,
    operator: String,
    keys: u64,
    entries: u64,
    bytes: u64,
}

impl OperatorTotal {
    pub(super) fn name(&self) -> Option<&String> {
        self.name.as_ref()
    }

    pub(super) fn add(&mut self, operator: &str, keys: u64, entries: u64, bytes: u64) {
        self.name.get_or_insert_with(|| operator.to_owned());
        self.keys += keys;
        self.entries += entries;
        self.bytes += bytes;
    }

    /// The total, if anything was added; begins anew.
    pub(super) fn finish(&mut self) -> Option<OperatorLine> {
        let OperatorTotal { name, keys, entries, bytes } = std::mem::take(self);
        name.map(|operator| OperatorLine { measure: "operator", operator, keys, entries, bytes })
    }
}

/// The states as a table.
#[must_use]
pub(super) fn table(summaries: &[StateSummary]) -> String {
    let head = ["OPERATOR", "STATE", "KIND", "ROWS", "TOMBSTONES", "STORED", "RAW", "RUNS"].map(str::to_owned);
    let rows = summaries.iter().map(|summary| {
        [
            summary.operator.clone(),
            summary.state.clone(),
            summary.kind.to_string(),
            summary.rows.to_string(),
            summary.tombstones.to_string(),
            bytes_words(summary.bytes),
            bytes_words(summary.raw_bytes),
            summary.runs.to_string(),
        ]
    });
    let rows: Vec<[String; 8]> = std::iter::once(head).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..8).map(width).collect();
    let line = |row: &[String; 8]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0..=2 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Hands bytes on to a writer that cannot be given away.
pub(super) struct Pass<'a>(&'a mut (dyn Write + Send + 'a));

impl<'a> Pass<'a> {
    pub(super) fn new(out: &'a mut (dyn Write + Send + 'a)) -> Self {
        Pass(out)
    }
}

impl Write for Pass<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
