//! Every target on sound bytes and on changed ones: what a fuzzer does for hours, for some seconds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use millpond_fuzz::{Mutator, TARGETS, Target};

/// Set `MILLPOND_CASES` for more of them.
fn cases() -> u64 {
    std::env::var("MILLPOND_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_500)
}

#[track_caller]
fn survive(target: &Target, bytes: &[u8], what: &str) {
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(bytes)));
    assert!(outcome.is_ok(), "target {} breaks on {what}: {:?}", target.name, String::from_utf8_lossy(bytes));
}

#[test]
fn every_target_takes_its_sound_bytes_and_every_beginning_of_them() {
    for target in TARGETS {
        for (number, seed) in (target.seeds)().iter().enumerate() {
            survive(target, seed, &format!("seed {number}"));
            let step = (seed.len() / 100).max(1);
            for end in (0..seed.len()).step_by(step) {
                survive(target, &seed[..end], &format!("seed {number}, cut to {end} bytes"));
            }
        }
    }
}

#[test]
fn every_target_takes_changed_bytes() {
    for target in TARGETS {
        let mut mutator = Mutator::new(7, (target.seeds)());
        for case in 0..cases() {
            survive(target, &mutator.next_bytes(), &format!("case {case}"));
        }
    }
}

/// Inputs that once broke a target, or that a fuzzer had found, each in a file of its own.
#[test]
fn no_target_breaks_on_what_broke_it_once() {
    let found = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/found");
    let Ok(folders) = std::fs::read_dir(found) else { return };
    for folder in folders.flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        let target = millpond_fuzz::target(&name).unwrap_or_else(|| panic!("there is no target {name}"));
        for file in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            let bytes = std::fs::read(file.path()).unwrap_or_default();
            survive(target, &bytes, &file.path().display().to_string());
        }
    }
}

#[test]
fn every_target_is_built_for_the_fuzzer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    for target in TARGETS {
        let file = folder.join(format!("{}.rs", target.name));
        let source = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(source.contains(&format!("\"{}\"", target.name)), "{} does not run it", file.display());
    }
}
