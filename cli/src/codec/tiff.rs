//! TIFF: all pages, every type of numbers, and what its tags say.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufReader, Seek};
use std::marker::PhantomData;

use ::tiff::decoder::{ChunkType, Decoder, DecodingResult, Limits};
use ::tiff::encoder::colortype::ColorType as Colours;
use ::tiff::encoder::compression::DeflateLevel;
use ::tiff::encoder::{
    DirectoryEncoder, ImageEncoder, Predictor, Rational, SRational, TiffEncoder, TiffKind, TiffKindBig, TiffValue,
};
use ::tiff::tags::{
    ByteOrder, ExtraSamples, IfdPointer, PhotometricInterpretation, SampleFormat, Tag, Type, ValueBuffer,
};
use ::tiff::{ColorType, TiffError, TiffResult, encoder};
use apron::{Scalar, Shape};
use exif::{Context, Field, In, Value};
use image::metadata::Orientation;

use super::{Compression, Number, Pages, Reading, Result, Sink, Source, Writing, describes, image_of};
use super::{kept_in_part, narrowed, said, zeroes};
use crate::failure::Failure;
use crate::picture::{Document, Meta, Picture, Pixels, Resolution, Stored};

type Tiff<'a> = Decoder<&'a mut dyn Source>;

/// Where the rows of an uncompressed picture lie in its file.
pub(crate) struct Strips {
    pub(crate) shape: Shape,
    pub(crate) scalar: Scalar,
    /// Whether the byte order differs from this machine's.
    pub(crate) swapped: bool,
    /// Where each strip begins, and how many rows it has; the last may have fewer.
    pub(crate) offsets: Vec<u64>,
    pub(crate) rows: usize,
    pub(crate) meta: Meta,
}

/// The only picture of a file, if its rows lie there as they lie in memory, without alpha. Anything else is `None`.
pub(crate) fn strips(file: &File) -> Option<Strips> {
    let length = file.metadata().ok()?.len();
    let mut source = BufReader::new(file.try_clone().ok()?);
    source.rewind().ok()?;
    let mut decoder: Tiff<'_> = Decoder::new(&mut source as &mut dyn Source).ok()?;
    let (width, height) = decoder.dimensions().ok()?;
    let colour = decoder.colortype().ok()?;
    let channels = match colour {
        ColorType::Gray(_) => 1,
        ColorType::RGB(_) => 3,
        _ => return None,
    };
    let number = |decoder: &mut Tiff<'_>, tag, default: u64| match decoder.find_tag_unsigned::<u64>(tag) {
        Ok(found) => Some(found.unwrap_or(default)),
        Err(_) => None,
    };
    let held = number(&mut decoder, Tag::SamplesPerPixel, 1)?;
    let compression = number(&mut decoder, Tag::Compression, 1)?;
    let predictor = number(&mut decoder, Tag::Predictor, 1)?;
    let planar = number(&mut decoder, Tag::PlanarConfiguration, 1)?;
    let order = number(&mut decoder, Tag::FillOrder, 1)?;
    let photometric = number(&mut decoder, Tag::PhotometricInterpretation, u64::MAX)?;
    // 0, white is zero, is read reversed.
    let expected = if channels == 1 { 1 } else { 2 };
    let plain = (held, compression, predictor, planar, order) == (channels, 1, 1, 1, 1) && photometric == expected;
    if !plain || decoder.more_images() || decoder.get_chunk_type() != ChunkType::Strip {
        return None;
    }
    let formats = decoder.find_tag_unsigned_vec::<u16>(Tag::SampleFormat).ok()?.unwrap_or_else(|| vec![1]);
    let first = *formats.first()?;
    let scalar = match (first, colour.bit_depth()) {
        _ if formats.iter().any(|&format| format != first) => return None,
        (1, 8) => Scalar::U8,
        (1, 16) => Scalar::U16,
        (3, 16) => Scalar::F16,
        (3, 32) => Scalar::F32,
        _ => return None,
    };
    let shape = Shape { width: width as usize, height: height as usize, channels: channels as usize };
    let rows = number(&mut decoder, Tag::RowsPerStrip, u64::from(height))?.clamp(1, u64::from(height).max(1));
    let offsets = decoder.find_tag_unsigned_vec::<u64>(Tag::StripOffsets).ok()??;
    let counts = decoder.find_tag_unsigned_vec::<u64>(Tag::StripByteCounts).ok()??;
    let row = (shape.row_len() * scalar.bytes()) as u64;
    let count = u64::from(height).div_ceil(rows) as usize;
    let whole = |(number, (&offset, &bytes)): (usize, (&u64, &u64))| {
        let of_strip = rows.min(u64::from(height) - rows * number as u64) * row;
        bytes >= of_strip && offset.checked_add(of_strip).is_some_and(|end| end <= length)
    };
    if (offsets.len(), counts.len()) != (count, count) || !offsets.iter().zip(&counts).enumerate().all(whole) {
        return None;
    }
    let little = decoder.byte_order() == ByteOrder::LittleEndian;
    let meta = meta(&mut decoder, shape.channels);
    Some(Strips {
        shape,
        scalar,
        swapped: little != cfg!(target_endian = "little"),
        offsets,
        rows: rows as usize,
        meta,
    })
}

pub(super) fn read(source: &mut dyn Source, options: &Reading) -> Result<Document> {
    let reason = |error: TiffError| match error {
        TiffError::LimitsExceeded => options.limits.exceeded(),
        error => said(&error),
    };
    let max = usize::try_from(options.limits.max_bytes).unwrap_or(usize::MAX);
    let mut limits = Limits::default();
    limits.decoding_buffer_size = max;
    limits.intermediate_buffer_size = max;
    let mut decoder = Decoder::new(source).map_err(reason)?.with_limits(limits);
    let mut pages = Pages::new(options);
    let mut notes: Vec<String> = Vec::new();
    let mut failed = None;
    loop {
        if pages.wants() {
            match page(&mut decoder, &pages) {
                Ok((picture, note)) => {
                    pages.push(picture);
                    notes.extend(note.filter(|note| !notes.contains(note)));
                }
                // Said as it is: no part of a picture too large or of an unknown kind can be kept.
                Err(Refused::AsItIs(text)) => return Err(text),
                Err(Refused::Damaged(error)) => failed = Some(reason(error)),
            }
        } else {
            pages.skip();
        }
        if failed.is_some() || pages.done() || !decoder.more_images() {
            break;
        }
        if let Err(error) = decoder.next_image() {
            failed = Some(reason(error));
            break;
        }
    }
    let mut document = pages.finish(None, failed)?;
    document.notes.extend(notes);
    Ok(document)
}

enum Refused {
    AsItIs(String),
    Damaged(TiffError),
}

impl From<TiffError> for Refused {
    fn from(error: TiffError) -> Self {
        match error {
            TiffError::UnsupportedError(what) => Self::AsItIs(format!("such a TIFF cannot be read: {what}")),
            error => Self::Damaged(error),
        }
    }
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self::AsItIs(reason)
    }
}

/// Reads the picture that the decoder stands at.
fn page(decoder: &mut Tiff<'_>, pages: &Pages<'_>) -> Result<(Picture, Option<String>), Refused> {
    let (width, height) = decoder.dimensions()?;
    let colour = decoder.colortype()?;
    let samples = usize::from(colour.num_samples());
    let depth = colour.bit_depth();
    let unknown = || Refused::AsItIs(format!("a TIFF of {colour:?} cannot be read"));
    match colour {
        ColorType::Gray(1 | 2 | 4 | 8..) | ColorType::CMYK(8 | 16) => {}
        ColorType::GrayA(8..)
        | ColorType::RGB(8..)
        | ColorType::RGBA(8..)
        | ColorType::Multiband { bit_depth: 8.., .. } => {}
        _ => return Err(unknown()),
    }
    pages.check(width.into(), height.into(), samples as u64 * u64::from(depth.div_ceil(8)))?;
    let layout = decoder.image_buffer_layout()?;
    let mut values = DecodingResult::U8(Vec::new());
    values.resize_to(&layout, &{
        let mut limits = Limits::default();
        limits.decoding_buffer_size = usize::try_from(pages.options.limits.max_bytes).unwrap_or(usize::MAX);
        limits
    })?;
    let mut note = None;
    if let Err(error) = decoder.read_image_bytes(values.as_buffer(0).as_bytes_mut()) {
        if !pages.options.lenient {
            return Err(error.into());
        }
        note = Some(kept_in_part(&said(&error)));
    }
    let planes = layout.planes;
    let count = width as usize * height as usize;
    let (pixels, stored, rounded) = match values {
        DecodingResult::U8(values) if depth < 8 => {
            let mut levels = unpacked(&values, width as usize, height as usize, depth)?;
            let greatest = (1u16 << depth) - 1;
            levels.iter_mut().for_each(|level| *level = (u16::from(*level) * 255 / greatest) as u8);
            (Pixels::U8(image_of(levels, width, height, 1)?), None, None)
        }
        DecodingResult::U8(values) => {
            let values = interleaved(values, samples, planes, count)?;
            let (values, channels) =
                rgb_of_cmyk(values, samples, colour, 255, |value: u8| value.into(), |value| value as u8)?;
            (Pixels::U8(image_of(values, width, height, channels)?), None, None)
        }
        DecodingResult::U16(values) => {
            let values = interleaved(values, samples, planes, count)?;
            let (values, channels) =
                rgb_of_cmyk(values, samples, colour, 65535, |value: u16| value.into(), |value| value as u16)?;
            (Pixels::U16(image_of(values, width, height, channels)?), None, None)
        }
        DecodingResult::F16(values) => {
            let values = interleaved(values, samples, planes, count)?;
            (Pixels::F16(image_of(values, width, height, samples)?), None, None)
        }
        DecodingResult::F32(values) => {
            let values = interleaved(values, samples, planes, count)?;
            (Pixels::F32(image_of(values, width, height, samples)?), None, None)
        }
        DecodingResult::U32(values) => wide(&interleaved(values, samples, planes, count)?, width, height, samples)?,
        DecodingResult::U64(values) => wide(&interleaved(values, samples, planes, count)?, width, height, samples)?,
        DecodingResult::F64(values) => wide(&interleaved(values, samples, planes, count)?, width, height, samples)?,
        DecodingResult::I8(values) => wide(&interleaved(values, samples, planes, count)?, width, height, samples)?,
        DecodingResult::I16(values) => wide(&interleaved(values, samples, planes, count)?, width, height, samples)?,
        DecodingResult::I32(values) => wide(&interleaved(values, samples, planes, count)?, width, height, samples)?,
        DecodingResult::I64(values) => wide(&interleaved(values, samples, planes, count)?, width, height, samples)?,
    };
    let channels = pixels.shape().channels;
    let held = decoder.find_tag_unsigned::<u16>(Tag::SamplesPerPixel).ok().flatten().map_or(samples, usize::from);
    if held > samples && note.is_none() {
        note = Some(format!(
            "{} further samples of each pixel, of which the file says no meaning, are not read",
            held - samples
        ));
    }
    // The decoder tells grey with alpha from two bands of anything only by the tag.
    let extra = decoder.find_tag_unsigned_vec::<u16>(Tag::ExtraSamples).ok().flatten().unwrap_or_default();
    let grey_alpha = channels == 2 && matches!(*extra, [1 | 2]);
    let picture = Picture {
        alpha: grey_alpha || matches!(colour, ColorType::GrayA(_) | ColorType::RGBA(_)),
        channel_axis: channels > 1,
        stored,
        meta: meta(decoder, channels),
        ..Picture::new(pixels)
    };
    Ok((picture, note.or(rounded)))
}

/// Numbers that the library does not filter, as f32.
fn wide<N: Number>(
    values: &[N],
    width: u32,
    height: u32,
    samples: usize,
) -> Result<(Pixels, Option<Stored>, Option<String>)> {
    let (values, note) = narrowed(values)?;
    Ok((Pixels::F32(image_of(values, width, height, samples)?), Some(N::STORED), note))
}

/// Values with the samples of a pixel side by side, if each sample has a plane of its own.
fn interleaved<P: bytemuck::Pod>(values: Vec<P>, samples: usize, planes: usize, count: usize) -> Result<Vec<P>> {
    if planes <= 1 || samples <= 1 {
        return Ok(values);
    }
    let stride = values.len() / planes;
    if planes != samples || stride < count {
        return Err(format!("a TIFF of {samples} samples in {planes} planes cannot be read"));
    }
    let mut result = zeroes::<P>(count * samples)?;
    for (index, pixel) in result.chunks_exact_mut(samples).enumerate() {
        for (sample, value) in pixel.iter_mut().enumerate() {
            *value = values[sample * stride + index];
        }
    }
    Ok(result)
}

/// Ink as light, the way that the `image` crate converts it; other colours as they are. Returns the number of channels too.
fn rgb_of_cmyk<P: bytemuck::Pod>(
    values: Vec<P>,
    samples: usize,
    colour: ColorType,
    greatest: u32,
    wide: fn(P) -> u32,
    narrow: fn(u32) -> P,
) -> Result<(Vec<P>, usize)> {
    if !matches!(colour, ColorType::CMYK(_)) {
        return Ok((values, samples));
    }
    let mut result = zeroes::<P>(values.len() / 4 * 3)?;
    for (rgb, cmyk) in result.chunks_exact_mut(3).zip(values.chunks_exact(4)) {
        let light = greatest - wide(cmyk[3]);
        for (to, &ink) in rgb.iter_mut().zip(cmyk) {
            let product = u64::from(greatest - wide(ink)) * u64::from(light);
            *to = narrow(((product + u64::from(greatest) / 2) / u64::from(greatest)) as u32);
        }
    }
    Ok((result, 3))
}

/// Levels of fewer than 8 bits; each row begins at a byte.
fn unpacked(values: &[u8], width: usize, height: usize, depth: u8) -> Result<Vec<u8>> {
    let mut levels = zeroes::<u8>(width * height)?;
    let (per_byte, mask) = (8 / usize::from(depth), ((1u16 << depth) - 1) as u8);
    for (row, packed) in levels.chunks_exact_mut(width).zip(values.chunks_exact(width.div_ceil(per_byte))) {
        for (x, level) in row.iter_mut().enumerate() {
            let shift = 8 - usize::from(depth) * (x % per_byte + 1);
            *level = packed[x / per_byte] >> shift & mask;
        }
    }
    Ok(levels)
}

fn meta(decoder: &mut Tiff<'_>, channels: usize) -> Meta {
    let uint = |decoder: &mut Tiff<'_>, tag| decoder.find_tag_unsigned::<u16>(tag).ok().flatten();
    let ratio = |decoder: &mut Tiff<'_>, tag| match decoder.find_tag(tag) {
        Ok(Some(::tiff::decoder::ifd::Value::Rational(num, denom))) if num > 0 && denom > 0 => {
            Some(f64::from(num) / f64::from(denom))
        }
        _ => None,
    };
    let orientation =
        uint(decoder, Tag::Orientation).and_then(|value| Orientation::from_exif(u8::try_from(value).ok()?));
    // 1 says that the numbers are a ratio alone; without the tag they are for an inch.
    let per_inch = match uint(decoder, Tag::ResolutionUnit) {
        None | Some(2) => Some(1.0),
        Some(3) => Some(2.54),
        Some(_) => None,
    };
    let resolution = ratio(decoder, Tag::XResolution).zip(ratio(decoder, Tag::YResolution)).zip(per_inch);
    let icc = decoder.get_tag_u8_vec(Tag::IccProfile).ok();
    let extra = decoder.find_tag_unsigned_vec::<u16>(Tag::ExtraSamples).ok().flatten();
    Meta {
        icc: icc.filter(|profile| describes(profile, channels)),
        exif: crate::exif::collected(fields(decoder)),
        resolution: resolution.map(|((x, y), per_inch)| Resolution(x * per_inch, y * per_inch)),
        orientation: orientation.unwrap_or(Orientation::NoTransforms),
        premultiplied: extra.as_deref() == Some(&[ExtraSamples::AssociatedAlpha.to_u16()]),
        ..Meta::default()
    }
}

/// The tags that Exif knows.
fn fields(decoder: &mut Tiff<'_>) -> Vec<Field> {
    let mut fields = Vec::new();
    let main: Vec<Tag> = decoder.image_ifd().directory().iter().map(|(tag, _)| tag).collect();
    for tag in main {
        match (tag, Context::Tiff) {
            (Tag::ExifDirectory, _) => sub_fields(decoder, tag, Context::Exif, &mut fields),
            (Tag::GpsDirectory, _) => sub_fields(decoder, tag, Context::Gps, &mut fields),
            (_, context) if crate::exif::is_kept(exif::Tag(context, tag.to_u16())) => {
                fields.extend(field(&mut decoder.image_ifd(), tag, context));
            }
            _ => {}
        }
    }
    fields
}

fn sub_fields(decoder: &mut Tiff<'_>, pointer: Tag, context: Context, fields: &mut Vec<Field>) {
    let Ok(Some(offset)) = decoder.find_tag_unsigned::<u64>(pointer) else { return };
    let Ok(directory) = decoder.read_directory(IfdPointer(offset)) else { return };
    let tags: Vec<Tag> = directory.iter().map(|(tag, _)| tag).collect();
    for tag in tags {
        if crate::exif::is_kept(exif::Tag(context, tag.to_u16())) {
            fields.extend(field(&mut decoder.read_directory_tags(&directory), tag, context));
        }
    }
}

fn field(directory: &mut ::tiff::decoder::IfdDecoder<'_>, tag: Tag, context: Context) -> Option<Field> {
    let mut buffer = ValueBuffer::empty(Type::BYTE);
    directory.find_tag_buf(tag, &mut buffer).ok()??;
    buffer.set_byte_order(ByteOrder::LittleEndian);
    let bytes = buffer.as_bytes();
    let halves = || bytes.chunks_exact(2).map(|it| u16::from_le_bytes([it[0], it[1]]));
    let words = || bytes.chunks_exact(4).map(|it| u32::from_le_bytes([it[0], it[1], it[2], it[3]]));
    let pairs = || words().step_by(2).zip(words().skip(1).step_by(2));
    let value = match buffer.data_type() {
        Type::BYTE => Value::Byte(bytes.to_vec()),
        Type::ASCII => Value::Ascii(
            bytes.strip_suffix(b"\0").unwrap_or(bytes).split(|&byte| byte == 0).map(<[u8]>::to_vec).collect(),
        ),
        Type::SHORT => Value::Short(halves().collect()),
        Type::LONG => Value::Long(words().collect()),
        Type::RATIONAL => Value::Rational(pairs().map(|(num, denom)| exif::Rational { num, denom }).collect()),
        Type::SBYTE => Value::SByte(bytes.iter().map(|&byte| byte as i8).collect()),
        Type::UNDEFINED => Value::Undefined(bytes.to_vec(), 0),
        Type::SSHORT => Value::SShort(halves().map(|value| value as i16).collect()),
        Type::SLONG => Value::SLong(words().map(|value| value as i32).collect()),
        Type::SRATIONAL => Value::SRational(
            pairs().map(|(num, denom)| exif::SRational { num: num as i32, denom: denom as i32 }).collect(),
        ),
        Type::FLOAT => Value::Float(words().map(f32::from_bits).collect()),
        Type::DOUBLE => {
            Value::Double(pairs().map(|(low, high)| f64::from_bits(u64::from(high) << 32 | u64::from(low))).collect())
        }
        _ => return None,
    };
    Some(Field { tag: exif::Tag(context, tag.to_u16()), ifd_num: In::PRIMARY, value })
}

/// Whether offsets of 32 bits, which reach to 4 GiB, may be too few. Values may be twice as wide in the file as in memory.
fn is_big(bytes: u64) -> bool {
    bytes.saturating_mul(2) > 0xf000_0000
}

/// Takes the bytes of rows.
pub(crate) type TakeRows<'a> = dyn FnMut(&[u8]) -> io::Result<()> + Send + 'a;

/// Hands rows over to the function that takes them.
type GiveRows<'a> = dyn FnMut(&mut TakeRows<'_>) -> Result<(), Failure> + 'a;

/// Writes one uncompressed picture as [`write`] does, whose rows come one after the other: `rows` is given the function that takes them.
pub(crate) fn write_rows(
    out: &mut dyn Sink,
    (shape, scalar, meta): (Shape, Scalar, &Meta),
    fail: &dyn Fn(io::Error) -> Failure,
    rows: &mut GiveRows<'_>,
) -> Result<(), Failure> {
    let begin_failed = |error| fail(io_error(error));
    if is_big(shape.row_len() as u64 * shape.height as u64 * scalar.bytes() as u64) {
        let mut encoder = TiffEncoder::<_, TiffKindBig>::new_generic(out).map_err(begin_failed)?;
        of_type(&mut encoder, (shape, scalar, meta), fail, rows)
    } else {
        let mut encoder = TiffEncoder::new(out).map_err(begin_failed)?;
        of_type(&mut encoder, (shape, scalar, meta), fail, rows)
    }
}

fn io_error(error: TiffError) -> io::Error {
    match error {
        TiffError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

fn of_type<K: TiffKind<OffsetType: Send> + Send>(
    encoder: &mut TiffEncoder<&mut dyn Sink, K>,
    (shape, scalar, meta): (Shape, Scalar, &Meta),
    fail: &dyn Fn(io::Error) -> Failure,
    rows: &mut GiveRows<'_>,
) -> Result<(), Failure> {
    match scalar {
        Scalar::U8 => of_channels::<u8, K>(encoder, (shape, meta), fail, rows),
        Scalar::U16 => of_channels::<u16, K>(encoder, (shape, meta), fail, rows),
        Scalar::F16 => of_channels::<half::f16, K>(encoder, (shape, meta), fail, rows),
        _ => of_channels::<f32, K>(encoder, (shape, meta), fail, rows),
    }
}

fn of_channels<S: Sample, K: TiffKind<OffsetType: Send> + Send>(
    encoder: &mut TiffEncoder<&mut dyn Sink, K>,
    about: (Shape, &Meta),
    fail: &dyn Fn(io::Error) -> Failure,
    rows: &mut GiveRows<'_>,
) -> Result<(), Failure>
where
    [S::Inner]: TiffValue,
{
    match about.0.channels {
        1 => in_strips::<S, 1, K>(encoder, about, fail, rows),
        2 => in_strips::<S, 2, K>(encoder, about, fail, rows),
        3 => in_strips::<S, 3, K>(encoder, about, fail, rows),
        _ => in_strips::<S, 4, K>(encoder, about, fail, rows),
    }
}

fn in_strips<S: Sample, const N: usize, K: TiffKind<OffsetType: Send> + Send>(
    encoder: &mut TiffEncoder<&mut dyn Sink, K>,
    (shape, meta): (Shape, &Meta),
    fail: &dyn Fn(io::Error) -> Failure,
    rows: &mut GiveRows<'_>,
) -> Result<(), Failure>
where
    [S::Inner]: TiffValue,
{
    let mut image = begun::<S, N, K>(encoder, shape, meta).map_err(|error| fail(io_error(error)))?;
    let mut waiting: Vec<S::Inner> = Vec::new();
    rows(&mut |bytes| {
        let mut values: &[S::Inner] = bytemuck::cast_slice(bytes);
        while !values.is_empty() {
            let strip = image.next_strip_sample_count() as usize;
            let (part, others) = values.split_at((strip - waiting.len()).min(values.len()));
            values = others;
            if part.len() == strip {
                image.write_strip(part).map_err(io_error)?;
                continue;
            }
            waiting.extend_from_slice(part);
            if waiting.len() == strip {
                image.write_strip(&waiting).map_err(io_error)?;
                waiting.clear();
            }
        }
        Ok(())
    })?;
    image.finish().map_err(|error| fail(io_error(error)))
}

pub(crate) fn write(document: &Document, out: &mut dyn Sink, options: &Writing) -> Result<()> {
    let bytes: u64 = document.pages.iter().map(|page| page.pixels.bytes().len() as u64).sum();
    let written = if is_big(bytes) {
        TiffEncoder::<_, TiffKindBig>::new_generic(out).and_then(|encoder| pages(encoder, document, options))
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
    encoder = encoder.with_compression(match compression {
        Compression::None => encoder::Compression::Uncompressed,
        Compression::Lzw => encoder::Compression::Lzw,
        Compression::Deflate => encoder::Compression::Deflate(DeflateLevel::Balanced),
        Compression::Packbits => encoder::Compression::Packbits,
    });
    for page in &document.pages {
        // Differences compress far better; the encoder has none for floats.
        let whole = match (&page.pixels, page.stored) {
            (Pixels::U8(_) | Pixels::U16(_), _) => true,
            (_, stored) => !matches!(stored, None | Some(Stored::F64 | Stored::Bool)),
        };
        let predicted = whole && matches!(compression, Compression::Lzw | Compression::Deflate);
        encoder = encoder.with_predictor(if predicted { Predictor::Horizontal } else { Predictor::None });
        match (&page.pixels, page.stored) {
            (Pixels::U8(image), _) => one::<u8, K>(&mut encoder, page, image.as_slice())?,
            (Pixels::U16(image), _) => one::<u16, K>(&mut encoder, page, image.as_slice())?,
            (Pixels::F16(image), _) => one::<half::f16, K>(&mut encoder, page, bytemuck::cast_slice(image.as_slice()))?,
            (Pixels::F32(image), None | Some(Stored::Bool)) => one::<f32, K>(&mut encoder, page, image.as_slice())?,
            (Pixels::F32(image), Some(stored)) => {
                let values = image.as_slice();
                match stored {
                    Stored::I8 => widened::<i8, K>(&mut encoder, page, values)?,
                    Stored::I16 => widened::<i16, K>(&mut encoder, page, values)?,
                    Stored::I32 => widened::<i32, K>(&mut encoder, page, values)?,
                    Stored::I64 => widened::<i64, K>(&mut encoder, page, values)?,
                    Stored::U32 => widened::<u32, K>(&mut encoder, page, values)?,
                    Stored::U64 => widened::<u64, K>(&mut encoder, page, values)?,
                    Stored::F64 | Stored::Bool => widened::<f64, K>(&mut encoder, page, values)?,
                }
            }
        }
    }
    Ok(())
}

fn widened<N, K: TiffKind>(
    encoder: &mut TiffEncoder<&mut dyn Sink, K>,
    page: &Picture,
    values: &[f32],
) -> TiffResult<()>
where
    N: Number + Sample<Inner = N>,
    [N]: TiffValue,
{
    let values: Vec<N> = values.iter().map(|&value| N::widened(value)).collect();
    one::<N, K>(encoder, page, &values)
}

fn one<S: Sample, K: TiffKind>(
    encoder: &mut TiffEncoder<&mut dyn Sink, K>,
    page: &Picture,
    values: &[S::Inner],
) -> TiffResult<()>
where
    [S::Inner]: TiffValue,
{
    match page.pixels.shape().channels {
        1 => with_channels::<S, 1, K>(encoder, page, values),
        2 => with_channels::<S, 2, K>(encoder, page, values),
        3 => with_channels::<S, 3, K>(encoder, page, values),
        _ => with_channels::<S, 4, K>(encoder, page, values),
    }
}

fn with_channels<S: Sample, const N: usize, K: TiffKind>(
    encoder: &mut TiffEncoder<&mut dyn Sink, K>,
    page: &Picture,
    values: &[S::Inner],
) -> TiffResult<()>
where
    [S::Inner]: TiffValue,
{
    begun::<S, N, K>(encoder, page.pixels.shape(), &page.meta)?.write_data(values)
}

/// A picture of which everything is written but the pixels.
fn begun<'e, 'w, S: Sample, const N: usize, K: TiffKind>(
    encoder: &'e mut TiffEncoder<&'w mut dyn Sink, K>,
    shape: Shape,
    meta: &Meta,
) -> TiffResult<ImageEncoder<'e, &'w mut dyn Sink, Samples<S, N>, K>>
where
    [S::Inner]: TiffValue,
{
    let fields = crate::exif::fields(meta.exif.as_deref());
    let directories = directories(encoder, &fields)?;
    let mut image = encoder.new_image::<Samples<S, N>>(shape.width as u32, shape.height as u32)?;
    if let Some(Resolution(x, y)) = meta.resolution {
        let rational = |value: f64| Rational { n: (value * 1000.0).round() as u32, d: 1000 };
        image.resolution_unit(::tiff::tags::ResolutionUnit::Inch);
        image.x_resolution(rational(x));
        image.y_resolution(rational(y));
    }
    describe(image.encoder(), N, meta, &fields, directories)?;
    Ok(image)
}

/// Writes the fields of Exif that have directories of their own. Returns the tags that point to these.
fn directories<K: TiffKind>(
    encoder: &mut TiffEncoder<&mut dyn Sink, K>,
    fields: &[Field],
) -> TiffResult<Vec<(Tag, K::OffsetType)>> {
    let mut pointers = Vec::new();
    for (context, pointer) in [(Context::Exif, Tag::ExifDirectory), (Context::Gps, Tag::GpsDirectory)] {
        let mut fields = fields.iter().filter(|field| field.tag.context() == context).peekable();
        if fields.peek().is_some() {
            let mut directory = encoder.extra_directory()?;
            fields.try_for_each(|field| put(&mut directory, field))?;
            pointers.push((pointer, directory.finish_with_offsets()?.offset));
        }
    }
    Ok(pointers)
}

/// Writes what is known of a picture with so many channels.
fn describe<K: TiffKind>(
    directory: &mut DirectoryEncoder<'_, &mut dyn Sink, K>,
    channels: usize,
    meta: &Meta,
    fields: &[Field],
    directories: Vec<(Tag, K::OffsetType)>,
) -> TiffResult<()> {
    if channels == 2 || channels == 4 {
        // As in every format for pictures, the last of two or four channels is alpha, even an array's.
        let kind = if meta.premultiplied { ExtraSamples::AssociatedAlpha } else { ExtraSamples::UnassociatedAlpha };
        directory.write_tag(Tag::ExtraSamples, kind.to_u16())?;
    }
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
fn put<K: TiffKind>(directory: &mut DirectoryEncoder<'_, &mut dyn Sink, K>, field: &Field) -> TiffResult<()> {
    let tag = Tag::from_u16_exhaustive(field.tag.number());
    match &field.value {
        Value::Byte(values) => directory.write_tag(tag, &values[..]),
        Value::Ascii(values) => directory.write_tag(tag, Bytes::<2>([&values.join(&0)[..], &[0]].concat())),
        Value::Short(values) => directory.write_tag(tag, &values[..]),
        Value::Long(values) => directory.write_tag(tag, &values[..]),
        Value::Rational(values) => {
            let values: Vec<_> = values.iter().map(|it| Rational { n: it.num, d: it.denom }).collect();
            directory.write_tag(tag, &values[..])
        }
        Value::SByte(values) => directory.write_tag(tag, &values[..]),
        Value::Undefined(values, _) => directory.write_tag(tag, Bytes::<7>(values.clone())),
        Value::SShort(values) => directory.write_tag(tag, &values[..]),
        Value::SLong(values) => directory.write_tag(tag, &values[..]),
        Value::SRational(values) => {
            let values: Vec<_> = values.iter().map(|it| SRational { n: it.num, d: it.denom }).collect();
            directory.write_tag(tag, &values[..])
        }
        Value::Float(values) => directory.write_tag(tag, &values[..]),
        Value::Double(values) => directory.write_tag(tag, &values[..]),
        Value::Unknown(..) => Ok(()),
    }
}

/// Bytes of a type that TIFF has a number for: 2 is text, which need not be UTF-8, and 7 anything.
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

/// A type of samples.
trait Sample: Send {
    type Inner: bytemuck::Pod + TiffValue + Send;
    const BITS: u16;
    const FORMAT: SampleFormat;
    /// The difference of two samples, if they are whole numbers.
    fn difference(value: Self::Inner, before: Self::Inner) -> Self::Inner;
}

macro_rules! samples {
    ($($sample:ty as $inner:ty, $format:ident, $difference:expr;)*) => { $(
        impl Sample for $sample {
            type Inner = $inner;
            const BITS: u16 = 8 * size_of::<$inner>() as u16;
            const FORMAT: SampleFormat = SampleFormat::$format;
            fn difference(value: $inner, before: $inner) -> $inner {
                let difference: fn($inner, $inner) -> $inner = $difference;
                difference(value, before)
            }
        }
    )* };
}

samples! {
    u8 as u8, Uint, u8::wrapping_sub;
    u16 as u16, Uint, u16::wrapping_sub;
    u32 as u32, Uint, u32::wrapping_sub;
    u64 as u64, Uint, u64::wrapping_sub;
    i8 as i8, Int, i8::wrapping_sub;
    i16 as i16, Int, i16::wrapping_sub;
    i32 as i32, Int, i32::wrapping_sub;
    i64 as i64, Int, i64::wrapping_sub;
    half::f16 as u16, IEEEFP, |value, _| value;
    f32 as f32, IEEEFP, |value, _| value;
    f64 as f64, IEEEFP, |value, _| value;
}

/// Pixels of `N` samples: grey or RGB, with alpha if there is one more. The encoder's own types know no alpha.
struct Samples<S, const N: usize>(PhantomData<S>);

impl<S: Sample, const N: usize> Colours for Samples<S, N> {
    type Inner = S::Inner;
    const TIFF_VALUE: PhotometricInterpretation =
        if N < 3 { PhotometricInterpretation::BlackIsZero } else { PhotometricInterpretation::RGB };
    const BITS_PER_SAMPLE: &'static [u16] = &[S::BITS; N];
    const SAMPLE_FORMAT: &'static [SampleFormat] = &[S::FORMAT; N];

    fn horizontal_predict(row: &[S::Inner], result: &mut Vec<S::Inner>) {
        result.extend_from_slice(&row[..N.min(row.len())]);
        result.extend(row.iter().zip(row.iter().skip(N)).map(|(&before, &value)| S::difference(value, before)));
    }
}
