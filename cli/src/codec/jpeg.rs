//! JPEG.

use image::ImageFormat;
use libjpeg_turbo_rs as turbo;
use turbo::{DecodeLimits, Decoder, DensityUnit, Encoder, PixelFormat};

use super::{Reading, Result, Sink, Source, Writing, damaged, describes, image_of, kept_in_part, other, zeroes};
use crate::exif;
use crate::picture::{Document, Picture, Pixels, Resolution, Subsampling};

pub(super) fn read(source: &mut dyn Source, options: &Reading) -> Result<Document> {
    let mut data = Vec::new();
    source.read_to_end(&mut data).map_err(|error| error.to_string())?;
    let complete = has_end(&data);
    if !complete && !options.lenient {
        return Err(damaged("the file is cut off: it ends before the picture does"));
    }
    let mut document = match Decoder::new_with_limits(&data, DecodeLimits::default()) {
        Ok(decoder) if is_common(&decoder) => decoded(decoder, options)?,
        // CMYK and what is rare: the other decoder also says what is wrong with a file.
        _ => other::read(&mut std::io::Cursor::new(&data), ImageFormat::Jpeg, options)?,
    };
    if !complete && document.notes.is_empty() {
        document.notes.push(kept_in_part("the file is cut off"));
    }
    Ok(document)
}

/// Whether the picture is one that the fast decoder was tested with: 8 bits, grey or YCbCr, with the usual subsampling.
fn is_common(decoder: &Decoder<'_>) -> bool {
    let frame = decoder.header();
    frame.precision == 8
        && !frame.is_lossless
        && !decoder.is_arithmetic()
        && match &*frame.components {
            [_] => true,
            [_, blue, red] => {
                let factors = |it: &turbo::ComponentInfo| (it.horizontal_sampling, it.vertical_sampling);
                factors(blue) == (1, 1) && factors(red) == (1, 1) && subsampling(decoder).is_some()
            }
            _ => false,
        }
}

fn subsampling(decoder: &Decoder<'_>) -> Option<Subsampling> {
    match decoder.header().components.first().map(|luma| (luma.horizontal_sampling, luma.vertical_sampling))? {
        (1, 1) => Some(Subsampling::S444),
        (2, 1) => Some(Subsampling::S422),
        (2, 2) => Some(Subsampling::S420),
        _ => None,
    }
}

fn decoded(mut decoder: Decoder<'_>, options: &Reading) -> Result<Document> {
    let frame = decoder.header();
    let (width, height, channels) = (frame.width, frame.height, frame.components.len());
    options.limits.check(width.into(), height.into(), channels as u64)?;
    decoder.set_output_format(if channels == 1 { PixelFormat::Grayscale } else { PixelFormat::Rgb });
    decoder.set_lenient(options.lenient);
    let mut values = zeroes::<u8>(usize::from(width) * usize::from(height) * channels)?;
    let decoded = decoder.decode_image_into(&mut values).map_err(|error| damaged(&error.to_string()))?;
    if (decoded.width, decoded.height) != (width.into(), height.into()) {
        return Err(damaged("the decoder does not agree with the header on the size"));
    }
    let mut meta = decoder.exif_data().and_then(exif::read).unwrap_or_default();
    meta.icc = decoder.icc_profile().ok().flatten().filter(|profile| describes(profile, channels));
    let density = decoder.density();
    let (x, y) = (f64::from(density.x), f64::from(density.y));
    meta.resolution = match density.unit {
        DensityUnit::Dpi if x * y > 0.0 => Some(Resolution(x, y)),
        DensityUnit::Dpcm if x * y > 0.0 => Some(Resolution(x * 2.54, y * 2.54)),
        _ => meta.resolution,
    };
    meta.subsampling = if channels == 3 { subsampling(&decoder) } else { None };
    let pixels = Pixels::U8(image_of(values, width.into(), height.into(), channels)?);
    let mut document = Document::from(Picture { meta, ..Picture::new(pixels) });
    document.notes.extend(decoded.warnings.first().map(|warning| kept_in_part(&warning.to_string())));
    Ok(document)
}

/// Whether the marker that ends a picture is there. Decoders fill in what is missing without a word.
fn has_end(data: &[u8]) -> bool {
    let mut at = 0;
    while let Some(found) = data.get(at..).and_then(|rest| rest.iter().position(|&byte| byte == 0xff)) {
        at += found + 1;
        match data.get(at) {
            Some(0xd9) => return true,
            // Fill bytes, an escaped 0xff, restarts and the start have no length.
            Some(0xff) => {}
            Some(0 | 1 | 0xd0..=0xd8) => at += 1,
            Some(_) => match data.get(at + 1..at + 3) {
                Some(&[high, low]) => at += 1 + usize::from(u16::from_be_bytes([high, low])).max(2),
                _ => return false,
            },
            None => return false,
        }
    }
    false
}

pub(crate) fn write(document: &Document, out: &mut dyn Sink, options: &Writing) -> Result<()> {
    let picture = document.first();
    let (shape, meta) = (picture.pixels.shape(), &picture.meta);
    if shape.width > 65_500 || shape.height > 65_500 {
        return Err(format!("{}x{} pixels are more than the 65500 a side that JPEG holds", shape.width, shape.height));
    }
    let colours = if shape.channels == 1 { PixelFormat::Grayscale } else { PixelFormat::Rgb };
    let mut encoder =
        Encoder::new(picture.pixels.bytes(), shape.width, shape.height, colours).quality(options.quality.unwrap_or(90));
    encoder = encoder.subsampling(match options.subsampling.or(meta.subsampling) {
        Some(Subsampling::S420) => turbo::Subsampling::S420,
        Some(Subsampling::S422) => turbo::Subsampling::S422,
        Some(Subsampling::S444) | None => turbo::Subsampling::S444,
    });
    if let Some(profile) = &meta.icc {
        encoder = encoder.icc_profile(profile);
    }
    let fields = exif::write(meta, shape.width, shape.height);
    if let Some(fields) = &fields {
        encoder = encoder.exif_data(fields);
    }
    if let Some(Resolution(x, y)) = meta.resolution {
        let whole = |value: f64| value.round().clamp(1.0, 65535.0) as u16;
        encoder = encoder.density(1, whole(x), whole(y));
    }
    let data = encoder.encode().map_err(|error| error.to_string())?;
    out.write_all(&data).map_err(|error| error.to_string())
}
