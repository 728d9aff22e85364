//! The formats of the `image` crate that hold one picture and little metadata.

use std::io::{self, BufReader, SeekFrom};

use apron::Extra;
use image::codecs::{bmp, farbfeld, hdr, qoi, tga};
use image::metadata::Orientation;
use image::{ColorType, ImageDecoder, ImageEncoder, ImageFormat, ImageReader, ImageResult};

use super::headers;
use super::io::{Result, Sink, Source, damaged, image_of, kept_in_part, said, zeroes};
use super::options::Reading;
use crate::exif;
use crate::limits::Limits;
use crate::meta::Meta;
use crate::picture::{Document, Picture, Pixels};

pub(super) fn read(
    source: &mut (impl Source + ?Sized),
    format: ImageFormat,
    options: &Reading,
) -> Result<Document> {
    let limits = &options.limits;
    let mut told = Meta::default();
    headers::read(source, format, &mut told).map_err(|error| error.to_string())?;
    let alpha = match format {
        ImageFormat::Tga => alpha_of_tga(source).map_err(|error| error.to_string())?,
        _ => Extra::Straight,
    };
    let mut reader = ImageReader::with_format(BufReader::new(source), format);
    reader.limits(allowed(limits));
    let decoder = reader.into_decoder().map_err(|error| explained(error, limits))?;
    let mut document = still(decoder, alpha, options)?;
    let meta = &mut document.pages[0].meta;
    meta.carried.extend(told.carried);
    meta.resolution = meta.resolution.or(told.resolution);
    Ok(document)
}

/// The meaning of a TGA's fourth channel, from the extension area that version 2.0 may have. Leaves
/// the file at its start.
fn alpha_of_tga(source: &mut (impl Source + ?Sized)) -> io::Result<Extra> {
    /// The last 18 bytes of a file of version 2.0. The footer has 26 bytes; its first four give the
    /// offset of the extension area.
    const SIGNATURE: &[u8] = b"TRUEVISION-XFILE.\0";
    /// Offset of the attributes' type within the area, in bytes. The area must be longer.
    const TYPE: u64 = 494;
    let mut footer = [0; 26];
    let mut kind = [0];
    let len = source.seek(SeekFrom::End(0))?;
    if let Some(at) = len.checked_sub(26) {
        source.seek(SeekFrom::Start(at))?;
        source.read_exact(&mut footer)?;
        let area = u64::from(u32::from_le_bytes([footer[0], footer[1], footer[2], footer[3]]));
        if footer.ends_with(SIGNATURE) && area > 0 && area + TYPE < at {
            source.seek(SeekFrom::Start(area + TYPE))?;
            source.read_exact(&mut kind)?;
        }
    }
    source.rewind()?;
    Ok(match kind[0] {
        1 | 2 => Extra::Unspecified,
        4 => Extra::Premultiplied,
        _ => Extra::Straight,
    })
}

/// The limits, as the `image` crate takes them.
pub(super) fn allowed(limits: &Limits) -> image::Limits {
    let mut allowed = image::Limits::default();
    allowed.max_alloc = Some(limits.max_bytes);
    allowed
}

pub(super) fn explained(error: image::ImageError, limits: &Limits) -> String {
    match error {
        image::ImageError::Limits(_) => limits.exceeded(),
        error => said(&error),
    }
}

/// Reads one picture. `alpha` is the meaning of its alpha, if it has one.
fn still(mut decoder: impl ImageDecoder, alpha: Extra, options: &Reading) -> Result<Document> {
    let (width, height) = decoder.dimensions();
    let colour = decoder.color_type();
    options.limits.check(width.into(), height.into(), colour.bytes_per_pixel().into())?;
    let channels = usize::from(colour.channel_count());
    let mut meta = exif::read_from(decoder.exif_metadata().ok().flatten().as_deref());
    meta.set_profile(decoder.icc_profile().ok().flatten(), channels.min(3));
    meta.orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);

    let (pixels, failed) = match colour {
        ColorType::L8 | ColorType::La8 | ColorType::Rgb8 | ColorType::Rgba8 => {
            let (values, failed) = values(decoder, options)?;
            (Pixels::U8(image_of(values, width, height, channels)?), failed)
        }
        ColorType::L16 | ColorType::La16 | ColorType::Rgb16 | ColorType::Rgba16 => {
            let (values, failed) = values(decoder, options)?;
            (Pixels::U16(image_of(values, width, height, channels)?), failed)
        }
        ColorType::Rgb32F | ColorType::Rgba32F => {
            let (values, failed) = values(decoder, options)?;
            (Pixels::F32(image_of(values, width, height, channels)?), failed)
        }
        other => return Err(apron::Error::PixelFormat { format: format!("{other:?}") }.to_string()),
    };
    let extras = if colour.has_alpha() { vec![alpha] } else { Vec::new() };
    let mut document = Document::from(Picture { extras, meta, ..Picture::new(pixels) });
    document.notes.extend(failed);
    Ok(document)
}

/// Decodes into memory whose allocation may fail. In a damaged file, missing values are 0, and a
/// note says so.
fn values<P: bytemuck::Pod>(
    decoder: impl ImageDecoder,
    options: &Reading,
) -> Result<(Vec<P>, Option<String>)> {
    let mut values = zeroes::<P>(decoder.total_bytes() as usize / size_of::<P>())?;
    match decoder.read_image(bytemuck::cast_slice_mut(&mut values)) {
        Ok(()) => Ok((values, None)),
        Err(error) => {
            let reason = explained(error, &options.limits);
            if options.lenient {
                Ok((values, Some(kept_in_part(&reason))))
            } else {
                Err(damaged(&reason))
            }
        }
    }
}

/// The formats that [`write`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoded {
    Bmp,
    Qoi,
    Tga,
    Farbfeld,
    Hdr,
}

pub(crate) fn write(document: &Document, mut out: &mut dyn Sink, encoded: Encoded) -> Result<()> {
    let picture = document.first();
    match encoded {
        Encoded::Bmp => encode(bmp::BmpEncoder::new(&mut out), picture).and_then(|()| {
            let resolution = picture.meta.resolution;
            resolution
                .map_or(Ok(()), |resolution| headers::write_resolution(out, resolution))
                .map_err(Into::into)
        }),
        Encoded::Qoi => encode(qoi::QoiEncoder::new(out), picture),
        Encoded::Tga => encode(tga::TgaEncoder::new(out), picture),
        Encoded::Farbfeld => encode(farbfeld::FarbfeldEncoder::new(out), picture),
        Encoded::Hdr => encode(hdr::HdrEncoder::new(out), picture),
    }
    .map_err(|error| error.to_string())
}

fn encode(encoder: impl ImageEncoder, picture: &Picture) -> ImageResult<()> {
    let shape = picture.pixels.shape();
    let Some(colour) = picture.colour() else {
        unreachable!("the table of formats lets only types of the image crate through");
    };
    encoder.write_image(picture.pixels.bytes(), shape.width as u32, shape.height as u32, colour)
}

/// The metadata that a decoder gives, for formats whose pixels another decoder reads.
pub(super) fn meta(exif_data: Option<&[u8]>, icc: Option<Vec<u8>>, channels: usize) -> Meta {
    let mut meta = exif::read_from(exif_data);
    meta.set_profile(icc, channels.min(3));
    meta
}
