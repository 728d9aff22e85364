//! What a filter with a name is: its parameters, and their values in a text.

use super::taps::Filter;
use super::text::{brief, number, syntax};
use crate::{Error, Result};

/// A filter that has a name: what it is called in text, and what it takes.
#[derive(Clone, Copy)]
pub struct Preset {
    /// The name.
    pub name: &'static str,
    /// One line on what it does.
    pub summary: &'static str,
    /// What may follow the name.
    pub parameters: &'static [Parameter],
    pub(super) build: fn(&Given<'_>) -> Result<Filter>,
}

/// A parameter of a [`Preset`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// The name.
    pub name: &'static str,
    /// What it means, in which unit, and what it is when it is not given.
    pub meaning: &'static str,
}

impl std::fmt::Debug for Preset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preset")
            .field("name", &self.name)
            .field("summary", &self.summary)
            .field("parameters", &self.parameters)
            .finish_non_exhaustive()
    }
}

pub(super) const fn parameter(name: &'static str, meaning: &'static str) -> Parameter {
    Parameter { name, meaning }
}

/// The parameters that a text gives to a preset.
pub(super) struct Given<'a> {
    text: &'a str,
    preset: &'a Preset,
    values: Vec<(&'a str, &'a str)>,
}

impl<'a> Given<'a> {
    pub(super) fn new(text: &'a str, preset: &'a Preset) -> Self {
        Self { text, preset, values: Vec::new() }
    }

    pub(super) fn add(&mut self, name: &'a str, value: &'a str) {
        self.values.push((name, value));
    }

    pub(super) fn value(&self, name: &str) -> Option<&'a str> {
        self.values.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<f64>> {
        self.value(name).map(|value| number(self.text, value)).transpose()
    }

    pub(super) fn needed(&self, name: &str) -> Result<f64> {
        self.number(name)?.ok_or_else(|| self.missing(name))
    }

    pub(super) fn whole(&self, name: &str) -> Result<Option<usize>> {
        let read = |value: &str| {
            value.parse().map_err(|_| self.wrong(&format!("{name}={} is not a whole number", brief(value))))
        };
        self.value(name).map(read).transpose()
    }

    /// Columns and rows, from `size` or from both of `cols` and `rows`.
    pub(super) fn window(&self) -> Result<Option<(usize, usize)>> {
        match (self.whole("size")?, self.whole("cols")?, self.whole("rows")?) {
            (Some(size), None, None) => Ok(Some((size, size))),
            (None, Some(cols), Some(rows)) => Ok(Some((cols, rows))),
            (None, None, None) => Ok(None),
            _ => Err(self.wrong("the window is given by size alone, or by cols and rows")),
        }
    }

    pub(super) fn missing(&self, what: &str) -> Error {
        self.wrong(&format!("it needs {what}"))
    }

    pub(super) fn wrong(&self, what: &str) -> Error {
        let names: Vec<_> = self.preset.parameters.iter().map(|parameter| parameter.name).collect();
        let takes = match names.is_empty() {
            true => "no parameters".to_owned(),
            false => names.join(", "),
        };
        syntax(self.text, format!("{what}; {} takes {takes}", self.preset.name))
    }
}
