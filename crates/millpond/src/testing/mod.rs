//! Tests of jobs, deterministic and without threads.
//!
//! ```
//! use millpond::prelude::*;
//! use millpond::testing::{TestDriver, TestFlow, TestInput, TestOutput, TestStream};
//!
//! let (words, counts) = (TestInput::new(), TestOutput::new());
//! let job = |flow: &mut Dataflow| {
//!     let words = flow.test_input("words", &words);
//!     words.key_by(|word: &String| word.clone()).count("count").test_output("counts", &counts);
//!     Ok(())
//! };
//! let mut driver = TestDriver::build(job)?;
//! words.push("a".to_owned());
//! driver.run()?;
//! let snapshot = driver.checkpoint()?;
//!
//! words.push("a".to_owned());
//! driver.run()?;
//! driver.kill(); // the second "a" is read again after the restore, at another parallelism
//! let mut driver = TestDriver::builder().parallelism(2).restore(job, &snapshot)?;
//! driver.run()?;
//! assert_eq!(driver.keyed_state::<String, u64>("count", "accumulator", &"a".to_owned())?, Some(2));
//! # Ok::<(), millpond::testing::SimError>(())
//! ```

mod schemas;

pub use schemas::check_released_schemas;

pub use millpond_sim::{
    SimError, Snapshot, TestDriver, TestDriverBuilder, TestFlow, TestInput, TestOutput, TestStream,
};
