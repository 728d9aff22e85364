//! PNG and its animations.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Seek};

use apron::{Image, Scalar};
use png::chunk::ChunkType;
use png::{
    BitDepth, BlendOp, ColorType, Decoder, DecodingError, DisposeOp, Info, PixelDimensions, Reader,
    Transformations,
};

use super::frames::{Disposal, Frames, Part, Sample, as_rgba};
use super::io::{Pages, Result, Sink, Source, damaged, image_of, kept_in_part, said, zeroes};
use super::options::Reading;
use super::other::meta;
use super::png_chunks;
use crate::carried::{Carried, Kind, Value};
use crate::exif;
use crate::extra::straight;
use crate::meta::{Meta, Resolution, Unit};
use crate::picture::{Document, Picture, Pixels};

/// Inches in a metre.
const PER_METRE: f64 = 1.0 / 0.0254;

pub(super) fn read(source: &mut dyn Source, options: &Reading) -> Result<Document> {
    let limits = &options.limits;
    let mut told = Meta::default();
    png_chunks::read(source, &mut told).map_err(|error| error.to_string())?;
    let reason = |error| match error {
        DecodingError::LimitsExceeded => limits.exceeded(),
        DecodingError::IoError(error) => said(&error),
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
    pages.check(
        width.into(),
        height.into(),
        (channels * if depth == BitDepth::Sixteen { 2 } else { 1 }) as u64,
    )?;
    let meta = described(reader.info(), channels, told);

    if reader.info().animation_control.is_some_and(|control| control.num_frames > 1) {
        return match depth {
            BitDepth::Sixteen => animation::<u16>(&mut reader, pages, meta, &reason),
            _ => animation::<u8>(&mut reader, pages, meta, &reason),
        };
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

/// Reads the frames of an animation.
fn animation<P: Sample>(
    reader: &mut Reader<impl BufRead + Seek>,
    pages: Pages<'_>,
    meta: Meta,
    reason: &dyn Fn(DecodingError) -> String,
) -> Result<Document>
where
    Pixels: From<Image<P>>,
{
    let info = reader.info();
    let Some(control) = info.animation_control else {
        return Err("the file has no frames".to_owned());
    };
    let (size, interlaced) = (info.size(), info.interlaced);
    let mut left_out = info.frame_control.is_none();
    let channels = reader.output_color_type().0.samples();
    let len = reader.output_buffer_size().ok_or_else(|| pages.options.limits.exceeded())?;
    let row = reader.output_line_size(size.0).ok_or_else(|| pages.options.limits.exceeded())?;
    let mut frames = Frames::<P>::new(pages, size, meta)?;
    let mut values = zeroes::<P>(len / size_of::<P>())?;
    let (mut found, mut failed) = (0, None);
    while found < control.num_frames && !frames.pages.done() {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        let read = match reader.next_frame(bytes) {
            Ok(read) => read,
            Err(error) => {
                failed = Some(reason(error));
                break;
            }
        };
        // A first picture without a frame control chunk is no frame.
        if std::mem::take(&mut left_out) {
            continue;
        }
        found += 1;
        let Some(about) = reader.info().frame_control else { continue };
        // For interlaced parts, the decoder's row stride is that of the whole picture.
        let stride = if interlaced { row } else { read.line_size } / size_of::<P>();
        let (width, height) = (about.width as usize, about.height as usize);
        let mut pixels = zeroes::<P>(width * height * channels)?;
        for (to, from) in pixels.chunks_exact_mut(width * channels).zip(values.chunks(stride)) {
            to.copy_from_slice(&from[..width * channels]);
        }
        pixels.iter_mut().for_each(|value| *value = value.of_big_endian());
        let part = Part {
            x: about.x_offset as usize,
            y: about.y_offset as usize,
            width,
            height,
            over: about.blend_op == BlendOp::Over,
            disposal: match about.dispose_op {
                DisposeOp::None => Disposal::Keep,
                DisposeOp::Background => Disposal::Clear,
                DisposeOp::Previous => Disposal::Restore,
            },
        };
        // A denominator of 0 stands for hundredths of a second.
        let denominator = if about.delay_den == 0 { 100 } else { about.delay_den };
        let delay = f64::from(about.delay_num) * 1000.0 / f64::from(denominator);
        frames.push(part, &as_rgba(&pixels, channels)?, delay)?;
    }
    frames.finish(channels, control.num_plays, failed)
}

/// The metadata of a file.
fn described(info: &Info<'_>, channels: usize, told: Meta) -> Meta {
    let icc = info.icc_profile.as_deref().map(<[u8]>::to_vec);
    let mut meta = meta(info.exif_metadata.as_deref(), icc, channels);
    if let Some(PixelDimensions { xppu, yppu, unit }) = info.pixel_dims
        && xppu > 0
        && yppu > 0
    {
        let (x, y) = (f64::from(xppu), f64::from(yppu));
        meta.resolution = match unit {
            png::Unit::Meter => Some(Resolution::per_inch(x / PER_METRE, y / PER_METRE)),
            png::Unit::Unspecified => Resolution::of(x, y, Some(Unit::Unnamed as u32)),
        };
    }
    if info.animation_control.is_some() && info.frame_control.is_none() {
        meta.carried.push(Carried::left_out(
            Kind::Phrase,
            "the still picture for viewers without animations",
        ));
    }
    meta.carried.extend(told.carried);
    meta.xmp = told.xmp;
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
    info.pixel_dims = meta.resolution.and_then(|resolution| {
        let per_metre = |value: f64| (value * PER_METRE).round() as u32;
        let metres =
            resolution.in_inches().map(|(x, y)| (per_metre(x), per_metre(y), png::Unit::Meter));
        let ratio =
            || resolution.whole(i32::MAX as u32).map(|(x, y)| (x, y, png::Unit::Unspecified));
        metres.or_else(ratio).map(|(xppu, yppu, unit)| PixelDimensions { xppu, yppu, unit })
    });
    let mut encoder = png::Encoder::with_info(out, info)?;
    encoder.set_color(match shape.channels {
        1 => ColorType::Grayscale,
        2 => ColorType::GrayscaleAlpha,
        3 => ColorType::Rgb,
        _ => ColorType::Rgba,
    });
    encoder.set_depth(if first.pixels.scalar() == Scalar::U16 {
        BitDepth::Sixteen
    } else {
        BitDepth::Eight
    });
    encoder.set_compression(png::Compression::Fast);
    encoder.set_filter(png::Filter::Adaptive);
    let frames = u32::try_from(document.pages.len()).unwrap_or(u32::MAX);
    if frames > 1 {
        encoder.set_animated(frames, document.plays.unwrap_or(0))?;
    }
    let mut writer = encoder.write_header()?;
    for carried in &meta.carried {
        if let Some(Value::Chunk(name, data)) = &carried.value
            && png_chunks::fits(*name, data, shape.channels)
        {
            writer.write_chunk(ChunkType(*name), data)?;
        }
    }
    if let Some(packet) = &meta.xmp {
        writer.write_chunk(ChunkType(*b"iTXt"), &png_chunks::xmp_chunk(packet))?;
    }
    for page in &document.pages {
        if frames > 1 {
            // In milliseconds if the field can hold them, else in tenths of a second.
            match page.shown_for() {
                delay @ ..=65_535.0 => writer.set_frame_delay(delay.round() as u16, 1000)?,
                delay => writer.set_frame_delay((delay / 100.0).round() as u16, 10)?,
            }
        }
        match &page.pixels {
            Pixels::U16(image) if cfg!(target_endian = "little") => {
                let swapped: Vec<u16> =
                    image.as_slice().iter().map(|value| value.swap_bytes()).collect();
                writer.write_image_data(bytemuck::cast_slice(&swapped))?;
            }
            pixels => writer.write_image_data(pixels.bytes())?,
        }
    }
    writer.finish()
}
