//! Reports of failures: a picture of the wrong pixels, and a list of the worst.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use apron::Shape;
use image::{Rgb, RgbImage};
use serde_json::{Value, json};

/// A value that differs from the expected one.
#[derive(Clone, Copy, Debug)]
pub struct Wrong {
    /// Column.
    pub x: usize,
    /// Row.
    pub y: usize,
    /// Channel.
    pub channel: usize,
    /// The expected value, and its bits.
    pub expected: (f64, u32),
    /// The value found, and its bits.
    pub found: (f64, u32),
    /// The oracle's value.
    pub oracle: f64,
    /// Whether it was never written.
    pub poison: bool,
}

impl Wrong {
    /// The absolute error; infinite if only one of the two is a number.
    fn distance(&self) -> f64 {
        let distance = (self.found.0 - self.expected.0).abs();
        if distance.is_nan() { f64::INFINITY } else { distance }
    }
}

/// The folder for reports: the one that `APRON_REPORTS` names, or none if that is empty; under
/// cargo `target/conformance`; else `conformance-reports` beside the test program.
pub fn folder() -> Option<PathBuf> {
    match std::env::var_os("APRON_REPORTS") {
        Some(folder) if folder.is_empty() => None,
        Some(folder) => Some(folder.into()),
        None => {
            let program = std::env::current_exe().ok()?;
            // target/release/deps/conformance-0123456789abcdef
            match std::env::var_os("CARGO") {
                Some(_) => Some(program.ancestors().nth(3)?.join("conformance")),
                None => Some(program.parent()?.join("conformance-reports")),
            }
        }
    }
}

/// The most pixels across and down that are drawn, around the first wrong one.
const DRAWN: usize = 1024;

/// The number of pixels that the report of a failure lists.
const WORST: usize = 32;

/// Writes the picture and the list for a failure of `name` on a problem described in words. Returns
/// their common path, with both extensions in braces.
///
/// # Errors
/// If they cannot be written.
pub fn write(
    folder: &Path,
    name: &str,
    problem: &str,
    shape: Shape,
    wrong: &[Wrong],
) -> Result<String, String> {
    let mut hasher = DefaultHasher::new();
    (name, problem).hash(&mut hasher);
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let stem = folder.join(format!("{plain}-{:016x}", hasher.finish()));
    let fail = |error: &dyn std::fmt::Display| format!("{}: {error}", stem.display());
    std::fs::create_dir_all(folder).map_err(|error| fail(&error))?;
    draw(shape, wrong).save(stem.with_extension("png")).map_err(|error| fail(&error))?;
    let text = format!("{:#}\n", list(name, problem, shape, wrong));
    std::fs::write(stem.with_extension("json"), text).map_err(|error| fail(&error))?;
    Ok(format!("{}.{{png,json}}", stem.display()))
}

/// Black where results are right, blue where nothing was written, else red: the larger the error,
/// the brighter.
fn draw(shape: Shape, wrong: &[Wrong]) -> RgbImage {
    let (width, height) = (shape.width.min(DRAWN), shape.height.min(DRAWN));
    let start = |at: usize, len: usize, drawn: usize| at.saturating_sub(drawn / 2).min(len - drawn);
    let first = wrong.first().map_or((0, 0), |wrong| (wrong.x, wrong.y));
    let (left, top) = (start(first.0, shape.width, width), start(first.1, shape.height, height));
    let mut picture = RgbImage::new(width as u32, height as u32);
    for wrong in wrong {
        let (x, y) = (wrong.x.wrapping_sub(left), wrong.y.wrapping_sub(top));
        if x < width && y < height {
            let off = wrong.distance() / wrong.expected.0.abs().max(1e-30);
            // From an error of a unit in the last place to one as large as the value.
            let bright = (255.0 + 25.0 * off.log10()).clamp(64.0, 255.0) as u8;
            let Rgb([red, _, blue]) = *picture.get_pixel(x as u32, y as u32);
            let colour = if wrong.poison { [red, 0, 255] } else { [red.max(bright), 0, blue] };
            picture.put_pixel(x as u32, y as u32, Rgb(colour));
        }
    }
    picture
}

/// A description of the failure, and the values with the greatest errors. A value that JSON cannot
/// hold is null, with its bits beside it.
fn list(name: &str, problem: &str, shape: Shape, wrong: &[Wrong]) -> Value {
    let mut worst: Vec<&Wrong> = wrong.iter().collect();
    worst.sort_by(|a, b| b.distance().total_cmp(&a.distance()));
    let worst: Vec<Value> = worst
        .into_iter()
        .take(WORST)
        .map(|wrong| {
            json!({
                "x": wrong.x,
                "y": wrong.y,
                "channel": wrong.channel,
                "expected": wrong.expected.0,
                "expected_bits": format!("{:#x}", wrong.expected.1),
                "found": wrong.found.0,
                "found_bits": format!("{:#x}", wrong.found.1),
                "in_f64": wrong.oracle,
                "never_written": wrong.poison,
            })
        })
        .collect();
    json!({
        "implementation": name,
        "problem": problem,
        "width": shape.width,
        "height": shape.height,
        "channels": shape.channels,
        "wrong": wrong.len(),
        "worst": worst,
    })
}
