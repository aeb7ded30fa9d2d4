//! The effective settings as a TOML file that can be read back.

use std::fmt::Write as _;

use toml::Value;

use super::layer::{Given, Layer};
use super::setting::{Setting, Shape};

/// Column at which origins begin, when the value is short enough.
const ORIGIN_COLUMN: usize = 40;

pub(super) fn to_toml(effective: &Layer) -> String {
    let mut text = String::new();
    for setting in Setting::ALL {
        let _ = match effective.get(setting) {
            None => writeln!(text, "# {setting} is not set"),
            Some(given) => {
                let assignment = format!("{setting} = {}", value_of(setting, given));
                writeln!(text, "{assignment:<ORIGIN_COLUMN$} # {}", given.origin)
            }
        };
    }
    text
}

fn value_of(setting: Setting, given: &Given) -> String {
    match setting.shape() {
        // Checked values of these shapes are TOML as they stand.
        Shape::Number | Shape::Switch => given.text.clone(),
        Shape::Text => Value::String(given.text.clone()).to_string(),
    }
}
