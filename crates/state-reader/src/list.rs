//! The states of a checkpoint in a few numbers, from manifest and file indexes alone.

use serde::Serialize;

use crate::error::ReaderError;
use crate::info::{Kind, StateInfo};
use crate::operator::OperatorStateReader;
use crate::reader::StateReader;
use crate::rows::open_run;

/// A state and what is stored of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StateSummary {
    /// The operator.
    pub operator: String,
    /// The state.
    pub state: String,
    /// Its kind.
    pub kind: Kind,
    /// Stored rows (an entry, or a chunk of a list), overwritten ones and tombstones included; of
    /// operator state the entries.
    pub rows: u64,
    /// How many of the rows are tombstones.
    pub tombstones: u64,
    /// Stored size, in bytes; of operator state before compression.
    pub bytes: u64,
    /// Size before compression, in bytes.
    pub raw_bytes: u64,
    /// Number of live run files that hold rows of it.
    pub runs: u64,
}

impl StateReader {
    /// What is stored of each state; of one operator's if it is given. Opens every run, reads no rows.
    ///
    /// # Errors
    /// When there is no such operator, an object cannot be read, or is damaged.
    pub fn summaries(&self, operator: Option<&str>) -> Result<Vec<StateSummary>, ReaderError> {
        let mut summaries = Vec::new();
        let mut names: Vec<String> = self.manifest().operators.iter().map(|operator| operator.name.clone()).collect();
        if let Some(operator) = operator {
            names = vec![operator.to_owned()];
        }
        for name in names {
            let stored = self.operator(&name)?;
            let states = self.states(Some(&name))?;
            let first = summaries.len();
            summaries.extend(states.iter().map(empty));
            for run in &stored.runs {
                let opened = open_run(self.storage(), &name, run)?;
                for summary in summaries[first..].iter_mut().filter(|summary| summary.kind.is_keyed()) {
                    let Some(section) = opened.section(&summary.state) else { continue };
                    let (bytes, raw_bytes) = opened.section_bytes(&summary.state);
                    summary.rows += section.rows();
                    summary.tombstones += section.tombstones;
                    summary.bytes += bytes;
                    summary.raw_bytes += raw_bytes;
                    summary.runs += 1;
                }
            }
            let held = OperatorStateReader::load(self, stored)?;
            for (summary, info) in summaries[first..].iter_mut().zip(&states).filter(|(s, _)| !s.kind.is_keyed()) {
                (summary.rows, summary.bytes) = held.size(info);
                summary.raw_bytes = summary.bytes;
            }
        }
        Ok(summaries)
    }
}

fn empty(info: &StateInfo) -> StateSummary {
    StateSummary {
        operator: info.operator.clone(),
        state: info.state.clone(),
        kind: info.kind,
        rows: 0,
        tombstones: 0,
        bytes: 0,
        raw_bytes: 0,
        runs: 0,
    }
}
