//! Windows: each rule on its own, and every kind against a naive model.

mod model;
mod random;
mod rules;
mod support;
