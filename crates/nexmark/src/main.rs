//! Runs one query of the Nexmark benchmark and writes its results as JSON lines.
//!
//! `nexmark run [options] -- --query N [--events N] [--rate EVENTS_PER_SECOND] [--out DIR]`; `--query events` writes the events
//! themselves.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use millpond::prelude::*;
use millpond_nexmark::{Nexmark, Streams, queries as q};

fn main() -> ExitCode {
    millpond::main_named("nexmark", job)
}

fn job(flow: &mut Dataflow) -> UserResult {
    let options = Options::parse(&millpond::args())?;
    let (events, out) = (options.nexmark.events(flow), options.out.as_path());
    let Some(query) = options.query else {
        write(&events, out);
        return Ok(());
    };
    let streams = Streams::new(&events);
    match query {
        0 => write(&q::q0(&streams), out),
        1 => write(&q::q1(&streams), out),
        2 => write(&q::q2(&streams), out),
        3 => write(&q::q3(&streams), out),
        4 => write(&q::q4(&streams), out),
        5 => write(&q::q5(&streams), out),
        6 => write(&q::q6(&streams), out),
        7 => write(&q::q7(&streams), out),
        8 => write(&q::q8(&streams), out),
        9 => write(&q::q9(&streams), out),
        10 => drop(q::q10(&streams).sink("results", q::q10_files(out))),
        11 => write(&q::q11(&streams), out),
        12 => write(&q::q12(&streams), out),
        13 => write(&q::q13(&streams), out),
        14 => write(&q::q14(&streams), out),
        15 => write(&q::q15(&streams), out),
        16 => write(&q::q16(&streams), out),
        17 => write(&q::q17(&streams), out),
        18 => write(&q::q18(&streams), out),
        19 => write(&q::q19(&streams), out),
        20 => write(&q::q20(&streams), out),
        21 => write(&q::q21(&streams), out),
        22 => write(&q::q22(&streams), out),
        other => return Err(format!("there is no query {other}: they are 0 to 22").into()),
    }
    Ok(())
}

fn write<T: Data>(results: &Stream<T>, out: &Path) {
    results.sink("results", FileSink::json(out));
}

struct Options {
    /// None for the events themselves.
    query: Option<u64>,
    nexmark: Nexmark,
    out: PathBuf,
}

impl Options {
    fn parse(arguments: &[String]) -> UserResult<Options> {
        let (mut query, mut events, mut rate, mut out) = (None, 1_000_000, None, PathBuf::from("nexmark-results"));
        let mut arguments = arguments.iter();
        while let Some(option) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{option} needs a value"))?;
            let number = || value.parse().map_err(|_| format!("{option} needs a number, not {value}"));
            match option.as_str() {
                "--query" => query = Some((value != "events").then(number).transpose()?),
                "--events" => events = number()?,
                "--rate" => rate = Some(number()?),
                "--out" => out = value.into(),
                _ => return Err(format!("unknown option {option}").into()),
            }
        }
        let query = query.ok_or("which query? --query N, from 0 to 22, or --query events")?;
        let nexmark = Nexmark::new(events);
        Ok(Options { query, nexmark: rate.map_or(nexmark, |rate| nexmark.rate(rate)), out })
    }
}
