//! Numbers in a filter's text, and what is said of a text that cannot be read.

use crate::{Error, Result};

/// Reads a row of taps, separated by blanks or a comma, to the end of `taps`.
pub(super) fn read_row(text: &str, row: &str, taps: &mut Vec<f64>) -> Result<()> {
    let row = row.trim();
    // One comma at the end is how some programs write a row.
    let row = row.strip_suffix(',').unwrap_or(row);
    for cell in row.split(',') {
        let before = taps.len();
        for tap in cell.split_whitespace() {
            taps.push(number(text, tap)?);
        }
        if taps.len() == before {
            return Err(syntax(text, format!("a tap is missing at a comma in \"{}\"", brief(row))));
        }
    }
    Ok(())
}

/// A decimal number, or a fraction of two.
pub(super) fn number(text: &str, number: &str) -> Result<f64> {
    let decimal = |part: &str| part.trim().parse::<f64>().ok().filter(|value| value.is_finite());
    let value = match number.split_once('/') {
        Some((numerator, denominator)) => decimal(numerator).zip(decimal(denominator)).map(|(n, d)| n / d),
        None => decimal(number),
    };
    value.filter(|value| value.is_finite()).ok_or_else(|| {
        syntax(text, format!("\"{}\" is not a finite number; write it as 0.25, 2.5e-1 or 1/4", brief(number)))
    })
}

pub(super) fn syntax(text: &str, reason: impl Into<String>) -> Error {
    Error::FilterSyntax { text: brief(text), reason: reason.into() }
}

/// Text fit for a message of one line.
pub(super) fn brief(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut brief: String =
        text.trim().chars().map(|char| if char.is_control() { ' ' } else { char }).take(LONGEST).collect();
    if text.trim().chars().nth(LONGEST).is_some() {
        brief.push_str("...");
    }
    brief
}
