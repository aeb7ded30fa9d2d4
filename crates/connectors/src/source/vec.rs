//! Given records as a source, for tests and examples.

use std::rc::Rc;

use millpond_core::{Data, UserResult};
use millpond_dataflow::Source;

use super::generator::{GeneratorReader, GeneratorSource, GeneratorSplit};

/// Looks a record up by its index.
type Lookup<T> = Box<dyn Fn(u64) -> T>;

/// Emits given records. Record `i` belongs to split `i mod splits`.
///
/// Every worker holds all records, and a restart needs the same ones again.
#[must_use]
pub struct VecSource<T: Data> {
    generator: GeneratorSource<Lookup<T>>,
}

impl<T: Data> VecSource<T> {
    /// The records, in one split.
    pub fn new(records: impl IntoIterator<Item = T>) -> Self {
        let records: Rc<[T]> = records.into_iter().collect();
        let count = records.len() as u64;
        let lookup: Lookup<T> = Box::new(move |index| records[index as usize].clone());
        VecSource { generator: GeneratorSource::new(count, 1, lookup) }
    }

    /// Deals the records over `splits` splits, which different subtasks may read.
    pub fn splits(self, splits: u32) -> Self {
        VecSource { generator: self.generator.splits(splits) }
    }
}

impl<T: Data> Source for VecSource<T> {
    type Record = T;
    type Split = GeneratorSplit;
    type Reader = GeneratorReader<Lookup<T>>;

    fn enumerate(&mut self) -> UserResult<Vec<GeneratorSplit>> {
        self.generator.enumerate()
    }

    fn open_split(&mut self, split: GeneratorSplit) -> UserResult<Self::Reader> {
        self.generator.open_split(split)
    }
}
