//! Writers of PGM, PPM and PAM, and PFM: a text header, then the samples. The `image` crate reads
//! all but PFM.
//!
//! PFM (<https://www.pauldebevec.com/Research/HDR/PFM/>) holds f32, from the lowest row up. The
//! sign of its last number is the byte order.

use std::io::Read;

use apron::{Image, Pixel, Shape};

use super::io::{Result, Sink, Source, damaged, image_of, kept_in_part, said, zeroes};
use super::options::Reading;
use crate::carried::{Carried, Kind};
use crate::meta::Meta;
use crate::picture::{Document, Picture, Pixels};

/// The header of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Netpbm {
    /// PGM for grey, PPM for RGB: most readers of these cannot read PAM.
    Pnm,
    Pam,
    Pfm,
}

/// Whether a file with these first bytes is a PFM.
pub(super) fn is_pfm(start: &[u8]) -> bool {
    matches!(start, [b'P', b'F' | b'f', white, ..] if white.is_ascii_whitespace())
}

pub(crate) fn write(document: &Document, out: &mut dyn Sink, kind: Netpbm) -> Result<()> {
    let picture = document.first();
    let Shape { width, height, channels } = picture.pixels.shape();
    let greatest = if matches!(picture.pixels, Pixels::U8(_)) { 255 } else { 65535 };
    let number = if channels == 1 { 5 } else { 6 };
    let tuple = ["GRAYSCALE", "GRAYSCALE_ALPHA", "RGB", "RGB_ALPHA"][channels.clamp(1, 4) - 1];
    let letter = if channels == 1 { 'f' } else { 'F' };
    let header = match kind {
        Netpbm::Pnm => format!("P{number}\n{width} {height} {greatest}\n"),
        Netpbm::Pam => format!(
            "P7\nWIDTH {width}\nHEIGHT {height}\nDEPTH {channels}\nMAXVAL {greatest}\n\
             TUPLTYPE {tuple}\nENDHDR\n"
        ),
        Netpbm::Pfm => format!("P{letter}\n{width} {height}\n-1.0\n"),
    };
    let written = out.write_all(header.as_bytes()).and_then(|()| match &picture.pixels {
        Pixels::U8(image) => out.write_all(image.as_slice()),
        Pixels::U16(image) => rows(image, false, |value| value.to_be_bytes(), out),
        Pixels::F32(image) => rows(image, true, |value| value.to_le_bytes(), out),
        _ => unreachable!("the table of formats has u8, u16 and f32"),
    });
    written.map_err(|error| error.to_string())
}

/// Writes the samples of all rows, from the first or from the last row on.
fn rows<P: Pixel, const N: usize>(
    image: &Image<P>,
    upwards: bool,
    bytes: impl Fn(P) -> [u8; N],
    out: &mut dyn Sink,
) -> std::io::Result<()> {
    let Shape { height, .. } = image.shape();
    let length = image.shape().row_len();
    let mut row = Vec::with_capacity(length * N);
    for y in 0..height {
        let y = if upwards { height - 1 - y } else { y };
        row.clear();
        row.extend(image.as_slice()[y * length..][..length].iter().flat_map(|&it| bytes(it)));
        out.write_all(&row)?;
    }
    Ok(())
}

/// Maximum length of a number in a header, in bytes.
const MAX_WORD: u64 = 64;

/// The next word of a header, and the byte of white space after it.
fn word(source: &mut dyn Source) -> Result<String> {
    let mut found = String::new();
    let mut bytes = Read::take(source, MAX_WORD);
    loop {
        let mut byte = [0];
        bytes.read_exact(&mut byte).map_err(|error| said(&error))?;
        match byte[0] {
            white if white.is_ascii_whitespace() && found.is_empty() => {}
            white if white.is_ascii_whitespace() => return Ok(found),
            letter => found.push(letter.into()),
        }
    }
}

/// Reads a PFM.
pub(super) fn read_pfm(source: &mut dyn Source, options: &Reading) -> Result<Document> {
    let channels = if word(source)? == "PF" { 3 } else { 1 };
    let wrong = |word: &str| format!("\"{word}\" is no number that the header of a PFM can have");
    let mut extent = || {
        let word = word(source)?;
        word.parse::<u32>().ok().filter(|&it| it > 0).ok_or_else(|| wrong(&word))
    };
    let (width, height) = (extent()?, extent()?);
    let scale = word(source)?;
    let number = scale.parse::<f32>().ok().filter(|it| it.is_finite() && *it != 0.0);
    let number = number.ok_or_else(|| wrong(&scale))?;
    options.limits.check(width.into(), height.into(), 4 * channels as u64)?;
    let row = width as usize * channels;
    let mut values = zeroes::<f32>(row * height as usize)?;
    let mut failed = None;
    for row in values.chunks_exact_mut(row).rev() {
        let bytes = bytemuck::cast_slice_mut::<f32, u8>(row);
        if let Err(error) = source.read_exact(bytes) {
            failed = Some(said(&error));
            row.fill(0.0);
            break;
        }
        for value in row {
            let bytes = value.to_ne_bytes();
            *value =
                if number < 0.0 { f32::from_le_bytes(bytes) } else { f32::from_be_bytes(bytes) };
        }
    }
    let pixels = Pixels::F32(image_of(values, width, height, channels)?);
    let meta = Meta { is_linear: true, ..Meta::default() };
    let mut document = Document::from(Picture { extras: Vec::new(), meta, ..Picture::new(pixels) });
    if number.abs() != 1.0 {
        let scale = Carried::left_out(Kind::Phrase, format!("the scale of its values, {scale}"));
        document.pages[0].meta.carried.push(scale);
    }
    match failed {
        Some(reason) if !options.lenient => Err(damaged(&reason)),
        failed => {
            document.notes.extend(failed.map(|reason| kept_in_part(&reason)));
            Ok(document)
        }
    }
}
