//! Runs many seeds of all jobs and says which break a rule.
//!
//! ```text
//! cargo run --release -p millpond-sim --example seeds -- --from 0 --count 2000
//! cargo run --release -p millpond-sim --example seeds -- --job counts --from 17 --count 1
//! ```

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::time::Instant;

use millpond_sim::cluster::{Report, run_seed};
use millpond_sim::jobs::JobKind;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let number = |name: &str, default: u64| value(name).map_or(Ok(default), |text| text.parse::<u64>());
    let (Ok(from), Ok(count)) = (number("--from", 0), number("--count", 500)) else {
        return say(
            "usage: seeds [--job counts|broadcast|branches|amplify|windows|expiring] [--from N] [--count N]",
            ExitCode::from(2),
        );
    };
    let jobs: Vec<JobKind> = match value("--job") {
        None => JobKind::ALL.to_vec(),
        Some(name) => JobKind::ALL.into_iter().filter(|job| format!("{job:?}").eq_ignore_ascii_case(name)).collect(),
    };
    let (started, mut total, mut failed) = (Instant::now(), Report::default(), 0);
    for (job, seed) in jobs.iter().flat_map(|job| (from..from + count).map(move |seed| (*job, seed))) {
        match run_seed(job, seed) {
            Ok(report) => add(&mut total, &report),
            Err(failure) => {
                failed += 1;
                say(&failure.to_string(), ());
            }
        }
    }
    let seeds = count * jobs.len() as u64;
    say(&format!("{seeds} seeds in {:.1} s, {failed} failed; {total:?}", started.elapsed().as_secs_f64()), ());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Nobody to tell when standard output is closed.
fn say<T>(text: &str, result: T) -> T {
    let _ = writeln!(stdout(), "{text}");
    result
}

fn add(total: &mut Report, one: &Report) {
    total.steps += one.steps;
    total.attempts += one.attempts;
    total.completed += one.completed;
    total.stops += one.stops;
    total.restores_checked += one.restores_checked;
    total.compactions += one.compactions;
    total.deleted += one.deleted;
    total.storage_faults += one.storage_faults;
    total.repeated_commits += one.repeated_commits;
    total.fenced += one.fenced;
    total.lines += one.lines;
    total.trace ^= one.trace;
}
