//! Sources: files, a generator, given records.

mod bad;
mod bytes;
mod csv;
mod decode;
mod file;
mod find;
mod format;
mod generator;
mod json;
mod lines;
mod resume;
mod split;
#[cfg(test)]
mod tests;
mod vec;

pub use bad::{BAD_RECORDS, BadRecord, BadRecordCounter, BadRecords};
pub use file::{FileReader, FileSource};
pub use format::{Csv, Format, Json, Lines};
pub use generator::{GeneratorReader, GeneratorSource, GeneratorSplit};
pub use split::FileSplit;
pub use vec::VecSource;
