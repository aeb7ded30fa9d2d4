//! The examples of this package as programs. `cargo test --tests` does not build them by itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Where the examples are, built like this test.
fn folder() -> &'static Path {
    static EXAMPLES: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLES.get_or_init(|| {
        // TARGET/PROFILE/deps/this-test
        let test = std::env::current_exe().unwrap();
        let folder = test.ancestors().nth(2).unwrap();
        let profile = if folder.ends_with("debug") { "test" } else { "release" };
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--package", "millpond", "--examples", "--profile", profile, "--target-dir"]);
        let built = cargo.arg(folder.parent().unwrap()).status().unwrap();
        assert!(built.success(), "the examples do not build");
        folder.join("examples")
    })
}

/// The example `name`, in an environment without settings, in `directory`.
pub(crate) fn example(name: &str, directory: &Path, arguments: &str) -> Command {
    let mut command = Command::new(folder().join(name));
    command.args(arguments.split_whitespace()).current_dir(directory).stdin(Stdio::null());
    let settings = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MILLPOND_"));
    settings.for_each(|(name, _)| {
        command.env_remove(name);
    });
    command
}
