//! Counts words. `wordcount -- [TEXTS] [OUT]`: TEXTS is a file, a directory or a pattern in quotes
//! (README.md unless given); counts are printed, or written exactly once to files in directory OUT.

use millpond::prelude::*;

fn main() -> ExitCode {
    millpond::main(|flow| {
        let mut args = millpond::args().into_iter();
        let texts = args.next().unwrap_or_else(|| "README.md".to_owned());
        let counts = flow
            .source("texts", FileSource::lines(texts))
            .flat_map(|line| line.split_whitespace().map(str::to_lowercase).collect::<Vec<_>>())
            .key_by(|word| word.clone())
            .count("counts")
            .map(|(word, count)| format!("{word} {count}"));
        match args.next() {
            Some(directory) => counts.sink("out", FileSink::lines(directory)),
            None => counts.print("out"),
        };
        Ok(())
    })
}
