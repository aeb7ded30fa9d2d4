//! The words of Millpond: ids, epochs, key groups, hashing, codecs, schemas, clock and seed.
//!
//! Owns the vocabulary that every other room uses. Does *not* own any I/O, any thread, any state.
//! Nothing here depends on another Millpond crate.

pub mod clock;
pub mod codec;
pub mod data;
pub mod error;
pub mod hash;
pub mod ids;
pub mod key_group;
pub mod name;
pub mod schema;
pub mod seed;

pub use clock::{Clock, ManualClock, SystemClock};
pub use codec::CodecError;
pub use data::{Data, Key, StateType, UserError, UserResult};
pub use error::ErrorKind;
pub use hash::KeyHash;
pub use ids::{Attempt, Epoch, SubtaskIndex};
pub use key_group::{KeyGroup, KeyGroupRange, MaxParallelism};
pub use name::NameError;
pub use schema::{Evolution, Schema, SchemaDeserializer, SchemaError};
pub use seed::SplitMix64;
