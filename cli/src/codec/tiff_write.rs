//! The TIFF writer: all pages, all number types, any number of channels, and metadata as tags.

use std::borrow::Cow;
use std::io;

use ::tiff::encoder::compression::{
    Compression as Method, CompressionAlgorithm, Compressor, Deflate, DeflateLevel, Lzw, Packbits,
    Uncompressed,
};
use ::tiff::encoder::{
    DirectoryEncoder, Rational, SRational, TiffEncoder, TiffKind, TiffKindBig, TiffValue,
};
use ::tiff::tags::{
    CompressionMethod, ExtraSamples, PhotometricInterpretation, Predictor, SampleFormat, Tag, Type,
};
use ::tiff::{TiffError, TiffResult};
use apron::{Extra, Scalar, Shape};
use exif::{Context, Field, Value};

use super::io::{Result, Sink, Wide};
use super::options::{Compression, Writing};
use super::tags;
use crate::failure::Failure;
use crate::meta::{Meta, Resolution, Unit, ratio};
use crate::picture::{Document, Picture, Pixels, Stored};

/// Minimum size of a strip, in bytes: small, so that reading one row reads little, but large enough
/// to compress well.
const STRIP: usize = 1_000_000;

/// The description of a picture, without its values.
#[derive(Clone, Copy)]
pub(crate) struct Described<'a> {
    pub(crate) shape: Shape,
    pub(crate) extras: &'a [Extra],
    pub(crate) meta: &'a Meta,
}

impl<'a> From<&'a Picture> for Described<'a> {
    fn from(picture: &'a Picture) -> Self {
        Self { shape: picture.pixels.shape(), extras: &picture.extras, meta: &picture.meta }
    }
}

/// A type of samples.
#[derive(Clone, Copy)]
struct Sample {
    bytes: usize,
    format: SampleFormat,
}

impl Sample {
    fn of(scalar: Scalar) -> Self {
        let is_integer = scalar.greatest().is_some();
        let format = if is_integer { SampleFormat::Uint } else { SampleFormat::IEEEFP };
        Self { bytes: scalar.bytes(), format }
    }
}

/// Whether the file may need 64-bit offsets: 32-bit ones reach to 4 GiB.
fn is_big(bytes: u64) -> bool {
    bytes.saturating_mul(2) > 0xf000_0000
}

/// Takes the bytes of rows.
pub(crate) type TakeRows<'a> = dyn FnMut(&[u8]) -> io::Result<()> + Send + 'a;

/// Hands rows over to the function that takes them.
type GiveRows<'a> = dyn FnMut(&mut TakeRows<'_>) -> Result<(), Failure> + 'a;

/// Writes one uncompressed picture as [`write`] does. `rows` passes the rows, in order, to the
/// function that it is given.
pub(crate) fn write_rows(
    out: &mut dyn Sink,
    (described, scalar): (Described<'_>, Scalar),
    fail: &dyn Fn(io::Error) -> Failure,
    rows: &mut GiveRows<'_>,
) -> Result<(), Failure> {
    let begin_failed = |error| fail(io_error(error));
    let shape = described.shape;
    if is_big(shape.row_len() as u64 * shape.height as u64 * scalar.bytes() as u64) {
        let mut encoder = TiffEncoder::<_, TiffKindBig>::new_generic(out).map_err(begin_failed)?;
        in_strips(&mut encoder, (described, Sample::of(scalar)), fail, rows)
    } else {
        let mut encoder = TiffEncoder::new(out).map_err(begin_failed)?;
        in_strips(&mut encoder, (described, Sample::of(scalar)), fail, rows)
    }
}

fn io_error(error: TiffError) -> io::Error {
    match error {
        TiffError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

fn in_strips<K: TiffKind<OffsetType: Send> + Send>(
    encoder: &mut TiffEncoder<&mut dyn Sink, K>,
    (described, sample): (Described<'_>, Sample),
    fail: &dyn Fn(io::Error) -> Failure,
    rows: &mut GiveRows<'_>,
) -> Result<(), Failure> {
    let failed = |error| fail(io_error(error));
    let mut page = Page::begin(encoder, described, sample, Compression::None).map_err(failed)?;
    let strip = page.strip_bytes();
    let mut waiting: Vec<u8> = Vec::new();
    rows(&mut |mut bytes| {
        while !bytes.is_empty() {
            let (part, others) = bytes.split_at((strip - waiting.len()).min(bytes.len()));
            bytes = others;
            if part.len() == strip {
                page.strip(part).map_err(io_error)?;
                continue;
            }
            waiting.extend_from_slice(part);
            if waiting.len() == strip {
                page.strip(&waiting).map_err(io_error)?;
                waiting.clear();
            }
        }
        Ok(())
    })?;
    if !waiting.is_empty() {
        page.strip(&waiting).map_err(failed)?;
    }
    page.finish().map_err(failed)
}

pub(crate) fn write(document: &Document, out: &mut dyn Sink, options: &Writing) -> Result<()> {
    let bytes: u64 = document.pages.iter().map(Picture::bytes_in_file).sum();
    let written = if is_big(bytes) {
        TiffEncoder::<_, TiffKindBig>::new_generic(out)
            .and_then(|encoder| pages(encoder, document, options))
    } else {
        TiffEncoder::new(out).and_then(|encoder| pages(encoder, document, options))
    };
    written.map_err(|error| error.to_string())
}

fn pages<K: TiffKind>(
    mut encoder: TiffEncoder<&mut dyn Sink, K>,
    document: &Document,
    options: &Writing,
) -> TiffResult<()> {
    let compression = options.compression.unwrap_or(Compression::None);
    for page in &document.pages {
        let (sample, bytes) = samples(page);
        let mut written = Page::begin(&mut encoder, page.into(), sample, compression)?;
        bytes.chunks(written.strip_bytes()).try_for_each(|strip| written.strip(strip))?;
        written.finish()?;
    }
    Ok(())
}

/// The values of a page in the type to write, as bytes.
fn samples(page: &Picture) -> (Sample, Cow<'_, [u8]>) {
    let (Pixels::F64(image), Some(stored)) = (&page.pixels, page.stored) else {
        return (Sample::of(page.pixels.scalar()), page.pixels.bytes().into());
    };
    let values = image.as_slice();
    match stored {
        Stored::I8 => rounded::<i8>(values, SampleFormat::Int),
        Stored::I16 => rounded::<i16>(values, SampleFormat::Int),
        Stored::I32 => rounded::<i32>(values, SampleFormat::Int),
        Stored::I64 => rounded::<i64>(values, SampleFormat::Int),
        Stored::U32 => rounded::<u32>(values, SampleFormat::Uint),
        Stored::U64 => rounded::<u64>(values, SampleFormat::Uint),
        Stored::F64 => rounded::<f64>(values, SampleFormat::IEEEFP),
        // TIFF has no boolean type.
        Stored::Bool => (Sample::of(Scalar::F32), page.pixels.bytes().into()),
    }
}

fn rounded<N: Wide>(values: &[f64], format: SampleFormat) -> (Sample, Cow<'static, [u8]>) {
    let values: Vec<N> = values.iter().map(|&value| N::from_f64(value)).collect();
    (Sample { bytes: size_of::<N>(), format }, bytemuck::cast_slice(&values).to_vec().into())
}

/// A page that is being written: its strips, then its directory.
struct Page<'e, 'w, K: TiffKind> {
    directory: DirectoryEncoder<'e, &'w mut dyn Sink, K>,
    compressor: Compressor,
    /// Whether the predictor replaces each sample by its difference from the pixel before.
    predicts: bool,
    shape: Shape,
    sample: Sample,
    /// Rows of a strip; the last strip may have fewer.
    rows: usize,
    offsets: Vec<K::OffsetType>,
    counts: Vec<K::OffsetType>,
}

impl<'e, 'w, K: TiffKind> Page<'e, 'w, K> {
    /// Begins a page: writes all its tags except those of the strips.
    fn begin(
        encoder: &'e mut TiffEncoder<&'w mut dyn Sink, K>,
        described: Described<'_>,
        sample: Sample,
        compression: Compression,
    ) -> TiffResult<Self> {
        let Described { shape, extras, meta } = described;
        let fields = crate::exif::fields(meta.exif.as_deref());
        let directories = directories(encoder, &fields)?;
        let row = (shape.row_len() * sample.bytes).max(1);
        // PackBits compresses each row on its own.
        let rows = if compression == Compression::Packbits { 1 } else { STRIP.div_ceil(row) };
        let (compressor, method) = match compression {
            Compression::None => (Uncompressed.get_algorithm(), CompressionMethod::None),
            Compression::Lzw => (Lzw.get_algorithm(), CompressionMethod::LZW),
            Compression::Deflate => (
                Deflate::with_level(DeflateLevel::Balanced).get_algorithm(),
                CompressionMethod::Deflate,
            ),
            Compression::Packbits => (Packbits.get_algorithm(), CompressionMethod::PackBits),
        };
        // The predictor improves compression much. Readers expect none for floats.
        let predicts = matches!(compression, Compression::Lzw | Compression::Deflate)
            && !matches!(sample.format, SampleFormat::IEEEFP);
        let mut directory = encoder.image_directory()?;
        directory.write_tag(Tag::ImageWidth, shape.width as u32)?;
        directory.write_tag(Tag::ImageLength, shape.height as u32)?;
        directory.write_tag(Tag::Compression, method.to_u16())?;
        let predictor = if predicts { Predictor::Horizontal } else { Predictor::None };
        directory.write_tag(Tag::Predictor, predictor.to_u16())?;
        directory.write_tag(Tag::RowsPerStrip, rows.min(shape.height) as u32)?;
        directory
            .write_tag(Tag::BitsPerSample, &vec![8 * sample.bytes as u16; shape.channels][..])?;
        directory
            .write_tag(Tag::SampleFormat, &vec![sample.format.to_u16(); shape.channels][..])?;
        channels(&mut directory, shape.channels, extras)?;
        describe(&mut directory, meta, &fields, directories)?;
        tags::write(&mut directory, meta, shape.channels - extras.len() == 4)?;
        Ok(Self {
            directory,
            compressor,
            predicts,
            shape,
            sample,
            rows,
            offsets: Vec::new(),
            counts: Vec::new(),
        })
    }

    /// Size of each strip but the last, in bytes.
    fn strip_bytes(&self) -> usize {
        self.rows.min(self.shape.height) * self.shape.row_len() * self.sample.bytes
    }

    /// Writes the next strip.
    fn strip(&mut self, bytes: &[u8]) -> TiffResult<()> {
        let mut bytes = Cow::Borrowed(bytes);
        if self.predicts {
            let row = self.shape.row_len() * self.sample.bytes;
            bytes
                .to_mut()
                .chunks_exact_mut(row)
                .for_each(|row| differences(row, self.sample.bytes, self.shape.channels));
        }
        if !matches!(self.compressor, Compressor::Uncompressed(_)) {
            let mut packed = Vec::new();
            self.compressor.write_to(&mut packed, &bytes)?;
            bytes = packed.into();
        }
        let offset = self.directory.write_data(&bytes[..])?;
        self.offsets.push(K::convert_offset(offset)?);
        self.counts.push(K::convert_offset(bytes.len() as u64)?);
        Ok(())
    }

    fn finish(mut self) -> TiffResult<()> {
        self.directory.write_tag(Tag::StripOffsets, K::convert_slice(&self.offsets))?;
        self.directory.write_tag(Tag::StripByteCounts, K::convert_slice(&self.counts))?;
        self.directory.finish()
    }
}

/// Replaces each sample of a row by its difference from the same sample of the pixel before.
fn differences(row: &mut [u8], bytes: usize, channels: usize) {
    let step = bytes * channels;
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte));
    let native = |bytes: &mut [u8]| {
        if cfg!(target_endian = "big") {
            bytes.reverse();
        }
    };
    for at in (step..row.len()).step_by(bytes).rev() {
        let (before, here) = row.split_at_mut(at);
        let (before, here) = (&mut before[at - step..][..bytes], &mut here[..bytes]);
        native(before);
        native(here);
        let difference = number(here).wrapping_sub(number(before));
        here.copy_from_slice(&difference.to_le_bytes()[..bytes]);
        native(before);
        native(here);
    }
}

/// Writes the tags that describe the channels.
fn channels<K: TiffKind>(
    directory: &mut DirectoryEncoder<'_, &mut dyn Sink, K>,
    channels: usize,
    extras: &[Extra],
) -> TiffResult<()> {
    let photometric = match channels - extras.len() {
        3 => PhotometricInterpretation::RGB,
        4 => PhotometricInterpretation::CMYK,
        _ => PhotometricInterpretation::BlackIsZero,
    };
    directory.write_tag(Tag::PhotometricInterpretation, photometric.to_u16())?;
    directory.write_tag(Tag::SamplesPerPixel, channels as u16)?;
    // Leading bands are left out: if all extra channels are bands, the tag is not written.
    let said = extras.iter().skip_while(|&&extra| extra == Extra::Band).map(|extra| match extra {
        Extra::Straight => ExtraSamples::UnassociatedAlpha.to_u16(),
        Extra::Premultiplied => ExtraSamples::AssociatedAlpha.to_u16(),
        Extra::Band | Extra::Unspecified => ExtraSamples::Unspecified.to_u16(),
    });
    match &said.collect::<Vec<_>>()[..] {
        [] => Ok(()),
        said => directory.write_tag(Tag::ExtraSamples, said),
    }
}
/// Writes the Exif fields that belong in directories of their own. Returns the tags that point to
/// these directories.
fn directories<K: TiffKind>(
    encoder: &mut TiffEncoder<&mut dyn Sink, K>,
    fields: &[Field],
) -> TiffResult<Vec<(Tag, K::OffsetType)>> {
    let mut pointers = Vec::new();
    for (context, pointer) in
        [(Context::Exif, Tag::ExifDirectory), (Context::Gps, Tag::GpsDirectory)]
    {
        let mut fields = fields.iter().filter(|field| field.tag.context() == context).peekable();
        if fields.peek().is_some() {
            let mut directory = encoder.extra_directory()?;
            fields.try_for_each(|field| put(&mut directory, field))?;
            pointers.push((pointer, directory.finish_with_offsets()?.offset));
        }
    }
    Ok(pointers)
}

/// Writes a picture's metadata.
fn describe<K: TiffKind>(
    directory: &mut DirectoryEncoder<'_, &mut dyn Sink, K>,
    meta: &Meta,
    fields: &[Field],
    directories: Vec<(Tag, K::OffsetType)>,
) -> TiffResult<()> {
    let rational = |value: f64| {
        let (n, d) = ratio(value);
        Rational { n, d }
    };
    // If the resolution is unknown, the pixels are squares without a unit.
    let Resolution { x, y, unit } =
        meta.resolution.unwrap_or(Resolution { x: 1.0, y: 1.0, unit: Unit::Unnamed });
    directory.write_tag(Tag::XResolution, rational(x))?;
    directory.write_tag(Tag::YResolution, rational(y))?;
    directory.write_tag(Tag::ResolutionUnit, unit as u16)?;
    directory.write_tag(Tag::Orientation, u16::from(meta.orientation.to_exif()))?;
    if let Some(profile) = &meta.icc {
        directory.write_tag(Tag::IccProfile, &profile[..])?;
    }
    for field in fields.iter().filter(|field| field.tag.context() == Context::Tiff) {
        put(directory, field)?;
    }
    for (tag, offset) in directories {
        directory.write_tag(tag, offset)?;
    }
    Ok(())
}

/// Writes a field of Exif as a tag.
fn put<K: TiffKind>(
    directory: &mut DirectoryEncoder<'_, &mut dyn Sink, K>,
    field: &Field,
) -> TiffResult<()> {
    let tag = Tag::from_u16_exhaustive(field.tag.number());
    match &field.value {
        Value::Byte(values) => directory.write_tag(tag, &values[..]),
        Value::Ascii(values) => {
            directory.write_tag(tag, Bytes::<2>([&values.join(&0)[..], &[0]].concat()))
        }
        Value::Short(values) => directory.write_tag(tag, &values[..]),
        Value::Long(values) => directory.write_tag(tag, &values[..]),
        Value::Rational(values) => {
            let values: Vec<_> =
                values.iter().map(|it| Rational { n: it.num, d: it.denom }).collect();
            directory.write_tag(tag, &values[..])
        }
        Value::SByte(values) => directory.write_tag(tag, &values[..]),
        Value::Undefined(values, _) => directory.write_tag(tag, Bytes::<7>(values.clone())),
        Value::SShort(values) => directory.write_tag(tag, &values[..]),
        Value::SLong(values) => directory.write_tag(tag, &values[..]),
        Value::SRational(values) => {
            let values: Vec<_> =
                values.iter().map(|it| SRational { n: it.num, d: it.denom }).collect();
            directory.write_tag(tag, &values[..])
        }
        Value::Float(values) => directory.write_tag(tag, &values[..]),
        Value::Double(values) => directory.write_tag(tag, &values[..]),
        Value::Unknown(..) => Ok(()),
    }
}

/// Bytes of the TIFF type `TYPE`: 2 is ASCII, which need not be UTF-8, and 7 is undefined.
struct Bytes<const TYPE: u16>(Vec<u8>);

impl<const TYPE: u16> TiffValue for Bytes<TYPE> {
    const BYTE_LEN: u8 = 1;
    const FIELD_TYPE: Type = if TYPE == 2 { Type::ASCII } else { Type::UNDEFINED };

    fn count(&self) -> usize {
        self.0.len()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.0)
    }
}
