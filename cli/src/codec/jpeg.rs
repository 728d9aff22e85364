//! The JPEG reader and writer.

use std::borrow::Cow;

use image::ImageFormat;
use libjpeg_turbo_rs as turbo;
use turbo::{ColorSpace, DecodeLimits, Decoder, DensityUnit, Encoder, PixelFormat};
use zune_core::bytestream::ZCursor;
use zune_core::options::DecoderOptions;

use super::io::{Result, Sink, Source, damaged, image_of, kept_in_part, zeroes};
use super::options::{Reading, Writing};
use super::{other, segments};
use crate::carried::Value;
use crate::exif;
use crate::meta::{Resolution, Subsampling, Unit};
use crate::picture::{Document, Picture, Pixels};

pub(super) fn read(source: &mut dyn Source, options: &Reading) -> Result<Document> {
    let mut data = Vec::new();
    source.read_to_end(&mut data).map_err(|error| error.to_string())?;
    let complete = crate::ends::jpeg_is_whole(&data);
    if !complete && !options.lenient {
        return Err(damaged("the file is cut off: it ends before the picture does"));
    }
    let mut document = match Decoder::new_with_limits(&data, DecodeLimits::default()) {
        Ok(decoder) if is_common(&decoder) => decoded(decoder, &data, options)?,
        // The other decoder reads rare files, and gives a better error for damaged ones.
        _ => other::read(&mut std::io::Cursor::new(&data), ImageFormat::Jpeg, options)?,
    };
    segments::read(&data, &mut document.pages[0].meta);
    if !complete && document.notes.is_empty() {
        document.notes.push(kept_in_part("the file is cut off"));
    }
    Ok(document)
}

/// Whether the fast decoder was tested with such a picture: 8 bits, grey, YCbCr or CMYK, with the
/// usual subsampling.
fn is_common(decoder: &Decoder<'_>) -> bool {
    let frame = decoder.header();
    frame.precision == 8
        && !frame.is_lossless
        && !decoder.is_arithmetic()
        && match &*frame.components {
            [_] => true,
            [_, blue, red] => {
                let factors =
                    |it: &turbo::ComponentInfo| (it.horizontal_sampling, it.vertical_sampling);
                factors(blue) == (1, 1) && factors(red) == (1, 1) && subsampling(decoder).is_some()
            }
            [_, _, _, _] => is_even(decoder) || decoder.jpeg_color_space() == ColorSpace::Cmyk,
            _ => false,
        }
}

/// Whether the fast decoder can upsample CMYK: cyan and black have full size, magenta and yellow
/// may be smaller.
fn is_even(decoder: &Decoder<'_>) -> bool {
    let factors = |it: &turbo::ComponentInfo| (it.horizontal_sampling, it.vertical_sampling);
    let [cyan, magenta, yellow, black] = &*decoder.header().components else { return false };
    let rest = factors(magenta) == (1, 1) && factors(yellow) == (1, 1);
    rest && factors(black) == factors(cyan) && subsampling(decoder).is_some()
}

/// Decodes CMYK as it is in the file. This decoder allows black to have another size than cyan, as
/// in libjpeg's files.
fn uneven_inks(data: &[u8], options: &Reading, values: &mut [u8]) -> Result<()> {
    let how = DecoderOptions::default()
        .jpeg_set_out_colorspace(zune_core::colorspace::ColorSpace::CMYK)
        .set_strict_mode(!options.lenient)
        .set_max_width(usize::MAX)
        .set_max_height(usize::MAX);
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(data), how);
    decoder.decode_headers().map_err(|error| damaged(&error.to_string()))?;
    if decoder.output_buffer_size() != Some(values.len()) {
        return Err(damaged("the decoders do not agree on the size"));
    }
    decoder.decode_into(values).map_err(|error| damaged(&error.to_string()))
}

fn subsampling(decoder: &Decoder<'_>) -> Option<Subsampling> {
    match decoder
        .header()
        .components
        .first()
        .map(|luma| (luma.horizontal_sampling, luma.vertical_sampling))?
    {
        (1, 1) => Some(Subsampling::S444),
        (2, 1) => Some(Subsampling::S422),
        (2, 2) => Some(Subsampling::S420),
        _ => None,
    }
}

fn decoded(mut decoder: Decoder<'_>, data: &[u8], options: &Reading) -> Result<Document> {
    let frame = decoder.header();
    let (width, height, channels) = (frame.width, frame.height, frame.components.len());
    options.limits.check(width.into(), height.into(), channels as u64)?;
    let ink = channels == 4;
    decoder.set_output_format(match channels {
        1 => PixelFormat::Grayscale,
        4 => PixelFormat::Cmyk,
        _ => PixelFormat::Rgb,
    });
    decoder.set_lenient(options.lenient);
    let mut values = zeroes::<u8>(usize::from(width) * usize::from(height) * channels)?;
    let mut warning = None;
    if ink && !is_even(&decoder) {
        uneven_inks(data, options, &mut values)?;
    } else {
        let decoded =
            decoder.decode_image_into(&mut values).map_err(|error| damaged(&error.to_string()))?;
        if (decoded.width, decoded.height) != (width.into(), height.into()) {
            return Err(damaged("the decoder does not agree with the header on the size"));
        }
        warning = decoded.warnings.first().map(|warning| kept_in_part(&warning.to_string()));
    }
    if ink {
        // JPEGs store CMYK inverted since Photoshop: 255 is no ink.
        values.iter_mut().for_each(|value| *value = 255 - *value);
    }
    let mut meta = exif::read_from(decoder.exif_data());
    meta.set_profile(decoder.icc_profile().ok().flatten(), channels);
    let density = decoder.density();
    let (x, y) = (f64::from(density.x), f64::from(density.y));
    meta.resolution = match density.unit {
        DensityUnit::Dpi if x * y > 0.0 => Some(Resolution::per_inch(x, y)),
        DensityUnit::Dpcm if x * y > 0.0 => Some(Resolution { x, y, unit: Unit::Centimetre }),
        // The resolution gives only the ratio of pixels that are not square.
        _ if x * y > 0.0 && x != y => {
            meta.resolution.or(Some(Resolution { x, y, unit: Unit::Unnamed }))
        }
        _ => meta.resolution,
    };
    meta.subsampling = if channels == 3 { subsampling(&decoder) } else { None };
    let pixels = Pixels::U8(image_of(values, width.into(), height.into(), channels)?);
    let mut document = Document::from(Picture { meta, extras: Vec::new(), ..Picture::new(pixels) });
    document.notes.extend(warning);
    Ok(document)
}

pub(crate) fn write(document: &Document, out: &mut dyn Sink, options: &Writing) -> Result<()> {
    let picture = document.first();
    let (shape, meta) = (picture.pixels.shape(), &picture.meta);
    if shape.width > 65_500 || shape.height > 65_500 {
        return Err(format!(
            "{}x{} pixels are more than the 65500 a side that JPEG holds",
            shape.width, shape.height
        ));
    }
    let colours = match shape.channels {
        1 => PixelFormat::Grayscale,
        4 => PixelFormat::Cmyk,
        _ => PixelFormat::Rgb,
    };
    let pixels = match picture.is_ink() {
        true => Cow::Owned(picture.pixels.bytes().iter().map(|value| 255 - value).collect()),
        false => Cow::Borrowed(picture.pixels.bytes()),
    };
    let mut encoder = Encoder::new(&pixels, shape.width, shape.height, colours)
        .quality(options.quality.unwrap_or(90));
    encoder = encoder.subsampling(match options.subsampling.or(meta.subsampling) {
        _ if picture.is_ink() => turbo::Subsampling::S444,
        Some(Subsampling::S420) => turbo::Subsampling::S420,
        Some(Subsampling::S422) => turbo::Subsampling::S422,
        Some(Subsampling::S444) | None => turbo::Subsampling::S444,
    });
    if let Some(profile) = &meta.icc {
        encoder = encoder.icc_profile(profile);
    }
    let fields = exif::write(meta, shape.width, shape.height)
        .filter(|data| data.len() <= segments::MAX_EXIF);
    if let Some(fields) = &fields {
        encoder = encoder.exif_data(fields);
    }
    if let Some(resolution) = meta.resolution {
        let whole = |value: f64| value.round().clamp(1.0, 65535.0) as u16;
        encoder = match (resolution.unit, resolution.whole(65535)) {
            (Unit::Unnamed, Some((x, y))) => encoder.density(0, x as u16, y as u16),
            (Unit::Unnamed, None) => encoder,
            (Unit::Inch, _) => encoder.density(1, whole(resolution.x), whole(resolution.y)),
            (Unit::Centimetre, _) => encoder.density(2, whole(resolution.x), whole(resolution.y)),
        };
    }
    if let Some(packet) = meta.xmp.as_deref().filter(|packet| packet.len() <= segments::MAX_XMP) {
        encoder = encoder.xmp_data(packet);
    }
    for carried in &meta.carried {
        encoder = match &carried.value {
            Some(Value::Comment(data)) if segments::fits(data) => {
                encoder.saved_marker(turbo::SavedMarker { code: 0xfe, data: data.clone() })
            }
            Some(Value::Iptc(data)) if segments::fits(data) => encoder.iptc_data(data),
            _ => encoder,
        };
    }
    let data = encoder.encode().map_err(|error| error.to_string())?;
    out.write_all(&data).map_err(|error| error.to_string())
}
