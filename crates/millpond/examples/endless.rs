//! Counts for ever: to try what happens when a job is stopped, killed, or started with other numbers of
//! workers. `endless --state-dir DIR -- OUT [RECORDS_PER_SECOND]` writes each count exactly once to
//! files in directory OUT, however often it is killed.

use millpond::prelude::*;

fn main() -> ExitCode {
    millpond::main(|flow| {
        let mut args = millpond::args().into_iter();
        let directory = args.next().ok_or("give an output directory after --")?;
        let rate = args.next().map_or(Ok(1_000), |rate| rate.parse())?;
        flow.source("numbers", GeneratorSource::new(u64::MAX, 4, |index| index).rate(rate))
            .key_by(|number| number % 10)
            .count("counts")
            .sink("out", FileSink::json(directory));
        Ok(())
    })
}
