//! Everything that decodes bytes, as targets for fuzzing.
//!
//! Owns which decoders there are, what must hold of whatever they accept, and sound bytes to begin with. Does *not*
//! own how bytes are chosen: a fuzzer does (`fuzz/`, `scripts/fuzz`), and the tests of this crate, which change sound
//! bytes at random in every run of the test suite.
//!
//! A target takes any bytes and panics only when a rule is broken: a decoder must give a typed error or a value,
//! in time and memory that go with the size of the input, and what it accepts must survive being encoded and decoded
//! once more.

#[cfg(feature = "postgres")]
mod changes;
mod files;
mod manifests;
mod mutate;
mod runs;
mod states;
mod values;

pub use mutate::Mutator;

/// One decoder, or a few that belong together.
#[derive(Clone, Copy)]
pub struct Target {
    /// What it is called, also in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Decodes the bytes; panics when a rule is broken.
    pub run: fn(&[u8]),
    /// Sound bytes.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "manifest", run: manifests::manifest, seeds: manifests::manifest_seeds },
    Target { name: "manifest_body", run: manifests::manifest_body, seeds: manifests::body_seeds },
    Target { name: "savepoint", run: manifests::savepoint, seeds: manifests::savepoint_seeds },
    Target { name: "log", run: manifests::log, seeds: manifests::log_seeds },
    Target { name: "names", run: manifests::names, seeds: manifests::name_seeds },
    Target { name: "run", run: runs::run, seeds: runs::run_seeds },
    Target { name: "run_sealed", run: runs::run_sealed, seeds: runs::run_seeds },
    Target { name: "run_block", run: runs::block, seeds: runs::block_seeds },
    Target { name: "operator_state", run: states::operator_state, seeds: states::operator_state_seeds },
    Target { name: "keyed_rows", run: states::keyed_rows, seeds: states::row_seeds },
    Target { name: "state_reader", run: states::state_reader, seeds: states::row_seeds },
    Target { name: "schema", run: values::schema, seeds: values::schema_seeds },
    Target { name: "evolution", run: values::evolution, seeds: values::schema_seeds },
    Target { name: "batch", run: values::batch, seeds: values::batch_seeds },
    Target { name: "lines", run: files::lines, seeds: files::line_seeds },
    Target { name: "json", run: files::json, seeds: files::json_seeds },
    Target { name: "csv", run: files::csv, seeds: files::csv_seeds },
    #[cfg(feature = "postgres")]
    Target { name: "pgoutput", run: changes::pgoutput, seeds: changes::pgoutput_seeds },
];

/// The target called `name`.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs the target called `name` on `bytes`.
///
/// # Panics
/// When a rule is broken, or there is no such target.
pub fn run(name: &str, bytes: &[u8]) {
    let target = target(name).unwrap_or_else(|| panic!("there is no target {name:?}"));
    (target.run)(bytes);
}
