//! `key=value` arguments with the peers' suffixes: k, M.

use std::collections::BTreeMap;

/// Arguments of one run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    values: BTreeMap<String, String>,
}

impl Parameters {
    pub(crate) fn parse(arguments: &[String]) -> Result<Parameters, String> {
        let mut values = BTreeMap::new();
        for argument in arguments {
            let (key, value) = argument.split_once('=').ok_or_else(|| format!("expected key=value: {argument}"))?;
            values.insert(key.to_owned(), value.to_owned());
        }
        Ok(Parameters { values })
    }

    pub(crate) fn number(&self, key: &str, default: u64) -> Result<u64, String> {
        let Some(text) = self.values.get(key) else { return Ok(default) };
        let (digits, factor) = match text.chars().last() {
            Some('k') => (&text[..text.len() - 1], 1_000),
            Some('M' | 'm') => (&text[..text.len() - 1], 1_000_000),
            _ => (text.as_str(), 1),
        };
        let number: u64 = digits.replace('_', "").parse().map_err(|_| format!("not a number: {key}={text}"))?;
        Ok(number * factor)
    }

    pub(crate) fn text<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.values.get(key).map_or(default, String::as_str)
    }
}
