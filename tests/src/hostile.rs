//! Targets for a fuzzer. Each takes untrusted bytes and reports an error of the product; a panic or
//! a hang is an error too. `fuzz/` runs the targets under libFuzzer. The test program `cli` runs
//! them over the corpus there and some thousand mutations of it.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use apron::{Border, Device, Filter, Image, Pixel, Plan, Scalar, Shape};
use apron_cli::fuzz;
use fastrand::Rng;
use oracle::scalar;
use tempfile::TempDir;

use crate::problem::Window;
use crate::sample::{Kind, Sample};

/// A reader of untrusted bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: also that of its folder in the corpus, and of its file in `fuzz/fuzz_targets`.
    pub name: &'static str,
    /// Reads the bytes. Returns whether it accepted them.
    pub run: fn(&[u8]) -> Result<bool, String>,
}

/// All targets.
pub const TARGETS: [Target; 4] = [
    Target { name: "filter_text", run: filter_text },
    Target { name: "taps_file", run: taps_file },
    Target { name: "raw_size", run: raw_size },
    Target { name: "picture", run: picture },
];

/// Runs a target for libFuzzer.
///
/// # Panics
/// If the product did something wrong, or there is no target of this name.
pub fn fuzz(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target of this name");
    if let Err(wrong) = (target.run)(bytes) {
        panic!("{wrong}");
    }
}

/// A legal filter prints as a text that parses to the same filter. A refusal is short, whatever the
/// input.
fn filter_text(bytes: &[u8]) -> Result<bool, String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Ok(false) };
    // Filters with such numbers are legal, but take long.
    let numbers = text
        .split(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c))
        .filter_map(|word| word.parse().ok());
    if text.contains('=') && numbers.into_iter().any(|number: f64| number.abs() > 100.0) {
        return Ok(false);
    }
    judged(text.parse::<Filter>().map_err(|error| error.to_string()))
}

/// A file of taps, as text or as an array.
fn taps_file(bytes: &[u8]) -> Result<bool, String> {
    in_file("taps", bytes, |path| {
        judged(
            fuzz::read_taps(path).map_err(|message| message.replace(&*path.to_string_lossy(), "")),
        )
    })
}

fn judged(read: Result<Filter, String>) -> Result<bool, String> {
    match read {
        Ok(filter) => {
            let text = filter.to_string();
            match text.parse::<Filter>() {
                Ok(again) if again == filter => {}
                other => {
                    return Err(format!(
                        "\"{text}\" reads back as {:?}",
                        other.map(|filter| filter.to_string())
                    ));
                }
            }
            let (cols, rows, (x, y)) = (filter.cols(), filter.rows(), filter.anchor());
            let finite = (0..rows).all(|row| (0..cols).all(|col| filter.tap(row, col).is_finite()));
            let right = finite
                && x < cols
                && y < rows
                && cols <= Filter::MAX_EXTENT
                && rows <= Filter::MAX_EXTENT;
            if right { Ok(true) } else { Err(format!("an illegal filter: {text}")) }
        }
        Err(message) if message.contains("internal error") => Err(message),
        Err(message) if message.is_empty() || message.len() > 1000 => {
            Err(format!("a message of {} bytes: {message:.100}", message.len()))
        }
        Err(_) => Ok(false),
    }
}

/// The size of a file without a header, up to the first line's end, then the file. Accepted if it
/// has that many bytes.
fn raw_size(bytes: &[u8]) -> Result<bool, String> {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let pixels = bytes.get(end + 1..).unwrap_or_default();
    let Ok(text) = std::str::from_utf8(&bytes[..end]) else { return Ok(false) };
    let Ok((Shape { width, height, channels }, scalar)) = fuzz::raw_size(text) else {
        return Ok(false);
    };
    let legal =
        (1..=Shape::MAX_EXTENT).contains(&width) && (1..=Shape::MAX_EXTENT).contains(&height);
    if !legal || !(1..=Shape::MAX_CHANNELS).contains(&channels) {
        return Err(format!("\"{text}\" is read as {width}x{height}x{channels}"));
    }
    let values = width.checked_mul(height).and_then(|pixels| pixels.checked_mul(channels));
    let right = values.and_then(|values| values.checked_mul(scalar.bytes())) == Some(pixels.len());
    let same = |value: f32, bytes: &[u8]| match (scalar, bytes) {
        (Scalar::U8, &[byte]) => value == f32::from(byte),
        (Scalar::U16, &[low, high]) => value == f32::from(u16::from_ne_bytes([low, high])),
        (_, &[a, b, c, d]) => value.to_bits() == u32::from_ne_bytes([a, b, c, d]) || value.is_nan(),
        _ => false,
    };
    in_file("a.raw", pixels, |path| match fuzz::load(path, Some(text), 1 << 20, 1 << 22) {
        Ok(found)
            if right
                && found
                    .values
                    .iter()
                    .zip(pixels.chunks(scalar.bytes()))
                    .all(|(&value, bytes)| same(value, bytes)) =>
        {
            Ok(true)
        }
        Ok(found) => Err(format!(
            "{} bytes were taken for {text}: {} values",
            pixels.len(),
            found.values.len()
        )),
        Err(message) if right && width * height <= 1 << 20 && pixels.len() <= 1 << 22 => {
            Err(format!("{text} was refused: {message}"))
        }
        Err(message) if message.contains("internal error") => Err(message),
        Err(_) => Ok(false),
    })
}

/// The most pixels, and bytes, of a picture here.
const PIXELS: u64 = 1 << 14;

/// A picture is refused, or decoded within the limits and filtered as the oracle filters it.
fn picture(bytes: &[u8]) -> Result<bool, String> {
    let loaded = in_file("picture", bytes, |path| Ok(fuzz::load(path, None, PIXELS, 16 * PIXELS)))?;
    let Ok(picture) = loaded else { return Ok(false) };
    let Shape { width, height, channels } = picture.shape;
    if (width * height) as u64 > PIXELS || picture.values.len() != width * height * channels {
        return Err(format!(
            "{} passed the limit of {PIXELS} pixels, with {} values",
            picture.shape,
            picture.values.len()
        ));
    }
    if picture.scalar == Scalar::U8 {
        filtered(
            picture.shape,
            picture.values.iter().map(|&value| value as u8).collect::<Vec<_>>(),
        )?;
    }
    filtered(picture.shape, picture.values)?;
    Ok(true)
}

/// Filters pixels and compares with the references.
fn filtered<P: Pixel + Sample>(shape: Shape, values: Vec<P>) -> Result<(), String> {
    let Shape { width, height, channels } = shape;
    let border = Border::Reflect101;
    let window =
        Window::dense("a sharp one", 3, 3, &[0.0, -0.3, 0.0, -0.3, 2.2, -0.3, 0.0, -0.3, 0.0]);
    let plane = |channel: usize| -> Vec<f64> {
        values.iter().skip(channel).step_by(channels).map(|v| v.value()).collect()
    };
    let planes: Vec<Vec<f64>> = (0..channels).map(plane).collect();
    let expected: Vec<Vec<f64>> = planes
        .iter()
        .map(|plane| {
            if P::KIND == Kind::U8 {
                let plane: Vec<u8> = plane.iter().map(|&value| value as u8).collect();
                let bytes = oracle::bytes(&plane, (width, height), &window.whole(), border);
                return bytes.into_iter().map(f64::from).collect();
            }
            if P::KIND.is_integer() {
                return oracle::correlate(plane, (width, height), window.as_taps(), border);
            }
            let narrow: Vec<f32> = plane.iter().map(|&value| value as f32).collect();
            scalar::direct(&narrow, (width, height), window.as_taps(), border)
                .into_iter()
                .map(f64::from)
                .collect()
        })
        .collect();
    let run = || -> apron::Result<Image<P>> {
        let src = Image::from_vec(values, width, height, channels)?;
        let plan = Plan::builder(&window.filter).border(border).device(Device::Cpu).build()?;
        let mut dst = Image::<P>::zeroed(width, height, channels)?;
        plan.run(&src.view(), &mut dst.view_mut())?;
        Ok(dst)
    };
    let found = run().map_err(|error| format!("{shape}: {error}"))?;
    for (i, &found) in found.as_slice().iter().enumerate() {
        let right = P::nearest(expected[i % channels][i / channels]);
        if !found.same(right) {
            return Err(format!(
                "{shape} of {}: value {i}: {right:?} expected, {found:?} found",
                P::KIND
            ));
        }
    }
    Ok(())
}

/// The bytes as a file.
fn in_file<T>(
    name: &str,
    bytes: &[u8],
    read: impl FnOnce(&Path) -> Result<T, String>,
) -> Result<T, String> {
    thread_local! {
        static FOLDER: RefCell<Option<TempDir>> = const { RefCell::new(None) };
    }
    let path = FOLDER.with_borrow_mut(|folder| -> std::io::Result<PathBuf> {
        let folder = match folder {
            Some(folder) => folder,
            None => folder.insert(tempfile::tempdir()?),
        };
        let path = folder.path().join(name);
        std::fs::write(&path, bytes)?;
        Ok(path)
    });
    read(&path.map_err(|error| error.to_string())?)
}

/// Changes a few bits, bytes, numbers or lengths of a file, or inserts a part of another one.
pub fn mutated(rng: &mut Rng, bytes: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..rng.usize(1..=3) {
        let at = rng.usize(0..=bytes.len());
        let part = |rng: &mut Rng, of: &[u8]| {
            let start = rng.usize(0..=of.len());
            of[start..].iter().copied().take(rng.usize(0..=32)).collect::<Vec<u8>>()
        };
        match rng.u8(0..10) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..(at + rng.usize(1..=16)).min(bytes.len()))),
            2 => {
                let part = part(rng, &bytes);
                drop(bytes.splice(at..at, part));
            }
            3 => {
                let part = part(rng, other);
                drop(bytes.splice(at..at, part));
            }
            4 => {
                let word = [
                    &b"1e999"[..],
                    b"-1",
                    b"0",
                    b"nan",
                    b"65536",
                    b"4294967296",
                    b"x",
                    b":",
                    b"1/0",
                    b"\xff\xff\xff\x7f",
                ];
                drop(bytes.splice(at..at, word[rng.usize(0..word.len())].iter().copied()));
            }
            5 | 6 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = [0, 1, 0x7F, 0x80, 0xFF, b'0', b'9', b' '][rng.usize(0..8)];
                }
            }
            7 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = rng.u8(..);
                }
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.u8(0..8);
                }
            }
        }
    }
    bytes
}
