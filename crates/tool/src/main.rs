//! The program `millpond`: looks at checkpoints and state of any job, without the job's code. Everything
//! is in `millpond_cli`; here it is only put together, with Parquet.

use std::process::ExitCode;

fn main() -> ExitCode {
    millpond_cli::tool_main(&millpond_cli::Extensions::default())
}
