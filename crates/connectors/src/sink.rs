//! Sinks: files, print, collect.

mod collect;
mod committed;
mod disk;
mod encode;
mod file;
mod names;
mod parts;
mod print;
#[cfg(test)]
mod tests;

pub use collect::{CollectSink, CollectedBatch, Collector};
pub use file::FileSink;
pub use parts::PreparedFile;
pub use print::PrintSink;
