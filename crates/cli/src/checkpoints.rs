//! The command `checkpoints`: what the job can restart from.
//!
//! Reads manifests and lists objects, changes nothing, and may run beside the job.

use std::collections::{BTreeSet, HashSet};

use millpond_checkpoint::{Blob, CheckpointError, Entry, History, Manifest};
use millpond_storage::{ObjectName, Storage};
use serde::Serialize;

use crate::inspect::missing;
use crate::units::{bytes_words, duration_words, time_text};

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    /// The manifest.
    pub(crate) object: String,
    /// What it says, or why it cannot be read.
    #[serde(flatten)]
    pub(crate) content: Content,
}

/// What a manifest says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Content {
    /// A checkpoint.
    Checkpoint(Summary),
    /// Why it cannot be read.
    Damaged(String),
}

/// A checkpoint in a few numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    /// The epoch.
    pub(crate) epoch: u64,
    /// The execution that took it.
    pub(crate) attempt: u64,
    /// When it was triggered, in milliseconds since 1970 UTC.
    pub(crate) created_ms: i64,
    /// From trigger to the last acknowledgement, in milliseconds.
    pub(crate) duration_ms: u64,
    /// Size of all state it names, in bytes.
    pub(crate) total_bytes: u64,
    /// Size of what it names and the manifest before it does not, in bytes.
    pub(crate) added_bytes: u64,
    /// Whether the job has finished with it.
    pub(crate) finished: bool,
    /// Objects that it names and that are not there, or have another size.
    pub(crate) missing: Vec<String>,
    /// Number of key groups.
    pub(crate) max_parallelism: u32,
    /// The operators that have state.
    pub(crate) operators: Vec<OperatorSummary>,
}

/// The state of an operator in a few numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct OperatorSummary {
    /// Its name.
    pub(crate) name: String,
    /// Number of subtasks when the checkpoint was taken.
    pub(crate) parallelism: u32,
    /// Number of live runs.
    pub(crate) runs: usize,
}

/// The checkpoints of `history`, oldest first, damaged manifests included.
///
/// # Errors
/// When storage cannot be listed.
pub(crate) fn rows<S: Storage>(history: &History<S>) -> Result<Vec<Row>, CheckpointError> {
    let entries = history.entries()?;
    let missing = missing(history, &entries)?.into_iter().map(|(object, _)| object).collect();
    Ok(rows_of(&entries, &missing))
}

fn rows_of(entries: &[Entry], missing: &BTreeSet<ObjectName>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut before: Option<&Manifest> = None;
    for entry in entries {
        let content = match (&entry.manifest, entry.checkpoint()) {
            (Err(error), _) => Some(Content::Damaged(error.to_string())),
            (Ok(_), Some(manifest)) => Some(Content::Checkpoint(summary(manifest, before, missing))),
            (Ok(_), None) => None,
        };
        rows.extend(content.map(|content| Row { object: entry.object.to_string(), content }));
        before = entry.manifest.as_ref().ok().or(before);
    }
    rows
}

fn summary(manifest: &Manifest, before: Option<&Manifest>, missing: &BTreeSet<ObjectName>) -> Summary {
    let operators = manifest.operators.iter().map(|operator| OperatorSummary {
        name: operator.name.clone(),
        parallelism: operator.parallelism,
        runs: operator.runs.len(),
    });
    Summary {
        epoch: manifest.epoch.0,
        attempt: manifest.attempt.0,
        created_ms: manifest.created_ms,
        duration_ms: manifest.duration_ms,
        total_bytes: manifest.state_bytes(),
        added_bytes: added_bytes(manifest, before),
        finished: manifest.finished,
        missing: manifest.objects().filter(|object| missing.contains(*object)).map(ToString::to_string).collect(),
        max_parallelism: manifest.max_parallelism,
        operators: operators.collect(),
    }
}

/// Without a manifest before it, what it adds is what was written for its own epoch.
fn added_bytes(manifest: &Manifest, before: Option<&Manifest>) -> u64 {
    let known: HashSet<&ObjectName> = before.into_iter().flat_map(Manifest::objects).collect();
    let runs = manifest.operators.iter().flat_map(|operator| &operator.runs);
    let runs = runs.filter(|run| match before {
        Some(_) => !known.contains(&run.object),
        None => run.epoch == manifest.epoch,
    });
    let blobs = manifest.operators.iter().flat_map(|operator| operator.subtasks.iter().flatten());
    let blobs = blobs.filter(|blob| blob.object().is_none_or(|object| !known.contains(object)));
    runs.map(|run| run.bytes).chain(blobs.map(Blob::bytes)).fold(0, u64::saturating_add)
}

/// The list for a reader on a terminal.
#[must_use]
pub(crate) fn to_text(job: &str, rows: &[Row]) -> String {
    if rows.is_empty() {
        return format!("job {job:?} has no checkpoints\n");
    }
    let head = ["EPOCH", "ATTEMPT", "TIME (UTC)", "TOTAL", "ADDED", "DURATION", "OPERATORS (RUNS)"];
    let mut table = vec![head.map(str::to_owned)];
    table.extend(rows.iter().filter_map(|row| match &row.content {
        Content::Checkpoint(summary) => Some(cells(summary)),
        Content::Damaged(_) => None,
    }));
    let mut widths = [0; 7];
    for cells in &table {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut lines = table.iter().map(|cells| aligned(cells, &widths));
    let mut text = lines.next().unwrap_or_default();
    for row in rows {
        match &row.content {
            Content::Checkpoint(_) => text.push_str(&lines.next().unwrap_or_default()),
            Content::Damaged(error) => text.push_str(&format!("damaged: {error}\n")),
        }
    }
    text
}

/// The list as JSON.
#[must_use]
pub(crate) fn to_json(rows: &[Row]) -> String {
    let json = serde_json::to_string_pretty(rows).expect("rows have string keys and no floats");
    format!("{json}\n")
}

fn cells(summary: &Summary) -> [String; 7] {
    let operators: Vec<String> =
        summary.operators.iter().map(|operator| format!("{} ({})", operator.name, operator.runs)).collect();
    let mut operators = if operators.is_empty() { "-".to_owned() } else { operators.join(", ") };
    if summary.finished {
        operators.push_str(" [finished]");
    }
    if let Some(first) = summary.missing.first() {
        operators.push_str(&format!(" [damaged: {} objects missing or cut, as {first}]", summary.missing.len()));
    }
    [
        summary.epoch.to_string(),
        summary.attempt.to_string(),
        time_text(summary.created_ms),
        bytes_words(summary.total_bytes),
        bytes_words(summary.added_bytes),
        duration_words(summary.duration_ms),
        operators,
    ]
}

/// Numbers to the right, the last column as it is.
fn aligned(cells: &[String; 7], widths: &[usize; 7]) -> String {
    let mut line = String::new();
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let padded = if column == 6 { cell.clone() } else { format!("{cell:>width$}  ") };
        line.push_str(&padded);
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests;
