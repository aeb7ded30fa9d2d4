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

    /// The same with one value set.
    pub(crate) fn with(mut self, key: &str, value: &str) -> Parameters {
        self.values.insert(key.to_owned(), value.to_owned());
        self
    }

    /// As they were given, in the order of their names.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        self.values.iter().map(|(key, value)| format!("{key}={value}")).collect()
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

    /// A size in bytes: `2GB`, `256MiB`, a number; `None` when it is not given.
    pub(crate) fn bytes(&self, key: &str) -> Result<Option<u64>, String> {
        let Some(text) = self.values.get(key) else { return Ok(None) };
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor: u64 = match &text[digits.len()..] {
            "" => 1,
            "kB" | "KB" => 1_000,
            "KiB" => 1 << 10,
            "MB" => 1_000_000,
            "MiB" => 1 << 20,
            "GB" => 1_000_000_000,
            "GiB" => 1 << 30,
            _ => return Err(format!("not a size: {key}={text}")),
        };
        let number: u64 = digits.parse().map_err(|_| format!("not a size: {key}={text}"))?;
        Ok(Some(number * factor))
    }

    pub(crate) fn text<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.values.get(key).map_or(default, String::as_str)
    }
}
