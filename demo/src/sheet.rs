//! The contact sheet: many small pictures in a grid, a line of text under each.

use image::{GenericImage, Rgb, RgbImage};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};

const GAP: u32 = 8;
const TEXT: RasterHeight = RasterHeight::Size16;
const PAPER: Rgb<u8> = Rgb([250, 250, 248]);
const INK: Rgb<u8> = Rgb([32, 32, 32]);

/// Lays pictures out in rows of `columns`; each picture has the same size.
pub(crate) fn compose(pictures: &[(String, RgbImage)], columns: u32) -> RgbImage {
    let Some((_, first)) = pictures.first() else { return RgbImage::new(1, 1) };
    let (width, height) = first.dimensions();
    let cell = (width + GAP, height + TEXT.val() as u32 + GAP);
    let rows = (pictures.len() as u32).div_ceil(columns);
    let mut sheet = RgbImage::from_pixel(columns * cell.0 + GAP, rows * cell.1 + GAP, PAPER);
    for (index, (label, picture)) in pictures.iter().enumerate() {
        let (x, y) = (GAP + index as u32 % columns * cell.0, GAP + index as u32 / columns * cell.1);
        sheet.copy_from(picture, x, y).expect("every cell has a picture's size");
        write(&mut sheet, label, x, y + height, width);
    }
    sheet
}

/// Writes one line, cut off after `width` pixels.
fn write(sheet: &mut RgbImage, text: &str, left: u32, top: u32, width: u32) {
    let weight = FontWeight::Regular;
    let advance = get_raster_width(weight, TEXT) as u32;
    for (index, character) in text.chars().take((width / advance) as usize).enumerate() {
        let Some(glyph) = get_raster(character, weight, TEXT) else { continue };
        for (y, row) in glyph.rows().enumerate() {
            for (x, &shade) in row.iter().enumerate() {
                let pixel =
                    sheet.get_pixel_mut(left + index as u32 * advance + x as u32, top + y as u32);
                for (value, ink) in pixel.0.iter_mut().zip(INK.0) {
                    let (paper, ink, shade) = (u32::from(*value), u32::from(ink), u32::from(shade));
                    *value = ((paper * (255 - shade) + ink * shade) / 255) as u8;
                }
            }
        }
    }
}
