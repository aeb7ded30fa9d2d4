//! A program for the tests of bad input: jobs over files that hold what they should not.
//!
//! `misbehave -- KIND IN OUT`: KIND names the job, IN is a file, a directory or a pattern, OUT a directory.

use millpond::prelude::*;

#[derive(Clone, Serialize, Deserialize)]
#[serde(crate = "millpond::serde")]
struct Order {
    id: u64,
    amount: u64,
}

fn main() -> ExitCode {
    millpond::main(|flow| {
        let args = millpond::args();
        let [kind, input, output] = args.as_slice() else { return Err("KIND IN OUT are expected".into()) };
        let (format, policy) = kind.split_once('-').unwrap_or((kind, ""));
        let policy = match policy {
            "skip" => BadRecords::SkipAndCount,
            "side" => BadRecords::SideOutput,
            _ => BadRecords::Fail,
        };
        let orders = match format {
            "csv" => flow.source("orders", FileSource::csv::<Order>(input).bad_records(policy)),
            "json" => flow.source("orders", FileSource::json::<Order>(input).bad_records(policy)),
            "lines" => {
                let lines = flow.source("lines", FileSource::lines(input).bad_records(policy));
                lines.sink("out", FileSink::lines(output));
                return Ok(());
            }
            "many" => {
                let numbers = flow.source("numbers", GeneratorSource::new(40_000, 2, |index| index));
                numbers.key_by(|number| number % 10).count("counts").sink("out", FileSink::json(output));
                return Ok(());
            }
            _ => return Err(format!("no job is called {kind:?}").into()),
        };
        if policy == BadRecords::SideOutput {
            let bad = orders.side_output(BAD_RECORDS);
            bad.map(|bad| (bad.line, bad.offset, bad.error)).sink("bad", FileSink::json(format!("{output}-bad")));
        }
        orders.map(|order| (order.id, order.amount)).sink("out", FileSink::json(output));
        Ok(())
    })
}
