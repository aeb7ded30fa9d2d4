//! `millpond-bench WORKLOAD [key=value ...]` prints one JSON line.

mod big_state;
mod codec;
mod count;
mod event;
mod floor;
mod increments;
mod join;
#[cfg(feature = "kafka")]
mod kafka;
mod mapstate;
mod measure;
mod micro;
mod nexmark;
mod parameters;
mod payload;
mod probe;
mod processes;
mod recover;
mod setup;
mod sink;
mod slow_sink;
mod sum_window;
mod timers;

use std::io::Write as _;
use std::process::ExitCode;

use crate::parameters::Parameters;

/// Large allocations begin at a page, so that entries of a table do not straddle cache lines.
#[cfg(not(feature = "rocksdb"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// State that comes and goes leaves fewer pages behind that are nearly empty: see docs/performance.md.
#[cfg(feature = "rocksdb")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(line) => {
            let written = writeln!(std::io::stdout(), "{line}");
            if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(message) => {
            let _ = writeln!(std::io::stderr(), "millpond-bench: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &[String]) -> Result<serde_json::Value, String> {
    let (workload, rest) = arguments.split_first().ok_or("usage: millpond-bench WORKLOAD [key=value ...]")?;
    let parameters = Parameters::parse(rest)?;
    match workload.as_str() {
        "big-state" => big_state::run(&parameters),
        "slow-sink" => slow_sink::run(&parameters),
        "codec" => codec::run(&parameters),
        "count" => count::run(&parameters),
        "increments" => increments::run(&parameters),
        "join" => join::run(&parameters),
        #[cfg(feature = "kafka")]
        "kafka" => kafka::run(&parameters),
        "mapstate" => mapstate::run(&parameters),
        "micro" => micro::run(&parameters),
        "nexmark" => nexmark::run(&parameters),
        "recover" => recover::run(&parameters),
        "sum-window" => sum_window::run(&parameters),
        "timers" => timers::run(&parameters),
        "timely-floor" => floor::run(&parameters),
        other => Err(format!("unknown workload {other}")),
    }
}
