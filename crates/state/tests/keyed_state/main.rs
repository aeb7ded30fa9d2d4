//! Keyed state as its users and the runtime see it.

mod isolation;
mod rescale;
mod rules;
mod support;
