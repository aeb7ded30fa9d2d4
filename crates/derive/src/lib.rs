//! `#[derive(State)]`: serde's `Serialize` and `Deserialize` for a type that is stored over years.
//!
//! Owns the names and defaults of fields that have changed, and refuses at compile time what would not be
//! read back the same everywhere. Does *not* decide whether a stored schema can be read: that is
//! `millpond_core::schema`. The macro makes a copy of the type for serde's own derive (a *remote* type) with
//! `#[state(…)]` turned into `#[serde(…)]`, so there is no second encoding.

mod attributes;
mod expand;
mod refuse;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a type fit for state, records and keys. In place of serde's two derives, not beside them.
///
/// ```ignore
/// #[derive(Clone, State)]
/// struct Flight {
///     #[state(alias = "carrier")]      // how it was called before
///     airline: String,
///     #[state(default = "180")]        // for values that were stored without it
///     seats: u32,
///     #[state(default)]                // the type's own default
///     legs: Vec<Leg>,
///     gate: Option<String>,            // an option needs no default
/// }
/// ```
///
/// On the type: `#[state(key)]` for types that are keys (floats, hash maps and hash sets are refused, because equal
/// keys must have equal bytes), `#[state(crate = "path")]` where the facade has another name. Attributes of serde
/// may be used as well.
///
/// Refused: `usize` and `isize`, references, unions, and what only self-describing formats can encode
/// (`flatten`, `untagged`, `tag`, `skip_serializing_if`, `skip_serializing`, `skip_deserializing`).
#[proc_macro_derive(State, attributes(state, serde))]
pub fn derive_state(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::expand(input).unwrap_or_else(|error| error.into_compile_error()).into()
}
