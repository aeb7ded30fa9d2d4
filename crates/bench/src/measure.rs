//! Time, CPU seconds and memory of this process.

use std::time::Instant;

/// Clock ticks per second in `/proc`.
const TICKS: f64 = 100.0;

/// CPU seconds of this process so far.
pub(crate) fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let fields: Vec<&str> = after.split(' ').collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / TICKS
}

/// CPU seconds of the whole machine so far.
pub(crate) fn machine_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = stat.lines().next().unwrap_or_default();
    let fields: Vec<f64> = first.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    [0, 1, 2, 5, 6, 7].iter().filter_map(|index| fields.get(*index)).sum::<f64>() / TICKS
}

/// A line of `/proc/self/status` in megabytes.
fn status_mb(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    let kilobytes: String = line.chars().filter(char::is_ascii_digit).collect();
    kilobytes.parse::<f64>().unwrap_or(0.0) / 1024.0
}

/// The largest resident size so far, in megabytes.
pub(crate) fn peak_rss_mb() -> f64 {
    status_mb("VmHWM:")
}

/// The resident size now, in megabytes.
pub(crate) fn rss_mb() -> f64 {
    status_mb("VmRSS:")
}

/// A span under measurement.
#[derive(Debug)]
pub(crate) struct Span {
    started: Instant,
    cpu: f64,
    machine: f64,
}

impl Span {
    pub(crate) fn start() -> Self {
        Span { started: Instant::now(), cpu: cpu_seconds(), machine: machine_seconds() }
    }

    /// Wall seconds, CPU seconds of this process, CPU seconds of everybody else.
    pub(crate) fn stop(&self) -> (f64, f64, f64) {
        let cpu = cpu_seconds() - self.cpu;
        let other = (machine_seconds() - self.machine - cpu).max(0.0);
        (self.started.elapsed().as_secs_f64(), cpu, other)
    }
}
