//! Arguments of `state`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use millpond_state_reader::{Format, Kind};

/// What to do with the state of a checkpoint.
#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// List operators and states: kinds, stored rows, bytes, runs.
    Ls {
        /// Only of this operator
        operator: Option<String>,
        /// Print a table instead of JSON lines.
        #[arg(long)]
        text: bool,
    },
    /// Print the stored schemas.
    Schema {
        /// Only of this operator
        operator: Option<String>,
        /// Only of this state
        state: Option<String>,
        /// Print them for reading instead of as JSON lines.
        #[arg(long)]
        text: bool,
    },
    /// Print the entries of one key.
    Get {
        #[command(flatten)]
        state: OneState,
        /// The key, as JSON in the form in which `scan` shows it; other text is taken for a string
        key: String,
        /// The user key of a map, in the same form
        user_key: Option<String>,
    },
    /// Print entries, in the order of key groups and keys.
    Scan {
        #[command(flatten)]
        state: OneState,
        /// Only of this key group
        #[arg(long, value_name = "N")]
        key_group: Option<u16>,
        /// Only of keys whose text (of other keys than strings, the JSON) begins so
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
        /// At most so many entries
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
    },
    /// Count keys and entries, exactly.
    Count {
        #[command(flatten)]
        states: SomeStates,
    },
    /// Show where the state is: largest keys, keys with most entries, largest key groups, skew.
    Top {
        #[command(flatten)]
        states: SomeStates,
        /// How many of each
        #[arg(long, short, value_name = "N", default_value_t = 10)]
        number: usize,
    },
    /// Print the entries that differ between two checkpoints.
    Diff {
        /// The first: latest, an epoch number, or the path of a manifest or savepoint
        first: String,
        /// The second
        second: String,
        #[command(flatten)]
        states: SomeStates,
    },
    /// Write entries to a file.
    Export {
        #[command(flatten)]
        state: OneState,
        /// The file, which must not exist yet; standard output if none is given
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
        /// How they are written [default: by the ending of the file, else jsonl]
        #[arg(long, value_name = "FORMAT")]
        format: Option<ExportFormat>,
    },
}

/// A state.
#[derive(Debug, Args)]
pub(crate) struct OneState {
    /// The operator
    pub(crate) operator: String,
    /// The state
    pub(crate) state: String,
    /// Its kind, if the operator has several states of this name
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    pub(crate) kind: Option<Kind>,
}

/// All states, those of an operator, or one.
#[derive(Debug, Args)]
pub(crate) struct SomeStates {
    /// Only of this operator
    pub(crate) operator: Option<String>,
    /// Only of this state
    pub(crate) state: Option<String>,
    /// Only of this kind
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    pub(crate) kind: Option<Kind>,
}

/// How entries are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// One JSON object per line.
    Jsonl,
    /// Comma-separated values.
    Csv,
    /// Apache Parquet.
    Parquet,
}

impl From<ExportFormat> for Format {
    fn from(format: ExportFormat) -> Format {
        match format {
            ExportFormat::Jsonl => Format::JsonLines,
            ExportFormat::Csv => Format::Csv,
            ExportFormat::Parquet => Format::Parquet,
        }
    }
}

fn parse_kind(word: &str) -> Result<Kind, String> {
    Kind::parse(word).ok_or_else(|| {
        let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.word()).collect();
        format!("expected one of {}", known.join(", "))
    })
}
