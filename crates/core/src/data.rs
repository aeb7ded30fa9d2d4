//! What may flow through a stream and what may be a key.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Anything that flows through a stream or lives in state. Implemented for every suitable type.
pub trait Data: Serialize + DeserializeOwned + Clone + Send + 'static {}

impl<T: Serialize + DeserializeOwned + Clone + Send + 'static> Data for T {}

/// Anything that can key a stream. Its identity is its canonical encoding, so equal keys must
/// encode equally; `f32` and `f64` are excluded by `Eq`.
pub trait Key: Data + Eq {}

impl<T: Data + Eq> Key for T {}

/// Data that was made for being stored over years: what `#[derive(State)]` of the facade gives. Its encoding
/// is the same on every machine, and the derive has refused what could not be read back.
pub trait StateType: Data {}

/// The error of a user's function: anything that is an error.
pub type UserError = Box<dyn std::error::Error + Send + Sync + 'static>;

/// The result of a user's function.
pub type UserResult<T = ()> = Result<T, UserError>;
