//! PNG, and its animations.

use std::borrow::Cow;
use std::io::BufReader;

use apron::Scalar;
use image::AnimationDecoder;
use image::codecs::png::PngDecoder;
use png::{BitDepth, ColorType, Decoder, Info, PixelDimensions, Transformations, Unit};

use super::gif::frames;
use super::other::{allowed, explained, meta};
use super::{Pages, Reading, Result, Sink, Source, damaged, image_of, kept_in_part, said, zeroes};
use crate::exif;
use crate::extra::straight;
use crate::picture::{Document, Meta, Picture, Pixels, Resolution};

/// Inches in a metre.
const PER_METRE: f64 = 1.0 / 0.0254;

pub(super) fn read(source: &mut dyn Source, options: &Reading) -> Result<Document> {
    let limits = &options.limits;
    let reason = |error| match error {
        png::DecodingError::LimitsExceeded => limits.exceeded(),
        png::DecodingError::IoError(error) => said(&error),
        error => said(&error),
    };
    let bytes = usize::try_from(limits.max_bytes).unwrap_or(usize::MAX);
    let mut decoder = Decoder::new_with_limits(BufReader::new(&mut *source), png::Limits { bytes });
    decoder.set_transformations(Transformations::EXPAND);
    decoder.set_ignore_text_chunk(true);
    decoder.ignore_checksums(options.lenient);
    let mut reader = decoder.read_info().map_err(reason)?;
    let (colour, depth) = reader.output_color_type();
    let channels = colour.samples();
    let (width, height) = reader.info().size();
    let mut pages = Pages::new(options);
    pages.check(width.into(), height.into(), (channels * if depth == BitDepth::Sixteen { 2 } else { 1 }) as u64)?;
    let meta = described(reader.info(), channels);

    let animation = reader.info().animation_control.filter(|control| control.num_frames > 1);
    if let Some(control) = animation
        && !(depth == BitDepth::Sixteen && options.page == Some(1))
    {
        if depth == BitDepth::Sixteen {
            return Err("an animation of 16-bit pixels cannot be read; --page 1 takes its first picture".to_owned());
        }
        drop(reader);
        source.rewind().map_err(|error| error.to_string())?;
        let failed = |error| explained(error, limits);
        let decoder = PngDecoder::with_limits(BufReader::new(source), allowed(limits)).map_err(failed)?;
        let all = decoder.apng().map_err(failed)?.into_frames();
        return frames(all, (width, height), channels, meta, control.num_plays, options);
    }

    let len = reader.output_buffer_size().ok_or_else(|| limits.exceeded())?;
    let (pixels, failed) = if depth == BitDepth::Sixteen {
        let mut values = zeroes::<u16>(len / 2)?;
        let failed = reader.next_frame(bytemuck::cast_slice_mut(&mut values)).err();
        values.iter_mut().for_each(|value| *value = u16::from_be(*value));
        (Pixels::U16(image_of(values, width, height, channels)?), failed)
    } else {
        let mut values = zeroes::<u8>(len)?;
        let failed = reader.next_frame(&mut values).err();
        (Pixels::U8(image_of(values, width, height, channels)?), failed)
    };
    let alpha = matches!(colour, ColorType::GrayscaleAlpha | ColorType::Rgba);
    pages.push(Picture { extras: straight(alpha), meta, ..Picture::new(pixels) });
    let mut document = pages.finish(None, None)?;
    match failed {
        Some(error) if !options.lenient => return Err(damaged(&reason(error))),
        Some(error) => document.notes.push(kept_in_part(&reason(error))),
        None => {}
    }
    Ok(document)
}

/// What a file says beside the pixels.
fn described(info: &Info<'_>, channels: usize) -> Meta {
    let icc = info.icc_profile.as_deref().map(<[u8]>::to_vec);
    let mut meta = meta(info.exif_metadata.as_deref(), icc, channels);
    if let Some(PixelDimensions { xppu, yppu, unit: Unit::Meter }) = info.pixel_dims
        && xppu > 0
        && yppu > 0
    {
        meta.resolution = Some(Resolution(f64::from(xppu) / PER_METRE, f64::from(yppu) / PER_METRE));
    }
    meta
}

pub(crate) fn write(document: &Document, out: &mut dyn Sink) -> Result<()> {
    encode(document, out).map_err(|error| error.to_string())
}

fn encode(document: &Document, out: &mut dyn Sink) -> Result<(), png::EncodingError> {
    let first = document.first();
    let (shape, meta) = (first.pixels.shape(), &first.meta);
    let mut info = Info::with_size(shape.width as u32, shape.height as u32);
    info.icc_profile = meta.icc.as_deref().map(Cow::Borrowed);
    info.exif_metadata = exif::write(meta, shape.width, shape.height).map(Cow::Owned);
    info.pixel_dims = meta.resolution.map(|Resolution(x, y)| {
        let per_metre = |value: f64| (value * PER_METRE).round() as u32;
        PixelDimensions { xppu: per_metre(x), yppu: per_metre(y), unit: Unit::Meter }
    });
    let mut encoder = png::Encoder::with_info(out, info)?;
    encoder.set_color(match shape.channels {
        1 => ColorType::Grayscale,
        2 => ColorType::GrayscaleAlpha,
        3 => ColorType::Rgb,
        _ => ColorType::Rgba,
    });
    encoder.set_depth(if first.pixels.scalar() == Scalar::U16 { BitDepth::Sixteen } else { BitDepth::Eight });
    encoder.set_compression(png::Compression::Fast);
    encoder.set_filter(png::Filter::Adaptive);
    let frames = u32::try_from(document.pages.len()).unwrap_or(u32::MAX);
    if frames > 1 {
        encoder.set_animated(frames, document.plays.unwrap_or(0))?;
    }
    let mut writer = encoder.write_header()?;
    for page in &document.pages {
        if frames > 1 {
            // In milliseconds where they fit, else in tenths of a second.
            match page.shown_for() {
                delay @ ..=65_535.0 => writer.set_frame_delay(delay.round() as u16, 1000)?,
                delay => writer.set_frame_delay((delay / 100.0).round() as u16, 10)?,
            }
        }
        match &page.pixels {
            Pixels::U16(image) if cfg!(target_endian = "little") => {
                let swapped: Vec<u16> = image.as_slice().iter().map(|value| value.swap_bytes()).collect();
                writer.write_image_data(bytemuck::cast_slice(&swapped))?;
            }
            pixels => writer.write_image_data(pixels.bytes())?,
        }
    }
    writer.finish()
}
