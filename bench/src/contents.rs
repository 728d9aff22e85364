//! The contents of the pictures of `bench cliffs`. Only the photograph is read from a file.

use anyhow::{Context, Result};

/// A picture's side and channels, and the folder of the photograph.
pub(crate) struct Page<'a> {
    pub(crate) side: usize,
    pub(crate) channels: usize,
    pub(crate) assets: &'a std::path::Path,
}

/// Ordinary contents.
pub(crate) const ORDINARY: [&str; 5] = ["noise", "photograph", "flat", "gradient", "saturated"];

/// Contents that repeat a few values, so that many or all sums lie near a half.
pub(crate) const PATTERNS: [&str; 5] = ["checker-1", "checker-2", "checker-16", "dither", "text"];

/// The pixels, channels interleaved.
///
/// # Errors
/// If the photograph cannot be read.
pub(crate) fn pixels(content: &str, page: &Page<'_>) -> Result<Vec<u8>> {
    let Page { side, channels, assets } = *page;
    let mut random = fastrand::Rng::with_seed(1);
    let len = side * side * channels;
    let by_place = |byte: &dyn Fn(usize, usize) -> u8| -> Vec<u8> {
        (0..len).map(|i| byte(i / channels % side, i / channels / side)).collect()
    };
    Ok(match content {
        "photograph" => {
            let path = assets.join("astronaut.png");
            let photo = image::open(&path).with_context(|| path.display().to_string())?.to_rgb8();
            let at = |i: usize| {
                let (x, y) = ((i / channels % side) as u32, (i / channels / side) as u32);
                photo.get_pixel(x % photo.width(), y % photo.height())[i % channels % 3]
            };
            (0..len).map(at).collect()
        }
        "flat" => vec![77; len],
        "gradient" => by_place(&|x, _| (x * 255 / side) as u8),
        "saturated" => (0..len).map(|_| if random.bool() { 255 } else { 0 }).collect(),
        "checker-1" => by_place(&|x, y| checker(x, y, 1)),
        "checker-2" => by_place(&|x, y| checker(x, y, 2)),
        "checker-16" => by_place(&|x, y| checker(x, y, 16)),
        "dither" => by_place(&|x, y| dithered(x * 255 / side, x, y)),
        "text" => {
            let page = text(side, &mut random);
            by_place(&|x, y| page[y * side + x])
        }
        _ => (0..len).map(|_| random.u8(..)).collect(),
    })
}

fn checker(x: usize, y: usize, size: usize) -> u8 {
    255 * ((x / size + y / size) % 2) as u8
}

/// A grey level in black and white, dithered with Bayer's 8x8 matrix.
fn dithered(grey: usize, x: usize, y: usize) -> u8 {
    // The rank interleaves the bits of x ^ y and of y, the lowest first.
    let bit = |value: usize, at: usize| value >> at & 1;
    let rank = (0..3).fold(0, |rank, at| rank << 2 | bit(x ^ y, at) << 1 | bit(y, at));
    255 * u8::from(grey * 64 / 255 > rank)
}

/// A page of black strokes on white, in lines, words and paragraphs, with grey edges as letters
/// have.
fn text(side: usize, random: &mut fastrand::Rng) -> Vec<u8> {
    /// Pixels of a letter, and from one line to the next.
    const LETTER: (usize, usize) = (9, 14);
    const LINE: usize = 20;
    let alphabet: Vec<Vec<u8>> = (0..48).map(|_| letter(LETTER, random)).collect();
    let mut page = vec![255; side * side];
    for top in (LINE / 2..side.saturating_sub(LINE)).step_by(LINE) {
        // One line in eight begins a paragraph, and one ends early.
        let mut left = if random.u8(..8) == 0 { 60 } else { 20 };
        let right = if random.u8(..8) == 0 { side / 2 } else { side.saturating_sub(20) };
        while left + LETTER.0 <= right {
            if random.u8(..6) > 0 {
                let letter = &alphabet[random.usize(..alphabet.len())];
                for (row, values) in letter.chunks(LETTER.0).enumerate() {
                    page[(top + row) * side + left..][..LETTER.0].copy_from_slice(values);
                }
            }
            left += LETTER.0 + 1;
        }
    }
    page
}

/// Three or four strokes between the points of a grid, two pixels wide.
fn letter((width, height): (usize, usize), random: &mut fastrand::Rng) -> Vec<u8> {
    let mut point =
        || (1.5 + 3.0 * f64::from(random.u8(..3)), 1.5 + 5.5 * f64::from(random.u8(..3)));
    let strokes: Vec<_> = (0..4).map(|_| (point(), point())).collect();
    let ink = |x: f64, y: f64| -> f64 {
        let distance = |&((ax, ay), (bx, by)): &((f64, f64), (f64, f64))| {
            let (dx, dy) = (bx - ax, by - ay);
            let along = ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy).max(1e-9);
            let along = along.clamp(0.0, 1.0);
            (x - ax - along * dx).hypot(y - ay - along * dy)
        };
        let nearest = strokes.iter().map(distance).fold(f64::INFINITY, f64::min);
        (1.5 - nearest).clamp(0.0, 1.0)
    };
    let value =
        |i: usize| (255.0 * (1.0 - ink((i % width) as f64, (i / width) as f64))).round() as u8;
    (0..width * height).map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(content: &str, channels: usize) -> Vec<u8> {
        let assets = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets");
        pixels(content, &Page { side: 128, channels, assets: &assets }).unwrap()
    }

    /// Each name has a picture of its own.
    #[test]
    fn contents_differ() {
        let pages: Vec<_> =
            ORDINARY.into_iter().chain(PATTERNS).map(|content| page(content, 1)).collect();
        for (i, one) in pages.iter().enumerate() {
            assert_eq!(one.len(), 128 * 128);
            assert!(pages[..i].iter().all(|other| other != one));
        }
    }

    #[test]
    fn patterns_are_what_they_are_called() {
        let mean =
            |page: &[u8]| page.iter().map(|&byte| f64::from(byte)).sum::<f64>() / page.len() as f64;
        for size in ["checker-1", "checker-2", "checker-16"] {
            assert_eq!(mean(&page(size, 1)), 127.5);
        }
        assert!(
            page("checker-2", 3)[6..18]
                .iter()
                .eq([255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0].iter())
        );
        let (dither, gradient) = (page("dither", 1), page("gradient", 1));
        assert!(dither.iter().all(|&byte| byte == 0 || byte == 255));
        assert!((mean(&dither) - mean(&gradient)).abs() < 3.0);
        let text = page("text", 1);
        let share = |of: &dyn Fn(u8) -> bool| {
            text.iter().filter(|&&byte| of(byte)).count() as f64 / text.len() as f64
        };
        assert!(
            share(&|byte| byte == 255) > 0.5
                && share(&|byte| byte == 0) > 0.05
                && share(&|byte| byte % 255 > 0) > 0.02
        );
    }
}
