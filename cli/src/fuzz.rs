//! The tool's readers of untrusted files, for the fuzz targets in `tests/src/hostile.rs`.

use std::path::Path;

use apron::{Filter, Number, Scalar, Shape};

use crate::codec::options::{Raw, Reading};
use crate::failure::{Failure, caught};
use crate::limits::Limits;
use crate::picture::each;
use crate::{files, taps_file};

/// The pixels of a file. Only values that are filtered in f64 are rounded.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Width, height and channels.
    pub shape: Shape,
    /// Rows of interleaved channels.
    pub values: Vec<f32>,
    /// The type that the file stores.
    pub scalar: Scalar,
}

/// Reads a picture as `apron filter` does, and looks for its end. `raw` is the value of `--raw`.
///
/// # Errors
/// The tool's message.
pub fn load(
    path: &Path,
    raw: Option<&str>,
    max_pixels: u64,
    max_bytes: u64,
) -> Result<Loaded, String> {
    let raw = raw.map(Raw::parse).transpose()?;
    let reading = Reading { raw, limits: Limits { max_pixels, max_bytes }, ..Reading::default() };
    let document = caught(|| {
        drop(files::left_over(path));
        files::load(path, &reading)
    })
    .map_err(said)?;
    let picture = document.first();
    let shape = picture.pixels.shape();
    let values = each!(&picture.pixels, image => image.as_slice().iter().map(|value| Number::to_f64(*value) as f32).collect());
    Ok(Loaded { shape, values, scalar: picture.pixels.scalar() })
}

/// Reads a file of taps as `--taps-file` does.
///
/// # Errors
/// The tool's message.
pub fn read_taps(path: &Path) -> Result<Filter, String> {
    caught(|| taps_file::read(path)).map_err(said)
}

/// Reads the size and the type in a value of `--raw`.
///
/// # Errors
/// The tool's message.
pub fn raw_size(text: &str) -> Result<(Shape, Scalar), String> {
    let Raw { shape, scalar } = Raw::parse(text)?;
    Ok((shape, scalar))
}

fn said(failure: Failure) -> String {
    failure.message
}
