//! Parameters of presets, and their text form.

use super::Filter;
use crate::{Error, Result};

/// A named filter with parameters, as the text form of [`Filter`] reads it.
#[derive(Clone, Copy)]
pub struct Preset {
    /// The name.
    pub name: &'static str,
    /// The name without abbreviation, which Python's constructor has: `laplacian-of-gaussian` for
    /// `log`.
    pub full_name: &'static str,
    /// A one-line summary of the effect.
    pub summary: &'static str,
    /// Other accepted names.
    pub aliases: &'static [&'static str],
    /// The parameters that may follow the name. A number without a name sets the first parameter.
    pub parameters: &'static [Parameter],
    /// The required parameters, in words; empty if none is required.
    pub needs: &'static str,
    pub(super) build: fn(&Given<'_>) -> Result<Filter>,
    /// The same filter at another scale; `None` if the taps have no length in pixels.
    pub(super) scaled: Option<Scaled>,
}

/// Builds a preset at another scale, from its parameters, the filter, and the factors of its
/// lengths across and down.
pub(super) type Scaled = fn(&Given<'_>, &Filter, (f64, f64)) -> Result<Filter>;

/// A parameter of a [`Preset`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parameter {
    /// The name.
    pub name: &'static str,
    /// Other accepted names.
    pub aliases: &'static [&'static str],
    /// Its meaning and its unit.
    pub meaning: &'static str,
    /// Whether it must be given.
    pub need: Need,
    /// Whether it is a whole number.
    pub is_whole: bool,
    /// The parameters for x and y that may be given together instead.
    pub axes: Option<[&'static str; 2]>,
}

/// Whether a [`Parameter`] must be given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Need {
    /// Yes, or others instead of it.
    Required,
    /// No, and [`Parameter::meaning`] says what follows.
    Optional,
    /// No: it then has this value.
    Default(&'static str),
    /// It replaces another parameter.
    Instead,
}

impl std::fmt::Debug for Preset {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Preset")
            .field("name", &self.name)
            .field("full_name", &self.full_name)
            .field("summary", &self.summary)
            .field("aliases", &self.aliases)
            .field("parameters", &self.parameters)
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}

/// The parameters that a text passes to a preset.
pub(super) struct Given<'a> {
    text: &'a str,
    preset: &'a Preset,
    values: Vec<(&'a str, &'a str)>,
}

impl<'a> Given<'a> {
    /// Reads the text after the preset's name: `name=value` pairs separated by commas. The first
    /// pair may leave out the name, which then is the first parameter's.
    pub(super) fn read(text: &'a str, preset: &'a Preset, rest: Option<&'a str>) -> Result<Self> {
        let mut given = Self { text, preset, values: Vec::new() };
        for (index, part) in rest.into_iter().flat_map(|rest| rest.split(',')).enumerate() {
            let (name, value) = match (part.split_once('='), preset.parameters.first()) {
                (Some((name, value)), _) => (name.trim(), value.trim()),
                (None, Some(first)) if index == 0 && !part.trim().is_empty() => {
                    (first.name, part.trim())
                }
                _ => {
                    return Err(
                        given.wrong(&format!("\"{}\" is not of the form name=value", brief(part)))
                    );
                }
            };
            let called = |parameter: &&Parameter| {
                parameter.name == name || parameter.aliases.contains(&name)
            };
            let Some(Parameter { name, .. }) = preset.parameters.iter().find(called) else {
                return Err(given.wrong(&format!("there is no parameter \"{}\"", brief(name))));
            };
            if given.value(name).is_some() {
                return Err(given.wrong(&format!("{name} is given twice")));
            }
            given.values.push((name, value));
        }
        for parameter in preset.parameters {
            if let (Need::Default(value), None) = (parameter.need, given.value(parameter.name)) {
                given.values.push((parameter.name, value));
            }
        }
        Ok(given)
    }

    fn value(&self, name: &str) -> Option<&'a str> {
        self.values.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<f64>> {
        self.value(name).map(|value| number(self.text, value)).transpose()
    }

    pub(super) fn needed(&self, name: &str) -> Result<f64> {
        self.number(name)?.ok_or_else(|| self.missing())
    }

    pub(super) fn needed_whole(&self, name: &str) -> Result<usize> {
        self.whole(name)?.ok_or_else(|| self.missing())
    }

    pub(super) fn whole(&self, name: &str) -> Result<Option<usize>> {
        let read = |value: &str| {
            value
                .parse()
                .map_err(|_| self.wrong(&format!("{name}={} is not a whole number", brief(value))))
        };
        self.value(name).map(read).transpose()
    }

    /// Standard deviations along x and y, from `sigma` or from `sigma-x` and `sigma-y` together.
    pub(super) fn sigmas(&self) -> Result<Option<(f64, f64)>> {
        match (self.number("sigma")?, self.number("sigma-x")?, self.number("sigma-y")?) {
            (Some(sigma), None, None) => Ok(Some((sigma, sigma))),
            (None, Some(x), Some(y)) => Ok(Some((x, y))),
            (None, None, None) => Ok(None),
            _ => Err(self.wrong("give sigma alone, or sigma-x and sigma-y together")),
        }
    }

    /// Columns and rows, from `size`, from `radius`, or from `cols` and `rows` together.
    pub(super) fn window(&self) -> Result<Option<(usize, usize)>> {
        let radius = self.whole("radius")?.map(|radius| radius.saturating_mul(2).saturating_add(1));
        match (self.whole("size")?, radius, self.whole("cols")?, self.whole("rows")?) {
            (Some(size), None, None, None) | (None, Some(size), None, None) => {
                Ok(Some((size, size)))
            }
            (None, None, Some(cols), Some(rows)) => Ok(Some((cols, rows))),
            (None, None, None, None) => Ok(None),
            _ => Err(self.wrong("give the window as size alone, or as cols and rows together")),
        }
    }

    pub(super) fn missing(&self) -> Error {
        self.wrong(&format!("it needs {}", self.preset.needs))
    }

    fn wrong(&self, what: &str) -> Error {
        let names: Vec<_> = self.preset.parameters.iter().map(|parameter| parameter.name).collect();
        let takes = match names.is_empty() {
            true => "no parameters".to_owned(),
            false => names.join(", "),
        };
        syntax(self.text, format!("{what}; {} takes {takes}", self.preset.name))
    }
}

pub(super) fn syntax(text: &str, reason: impl Into<String>) -> Error {
    Error::FilterSyntax { text: brief(text), reason: reason.into() }
}

/// The text shortened to 60 characters without control characters, for a one-line message.
pub(super) fn brief(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut brief: String = text
        .trim()
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .take(LONGEST)
        .collect();
    if text.trim().chars().nth(LONGEST).is_some() {
        brief.push_str("...");
    }
    brief
}

/// Reads a decimal number, or a fraction of two.
pub(super) fn number(text: &str, number: &str) -> Result<f64> {
    let decimal = |part: &str| part.trim().parse::<f64>().ok().filter(|value| value.is_finite());
    let value = match number.split_once('/') {
        Some((numerator, denominator)) => {
            decimal(numerator).zip(decimal(denominator)).map(|(n, d)| n / d)
        }
        None => decimal(number),
    };
    value.filter(|value| value.is_finite()).ok_or_else(|| {
        syntax(
            text,
            format!(
                "\"{}\" is not a finite number; write it as 0.25, 2.5e-1 or 1/4",
                brief(number)
            ),
        )
    })
}
