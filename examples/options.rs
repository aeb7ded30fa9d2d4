//! What stands after `--` of the examples over flights, and the pace of their input.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use millpond::prelude::*;

/// What stands after `--`.
pub(crate) struct Options {
    pub(crate) data: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) pace: u64,
}

impl Options {
    /// `out` is where the output goes when nothing else is given.
    pub(crate) fn parse(arguments: &[String], out: &str) -> UserResult<Options> {
        let mut options = Options { data: "examples/data".into(), out: out.into(), pace: 0 };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--data" => options.data = value.into(),
                "--out" => options.out = value.into(),
                "--pace" => options.pace = value.parse().map_err(|_| format!("--pace {value} is not a number"))?,
                other => return Err(format!("unknown argument {other}").into()),
            }
        }
        Ok(options)
    }
}

/// Slows a stream down, to watch it or to have time to kill it.
pub(crate) struct Pace {
    records_per_second: u64,
    started: Option<Instant>,
    records: u64,
}

impl Pace {
    pub(crate) fn new(records_per_second: u64) -> Self {
        Pace { records_per_second, started: None, records: 0 }
    }

    pub(crate) fn wait(&mut self) {
        if self.records_per_second == 0 {
            return;
        }
        let started = *self.started.get_or_insert_with(Instant::now);
        self.records += 1;
        let due = Duration::from_secs_f64(self.records as f64 / self.records_per_second as f64);
        let ahead = due.saturating_sub(started.elapsed());
        if ahead > Duration::from_millis(1) {
            std::thread::sleep(ahead);
        }
    }
}
