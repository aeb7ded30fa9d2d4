//! Writes the sound bytes of a target as files, for a fuzzer to begin with: `corpus TARGET DIRECTORY`; without arguments,
//! prints the names of all targets.

#![expect(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::path::Path;

use millpond_fuzz::{TARGETS, target};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, directory] = arguments.as_slice() else {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return Ok(());
    };
    let target = target(name).ok_or_else(|| format!("there is no target {name}"))?;
    std::fs::create_dir_all(directory)?;
    for (number, seed) in (target.seeds)().iter().enumerate() {
        std::fs::write(Path::new(directory).join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}
